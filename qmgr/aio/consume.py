"""Consuming with `async for`: messages as they come, each with the unit of work that it was got in."""

import asyncio
import contextlib
from collections.abc import Callable
from types import TracebackType
from typing import Self

from qmgr.aio.units import UnitOfWork, forget, running_loop, to_the_end
from qmgr.errors import MQError, NoMessageAvailable, SyncpointLimit
from qmgr.message import Message


class Consumer:
    """An asynchronous iterator of (message, unit of work); see `Connection.consume`.

    A unit of work that is still open when the next message is asked for is committed. One that is open when the loop is
    left is backed out, unless this was used as an `async with` block that ended without an exception.
    """

    def __init__(self, begin: Callable[[], UnitOfWork], queue: str, wait: float | None, *, requeue: bool) -> None:
        self._begin = begin
        self._queue = queue
        self._wait = wait
        self._requeue = requeue
        self._open: UnitOfWork | None = None
        self._loop = running_loop()

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> tuple[Message, UnitOfWork]:
        await self._commit()
        found = await self._get(0.0)
        if found is None and self._wait != 0.0:
            found = await self._get(self._wait)  # in a unit of its own: what was moved away is not kept waiting
        if found is None:
            raise StopAsyncIteration
        return found

    async def _get(self, wait: float | None) -> tuple[Message, UnitOfWork] | None:
        while True:
            self._open = unit = self._begin()
            try:
                return await unit.get(self._queue, wait=wait, backout_requeue=self._requeue), unit
            except SyncpointLimit:
                await self._commit()  # so many were moved away: on with the others
            except NoMessageAvailable:
                await self._commit()  # there may be some that were moved away
                return None
            except BaseException:
                await self.aclose()
                raise

    async def _commit(self) -> None:
        if self._open is not None and self._open._told:
            await self.aclose()  # its own commit has told the application that nothing was done: go on
        unit, self._open = self._open, None
        if unit is not None and unit._is_open:
            try:
                await unit.commit()
            except BaseException:
                if not unit._committing:  # it was refused, or cancelled before it was asked for
                    self._open = unit
                    await self.aclose()
                raise

    async def aclose(self) -> None:
        """Back out the unit of work that is open, if there is one."""
        unit, self._open = self._open, None
        if unit is not None and not unit._backend.forked and unit._is_open:
            with contextlib.suppress(MQError):
                await to_the_end(unit._backend.leave(unit._unit))

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, exc: BaseException | None, tb: TracebackType | None
    ) -> None:
        if kind is None:
            await self._commit()
        else:
            await self.aclose()

    def __del__(self) -> None:
        unit = self._open
        if unit is not None and unit._is_open and self._loop.is_running():
            self._loop.call_soon_threadsafe(_back_out, unit)


def _back_out(unit: UnitOfWork) -> None:
    """Nobody is going to end it any more."""
    asyncio.ensure_future(unit._backend.leave(unit._unit)).add_done_callback(forget)
