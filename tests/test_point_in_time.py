"""recover-to: whatever was there at any LSN or moment is there again, or what is missing for that is named.

Lives on the simulated disk note the end of the log and the model before each of their calls. Then a queue manager is
built as of such a mark, or as of anything between two of them, and is what the model says. It works on as any other
one does.
"""

import datetime
import errno
import random
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import attrs
import pytest

import qmgr
from logger import log as logs
from logger import lsn as lsns
from qmgr import ini
from qmgr.errors import AlreadyExists, Damaged, InUse, Mistake, Reason, Unavailable
from qmgr.objects import mangle
from tests.conftest import SOAK
from tests.model import Model
from tests.qmgr.world import World, bodies
from tests.sim.disk import SimCrash, SimDisk
from tests.sim.life import AUTOMATIC, DATA, LINEAR, LOG, NAME, Life, Setup, random_life
from tests.sim.loss import DATA_ONLY, KEEP_ALL, LOSE_ALL, NAMES_ONLY, mixed
from tests.sim.paging import Counted
from tests.test_crash import laps, work_on

INTO = "/then"
XID = qmgr.Xid(1, b"doubt", b"")


@attrs.frozen
class Mark:
    """A moment of a life at which no call was under way."""

    lsn: int  # where the log ended
    time: int
    model: Model
    logged: bool  # were the calls of open units of work logged? Else nobody knows which gets count as backed out


class Marked(Life):
    """A life that notes a mark before each call, and archives its log now and then."""

    def __init__(self, setup: Setup, *, seed: int = 0, archiving: bool = False) -> None:
        super().__init__(setup, seed=seed)
        self.marks: list[Mark] = []
        self.archiving = archiving
        self.rng = random.Random(seed)
        self.built = 0  # of its marks

    def mark(self) -> None:
        """Note how it stands, all of it durable."""
        log, engine = self.qm._log, self.qm._engine
        logged = self.rng.random() < 0.5
        with log.lock:
            if logged:
                engine.log_held()
                engine.count_promises()
            tail = log.buffer.tail
        log.force(tail, sync=True)
        self.clock.advance(self.rng.random() * 10)
        self.marks.append(Mark(tail, self.clock.wall, self.model.copy(), logged))
        if self.archiving and self.rng.random() < 0.04:
            self.rng.choice((self.qm.archive_log, self.qm.compress_log, self.qm.remove_log))(older_than=0)

    def check(self) -> None:
        super().check()
        self.mark()

    def _call(self, *given: Any, **named: Any) -> bool:
        self.mark()
        return super()._call(*given, **named)


class Then(Life):
    """The life of a queue manager that was built as another one was."""

    def __init__(self, origin: Life, disk: SimDisk, into: str, *models: Model) -> None:
        super().__init__(origin.setup, disk)
        self.into = into
        self.clock = origin.clock
        self.allowed = list(models)
        self.model = self.allowed[-1]
        self.crashed = self.made = True
        self.count = origin.count + 100_000
        self.story = [f"as of a moment of this: {origin.tell()}"]

    def start(self) -> None:
        self.story.append("start")
        self.qm = qmgr.start(NAME, data_path=self.into, disk=self.disk, clock=self.clock, background=False)
        self.restarts += 1

    def segments(self, queue: str) -> list[str]:
        directory = f"{self.into}/qmgrs/{NAME}/queues/{mangle(queue)}/"
        return [path for path in self.disk.files(directory) if path.endswith(".seg")]


def after(mark: Mark) -> Model:
    """What is there when a queue manager is built as of the mark: units of work in flight are backed out."""
    model = mark.model.copy()
    if mark.logged:
        model.end()
    else:
        model.crash()
    return model


def recover(life: Life, into: str = INTO, **when: int) -> qmgr.Recovered:
    return qmgr.recover_to(NAME, into, data_path=DATA, disk=life.disk, clock=life.clock, **when)


def stop(life: Life, rng: random.Random) -> None:
    """The queue manager is gone: in order, or not."""
    if rng.random() < 0.5:
        life.qm.end("immediate")
        life.model.end()
    else:
        life.disk = life.disk.crash(KEEP_ALL)


# -- any moment of any life ------------------------------------------------------------------------------------------

WIDE = attrs.evolve(LINEAR, primary_files=3, write_integrity="SingleWrite")
SETUPS = {
    "linear": LINEAR,
    "single": WIDE,
    "automatic": AUTOMATIC,
    "deep": attrs.evolve(LINEAR, buffer=2000, checkpoint_records=40),
}


class Tally:
    """What has come of the marks of many lives."""

    def __init__(self) -> None:
        self.built = self.between = self.by_time = self.doubts = self.worked_on = self.messages = 0
        self.refusals: list[str] = []


def examine(life: Marked, rng: random.Random, number: int, tally: Tally) -> None:
    """Build the queue manager as of some marks, in their order, and of LSNs between them."""
    chosen = sorted(rng.sample(range(len(life.marks) - 1), min(number, len(life.marks) - 1)))
    for place in [*chosen, len(life.marks) - 1]:
        mark = life.marks[place]
        into, models = f"/then{place}", [after(mark)]
        when = {"lsn": mark.lsn}
        kind = rng.random()
        if kind < 0.3:
            when = {"time_us": mark.time}
        elif kind < 0.6 and place + 1 < len(life.marks):
            later = life.marks[place + 1]
            when = {"lsn": rng.randint(mark.lsn, later.lsn)}
            models = [attrs.evolve(one, logged=False) for one in (mark, later)]
            models = [after(one) for one in models]
        try:
            made = recover(life, into, **when)
        except Damaged as exc:
            assert not life.built, f"{when}: an earlier moment could be built, this one not: {exc}"
            tally.refusals.append(str(exc))
            continue
        life.built += 1
        tally.built += 1
        tally.by_time += "time_us" in when
        tally.between += len(models) == 2
        if "lsn" in when:
            assert made.lsn == when["lsn"] or len(models) == 2
            assert made.lsn <= when["lsn"]
        else:
            assert made.time <= mark.time
        then = Then(life, life.disk, into, *models)
        then.restart()
        assert (made.queues, made.in_doubt) == (len(then.model.queues), len(then.model.in_doubt())), when
        assert made.messages == sum(len(then.model.find(queue, 1 << 60)) for queue in then.model.queues)
        tally.messages += made.messages
        tally.doubts += made.in_doubt
        if rng.random() < 0.3:
            tally.worked_on += 1
            then.disk = life.disk.snapshot(KEEP_ALL)
            then.qm.abandon()
            then.crash(KEEP_ALL)
            then.restart()
            then.crash(mixed(place, atomic=life.setup.atomic))
            then.restart()
            work_on(then)
            then.record_image()
            then.settle()
            then.end()
            then.start()
            then.check()
        else:
            then.qm.abandon()


@pytest.mark.parametrize("name", SETUPS)
def test_any_moment_of_any_life_comes_back(name: str, small_segments: Counted) -> None:
    """As the model says at each mark, by LSN and by time; between two marks as at one of them. Never anything else."""
    tally, setup = Tally(), SETUPS[name]
    for seed in range(1000 if SOAK else 8):
        life, rng = Marked(setup, seed=seed, archiving=seed % 2 == 1), random.Random(f"{name} {seed}")
        try:
            random_life(life, rng, 80, crashes=0.1)
            stop(life, rng)
            examine(life, rng, 14, tally)
        except Exception as exc:
            raise AssertionError(f"seed {seed} of {name}: {exc!r}\n{life.tell()}") from exc
        assert life.built, "not even the last moment could be built"
    assert tally.built > 60, vars(tally)
    assert min(tally.by_time, tally.between, tally.worked_on) > 10, vars(tally)
    assert tally.doubts > 5, vars(tally)
    assert tally.messages > 300, vars(tally)
