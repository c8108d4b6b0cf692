"""recover-to: whatever was there at any LSN or moment is there again, or what is missing for that is named.

Lives on the simulated disk note the end of the log and the model before each of their calls. Then a queue manager is
built as of such a mark, or as of anything between two of them, and is what the model says. It works on as any other
one does.
"""

import contextlib
import errno
import itertools
import random
from pathlib import Path
from typing import Any

import attrs
import pytest

import qmgr
from logger import at_rest
from logger import lsn as lsns
from logger.extent import file_name, linear_number
from logger.whole_files import make_dirs, replace_file
from qmgr import ini, locations, mqsini, repairing
from qmgr.errors import AlreadyExists, Damaged, InUse, Mistake, Reason, Unavailable
from qmgr.migration import migrate_log
from qmgr.objects import mangle
from qmgr.ownership import own
from recovery import checkpoint
from recovery.diagnosis import Cure
from tests.conftest import SOAK
from tests.model import Model
from tests.qmgr.world import World, bodies
from tests.sim.disk import SimDisk
from tests.sim.life import AUTOMATIC, DATA, LINEAR, LOG, NAME, Life, Setup, random_life
from tests.sim.loss import ALL_WRITTEN, DATA_ONLY, KEEP_ALL, LOSE_ALL, NAMES_ONLY, mixed
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
        log.sync(tail)
        self.clock.advance(self.rng.random() * 10)
        self.marks.append(Mark(tail, self.clock.wall, self.model.copy(), logged))
        if self.archiving and self.rng.random() < 0.04:
            calls = [self.qm.compress_log, self.qm.remove_log]
            if self.setup.log_management != "Automatic":
                calls.append(self.qm.archive_log)
            call = self.rng.choice(calls)
            call(older_than=0)
            self.trimmed |= call == self.qm.remove_log

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
        self.allowed = list(models) or [Model()]
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


def doubt(life: Life, rng: random.Random) -> None:
    """A unit of work is prepared, other calls are made, and it is resolved."""
    life.define("DOUBT")
    life.put("DOUBT", number=4, priority=rng.randrange(3), size=rng.choice((10, 9000)))
    unit = life.begin(XID)
    life.get("DOUBT", unit=unit, limit=2)
    life.put("DOUBT", unit=unit, priority=5)
    life.prepare(unit)
    life.put("DOUBT")
    if rng.random() < 0.5:
        life.record_image()
    life.get("DOUBT")
    life.crash(LOSE_ALL)
    life.restart()
    life.resolve(XID, commit=rng.random() < 0.5)
    life.get("DOUBT", limit=rng.choice((1, 100)))


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
    last = len(life.marks) - 1
    chosen = rng.sample(range(last), min(number, last))
    doubtful = [place for place in range(last) if life.marks[place].model.in_doubt()]
    chosen += rng.sample(doubtful, min(2, len(doubtful)))
    for place in sorted({*chosen, last}):
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
    for seed in range(1000 if SOAK else 5 if name == "automatic" else 3):
        life, rng = Marked(setup, seed=seed, archiving=seed % 2 == 1), random.Random(f"{name} {seed}")
        before = len(tally.refusals)
        try:
            random_life(life, rng, 80, crashes=0.1)
            doubt(life, rng)
            stop(life, rng)
            examine(life, rng, 14, tally)
        except Exception as exc:
            raise AssertionError(f"seed {seed} of {name}: {exc!r}\n{life.tell()}") from exc
        refused = tally.refusals[before:]
        assert not refused or life.trimmed or name == "automatic", f"seed {seed} of {name}: {refused}"
    assert tally.refusals or name != "automatic"
    assert all("begins at <0:0:" in text and ".LOG and older ones are missing" in text for text in tally.refusals)
    assert tally.built > 40, vars(tally)
    assert min(tally.by_time, tally.between, tally.worked_on) > 6, vars(tally)
    assert tally.doubts > 3, vars(tally)
    assert tally.messages > 200, vars(tally)


# -- any LSN of one life ---------------------------------------------------------------------------------------------


def story(life: Life) -> None:
    """Every kind of record, records over several pages, and padding at the end of an extent."""
    life.define("B")
    life.put("A", number=3, priority=4)
    life.put("B", size=9000)
    unit = life.begin()
    life.get("A", unit=unit)
    life.put("B", unit=unit, size=30)
    life.backout(unit)
    life.record_image("A")
    doubt = life.begin(XID)
    life.get("A", unit=doubt)
    life.put("B", unit=doubt, number=2, priority=1)
    life.prepare(doubt)
    life.alter("B", "altered")
    life.delete("C")
    life.define("C", "again")
    life.put("C", size=13_000)
    open_one = life.begin()
    life.put("C", unit=open_one, size=40)
    life.get("C", unit=open_one)
    life.checkpoint()
    life.record_image()
    life.commit(open_one)
    life.resolve(XID, commit=True)
    for _ in range(14):
        life.put("B", size=17_000)
        life.get("B")
    life.get("B", limit=100)
    to_the_edge(life)
    life.put("C", priority=9)


def to_the_edge(life: Life) -> None:
    """Leave so little of an extent that the next record begins in another one."""
    log, extent = life.qm._log, life.setup.file_pages * 4096
    while -log.buffer.tail % extent > 3000:  # in small steps, for which no page is filled up
        before = log.buffer.tail
        life.put("B", size=1000)
        around = log.buffer.tail - before - 1000
    life.put("B", size=-log.buffer.tail % extent - around - 100)
    assert 80 < -log.buffer.tail % extent < 120


def told() -> Marked:
    life = Marked(LINEAR)
    life.create()
    life.start()
    life.define("A")
    life.define("C", "first")
    story(life)
    life.mark()
    life.qm.end("immediate")
    return life


def records(life: Life) -> list[tuple[int, int]]:
    """Where each record of the log begins and ends."""
    config = ini.parse(life.disk.peek(f"{DATA}/qmgrs/{NAME}/qm.ini"), "qm.ini").log
    _, reader, start, _ = at_rest.read_with_history(life.disk, config)
    found = [(raw.lsn, raw.end) for raw in reader.records(start)]
    reader.close()
    return found


def seen(life: Life, into: str) -> tuple[Any, list[Any]]:
    then = Then(life, life.disk, into)
    then.start()
    found = then.observe(), sorted(map(str, then.qm.in_doubt()))
    then.qm.abandon()
    return found


def test_every_lsn_stands_for_the_state_before_the_record_that_it_lies_in() -> None:
    """At the border of two records, in the middle of one, in the padding of an extent, on no multiple of 8."""
    life = told()
    marks = {mark.lsn: mark for mark in life.marks}
    placed = records(life)
    assert any(end - start > 3 * 4096 for start, end in placed)
    assert any(later != end for (_, end), (later, _) in itertools.pairwise(placed)), "no padding"
    rng = random.Random(1)
    at_marks = 0
    for number, (start, end) in enumerate(placed):
        later = placed[number + 1][0] if number + 1 < len(placed) else end
        if not SOAK and number % 17 and later == end and end - start < 12_000:
            continue
        if not number:
            continue  # there was nothing before it
        made = recover(life, f"/at{number}", lsn=start)
        expected = seen(life, f"/at{number}")
        assert made.lsn == placed[number - 1][1]
        inside = {start + 1, start + 8, end - 1, rng.randint(start, end - 1), min(end - 1, start + 4097)}
        for at in inside if SOAK else rng.sample(sorted(inside), 2 if end - start > 4096 else 1):
            assert recover(life, f"/in{number}.{at}", lsn=at).lsn == made.lsn
            assert seen(life, f"/in{number}.{at}") == expected, (start, at, end)
        for at in {end, later, (end + later) // 2} if later > end else {end}:
            assert recover(life, f"/behind{at}", lsn=at).lsn == end
            then = seen(life, f"/behind{at}")
            if at in marks:
                model = after(marks[at])
                assert model.agrees(then[0], model.in_doubt()), (at, then)
                assert then[1] == sorted(map(str, model.in_doubt()))
                at_marks += 1
    assert at_marks > 10


def test_a_moment_stands_for_the_state_behind_the_last_record_that_is_not_later() -> None:
    """To the microsecond."""
    life = told()
    config = ini.parse(life.disk.peek(f"{DATA}/qmgrs/{NAME}/qm.ini"), "qm.ini").log
    _, reader, start, _ = at_rest.read_with_history(life.disk, config)
    times = [(raw.time, raw.end) for raw in reader.records(start)]
    reader.close()
    for number, (time, _) in enumerate(times[::9]):
        for moment in (time - 1, time, time + 1):
            ends = [(at, end) for at, end in times if at <= moment]
            if not ends:
                continue
            made = recover(life, f"/time{number}.{moment}", time_us=moment)
            assert (made.time, made.lsn) == ends[-1]
    made = recover(life, "/late", time_us=times[-1][0] + 10**12)
    assert made.lsn == times[-1][1]
    assert seen(life, "/late")[1] == []


# -- refusals --------------------------------------------------------------------------------------------------------


def test_an_mqs_ini_that_can_not_be_changed_is_told_before_anything_is_made() -> None:
    """The queue manager was there by then, and nobody listed it."""
    life = told()
    make_dirs(life.disk, INTO)
    life.disk.poke(f"{INTO}/mqs.ini", b"QueueManager:\nNonsense\n")
    before = untouched(life.disk)
    with pytest.raises(qmgr.IniError, match=f"{INTO}/mqs.ini, line 2"):
        recover(life, lsn=life.marks[-1].lsn)
    assert untouched(life.disk) == before


def untouched(disk: SimDisk) -> dict[str, bytes]:
    """All files of the original, but for the locks."""
    return {
        path: disk.peek(path) for top in (DATA, LOG) for path in disk.files(top) if not path.endswith(("lock", ".lck"))
    }


def test_what_can_not_be_is_refused_with_a_sentence() -> None:
    life = told()
    end = records(life)[-1][1]
    before = untouched(life.disk)

    def refused(error: type[qmgr.MQError], says: str, into: Any = "/no", name: str = NAME, **when: Any) -> None:
        with pytest.raises(error) as caught:
            qmgr.recover_to(name, into, data_path=DATA, disk=life.disk, clock=life.clock, **when)
        assert says in str(caught.value)
        assert not life.disk.exists(f"/no/qmgrs/{NAME}/qm.ini")

    refused(Mistake, "an LSN or a time, one of the two")
    refused(Mistake, "into is the path of a directory, not None", into=None, lsn=end)
    refused(Mistake, "an LSN or a time, one of the two", lsn=end, time_us=1)
    refused(Mistake, f"the log ends at {lsns.text(end)}", lsn=end + 8)
    refused(Mistake, "the log ends at", lsn=1 << 60)
    refused(Mistake, "the log begins at <0:0:4:0>", lsn=0)
    refused(Mistake, "the log begins at <0:0:4:0>", lsn=262_144 - 8)
    refused(Mistake, "the log begins at <0:0:4:0>", time_us=1)
    refused(Unavailable, "there is no queue manager 'NONE'", name="NONE", lsn=end)
    refused(qmgr.MQError, "can't be the name", name="a b", lsn=end)
    refused(AlreadyExists, "has a queue manager 'SIM' already", into=DATA, lsn=end)
    refused(Mistake, "the log begins at <0:0:4:0>", lsn=262_144)
    recover(life, lsn=end)
    refused(AlreadyExists, "give an empty directory", into=INTO, lsn=end)
    assert untouched(life.disk) == before
    life.start()
    refused(InUse, "running already", lsn=end)
    life.qm.end()
    recover(life, "/other", lsn=end)


def test_a_log_that_is_not_where_qm_ini_says_is_told_as_a_start_tells_it(tmp_path: Path) -> None:
    """As in a copy of a data path that was moved with its log."""
    here, there = tmp_path / "here", tmp_path / "there"
    qmgr.create(NAME, data_path=here, log_type="linear", log_file_pages=64)
    qmgr.start(NAME, data_path=here, background=False).end()
    here.rename(there)
    calls = (
        lambda: qmgr.start(NAME, data_path=there),
        lambda: qmgr.recover_to(NAME, tmp_path / "then", data_path=there, time_us=1 << 60),
        lambda: migrate_log(NAME, data_path=there, log_path=there / "log"),
    )
    says = r"LogPath in .*/there/.* is .*/here/.*, and there is no such directory; correct it, or bring the log back"
    for call in calls:
        with pytest.raises(Unavailable, match=says):
            call()
    assert not here.exists()


def test_extents_that_are_gone_are_named_and_brought_back_they_count() -> None:
    """A moment whose images lie in an extent that is missing is refused; one later image is enough."""
    life = Marked(attrs.evolve(LINEAR, primary_files=3))
    life.create()
    life.start()
    life.define("A")
    life.define("B")
    life.put("B", priority=7)
    for _ in range(3):
        laps(life, 0.4)
    life.mark()
    life.record_image()
    life.mark()
    laps(life, 0.5)
    life.record_image()
    life.put("A", size=11)
    life.mark()
    life.qm.end("immediate")
    first, extent = f"{LOG}/{NAME}/active/S0000000.LOG", 64 * 4096
    kept = life.disk.peek(first)
    life.disk.remove(first)
    early = life.marks[2]
    with pytest.raises(Damaged, match=r"S0000000\.LOG and older ones are missing"):
        recover(life, "/early", lsn=early.lsn)
    life.disk.poke(first, kept[:5000])
    with pytest.raises(Damaged, match=f"log extent {first} was cut, or is damaged"):
        recover(life, "/early", lsn=early.lsn)
    life.disk.poke(first, kept)
    fault = life.disk.fail("open", errno.EACCES, once=False, where=first.__eq__)
    with pytest.raises(Unavailable, match=f"this user may not use {first}"):
        recover(life, "/early", lsn=early.lsn)
    life.disk.faults.remove(fault)
    life.disk.remove(first)
    with pytest.raises(Damaged, match="what is wanted; bring the older extents back"):
        recover(life, "/before", lsn=extent + 100)
    recover(life, "/late", lsn=life.marks[-1].lsn)
    then = Then(life, life.disk, "/late", after(life.marks[-1]))
    then.restart()
    middle = f"{LOG}/{NAME}/active/S0000002.LOG"  # a gap is not jumped
    assert life.marks[-1].lsn // extent > 4
    held = life.disk.peek(middle)
    life.disk.remove(middle)
    life.disk.poke(first, kept)
    before, behind = early.lsn, next(mark.lsn for mark in life.marks if mark.lsn > 4 * extent)
    assert before < 3 * extent, "one is wanted from before the gap, one needs images from there"
    life.disk.poke(middle, held)
    for kind in ("open", "read"):  # once, and not any more when it is to be said what is missing
        life.disk.fail(kind, errno.EIO, where=middle.__eq__)
        with pytest.raises(Unavailable, match=f"Input/output error.*{middle}"):
            recover(life, "/gap", lsn=behind)
    life.disk.remove(middle)
    for number, when in enumerate(({"lsn": before}, {"time_us": early.time})):
        recover(life, f"/gap{number}", **when)
        then = Then(life, life.disk, f"/gap{number}", after(early))
        then.restart()
    with pytest.raises(Damaged, match=r"S0000002\.LOG is missing"):
        recover(life, "/gap", lsn=behind)
    inside = [mark for mark in life.marks if 3 * extent < mark.lsn < 4 * extent]
    assert inside, "what is wanted was in the extent that is missing"
    for mark in inside:
        for when in ({"time_us": mark.time}, {"lsn": mark.lsn}):
            with pytest.raises(Damaged, match=r"S0000002\.LOG"):
                recover(life, "/inside", **when)
    life.disk.poke(middle, held)
    recover(life, "/again", lsn=early.lsn)
    then = Then(life, life.disk, "/again", after(early))
    then.restart()


# -- whatever interrupts it ------------------------------------------------------------------------------------------


def furnished(setup: Setup = LINEAR) -> Marked:
    """A life with a unit of work in doubt and one in flight at its last mark, and work after that."""
    life = Marked(setup)
    life.create()
    life.start()
    life.define("A")
    life.define("B")
    life.put("A", number=6, priority=4, size=700)
    life.put("B", size=20_000)
    life.record_image()
    life.put("A", number=2, priority=6)
    doubt = life.begin(XID)
    life.get("A", unit=doubt, limit=2)
    life.put("B", unit=doubt, number=3, priority=1, size=9000)
    life.prepare(doubt)
    flight = life.begin()
    life.get("A", unit=flight)
    life.put("A", unit=flight, size=60)
    life.rng = random.Random(7)
    while not life.marks[-1].logged or life.marks[-1].model.units.keys() != {doubt, flight}:
        life.mark()
    life.commit(flight)
    life.get("A", limit=100)
    life.resolve(XID, commit=True)
    life.delete("B")
    life.disk = life.disk.crash(ALL_WRITTEN)
    life.marks = [mark for mark in life.marks if mark.model.units.keys() == {doubt, flight}]
    return life


def absent_or_whole(life: Marked, mark: Mark, disk: SimDisk, before: dict[str, bytes]) -> bool:
    """Whether the target is a queue manager; then it is the right one. The original is as it was, and can be used."""
    assert untouched(disk) == before, "the original was changed"
    whole = disk.exists(f"{INTO}/qmgrs/{NAME}/qm.ini")
    if whole:
        then = Then(life, disk, INTO, after(mark))
        then.restart()
        then.settle()
        then.disk = disk.crash(LOSE_ALL)
        then.crash(KEEP_ALL)
        then.restart()
        return True
    with pytest.raises(Unavailable) as caught:
        qmgr.start(NAME, data_path=INTO, disk=disk, clock=life.clock, background=False)
    assert caught.value.reason == Reason.Q_MGR_NAME_ERROR
    if disk.exists(f"{INTO}/qmgrs/{NAME}/queues"):
        for others in (
            lambda: qmgr.create(NAME, data_path=INTO, disk=disk),
            lambda: repairing.check(NAME, data_path=INTO, disk=disk),
        ):
            with pytest.raises(qmgr.MQError, match=r"was interrupted; repeat it \(qm recover-to\)"):
                others()
    life = attrs_copy(life, disk)
    recover(life, lsn=mark.lsn)
    then = Then(life, disk, INTO, after(mark))
    then.restart()
    return False


def attrs_copy(life: Marked, disk: SimDisk) -> Marked:
    """The same life on another disk."""
    other = Marked(life.setup)
    other.disk, other.clock, other.story = disk, life.clock, life.story
    return other


@pytest.mark.parametrize("setup", [LINEAR, WIDE], ids=["triple", "single"])
def test_a_crash_at_any_moment_leaves_the_original_and_nothing_half(setup: Setup) -> None:
    """Before each call of the disk, and behind the last one; whatever a crash takes."""
    life = furnished(setup)
    mark, before = life.marks[-1], untouched(life.disk)
    moments: list[tuple[str, str, list[SimDisk]]] = []

    def look(kind: str, path: str) -> None:
        n = len(moments)
        if n % 3 and not SOAK:  # the losses go by two and by four: each has its turn
            moments.append((kind, path, []))
            return
        losses = [LOSE_ALL, mixed(n, atomic=setup.atomic)][0 if SOAK else n % 2 :]
        losses += [(KEEP_ALL, DATA_ONLY, NAMES_ONLY)[(n + n // 12) % 3]] if n % 4 == 1 or SOAK else []
        moments.append((kind, path, [life.disk.snapshot(loss) for loss in losses]))

    life.disk.before_effect = look
    made = recover(life, lsn=mark.lsn)
    life.disk.before_effect = None
    assert (made.in_doubt, made.backed_out) == (1, 1)
    moments.append(("", "the end", [life.disk.snapshot(loss) for loss in (LOSE_ALL, KEEP_ALL, mixed(1))]))
    whole = 0
    assert all(disk.exists(f"{INTO}/qmgrs/{NAME}/qm.ini") for disk in moments[-1][2])
    for number, (kind, path, disks) in enumerate(moments):
        for disk in disks:
            try:
                whole += absent_or_whole(life, mark, disk, before)
            except Exception as exc:
                raise AssertionError(f"before {kind} {path} (moment {number}): {exc!r}") from exc
    assert len(moments) > 30
    assert whole >= 3


@pytest.mark.parametrize("error", [errno.ENOSPC, errno.EIO], ids=["ENOSPC", "EIO"])
@pytest.mark.parametrize("kind", ["write", "sync", "create", "sync_dir", "rename", "mkdir", "open", "read", "list"])
def test_a_call_of_the_disk_that_fails_is_told_and_leaves_nothing_half(kind: str, error: int) -> None:
    life = furnished()
    mark, before, fired = life.marks[-1], untouched(life.disk), 0
    first = 1 if SOAK or kind == "read" else 1 + (error == errno.EIO)  # each error at calls of its own
    for nth in itertools.count(first, 1 if SOAK else 25 if kind == "read" else 9):
        disk = life.disk.snapshot(KEEP_ALL)
        other = attrs_copy(life, disk)
        fault = disk.fail(kind, error, nth=nth)
        failed: qmgr.MQError | None = None
        try:
            recover(other, lsn=mark.lsn)
        except qmgr.MQError as exc:
            failed = exc
        except OSError as exc:
            raise AssertionError(f"{kind} {nth}: a raw {exc!r}") from exc
        disk.heal()
        if not fault.fired:
            assert failed is None
            break
        fired += 1
        if failed is not None:
            assert failed.reason in (Reason.STORAGE_MEDIUM_FULL, Reason.FILE_SYSTEM_ERROR, Reason.OBJECT_DAMAGED), (
                f"{kind} {nth}: {failed!r}"
            )
            assert "can't be recovered" in str(failed)
        try:
            absent_or_whole(other, mark, disk.crash(LOSE_ALL), before)
        except Exception as exc:
            raise AssertionError(f"{kind} {nth}, {failed!r}: {exc!r}") from exc
    assert fired or kind in ("list", "mkdir", "open")


@pytest.mark.parametrize(
    ("kind", "where"),
    [
        ("sync_dir", f"{INTO}/qmgrs/{NAME}"),
        *((kind, f"{INTO}/mqs.ini.new") for kind in ("create", "write", "sync", "rename")),
        ("sync_dir", INTO),
        ("lock", f"{INTO}/mqs.ini.lock"),
    ],
)
@pytest.mark.parametrize("once", [True, False])
def test_one_that_can_not_be_listed_is_built_by_the_next_try(kind: str, where: str, once: bool) -> None:
    """It was there by then, so that to try again, as it says, was refused."""
    life = told()
    end = records(life)[-1][1]
    for nth in itertools.count(1):
        other = attrs_copy(life, life.disk.snapshot(KEEP_ALL))
        fault = other.disk.fail(kind, errno.EIO, nth=nth, once=once, where=lambda path: path == where)
        with contextlib.suppress(qmgr.Unavailable):
            recover(other, lsn=end)
            assert not fault.fired or kind == "sync_dir"
            break
        other.disk.heal()
        assert recover(other, lsn=end).lsn == end
        assert f"Name={NAME}" in other.disk.peek(f"{INTO}/mqs.ini").decode()
    assert nth > 1


def test_one_that_can_not_be_listed_as_others_change_the_list_is_built_by_the_next_try(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    life = told()
    end = records(life)[-1][1]
    monkeypatch.setattr(mqsini, "LOCK_TRIES", 2)
    life.disk.locks[f"{INTO}/mqs.ini.lock"] = "pid 1"
    with pytest.raises(InUse, match=r"mqs\.ini is being changed"):
        recover(life, lsn=end)
    life.disk.locks.clear()
    assert recover(life, lsn=end).lsn == end


def test_one_that_is_refused_takes_nothing_from_another_that_builds_there() -> None:
    """From another original of that name: its files are its own as long as it owns the directory."""
    life = told()
    end = records(life)[-1][1]
    target = locations.find(NAME, INTO)
    make_dirs(life.disk, target.queues)
    builds = own(life.disk, target, None, command="qm recover-to")
    replace_file(life.disk, target.unfinished_ini, b"Log:\n")
    replace_file(life.disk, f"{target.queues}/00000001.seg", b"messages")
    before = life.disk.files(INTO)
    for lsn, error in ((end + 8, Mistake), (end, InUse)):
        with pytest.raises(error):
            recover(life, lsn=lsn)
        assert life.disk.files(INTO) == before
    builds.release()
    recover(life, lsn=end)


# -- it works on -----------------------------------------------------------------------------------------------------


def everything_in(qm: qmgr.QueueManager) -> dict[str, list[dict[str, Any]]]:
    """Each message to the last byte of its head; the seconds that it has left, about."""

    def told(message: qmgr.Message) -> dict[str, Any]:
        return attrs.asdict(attrs.evolve(message, expiry=round(message.expiry or 0, 1)))

    return {queue.name: [told(message) for message in qm.browse(queue.name)] for queue in qm.queues()}


def lasting(queue: qmgr.QueueInfo) -> qmgr.QueueInfo:
    """What is not only of this moment."""
    return attrs.evolve(queue, depth=0, memory=0, uncommitted=0, last_put=0, last_get=0)


def test_messages_and_definitions_come_back_to_the_last_attribute() -> None:
    """Expiry, properties, times and ids of messages, all attributes of queues and of the queue manager."""
    world = World(log_type="linear", log_management="Automatic")
    qm = world.qm
    qm.alter(image_schedule="AUTO", image_interval=5, image_log_length=7)
    qm.define_queue("A", description="all", max_depth=77, delivery_sequence="FIFO", backout_threshold=3)
    qm.define_queue("NOT", image_recoverable="NO", put_enabled=True, expiry_cap=9000.0)
    qm.put("A", b"short", expiry=50.0, priority=2)
    qm.put("A", b"long", expiry=5000.0, reply_to="A", format="MQSTR", properties={"a": 1, "b": "two", "c": b"3"})
    qm.record_image("A")
    qm.put("NOT", b"here", correlation_id=b"c".ljust(24))
    qm.put("A", b"fleeting", persistent=False)
    qm.put("A", b"later", priority=9, expiry=60.0)
    for _ in range(3):
        with qm.begin() as unit:
            unit.get("A")
            unit.backout()
    before = everything_in(qm)
    expected = {name: [m for m in messages if m["body"] != b"fleeting"] for name, messages in before.items()}
    queues = [lasting(queue) for queue in qm.queues()]
    tail = qm.status().log.tail
    qm.alter(image_schedule="MANUAL")
    qm.get("A")
    qm.end()
    made = qmgr.recover_to("QM1", INTO, lsn=tail, data_path="/data", disk=world.disk, clock=world.clock)
    assert (made.queues, made.messages) == (2, 4)
    with qmgr.start("QM1", data_path=INTO, disk=world.disk, clock=world.clock, background=False) as then:
        assert everything_in(then) == expected
        assert expected["A"][0]["backout_count"] == 3
        assert [lasting(queue) for queue in then.queues()] == queues
        assert then.attributes.image_schedule == "AUTO"
        assert (then.attributes.image_interval, then.attributes.image_log_length) == (5, 7)
        assert then.config.log_management.value == "Automatic"
        assert then.config.log.path.startswith(INTO)
        assert then.config.log.archive_directory.startswith(INTO)
        world.clock.advance(100)
        assert bodies(then, "A") == [b"long"]


def test_what_was_put_after_the_clock_has_jumped_forward_lives_on() -> None:
    """As after a start of the original: messages expire by a clock that does not jump."""
    world = World(log_type="linear")
    world.qm.define_queue("A")
    world.clock.jump_wall(1e7)
    world.qm.put("A", b"x", expiry=3600)
    tail = world.qm.status().log.tail
    world.qm.end()
    world.clock.advance(1000)
    qmgr.recover_to("QM1", INTO, lsn=tail, data_path="/data", disk=world.disk, clock=world.clock)
    world.clock.advance(1000)
    with qmgr.start("QM1", data_path=INTO, disk=world.disk, clock=world.clock, background=False) as then:
        assert next(then.browse("A")).expiry == pytest.approx(1600, abs=1)
        world.clock.advance(1601)
        assert bodies(then, "A") == []


def test_ids_of_messages_and_numbers_of_units_of_work_are_not_used_again() -> None:
    """Neither those that the original had used before that moment, nor those since."""
    world = World(log_type="linear")
    world.qm.define_queue("A")
    used: set[Any] = set()

    def use(qm: qmgr.QueueManager) -> None:
        for _ in range(5):
            made = qm.put("A", b"x").message_id
            with qm.begin() as unit:
                assert unit.id not in used
                used.add(unit.id)
                many = [message.message_id for message in unit.put_many("A", [b"y", b"z"])]
            assert not used & {made, *many}
            used.update((made, *many))

    use(world.qm)
    tail = world.qm.status().log.tail
    use(world.qm)
    for _ in range(3):
        world.crash(LOSE_ALL)
        use(world.qm)
    world.qm.end()
    qmgr.recover_to("QM1", INTO, lsn=tail, data_path="/data", disk=world.disk, clock=world.clock)
    for _ in range(2):
        with qmgr.start("QM1", data_path=INTO, disk=world.disk, clock=world.clock, background=False) as then:
            use(then)
            then.define_queue(f"NEW{len(used)}")


def test_a_unit_of_work_in_doubt_stays_so_over_restarts_and_can_be_resolved_either_way() -> None:
    for commit in (True, False):
        life = furnished()
        mark = life.marks[-1]
        recover(life, lsn=mark.lsn)
        then = Then(life, life.disk, INTO, after(mark))
        then.restart()
        for loss in (LOSE_ALL, mixed(3), KEEP_ALL):
            then.crash(loss)
            then.restart()
            assert then.qm.in_doubt() == [XID]
            work_on(then)
            then.checkpoint()
            then.end()
            then.start()
            then.check()
        then.resolve(XID, commit=commit)
        then.check()
        then.crash(LOSE_ALL)
        then.restart()
        then.recreate("B") if then.record_image("B") else None
        then.check()


def test_what_was_built_is_a_queue_manager_to_build_from_as_well() -> None:
    """A moment of its own comes back; and one before its first image is refused, not taken for an empty one."""
    life = furnished()
    mark = life.marks[-1]
    recover(life, lsn=mark.lsn)
    then = Then(life, life.disk, INTO, after(mark))
    then.restart()
    then.put("A", size=5)
    early = then.qm.status().log.tail
    then.record_image()
    then.put("A", size=6)
    late, late_model = then.qm.status().log.tail, then.model.copy()
    then.get("A", limit=10)
    then.end()
    late_model.end()

    def again(into: str, lsn: int) -> qmgr.Recovered:
        return qmgr.recover_to(NAME, into, lsn=lsn, data_path=INTO, disk=then.disk, clock=then.clock)

    again("/late", late)
    other = Then(then, then.disk, "/late", late_model)
    other.restart()
    with pytest.raises(Damaged, match="take a later moment"):
        again("/early", early)


def test_a_queue_without_an_image_that_was_altered_since_the_log_begins_is_not_taken_for_a_new_one() -> None:
    """The definition of a queue that is altered is that of a new one, to who has not seen it defined."""
    life = Life(LINEAR)
    life.create()
    life.start()
    qm = life.qm
    qm.define_queue("OLD", image_recoverable="NO")
    qm.define_queue("A")
    qm.put("OLD", b"kept")

    def fill() -> int:
        for _ in range(60):
            qm.put("A", bytes(12000))
            qm.get("A")
        return int(qm.status().log.tail)

    begins = fill() // qm.status().log.config.extent_bytes
    fill()
    qm.alter_queue("OLD", description="altered")
    fill()
    qm.record_image()
    qm.define_queue("NEW", image_recoverable="NO")
    qm.put("NEW", b"kept too")
    end = qm.status().log.tail
    qm.end()
    kept = life.disk.snapshot(KEEP_ALL)
    for sequence in range(1, begins):
        life.disk.remove(f"{LOG}/{NAME}/active/{file_name(linear_number(sequence))}")
    with pytest.raises(Damaged, match="queue 'OLD' can't be built again: its media image was never recorded"):
        recover(life, lsn=end)
    life.disk = kept  # from the beginning on it can
    assert recover(life, lsn=end).messages == 2


def test_its_own_images_bring_its_queues_back() -> None:
    """Its log begins anew, so images of the original are worth nothing to it; its own are."""
    life = furnished()
    mark = life.marks[-1]
    recover(life, lsn=mark.lsn)
    then = Then(life, life.disk, INTO, after(mark))
    then.restart()
    with pytest.raises(qmgr.MQError, match="this log has no media image of queue 'A'"):
        then.qm.recreate("A")
    then.check()
    then.record_image()
    then.put("A", number=3, priority=8)
    for path in [*then.segments("A"), *then.segments("B")]:
        then.disk.remove(path)
        then.suspects |= {"A", "B"}
    then.crash(LOSE_ALL)
    then.restart()
    then.settle()
    then.end()
    then.start()
    then.check()


def test_no_file_that_autoconfig_names_brings_listeners_or_definitions_with_its_next_start() -> None:
    """Clients of the original would find it at their port, and put to it."""
    world = World(log_type="linear", ini_config="/auto.ini", mqsc_config="/auto.mqsc", start=False)
    world.disk.poke("/auto.ini", b"Listener:\nName=web\nProtocol=HTTP\nPort=1234\nAuthentication=NONE\n")
    world.disk.poke("/auto.mqsc", b"DEFINE QLOCAL(LATER)\n")
    qm = world.start()
    assert [listener.port for listener in qm.config.listeners] == [1234]
    qm.define_queue("A")
    tail = qm.status().log.tail
    qm.end()
    qmgr.recover_to("QM1", INTO, lsn=tail, data_path="/data", disk=world.disk, clock=world.clock)
    with qmgr.start("QM1", data_path=INTO, disk=world.disk, clock=world.clock, background=False) as then:
        assert then.config.listeners == ()
        assert then.config.auto_config == ini.AutoConfig()


def test_extents_are_let_go_of_again_where_the_log_manages_itself() -> None:
    """LogManagement=Automatic: no LSN of the original's log holds the extents of the new one, or lets them go."""
    life = furnished(attrs.evolve(AUTOMATIC, primary_files=3))
    mark = life.marks[-1]
    recover(life, lsn=mark.lsn)
    then = Then(life, life.disk, INTO, after(mark))
    then.restart()
    then.resolve(XID, commit=True)
    for _ in range(6):
        laps(then, 0.6)
        then.record_image()
        then.checkpoint()
    then.checkpoint()
    there = list(then.qm._log.history().places())
    assert there[0] > 5, there
    then.crash(LOSE_ALL)
    then.restart()


def test_a_unit_of_work_that_has_done_nothing_is_in_doubt_too() -> None:
    """No image of a queue knows of it."""
    life = Marked(LINEAR)
    life.create()
    life.start()
    life.prepare(life.begin(XID))
    life.mark()
    life.define("A")
    life.put("A")
    life.mark()
    life.record_image()
    life.mark()
    life.qm.end("immediate")
    for number in (-1, -3, -4):
        recover(life, f"/then{number}", lsn=life.marks[number].lsn)
        then = Then(life, life.disk, f"/then{number}", after(life.marks[number]))
        then.restart()
        assert then.qm.in_doubt() == [XID]
        then.settle()


def test_units_of_work_that_were_rolled_forward_over_the_extents() -> None:
    """The records of what they have done are in one extent, the images of queues that they have used in others."""
    life = Marked(attrs.evolve(LINEAR, primary_files=2, secondary_files=1))
    life.create()
    life.start()
    for queue in ("A", "B", "C"):
        life.define(queue)
    life.put("C", number=4)
    doubt = life.begin(XID)
    life.get("C", unit=doubt, limit=2)
    life.put("B", unit=doubt, number=2)
    life.prepare(doubt)
    life.mark()
    rng = random.Random(3)
    for turn in range(5):
        for _ in range(9):
            life.put("A", size=17_000)
            life.get("A")
        life.record_image(rng.choice(("A", "B", "C")))
        life.put("C", priority=turn)
        life.mark()
    rolled = "AMQ7485" in life.disk.peek(f"{DATA}/qmgrs/{NAME}/errors/AMQERR01.LOG").decode()
    assert rolled, "nothing was rolled forward"
    life.resolve(XID, commit=True)
    life.mark()
    life.disk = life.disk.crash(KEEP_ALL)
    for number, mark in enumerate(life.marks[::7] + life.marks[-6:]):
        recover(life, f"/then{number}", lsn=mark.lsn)
        then = Then(life, life.disk, f"/then{number}", after(mark))
        then.restart()
        then.settle()


@pytest.mark.parametrize("how", ["flipped", "missing"])
def test_damage_of_the_active_log_behind_the_moment_does_not_matter(how: str) -> None:
    """A restart needs what is damaged; what lies before it can be built all the same, by LSN and by time."""
    life = furnished(attrs.evolve(LINEAR, primary_files=6))
    life.start()
    unit = life.qm.begin()
    unit.put("A", b"holds the head")
    moments, marks = [], []
    for _ in range(60):
        life.qm.put("A", bytes(9000))
        life.qm.get("A")
        marks.append(life.qm.status().log.tail)
        moments.append(life.clock.wall)
        life.clock.advance(1)
    head = life.qm.status().log.head
    life.disk = life.disk.crash(KEEP_ALL)
    extent = 64 * 4096
    at = marks[45]
    assert head < marks[5] < at // extent * extent < at < marks[-1] // extent * extent
    path = f"{LOG}/{NAME}/active/S{at // extent - 1:07d}.LOG"
    data = bytearray(life.disk.peek(path))
    if how == "missing":
        life.disk.remove(path)
    else:
        data[len(data) - extent + at % extent + 20] ^= 255
        life.disk.poke(path, bytes(data))
    for number, when in enumerate(({"lsn": marks[5]}, {"time_us": moments[5]}, {"time_us": moments[15]})):
        recover(life, f"/then{number}", **when)
    for when in ({"lsn": marks[50]}, {"time_us": moments[50]}, {"lsn": 1 << 60}):
        with pytest.raises(Damaged, match=path):
            recover(life, "/no", **when)
    assert life.disk.files("/no") == []
    assert not life.disk.exists("/no"), "empty directories are left"


@pytest.mark.parametrize("compressed", [False, True])
def test_damage_before_the_images_does_not_matter(compressed: bool) -> None:
    """It is as if the extent were missing; and where that was needed, the damage is what is told."""
    life = furnished(attrs.evolve(LINEAR, primary_files=3))
    life.start()
    marks = [life.qm.status().log.tail]
    for number in range(100):
        life.qm.put("A", bytes(9000))
        life.qm.get("A")
        if number == 60:
            life.qm.record_image()
            life.qm.record_definitions()
        marks.append(life.qm.status().log.tail)
    life.qm.checkpoint()
    life.qm.checkpoint()
    if compressed:
        assert life.qm.compress_log().done
    life.qm.end()
    extent = 64 * 4096
    path = f"{LOG}/{NAME}/active/S{marks[20] // extent - 1:07d}.LOG{'.gz' if compressed else ''}"
    data = bytearray(life.disk.peek(path))
    data[len(data) // 2] ^= 255
    life.disk.poke(path, bytes(data))
    recover(life, "/then", lsn=marks[80])
    with pytest.raises(Damaged, match=path):
        recover(life, "/no", lsn=marks[50])
    for name in (checkpoint.NAME, checkpoint.PREVIOUS):  # a repair builds all from the images too
        life.disk.remove(f"{DATA}/qmgrs/{NAME}/{name}")
    found = repairing.check(NAME, data_path=DATA, disk=life.disk).examination
    assert [one.row.name for one in found.findings if one.row.cure is Cure.REBUILD] == ["checkpoints_lost_images_there"]
    assert found.lost is None


def flipped_at(life: Life, lsn: int) -> str:
    """A byte of the record there is not what it was; the path of its extent."""
    extent = 64 * 4096
    path = f"{LOG}/{NAME}/active/S{lsn // extent - 1:07d}.LOG"
    data = bytearray(life.disk.peek(path))
    data[len(data) - extent + lsn % extent + 20] ^= 255
    life.disk.poke(path, bytes(data))
    return path


def test_damage_matters_where_the_clock_was_set_back_before_it() -> None:
    """Records that are later than the moment lie before it; some that are not lie behind it."""
    life = furnished(attrs.evolve(LINEAR, primary_files=3))
    life.start()
    marks, times = [], []
    for number in range(100):
        life.clock.advance(1)
        if number == 15:
            life.clock.wall -= 10_000_000
        life.qm.put("A", bytes(9000))
        life.qm.get("A")
        marks.append(life.qm.status().log.tail)
        times.append(life.clock.wall)
    life.qm.record_image()
    life.qm.end()
    path = flipped_at(life, marks[18])
    assert times[20] < times[14], "the clock was set back"
    with pytest.raises(Damaged, match=path):
        recover(life, "/no", time_us=times[20])


def test_damage_behind_the_moment_does_not_matter() -> None:
    """A record that can't be read any more: what was before it can be built, whatever it says itself."""
    life = furnished(attrs.evolve(LINEAR, primary_files=3))
    life.start()
    marks, times = [life.qm.status().log.tail], [life.clock.wall]
    for _ in range(100):
        life.clock.advance(1)
        life.qm.put("A", bytes(9000))
        life.qm.get("A")
        marks.append(life.qm.status().log.tail)
        times.append(life.clock.wall)
    life.qm.record_image()
    life.qm.end()
    at = marks[20]
    extent = 64 * 4096
    assert at // extent < marks[-1] // extent - 1, "not behind the head"
    path = flipped_at(life, at)
    recover(life, "/before", lsn=at)
    recover(life, "/early", lsn=marks[10])
    recover(life, "/then", time_us=times[10])
    for lsn in (at + 16, marks[21], marks[-1]):
        with pytest.raises(Damaged, match=path):
            recover(life, f"/at{lsn}", lsn=lsn)


def test_one_whose_first_start_was_cut_off_holds_nothing_yet() -> None:
    """There are moments of it at which the control file has an epoch, and the log no record."""
    world = World(start=False, log_type="linear")
    found: list[SimDisk] = []
    world.disk.before_effect = lambda kind, path: found.append(world.disk.snapshot(LOSE_ALL))
    world.start()
    world.disk.before_effect = None
    said = set()
    for disk in found:
        try:
            qmgr.recover_to("QM1", INTO, time_us=1 << 60, data_path="/data", disk=disk, clock=world.clock)
        except Mistake as exc:
            said.add(exc.sentence)
    assert said == {
        "its log holds nothing yet: the queue manager was never started",
        "its log holds nothing yet: its first start was cut off",
    }
