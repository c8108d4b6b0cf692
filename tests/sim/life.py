"""One seed, one life: the real queue manager beside the model, on a disk that can be lost at any call.

Every call is made on both. Before a call the life notes what a restart may find if the call never returns: the state
before it, or the state after it, nothing else. `restart` compares what is there with just that.
"""

import random
from collections.abc import Callable, Hashable
from typing import Any

import attrs

import qmgr
from qmgr.errors import BackedOut, Damaged, NoMessageAvailable, ResourceProblem
from qmgr.objects import mangle
from recovery.uows import UowState
from tests.model import Model, Msg, Observed
from tests.sim.clock import SimClock
from tests.sim.disk import SimDisk
from tests.sim.loss import LOSE_ALL, Loss, mixed

NAME = "SIM"
DATA = "/base/data"
LOG = "/base/log"


class Violation(AssertionError):
    """A promise was broken."""


@attrs.frozen(kw_only=True)
class Setup:
    """How the queue manager of a life is made: small, so that its log wraps often."""

    write_integrity: str = "TripleWrite"
    log_type: str = "circular"
    log_management: str = "Manual"
    primary_files: int = 2
    secondary_files: int = 1
    file_pages: int = 64
    buffer_pages: int = 18
    log_sync: str = "always"  # anything else: a crash takes the last moments, but only they are gone
    checkpoint_records: int = 0  # a checkpoint by itself after so many log records; 0: the default
    buffer: int = 0  # bytes of messages that a queue keeps in memory; 0: the default

    @property
    def atomic(self) -> bool:
        """What is asked of the storage: SingleWrite needs sectors that are old or new."""
        return self.write_integrity == "SingleWrite"

    @property
    def linear(self) -> bool:
        """Are there media images, and is what is found damaged built again?"""
        return self.log_type == "linear"


TRIPLE = Setup()
SINGLE = Setup(write_integrity="SingleWrite")
LINEAR = Setup(log_type="linear")
AUTOMATIC = Setup(log_type="linear", log_management="Automatic")


class Lookout:
    """Looks at the disk before each change of it. What it finds wrong is raised at the end of the `with` block.

    Not at once: that would be inside the queue manager, which may take it for a failing disk and say nothing.
    """

    def __init__(self, disk: SimDisk, look: Callable[[str, str], None]) -> None:
        self.disk = disk
        self.look = look
        self.failure: Exception | None = None

    def _before_effect(self, kind: str, path: str) -> None:
        if self.failure is None:
            try:
                self.look(kind, path)
            except Exception as exc:
                self.failure = exc

    def __enter__(self) -> None:
        self.disk.before_effect = self._before_effect

    def __exit__(self, *exc: object) -> None:
        self.disk.before_effect = None
        if self.failure is not None:
            raise self.failure


class Life:
    """A queue manager, its model, and what may be found if it dies now."""

    def __init__(self, setup: Setup = TRIPLE, disk: SimDisk | None = None, *, seed: int = 0) -> None:
        self.setup = setup
        self.disk = disk or SimDisk(seed)
        self.clock = SimClock()
        self.model = Model()
        self.allowed: list[Model] = [self.model]  # what may be found after a crash
        self.crashed = False
        self.made: bool | None = False  # whether the queue manager exists; None: it may
        self.qm: Any = None
        self.open: dict[Hashable, Any] = {}
        self.count = 0
        self.epoch = 0
        self.refused = 0  # calls that the log had no room for
        self.rolled_back = 0  # units of work that the queue manager backed out to gain room
        self.restarts = 0
        self.harmed = self.found_damaged = self.healed_at_start = self.recreated = 0  # queues
        self.trimmed = False  # somebody has removed extents
        self.suspects: set[str] = set()  # queues that were harmed and not yet built again
        self.story: list[str] = []  # the calls so far: what a failure prints

    # -- the queue manager itself --------------------------------------------------------------------------------

    def create(self) -> None:
        self.story.append("create")
        self.made = None
        qmgr.create(
            NAME,
            data_path=DATA,
            log_path=LOG,
            log_type=self.setup.log_type,
            log_management=self.setup.log_management,
            log_primary_files=self.setup.primary_files,
            log_secondary_files=self.setup.secondary_files,
            log_file_pages=self.setup.file_pages,
            log_buffer_pages=self.setup.buffer_pages,
            log_write_integrity=self.setup.write_integrity,
            log_sync=self.setup.log_sync,
            disk=self.disk,
            clock=self.clock,
        )
        tuning = {
            "CheckPointLogRecdMax": self.setup.checkpoint_records,
            "DefaultQBufferSize": self.setup.buffer,
            "DefaultPQBufferSize": self.setup.buffer,
        }
        lines = [f"   {attribute}={value}" for attribute, value in tuning.items() if value]
        if lines:
            path = f"{DATA}/qmgrs/{NAME}/qm.ini"
            text = self.disk.peek(path).decode().rstrip()
            self.disk.poke(path, "\n".join([text, "TuningParameters:", *lines, ""]).encode())
        self.made = True

    def start(self) -> None:
        self.story.append("start")
        self.qm = qmgr.start(NAME, data_path=DATA, disk=self.disk, clock=self.clock, background=False)
        self.restarts += 1
        epoch = self.qm.restart_report.epoch
        if epoch <= self.epoch:
            raise Violation(f"epoch {epoch} comes after {self.epoch}\n{self.tell()}")
        self.epoch = epoch

    def end(self) -> None:
        """End in order. What is open is backed out; what is in doubt stays so."""
        self.story.append("end")
        after = self.model.copy()
        after.end()
        after.forced()
        open_now, self.open = self.open, {key: unit for key, unit in self.open.items() if key in self.model.in_doubt()}
        crashed = self.model.copy()
        crashed.crash()
        self.allowed = [*([] if self.setup.log_sync == "always" else self.allowed), crashed, after]
        self.qm.end("immediate" if any(key not in self.model.in_doubt() for key in open_now) else "quiesce")
        self._is(after, forced=True)
        self.open.clear()

    def crash(self, loss: Loss | int = LOSE_ALL) -> None:
        """The machine stops here; go on with the disk that is left."""
        self.story.append(f"crash {loss}")
        self.lose(self.disk.crash(loss))

    def lose(self, disk: SimDisk) -> None:
        """Be the machine after the crash: that disk, and every state that is allowed."""
        self.disk = disk
        self.qm = None
        self.open.clear()
        allowed = []
        for model in self.allowed:
            after = model.copy()
            after.crash()
            allowed.append(after)
        self.allowed = allowed
        self.model = allowed[-1]
        self.crashed = True

    def fork(self, loss: Loss | int) -> "Life":
        """Another life that goes on from a crash at this moment; this one goes on as if nothing had been."""
        other = Life(self.setup, self.disk.snapshot(loss))
        other.clock.wall = self.clock.wall
        other.allowed = self.allowed
        other.made = self.made
        other.count = self.count + 1000
        other.epoch = self.epoch
        other.suspects = set(self.suspects)
        other.story = [*self.story, f"crash {loss}"]
        other.lose(other.disk)
        return other

    def restart(self) -> None:
        """Start after a crash and see that nothing that was promised is missing."""
        if self.made is not True:
            try:
                self.start()
            except qmgr.MQError as exc:
                if exc.reason not in (qmgr.Reason.Q_MGR_NAME_ERROR, qmgr.Reason.Q_MGR_NOT_AVAILABLE):
                    raise Violation(f"neither there nor gone: {exc}") from exc
                self.create()
                self.start()
            self.made = True
        else:
            self.start()
        self.mend()
        self.check()

    def mend(self) -> None:
        """What was harmed and not found by the start is found by whoever reads it, and is built again then."""
        for queue in sorted(self.suspects):
            if queue not in {info.name for info in self.qm.queues()}:
                self.suspects.discard(queue)
                continue
            try:
                list(self.qm.browse(queue))
                self.healed_at_start += 1
            except Damaged:
                self.story.append(f"({queue} is damaged)")
                self.found_damaged += 1
            self.qm.recreate(queue)
            self.suspects.discard(queue)

    def observe(self) -> Observed:
        """What a browse of every queue shows."""
        return {
            queue.name: (
                queue.description,
                [
                    (m.body, m.priority, m.message_id, m.correlation_id, m.backout_count)
                    for m in self.qm.browse(queue.name)
                ],
            )
            for queue in self.qm.queues()
            if not queue.name.startswith("SYSTEM.")
        }

    def check(self) -> None:
        """What is there is one of the states that are allowed; from now on it is the only one."""
        uows = self.qm._engine.state.uows  # `qm.in_doubt` forces the log: a crash that is due would strike in here
        seen, in_doubt = self.observe(), {unit.xid for unit in uows.in_doubt() if unit.xid is not None}
        allowed = self.allowed if self.crashed else [self.model]
        for model in reversed(allowed):
            if model.agrees(seen, in_doubt):
                self._is(model, forced=self.crashed)
                break
        else:
            raise Violation(difference(allowed, seen, in_doubt))
        self.crashed = False
        depths = {queue.name: queue.depth for queue in self.qm.queues() if queue.name in seen}
        if depths != self.model.depths():
            raise Violation(f"depths are {depths}, should be {self.model.depths()}\n{self.tell()}")
        log = self.qm.status().log
        if not self.model.units and log.promised:
            raise Violation(f"no unit of work, and {log.promised} bytes of log are promised\n{self.tell()}")
        if log.used > log.capacity:
            raise Violation(f"the log holds {log.used} bytes of {log.capacity}\n{self.tell()}")
        self.check_promises(log.promised)

    def check_promises(self, promised: int) -> None:
        """The log keeps what its units of work need to end, and for calls to come no more than they have used."""
        engine = self.qm._engine
        units = list(engine.state.uows)
        if promised != sum(unit.promise for unit in units):
            raise Violation(f"{promised} bytes are promised, but {[u.promise for u in units]} to units\n{self.tell()}")
        for unit in units:
            if unit.state is not UowState.ACTIVE or not (unit.held_back or unit.first_lsn):
                continue
            needed = engine.promise_of(unit) + unit.ahead
            if unit.promise != needed or not 0 <= unit.ahead <= unit.held_back:
                raise Violation(f"{unit.promise} bytes are promised to a unit that needs {needed}\n{self.tell()}")

    def settle(self) -> None:
        """Resolve everything that is in doubt, this way and that, and look again: what was held shows itself."""
        for number, xid in enumerate(sorted(self.model.in_doubt(), key=repr)):
            self.resolve(xid, commit=number % 2 == 0)
        self.check()

    def audit(self) -> None:
        """Recovery's own look at whether state and log agree."""
        self.qm.audit()

    # -- verbs ---------------------------------------------------------------------------------------------------

    def define(self, queue: str, description: str = "") -> None:
        after = self.model.copy()
        after.define(queue, description)
        self._call(f"define {queue}", after, lambda: self.qm.define_queue(queue, description=description))

    def alter(self, queue: str, description: str) -> None:
        after = self.model.copy()
        after.descriptions[queue] = description
        self._call(f"alter {queue}", after, lambda: self.qm.alter_queue(queue, description=description))

    def delete(self, queue: str) -> None:
        after = self.model.copy()
        after.delete(queue)
        self._call(f"delete {queue}", after, lambda: self.qm.delete_queue(queue, purge=True))

    def clear(self, queue: str) -> None:
        after = self.model.copy()
        after.queues[queue].clear()
        self._call(f"clear {queue}", after, lambda: self.qm.clear_queue(queue))

    def used_by_units(self, queue: str) -> bool:
        """Whether an open unit of work has put to the queue or got from it."""
        return any(queue == name for unit in self.model.units.values() for name, _ in [*unit.puts, *unit.gets])

    def checkpoint(self) -> None:
        self._call("checkpoint", self.model.copy(), lambda: self.qm.checkpoint())

    # -- media images and media recovery ---------------------------------------------------------------------------

    def record_image(self, queue: str | None = None) -> None:
        """Of one queue, or of all and the definitions."""
        self._call(f"record image of {queue or 'all'}", self.model.copy(), lambda: self.qm.record_image(queue))

    def recreate(self, queue: str) -> None:
        """What is not persistent goes, and nothing else; the other queues keep theirs."""
        after = self.model.copy()
        after.recreate(queue)
        if self._call(f"recreate {queue}", after, lambda: self.qm.recreate(queue)):
            self.recreated += 1
            self.suspects.discard(queue)

    def keep_log(self, action: str) -> None:
        """Archive, compress or remove all extents that may be, or go on in a new one; nothing changes for anybody."""
        calls: dict[str, Callable[[], Any]] = {
            "archive": lambda: self.qm.archive_log(),
            "compress": lambda: self.qm.compress_log(),
            "remove": lambda: self.qm.remove_log(older_than=0),
            "advance": lambda: self.qm.advance_log(),
        }
        self.trimmed |= action == "remove"
        self._call(f"{action} the log", self.model.copy(), calls[action], forces=False)

    def segments(self, queue: str) -> list[str]:
        """The files that hold the messages of a queue."""
        directory = f"{DATA}/qmgrs/{NAME}/queues/{mangle(queue)}/"
        return [path for path in self.disk.files(directory) if path.endswith(".seg")]

    def harm(self, queue: str, rng: random.Random) -> bool:
        """Take one of the queue's files away, cut it, or change it behind the queue manager's back."""
        there = self.segments(queue)
        if not there:
            return False
        how, path = rng.choice(("remove", "cut", "flip", "zero")), rng.choice(there)
        self.story.append(f"{how} {path}")
        data = self.disk.peek(path)
        at = rng.randrange(max(1, len(data)))
        if how == "remove":
            self.disk.remove(path)
        elif how == "cut":
            self.disk.poke(path, data[:at])
        elif how == "flip":
            self.disk.poke(
                path, data[:at] + bytes([(data[at] if data else 0) ^ 1 << rng.randrange(8)]) + data[at + 1 :]
            )
        else:
            self.disk.poke(path, data[:at] + bytes(len(data) - at))
        self.harmed += 1
        self.suspects.add(queue)
        return True

    def find_damage(self, queue: str) -> bool:
        """Look at every message of the queue: 2101, or just what the model says."""
        try:
            found = [m.body for m in self.qm.browse(queue)]
        except Damaged:
            self.story.append(f"({queue} is damaged)")
            self.found_damaged += 1
            return True
        if found != [m.body for m in self.model.find(queue, 1 << 60)]:
            raise Violation(f"{queue} was harmed, and silently holds something else\n{self.tell()}")
        return False

    def put(
        self,
        queue: str,
        *,
        size: int = 20,
        number: int = 1,
        priority: int = 0,
        persistent: bool = True,
        correlation: int = 0,
        unit: Hashable = None,
        many: bool = False,
    ) -> bool:
        """Put messages in one call; whether there was room for it."""
        msgs = []
        for _ in range(number):
            self.count += 1
            body = (b"%d " % self.count).ljust(size, b"%c" % (65 + self.count % 26))
            msgs.append(
                Msg(body, priority, persistent, self.count.to_bytes(24, "big"), correlation.to_bytes(24, "big"))
            )
        after = self.model.copy()
        after.put(queue, msgs, unit)
        target = self.qm if unit is None else self.open[unit]
        named = {"priority": priority, "persistent": persistent, "correlation_id": correlation.to_bytes(24, "big")}
        forces = persistent and unit is None
        text = (
            f"put {queue} #{self.count} x{number} size={size} priority={priority} persistent={persistent} unit={unit}"
        )
        if many or number > 1:  # ids of a batch are made by the queue manager

            def batch() -> None:
                for msg, made in zip(msgs, target.put_many(queue, [msg.body for msg in msgs], **named), strict=True):
                    msg.message_id = made.message_id

            for msg in msgs:
                msg.message_id = b""  # not known if the call does not return
            return self._call(f"{text} many", after, batch, unit, forces=forces)
        return self._call(
            text,
            after,
            lambda: target.put(queue, msgs[0].body, message_id=msgs[0].message_id, **named),
            unit,
            forces=forces,
        )

    def get(
        self,
        queue: str,
        *,
        limit: int = 1,
        many: bool = False,
        message_id: int | None = None,
        correlation: int | None = None,
        unit: Hashable = None,
    ) -> int:
        """Get messages in one call, see that they are the right ones; how many came."""
        named: dict[str, bytes] = {}
        if message_id is not None:
            named["message_id"] = message_id.to_bytes(24, "big")
        if correlation is not None:
            named["correlation_id"] = correlation.to_bytes(24, "big")

        asked = {name: value for name, value in named.items() if any(value)}  # zeros ask for any

        def match(msg: Msg) -> bool:
            return asked.items() <= {"message_id": msg.message_id, "correlation_id": msg.correlation_id}.items()

        target = self.qm if unit is None else self.open[unit]
        after = self.model.copy()
        expected = after.find(queue, limit, match)
        after.get(queue, expected, unit)
        got: list[Any] = []

        def call() -> None:
            try:
                if many or limit > 1:
                    got.extend(target.get_many(queue, limit, **named))
                else:
                    got.append(target.get(queue, **named))
            except NoMessageAvailable:
                pass

        text = f"get {queue} limit={limit} {named} unit={unit}"
        gone = self.rolled_back
        forces = unit is None and any(msg.persistent for msg in expected)
        if not self._call(text, after, call, unit, forces=forces):
            return 0
        if len(got) < len(expected) and (many or limit > 1):
            # a batch may stop early where the log has no room for all of it; what it gave must be the first of them
            after = self._before.copy()
            expected = after.find(queue, len(got), match)
            after.get(queue, expected, unit)
            self._is(after)
        if self.rolled_back > gone:
            self.check_got(got, queue, match, unit)
            return len(got)
        seen = [(m.body, m.priority, m.message_id, m.correlation_id, m.backout_count) for m in got]
        if seen != [msg.seen() for msg in expected]:
            raise Violation(f"{text}: expected {[msg.seen() for msg in expected]}, got {seen}\n{self.tell()}")
        return len(got)

    def check_got(self, got: list[Any], queue: str, match: Callable[[Msg], bool], unit: Hashable) -> None:
        """A get during which units were backed out: what came is right if it was there before, or after, that."""
        after = self._before.copy()
        gone = [key for key in after.units if key not in self.model.units]
        for key in gone:
            if key != unit:
                after.backout(key)
        bodies = {m.body for m in got}
        found = [msg for msg in after.find(queue, 1 << 60, match) if msg.body in bodies]
        if len(found) != len(got):
            raise Violation(f"got {got} of {queue}, which was not there\n{self.tell()}")
        after.get(queue, found, unit)
        if unit in gone:  # once it had them
            after.backout(unit)
        self._is(after)

    def begin(self, xid: Hashable = None) -> Hashable:
        self.story.append(f"begin {xid}")
        unit = self.qm.begin(xid) if xid is not None else self.qm.begin()
        self.count += 1
        key = xid if xid is not None else self.count
        self.open[key] = unit
        after = self.model.copy()
        after.begin(key)
        self._is(after)
        return key

    def commit(self, unit: Hashable) -> None:
        after = self.model.copy()
        after.commit(unit)
        target = self.open[unit]
        forces = any(msg.persistent for _, msg in [*self.model.units[unit].puts, *self.model.units[unit].gets])
        self._call(f"commit {unit}", after, lambda: target.commit(), unit, forces=forces)
        self.open.pop(unit, None)

    def backout(self, unit: Hashable) -> None:
        after = self.model.copy()
        after.backout(unit)
        target = self.open[unit]
        forces = any(msg.persistent for _, msg in self.model.units[unit].gets)  # a higher count is a promise too
        self._call(f"backout {unit}", after, lambda: target.backout(), unit, forces=forces)
        self.open.pop(unit, None)

    def prepare(self, unit: Hashable) -> None:
        after = self.model.copy()
        after.units[unit].prepared = True
        self._call(f"prepare {unit}", after, lambda: self.open[unit].prepare(), unit)

    def resolve(self, xid: Hashable, *, commit: bool) -> None:
        after = self.model.copy()
        (after.commit if commit else after.backout)(xid)
        self._call(f"resolve {xid} commit={commit}", after, lambda: self.qm.resolve(xid, commit=commit))
        self.open.pop(xid, None)

    # -- inside --------------------------------------------------------------------------------------------------

    def _is(self, model: Model, *, forced: bool = False) -> None:
        """This is the state now; `forced`: whatever LogSync says, no crash takes it back."""
        self.model = model
        if forced or self.setup.log_sync == "always":
            self.allowed = [model]
        elif self.allowed[-1] is not model:
            self.allowed.append(model)

    def _call(
        self, text: str, after: Model, real: Callable[[], Any], unit: Hashable = None, *, forces: bool = True
    ) -> bool:
        """Make one call that leads from the model to `after`; False where it was refused and did nothing.

        `forces`: when it returns, it and all before it is durable.
        """
        self.story.append(text)
        if forces and self.setup.log_sync == "always":
            after.forced()
        before = self._before = self.model
        allowed = [before] if self.setup.log_sync == "always" else self.allowed
        self.allowed = [*allowed, after]
        try:
            real()
        except ResourceProblem:
            self.story[-1] += " -> 2102"
            self.refused += 1
            self.allowed = allowed
            self._is(before)
            self._reconcile()
            return False
        except BackedOut:
            self.story[-1] += " -> 2003"
            if unit is None:
                raise Violation(f"{text}: 2003 outside a unit of work") from None
            self.allowed = allowed
            self._is(before)
            self._reconcile()
            if unit in self.model.units:
                raise Violation(f"{text}: 2003 and the unit of work is still there\n{self.tell()}") from None
            return False
        self._is(after, forced=text.startswith(("checkpoint", "record image", "recreate")))
        self._reconcile()
        return True

    def _reconcile(self) -> None:
        """The queue manager may have backed out the oldest unit of work to gain room in the log."""
        gone = [key for key, unit in self.open.items() if key in self.model.units and self.is_backed_out(unit)]
        if gone:
            after = self.model.copy()
            for key in gone:
                self.story.append(f"({key} was backed out for room)")
                if after.units[key].prepared:
                    raise Violation(f"{key} was prepared and was backed out\n{self.tell()}")
                after.backout(key)
                del self.open[key]
                self.rolled_back += 1
            self._is(after)

    @staticmethod
    def is_backed_out(unit: Any) -> bool:
        return str(getattr(unit.state, "name", unit.state)) == "BACKED_OUT"

    def tell(self) -> str:
        """The calls so far, the last ones in full."""
        return "\n".join(["the life so far:", *self.story[-60:]])


QUEUES = ("A", "B", "C")


def random_step(life: Life, rng: random.Random) -> None:
    """One call, drawn from all that make sense now."""
    model = life.model
    queues = sorted(model.queues)
    active = [key for key in life.open if key in model.units and not model.units[key].prepared]
    doubt = sorted(model.in_doubt(), key=repr)
    missing = [queue for queue in QUEUES if queue not in queues]
    if missing and (not queues or rng.random() < 0.2):
        life.define(rng.choice(missing), f"made at {life.count}")
        return
    queue = rng.choice(queues)
    unit = rng.choice([None, None, *active]) if active else None
    if life.setup.buffer and rng.random() < 0.5:
        deep_step(life, rng, queue, unit)
        return
    if life.setup.linear and rng.random() < 0.1:
        media_step(life, rng, queue)
        return
    kind = rng.random()
    if kind < 0.36:
        life.put(
            queue,
            size=rng.choice((1, 20, 100, 700, 4000, 4096, 12000, 30000)),
            number=rng.choice((1, 1, 1, 2, 5)),
            priority=rng.choice((0, 0, 4, 9)),
            persistent=rng.random() < 0.85,
            correlation=rng.randrange(4),
            unit=unit,
        )
    elif kind < 0.60:
        limit = rng.choice((1, 1, 1, 3, 10))
        there = [msg.message_id for msg in model.queues[queue] if msg.message_id]
        life.get(
            queue,
            limit=limit,
            message_id=int.from_bytes(rng.choice(there), "big") if there and rng.random() < 0.15 else None,
            correlation=rng.randrange(4) if rng.random() < 0.15 else None,
            unit=unit,
        )
    elif kind < 0.70:
        if len(model.units) < 4:
            life.begin(qmgr.Xid(1, b"%d" % life.count, b"b") if rng.random() < 0.4 else None)
    elif kind < 0.82:
        if active:
            key = rng.choice(active)
            if isinstance(key, qmgr.Xid) and rng.random() < 0.6:
                life.prepare(key)
            elif rng.random() < 0.6:
                life.commit(key)
            else:
                life.backout(key)
    elif kind < 0.87:
        if doubt:
            life.resolve(rng.choice(doubt), commit=rng.random() < 0.5)
    elif kind < 0.92:
        life.checkpoint()
    elif kind < 0.94:
        life.alter(queue, f"altered at {life.count}")
    elif kind < 0.95:
        if not life.used_by_units(queue):
            life.delete(queue)
    elif kind < 0.97:
        life.get(queue, limit=1000)
    elif kind < 0.98:
        life.end()
        life.start()
        life.check()
    else:
        life.check()


def media_step(life: Life, rng: random.Random, queue: str) -> None:
    """An image, or a queue that is built again: because a file of it was harmed, or for nothing."""
    kind = rng.random()
    if kind < 0.1 and life.setup.log_management == "Manual":
        life.keep_log(rng.choice(("archive", "compress", "remove", "advance")))
    elif kind < 0.02:
        life.keep_log("advance")
    elif kind < 0.45:
        life.record_image(rng.choice((None, queue)))
    elif kind < 0.6 or not life.harm(queue, rng):
        life.recreate(queue)
    elif kind < 0.75:  # found at the next start
        life.disk.crash_after(rng.randint(1, 4))
        life.checkpoint()
        life.disk.no_crash()
        life.recreate(queue)
    elif kind < 0.8:
        life.end()
        life.start()
        life.mend()
        life.check()
    else:
        life.find_damage(queue)
        for unit in [unit for unit in life.open if rng.random() < 0.3]:  # they go on, whatever they have used
            if unit in life.open:
                (life.commit if rng.random() < 0.6 else life.backout)(unit)
        if rng.random() < 0.3:
            life.checkpoint()
        life.recreate(queue)
        life.check()


def deep_step(life: Life, rng: random.Random, queue: str, unit: Hashable) -> None:
    """A call that makes queues deep, or takes from anywhere in them."""
    kind = rng.random()
    if kind < 0.4:
        life.put(
            queue,
            size=rng.choice((5, 20, 20, 150)),
            number=rng.randint(5, 30),
            priority=rng.choice((0, 0, 4)),
            persistent=rng.random() < 0.75,
            correlation=rng.randrange(4),
            unit=unit,
        )
    elif kind < 0.75:
        for msg in rng.sample(there := life.model.find(queue, 1000), min(len(there), rng.randint(1, 25))):
            if msg.message_id and (unit is None or unit in life.open):
                life.get(queue, message_id=int.from_bytes(msg.message_id, "big"), unit=unit)
    elif kind < 0.85:
        life.get(queue, limit=rng.randint(1, 30), correlation=rng.randrange(4), unit=unit)
    else:
        life.checkpoint()


def random_life(life: Life, rng: random.Random, steps: int, *, crashes: float = 0.15) -> None:
    """Live: work, crash at any change of the disk with any loss, crash inside recovery, go on."""

    def loss() -> Loss:
        return mixed(rng.randrange(1 << 30), atomic=life.setup.atomic)

    def recover() -> None:
        for _ in range(rng.choice((0, 0, 1, 2, 3))):
            life.disk.crash_after(rng.randint(1, 30), rng.choice((0.0, rng.random())))
            try:
                life.restart()
            except BaseException:
                if not life.disk.dead:
                    raise
                life.crash(loss())
            else:
                life.disk.no_crash()
                return
        life.restart()

    life.crash(LOSE_ALL)
    recover()
    for _ in range(steps):
        if rng.random() < crashes:
            life.disk.crash_after(rng.randint(1, 12), rng.choice((0.0, rng.random())))
        try:
            random_step(life, rng)
        except BaseException:
            if not life.disk.dead:
                raise
            life.crash(loss())
            recover()
    life.disk.no_crash()
    life.check()
    life.crash(LOSE_ALL)
    recover()
    life.settle()


def difference(allowed: list[Model], seen: Observed, in_doubt: set[Hashable]) -> str:
    """What is there against each state that would have been right, queue by queue."""
    lines = [f"found a state that is none of the {len(allowed)} allowed ones"]
    for number, model in enumerate(allowed):
        lines.append(f"allowed {number}:")
        if model.in_doubt() != in_doubt:
            lines.append(f"  in doubt: expected {model.in_doubt()}, found {in_doubt}")
        expected = model.seen()
        for queue in sorted(expected.keys() | seen.keys()):
            mine, found = expected.get(queue), seen.get(queue)
            if mine is None or found is None:
                lines.append(
                    f"  {queue}: expected {'no queue' if mine is None else 'it'}, found {found and len(found)}"
                )
            elif mine != found:
                missing = [m for m in mine[1] if m not in found[1]]
                extra = [m for m in found[1] if m not in mine[1]]
                short = [[(m[0][:12], len(m[0]), m[1], m[4]) for m in ms] for ms in (missing, extra)]
                lines.append(
                    f"  {queue}: {len(mine[1])} messages expected, {len(found[1])} found"
                    f"; missing {short[0]}; too many {short[1]}{'' if missing or extra else '; order differs'}"
                )
    return "\n".join(lines)
