"""World: one queue manager on a simulated disk and clock, to be crashed, restarted and looked at."""

import threading
from collections.abc import Callable
from typing import Any, TypeVar

import qmgr
from qmgr.errors import MQError, Reason
from tests.sim.clock import SimClock
from tests.sim.disk import SimDisk
from tests.sim.loss import KEEP_ALL, Loss

T = TypeVar("T")

NAME = "QM1"
DATA = "/data"
SMALL: dict[str, Any] = {"log_primary_files": 2, "log_secondary_files": 1, "log_file_pages": 64, "log_buffer_pages": 18}


class World:
    """A queue manager that does its housekeeping in the calls of the test: the same every time."""

    def __init__(self, *, start: bool = True, ini: dict[str, str] | None = None, **options: Any) -> None:
        self.disk = SimDisk()
        self.clock = SimClock()
        qmgr.create(NAME, data_path=DATA, disk=self.disk, clock=self.clock, **(SMALL | options))
        for attribute, value in (ini or {}).items():
            self.set_ini(attribute, value)
        self.qm: qmgr.QueueManager
        if start:
            self.start()

    def start(self) -> qmgr.QueueManager:
        self.qm = qmgr.start(NAME, data_path=DATA, disk=self.disk, clock=self.clock, background=False)
        return self.qm

    def same(self) -> qmgr.QueueManager:
        """As it is, beside `restart` and `crash`."""
        return self.qm

    def restart(self) -> qmgr.QueueManager:
        """End in order and start again."""
        self.qm.end("immediate")
        return self.start()

    def crash(self, loss: Loss | int = KEEP_ALL) -> qmgr.QueueManager:
        """The machine goes down, `loss` with it; start again."""
        self.disk = self.disk.crash(loss)
        return self.start()

    def set_ini(self, attribute: str, value: str) -> None:
        """Change or add an attribute of qm.ini, as an operator with an editor does."""
        path = f"{DATA}/qmgrs/{NAME}/qm.ini"
        lines = self.disk.peek(path).decode().splitlines()
        kept = [line for line in lines if not line.strip().startswith(attribute + "=")]
        stanza = "Log:" if attribute.startswith("Log") else "TuningParameters:"
        if stanza not in kept:
            kept.append(stanza)
        kept.insert(kept.index(stanza) + 1, f"   {attribute}={value}")
        self.disk.poke(path, "\n".join(kept).encode() + b"\n")

    def errors(self) -> str:
        """The error log."""
        return self.disk.peek(f"{DATA}/qmgrs/{NAME}/errors/AMQERR01.LOG").decode()

    def depths(self) -> dict[str, int]:
        return {queue.name: queue.depth for queue in self.qm.queues()}


def bodies(qm: qmgr.QueueManager, queue: str, **selectors: Any) -> list[bytes]:
    """What a browse shows."""
    return [message.body for message in qm.browse(queue, **selectors)]


def drain(qm: qmgr.QueueManager | qmgr.UnitOfWork, queue: str) -> list[bytes]:
    """Get everything, one by one."""
    found = []
    while True:
        try:
            found.append(qm.get(queue).body)
        except qmgr.NoMessageAvailable:
            return found


def reason_of(exc: BaseException) -> Reason:
    assert isinstance(exc, MQError), f"{exc!r} is not an MQError"
    return exc.reason


class Call(threading.Thread):
    """A call made by a thread of its own."""

    def __init__(self, call: Callable[[], Any]) -> None:
        super().__init__(daemon=True)
        self._call = call
        self.result: Any = None
        self.raised: BaseException | None = None
        self.start()

    def run(self) -> None:
        try:
            self.result = self._call()
        except BaseException as exc:
            self.raised = exc

    def outcome(self, seconds: float = 120) -> Any:
        """What the call gave, or raise what it raised. A call that hangs fails the test."""
        self.join(seconds)
        assert not self.is_alive(), "the call hangs"
        if self.raised is not None:
            raise self.raised
        return self.result


def ending(world: World) -> Callable[[], None]:
    """Have another thread end it, up to where its last checkpoint gets its name; what lets it go on and waits."""
    there, on = threading.Event(), threading.Event()

    def before_effect(kind: str, path: str) -> None:
        if kind == "rename" and path.endswith("amqalchk.fil.new"):
            there.set()
            on.wait(120)

    world.disk.before_effect = before_effect
    call = Call(lambda: world.qm.end("immediate"))
    assert there.wait(120), "it takes no checkpoint"

    def go_on() -> None:
        on.set()
        call.outcome()
        world.disk.before_effect = None

    return go_on


def soon(call: Callable[[], T]) -> T:
    """Make a call that a bug might leave hanging."""
    result: T = Call(call).outcome()
    return result
