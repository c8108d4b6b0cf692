"""Pages: browses and replays that a daemon carries out, fetched page by page."""

import asyncio
from abc import ABC, abstractmethod
from collections import deque
from typing import Generic, Protocol, Self, TypeVar

from qmgr import values, wire
from qmgr.aio.channel import Pool
from qmgr.aio.units import running_loop, to_the_end
from qmgr.client import FIRST_PAGE, MAX_PAGE
from qmgr.errors import MQError
from qmgr.message import Message
from qmgr.replay import Replayed, Where
from qmgr.verbs import Wanted

T = TypeVar("T")
Answers = list[tuple[bytes, wire.Reply]]


class Pager(Protocol):
    """Who fetches a page."""

    def check_open(self) -> None: ...
    async def page(self, pool: Pool | None, frame: bytes) -> tuple[Pool, Answers]: ...


class Pages(ABC, Generic[T]):
    """An iterator that a daemon fills page by page. Nothing is asked for before the first item is."""

    def __init__(self, pager: Pager) -> None:
        self._pager = pager
        self._pool: Pool | None = None
        self._page_limit = FIRST_PAGE
        self._ready: deque[T] = deque()
        self._cursor = 0  # by which the daemon knows it
        self._begun = False
        self._end: BaseException | None = None
        self._turn = asyncio.Lock()

    @abstractmethod
    def first_request(self) -> bytes:
        """The request that begins it."""

    @abstractmethod
    def take_page(self, answers: Answers) -> int:
        """Take what is on a page; return the cursor, 0 at the end."""

    def on_given(self, one: T) -> None:
        """Called for each item that is handed to the reader."""

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> T:
        async with self._turn:
            if self._end is None:
                self._pager.check_open()
            while not self._ready and self._end is None:
                running_loop()
                await to_the_end(self._page())
            if self._ready:
                one = self._ready.popleft()
                self.on_given(one)
                return one
            assert self._end is not None
            raise self._end.with_traceback(None)

    async def _page(self) -> bool:
        """Fetch the next page; is there anything?"""
        cursor = self._cursor
        try:
            if not self._begun:
                frame = self.first_request()
            elif self._cursor:
                self._page_limit = min(2 * self._page_limit, MAX_PAGE)
                frame = wire.next_page(self._cursor, self._page_limit)
            else:
                raise StopAsyncIteration
            self._cursor = 0
            self._pool, answers = await self._pager.page(self._pool, frame)
            self._begun = True
            self._cursor = cursor
            self._cursor = self.take_page(answers)
        except StopAsyncIteration as exc:
            self._end = exc
        except MQError as exc:
            self._end, self._cursor = exc, cursor
            self._leave()  # the daemon may still keep it
        return bool(self._ready)

    async def aclose(self) -> None:
        """The rest is not wanted."""
        self._ready.clear()
        self._end = self._end or StopAsyncIteration()
        self._leave()

    def _leave(self) -> None:
        if self._cursor and self._pool is not None and not self._pool.link.broken:
            self._pool.link.unclosed_cursors.append(self._cursor)  # the next page of whatever tells the daemon
        self._cursor = 0

    def __del__(self) -> None:
        self._leave()


class Browse(Pages[Message]):
    """The messages of a queue that could be got."""

    def __init__(self, pager: Pager, queue: str, selectors: Wanted) -> None:
        super().__init__(pager)
        self._queue = queue
        self._selectors = selectors

    def first_request(self) -> bytes:
        return wire.browse(self._queue, self._page_limit, self._selectors)

    def take_page(self, answers: Answers) -> int:
        cursor = 0
        for answer, head in answers:
            found, cursor, _ = wire.page_messages(answer, head, self._queue)
            self._ready += found
        return cursor


class OutsideReplay(Pages[Replayed]):
    """A replay that a daemon carries out."""

    def __init__(self, pager: Pager, queue: str | int, start: Where, end: Where | None) -> None:
        super().__init__(pager)
        self._asked = {"queue": queue, "start": start, "end": end, "most": self._page_limit}
        self._given = ""  # the bookmark behind what was given last
        self._read = ""  # and behind all that was read
        self._left_out = 0

    def first_request(self) -> bytes:
        return wire.request(wire.REPLAY, 0, 0, "", values.dumps(self._asked))

    def take_page(self, answers: Answers) -> int:
        [(answer, head)] = answers
        page = wire.decode_replay_page(answer, head)
        self._ready += [Replayed(*found) for found in page.messages]
        self._given, self._read, self._left_out = self._given or page.first, page.bookmark, page.left_out
        if not page.messages:
            self._given = self._read
        return page.cursor

    def on_given(self, one: Replayed) -> None:
        self._given = one.bookmark

    @property
    def bookmark(self) -> str:
        """Where to go on later: behind the last message that it gave; at its end, behind all that it has read."""
        return self._read if isinstance(self._end, StopAsyncIteration) and not self._ready else self._given

    @property
    def left_out(self) -> int:
        """How many units of work were left out because the log has no longer all of them; only with "oldest"."""
        return self._left_out

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self.aclose()
