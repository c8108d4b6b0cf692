"""One seed, one life with everything in it: attributes that change, aliases, groups, expiry, thresholds, clients that
hold messages, logs that become another kind, settings that change from start to start; and crashes at any moment.

As in `life.py` every call is made on the real queue manager and on a model, which says before each call what a crash
may leave of it.
"""

import contextlib
import random
from collections.abc import Callable, Hashable
from itertools import pairwise, product
from typing import Any

import attrs

import qmgr
from qmgr import deadletter, migration
from qmgr.errors import Damaged, MQError, Reason
from qmgr.ids import BEFORE_ALL
from qmgr.infos import Peer
from qmgr.message import decode
from qmgr.objects import mangle
from qmgr.requeue import UNIT_MESSAGES
from qmgr.session import AllRights
from recovery.uows import BACKED_OUT, UowState
from tests.full_model import DEAD_HEADER, DEFAULTS, Found, FullModel, Move, Msg, Queue, Seen
from tests.sim.clock import SimClock
from tests.sim.disk import SimDisk
from tests.sim.life import Violation
from tests.sim.loss import KEEP_ALL, LOSE_ALL, Loss, mixed

NAME = "FULL"
DATA = "/base/data"
LOG = "/base/log"
QUEUES = ("A", "B", "C")
ALIASES = ("X", "Y")
NAMES = (*QUEUES, *ALIASES)
EXTENT = 64 * 4096  # bytes
GROUPS = (b"one", b"two", b"three")

NO_ROOM = Reason.RESOURCE_PROBLEM
DISK_FULL = {Reason.STORAGE_MEDIUM_FULL, Reason.FILE_SYSTEM_ERROR}
GONE = Reason.BACKED_OUT
TOO_MANY = Reason.SYNCPOINT_LIMIT_REACHED
NO_MESSAGE = Reason.NO_MSG_AVAILABLE


@attrs.define
class Refused:
    """A call that was not made."""

    reason: int


@attrs.define
class Earlier:
    """How it was at some LSN of a linear log."""

    lsn: int
    model: FullModel


class FullLife:
    """A queue manager, its model, and what may be found if it dies now."""

    def __init__(self, seed: int, disk: SimDisk | None = None) -> None:
        self.rng = random.Random(f"full {seed}")
        self.disk = disk or SimDisk(seed)
        self.clock = SimClock()
        self.model = FullModel()
        self.allowed = [self.model]
        self.crashed = False
        self.ended = False
        self.qm: Any = None
        self.open: dict[Hashable, Any] = {}  # units of work that are not in doubt
        self.session: Any = None
        self.held: dict[int, Any] = {}  # deliveries by the number of the message
        self.count = 0
        self.linear = False
        self.management = "Manual"
        self.atomic = False
        self.trimmed = False  # extents may be gone that a replay, or an earlier moment, needs
        self.suspects: set[str] = set()
        self.earlier: list[Earlier] = []
        self.stood_at: int | None = None  # the clock that messages expire by, at an end in order
        self.migrating = False
        self.heavy = False  # much is logged, and units of work last
        self.deep = False  # queues are far longer than what is kept of them in memory
        self.forward: dict[Hashable, int] = {}  # where the log has units of work that are in doubt
        self.harsh = 0.5
        self.sizes: tuple[int, ...] = (1, 20)
        self.expire = self.group = self.in_units = self.requeue = self.logical = self.by_id = 0.2  # how often
        self.story: list[str] = []
        self.did: dict[str, int] = {}

    def note(self, what: str) -> None:
        self.did[what] = self.did.get(what, 0) + 1

    def tell(self) -> str:
        return "\n".join(["the life so far:", *self.story[-40:]])

    def violation(self, text: str) -> Violation:
        return Violation(f"{text}\n{self.tell()}")

    # -- the queue manager itself

    def create(self) -> None:
        rng = self.rng
        self.linear = rng.random() < 0.5
        self.management = rng.choice(("Manual", "Manual", "Manual", "Automatic", "Archive"))
        self.harsh = rng.choice((0.05, 0.2, 0.6))
        self.sizes = rng.choice(((1, 20, 100), (1, 20, 100, 700, 4000, 12000), (700, 12000, 30000)))
        self.heavy, self.deep = rng.choice(((True, False), (False, True), (False, False)))
        if self.heavy:
            self.sizes = (700, 12000, 30000)
        elif self.deep:
            self.sizes = (1, 20, 100)
        self.expire, self.group, self.in_units = (rng.choice((0.05, 0.3, 0.8)) for _ in range(3))
        if self.heavy:
            self.in_units = 0.8
        self.requeue, self.logical = rng.choice(((0.1, 0.1), (0.1, 0.8), (0.8, 0.1)))
        self.by_id = rng.choice((0.15, 0.6)) if self.deep else 0.15
        self.atomic = rng.random() < 0.3
        options: dict[str, Any] = {
            "log_type": "linear" if self.linear else "circular",
            "log_management": self.management,
            "log_primary_files": rng.randint(2, 3),
            "log_secondary_files": rng.randint(1, 2),
            "log_file_pages": 64,
            "log_buffer_pages": rng.choice((18, 40)),
            "log_write_integrity": "SingleWrite" if self.atomic else "TripleWrite",
        }
        self.story.append(f"create {options}")
        qmgr.create(NAME, data_path=DATA, log_path=LOG, disk=self.disk, clock=self.clock, **options)
        self.model = FullModel()
        self.configure()
        self.start()
        for name in QUEUES[: rng.choice((1, 3, 3))]:
            self.define(name)
        if rng.random() < 0.5:
            self.alter_qmgr()

    def configure(self) -> None:
        """Other settings, for the next start. What was written under SingleWrite needs sectors that are whole."""
        rng = self.rng
        path = f"{DATA}/qmgrs/{mangle(NAME)}/qm.ini"
        lines = [line.strip() for line in self.disk.peek(path).decode().splitlines()]
        log = [line for line in lines if line.startswith(("LogPath=", "LogType=", "LogFilePages="))]
        changed: dict[str, object] = {
            "LogPrimaryFiles": 2 if self.heavy else rng.randint(2, 4),
            "LogSecondaryFiles": 1 if self.heavy else rng.randint(1, 3),
            "LogBufferPages": rng.choice((18, 18, 40, 200)),
            "LogManagement": self.management,
            "LogWriteIntegrity": rng.choice(("TripleWrite", "SingleWrite")) if self.atomic else "TripleWrite",
        }
        tuning: dict[str, object] = {
            "CheckPointLogRecdMax": rng.choice((3, 20, 40, 50000)),
            "DefaultQBufferSize": rng.choice((1, 2000, *[131072] * (not self.deep))),
            "DefaultPQBufferSize": rng.choice((1, 2000, *[262144] * (not self.deep))),
            "ExpiryInterval": rng.choice((5, 300)),
        }
        archive: dict[str, object] = {}
        if self.linear and rng.random() < 0.5:
            archive["CompressAfter"] = rng.choice(("1m", "1h"))
            if self.management != "Automatic":
                archive["ArchiveAfter"] = rng.choice(("1m", "30m"))
                if rng.random() < 0.4:
                    archive["RemoveAfter"] = rng.choice(("10m", "2h"))
        text = ["Log:", *log]
        text += [f"{name}={value}" for name, value in changed.items()]
        text += ["TuningParameters:", *[f"{name}={value}" for name, value in tuning.items()]]
        if archive:
            text += ["LogArchive:", *[f"{name}={value}" for name, value in archive.items()]]
            self.trimmed |= "RemoveAfter" in archive
        self.trimmed |= self.management != "Manual"
        self.story.append(f"configure {changed} {tuning} {archive}")
        self.disk.poke(path, "\n".join([*text, ""]).encode())

    def start(self) -> None:
        self.story.append("start")
        self.qm = qmgr.start(NAME, data_path=DATA, disk=self.disk, clock=self.clock, background=False)
        now = self.qm._engine.steady.now_us()
        if self.stood_at is not None and not 0 <= now - self.stood_at < 1_000_000:
            raise self.violation(f"the clock of expiry stood at {self.stood_at} when it ended, and starts at {now}")
        self.stood_at = None
        self.ended = False
        self.note("starts")

    def end(self) -> None:
        """End in order; clients go first or stay."""
        self.story.append("end")
        self.disk.capacity = None
        self.look_at_clock()
        crashed = self.model.copy()
        crashed.crash()
        if self.held and self.rng.random() < 0.5:
            self.close_client()
        after = self.model.copy()
        after.end()
        after.forced()
        self.allowed = [self.model, after]
        stood_at = self.qm._engine.steady.now_us()
        self.ended = True  # what is not persistent may be kept from here on
        self.qm.end("immediate" if self.open or self.held else "quiesce")
        self.settle_on(after)
        self.stood_at = stood_at
        self.open.clear()
        self.held.clear()
        self.session = None
        self.note("ends")

    def crash(self, loss: Loss | int = LOSE_ALL) -> None:
        self.story.append(f"crash {loss}")
        self.stood_at = None
        if self.qm is not None:
            self.look_at_clock()
        self.disk = self.disk.crash(loss)
        self.disk.capacity = None
        self.forward.clear()
        self.qm = self.session = None
        self.open.clear()
        self.held.clear()
        allowed = []
        for model in self.allowed:
            if self.ended:
                kept = model.copy()
                kept.now = self.model.now
                kept.end()
                allowed.append(kept)
            after = model.copy()
            after.now = self.model.now
            after.crash()
            allowed.append(after)
        self.allowed = allowed
        self.model = allowed[-1]
        self.crashed = True
        self.note("crashes")

    def restart(self) -> None:
        """Start after a crash and see that nothing that was promised is missing."""
        if self.migrating:
            self.go_on_migrating()
        self.start()
        self.mend()
        self.check()

    def look_at_clock(self) -> int:
        """By the clock that messages expire by, now."""
        now: int = self.qm._engine.steady.now_us()
        for model in {id(m): m for m in [self.model, *self.allowed]}.values():
            model.now = max(model.now, now)
        return now

    # -- looking

    def observe(self, qm: Any) -> Found:
        queues = {}
        state = qm._engine.state
        for info in qm.queues():
            if info.name.startswith("SYSTEM."):
                continue
            attributes = {name: getattr(info, name) for name in DEFAULTS}
            if attributes["get_enabled"]:
                messages = list(qm.browse(info.name))
            else:
                queue, now = state.queues[info.name], qm._engine.steady.now_us()
                messages = [
                    decode(entry.head, entry.body, info.name, entry.backouts, now)
                    for entry in queue.after(BEFORE_ALL, queue.next_sequence)
                    if not 0 < entry.expires <= now
                ]
            queues[info.name] = attributes, info.depth, [seen(message) for message in messages]
        aliases = {
            alias.name: {
                "target": alias.target,
                "put_enabled": alias.put_enabled,
                "get_enabled": alias.get_enabled,
            }
            for alias in qm.aliases()
        }
        attributes = qm.attributes
        most = attributes.max_uncommitted or 10_000
        return Found(queues, aliases, (attributes.dead_letter_queue, most), set(qm.in_doubt()))

    def check(self) -> None:
        """What is there is one of the states that are allowed; from now on it is the only one."""
        now = self.look_at_clock()
        found = self.observe(self.qm)
        allowed = self.allowed if self.crashed else [self.model]
        differences, same = [], list[FullModel]()
        for model in reversed(allowed):
            difference = model.differs(found, now, durable=self.crashed)
            if not difference:
                same.append(model)
            else:
                differences.append(difference)
        if not same:
            raise self.violation("found none of what is allowed: " + "\n  ".join(dict.fromkeys(differences)))
        several = len({repr([queue.history for queue in model.queues.values()]) for model in same}) > 1
        self.settle_on(next(filter(self.has_the_history, same), same[0]) if several else same[0])
        self.model.now = now
        log = self.qm.status().log
        if not self.model.units and log.promised:
            raise self.violation(f"no unit of work, and {log.promised} bytes of log are promised")
        self.crashed = False
        there = self.qm._log.space.files * EXTENT  # more than settings allow, where these were larger before
        if log.used > max(log.capacity, there):
            raise self.violation(f"the log holds {log.used} bytes of {log.capacity}")
        engine = self.qm._engine
        units = list(engine.state.uows)
        if log.promised != sum(unit.promise for unit in units):
            raise self.violation(f"{log.promised} bytes are promised, but {[u.promise for u in units]} to units")
        for unit in units:
            if unit.state is UowState.ACTIVE and (unit.held_back or unit.first_lsn):
                needed = engine.promise_of(unit) + unit.ahead
                if unit.promise != needed or not 0 <= unit.ahead <= unit.held_back:
                    raise self.violation(f"{unit.promise} bytes are promised to a unit that needs {needed}")
        for name, queue in self.model.queues.items():
            info = engine.state.queues[name]
            if info.uncommitted != self.model.uncommitted(name):
                raise self.violation(f"{name}: {info.uncommitted} uncommitted, not {self.model.uncommitted(name)}")
            expiring = sum(bool(m.expires) for m in queue.msgs)
            over = sum(m.is_over(self.model.now) for m in queue.msgs)
            if info.expiring < expiring - over:  # a restart counts too many
                raise self.violation(f"{name}: {info.expiring} expiring, not at least {expiring - over}")

    def settle_on(self, model: FullModel) -> None:
        self.model = model
        self.allowed = [model]

    def depths(self) -> dict[str, int]:
        return {info.name: info.depth for info in self.qm.queues()}

    # -- making calls

    def call(
        self,
        text: str,
        real: Callable[[], Any],
        *afters: FullModel,
        may: "set[int] | frozenset[int]" = frozenset(),
        must: bool = False,
        unit: Hashable = None,
        forces: bool = True,
    ) -> Any:
        """Make one call, which leads to the last of these states, over the others; what it gives, or Refused.

        `may`: reason codes with which it may be refused, and nothing is changed; with `must` it has to be. The log may
        be full (2102), and a unit of work be gone for that (2003).
        """
        self.story.append(text)
        if self.disk.capacity is not None:
            may = DISK_FULL.union(may)
        before = self.model
        if afters and forces:
            afters[-1].forced()
        self.allowed = [before, *afters]
        try:
            answer = real()
        except MQError as exc:
            reason = exc.reason
            self.story[-1] += f" -> {int(reason)}"
            self.note(f"{int(reason)}")
            self.settle_on(before)
            if reason not in may and reason != NO_ROOM and not (reason == GONE and unit is not None):
                raise self.violation(f"{text}: refused with {exc!r}, allowed are {set(may)}") from exc
            self.reconcile()
            if reason == NO_ROOM:
                self.look_at_log(text)
                if unit is not None and unit not in self.model.units:
                    raise self.violation(f"{text}: 2102, and the unit of work was backed out") from exc
            if reason == GONE and unit in self.model.units:
                raise self.violation(f"{text}: 2003, and the unit of work is still there") from exc
            return Refused(int(reason))
        if must and not (may == {Reason.Q_FULL} and self.rolled_back()):  # whose puts have left the queue by that
            raise self.violation(f"{text}: should be refused with {set(may)}, gave {answer!r}")
        if afters:
            self.settle_on(afters[-1])
        else:
            self.settle_on(before)
        self.note(text.split()[0])
        self.reconcile()
        return answer

    def rolled_back(self) -> list[Hashable]:
        """The units of work that the queue manager has backed out, and the model has not."""
        return [key for key, unit in self.open.items() if key in self.model.units and unit.state is BACKED_OUT]

    def reconcile(self) -> None:
        """The queue manager may have backed out the oldest unit of work to gain room in the log."""
        for key in self.rolled_back():
            self.story.append(f"({key} was backed out for room)")
            self.note("rolled back for room")
            if self.model.units[key].prepared:
                raise self.violation(f"{key} was prepared and was backed out")
            after = self.model.copy()
            after.backout(key)
            del self.open[key]
            self.settle_on(after)
        for key, unit in self.model.units.items():
            real = self.qm._engine.state.uows.by_xid(key) if unit.prepared else None
            if real is not None:
                if real.first_lsn > self.forward.setdefault(key, real.first_lsn):
                    self.note("rolled forward for room")
                self.forward[key] = real.first_lsn

    def look_at_log(self, text: str) -> None:
        """A call was refused since the log is full: it is, and something that is not over holds it."""
        log = self.qm._log
        with log.lock:
            space, tail = log.space, log.buffer.tail
            if space.fits(tail, space.largest, space.for_gets):
                raise self.violation(f"{text}: 2102, and the log has {space.used(tail)} bytes of {space.capacity}")
        if self.disk.capacity is None and all(unit.holds for unit in self.model.units.values()):
            raise self.violation(f"{text}: 2102, and there is no unit of work")

    def target(self, unit: Hashable) -> Any:
        return self.qm if unit is None else self.open[unit]

    # -- definitions

    def attributes(self) -> dict[str, Any]:
        """Some, drawn."""
        rng = self.rng
        drawn: dict[str, Callable[[], Any]] = {
            "description": lambda: f"at {self.count}",
            "put_enabled": lambda: rng.random() < 0.7,
            "get_enabled": lambda: rng.random() < 0.7,
            "default_priority": lambda: rng.choice((0, 4, 9)),
            "default_persistence": lambda: rng.random() < 0.6,
            "max_depth": lambda: rng.choice((0, 3, 12, 999_999_999, 999_999_999)),
            "max_message_length": lambda: rng.choice((0, 300, 4_194_304, 4_194_304)),
            "delivery_sequence": lambda: rng.choice(("PRIORITY", "FIFO")),
            "non_persistent_class": lambda: rng.choice(("NORMAL", "HIGH")),
            "backout_threshold": lambda: rng.choice((0, 1, 1, 2)),
            "backout_queue": lambda: rng.choice(("", "B", "C", "X", "NONE")),
            "image_recoverable": lambda: rng.choice(("QMGR", "YES", "NO")),
            "expiry_cap": lambda: rng.choice((None, 3.0, 90.0)),
            "buffer_size": lambda: rng.choice((None, 1, 3000)),
        }
        names = rng.sample(sorted(drawn), rng.choice((1, 1, 2, 5)))
        return {name: drawn[name]() for name in names}

    def mild(self, name: str) -> dict[str, Any]:
        """Attributes that let work go on."""
        others = [queue for queue in (*QUEUES, "X") if queue != name]
        return {
            "put_enabled": True,
            "get_enabled": True,
            "max_depth": 999_999_999,
            "max_message_length": 4_194_304,
            "backout_threshold": self.rng.choice((0, 1, 1, 2)),
            "backout_queue": self.rng.choice(others),
            "delivery_sequence": self.rng.choice(("PRIORITY", "PRIORITY", "FIFO")),
            "non_persistent_class": self.rng.choice(("NORMAL", "HIGH", "HIGH")),
        }

    def define(self, name: str) -> None:
        given = self.mild(name) | (self.attributes() if self.rng.random() < self.harsh else {})
        after = self.model.copy()
        after.queues[name] = Queue(DEFAULTS | given)
        may = {Reason.OBJECT_ALREADY_EXISTS} if name in self.model.queues or name in self.model.aliases else set()
        self.call(f"define {name} {given}", lambda: self.qm.define_queue(name, **given), after, may=may, must=bool(may))

    def alter(self, name: str) -> None:
        given = self.attributes() if self.rng.random() < self.harsh else self.mild(name)
        after = self.model.copy()
        after.queues[name].attributes |= given
        self.call(f"alter {name} {given}", lambda: self.qm.alter_queue(name, **given), after)

    def delete(self, name: str, *, purge: bool) -> None:
        after = self.model.copy()
        del after.queues[name]
        may: set[int] = set()
        least, most = self.model.depth(name)
        if self.model.uncommitted(name):
            may.add(Reason.OBJECT_IN_USE)
        if most and not purge:
            may.add(Reason.Q_NOT_EMPTY)
        must = Reason.OBJECT_IN_USE in may or (least > 0 and not purge)
        self.call(f"delete {name} {purge}", lambda: self.qm.delete_queue(name, purge=purge), after, may=may, must=must)

    def alias(self, name: str) -> None:
        rng = self.rng
        after = self.model.copy()
        if name in after.aliases and rng.random() < 0.3:
            del after.aliases[name]
            self.call(f"delete alias {name}", lambda: self.qm.delete_alias(name), after)
            return
        given: dict[str, Any] = {"put_enabled": rng.random() < 0.8, "get_enabled": rng.random() < 0.8}
        target = rng.choice((*QUEUES, "NONE"))
        if name in after.aliases:
            after.aliases[name] |= given | {"target": target}
            self.call(
                f"alter alias {name} {target} {given}",
                lambda: self.qm.alter_alias(name, target=target, **given),
                after,
            )
        else:
            after.aliases[name] = {"target": target} | given
            self.call(f"alias {name} {target} {given}", lambda: self.qm.define_alias(name, target, **given), after)

    def alter_qmgr(self) -> None:
        rng = self.rng
        after = self.model.copy()
        given: dict[str, Any] = {}
        if rng.random() < 0.7:
            given["dead_letter_queue"] = after.dead_letter_queue = rng.choice(("", "A", "C", "B", "Y"))
        if rng.random() < 0.5:
            given["max_uncommitted"] = after.max_uncommitted = rng.choice((1, 3, 9, 40, *[10_000] * 5))
        if rng.random() < 0.2:
            given["image_recover_queues"] = rng.random() < 0.7
        if rng.random() < 0.2:
            given["performance_events"] = False
        self.call(f"alter qmgr {given}", lambda: self.qm.alter(**given), after)

    # -- puts

    def put(self, name: str, unit: Hashable, *, sizes: tuple[int, ...], numbers: tuple[int, ...]) -> None:
        rng, model = self.rng, self.model
        number = rng.choice(numbers)
        base = model.base(name)
        defaults = DEFAULTS if base is None else model.queues[base].attributes
        options: dict[str, Any] = {}
        if rng.random() < 0.6:
            options["priority"] = rng.choice((0, 4, 9))
        if rng.random() < 0.6:
            options["persistent"] = rng.random() < 0.7
        if rng.random() < 0.5:
            options["correlation_id"] = b"%d" % rng.randrange(3)
        if rng.random() < 0.3:
            options["properties"] = {"n": self.count, "t": "x" * rng.randrange(20)}
        if rng.random() < 0.2:
            options["format"] = "MQSTR"
        if rng.random() < self.expire:
            options["expiry"] = rng.choice((0.5, 5, 60, 10_000))
        if rng.random() < self.group:
            options["group_id"] = rng.choice(GROUPS)
            options["group_sequence"] = rng.choice((1, 1, 2, 3))
            options["last_in_group"] = rng.random() < 0.4
        many = number > 1
        cap = defaults["expiry_cap"]
        expiry = options.get("expiry")
        if cap is not None:
            expiry = cap if expiry is None else min(cap, expiry)
        now = self.qm._engine.steady.now_us()
        size = rng.choice(sizes)
        msgs = []
        for index in range(number):
            self.count += 1
            group = None
            if "group_id" in options:
                last = options["last_in_group"] and index == number - 1
                group = options["group_id"].ljust(24, b"\0"), options["group_sequence"] + index, last
            msgs.append(
                Msg(
                    self.count,
                    (b"%d " % self.count).ljust(size, b"%c" % (65 + self.count % 26)),
                    options.get("priority", defaults["default_priority"]),
                    options.get("persistent", defaults["default_persistence"]),
                    b"" if many else self.count.to_bytes(24, "big"),
                    options.get("correlation_id", b"").ljust(24, b"\0"),
                    group,
                    tuple(options.get("properties", {}).items()),
                    options.get("format", ""),
                    0 if expiry is None else now + max(1, int(expiry * 1_000_000)),
                )
            )
        may = model.why_not_put(name, max(len(m.body) for m in msgs), number, self.depths())
        if unit is not None and model.units[unit].size + number > model.max_uncommitted:
            may.add(TOO_MANY)
        after = model.copy()
        if base is not None:
            after.put(base, msgs, unit)
        target = self.target(unit)

        def real() -> None:
            if many:
                made = target.put_many(name, [msg.body for msg in msgs], **options)
                for msg, one in zip(msgs, made, strict=True):
                    msg.message_id = one.message_id
            else:
                target.put(name, msgs[0].body, message_id=msgs[0].message_id, **options)

        text = f"put {name} #{msgs[0].number}-{msgs[-1].number} size={size} {options} unit={unit}"
        forces = unit is None and msgs[0].persistent
        self.call(text, real, after, may=may, must=bool(may), unit=unit, forces=forces)

    # -- gets

    def get(self, name: str, unit: Hashable) -> None:
        rng = self.rng
        base = self.model.base(name)
        limit = rng.choice((1, 1, 1, 2, 5, 30))
        many = limit > 1 or rng.random() < 0.2
        by_id = rng.random() < self.by_id
        options = self.ids(base) if by_id else {}
        if rng.random() < self.requeue:
            options["backout_requeue"] = True
        elif not by_id and unit is not None and rng.random() < self.logical:
            options[rng.choice(("logical_order", "all_available"))] = True
            if rng.random() < 0.2:
                options["group_id"] = rng.choice(GROUPS).ljust(24, b"\0")
        self.get_with(name, unit, limit, many, options)

    def ids(self, queue: str | None) -> dict[str, Any]:
        """What a get or a browse looks for."""
        rng = self.rng
        options: dict[str, Any] = {}
        there = [] if queue is None else [msg for msg in self.model.queues[queue].msgs if msg.message_id]
        if there and rng.random() < 0.5:
            options["message_id"] = rng.choice(there).message_id
        if rng.random() < 0.3:
            options["correlation_id"] = (b"%d" % rng.randrange(3)).ljust(24, b"\0")
        if rng.random() < 0.3:
            options["group_id"] = rng.choice(GROUPS).ljust(24, b"\0")
        return options

    def browse(self, name: str) -> None:
        """Look at what has these ids."""
        model, base = self.model, self.model.base(name)
        self.look_at_clock()
        options = self.ids(base)
        may: set[int] = set()
        if base is None:
            may = {2082 if name in model.aliases else 2085}
        elif not (model.queues[base].attributes["get_enabled"] and model.aliases.get(name, DEFAULTS)["get_enabled"]):
            may = {Reason.GET_INHIBITED}
        text = f"browse {name} {options}"
        found = self.call(text, lambda: list(self.qm.browse(name, **options)), may=may, must=bool(may), forces=False)
        if not isinstance(found, Refused):
            expected = [msg.seen() for msg in model.ready(base) if matches(msg, options)]
            if [seen(message) for message in found] != expected:
                raise self.violation(f"{text}: {short([seen(m) for m in found])}, not {short(expected)}")

    def get_with(self, name: str, unit: Hashable, limit: int, many: bool, options: dict[str, Any]) -> None:
        model, base, text = self.model, self.model.base(name), f"get {name} limit={limit} {options} unit={unit}"
        now = self.look_at_clock()
        assert now == model.now, "only a restart sets it back, and that looks"
        target = self.target(unit)
        got: list[Any] = []

        def real() -> None:
            if many:
                got.extend(target.get_many(name, limit, **options))
            else:
                got.append(target.get(name, **options))

        if base is None:
            may = {2082 if name in model.aliases else 2085}
            self.call(text, real, may=may, must=True, unit=unit)
            return
        enabled = model.queues[base].attributes["get_enabled"]
        enabled = enabled and model.aliases.get(name, {"get_enabled": True})["get_enabled"]
        may: set[int] = set() if enabled else {Reason.GET_INHIBITED}
        after = model.copy()
        requeue = options.get("backout_requeue", False)

        most = limit

        def chosen(of: FullModel) -> list[Msg]:
            if "logical_order" in options or "all_available" in options:
                group, complete = options.get("group_id"), "all_available" in options
                return of.find_in_order(base, of.units[unit], most, group, complete=complete)
            return of.find(base, most, lambda msg: matches(msg, options))

        mover = unit
        if requeue and enabled and unit is not None:  # where there is nothing else the moves are units of their own
            most = limit + UNIT_MESSAGES
            threshold, first = model.queues[base].attributes["backout_threshold"], chosen(model)
            mover = None if threshold and first and all(m.backouts >= threshold for m in first) else unit
            most = limit
        moves: list[Move] = []
        between: list[FullModel] = []  # with so many of the moves made
        if requeue and (enabled or unit is None) and model.queues[base].attributes["get_enabled"]:
            moves, _ = after.moves(base, lambda: chosen(after), self.depths())
            step = 1 if mover is not None else max(1, min(UNIT_MESSAGES, model.max_uncommitted // 4))
            for number, move in enumerate(moves, 1):
                after.move(base, move, mover)
                if number % step == 0 or number == len(moves):
                    between.append(after.copy())
        left = 1 << 60 if unit is None else model.max_uncommitted - model.units[unit].size
        left -= 0 if mover is None else 2 * len(moves)
        most = max(1, min(limit, left))
        expected = chosen(after)
        if left < (limit if moves else 1):
            may.add(TOO_MANY)
        after.get(base, expected, unit)
        must = not enabled or len(expected) > left
        if not expected and not many:
            may.add(NO_MESSAGE)
            must = True
        forces = unit is None and any(msg.persistent for msg in expected)
        gone = self.did.get("rolled back for room", 0)
        shorter: list[FullModel] = []  # more of them would have to be read
        for some in range(1, len(expected)) if unit is None and self.disk.crashes else ():
            fewer = (between or [model])[-1].copy()
            fewer.get(base, chosen(fewer)[:some])
            shorter.append(fewer)
        tried = self.tried(base, [model, *between]) if mover is None else []
        answer = self.call(text, real, *tried, *between, *shorter, after, may=may, must=must, unit=unit, forces=forces)
        rolled_back = self.did.get("rolled back for room", 0) > gone
        last = [*between[-1:], model][0]
        if isinstance(answer, Refused):
            if answer.reason == NO_MESSAGE and rolled_back:
                self.check_got([], base, unit, last, chosen if requeue and enabled else None, {unit, mover})
            elif moves:
                self.adopt(base, moves, mover, answer)
            if answer.reason == GONE:  # perhaps when it had them already
                numbers = {msg.number for msg in (*expected, *(move[0] for move in moves))}
                for msg in self.model.queues[base].msgs:
                    if msg.number in numbers and msg.held is None:
                        msg.least = msg.backouts
                        msg.backouts += 1
                self.check()
            return
        if moves:
            self.note("moved")
        if len(got) < len(expected) and (many or limit > 1) and (got or not expected):
            self.note("short batch")
            expected = self.cut_short(model, base, moves, mover, unit, lambda of: chosen(of)[: len(got)])
        if rolled_back:
            self.check_got(got, base, unit, last, chosen if requeue and enabled else None, {unit, mover})
            return
        mine, found = [msg.seen() for msg in expected], [seen(m) for m in got]
        if mine != found:
            raise self.violation(f"{text}: expected {short(mine)}, got {short(found)}")

    def check_got(
        self,
        got: list[Any],
        queue: str,
        unit: Hashable,
        before: FullModel,
        chosen: Callable[[FullModel], list[Msg]] | None,
        movers: set[Hashable],
    ) -> None:
        """A get during which units were backed out: what came was there before, or after that.

        Of what that has given back it may have moved some away, in one of the units `movers`: `chosen` says what the
        get would take, if it moves any.
        """
        after = before.copy()
        gone = [key for key in after.units if key not in self.model.units]
        for key in gone:
            if key != unit:
                after.backout(key)
        moved = after.copy()
        moves = moved.moves(queue, lambda: chosen(moved), self.depths())[0] if chosen is not None else []
        if moves:
            now, found = self.look_at_clock(), self.observe(self.qm)
            for mover, done in product(movers, range(1, len(moves) + 1)):
                some = after.copy()
                for move in moves[:done]:
                    some.move(queue, self.again(some, queue, move), mover if mover not in gone else None)
                self.take(some, got, queue, unit, gone)
                if not some.differs(found, now):
                    self.settle_on(some)
                    return
        self.take(after, got, queue, unit, gone)
        self.settle_on(after)

    def take(self, after: FullModel, got: list[Any], queue: str, unit: Hashable, gone: list[Hashable]) -> None:
        """What came is got in this model too."""
        bodies = [seen(message)[0] for message in got]
        found = [msg for msg in after.queues[queue].msgs if msg.body in bodies and msg.held is None]
        if len(found) != len(got):
            raise self.violation(f"got {got} of {queue}, which was not there")
        found.sort(key=lambda msg: bodies.index(msg.body))
        after.get(queue, found, unit)
        if unit in gone:  # its next call will say so
            after.backout(unit)

    def cut_short(
        self,
        before: FullModel,
        queue: str,
        moves: list[Move],
        mover: Hashable,
        unit: Hashable,
        choose: Callable[[FullModel], list[Msg]],
    ) -> list[Msg]:
        """What a get took that had not looked at all that it might have: it has perhaps not moved all, either."""
        now, found = self.look_at_clock(), self.observe(self.qm)
        for done in range(len(moves), -1, -1):
            after = before.copy()
            for move in moves[:done]:
                after.move(queue, self.again(after, queue, move), mover)
            expected = choose(after)
            after.get(queue, expected, unit)
            if not after.differs(found, now):
                self.settle_on(after)
                return expected
        raise self.violation("a get that was cut short left neither this nor that")

    def adopt(self, queue: str, moves: list[Move], unit: Hashable, refused: Refused) -> None:
        """A get that moves messages away and was refused then has made some of the moves."""
        if unit is not None:
            if unit not in self.model.units:
                return
            done = len(self.open[unit]._unit.gets) - len(self.model.units[unit].gets)
            after = self.model.copy()
            for move in moves[:done]:
                after.move(queue, self.again(after, queue, move), unit)
            self.settle_on(after)
            return
        states: list[FullModel] = []
        for done in range(len(moves) + 1):
            for backed_out in range(done, len(moves) + 1):
                after = self.model.copy()
                for move in moves[:done]:
                    after.move(queue, self.again(after, queue, move))
                for move in moves[done:backed_out]:
                    again = self.again(after, queue, move)[0]
                    again.backouts += 1
                    again.least = again.backouts
                states.append(after)
        now = self.look_at_clock()
        self.allowed = states  # there may be a crash while it is looked at
        found = self.observe(self.qm)
        for after in states:
            if not after.differs(found, now):
                self.settle_on(after)
                return
        raise self.violation(f"the moves of a get that was refused with {refused.reason} left neither this nor that")

    @staticmethod
    def tried(queue: str, states: list[FullModel]) -> list[FullModel]:
        """Each of these, with more of the moves made, after a crash in the unit of work of the next moves.

        To back that out may count, of those that it moves.
        """
        made = []
        for state, after in pairwise(states):
            one = state.copy()
            gone = {msg.number for msg in state.queues[queue].msgs} - {msg.number for msg in after.queues[queue].msgs}
            for msg in one.queues[queue].msgs:
                msg.backouts += msg.number in gone
            made.append(one)
        return made

    @staticmethod
    def again(model: FullModel, queue: str, move: Move) -> Move:
        """The same move in another copy of the model."""
        return next(m for m in model.queues[queue].msgs if m.number == move[0].number), *move[1:]

    def clear(self, name: str) -> None:
        after = self.model.copy()
        after.queues[name].msgs = []
        may = {Reason.OBJECT_IN_USE} if self.model.uncommitted(name) else set()
        text, persistent = f"clear {name}", [m for m in self.model.queues[name].msgs if m.persistent]
        if len(self.model.queues[name].msgs) < 60:  # else a crash may leave some
            self.call(text, lambda: self.qm.clear_queue(name), after, may=may, must=bool(may), forces=bool(persistent))

    # -- units of work

    def begin(self) -> None:
        self.count += 1
        xid = qmgr.Xid(1, b"%d" % self.count, b"b") if self.rng.random() < 0.5 else None
        self.story.append(f"begin {xid or self.count}")
        key: Hashable = xid or self.count
        self.open[key] = self.qm.begin(xid)
        after = self.model.copy()
        after.begin(key)
        self.settle_on(after)

    def has_persistent(self, unit: Hashable, *, puts: bool = True) -> bool:
        one = self.model.units[unit]
        return any(msg.persistent for _, msg in [*(one.puts if puts else ()), *one.gets])

    def end_unit(self, unit: Hashable, *, commit: bool) -> None:
        after = self.model.copy()
        (after.commit if commit else after.backout)(unit)
        target = self.open[unit]
        forces = self.has_persistent(unit, puts=commit)
        text = f"{'commit' if commit else 'backout'} {unit}"
        self.call(text, target.commit if commit else target.backout, after, unit=unit, forces=forces)
        self.open.pop(unit, None)

    def try_in_vain(self, name: str) -> None:
        """A unit of work gets messages and is backed out."""
        self.begin()
        unit = list(self.open)[-1]
        self.get_with(name, unit, limit := self.rng.choice((1, 2, 5)), limit > 1, {})
        if unit in self.open:
            self.end_unit(unit, commit=False)

    def prepare(self, unit: Hashable) -> None:
        after = self.model.copy()
        after.units[unit].prepared = True
        self.call(f"prepare {unit}", self.open[unit].prepare, after, unit=unit)

    def resolve(self, xid: Hashable, *, commit: bool) -> None:
        after = self.model.copy()
        (after.commit if commit else after.backout)(xid)
        self.call(f"resolve {xid} {commit}", lambda: self.qm.resolve(xid, commit=commit), after)
        self.open.pop(xid, None)

    def dead_letter(self, name: str, unit: Hashable) -> None:
        """Look at a message and put it to the dead-letter queue, too."""
        base = self.model.base(name)
        if base is None or not self.model.queues[base].attributes["get_enabled"]:
            return
        message = next(iter(self.qm.browse(base)), None)
        msg = next(iter(self.model.ready(base)), None)
        if message is None or msg is None or message.expiry is not None:
            return
        copy = self.model.moved(msg, base, dead=True, reason=2030)
        self.count += 1
        copy.number = self.count
        target = self.model.base(self.model.dead_letter_queue)
        after = self.model.copy()
        may: set[int] = set()
        if not self.model.dead_letter_queue:
            may = {2085}
        else:
            size = len(msg.body) + DEAD_HEADER * len(copy.dead)
            may = self.model.why_not_put(self.model.dead_letter_queue, size, 1, self.depths())
        if unit is not None and self.model.units[unit].size + 1 > self.model.max_uncommitted:
            may.add(TOO_MANY)
        if target is not None:
            after.put(target, [copy], unit)
        real = self.open.get(unit)
        self.call(
            f"dead {base} #{msg.number} unit={unit}",
            lambda: self.qm.dead_letter(real, message, 2030),
            after,
            may=may,
            must=bool(may),
            unit=unit,
            forces=unit is None and msg.persistent,
        )

    # -- a client that holds messages

    def deliver(self, name: str) -> None:
        model, base = self.model, self.model.base(name)
        if base is None or name != base:
            return
        if self.session is None:
            self.session = self.qm.sessions.open(Peer(user="u"), AllRights())
            after = model.copy()
            after.begin("client", holds=True)
            self.settle_on(after)
            model = after
        self.look_at_clock()
        limit = self.rng.choice((1, 3))
        after = model.copy()
        moves, _ = after.moves(base, lambda: after.find(base, limit, lambda m: True), self.depths())
        between = []
        for number, move in enumerate(moves, 1):
            after.move(base, move)
            if number % max(1, min(64, model.max_uncommitted // 4)) == 0 or number == len(moves):
                between.append(after.copy())
        expected = after.find(base, limit, lambda m: True)
        after.get(base, expected, "client")
        enabled = model.queues[base].attributes["get_enabled"]
        may = set() if enabled else {Reason.GET_INHIBITED}

        def real() -> list[Any]:
            found, force = self.session.deliver(base, limit)
            self.qm.force(force)
            return list(found)

        gone = self.did.get("rolled back for room", 0)
        may_be = *self.tried(base, [model, *between]), *between, after
        found = self.call(f"deliver {base} {limit}", real, *may_be, may=may, must=not enabled, forces=False)
        if isinstance(found, Refused):
            if moves:
                self.adopt(base, moves, None, found)
            return
        if self.did.get("rolled back for room", 0) > gone:
            came = [one.message for one in found]
            before = [*between[-1:], model][0]
            self.check_got(came, base, "client", before, lambda of: of.find(base, limit, lambda m: True), {None})
            taken = self.model.units["client"].gets
            for (_, msg), one in zip(taken[len(taken) - len(found) :], found, strict=True):
                self.held[msg.number] = one
            return
        if [seen(one.message) for one in found] != [msg.seen() for msg in expected[: len(found)]] or (
            len(found) < len(expected) and not found
        ):
            raise self.violation(f"delivered {found}, not {short([m.seen() for m in expected])}")
        if len(found) < len(expected):
            self.note("short delivery")
            expected = self.cut_short(
                model, base, moves, None, "client", lambda of: of.find(base, len(found), lambda m: True)
            )
        for msg, one in zip(expected, found, strict=True):
            self.held[msg.number] = one

    def answer(self) -> None:
        """Acknowledge, refuse or give back some of what the client holds."""
        rng = self.rng
        numbers = rng.sample(sorted(self.held), rng.randint(1, len(self.held)))
        some = [self.held[number] for number in numbers]
        after = self.model.copy()
        client = after.units["client"]
        pairs = [pair for number in numbers for pair in client.gets if pair[1].number == number]
        client.gets = [pair for pair in client.gets if pair[1].number not in numbers]
        kind = rng.random()
        persistent = any(msg.persistent for _, msg in pairs)
        may: set[int] = set()
        if kind < 0.5:
            units = [key for key in self.open if not self.model.units[key].prepared]
            unit = rng.choice([None, *units])
            if unit is not None and self.model.units[unit].size + len(some) > self.model.max_uncommitted:
                may.add(TOO_MANY)
            for queue, msg in pairs:
                msg.held = None
                after.get(queue, [msg], unit)

            def real() -> None:
                self.qm.force(self.session.accept(some, None if unit is None else self.open[unit]))

            text, forces = f"accept {numbers} {unit}", unit is None and persistent
        else:
            unit = None
            for _, msg in pairs:
                msg.held = None
                if kind < 0.8:
                    msg.backouts += 1
                    msg.least = msg.backouts

            def real() -> None:
                if kind < 0.8:
                    self.qm.force(self.session.reject(some))
                else:
                    self.session.release(some)

            text = f"{'reject' if kind < 0.8 else 'release'} {numbers}"
            forces = kind < 0.8 and persistent
        refused = self.call(text, real, after, may=may, must=bool(may), unit=unit, forces=forces)
        if isinstance(refused, Refused):
            return
        for number in numbers:
            del self.held[number]
        for one, (_, msg) in zip(some, pairs, strict=True) if text.startswith("reject") else ():
            if one.entry.backouts != msg.backouts:
                if not msg.persistent or one.entry.backouts != msg.backouts - 1:  # without room they return uncounted
                    raise self.violation(f"{msg} was backed out {one.entry.backouts} times")
                msg.least = msg.backouts = one.entry.backouts

    def close_client(self) -> None:
        after = self.model.copy()
        after.backout("client")
        for queue in after.queues.values():
            for msg in queue.msgs:
                if msg.number in self.held:
                    msg.least = msg.backouts - 1
        self.call("close client", self.session.close, after, forces=False)
        self.session = None
        self.held.clear()

    # -- what an operator does

    def pass_time(self) -> None:
        """Time goes by, or somebody sets the clock."""
        rng = self.rng
        if rng.random() < 0.3:
            seconds = rng.choice((-100_000, -50, 50, 5000))
            self.story.append(f"clock {seconds}")
            self.clock.jump_wall(seconds)
            return
        seconds = rng.choice((0.2, 4, 30, 400, 4000))
        self.story.append(f"time {seconds}")
        self.clock.advance(seconds)
        self.look_at_clock()
        self.call("look around", self.qm.look_around, self.model.copy(), forces=False)

    def fill_disk(self) -> None:
        """From now on the disk is full, or has room for little; or has room again."""
        disk = self.disk
        disk.capacity = (
            disk.used + self.rng.choice((0, 5000, EXTENT, EXTENT + 90_000)) if disk.capacity is None else None
        )
        self.story.append(f"capacity {disk.capacity}, {disk.used} are used")

    def image(self) -> None:
        if not self.linear:
            return
        queue = self.rng.choice([None, *sorted(self.model.queues)])
        may = {Reason.FUNCTION_NOT_SUPPORTED}  # images of this queue are not wanted
        self.call(f"image {queue}", lambda: self.qm.record_image(queue), self.model.copy(), may=may)

    def build_again(self) -> None:
        """For nothing, or since a file was harmed."""
        queues = self.qm._engine.state.queues
        imaged = [name for name in sorted(self.model.queues) if queues[name].image is not None]
        if imaged:
            (self.recreate if self.rng.random() < 0.3 else self.harm)(self.rng.choice(imaged))

    def keep_log(self) -> None:
        """Archive, compress, remove, or go on in a new extent."""
        calls: dict[str, Callable[[], Any]] = {"advance": self.qm.advance_log, "compress": self.qm.compress_log}
        if self.management != "Automatic":
            calls["archive"] = self.qm.archive_log
            calls["remove"] = lambda: self.qm.remove_log(older_than=0)
        if self.management != "Manual":
            calls["reduce"] = self.qm.reduce_log
        how = self.rng.choice(sorted(calls))
        if self.linear:
            self.trimmed |= how in ("remove", "reduce")
            self.call(f"{how} log", calls[how], self.model.copy(), forces=False)

    def recreate(self, queue: str) -> None:
        """What is held of it for a client is there again, for anybody."""
        self.disk.capacity = None  # without room for the checkpoint it is refused when it is done
        after = self.model.copy()
        freed: list[int] = []
        if "client" in after.units:
            client = after.units["client"]
            freed = [msg.number for name, msg in client.gets if name == queue]
            for name, msg in client.gets:
                msg.held = None if name == queue else msg.held
            client.gets = [(name, msg) for name, msg in client.gets if name != queue]
        after.recreate(queue)
        if not isinstance(self.call(f"recreate {queue}", lambda: self.qm.recreate(queue), after), Refused):
            self.held = {number: one for number, one in self.held.items() if number not in freed}
        self.suspects.discard(queue)

    def harm(self, queue: str) -> None:
        """A file of the queue is harmed behind the queue manager's back, and the queue is built again."""
        directory = f"{DATA}/qmgrs/{NAME}/queues/{mangle(queue)}/"
        there = [path for path in self.disk.files(directory) if path.endswith(".seg")]
        if not there:
            return
        rng = self.rng
        how, path = rng.choice(("remove", "cut", "flip", "zero")), rng.choice(there)
        self.story.append(f"{how} {path}")
        self.note("harm")
        data = self.disk.peek(path)
        at = rng.randrange(max(1, len(data)))
        if how == "remove":
            self.disk.remove(path)
        elif how == "flip" and data:
            self.disk.poke(path, data[:at] + bytes([data[at] ^ 1 << rng.randrange(8)]) + data[at + 1 :])
        else:
            self.disk.poke(path, data[:at] + (b"" if how == "cut" else bytes(len(data) - at)))
        self.suspects.add(queue)
        if rng.random() < 0.3:
            self.end()
            self.start()
            self.mend()
        elif rng.random() < 0.3:
            self.disk.crash_after(1)
            self.call("checkpoint", self.qm.checkpoint, self.model.copy())
        else:
            with contextlib.suppress(Damaged):
                if self.model.queues[queue].attributes["get_enabled"]:
                    list(self.qm.browse(queue))
            self.recreate(queue)

    def mend(self) -> None:
        """What was harmed and not found by the start is found by whoever reads it, and is built again then."""
        for queue in sorted(self.suspects):
            if queue in {info.name for info in self.qm.queues()}:
                with contextlib.suppress(Damaged, qmgr.errors.Inhibited):
                    list(self.qm.browse(queue))
                self.qm.recreate(queue)
                for model in self.allowed:
                    model.recreate(queue)
            self.suspects.discard(queue)

    # -- an earlier moment, another kind of log

    def remember(self) -> None:
        """Note how it is at this LSN."""
        if self.trimmed or not self.linear:
            return
        engine = self.qm._engine
        with engine.lock:
            tail = engine.log.buffer.tail
        self.qm.force(tail)
        self.look_at_clock()
        model = self.model.copy()
        model.crash()
        self.earlier.append(Earlier(tail, model))

    def look_back(self) -> None:
        """Between an end and a start: build it as it was at an LSN that was noted, on a copy of the disk."""
        then = self.rng.choice(self.earlier)
        self.story.append(f"recover to {then.lsn}")
        self.note("look back")
        disk, clock = self.disk.snapshot(KEEP_ALL), SimClock(self.clock.wall)
        clock.elapsed = self.clock.elapsed
        qmgr.recover_to(NAME, "/base/other", lsn=then.lsn, data_path=DATA, disk=disk, clock=clock)
        with qmgr.start(NAME, data_path="/base/other", disk=disk, clock=clock, background=False) as qm:
            now = qm._engine.steady.now_us()
            model = then.model.copy()
            model.now = max(model.now, now)
            found = self.observe(qm)
            difference = model.differs(found, now)
            if difference:
                raise self.violation(f"recovered to {then.lsn}: {difference}")

    def migrate(self) -> None:
        """Between an end and a start."""
        rng = self.rng
        to = rng.choice(("linear", "circular", None))
        path = rng.choice((None, None, "/base/log", "/base/log2"))
        self.story.append(f"migrate {to} {path}")
        self.note("migrate")
        linear = self.linear if to is None else to == "linear"
        if not linear:
            self.earlier.clear()
            self.trimmed = False
        self.migrating = True
        migration.migrate_log(NAME, data_path=DATA, log_type=to, log_path=path, disk=self.disk)
        self.migrating = False
        if linear != self.linear:
            self.trimmed = True  # what is older is gone
            self.earlier.clear()
        self.linear = linear

    def go_on_migrating(self) -> None:
        """A migration was cut off: the old log or the new one is whole, and it goes on if it has to."""
        try:
            self.start()
        except MQError as exc:
            self.story.append(f"-> {exc}")
            migration.migrate_log(NAME, data_path=DATA, disk=self.disk)
            self.note("migrated again")
        else:
            self.qm.end("immediate")
        self.linear = "LogType=LINEAR" in self.disk.peek(f"{DATA}/qmgrs/{mangle(NAME)}/qm.ini").decode()
        self.migrating, self.trimmed = False, True
        self.earlier.clear()

    def told(self, name: str) -> list[bytes]:
        return [seen(one.message)[0] for one in self.qm.replay(name, "oldest")]

    def has_the_history(self, model: FullModel) -> bool:
        """Was to each queue put what the model says? What is over by now shows in nothing else."""
        if self.trimmed or not self.linear:
            return True
        return all(self.told(name) == queue.history for name, queue in model.queues.items())

    def replay(self) -> None:
        """The history of a queue is all that was put to it."""
        if self.trimmed or not self.linear:
            return
        for name, queue in self.model.queues.items():
            told = self.told(name)
            if told != queue.history:
                raise self.violation(f"a replay of {name} told of {len(told)} messages, not of {len(queue.history)}")
            self.note("replayed")


def matches(msg: Msg, options: dict[str, Any]) -> bool:
    if "message_id" in options and msg.message_id != options["message_id"]:
        return False
    if "correlation_id" in options and msg.correlation_id != options["correlation_id"]:
        return False
    return "group_id" not in options or (msg.group is not None and msg.group[0] == options["group_id"])


def seen(message: Any) -> Seen:
    """As the model tells a message."""
    body, dead, form = message.body, list[tuple[int, str, str]](), message.format
    while form == deadletter.FORMAT:
        header, body = deadletter.decode(body)
        dead.append((int(header.reason), header.queue, header.format))
        form = header.format
    return (
        body,
        message.priority,
        message.persistent,
        message.message_id,
        message.correlation_id,
        message.group_id,
        message.group_sequence,
        message.last_in_group,
        dict(message.properties),
        message.format,
        tuple(dead),
        message.backout_count,
    )


def short(messages: list[Seen]) -> list[Seen]:
    return [(one[0][:12], len(one[0]), *one[1:]) for one in messages]


class Steps:
    """What can be done next. Each life does some things often and others hardly, so that all kinds of them meet."""

    def __init__(self, life: FullLife) -> None:
        self.life = life
        self.kinds: list[tuple[Callable[[], None], float]] = [
            (lambda: life.put(self.name(), self.unit(), sizes=life.sizes, numbers=(1, 1, 1, 2, 5)), 12),
            (lambda: life.put(self.name(), self.unit(), sizes=(5, 20, 150), numbers=(3, 8, 15)), 4),
            (lambda: life.put(self.name(), self.unit(), sizes=(12000, 30000), numbers=(1, 3)), 2),
            (lambda: life.get(self.name(), self.unit()), 12),
            (lambda: life.put(self.name(), self.unit(), sizes=(5, 20), numbers=(30, 60)), 6 if life.deep else 0),
            (lambda: life.browse(self.name()), 2),
            (life.fill_disk, 3 if life.heavy else 0.2),
            (self.begin, 4),
            (self.prepare, 4 if life.heavy else 2),
            (lambda: self.end_unit(commit=True), 0.6 if life.heavy else 3),
            (lambda: self.end_unit(commit=False), 0.6 if life.heavy else 3),
            (self.resolve, 0.4 if life.heavy else 2),
            (lambda: life.try_in_vain(self.name()), 15 if life.requeue > 0.5 else 5),
            (self.alter, 0.5 if life.heavy else 3),
            (self.define_or_delete, 0.3 if life.heavy else 1.5),
            (lambda: life.alias(life.rng.choice(ALIASES)), 1),
            (life.alter_qmgr, 1),
            (lambda: life.deliver(self.name()), 1.5),
            (self.answer, 1.5),
            (self.close_client, 0.3),
            (lambda: life.dead_letter(self.name(), self.unit()), 0.5),
            (self.clear, 0.5),
            (lambda: life.call("checkpoint", life.qm.checkpoint, life.model.copy()), 2),
            (life.pass_time, 1.5),
            (life.image, 0.7),
            (life.build_again, 0.5),
            (life.keep_log, 0.7),
            (life.remember, 6),
            (lambda: between(life), 0.3 if life.heavy else 1.5),
        ]
        often = [weight * life.rng.choice((0, 0.3, 1, 1, 3, 6)) for _, weight in self.kinds]
        often[:5] = [max(one, least) for one, least in zip(often, (3, 3, 3, 3, 6 if life.deep else 0), strict=False)]
        if life.heavy:
            often[2] *= 5
        self.weights = often

    def __call__(self) -> None:
        (kind,) = self.life.rng.choices(self.kinds, self.weights)
        kind[0]()

    def name(self) -> str:
        model = self.life.model
        aliases = [alias for alias, one in model.aliases.items() if one["target"] in model.queues]
        return self.life.rng.choice(sorted(model.queues) * 6 + aliases * 2 + [self.life.rng.choice(NAMES)])

    def active(self) -> list[Hashable]:
        units = self.life.model.units
        return [key for key in self.life.open if key in units and not units[key].prepared]

    def unit(self) -> Hashable:
        active = self.active()
        return self.life.rng.choice(active) if active and self.life.rng.random() < self.life.in_units else None

    def begin(self) -> None:
        if len(self.life.model.units) < 5:
            self.life.begin()

    def prepare(self) -> None:
        able = [key for key in self.active() if isinstance(key, qmgr.Xid)]
        if able:
            self.life.prepare(self.life.rng.choice(able))

    def end_unit(self, *, commit: bool) -> None:
        if active := self.active():
            self.life.end_unit(self.life.rng.choice(active), commit=commit)

    def resolve(self) -> None:
        if doubt := sorted(self.life.model.in_doubt(), key=repr):
            self.life.resolve(self.life.rng.choice(doubt), commit=self.life.rng.random() < 0.5)

    def alter(self) -> None:
        if queues := sorted(self.life.model.queues):
            self.life.alter(self.life.rng.choice(queues))

    def define_or_delete(self) -> None:
        name, rng = self.life.rng.choice(QUEUES), self.life.rng
        if name not in self.life.model.queues:
            self.life.define(name)
        elif len(self.life.model.queues) > 1 or rng.random() < 0.2:
            self.life.delete(name, purge=rng.random() < 0.7)

    def clear(self) -> None:
        if queues := sorted(self.life.model.queues):
            self.life.clear(self.life.rng.choice(queues))

    def answer(self) -> None:
        if self.life.held:
            self.life.answer()

    def close_client(self) -> None:
        if self.life.session is not None:
            self.life.close_client()


def between(life: FullLife) -> None:
    """End, do what can only be done then, and start again."""
    rng = life.rng
    life.end()
    if life.earlier and not life.trimmed and rng.random() < 0.7:
        life.look_back()
    if rng.random() < 0.25:
        life.migrate()
    if rng.random() < 0.6:
        life.configure()
    life.start()
    life.check()


def live(seed: int, steps: int) -> FullLife:
    """A life; it can be lived again by its seed."""
    life = FullLife(seed)
    rng = life.rng

    def recover() -> None:
        if rng.random() < 0.3:
            life.disk.no_crash()
            life.configure()
        for _ in range(rng.choice((0, 0, 0, 1, 2))):
            life.disk.crash_after(rng.randint(1, 40), rng.choice((0.0, rng.random())))
            try:
                life.restart()
            except BaseException:
                if not life.disk.dead:
                    raise
                life.crash(mixed(rng.randrange(1 << 30), atomic=life.atomic))
            else:
                life.disk.no_crash()
                return
        life.restart()

    try:
        life.create()
        crashes = rng.choice((0.0, 0.01, 0.03) if life.heavy else (0.0, 0.01, 0.03, 0.1))
        step = Steps(life)
        for _ in range(steps):
            if rng.random() < crashes:
                life.disk.crash_after(rng.randint(1, 12), rng.choice((0.0, rng.random())))
            try:
                step()
                if rng.random() < 0.3:
                    life.check()
            except BaseException:
                if not life.disk.dead:
                    raise
                life.crash(mixed(rng.randrange(1 << 30), atomic=life.atomic))
                recover()
        life.disk.no_crash()
        life.check()
        life.replay()
        life.crash(LOSE_ALL)
        recover()
        for number, xid in enumerate(sorted(life.model.in_doubt(), key=repr)):
            life.resolve(xid, commit=number % 2 == 0)
        life.check()
    except Exception as exc:
        raise AssertionError(f"seed {seed}: {exc if isinstance(exc, Violation) else repr(exc) + life.tell()}") from exc
    return life
