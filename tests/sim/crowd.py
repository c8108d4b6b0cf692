"""One seed, one life in which several threads use one queue manager at once, with its own threads beside them.

No model says beforehand what comes of that. What was asked and answered is noted, with the moments of both, and looked
through afterwards: each message is where the answers say, once; a unit of work is there wholly or not at all; who asked
behind an answer finds what that promised; nobody waits for what is there. What was not answered, since the machine was
lost, has been done or not.
"""

import contextlib
import gc
import random
from collections.abc import Callable, Iterable
from itertools import pairwise
from typing import Any

import attrs
import pytest

import qmgr
from qmgr.errors import MQError, Reason
from qmgr.objects import mangle
from recovery.uows import UowState
from tests.sim.disk import SimCrash, SimDisk
from tests.sim.life import Violation
from tests.sim.loss import mixed
from tests.sim.turns import Turns, TurnsClock

NAME = "CROWD"
DATA = "/base/data"
LOG = "/base/log"
QUEUES = ("A", "B")
FOR_EVER = 1 << 60

BUSY = {Reason.RESOURCE_PROBLEM, Reason.STORAGE_MEDIUM_FULL}
ENDING = {Reason.Q_MGR_QUIESCING, Reason.Q_MGR_STOPPING, Reason.Q_MGR_NOT_AVAILABLE}


@attrs.define(eq=False)
class Letter:
    """A message, and who has done what to it."""

    body: bytes
    queue: str
    priority: int
    persistent: bool
    correlation: int
    expires: int  # by the clock, nanoseconds; 0: never
    unit: "Work"  # that put it
    at: int  # in which order of that unit
    takers: list["Work"] = attrs.field(factory=list)
    sure: bool = False  # the call that put it was answered
    cleared: bool = False  # a call that removes all may have removed it
    seen: bool = False  # somebody has got it, or looked at it
    least: int = 0  # backouts that are counted for sure
    message_id: bytes = b""

    def __str__(self) -> str:
        return f"{self.body[:12]!r} of {self.unit.number}"


@attrs.define(eq=False)
class Work:
    """A unit of work, or a call outside of one."""

    number: int
    xid: Any = None
    puts: list[Letter] = attrs.field(factory=list)
    gets: list[Letter] = attrs.field(factory=list)
    asked: str = ""  # commit, backout: which end was asked for
    prepare: str = ""  # asked, done
    outcome: str = ""  # commit, backout: which end is sure
    asked_at: int = FOR_EVER  # steps
    ended_at: int = FOR_EVER
    real: Any = None  # the unit of work; True for one from before the start
    wild: tuple[str, int] | None = None  # a get that was not answered: how many it may have taken, of which queue

    @property
    def holds(self) -> bool:
        """Is it still there, as far as it knows?"""
        return self.real is True or (self.real is not None and self.real.state is not UowState.BACKED_OUT)

    @property
    def may_commit(self) -> bool:
        return self.outcome == "commit" or (self.outcome == "" and self.asked == "commit")


Match = Callable[[Letter], bool]


@attrs.frozen
class Answer:
    """What a get was told that does not go by groups."""

    queue: str
    began: int
    found: list[Letter]
    plain: bool  # whatever comes first
    match: Match


class Crowd:
    """A queue manager, what its users were told, and what may be found if it dies now."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(f"crowd {seed}")
        self.disk = SimDisk(seed)
        self.clock = TurnsClock()
        self.turns = Turns(seed, self.disk, self.clock)
        self.clock.turns = self.turns
        self.qm: Any = None
        self.count = 0
        self.letters: dict[bytes, Letter] = {}
        self.works: list[Work] = []
        self.doubt: dict[Any, Work] = {}
        self.answers: list[Answer] = []
        self.story: list[str] = []
        self.did: dict[str, int] = {}
        self.reordered = False  # the order of delivery was altered
        self.shut = False  # gets were inhibited for a while
        rng = self.rng
        self.linear = rng.random() < 0.5
        self.tight = rng.random() < 0.4  # much is logged in a small log, and units of work last
        self.sizes = rng.choice(((1, 20), (1, 100, 700, 4000))) if not self.tight else (4000, 12000, 30000)
        self.alters, self.clears, self.fills, self.recreates = (rng.random() < 0.25 for _ in range(4))
        self.unplugs = rng.choice((0.0, 0.01, 0.03))  # how often the machine is lost behind an answer
        self.lends = rng.random() < 0.3  # several threads use one unit of work
        self.getting: dict[str, str] = {}  # who is in a get of which queue
        self.over = dict.fromkeys(QUEUES, 0)  # messages whose time may be over, and nobody has said that they are gone
        self.blocked: dict[str, tuple[str, Match]] = {}  # who waits for ever for which message

    # -- telling

    def note(self, what: str) -> None:
        self.did[what] = self.did.get(what, 0) + 1

    def say(self, text: str) -> None:
        self.story.append(f"{self.turns.steps} {self.turns.now.name}: {text}")

    def violation(self, text: str) -> Violation:
        return Violation("\n".join([text, *self.story]))

    # -- the queue manager itself

    def create(self) -> None:
        rng = self.rng
        options: dict[str, Any] = {
            "log_type": "linear" if self.linear else "circular",
            "log_management": rng.choice(("Manual", "Automatic")) if self.linear else "Manual",
            "log_primary_files": 2 if self.tight else 3,
            "log_secondary_files": 1 if self.tight else 2,
            "log_file_pages": 64,
            "log_buffer_pages": rng.choice((18, 18, 40)),
        }
        self.say(f"create {options}, sizes {self.sizes}, often {self.turns.often}, preempt {self.turns.preempt}")
        qmgr.create(NAME, data_path=DATA, log_path=LOG, disk=self.disk, clock=self.clock, **options)
        path = f"{DATA}/qmgrs/{mangle(NAME)}/qm.ini"
        tuning = {
            "CheckPointLogRecdMax": rng.choice((3, 20, 50000)),
            "DefaultQBufferSize": rng.choice((1, 2000, 131072)),
            "DefaultPQBufferSize": rng.choice((1, 2000, 262144)),
            "ExpiryInterval": rng.choice((5, 300)),
        }
        lines = "".join(f"   {name}={value}\n" for name, value in tuning.items())
        self.disk.poke(path, self.disk.peek(path) + b"TuningParameters:\n" + lines.encode())
        self.say(f"tuning {tuning}")
        self.start()
        for name in QUEUES:
            self.qm.define_queue(name)

    def start(self) -> None:
        self.say("start")
        self.qm = qmgr.start(NAME, data_path=DATA, disk=self.disk, clock=self.clock, background=True)
        self.note("starts")

    def crash(self) -> None:
        """The machine is lost; all threads with it."""
        loss = mixed(self.rng.randrange(1 << 30))
        self.say(f"crash {loss}")
        self.disk.dead = True
        self.turns.kill()
        self.disk = self.disk.crash(loss)
        self.qm = None
        self.anew()
        self.note("crashes")

    def anew(self) -> None:
        """Another process."""
        self.turns.disk = self.disk
        self.turns.tasks = [self.turns.main]

    # -- calls

    def work(self, xid: Any = None) -> Work:
        self.count += 1
        made = Work(self.count, xid)
        self.works.append(made)
        return made

    def target(self, unit: Work | None) -> Any:
        return self.qm if unit is None else unit.real

    def call(self, text: str, real: Callable[[], Any], may: Iterable[int] = (), unit: Work | None = None) -> Any:
        """What it gives, or the error with which it was refused, which is one of these or a usual one."""
        self.say(text)
        try:
            answer = real()
        except MQError as exc:
            self.say(f"{text} -> {exc}"[:200])
            if self.disk.dead:
                raise SimCrash("and nobody hears of it") from exc
            self.note(str(int(exc.reason)))
            allowed = {*BUSY, *ENDING, *may}
            if unit is not None:
                allowed |= {Reason.BACKED_OUT, Reason.UOW_NOT_AVAILABLE}
            if self.recreates:
                allowed |= {Reason.OBJECT_DAMAGED, Reason.OBJECT_IN_USE}
            if exc.reason not in allowed:
                raise self.violation(f"{text}: refused with {exc!r}") from exc
            if unit is not None and exc.reason == Reason.BACKED_OUT and not unit.outcome:
                self.ended(unit, "backout")
                self.note("rolled back for room")
            return exc
        except SimCrash:
            raise
        if self.disk.dead:
            raise SimCrash("and nobody hears of it")
        self.say(f"{text} done")
        self.note(text.split()[0])
        return answer

    def ended(self, unit: Work, outcome: str) -> None:
        unit.outcome = outcome
        unit.ended_at = self.turns.steps

    def put(self, queue: str, unit: Work | None) -> None:
        rng = self.rng
        number = rng.choice((1, 1, 1, 2, 6, 20))
        size = rng.choice(self.sizes)
        if number * size > 100_000:
            number = 2
        options: dict[str, Any] = {
            "priority": rng.choice((0, 4, 4)),
            "persistent": rng.random() < 0.8,
        }
        seconds = 0.0
        if rng.random() < 0.05:
            seconds = options["expiry"] = rng.choice((0.001, 0.1, 5.0))
        correlation = rng.randrange(3)
        options["correlation_id"] = b"%d" % correlation
        whole = self.work() if unit is None else unit
        expires = 0 if not seconds else FOR_EVER
        made = []
        for place in range(number):
            self.count += 1
            body = (b"%d " % self.count).ljust(size, b".")
            at = 0 if self.lends else len(whole.puts) + place
            one = Letter(body, queue, options["priority"], options["persistent"], correlation, expires, whole, at)
            made.append(one)
        if unit is None:
            whole.puts += made
            whole.asked, whole.asked_at = "commit", self.turns.steps
        for one in made:
            self.letters[one.body.split()[0]] = one
        numbers = self.count - number + 1, self.count
        text = f"put {queue} {numbers} size={size} {options} unit={unit and unit.number}"
        target = self.target(unit)

        def real() -> Any:
            if number == 1:
                return [target.put(queue, made[0].body, **options)]
            return target.put_many(queue, [one.body for one in made], **options)

        may = {Reason.PUT_INHIBITED, Reason.Q_FULL} if self.alters else set()
        answer = self.call(text, real, may, unit)
        if isinstance(answer, MQError):
            if unit is None:
                self.ended(whole, "backout")
            for one in made:
                del self.letters[one.body.split()[0]]
            return
        if unit is None:
            self.ended(whole, "commit")
        else:
            unit.puts += made
        for one, message in zip(made, answer, strict=True):
            if seconds:
                one.expires = self.clock.elapsed + int(seconds * 1e9)  # or before
            one.message_id = message.message_id
            one.sure = True

    def get(self, queue: str, unit: Work | None, wait: float | None, *, lent: bool) -> None:
        rng = self.rng
        limit = rng.choice((1, 1, 1, 3, 10))
        options, match = self.selection(queue)
        if "message_id" in options and wait is None:
            wait = 0.0  # it may be gone
        if not options and unit is not None and rng.random() < 0.1:
            options["logical_order"] = True
        whole = self.work() if unit is None else unit
        began, now = self.turns.steps, self.clock.elapsed
        if unit is None:
            whole.asked, whole.asked_at = "commit", began
        takes = self.work() if lent else whole  # of which nobody knows what it has got, where another one commits it
        if unit is None or lent:
            takes.wild = queue, limit
        target = self.target(unit)
        text = f"get {queue} limit={limit} wait={wait} {options} unit={unit and unit.number} work={whole.number}"

        def real() -> Any:
            if limit == 1 and rng.random() < 0.7:
                try:
                    return [target.get(queue, wait=wait, **options)]
                except qmgr.NoMessageAvailable:
                    return []
            return target.get_many(queue, limit, wait=wait, **options)

        self.getting[self.turns.now.name] = queue
        if wait is None:
            self.blocked[self.turns.now.name] = queue, match
        may = {Reason.GET_INHIBITED} if self.alters else set()
        answer = self.call(text, real, may, unit)
        self.blocked.pop(self.turns.now.name, None)
        if lent:
            takes.outcome, takes.asked = "backout", "backout"
        if isinstance(answer, MQError):
            del self.getting[self.turns.now.name]
            takes.wild = None
            if unit is None:
                self.ended(whole, "backout")
            return
        found = [self.found(message) for message in answer]
        if len(found) > limit:
            raise self.violation(f"{text}: {len(found)} messages")
        for one, message in zip(found, answer, strict=True):
            if 0 < one.expires <= now:
                raise self.violation(f"{text} got {one}, which was over")
            if one.queue != queue or not match(one):
                raise self.violation(f"{text} got {one}")
            if whole.outcome != "backout" and whole.asked != "backout" and (unit is None or whole.holds):
                self.check_got(text, one, message.backout_count)  # else another may have it by now
            one.takers.append(whole)
            one.seen = True
        self.say(f"got {[str(one) for one in found]} work={whole.number}")
        whole.gets += found
        del self.getting[self.turns.now.name]
        if "logical_order" not in options:
            self.answers.append(Answer(queue, began, found, not options, match))
        takes.wild = None
        if unit is None:
            self.ended(whole, "commit")

    def selection(self, queue: str) -> tuple[dict[str, Any], Match]:
        """What a get looks for."""
        rng = self.rng
        kind = rng.random()
        if kind < 0.2:
            wanted = rng.randrange(3)
            return {"correlation_id": (b"%d" % wanted).ljust(24, b"\0")}, lambda one: one.correlation == wanted
        there = [one for one in self.letters.values() if one.message_id and one.queue == queue and not one.takers]
        if kind < 0.3 and there:
            message_id = rng.choice(there).message_id
            return {"message_id": message_id}, lambda one: one.message_id == message_id
        return {}, lambda one: True

    def check_got(self, text: str, one: Letter, backouts: int) -> None:
        """May somebody have got this now?"""
        for taker in one.takers:
            holds = taker.holds and not taker.outcome and not taker.asked
            if holds or taker.outcome == "commit" or (taker.outcome != "backout" and not taker.real):
                raise self.violation(f"{text} got {one}, which {taker.number} has")
        if one.unit.outcome == "backout" or not (one.unit.asked or one.unit.prepare):
            raise self.violation(f"{text} got {one}, which is not committed")
        most = sum(taker.outcome != "commit" for taker in one.takers)
        most += (
            sum(queue == one.queue for queue in self.getting.values()) - 1
        )  # theirs may have been backed out for room
        if not one.least <= backouts <= most:
            raise self.violation(f"{text} got {one} with {backouts} backouts, not {one.least} to {most}")

    def found(self, message: Any) -> Letter:
        one = self.letters.get(message.body.split()[0])
        if one is None or one.body != message.body:
            raise self.violation(f"{message} was never put so")
        if (one.priority, one.persistent) != (message.priority, message.persistent):
            raise self.violation(f"{message} is not {one}")
        return one

    def browse(self, queue: str) -> None:
        began = self.turns.steps
        may = {Reason.GET_INHIBITED} if self.alters else set()
        answer = self.call(f"browse {queue}", lambda: list(self.qm.browse(queue)), may)
        if isinstance(answer, MQError):
            return
        found = [self.found(message) for message in answer]
        if len(set(map(id, found))) < len(found):
            raise self.violation(f"a browse of {queue} showed one message twice: {[one.body[:12] for one in found]}")
        for one in found:
            one.seen = True
            if one.queue != queue or (not one.unit.asked and not one.unit.prepare) or one.unit.outcome == "backout":
                raise self.violation(f"a browse of {queue} showed {one}")
            if any(taker.outcome == "commit" and taker.ended_at < began for taker in one.takers):
                raise self.violation(f"a browse of {queue} showed {one}, which is gone")
        if not self.reordered:
            self.in_order(found, f"a browse of {queue}")
        there = {id(one) for one in found}
        for one in self.letters.values():
            if self.surely_there(one, queue, began) and id(one) not in there:
                raise self.violation(f"a browse of {queue} passed over {one}")

    def surely_there(self, one: Letter, queue: str, began: int) -> bool:
        """It was when that began, and is still."""
        if one.queue != queue or one.takers or one.cleared or one.expires or queue in self.getting.values():
            return False
        return one.sure and one.unit.outcome == "commit" and one.unit.ended_at < began

    def in_order(self, found: list[Letter], text: str) -> None:
        for before, after in pairwise(found):
            if self.goes_first(after, before):
                raise self.violation(f"{text}: {before} before {after}")

    def goes_first(self, one: Letter, other: Letter) -> bool:
        """Is it surely got first?"""
        return one.priority > other.priority or (one.priority == other.priority and self.is_before(one, other))

    def is_before(self, one: Letter, other: Letter) -> bool:
        """Was it surely put first?"""
        if one.unit is other.unit:
            return one.persistent == other.persistent and one.at < other.at
        return one.unit.ended_at < other.unit.asked_at

    # -- units of work

    def begin(self) -> Work | None:
        xid = None
        if self.rng.random() < 0.5:
            self.count += 1
            name = b"%d" % self.count  # now: another one may count on while `qmgr` looks for its Xid
            xid = qmgr.Xid(1, name, b"b")
        unit = self.work(xid)
        real = self.call(f"begin {unit.number}", lambda: self.qm.begin(xid))
        if isinstance(real, MQError):
            unit.outcome = "backout"
            return None
        unit.real = real
        return unit

    def end_unit(self, unit: Work, *, commit: bool) -> None:
        asked = "commit" if commit else "backout"
        unit.asked = asked
        unit.asked_at = self.turns.steps
        answer = self.call(f"{asked} {unit.number}", unit.real.commit if commit else unit.real.backout, unit=unit)
        if isinstance(answer, MQError):
            if not unit.outcome:
                unit.asked = ""
            return
        self.ended(unit, asked)
        if not commit:
            for one in unit.gets:
                one.least += one.persistent

    def prepare(self, unit: Work) -> None:
        unit.prepare = "asked"
        answer = self.call(f"prepare {unit.number}", unit.real.prepare, unit=unit)
        if isinstance(answer, MQError):
            unit.prepare = "" if unit.outcome else unit.prepare
            return
        unit.prepare = "done"
        self.doubt[unit.xid] = unit

    def resolve(self) -> None:
        if not self.doubt:
            return
        xid = self.rng.choice(list(self.doubt))
        unit = self.doubt.pop(xid, None)
        if unit is None:
            return
        commit = self.rng.random() < 0.5
        unit.asked = "commit" if commit else "backout"
        unit.asked_at = self.turns.steps
        answer = self.call(f"resolve {unit.number} {commit}", lambda: self.qm.resolve(xid, commit=commit))
        if isinstance(answer, MQError):
            unit.asked = ""
            self.doubt[xid] = unit
            return
        self.ended(unit, unit.asked)
        if not commit:
            for one in unit.gets:
                one.least += one.persistent

    # -- what operators do

    def operate(self) -> None:
        rng, qm = self.rng, self.qm
        kind = rng.random()
        queue = rng.choice(QUEUES)
        if kind < 0.35:
            self.call("checkpoint", qm.checkpoint)
        elif kind < 0.5 and self.linear:
            self.call("image", lambda: qm.record_image(rng.choice((None, queue))))
        elif kind < 0.6 and self.linear:
            how = rng.choice((qm.advance_log, qm.archive_log, qm.compress_log, qm.reduce_log))
            may = {Reason.FUNCTION_NOT_SUPPORTED, Reason.OPTIONS_ERROR, Reason.OBJECT_IN_USE, Reason.FILE_SYSTEM_ERROR}
            self.call(f"keep log {how.__name__}", how, may)
        elif kind < 0.7 and self.recreates and self.linear:
            self.recreate(queue)
        elif kind < 0.8 and self.alters:
            self.alter(queue)
        elif kind < 0.83 and self.clears:
            self.clear(queue)
        elif kind < 0.88 and self.fills:
            full = self.disk.capacity is not None
            self.disk.capacity = None if full else self.disk.used + rng.choice((0, 9000, 300_000))
            self.say(f"capacity {self.disk.capacity}, used {self.disk.used}")
        elif kind < 0.92:
            self.clock.advance(rng.choice((0.2, 1.5, 11)))
        elif kind < 0.96:
            self.call("look around", qm.look_around)
        else:
            self.call("status", lambda: (qm.status(), qm.queues(), qm.transactions()))

    def alter(self, queue: str) -> None:
        rng = self.rng
        drawn: dict[str, tuple[Any, ...]] = {
            "max_depth": (0, 5, 50, 999_999_999),
            "put_enabled": (True, False),
            "get_enabled": (True, False),
            "delivery_sequence": ("FIFO", "PRIORITY"),
            "buffer_size": (None, 1, 3000),
        }
        name = rng.choice(sorted(drawn))
        given = {name: rng.choice(drawn[name])}
        self.reordered |= name == "delivery_sequence"
        self.shut |= name == "get_enabled"
        self.call(f"alter {queue} {given}", lambda: self.qm.alter_queue(queue, **given))

    def open_queues(self) -> None:
        """The disk has room, and all queues take puts and gets."""
        self.disk.capacity = None
        for queue in QUEUES:
            self.qm.alter_queue(queue, put_enabled=True, get_enabled=True, max_depth=999_999_999)

    def clear(self, queue: str) -> None:
        """Whatever is there by its end may be gone; the end may be a crash."""
        for one in self.letters.values():
            one.cleared |= one.queue == queue
        self.getting[self.turns.now.name] = queue
        try:
            self.call(f"clear {queue}", lambda: self.qm.clear_queue(queue), {Reason.OBJECT_IN_USE})
            del self.getting[self.turns.now.name]
        finally:
            for one in self.letters.values():
                one.cleared |= one.queue == queue and one.unit.may_commit

    def recreate(self, queue: str) -> None:
        """What is not persistent is gone by it."""
        for one in self.letters.values():
            one.cleared |= one.queue == queue and not one.persistent
        self.getting[self.turns.now.name] = queue
        self.call(f"recreate {queue}", lambda: self.qm.recreate(queue))
        del self.getting[self.turns.now.name]
        for one in self.letters.values():
            one.cleared |= one.queue == queue and not one.persistent and (one.unit.may_commit or not one.unit.outcome)

    # -- the threads

    def user(self, calls: int, patient: bool) -> None:
        rng = self.rng
        mine: list[Work] = []
        for _ in range(calls):
            if rng.random() < self.unplugs:
                self.disk.dead = True
                raise SimCrash("behind an answer")
            mine = [unit for unit in mine if not unit.outcome and not unit.prepare]
            kind = rng.random()
            queue = rng.choice(QUEUES)
            unit = rng.choice(mine) if mine and rng.random() < (0.8 if self.tight else 0.6) else None
            lent = False
            if self.lends and rng.random() < 0.2:
                others = [
                    one for one in self.works[-60:] if one.holds and not (one.outcome or one.asked or one.prepare)
                ]
                unit = rng.choice([unit, *others])
                lent = unit is not None and unit not in mine
            if kind < 0.35:
                self.put(queue, unit)
            elif kind < 0.6:
                wait: float | None = 0.0
                if rng.random() < (0.6 if patient else 0.2):
                    wait = None if patient and unit is None else rng.choice((0.001, 0.5))
                self.get(queue, unit, wait, lent=lent)
            elif kind < 0.7 and len(mine) < 3:
                begun = self.begin()
                mine += [begun] if begun is not None else []
            elif kind < (0.76 if self.tight else 0.84) and mine:
                self.end_unit(rng.choice(mine), commit=rng.random() < 0.6)
            elif kind < 0.88 and any(unit.xid for unit in mine):
                self.prepare(rng.choice([unit for unit in mine if unit.xid]))
            elif kind < 0.91:
                self.resolve()
            elif kind < 0.94:
                self.browse(queue)
            else:
                self.operate()

    def together(self, count: int, calls: int) -> bool:
        """Let so many threads make so many calls each; False when the machine is lost meanwhile."""
        patient = self.rng.random() < 0.4
        for number in range(count):
            self.turns.add(lambda: self.user(calls, patient), f"user{number}")
        users = [task for task in self.turns.tasks if task.name.startswith("user") and not task.over]
        while not self.disk.dead:
            self.turns.wait(lambda: self.disk.dead or all(task.over or task.name in self.blocked for task in users))
            told = len(self.story)
            self.turns.wait(lambda: self.disk.dead, 3.0)  # long enough for whoever was woken
            if len(self.story) > told:
                continue
            if all(task.over for task in users):
                break
            if not self.disk.dead:
                self.check_waiting()
                self.wake(*next(iter(self.blocked.values())))
        if self.disk.dead:
            self.turns.kill()
        for task in users:
            if task.error is not None:
                raise task.error
        self.turns.tasks = [task for task in self.turns.tasks if not task.over]
        return not self.disk.dead

    def wake(self, queue: str, match: Match) -> None:
        """Put what somebody waits for."""
        self.note("let go of")
        self.open_queues()
        for correlation in range(3):
            self.count += 1
            one = Letter(b"%d " % self.count, queue, 4, False, correlation, 0, self.work(), 0)
            if match(one):
                self.letters[one.body.split()[0]] = one
                one.unit.puts.append(one)
                one.unit.asked, one.unit.asked_at = "commit", self.turns.steps
                self.say(f"put {queue} {one} for who waits")
                self.qm.put(queue, one.body, priority=4, persistent=False, correlation_id=b"%d" % correlation)
                self.ended(one.unit, "commit")
                one.sure = True
                return

    def check_waiting(self) -> None:
        """Nobody waits for what is there."""
        if self.shut:
            return
        for name, (queue, match) in self.blocked.items():
            for one in self.untouched(queue):
                if match(one) and not one.cleared:
                    raise self.violation(f"{name} waits for what is there: {one}")

    def untouched(self, queue: str) -> list[Letter]:
        """What is there, and nobody has ever had."""
        there = [one for one in self.letters.values() if one.queue == queue and one.unit.outcome == "commit"]
        return [one for one in there if one.sure and not one.takers and not one.expires]

    # -- looking

    def check_answers(self) -> None:
        """Who got something, or nothing, would have got what was there before him."""
        if self.shut or self.alters or self.clears or self.recreates:
            self.answers.clear()
            return
        for answer in self.answers:
            for one in self.untouched(answer.queue):
                if one.unit.ended_at >= answer.began or not answer.match(one):
                    continue
                text = f"a get of {answer.queue} at {answer.began}"
                if not answer.found:
                    raise self.violation(f"{text} found nothing, and {one} was there")
                if answer.plain and any(self.goes_first(one, got) for got in answer.found):
                    raise self.violation(f"{text} took {answer.found}, and {one} comes first")
        self.answers.clear()

    def check_quiet(self) -> None:
        """Nobody is in a call: what is counted is what is there."""
        self.check_answers()
        self.open_queues()
        engine = self.qm._engine
        with engine.lock:
            promised = [unit.promise for unit in engine.state.uows]
            if engine.log.space.promised != sum(promised):
                raise self.violation(f"{engine.log.space.promised} bytes are promised, not {promised}")
            for unit in engine.state.uows:
                needed = engine.promise_of(unit) + unit.ahead
                if unit.state is UowState.ACTIVE and (unit.held_back or unit.first_lsn) and unit.promise != needed:
                    raise self.violation(f"{unit.promise} bytes are promised to {unit.number}, not {needed}")
        for unit in self.works:
            if unit.real is not None and not unit.outcome and unit.real.state is UowState.BACKED_OUT:
                self.say(f"({unit.number} was backed out for room)")
                self.ended(unit, "backout")
        for queue in QUEUES:
            found = {id(one): message for one, message in self.look(queue)}
            letters = [one for one in self.letters.values() if one.queue == queue]
            for one in letters:
                gone = any(taker.outcome in ("", "commit") for taker in one.takers)
                if self.is_missing(one, found, there=one.unit.outcome == "commit" and not gone):
                    raise self.violation(f"{queue} has lost {one}")
            info = self.qm.queue(queue)
            open_units = [unit for unit in self.works if not unit.outcome and unit.real is not None]
            lost = [one for unit in open_units for one in unit.gets if one.cleared and not one.persistent]
            uncommitted = sum(one.queue == queue for unit in open_units for one in [*unit.puts, *unit.gets])
            if info.uncommitted != uncommitted and not lost:
                raise self.violation(f"{queue} has {info.uncommitted} uncommitted, not {uncommitted}")
            waiting = sum(one.queue == queue for unit in open_units for one in unit.puts)
            over = self.over[queue] + sum(one.expires > 0 for one in letters)
            if not 0 <= info.depth - len(found) - waiting <= over:
                raise self.violation(f"{queue} has a depth of {info.depth}, {len(found)} are there, {waiting} put")

    def is_missing(self, one: Letter, found: dict[int, Any], *, there: bool) -> bool:
        """It should be `there`, and is not. What is found has to be, and as often backed out as it says."""
        if sum(taker.outcome == "commit" for taker in one.takers) > 1:
            raise self.violation(f"{one} was got more than once")
        message = found.get(id(one))
        if message is None:
            return there and one.sure and not one.expires and not one.cleared
        if not there:
            raise self.violation(f"{one.queue} has {one}, which {[taker.number for taker in one.takers]} took")
        most = sum(taker.outcome == "backout" for taker in one.takers)
        most += sum(queue == one.queue for queue in self.getting.values())  # whose unit of work was lost with it
        if not one.least <= message.backout_count <= most:
            raise self.violation(f"{one} was backed out {message.backout_count} times, not {one.least} to {most}")
        return False

    def look(self, queue: str) -> list[tuple[Letter, Any]]:
        messages = list(self.qm.browse(queue))
        found = [self.found(message) for message in messages]
        if len(set(map(id, found))) < len(found):
            raise self.violation(f"{queue} has a message twice")
        for one in found:
            if one.queue != queue:
                raise self.violation(f"{queue} has {one} of {one.queue}")
        if not self.reordered:
            self.in_order(found, queue)
        return list(zip(found, messages, strict=True))

    def check_after(self) -> None:
        """After a restart: whatever was answered is so, whatever was not is so or not, wholly."""
        doubt = set(self.qm.in_doubt())
        for unit in self.works:
            if unit.xid is None or unit.real is None:
                continue
            there = unit.xid in doubt
            if unit.prepare == "done" and not unit.outcome and not unit.asked and not there:
                raise self.violation(f"{unit.number} was prepared and is not in doubt")
            if there and (unit.outcome or not unit.prepare):
                raise self.violation(f"{unit.number} is in doubt: {unit.prepare}, {unit.outcome}")
            if there:
                unit.prepare, unit.asked = "done", ""
                self.doubt[unit.xid] = unit
            doubt.discard(unit.xid)
        if doubt:
            raise self.violation(f"nobody knows of {doubt}")
        self.doubt = {xid: unit for xid, unit in self.doubt.items() if xid in set(self.qm.in_doubt())}
        found: dict[int, Any] = {}
        self.open_queues()
        for queue in QUEUES:
            found.update((id(one), message) for one, message in self.look(queue))
        kept = {id(unit) for unit in self.doubt.values()}
        for unit in self.works:
            if not unit.outcome and id(unit) not in kept:
                self.settle(unit, found)
        for queue in QUEUES:
            wild = sum(work.wild[1] for work in self.works if work.wild is not None and work.wild[0] == queue)
            for one in self.letters.values():
                if one.queue != queue:
                    continue
                gone = any(taker.outcome == "commit" or id(taker) in kept for taker in one.takers)
                there = one.unit.outcome == "commit" and not gone and one.persistent
                wild -= self.is_missing(one, found, there=there)
                if wild < 0:
                    raise self.violation(f"{queue} has lost {one}")
        self.forget(found, kept)

    def settle(self, unit: Work, found: dict[int, Any]) -> None:
        """An end that was not answered, or none: what is there tells."""
        votes: dict[str, str] = {}
        sure_wild = {work.wild[0] for work in self.works if work.wild is not None}
        for one in unit.puts:
            if not one.persistent:
                continue
            if id(one) in found or one.takers:
                votes["commit"] = f"put {one} is there"
            elif not one.expires and not one.cleared and one.queue not in sure_wild:
                votes["backout"] = f"put {one} is not there"
        for one in unit.gets:
            if not one.persistent:
                continue
            others = [taker for taker in one.takers if taker is not unit and taker.outcome != "backout"]
            if id(one) in found:
                votes["backout"] = f"got {one} is there"
            elif not one.expires and not one.cleared and not others and one.queue not in sure_wild:
                votes["commit"] = f"got {one} is gone"
        if len(votes) == 2:
            raise self.violation(f"half of {unit.number} is there: {votes}")
        outcome = next(iter(votes), "backout")
        if outcome == "backout" and votes and any(one.seen for one in unit.puts if one.persistent):
            raise self.violation(f"somebody has seen what {unit.number} put, and it is gone")
        if not votes and unit.asked == "commit":  # somebody else may have taken all that would tell
            for one in unit.gets:
                one.cleared = True
        if outcome == "commit" and unit.asked != "commit":
            raise self.violation(f"{unit.number} is committed, and nobody asked for that: {votes}")
        unit.outcome = outcome

    def forget(self, found: dict[int, Any], kept: set[int]) -> None:
        """What is over is over: from here on what was found, and what is in doubt."""
        units = [unit for unit in self.works if id(unit) in kept]
        letters = [one for one in self.letters.values() if id(one) in found]
        for unit in units:
            unit.real = unit.real if unit.real is not None else True
            unit.puts = [one for one in unit.puts if one.persistent]
            unit.gets = [one for one in unit.gets if one.persistent]
            letters += unit.puts + unit.gets
        for one in self.letters.values():
            self.over[one.queue] += one.expires > 0
        self.letters = {one.body.split()[0]: one for one in letters}
        for one in letters:
            one.expires = FOR_EVER if one.expires else 0
            counted = found[id(one)].backout_count if id(one) in found else None
            if counted is not None:
                one.least = counted
                past = Work(0)
                past.outcome = "backout"
                one.takers = [past] * counted
                one.cleared = False
            if id(one.unit) not in kept:
                old = Work(one.unit.number)
                old.outcome, old.asked = "commit", "commit"
                old.asked_at, old.ended_at = one.unit.asked_at, one.unit.ended_at
                one.unit = one.unit if one.unit.ended_at < FOR_EVER else old
                if one.unit.ended_at == FOR_EVER:
                    one.unit.ended_at = self.turns.steps
        self.works = units + [one.unit for one in letters if id(one.unit) not in kept]
        self.answers.clear()
        self.getting.clear()
        self.shut = False


def live(seed: int, patch: pytest.MonkeyPatch, rounds: int = 4, calls: int = 30) -> Crowd:
    """A life; it can be lived again by its seed."""
    life = Crowd(seed)
    rng = life.rng
    collects = gc.isenabled()
    with patch.context() as inner:
        life.turns.install(inner)
        gc.disable()  # when it is due depends on earlier lives, and the queue manager's own note of it may hand over
        try:
            life.create()
            for _ in range(rounds):
                if rng.random() < 0.6:
                    life.disk.crash_after(rng.randint(1, 400), rng.choice((0.0, rng.random())))
                try:
                    if life.together(rng.choice((2, 3, 4)), calls):
                        life.disk.no_crash()
                        life.check_quiet()
                        if rng.random() < 0.3:
                            life.say("end")
                            life.qm.end("immediate")
                            life.anew()
                            life.note("ends")
                        elif rng.random() < 0.5:
                            life.crash()
                        else:
                            continue
                except SimCrash:
                    if not life.disk.dead:
                        raise
                if life.disk.dead:
                    life.crash()
                life.blocked.clear()
                life.disk.capacity = None
                life.start()
                life.check_after()
            life.crash()
            life.start()
            life.check_after()
            while life.doubt:
                life.resolve()
            life.check_quiet()
            life.qm.end("immediate")
        except Exception as exc:
            text = exc if isinstance(exc, Violation) else repr(exc) + "\n" + "\n".join(life.story[-60:])
            raise AssertionError(f"seed {seed}: {text}") from exc
        finally:
            with contextlib.suppress(BaseException):
                life.disk.dead = True
                life.turns.kill()
            if collects:
                gc.enable()
    return life
