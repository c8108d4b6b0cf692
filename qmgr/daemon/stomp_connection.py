"""One STOMP connection as bytes: frames in, frames out, and what bounds a client that is slow or hostile.

Goals: nothing that a client does or leaves undone takes memory without bound, holds up the loop, or is waited for
without a limit; replies come in the order of what they answer, and only when the log is safe. What frames mean is in
stomp_commands.py.

A client that does not read: deliveries and its own frames stop while more than HIGH_WATER_BYTES wait for it, and it is
cut off when that lasts. One that sends faster than the disk takes it: its frames stop while MAX_PENDING replies or
MAX_UNFORCED_BYTES wait, and those of all clients while checkpoints do not keep up with what comes. What finds no room
in the log waits for it in another thread; the frames behind it wait too, since they are to be done in their order.
"""

import asyncio
import contextlib
import socket
from collections.abc import Callable
from functools import partial
from typing import Any, Protocol

import attrs

from qmgr import sockets
from qmgr.daemon.hands import Hands
from qmgr.daemon.loop import Callback, Forcer
from qmgr.daemon.stomp_frames import DIALECTS, V12, Dialect, Frame, FrameError, Limits, Parser, encode
from qmgr.daemon.stomp_times import Times, Timing
from qmgr.daemon.strangers import Stranger, Strangers
from qmgr.errors import MQError, Reason, Unavailable
from qmgr.logged import Outcome
from qmgr.threads import go_on

HIGH_WATER_BYTES = 256 << 10  # that wait to be sent
MAX_PENDING = 1000  # actions that wait for a force
OVERRUN_POLL_S = 0.05  # until it is asked again whether a checkpoint has caught up
MAX_UNFORCED_BYTES = 1 << 20  # of log, from where it is safe to the last record of this client
FRAMES_PER_TURN = 64  # of one client, before others are served
STRANGER_LIMITS = Limits(head=6144, headers=50, body=2048)  # until CONNECT is accepted
MAX_HEAD_BYTES, MAX_HEADERS = 64 << 10, 500  # afterwards
FAULTS = {Reason.CONNECTION_BROKEN, Reason.UNEXPECTED_ERROR}  # told to the error log, as bad frames are
QUICKACK: int | None = getattr(socket, "TCP_QUICKACK", None)  # Linux
KEEPALIVE = [  # a peer whose machine is gone is found out within four minutes, also without heart-beats
    (getattr(socket, name), value)
    for name, value in (("TCP_KEEPIDLE", 120), ("TCP_KEEPINTVL", 30), ("TCP_KEEPCNT", 4))
    if hasattr(socket, name)
]
HEART_BEAT = b"\n"


class Commands(Protocol):
    """What frames mean; see stomp_commands.py."""

    def do(self, frame: Frame) -> Outcome:
        """Do what the frame asks for; the LSN to force before the client hears of it, 0: none. Raises MQError.

        Where that takes waiting, the work is returned instead, which gives that LSN.
        """

    def go_on(self) -> None:
        """The client reads again."""

    def stop_deliveries(self) -> None:
        """The queue manager is ending."""

    def end(self, *, in_order: bool) -> None:
        """The client is gone, or has left in order."""


@attrs.frozen
class ListenerState:
    """What all connections of a listener share."""

    loop: asyncio.AbstractEventLoop
    forcer: Forcer
    hands: Hands  # for what may wait
    timing: Timing
    max_body: int  # bytes
    wall_us: Callable[[], int]
    overrun: Callable[[], bool]  # so much has come that checkpoints do not keep up: nobody may bring more
    commands: "Callable[[Connection], Commands]"  # of a new connection
    connections: "set[Connection]"
    strangers: Strangers  # those that are not connected yet
    report: Callable[[str, MQError], None]  # (address, why) of a connection that is closed for a fault


class _LostTransport(asyncio.Transport):
    """The transport of a connection that is lost."""

    def is_closing(self) -> bool:
        return True

    def abort(self) -> None:
        """There is nothing left to abort."""


LOST = _LostTransport()


class Connection(asyncio.Protocol):
    """A client's connection. All of it runs in the loop, but for `next_turn_threadsafe` and `go_on_later`."""

    __slots__ = (
        *("address", "certificate", "closed", "dialect", "times", "wall_us"),
        *("_closing", "_commands", "_farewell", "_force_asked", "_goes_on", "_half_closed", "_held_up", "_is_sender"),
        *("_listener", "_lsn", "_out", "_out_size", "_parser", "_paused", "_pending", "_polls", "_reading", "_refusal"),
        *("_socket", "_stranger", "_transport", "_working"),
    )

    def __init__(self, listener: ListenerState, stranger: Stranger, refusal: MQError | None = None) -> None:
        self.address = ""
        self.certificate: dict[str, Any] | None = None  # of the client, verified
        self.closed = False  # its session is over; at most what was sent last is still on its way
        self.dialect: Dialect = V12
        self.times: Times
        self.wall_us = listener.wall_us
        self._listener = listener
        self._stranger: Stranger | None = stranger
        self._refusal = refusal
        self._parser = Parser(STRANGER_LIMITS)
        self._commands: Commands | None = None
        self._transport: asyncio.Transport
        self._socket: Any = None
        self._held_up = 0  # answers from other threads that are waited for
        self._paused = False  # more than HIGH_WATER_BYTES wait
        self._is_sender = False  # it has sent a SEND
        self._goes_on = False  # at the next tick, as there was no memory to do so at once
        self._polls = False  # it is asked again soon whether checkpoints keep up
        self._reading = True
        self._working = False  # a turn for more frames is planned
        self._farewell: bytes | None = None  # sent when nothing is pending any more, and then it is closed
        self._closing = False
        self._half_closed = False  # by the client: nothing is read any more
        self._pending = 0  # actions that wait for a force
        self._lsn = 0  # of the last thing that was done
        self._force_asked = 0  # up to here
        self._out: list[bytes] = []  # sent at the end of the turn
        self._out_size = 0

    # ---- what asyncio calls

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport) and self._stranger is not None
        self._transport = transport
        now, timing = self._listener.loop.time(), self._listener.timing
        self.times = Times(timing, received_at=now, sent_at=now, deadline=now + timing.connect)
        self._stranger.cut = self.cut
        self._socket = transport.get_extra_info("socket")
        with contextlib.suppress(OSError):  # macOS refuses it where the client has gone already
            self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
            self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)  # asyncio: for its own servers only
            for option, value in KEEPALIVE:
                self._socket.setsockopt(socket.IPPROTO_TCP, option, value)
        transport.set_write_buffer_limits(high=HIGH_WATER_BYTES)
        peer = transport.get_extra_info("peername")
        self.address = f"{peer[0]}:{peer[1]}" if peer else ""
        self.certificate = transport.get_extra_info("peercert")
        self._listener.connections.add(self)
        if self._refusal is None:
            self._commands = self._listener.commands(self)
        else:
            self.fail(self._refusal)

    def data_received(self, data: bytes) -> None:
        if QUICKACK is not None:  # clients that write a frame in pieces wait for each piece to be acknowledged
            self._socket.setsockopt(socket.IPPROTO_TCP, QUICKACK, 1)
        if self.closed:
            return
        self.times.received_at = self._listener.loop.time()
        if self._stranger is not None:
            self._stranger.spoken = True
        self.safely(self._take, data)

    def _take(self, data: bytes) -> None:
        self._parser.feed(data)
        if not self._working:
            self._do_frames()

    def eof_received(self) -> bool:
        """The client sends no more. It still gets the replies that are due, but over TLS both ends close at once."""
        self._flush()  # what this turn of the loop has to say: a transport that closes takes nothing more
        if self._closing or not self._pending or not self._transport.can_write_eof():
            return False  # close
        self._half_closed = True
        if self._farewell is None:  # else it has said DISCONNECT
            self._leave(b"", in_order=False)
        return True

    def connection_lost(self, exc: Exception | None) -> None:
        self._closing = True
        self._transport = LOST  # with TLS 300 KB that would stay until Python finds cycles
        self._paused = False
        self.times.stalled_since = 0.0
        if exc is None and not self._reading and not self.closed:
            self._resume()  # TLS tells of the end although nothing is to be read: what came before it is still done
        else:
            self._end_session(in_order=False)

    def pause_writing(self) -> None:
        self._paused = True
        self.times.stalled_since = self._listener.loop.time()
        self._regulate()

    def resume_writing(self) -> None:
        self._paused = False
        self.times.stalled_since = 0.0
        self.safely(self._go_on)

    def _go_on(self) -> None:
        self._resume()
        if self._commands is not None and not self.closed:
            self._commands.go_on()

    # ---- frames in

    def _do_frames(self) -> None:
        """Do the frames that have come, at most FRAMES_PER_TURN of them before others have their turn."""
        self._working = stopped = False
        parser, times = self._parser, self.times
        try:
            for done in range(FRAMES_PER_TURN):
                if self._stopped():
                    stopped = True
                    break
                frame = parser.next()
                if frame is None:
                    if done or not parser.begun:
                        times.frame_began = 0.0
                    if parser.begun and not times.frame_began:
                        times.frame_began = times.received_at
                    if self._transport is LOST:
                        self._ask_for_rest()
                        self._end_session(in_order=False)
                    break
                self._do(frame)
            else:
                times.frame_began = 0.0
                self.next_turn(self._do_frames)
                self._working = True
        except MQError as exc:
            self.fail(exc, parser.receipt)
        self._ask_for_rest()
        self._regulate(stopped=stopped)

    def _ask_for_rest(self) -> None:
        """Ask for a force of what was done without a receipt."""
        if self._lsn > self._force_asked and not self.closed:
            self._ask_force(self._lsn, self._on_force)

    def _ask_force(self, lsn: int, callback: Callback) -> None:
        """Raises MemoryError: then nothing is asked for."""
        self._listener.forcer.ask(lsn, lambda error: self.safely(callback, error))
        if lsn > self._force_asked:
            self._force_asked = lsn

    def _do(self, frame: Frame) -> None:
        """Do one frame. What goes wrong is told to the client, and ends the connection."""
        receipt = frame.headers.get("receipt")
        try:
            assert self._commands is not None
            self._is_sender = self._is_sender or frame.command == "SEND"
            done = self._commands.do(frame)
        except Exception as exc:
            self._fail_for(exc, frame.command, receipt)
            return
        if not isinstance(done, int):
            self.do_at_length(done, lambda lsn: self._done(lsn, receipt), frame.command, receipt)
        else:
            self._done(done, None if self.closed else receipt)  # DISCONNECT has said it already

    def _done(self, lsn: int, receipt: str | None) -> None:
        if lsn > self._lsn:
            self._lsn = lsn
        if receipt is not None:
            self.acknowledge(receipt)

    def _fail_for(self, exc: Exception, what: str, receipt: str | None) -> None:
        if not isinstance(exc, MQError):
            exc = MQError(f"a {what} frame met an error of the queue manager's own: {type(exc).__name__}: {exc}")
        self.fail(exc, receipt)

    def do_at_length(
        self, work: Callable[[], int], done: Callable[[int], None], what: str, receipt: str | None = None
    ) -> None:
        """Do the work in a thread that may wait, then call `done(lsn)` in the loop. No frame is taken meanwhile.

        A farewell waits for it too, so that the reply to it comes first.
        """

        lsn = 0
        error: Exception | None = None

        def over() -> None:
            self._held_up -= 1
            self._pending -= 1
            if error is None:
                done(lsn)
            else:
                self._fail_for(error, what, receipt)
            self._ask_for_rest()
            self._say_farewell()
            self._resume()

        tell = partial(self.next_turn_threadsafe, over)

        def run() -> None:
            nonlocal lsn, error
            try:
                lsn = work()
            except Exception as exc:
                error = exc
            go_on(tell)

        self._held_up += 1
        self._pending += 1
        try:
            self._listener.hands.do(run)
        except (RuntimeError, MemoryError):  # the system has no more threads
            run()

    def _stopped(self) -> bool:
        """Is no frame to be taken for now? Whatever is in the way calls `_resume` when it is there no longer."""
        behind = self._lsn - self._listener.forcer.safe
        if self._paused or self._held_up or self.closed or self._pending >= MAX_PENDING or behind >= MAX_UNFORCED_BYTES:
            return True
        if not self._is_sender or not self._listener.overrun():
            return False
        if not self._polls:  # other threads end that, and tell nobody
            self._listener.loop.call_later(OVERRUN_POLL_S, self.safely, self._ask_again)
            self._polls = True
        return True

    def _ask_again(self) -> None:
        self._polls = False
        self._resume()

    def _regulate(self, *, stopped: bool = False) -> None:
        """Pause or resume reading from the client, as there is room for what it asks.

        `stopped`: a frame was not taken just now. What was in the way may be gone already; `_resume` sees to that.
        """
        wanted = self.closed or not (stopped or self._working or self._stopped())
        if wanted != self._reading and not self._transport.is_closing():
            self._reading = wanted
            if wanted:
                self.times.hear_again(self._listener.loop.time())
                self._transport.resume_reading()
            else:
                self._transport.pause_reading()

    def _resume(self) -> None:
        """Take frames again, unless something still forbids it; called when that may be over."""
        if not self._working and not self._reading and not self._stopped():
            self.next_turn(self._do_frames)
            self._working = True

    def hold_up(self) -> None:
        """No frame is taken until `accepted`, or the end."""
        self._held_up += 1

    def stop_deliveries(self) -> None:
        if self._commands is not None and not self.closed:
            self._commands.stop_deliveries()

    def accepted(self) -> None:
        """The client is who it says it is: the limits of a stranger are over."""
        self._leave_strangers()
        self.times.deadline = 0.0
        self._held_up = 0
        self._parser.dialect = self.dialect
        self._parser.limits = Limits(MAX_HEAD_BYTES, MAX_HEADERS, self._listener.max_body)
        self._resume()

    def _leave_strangers(self) -> None:
        stranger, self._stranger = self._stranger, None
        if stranger is not None:
            self._listener.strangers.leave(stranger)

    # ---- frames out

    @property
    def writable(self) -> bool:
        return not self._paused and not self._closing and not self.closed and self._out_size < HIGH_WATER_BYTES

    def send(self, data: bytes) -> None:
        """Send it at the end of this turn of the loop, together with all else that the turn sends."""
        if self._closing:
            return
        if not self._out:
            self.next_turn(self._flush)
        self._out.append(data)
        self._out_size += len(data)

    def send_frame(self, command: str, headers: dict[str, str]) -> None:
        self.send(encode(self.dialect, command, headers))

    def _flush(self) -> None:
        if self._out and not self._closing and not self._transport.is_closing():
            full = self._out_size >= HIGH_WATER_BYTES
            data = self._out[0] if len(self._out) == 1 else b"".join(self._out)
            self._out.clear()
            self._out_size = 0
            self.times.sent_at = self._listener.loop.time()
            self._transport.write(data)
            if full and self.writable and self._commands is not None:  # all of it went out at once
                self._commands.go_on()

    def acknowledge(self, receipt: str) -> None:
        """Send a RECEIPT, once all that was done so far is safe."""
        self.after(self._lsn, lambda: self.send_frame("RECEIPT", {"receipt-id": receipt}))

    def after(self, lsn: int, action: Callable[[], None]) -> None:
        """Do it when the log is safe up to the LSN, and after all that was to be done before."""
        if not self._pending and lsn <= self._listener.forcer.safe:
            action()
            return

        def forced(error: Exception | None) -> None:
            self._pending -= 1
            if error is None and not self._closing:
                action()
            self._on_force(error)
            self._say_farewell()

        self._ask_force(lsn, forced)
        self._pending += 1

    def _on_force(self, error: Exception | None) -> None:
        """A force is over, or has failed."""
        if error is None:
            self._resume()
        else:
            self.fail(error if isinstance(error, MQError) else Unavailable(str(error)))

    def next_turn(self, action: Callable[[], None]) -> None:
        self._listener.loop.call_soon(self.safely, action)

    def next_turn_threadsafe(self, action: Callable[[], None]) -> None:
        with contextlib.suppress(RuntimeError):  # the loop has ended
            self._listener.loop.call_soon_threadsafe(self.safely, action)

    def go_on_later(self) -> None:
        self._goes_on = True

    def safely(self, action: Callable[..., None], *given: Any) -> None:
        """Do it in a turn of the loop where nobody else hears of what goes wrong, and the client waits for more.

        What it has left half done is not known, so the client loses its connection.
        """
        try:
            action(*given)
        except Exception as exc:  # for want of memory, say
            try:
                self._report_mistake(exc)
            except MemoryError:
                pass  # it is not told of, and nobody else is concerned
            finally:
                self.cut()

    def _report_mistake(self, exc: Exception) -> None:
        text = f"the queue manager has met an error of its own: {type(exc).__name__}: {exc}"
        self._listener.report(self.address, _broken(text))

    # ---- the end

    def fail(self, error: MQError, receipt: str | None = None) -> None:
        """Send ERROR after the replies that are due, and close. What the client had begun is backed out at once."""
        if self.closed:
            return
        if isinstance(error, FrameError) or error.reason in FAULTS:
            self._listener.report(self.address, error)
        reason = error.reason
        headers = {"message": str(error), "reason-code": str(int(reason)), "reason": reason.symbol}
        if receipt is not None:
            headers["receipt-id"] = receipt
        if self.times.deadline:  # not connected yet
            headers["version"] = ",".join(DIALECTS)
        headers["content-type"] = "text/plain"
        body = f"{error}\n".encode("utf-8", "replace")
        headers["content-length"] = str(len(body))
        self._leave(encode(self.dialect, "ERROR", headers, body), in_order=False)

    def finish(self) -> None:
        """The client leaves in order: close when it has had the replies that are due."""
        self._leave(b"", in_order=True)

    def _leave(self, farewell: bytes, *, in_order: bool) -> None:
        self._end_session(in_order=in_order)
        self._farewell = farewell
        self._say_farewell()

    def _say_farewell(self) -> None:
        """Say it, if it is time for that, and close when the client has had time to read it."""
        if self._farewell is None or self._pending or self._closing:
            return
        self.send(self._farewell)
        self._flush()
        self._closing = True
        self._regulate()
        self.times.await_end(self._listener.loop.time(), self._progress(), waits=self._waits())
        if self._transport.can_write_eof() and not self._half_closed:
            with contextlib.suppress(OSError):  # the client has just gone
                self._transport.write_eof()  # and read on: to close with bytes unread would throw away what was sent
        elif not self._transport.is_closing():  # it is where the client has ended TLS: asyncio takes no second `close`
            self._transport.close()

    def cut(self) -> None:
        """Close the connection at once, whatever is on its way."""
        try:
            self._end_session(in_order=False)
        finally:
            self._closing = True
            self._transport.abort()

    def lose(self) -> None:
        """Cut it, and wait for nothing: what the loop was to do for it may be lost. After a MemoryError, again."""
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)  # where asyncio had no memory to close it, it will not try again
        try:
            self.cut()
            self.connection_lost(None)
        except MemoryError:
            raise
        except Exception as exc:  # a mistake of ours, which would end the loop of all the others
            self._report_mistake(exc)
            self._listener.connections.discard(self)

    def _end_session(self, *, in_order: bool) -> None:
        first, self.closed = not self.closed, True
        if self._commands is not None:
            self._commands.end(in_order=in_order)  # a second time for what found no memory at the first
        if first:
            self._parser = Parser(STRANGER_LIMITS)  # frees what has come of a frame before Python finds cycles
        if self._transport is LOST:
            self._leave_strangers()
            self._listener.connections.discard(self)
            self._commands = None

    # ---- times

    def tick(self, now: float) -> None:
        """Called every so often: is something overdue?"""
        if self._goes_on:
            self._goes_on = False
            self._go_on()
        times, timing = self.times, self.times.timing
        if self._transport is LOST:
            if times.is_over(now):  # it is not known yet who that was
                self.cut()
        elif times.is_over(now):
            if not self._closing:
                self.fail(_broken(f"no CONNECT was accepted within {timing.connect:g} seconds"))
            elif self._waits() and times.has_read(self._progress()):
                times.deadline = now + timing.frame
            else:
                self.cut()
        elif times.stalled_since:
            if times.has_read(self._progress()):
                times.stalled_since = now
            elif now >= times.stalled_since + timing.frame:
                self._listener.report(self.address, _broken(f"it has read nothing for {timing.frame:g} seconds"))
                self.cut()
        elif not self.closed:
            if self._reading and times.is_frame_late(now):
                late = f"a frame was begun and not complete within {timing.frame:g} seconds"
                self.fail(_broken(late), self._parser.receipt)
            elif self._reading and times.is_silent(now):
                silent = f"{now - times.received_at:.1f} seconds; {times.wanted_beat:g} were agreed"
                self.fail(_broken(f"no heart-beat came for {silent}"))
            elif times.is_beat_due(now):
                self.send(HEART_BEAT)

    def _progress(self) -> tuple[int, int]:
        """What changes whenever the client has read something: (bytes that wait here, bytes that it has taken).

        Over TLS the first stands still, since what is encrypted waits elsewhere.
        """
        return self._transport.get_write_buffer_size(), sockets.send_progress(self._socket)[0]

    def _waits(self) -> bool:
        """Is there anything that the client has not let us send yet?"""
        return bool(self._transport.get_write_buffer_size()) or sockets.send_progress(self._socket)[1]


def _broken(text: str) -> Unavailable:
    return Unavailable(text, reason=Reason.CONNECTION_BROKEN)
