"""The STOMP listener: it accepts connections, within limits, and ends them."""

import asyncio
import contextlib
import socket
from collections.abc import Callable
from functools import partial

from qmgr import sockets
from qmgr.configuration import ListenerConfig
from qmgr.daemon.accepting import RETRY_S, Hardship
from qmgr.daemon.face import ServiceFace
from qmgr.daemon.loop import Lasting, LoopThread, borrow, give_back
from qmgr.daemon.stomp_commands import Shared, StompCommands
from qmgr.daemon.stomp_connection import Connection, ListenerState
from qmgr.daemon.stomp_login import Login
from qmgr.daemon.stomp_times import Timing
from qmgr.daemon.strangers import Stranger, Strangers
from qmgr.daemon.tls import context_of, say_why
from qmgr.errors import MQError, Reason, Unavailable
from qmgr.threads import go_on

LATE_S = 1.0  # a loop that is late by less is only busy
CLOSE_TIMEOUT_S = 0.5  # for connections to close by themselves when the listener is closed
POLL_S = 0.005
FOR_EVER_S = 1e9


class StompListener:
    """One address where STOMP is spoken."""

    def __init__(self, service: ServiceFace, config: ListenerConfig, timing: Timing | None = None) -> None:
        """Raises IniError for certificates that can't be used."""
        channels = service.channels
        self._service = service
        self._config = config
        self._timing = timing or Timing(connect=channels.connect_timeout, frame=channels.idle_timeout)
        self._login = Login(config, service.authority)
        self._tls = context_of(service, config)
        self._full = False  # the error log has been told
        self._strangers = Strangers(service.clock.elapsed_ns, partial(service.say, "AMQ9032", name=config.name))
        self._hardship = Hardship(service, config.name)
        self._connections: set[Connection] = set()
        self._greeting: set[asyncio.Task[None]] = set()
        self._handshakes: dict[socket.socket, float] = {}  # by the loop's time each is to be over then
        self._tasks: list[Lasting] = []  # accepts; looks at the times
        self._thread: LoopThread | None = None
        self._shared: Shared
        self._state: ListenerState
        self._socket: socket.socket | None = None
        self._somebody: asyncio.Event
        self.port = config.port  # the one that it is, once started

    def start(self) -> None:
        """Bind and accept. Raises OSError."""
        self._socket = sockets.listen_tcp(self._config.address, self._config.port)
        self._socket.setblocking(False)
        self.port = self._socket.getsockname()[1]
        self._thread = borrow(self._service.manager)
        self._thread.run(self._begin(self._thread))

    def refuse(self) -> None:
        """No new connections, deliveries or transactions; what is there goes on."""
        thread = self._thread
        if thread is not None:
            go_on(lambda: thread.run(self._refuse()))

    def close(self) -> None:
        """End all connections at once: their units of work are backed out."""
        thread, self._thread = self._thread, None
        if thread is not None:
            go_on(lambda: thread.run(self._close()))
            give_back(self._service.manager)

    # ---- in the loop

    async def _begin(self, thread: LoopThread) -> None:
        self._shared = Shared(self._service.sessions, self._login, thread.loop, self._refusal)
        self._state = ListenerState(
            loop=thread.loop,
            forcer=thread.forcer,
            hands=thread.hands,
            overrun=self._service.sessions.overrun,
            timing=self._timing,
            max_body=self._service.channels.max_frame_length,
            wall_us=self._service.clock.wall_us,
            commands=lambda connection: StompCommands(self._shared, connection),
            connections=self._connections,
            strangers=self._strangers,
            report=self._report,
        )
        self._somebody = asyncio.Event()
        assert self._socket is not None
        self._tasks = [
            Lasting(partial(self._accept, self._socket), thread),
            Lasting(self._tick, thread, self._lose_clients),
        ]

    async def _accept(self, listening: socket.socket) -> None:
        while True:
            try:
                client, _ = await self._state.loop.sock_accept(listening)
                await self._let_in(client)
            except (OSError, MemoryError) as exc:  # no descriptors, say: those who are there are served on
                await asyncio.sleep(RETRY_S)
                self._hardship.met(exc)  # now, since there may be no memory for that at first

    async def _let_in(self, client: socket.socket) -> None:
        """Wait for room among the strangers; then a task greets it. Raises MemoryError."""
        stranger = None
        try:
            while (stranger := self._strangers.admit(client.close)) is None:
                await asyncio.sleep(POLL_S)
            task = self._state.loop.create_task(self._greet(client, stranger))
        except BaseException:  # it may have been cancelled
            if stranger is not None:
                self._strangers.leave(stranger)
            client.close()
            raise
        stranger.cut = task.cancel
        self._greeting.add(task)
        task.add_done_callback(self._greeted(client, stranger, stranger.cut))

    async def _greet(self, client: socket.socket, stranger: Stranger) -> None:
        """Do the TLS handshake, if the listener has TLS, and make the client a connection, or one that is refused."""
        refusal = self._refusal()
        self._handshakes[client] = self._state.loop.time() + self._timing.connect
        self._somebody.set()
        try:
            await self._state.loop.connect_accepted_socket(
                lambda: Connection(self._state, stranger, refusal),
                client,
                ssl=self._tls,
                ssl_handshake_timeout=FOR_EVER_S if self._tls else None,  # `_tick_all` looks: not while we were stopped
                ssl_shutdown_timeout=FOR_EVER_S if self._tls else None,  # `Connection.tick` watches its client
            )
        except OSError as exc:  # an SSLError is one
            self._strangers.leave(stranger)
            client.close()
            if self._tls is not None:
                late = TimeoutError(f"the handshake has taken more than {self._timing.connect:g} seconds")
                say_why(self._service, self._config, exc if client in self._handshakes else late)
            _forget_frames(exc)
        except MemoryError as exc:  # TLS takes 300 KB
            self._strangers.leave(stranger)
            client.close()
            self._hardship.met(exc)
            _forget_frames(exc)
        except asyncio.CancelledError as exc:
            _forget_frames(exc)
            raise
        finally:
            self._handshakes.pop(client, None)

    def _greeted(
        self, client: socket.socket, stranger: Stranger, cut: Callable[[], object]
    ) -> Callable[[asyncio.Task[None]], None]:
        """What is called when the task of `_greet` is over."""

        def over(task: asyncio.Task[None]) -> None:
            self._greeting.discard(task)
            if stranger.cut is cut:  # it would keep the task, which has the error that has the stranger
                stranger.cut = _nothing
            if task.cancelled():  # maybe before its first step
                stranger.cut()  # the connection, where the handshake was over just before that: it has the socket
                self._strangers.leave(stranger)
                client.close()
            elif (exc := task.exception()) is not None:  # for want of memory
                self._strangers.leave(stranger)
                _forget_frames(exc)

        return over

    def _refusal(self) -> MQError | None:
        """What a new connection is told where there are too many; None: it is welcome."""
        sessions = self._service.sessions
        if not sessions.full:
            self._full = False
            return None
        if not self._full:
            self._full = True
            self._service.say("AMQ9513", name=self._config.name, count=sessions.limit)
        text = f"there are {sessions.limit} connections already (MaxChannels, MaxActiveChannels); try again later"
        return Unavailable(text, reason=Reason.MAX_CONNS_LIMIT_REACHED)

    async def _tick(self) -> None:
        """Look at each connection's times, every so often, while there is one."""
        while True:
            if not (self._connections or self._handshakes):
                self._somebody.clear()
                await self._somebody.wait()
            began = self._state.loop.time()
            await asyncio.sleep(self._timing.tick)
            now = self._state.loop.time()
            self._tick_all(now, now - began - self._timing.tick)

    def _tick_all(self, now: float, late: float) -> None:
        """Look at each. `late`: seconds that this one comes after its time, as where the process was stopped."""
        for connection in list(self._connections):
            if late > LATE_S:
                connection.times.excuse(late, now)
            connection.safely(connection.tick, now)
        for client, deadline in list(self._handshakes.items()):
            if late > LATE_S:
                self._handshakes[client] = deadline = deadline + late
            if now >= deadline:
                del self._handshakes[client]
                sockets.hang_up(client)  # no more than that: asyncio has the socket, and the handshake may be over

    def _lose_clients(self) -> None:
        """The loop may have lost what it was to do for any of them."""
        for connection in list(self._connections):
            connection.lose()
        for client in list(self._handshakes):
            sockets.hang_up(client)
        self._strangers.cut_all()
        self._greeting.clear()  # a task of which the next step is lost is never over

    async def _refuse(self) -> None:
        self._shared.ending = True
        await self._stop_listening()
        for connection in list(self._connections):
            connection.stop_deliveries()

    async def _stop_listening(self) -> None:
        if self._socket is not None:  # else asyncio may take one more, and have nobody to give it to
            self._state.loop.remove_reader(self._socket)
        for accepting in self._tasks[:1]:
            await accepting.end()
        greeting = list(self._greeting)
        for task in greeting:
            task.cancel()
        await asyncio.gather(*greeting, return_exceptions=True)
        if self._socket is not None:
            self._socket.close()
            self._socket = None

    async def _close(self) -> None:
        self._shared.ending = True
        await self._stop_listening()
        ending = Unavailable("the queue manager has ended", reason=Reason.Q_MGR_STOPPING)
        for connection in list(self._connections):
            connection.fail(ending)
        await self._await_connections()  # the last receipts are on their way, and clients hang up
        for connection in list(self._connections):
            connection.cut()
        await self._await_connections()
        for task in self._tasks:
            await task.end()
        await asyncio.gather(*self._greeting, return_exceptions=True)

    async def _await_connections(self) -> None:
        """Wait until all are closed, but not for long."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(CLOSE_TIMEOUT_S):
                while self._connections:
                    await asyncio.sleep(POLL_S)

    def _report(self, address: str, error: MQError) -> None:
        self._service.say("AMQ9209", address=address, channel="STOMP", text=str(error))


def _forget_frames(exc: BaseException | None) -> None:
    """Drop the tracebacks: a frame in them has the future that has the error, a cycle that only the collector frees."""
    while exc is not None:
        exc.__traceback__ = None
        exc = exc.__context__


def _nothing() -> None:
    """There is nothing to cut."""
