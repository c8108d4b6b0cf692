"""Channels: sockets of one session with a daemon, on an event loop, and the pool that calls take them from.

A channel carries one call at a time. It goes back to the pool when the answer has come, whether anybody still waits
for that or not; so nobody who is cancelled leaves half an answer behind.
"""

import asyncio
import functools
import weakref
from typing import Any, cast

from qmgr import sockets, wire
from qmgr.aio.units import check_loop, forget, in_thread
from qmgr.errors import MQError, Reason, Unavailable
from qmgr.link import KILL_GRACE_S, Broken, Link, Target, too_many_wait
from qmgr.targets import Remote

OPENINGS = 32  # at a time: of sockets that have not joined yet the daemon closes the oldest where they are many
OPEN_RETRIES_S = (0.01, 0.03, 0.1, 0.3)  # pauses, where there should be room for a channel
CHECKS_PER_TIMEOUT = 10  # at most


class Channel(asyncio.Protocol):
    """One socket."""

    def __init__(self, pool: "Pool", sock: sockets.Socket) -> None:
        self._pool = pool
        self._sock = sock  # the transport's
        self._transport: asyncio.Transport | None = None
        self._data = bytearray()
        self._frames: list[bytes] = []
        self._answer: asyncio.Future[list[bytes]] | None = None
        self._heard = 0.0  # when something came last, or was asked for
        self._timed_out = ""  # why it was given up
        self._given_up = False
        self.joined = False  # it carries calls
        self.waits = False  # a get that may wait for ever
        self._half_closes = False

    # ---- what the loop calls

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)  # those of uvloop are none by their class
        self._half_closes = self._transport.can_write_eof()

    def data_received(self, data: bytes) -> None:
        held = self._data
        held += data
        self._heard = self._pool.loop.time()
        while len(held) >= wire.LENGTH.size:
            size = wire.LENGTH.size + wire.LENGTH.unpack_from(held)[0]
            if len(held) < size:
                return
            frame = bytes(memoryview(held)[:size])
            del held[:size]
            if frame[4] == wire.ALIVE:
                continue
            self._frames.append(frame)
            if not wire.is_continued(frame):
                frames, self._frames = self._frames, []
                self._answered([one for one in frames if one[4] != wire.PROGRESS])

    def eof_received(self) -> bool:
        return False

    def connection_lost(self, exc: Exception | None) -> None:
        answer, self._answer = self._answer, None
        in_call = answer is not None and not self._given_up and (self.joined or self._timed_out != "")
        self._pool.lost(self, broken=in_call)
        if answer is not None and not answer.done():
            answer.set_exception(Broken(self._timed_out or str(exc or "") or "the queue manager has closed it"))
            answer.exception()  # perhaps nobody waits for it: asyncio would log that

    def _answered(self, frames: list[bytes]) -> None:
        answer, self._answer = self._answer, None
        if self._given_up:
            self.close()
        elif self.joined:
            self._pool.free(self)
        if answer is not None and not answer.done():
            answer.set_result(frames)

    # ---- what calls do

    def ask(self, frame: bytes) -> "asyncio.Future[list[bytes]]":
        """Send a request; the frames of its answer. To be awaited under `asyncio.shield`."""
        assert self._transport is not None and self._answer is None
        self._answer = self._pool.loop.create_future()
        self._heard = self._pool.loop.time()
        self._transport.write(frame)
        self._pool.watch_timeout()
        return self._answer

    def silent_since(self) -> float | None:
        """When the daemon last sent something about the call, in seconds of the loop's clock; None: no call."""
        return None if self._answer is None else self._heard

    def is_unheard(self) -> bool:
        """Has something come that the loop has not read? Where this process was stopped it looks at timers first."""
        return sockets.is_readable(self._sock)

    def time_out(self, why: str) -> None:
        """Close the channel, as the daemon sent nothing about the call for too long; the call fails with `why`."""
        self._timed_out = why
        self.close()

    def give_up(self) -> None:
        """What was asked for is not wanted any more. If it is waiting, the daemon ends that, and says what came of it.

        Over TLS the answer is lost. The channel is of no use afterwards.
        """
        self._given_up = True
        if self._transport is not None:
            if self._half_closes:
                self._transport.write_eof()
            else:
                self._transport.abort()

    def close(self) -> None:
        if self._transport is not None:
            self._transport.abort()

    def abandon(self) -> None:
        """In a forked child: the socket is the parent's, and so is what the loop has of it in its selector."""
        self._transport = None
        sockets.close_here(self._sock)
        answer, self._answer = self._answer, None
        if answer is not None and not answer.done():  # no answer comes here, and whoever is cancelled waits for it
            answer.set_exception(Broken("the session is the parent's of this process"))
            answer.exception()


_pools: "weakref.WeakSet[Pool]" = weakref.WeakSet()


def _in_child() -> None:
    for pool in list(_pools):
        pool.abandon()


sockets.in_child(_in_child)


class Pool:
    """The channels of one session, whose anchor is the link's.

    There may be as many as the daemon allows. Calls beyond that stand in line, but not for ever: gets that wait leave
    one channel free for other calls, each of which is answered soon.
    """

    def __init__(self, target: Target, link: Link) -> None:
        self.link = link
        self.name = target.name
        self._target = target
        self.loop = asyncio.get_running_loop()
        self._idle: list[Channel] = []
        self._all: set[Channel] = set()
        self._slots = asyncio.Semaphore(link.calls)  # for channels that are used, or being opened
        self._openings = asyncio.Semaphore(OPENINGS)
        self._waiting_gets = 0
        self._timer: asyncio.TimerHandle | None = None  # of `_check_timeouts`
        _pools.add(self)

    async def take(self) -> Channel:
        """Wait for a channel that nobody uses. Raises Broken, MQError."""
        if self.link.forked:
            raise Broken("it is the parent's")  # before it waits: the parent's calls may have taken all slots
        check_loop(self.loop)  # before anything is asked: the answer would come there
        await self._slots.acquire()
        if self.link.broken:  # since it stood in line
            self._slots.release()
            raise Broken("it was lost before")
        if self._idle:
            return self._idle.pop()
        opening = asyncio.ensure_future(self._open())
        try:
            channel = await asyncio.shield(opening)
        except asyncio.CancelledError:
            opening.add_done_callback(self._keep)
            raise
        return channel if channel in self._all else await self.take()  # it was lost meanwhile

    async def take_to_wait(self) -> Channel:
        """As `take`, for a get that waits. Raises Unavailable (2025) where as many wait as may."""
        most = self.link.calls - 1
        if self._waiting_gets >= most:
            raise too_many_wait(most, self.name)
        self._waiting_gets += 1
        try:
            channel = await self.take()
        except BaseException:
            self._waiting_gets -= 1
            raise
        channel.waits = True
        return channel

    def _keep(self, opening: "asyncio.Task[Channel]") -> None:
        """Done callback of an opening whose caller was cancelled meanwhile: the channel is there for others."""
        if not opening.cancelled() and opening.exception() is None and opening.result() in self._all:
            self.free(opening.result())

    async def _open(self) -> Channel:
        """Open one more. Is tried again for a moment: the daemon may not have seen yet that others were given up."""
        pauses = iter(OPEN_RETRIES_S)
        try:
            while True:
                try:
                    async with self._openings:
                        return await self._join()
                except Unavailable as exc:
                    pause = next(pauses, None) if exc.reason == Reason.MAX_CONNS_LIMIT_REACHED else None
                    if pause is None:
                        raise
                    await asyncio.sleep(pause)
        except BaseException:
            self._slots.release()
            raise

    async def _join(self) -> Channel:
        link, loop = self.link, asyncio.get_running_loop()
        if link.broken:
            raise Broken("it was lost before")
        try:
            target = self._target
            tls: dict[str, Any] = {}
            if isinstance(target, Remote) and target.tls is not None:  # asyncio has a TLS of its own
                sock = await in_thread(
                    functools.partial(sockets.connect_tcp, target.host, target.port, link.connect_timeout)
                )
                tls = {"ssl": target.tls, "server_hostname": target.host, "ssl_handshake_timeout": link.connect_timeout}
            else:
                sock = await in_thread(functools.partial(target.open, link.connect_timeout))
            sock.setblocking(False)
            _, channel = await loop.create_connection(lambda: Channel(self, sock), sock=sock, **tls)
        except (MQError, OSError) as exc:
            if not link.is_there():
                raise Broken(str(exc)) from exc
            if isinstance(exc, MQError):
                raise
            raise self._cannot_connect(exc) from exc
        self._all.add(channel)
        try:
            [answer] = await channel.ask(wire.hello(wire.JOIN, bytes.fromhex(link.token)))
            wire.decode_or_raise(answer)
            if channel not in self._all:
                raise Broken("the queue manager has closed it")
            channel.joined = True  # not before: another task would take one that was refused
            return channel
        except BaseException as exc:
            channel.close()
            self.lost(channel, broken=False)
            if isinstance(exc, MQError) and exc.reason == Reason.CONNECTION_BROKEN:
                self.close()
                raise Broken(str(exc)) from exc
            if isinstance(exc, Broken) and await self._session_lives():
                raise self._cannot_connect(exc) from exc
            raise

    async def _session_lives(self) -> bool:
        """Is the session still there? One of its sockets was closed before it had joined it."""
        for _ in range(CHECKS_PER_TIMEOUT):
            if self.link.is_lost():
                self.close()
                return False
            await asyncio.sleep(KILL_GRACE_S / CHECKS_PER_TIMEOUT)
        return True

    def _cannot_connect(self, exc: Exception) -> Unavailable:
        text = f"no connection can be made for this call to queue manager {self.name!r} ({exc}); nothing was done"
        return Unavailable(text, name=self.name)

    def watch_timeout(self) -> None:
        """Have `_check_timeouts` look in time at a call that was just made."""
        if self._timer is None and self.link.timeout is not None:
            self._timer = self.loop.call_later(self.link.timeout, self._check_timeouts)

    def _check_timeouts(self) -> None:
        self._timer = None
        timeout, now = self.link.timeout, self.loop.time()
        waiting = [(since, one) for one in self._all if (since := one.silent_since()) is not None]
        if timeout is None or not waiting:
            return
        for since, channel in waiting:
            if now - since >= timeout and not channel.is_unheard():
                channel.time_out(f"it has said nothing for {timeout:g} seconds")
        left = min(since for since, _ in waiting) + timeout - now
        self._timer = self.loop.call_later(max(left, timeout / CHECKS_PER_TIMEOUT), self._check_timeouts)

    def free(self, channel: Channel) -> None:
        self._end_wait(channel)
        if self.link.pending_backouts:  # it is free when that is answered
            channel.ask(self.link.pending_backouts.pop())
            return
        self._idle.append(channel)
        self._slots.release()

    def back_out_later(self, request: bytes) -> None:
        """Back out a unit of work that nobody will use again, as soon as there is a socket for that."""
        self.link.pending_backouts.append(request)
        if self._idle:  # one has become free since it was looked for
            self._start_backing_out()

    def _start_backing_out(self) -> None:
        asyncio.ensure_future(self._back_out_one()).add_done_callback(forget)

    async def _back_out_one(self) -> None:
        if self.link.pending_backouts:
            request = self.link.pending_backouts.pop()
            try:
                channel = await self.take()
            except Broken:
                return  # it is backed out with the session
            except MQError:  # another call has taken the socket
                self.back_out_later(request)
                return
            channel.ask(request)

    def _end_wait(self, channel: Channel) -> None:
        self._waiting_gets -= channel.waits
        channel.waits = False

    def lost(self, channel: Channel, *, broken: bool) -> None:
        """A channel is gone; `broken`: in a call, so the session is lost too."""
        if channel in self._idle:
            self._idle.remove(channel)
        elif channel in self._all and channel.joined:
            self._end_wait(channel)
            self._slots.release()
            if self.link.pending_backouts and not broken:  # there may be another one in its place
                self._start_backing_out()
        self._all.discard(channel)
        if broken:
            self.close()

    def abandon(self) -> None:
        """In a forked child: the session is the parent's, and goes on."""
        self.link.abandon()
        for channel in list(self._all):
            channel.abandon()
        self._all.clear()
        self._idle.clear()

    def close(self) -> None:
        """End the session."""
        self.link.close()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        for channel in list(self._all):
            channel.close()
