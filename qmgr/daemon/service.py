"""A queue manager with its listeners, from its start to its end; `process.py` says when.

*Start*: be its daemon, restart it, run what AutoConfig names, and only then let clients in. *End*: no new clients and
no new units of work; those in flight may end, unless it has to be quick; then the sessions are closed, and the queue
manager ends in order.
"""

import contextlib
import errno
import socket
from collections.abc import Callable
from typing import Any, Protocol

from logger.clock import Clock, SystemClock
from logger.disk import Disk
from logger.posix_disk import Path, PosixDisk
from qmgr import autoconfig, ini, locations, mqsini, sockets
from qmgr.daemon import autorun
from qmgr.daemon.admission import Admission
from qmgr.errors import Mistake, MQError, Unavailable
from qmgr.life import Life, Stage
from qmgr.manager import QueueManager, start
from qmgr.missing import unknown
from qmgr.ownership import refuse_root
from qmgr.session import Sessions

MODES = ("quiesce", "immediate", "preemptive")
MIN_DESCRIPTORS = 25  # for a few clients, and a checkpoint with its files
LISTEN_ADVICE = {  # where a listener can't have its address and port
    errno.EADDRINUSE: "; end the program that has it, or give the listener another Port in {}",
    errno.EADDRNOTAVAIL: "; this machine has no such address, now at least: correct Address in {}",
    errno.EACCES: "; ports below 1024 are for privileged users: give the listener another Port in {}",
    socket.EAI_NONAME: "; correct Address in {}",
}


class Listener(Protocol):
    """Where clients come in. All of it is called by one thread at a time."""

    def start(self) -> None:
        """Bind and accept. Raises OSError, which says which address."""
        ...

    def refuse(self) -> None:
        """The queue manager quiesces: no new clients and deliveries; those that are there go on."""
        ...

    def close(self) -> None:
        """Close all connections at once: their sessions are closed, so what they have not ended is backed out."""
        ...


class Make(Protocol):
    """Makes a listener; without a configuration it is for the clients of this machine."""

    def __call__(self, service: "Service", config: ini.ListenerConfig | None) -> Listener: ...


Makers = dict[ini.Protocol | None, Make]


class Service:
    """One queue manager as a daemon runs it. `ask_to_end` may be called by any thread, all else by one at a time."""

    manager: QueueManager
    authority: Admission

    def __init__(
        self,
        name: str,
        *,
        process: int,
        host: str,
        numbers: str = "",
        makers: Makers,
        data_path: Path | None = None,
        disk: Disk | None = None,
        clock: Clock | None = None,
    ) -> None:
        self.name = name
        self.disk = disk or PosixDisk()
        self.clock = clock or SystemClock()
        self.location = locations.find(name, data_path)
        self.channels = ini.ChannelsConfig()
        self._makers = makers
        self._life = Life(self.disk, self.location, process, host, numbers)
        self._listeners: list[Listener] = []
        self.on_end_asked: Callable[[str], None] = lambda mode: None  # any thread; it passes the word on
        self.on_failure: Callable[[], None] = lambda: None  # any thread: the queue manager has failed

    @property
    def sessions(self) -> Sessions:
        return self.manager.sessions

    def say(self, amq: str, **inserts: Any) -> None:
        """Say it in the error log."""
        self.manager.say(amq, **inserts)

    def check_may_end(self) -> None:
        """Never raises: whoever has the right may end a daemon."""

    def ask_to_end(self, mode: str) -> None:
        """A client asks for the end: "quiesce", "immediate" or "preemptive". Returns at once. Raises Mistake."""
        if mode not in MODES:
            raise Mistake(f"mode is {', '.join(MODES[:-1])} or {MODES[-1]}, not {mode!r}")
        self.on_end_asked(mode)

    # ---- start

    def start(self) -> None:
        """Return when clients may come. Raises what `qmgr.start` raises, and Unavailable where a port is not free."""
        if not self.disk.exists(self.location.ini):
            raise unknown(self.disk, self.location)
        refuse_root(self.disk, self.location.data_dir, self.name)
        self._life.begin()
        try:
            self.manager = start(
                self.name, data_path=self.location.data_root, disk=self.disk, clock=self.clock, background=True
            )
            try:
                self._open()
            except BaseException:
                try:
                    self._close_listeners()
                finally:
                    self.manager.end("immediate")
                raise
        except BaseException:
            self._life.say(Stage.FAILED)
            self._life.close()
            raise

    def _open(self) -> None:
        self.manager.on_failure = lambda: self.on_failure()
        if self.manager.refusal is not None:  # it has failed already
            self.on_failure()
        self.channels = self.manager.config.channels
        self.sessions.limit = self.channels.limit
        self.authority = Admission(self.manager, self.disk, self.location, self.say)
        self._keep_listed()
        self._run_mqsc()
        self._listen()
        self._say_if_few_descriptors()
        self._life.say(Stage.RUNNING, self.manager.restart_report.epoch)

    def _keep_listed(self) -> None:
        """Add it to mqs.ini if it is not there: its data may have been copied here from elsewhere."""
        root, path = self.location.data_root, f"{self.location.data_root}/mqs.ini"
        try:
            if mqsini.read(self.disk, path).find(self.name) is None:
                directory = self.location.data_dir.rsplit("/", 1)[1]
                entry = mqsini.Entry(name=self.name, prefix=root, directory=directory)
                mqsini.add(self.disk, path, entry, clock=self.clock)
        except (MQError, OSError) as exc:
            self.say("AMQ9024", text=str(exc))

    def _run_mqsc(self) -> None:
        """What MQSCConfig names. A command that fails is said, and stops nothing."""
        found = autoconfig.files(self.disk, self.manager.config.auto_config.mqsc_config, ".mqsc")
        for text in found.complaints:
            self.say("AMQ9022", text=text)
        for path, content in found.files:
            try:
                for failure in autorun.run(self.manager, path, ini.decoded(content, path)):
                    self.say("AMQ9022", text=failure)
            except MQError as exc:
                self.say("AMQ9022", text=str(exc))
            else:
                self.say("AMQ9023", path=path)

    def _listen(self) -> None:
        """Let clients in: those of this machine first."""
        if None in self._makers:
            self._start(self._makers[None](self, None))
        if self.manager.config.listeners and (text := self.authority.users.complaint()):
            self.say("AMQ9016", text=text)
        for config in self.manager.config.listeners:
            make = self._makers.get(config.protocol)
            if make is None:
                text = f"this version has no listener of protocol {config.protocol.value} (listener {config.name!r})"
                raise Unavailable(text, name=self.name)
            try:
                listener = make(self, config)
                self._start(listener)
            except OSError as exc:
                text = sockets.system_message(exc) + LISTEN_ADVICE.get(exc.errno or 0, "").format(self.location.ini)
                self.say("AMQ9218", name=config.name, address=config.address, port=config.port, text=text)
                text = f"AMQ9218E: listener {config.name!r} can't use {config.address}, port {config.port}: {text}"
                raise Unavailable(text, name=self.name) from exc
            port = _port(listener, config)
            self.say("AMQ5026", name=config.name, protocol=config.protocol.value, address=config.address, port=port)

    def _say_if_few_descriptors(self) -> None:
        """Warn at the start: a client for which no descriptor is left gets no answer at all."""
        left = 0
        with contextlib.suppress(OSError), socket.socket() as lowest:  # its number is the lowest free one
            left = max(0, self.disk.max_descriptors() - lowest.fileno())
        if left < MIN_DESCRIPTORS:
            self.say("AMQ9035", count=left)

    def _start(self, listener: Listener) -> None:
        self._listeners.append(listener)
        listener.start()

    # ---- end

    @property
    def busy(self) -> bool:
        """Whether units of work are in flight that a quiesce waits for."""
        return self.manager.busy

    def quiesce(self) -> None:
        """No new clients, units of work and waits (2161)."""
        self._life.say(Stage.QUIESCING)
        self.say("AMQ9020", how="no more clients are let in, and units of work in flight may end")
        self._refuse()
        self.manager.quiesce()

    def end(self, *, at_once: bool) -> None:
        """End in order. Calls that run finish, what is not ended is backed out. Raises Unavailable if it can't be."""
        if at_once:
            self._life.say(Stage.ENDING)
            self.say("AMQ9020", how="calls that run finish, and units of work in flight are backed out")
        stage, why = Stage.FAILED, ""
        try:
            if at_once:  # calls that run finish, and clients hear 2161 or 2162, not a broken connection
                self._refuse()
            else:
                self._close_listeners()
            self.manager.end("immediate")
            stage = Stage.ENDED_AT_ONCE if at_once else Stage.ENDED
        except MQError as exc:
            why = exc.sentence
            raise
        finally:
            try:
                self._close_listeners()
            finally:
                self._life.say(stage, why=why)
                self._life.close()

    def say_killed(self) -> None:
        """Note in daemon.json that the kill which follows was asked for."""
        self._life.say(Stage.KILLING)

    def abandon(self) -> None:
        """The queue manager has failed: let go of it as a crash would."""
        refusal = self.manager.refusal
        try:
            self._close_listeners()
            self.manager.end("immediate")
        finally:
            self._life.say(Stage.FAILED, why=refusal.sentence if refusal is not None else "")
            self._life.close()

    def _refuse(self) -> None:
        for listener in self._listeners:
            listener.refuse()

    def _close_listeners(self) -> None:
        """Close them all, even where one of them raises."""
        with contextlib.ExitStack() as stack:
            for listener in self._listeners:
                stack.callback(listener.close)
            self._listeners = []


def _port(listener: Listener, config: ini.ListenerConfig) -> int:
    """The port that it has: with Port=0 whichever was free."""
    address = getattr(listener, "address", None)
    return int(address[1] if isinstance(address, tuple) else getattr(listener, "port", config.port))
