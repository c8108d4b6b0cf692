"""Starting and connecting: what can be awaited, and used as `async with` at once."""

import asyncio
from collections.abc import Awaitable, Callable, Generator
from functools import partial
from types import TracebackType
from typing import Any, Generic, TypeVar

from logger.posix_disk import Path
from qmgr import link, manager, targets
from qmgr.aio.connection import Connection
from qmgr.aio.inside import Inside, QueueManager
from qmgr.aio.outside import Outside
from qmgr.aio.units import in_thread, to_the_end

C = TypeVar("C", bound=Connection)


class Opening(Generic[C]):
    """`await` it, or use it as `async with`."""

    def __init__(self, begin: Callable[[], Awaitable[C]]) -> None:
        self._begin = begin
        self._made: C | None = None

    def __getattr__(self, name: str) -> Any:
        raise AttributeError(f"not connected yet, so there is no {name!r}: use this as `async with`, or await it first")

    def __await__(self) -> Generator[Any, Any, C]:
        return self._begin().__await__()

    async def __aenter__(self) -> C:
        self._made = await self._begin()
        return await self._made.__aenter__()

    async def __aexit__(
        self, kind: type[BaseException] | None, exc: BaseException | None, tb: TracebackType | None
    ) -> None:
        assert self._made is not None
        await self._made.__aexit__(kind, exc, tb)


def start(name: str, *, data_path: Path | None = None) -> Opening[QueueManager]:
    """Start a queue manager in this process, for asynchronous code: `async with qmgr.aio.start("QM1") as qm`.

    Its calls run in threads, its waits need none. Raises as `qmgr.start`. A start that is cancelled is waited for.
    """

    async def begin() -> QueueManager:
        starting = in_thread(partial(manager.start, name, data_path=data_path))
        return QueueManager(Inside(await to_the_end(starting)))  # not cut off: somebody has to end what is started

    return Opening(begin)


def connect(
    name_or_url: str,
    *,
    data_path: Path | None = None,
    user: str = "",
    password: str = "",
    ca: str = "",
    certificate: str = "",
    key: str = "",
    application: str = "",
    timeout: float | None = link.DEFAULT_TIMEOUT_S,
) -> Opening[Connection]:
    """Connect to a queue manager that a daemon runs: `async with qmgr.aio.connect("QM1") as qm`.

    Takes what `qmgr.connect` takes, and raises the same.
    """
    target = targets.find(name_or_url, data_path, targets.Identity(user, password, ca, certificate, key))
    told = targets.application_name(application)
    patience = link.check_timeout(timeout)

    def close(connecting: "asyncio.Future[link.Link]") -> None:
        if not connecting.cancelled() and connecting.exception() is None:
            connecting.result().close()

    async def begin() -> Connection:
        connecting = asyncio.ensure_future(in_thread(partial(link.Link, target, told, patience)))
        try:
            return Connection(Outside(target, told, await asyncio.shield(connecting)))
        except asyncio.CancelledError:
            connecting.add_done_callback(close)
            raise

    return Opening(begin)
