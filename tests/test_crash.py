"""Every state a crash can leave, at every call that changes the disk: what was acknowledged is there, whole, once.

A script is lived once. Before each change of the disk the life is forked: the fork loses what the loss says, restarts,
is compared with what is allowed, works on, loses everything unsynced at once, and is compared again.
Rows are those of the fault list in `docs/testing.md`.
"""

import contextlib
import errno
import itertools
import random
import threading
from collections.abc import Callable, Iterable

import attrs
import pytest

import qmgr
from tests.conftest import SOAK
from tests.sim.clock import SimClock
from tests.sim.disk import SimCrash, SimDisk
from tests.sim.life import AUTOMATIC, SINGLE, TRIPLE, Life, Lookout, Setup, Violation
from tests.sim.loss import (
    DATA_ONLY,
    KEEP_ALL,
    LOSE_ALL,
    NAMES_ONLY,
    NOISED,
    SIZES_ONLY,
    ZEROED,
    Loss,
    mixed,
)

PAGE = 4096
Script = Callable[[Life], None]
XID = qmgr.Xid(1, b"global", b"branch")
LONG = ("everything", "checkpoints", "secondaries")  # scripts
EVERY_SETUP = pytest.mark.parametrize("setup", [TRIPLE, SINGLE, AUTOMATIC], ids=["triple", "single", "linear"])
EVERY_LOG = pytest.mark.parametrize("setup", [TRIPLE, AUTOMATIC], ids=["circular", "linear"])
EVERY_LOSS = (KEEP_ALL, LOSE_ALL, NAMES_ONLY, SIZES_ONLY, DATA_ONLY, ZEROED, NOISED)
ATOMIC_LOSS = (KEEP_ALL, LOSE_ALL, NAMES_ONLY, SIZES_ONLY, DATA_ONLY)


class Sweep:
    """Looks at the states a crash can leave before each change of the disk."""

    def __init__(
        self,
        life: Life,
        losses: Callable[[int], Iterable[Loss]],
        *,
        every: int = 1,
        offset: int = 0,
        deeper: "Callable[[Life, int], None] | None" = None,
    ) -> None:
        self.life = life
        self.losses = losses
        self.every = every
        self.offset = offset
        self.deeper = deeper
        self.moments = 0
        self.states = 0

    def look(self, kind: str, path: str) -> None:
        """Called before each change of the disk."""
        self.moments += 1
        if (self.moments + self.offset) % self.every == 0:
            self.lose(kind, path)

    def lose(self, kind: str, path: str) -> None:
        """Look at what each loss leaves at this moment."""
        for loss in self.losses(self.moments):
            self.states += 1
            fork = self.life.fork(loss)
            try:
                self.examine(fork)
            except (Violation, Exception) as exc:
                raise Violation(
                    f"before {kind} {path} (moment {self.moments}), {loss}: {exc!r}\n{fork.tell()}"
                ) from exc

    def examine(self, fork: Life) -> None:
        """Restart the fork, compare, work on, lose everything that is not synced, compare again."""
        if self.deeper is not None:
            self.deeper(fork, self.moments)
        fork.restart()
        work_on(fork)
        fork.crash(LOSE_ALL)
        fork.restart()


def work_on(life: Life) -> None:
    """A little of everything, after a restart."""
    if "AFTER" not in life.model.queues:
        life.define("AFTER")
    life.put("AFTER", size=100)
    unit = life.begin()
    for queue in sorted(life.model.queues):
        life.put(queue, size=300, priority=2, unit=unit)
        life.get(queue, unit=unit)
    life.commit(unit)
    life.get("AFTER")


def sweep(
    script: Script,
    losses: Callable[[int], Iterable[Loss]],
    *,
    setup: Setup = TRIPLE,
    prelude: Script | None = None,
    every: int = 1,
    offset: int = 0,
    deeper: "Callable[[Life, int], None] | None" = None,
    disk: SimDisk | None = None,
    short: bool = False,
) -> Sweep:
    """Live `prelude`, then `script` with a look before every change of the disk, or every `every`-th.

    The quick suite looks at every 13th of a long script and at every ninth of the others, in each setup at others:
    much is alike in all of them. What looks at one script for several losses gives each an offset of its own. A `short`
    script, of a call or two, is looked at before every change always.
    """
    if not SOAK and not short:
        offset += 2 if setup.linear else int(setup.atomic)
        every *= 13 if script.__name__ in LONG else 9  # odd: a write and its sync take turns
    life = Life(setup, disk)
    if prelude is not None:
        prelude(life)
    found = Sweep(life, losses, every=every, offset=offset, deeper=deeper)
    with Lookout(life.disk, found.look):
        script(life)
    found.moments += 1
    found.lose("end of script", "-")
    assert found.states
    return found


def mixes(number: int, *, atomic: bool = False) -> Callable[[int], list[Loss]]:
    """So many random losses at each moment."""
    return lambda moment: [mixed(moment * 1000 + n, atomic=atomic) for n in range(number * (10 if SOAK else 1))]


def always(*losses: Loss) -> Callable[[int], tuple[Loss, ...]]:
    """These losses at each moment."""
    return lambda moment: losses


# -- scripts -------------------------------------------------------------------------------------------------------


def born(life: Life) -> None:
    """A queue manager with two queues and a few messages."""
    life.create()
    life.start()
    life.define("A", "first")
    life.define("B")
    for n in range(4):
        life.put("A", priority=n % 2)


def everything(life: Life) -> None:
    """A short life with every verb in it."""
    life.create()
    life.start()
    life.define("A", "first")
    life.define("B")
    life.put("A", size=1)
    life.put("A", size=5000, priority=5)
    life.put("A", persistent=False)
    life.put("B", number=3, size=700)
    life.get("A")
    one, two = life.begin(), life.begin()
    life.put("A", unit=one, priority=1)
    life.put("B", unit=one, size=2000)
    life.get("B", unit=two, limit=2)
    life.put("A", unit=two)
    life.commit(one)
    life.checkpoint()
    life.backout(two)
    doubt = life.begin(XID)
    life.put("A", unit=doubt, priority=9)
    life.get("B", unit=doubt)
    life.prepare(doubt)
    life.alter("B", "second")
    life.define("C")
    life.put("C", size=9000)
    life.checkpoint()
    life.get("C")
    life.delete("C")
    life.put("B", number=2, size=100)
    life.end()
    life.start()
    life.check()
    life.put("A", size=50)
    life.resolve(XID, commit=True)
    three = life.begin()
    life.get("A", unit=three)
    life.get("B", unit=three, limit=2)
    life.commit(three)
    life.checkpoint()
    life.put("B", size=30)
    life.end()


# -- a. power loss and kill ----------------------------------------------------------------------------------------


@EVERY_SETUP
def test_row_01_killed_before_any_change_of_the_disk(setup: Setup) -> None:
    """Faults 1: the process dies, the machine lives: every prefix of the calls."""
    found = sweep(everything, always(KEEP_ALL), setup=setup)
    assert found.moments > 150


@EVERY_SETUP
def test_row_02_all_unsynced_writes_lost_at_any_moment(setup: Setup) -> None:
    """Faults 2."""
    sweep(everything, always(LOSE_ALL), setup=setup, offset=3)


@EVERY_SETUP
def test_row_03_any_subset_of_the_unsynced_writes_lost(setup: Setup) -> None:
    """Faults 3: later writes durable, earlier ones lost; random subsets."""
    sweep(everything, mixes(2, atomic=setup.atomic), setup=setup, offset=1)


def written_behind(life: Life) -> None:
    """Units of work that are larger than the log buffer: many writes, and one sync for them at the end."""
    for turn in range(2):
        unit = life.begin()
        life.get("A", unit=unit)
        for _ in range(14):
            life.put("AB"[turn], size=9000, unit=unit)
        life.commit(unit)


@EVERY_SETUP
@pytest.mark.parametrize("picture", ["suffix", "hole", "each"])
def test_row_03_of_many_writes_before_a_sync_the_first_ones_lost(picture: str, setup: Setup) -> None:
    """Faults 3: the record of the commit is durable, and something of what it commits is not."""
    seeds = itertools.count()
    found = sweep(
        written_behind,
        lambda moment: [Loss(seed=next(seeds), sectors=picture, sizes="new", names="new") for _ in range(3)],
        setup=setup,
        prelude=born,
    )
    assert found.life.disk.counts["write"] > 20


@EVERY_SETUP
def test_row_04_the_tail_torn_at_every_sector(setup: Setup) -> None:
    """Faults 4: prefixes, suffixes and holes of the last writes."""
    life = Life(setup)
    born(life)
    disk = life.disk
    torn = 0

    def look(kind: str, path: str) -> None:
        nonlocal torn
        if kind != "sync" or not path.endswith(".LOG"):
            return
        sectors = disk.unsynced_sectors(path)
        torn += sectors
        for cut in range(sectors + 1):
            pictures = ("prefix", "suffix", "hole")
            for picture in pictures if SOAK else pictures[(cut + setup.atomic + 2 * setup.linear) % 3 :][:1]:
                loss = Loss(seed=cut, sectors=picture, cut=cut, sizes="new", names="new")
                fork = life.fork(loss)
                fork.restart()
                fork.crash(LOSE_ALL)
                fork.restart()

    with Lookout(disk, look):
        for size in (1, 700, 3000, 9000):
            life.put("A", size=size)
        unit = life.begin()
        life.get("A", limit=2, unit=unit)
        life.put("B", size=6000, unit=unit)
        life.commit(unit)
    assert torn > 60


@pytest.mark.parametrize("loss", [ZEROED, NOISED], ids=["zeroed", "noise"])
def test_row_05_a_page_rewritten_over_durable_records_and_destroyed(loss: Loss) -> None:
    """Faults 5: with TripleWrite whatever is being written may be destroyed wholly; older records survive."""
    sweep(everything, always(loss), offset=3 if loss == NOISED else 1)


@pytest.mark.parametrize("loss", [ZEROED, NOISED], ids=["zeroed", "noise"])
def test_row_05_a_page_that_began_at_home_is_copied_before_it_is_overwritten(loss: Loss) -> None:
    """Faults 5: small forces that begin a page write it home; then comes one that fills it at once."""

    def script(life: Life) -> None:
        born(life)
        copies = 0
        for n in range(24):
            log = life.qm._log
            page, begun_at_home = log.buffer.base, log._only_home == log.buffer.base
            life.put("A", size=3600 if begun_at_home else 900 + 173 * (n % 3))
            copies += begun_at_home and log.buffer.base > page
        assert copies > 3

    sweep(script, always(loss), offset=loss == NOISED)


@pytest.mark.parametrize(
    "loss",
    [SIZES_ONLY, Loss(sectors="new", sizes="old", names="new"), Loss(seed=6, sectors="new", names="new")],
    ids=["data lost", "size lost", "any size"],
)
def test_row_06_size_and_data_lost_apart(loss: Loss) -> None:
    """Faults 6."""
    sweep(everything, always(loss), offset={"old": 1, "new": 2}.get(loss.sizes, 4))


def laps(life: Life, number: float) -> None:
    """Fill the log so many times over, with little left on the queues."""
    capacity = life.setup.file_pages * PAGE * (life.setup.primary_files + life.setup.secondary_files)
    turns = int(number * capacity / 15000)
    for turn in range(turns):
        life.put("A", size=12000, priority=turn % 3)
        if turn % 4 == 3:
            unit = life.begin()
            life.get("A", unit=unit, limit=4)
            life.put("B", unit=unit, size=10)
            life.commit(unit)
        if life.setup.linear and turn % 16 == 15:
            life.record_image()  # so that extents are used again
    life.get("B", limit=1 << 20)


def wrapped(life: Life) -> None:
    born(life)
    laps(life, 3.6)
    assert laps_of(life) >= 3


def laps_of(life: Life) -> float:
    """How many times the log has gone round all its files."""
    files = life.setup.primary_files + life.setup.secondary_files
    return float(life.qm.status().log.tail) / (life.setup.file_pages * PAGE * files)


@EVERY_SETUP
def test_row_07_records_of_an_earlier_lap_are_never_replayed(setup: Setup) -> None:
    """Faults 7: the log has gone round three times, so what lies beyond its end are whole records of earlier laps."""

    def script(life: Life) -> None:
        for size in (10, 4000, 12000, 30000):
            life.put("A", size=size)
            life.get("A")

    sweep(script, mixes(6, atomic=setup.atomic), setup=setup, prelude=wrapped)
    sweep(script, always(LOSE_ALL, SIZES_ONLY), setup=setup, prelude=wrapped, offset=1)


@EVERY_SETUP
def test_row_08_any_new_name_lost_also_while_the_queue_manager_is_made(setup: Setup) -> None:
    """Faults 8."""
    losses = [DATA_ONLY, Loss(seed=1, sectors="new", sizes="new"), Loss(seed=2, sectors="new", sizes="new")]
    turn = itertools.count(setup.atomic)
    sweep(everything, always(*losses) if SOAK else lambda moment: [losses[next(turn) % 3]], setup=setup, offset=2)


def checkpoints(life: Life) -> None:
    """A checkpoint every few units, with something to write and something gone in each."""
    for turn in range(4):
        life.put("A", number=3, size=600)
        life.get("A", limit=2)
        unit = life.begin()
        life.put("B", unit=unit, size=100)
        life.checkpoint()
        life.commit(unit)
        if turn == 2:
            life.get("A", limit=100)


@EVERY_LOG
def test_row_09_a_rename_lost_and_what_relied_on_it_done(setup: Setup) -> None:
    """Faults 9: the checkpoint file and the control file are replaced, then segments and log are let go."""
    losses = [Loss(seed=n, sectors="new", sizes="new") for n in range(4)]
    sweep(checkpoints, always(*losses), setup=setup, prelude=born)


def test_row_10_a_rename_durable_and_the_content_not() -> None:
    """Faults 10."""
    sweep(everything, always(NAMES_ONLY), offset=4)
    sweep(everything, always(SIZES_ONLY), offset=3)
    sweep(checkpoints, always(NAMES_ONLY), prelude=born, offset=2)


@pytest.mark.parametrize("log_type", ["circular", "linear"])
def test_row_11_a_deletion_that_returned_stays_and_nothing_of_it_is_in_the_way_of_the_next(log_type: str) -> None:
    """At any moment of a creation that follows, too: names come and go one by one."""
    disk = SimDisk()
    qmgr.create("QM", data_path="/data", log_file_pages=64, log_type=log_type, disk=disk)
    with qmgr.start("QM", data_path="/data", disk=disk, clock=SimClock(), background=False) as qm:
        qm.define_queue("ORDERS")
        qm.put("ORDERS", b"3 chairs")
    qmgr.delete("QM", data_path="/data", disk=disk)
    for seed in range(30):
        found = disk.snapshot(mixed(seed))
        with pytest.raises(qmgr.Unavailable, match="create it first"):
            qmgr.start("QM", data_path="/data", disk=found, clock=SimClock(), background=False)
    for moment in range(1, 60, 3):
        for seed in range(4):
            found = disk.snapshot(KEEP_ALL)
            found.crash_after(moment)
            with contextlib.suppress(SimCrash):
                qmgr.create("QM", data_path="/data", log_file_pages=64, disk=found)
            found = found.crash(mixed(100 * moment + seed))
            with contextlib.suppress(qmgr.AlreadyExists):
                qmgr.create("QM", data_path="/data", log_file_pages=64, disk=found)
            with qmgr.start("QM", data_path="/data", disk=found, clock=SimClock(), background=False) as qm:
                assert not qm.queues()


def test_row_11_a_deletion_that_is_cut_off_can_be_repeated() -> None:
    """Whatever names are back: what says where the log lies is there as long as anything else is."""
    made = SimDisk()
    qmgr.create("QM", data_path="/data", log_file_pages=64, disk=made)
    with qmgr.start("QM", data_path="/data", disk=made, clock=SimClock(), background=False) as qm:
        qm.define_queue("ORDERS")
        qm.put("ORDERS", b"3 chairs")
    for moment in range(1, 50):
        for seed in range(4):
            found = made.snapshot(KEEP_ALL)
            found.crash_after(moment)
            with contextlib.suppress(SimCrash):
                qmgr.delete("QM", data_path="/data", disk=found)
            found = found.crash(mixed(100 * moment + seed))
            with contextlib.suppress(qmgr.Unavailable):
                qmgr.delete("QM", data_path="/data", disk=found)
            qmgr.create("QM", data_path="/data", log_file_pages=64, disk=found)


def test_row_11_who_hears_that_there_is_no_such_queue_manager_never_finds_it_again() -> None:
    """A deletion is killed, and repeated; then the machine loses its power."""
    made = SimDisk()
    qmgr.create("QM", data_path="/data", log_file_pages=64, disk=made)
    for moment in range(1, 50):
        for loss in (LOSE_ALL, mixed(moment)):
            found = made.snapshot(KEEP_ALL)
            found.crash_after(moment)
            with contextlib.suppress(SimCrash):
                qmgr.delete("QM", data_path="/data", disk=found)
            found = found.crash(KEEP_ALL)
            with contextlib.suppress(qmgr.Unavailable):
                qmgr.delete("QM", data_path="/data", disk=found)
            found = found.crash(loss)
            with pytest.raises(qmgr.Unavailable, match="create it first"):
                qmgr.start("QM", data_path="/data", disk=found, clock=SimClock(), background=False)
            qmgr.create("QM", data_path="/data", log_file_pages=64, disk=found)


@EVERY_LOG
def test_row_11_a_removed_file_that_is_back_changes_nothing(setup: Setup) -> None:
    """Faults 11: a deleted queue stays deleted, its old messages stay gone, also when the name is used again."""

    def script(life: Life) -> None:
        life.put("B", number=3, size=5000)
        life.checkpoint()
        life.delete("B")
        life.checkpoint()
        life.define("B", "again")
        life.put("B", size=7)
        life.checkpoint()
        life.get("B")
        life.checkpoint()

    sweep(script, always(DATA_ONLY, LOSE_ALL), setup=setup, prelude=born)
    sweep(script, mixes(3), setup=setup, prelude=born, offset=1)


@pytest.mark.parametrize("size", [6, 9000], ids=["part of a page", "pages"])
def test_row_12_no_acknowledgement_for_a_write_after_the_sync_began(size: int) -> None:
    """Faults 12: while one commit is being synced another thread commits; its acknowledgement means its own sync."""
    life = Life(TRIPLE)
    born(life)
    qm, disk = life.qm, life.disk
    acknowledged: list[bytes] = []
    in_sync, go_on = threading.Event(), threading.Event()
    first = [True]

    def slow(path: str) -> None:
        if first[0] and path.endswith(".LOG"):
            first[0] = False
            in_sync.set()
            assert go_on.wait(120)

    def put(body: bytes) -> None:
        qm.put("B", body)
        acknowledged.append(body)

    disk.during_sync = slow
    leader = threading.Thread(target=put, args=(b"leader".ljust(size, b"x"),))
    leader.start()
    assert in_sync.wait(120)
    others = [threading.Thread(target=put, args=(b"%d" % n,)) for n in range(8)]
    for thread in others:
        thread.start()
    for thread in others:
        thread.join(0.02)
    assert not acknowledged  # nobody is told anything while the first sync is still under way
    before = disk.snapshot(LOSE_ALL)
    go_on.set()
    for thread in [leader, *others]:
        thread.join(120)
        assert not thread.is_alive()
    assert len(acknowledged) == 9
    disk.during_sync = None

    def bodies(found: SimDisk) -> set[bytes]:
        again = Life(TRIPLE, found)
        again.start()
        return {m.body for m in again.qm.browse("B")}

    assert bodies(before) == set()
    assert bodies(disk.crash(LOSE_ALL)) == set(acknowledged)


@EVERY_LOG
def test_row_13_a_queue_directory_lost(setup: Setup) -> None:
    """Faults 13: mkdir is lost unless the directory above it is synced."""

    def script(life: Life) -> None:
        for name in ("D.ONE", "D/TWO"):
            life.define(name)
            life.put(name, size=3000)
            life.checkpoint()
        life.put("D.ONE", size=20)

    losses = [DATA_ONLY, LOSE_ALL, *(Loss(seed=n, sectors="new", sizes="new") for n in range(3))]
    sweep(script, always(*losses), setup=setup, prelude=born)


def secondaries(life: Life) -> None:
    """A long unit of work makes the log take its secondary files, and gives them back."""
    unit = life.begin()
    for _ in range(49):
        if not life.put("A", size=16000, unit=unit):
            break
    life.checkpoint()
    if unit in life.open:
        life.backout(unit)
    if life.setup.linear:
        life.record_image()
    life.checkpoint()
    laps(life, 0.5)


MANY = Setup(primary_files=2, secondary_files=2)
MANY_LINEAR = attrs.evolve(MANY, log_type="linear", log_management="Automatic")
MANY_OF_EVERY_LOG = pytest.mark.parametrize("setup", [MANY, MANY_LINEAR], ids=["circular", "linear"])


@MANY_OF_EVERY_LOG
def test_row_14_a_log_file_lost_between_create_and_use(setup: Setup) -> None:
    """Faults 14: create, fill, header, sync, directory: each may be the last."""
    sweep(born, mixes(3), setup=setup)
    sweep(secondaries, mixes(1), setup=setup, prelude=born, every=2, offset=1)
    sweep(secondaries, always(LOSE_ALL), setup=setup, prelude=born, every=3)


ACKNOWLEDGED: dict[str, Callable[[Life], object]] = {
    "put": lambda life: life.put("A"),
    "put_many": lambda life: life.put("A", number=5),
    "get": lambda life: life.get("A"),
    "get_many": lambda life: life.get("A", limit=3),
    "commit": lambda life: life.commit(unit_of(life)),
    "prepare": lambda life: life.prepare(unit_of(life, XID)),
    "commit of a prepared unit": lambda life: commit_prepared(life),
    "resolve, backing out": lambda life: resolve_prepared(life),
    "define": lambda life: life.define("NEW", "of the queue"),
    "alter": lambda life: life.alter("A", "altered"),
    "delete": lambda life: life.delete("A"),
    "clear": lambda life: life.clear("A"),
    "checkpoint": lambda life: life.checkpoint(),
    "end": lambda life: life.end(),
}


def unit_of(life: Life, xid: object = None) -> object:
    unit = life.begin(xid)
    life.get("A", unit=unit)
    life.put("A", priority=7, unit=unit)
    life.put("B", size=5000, unit=unit)
    return unit


def commit_prepared(life: Life) -> None:
    unit = unit_of(life, XID)
    life.prepare(unit)
    life.commit(unit)


def resolve_prepared(life: Life) -> None:
    life.prepare(unit_of(life, XID))
    life.resolve(XID, commit=False)


@EVERY_LOG
@pytest.mark.parametrize("verb", ACKNOWLEDGED)
def test_row_15_each_kind_of_acknowledgement_holds(verb: str, setup: Setup) -> None:
    """Faults 15: whatever returned is there after the loss of everything unsynced, at once and two restarts later."""
    seeds = range(9) if SOAK else range(([*ACKNOWLEDGED].index(verb) + setup.linear) % 3, 9, 5)
    for loss in (LOSE_ALL, ZEROED, NOISED, DATA_ONLY, *map(mixed, seeds)):
        life = Life(setup)
        born(life)
        ACKNOWLEDGED[verb](life)
        assert len(life.allowed) == 1
        for _ in range(3):
            life.crash(loss)
            life.restart()
        life.settle()


def test_row_15_an_image_that_was_acknowledged_is_one_to_recover_from() -> None:
    """Faults 15: and the log before it is not needed any more."""
    for loss in (LOSE_ALL, ZEROED, NOISED, DATA_ONLY, *map(mixed, range(6))):
        life = Life(AUTOMATIC)
        born(life)
        life.record_image()
        needed = life.qm.oldest_extents()[1]
        for _ in range(2):
            life.crash(loss)
            life.restart()
            assert life.qm.oldest_extents()[1] == needed
        life.keep_log("advance")
        life.keep_log("remove")
        assert life.harm("A", random.Random(1))
        life.crash(KEEP_ALL)
        life.restart()
        assert life.found_damaged + life.healed_at_start > 0, "it was built again"
        life.settle()


# -- b. recovery and log life --------------------------------------------------------------------------------------


def deeper(depth: int, losses: Callable[[int], Iterable[Loss]], every: int) -> Callable[[Life, int], None]:
    """Crash inside recovery, at every change it makes; inside the recovery of that, down to `depth`."""

    def look(fork: Life, moment: int) -> None:
        again = fork.fork(KEEP_ALL)
        again.restarts = fork.restarts
        inner = Sweep(again, losses, every=every, deeper=deeper(depth - 1, losses, every * 5) if depth > 2 else None)
        with Lookout(again.disk, inner.look):
            again.restart()

    return look


@EVERY_SETUP
def test_row_16_crash_inside_recovery_at_every_change(setup: Setup) -> None:
    """Faults 16: twice at every change of it, three times at some."""
    losses = itertools.cycle([LOSE_ALL, KEEP_ALL, mixed(16, atomic=setup.atomic)])
    sweep(
        everything,
        lambda moment: [next(losses)],
        setup=setup,
        every=1 if SOAK else 35,
        deeper=deeper(3, lambda moment: [mixed(moment, atomic=setup.atomic)], 1 if SOAK else 3),
    )


@EVERY_SETUP
def test_row_17_recover_work_on_crash_again(setup: Setup) -> None:
    """Faults 17: second, third and fourth round from over a hundred lossy states; no LSN is used twice."""
    states = 0
    for seed in range(400 if SOAK else 30):
        life = Life(setup, seed=seed)
        born(life)
        ends: list[int] = []
        for round_ in range(4):
            life.disk.crash_after(1 + (seed * 7 + round_ * 3) % 23, part=(seed % 4) / 4)
            try:
                for n in range(50):
                    life.put("A", size=1 + (n * 977 + seed) % 9000)
                    unit = life.begin()
                    life.get("A", unit=unit)
                    life.put("B", unit=unit)
                    life.commit(unit)
            except SimCrash:
                states += 1
            life.crash(mixed(seed * 10 + round_, atomic=setup.atomic))
            life.restart()
            report = life.qm.restart_report
            assert not ends or report.epoch > ends[-1], (seed, report)
            ends.append(report.epoch)
    assert states >= 100


@EVERY_LOG
def test_row_17_what_a_killed_process_left_in_memory_is_durable_before_the_log_goes_on(setup: Setup) -> None:
    """Faults 1, 16, 17: killed with two extents written and not synced; the power fails while the next one starts."""
    alive = Loss(sectors="new", sizes="new", names="new", alive=True)
    life = Life(attrs.evolve(setup, primary_files=3, secondary_files=2))
    life.create()
    life.start()
    life.define("A")
    life.put("A", size=10)
    long = life.begin()
    for _ in range(60):
        life.put("A", size=9000, unit=long)
    extent_bytes = life.setup.file_pages * PAGE
    log = life.qm.status().log
    assert log.tail // extent_bytes > log.head // extent_bytes
    killed = life.fork(alive)
    killed.disk.crash_after(1 << 30)
    before = killed.disk.effects
    killed.start()
    for moment in range(1, killed.disk.effects - before + 1):
        again = life.fork(alive)
        again.disk.crash_after(moment)
        with pytest.raises(SimCrash):
            again.start()
        again.crash(LOSE_ALL)
        again.restart()


@EVERY_SETUP
def test_row_18_a_checkpoint_half_done(setup: Setup) -> None:
    """Faults 18: the old checkpoint is good until the new one is wholly durable."""
    atomic = setup.atomic
    sweep(checkpoints, mixes(3, atomic=atomic), setup=setup, prelude=born, offset=1)
    sweep(checkpoints, always(*(ATOMIC_LOSS if atomic else EVERY_LOSS)), setup=setup, prelude=born, every=2)


BORDERS = (1, 3900, 4096, 8150, 12288, 100_000, 300_000)


@pytest.mark.parametrize("size", BORDERS)
def test_row_20_a_record_over_borders_whose_second_part_is_lost(size: int) -> None:
    """Faults 20: messages of one byte to more than a log file; the next life writes over what was abandoned."""

    def script(life: Life) -> None:
        life.put("A", size=size)
        life.get("A")
        life.put("B", size=size)

    setup = Setup(primary_files=3, secondary_files=2)
    sweep(script, mixes(4), setup=setup, prelude=born)
    sweep(script, always(LOSE_ALL, KEEP_ALL), setup=setup, prelude=born, offset=1)


@EVERY_SETUP
def test_row_21_crash_at_each_switch_while_the_log_wraps(setup: Setup) -> None:
    """Faults 21: three laps and more; the head never runs over the oldest LSN that a restart needs."""
    life = Life(setup)
    born(life)
    switches = 0
    seen: set[str] = set()

    def look(kind: str, path: str) -> None:
        nonlocal switches
        named = path.endswith(".lfh") or "checkpoint" in life.story[-1]
        if kind == "write" and path.endswith(".LOG"):
            if path in seen:
                return
            seen.clear()
            seen.add(path)
            switches += 1
        elif not named or ((life.disk.effects + setup.linear) % 2 and not SOAK):
            return
        both = (LOSE_ALL, mixed(life.disk.effects, atomic=setup.atomic))
        for loss in both if SOAK else both[(switches + setup.atomic) % 2 :][:1]:
            fork = life.fork(loss)
            fork.restart()
            fork.put("A", size=100)
            fork.crash(LOSE_ALL)
            fork.restart()

    with Lookout(life.disk, look):
        laps(life, 3.5)
    assert laps_of(life) >= 3
    assert switches >= 9


def new_extents(disk: SimDisk) -> Callable[[str], bool]:
    """Which paths belong to log extents that are not there yet."""
    before = set(disk.files())
    return lambda path: path.endswith((".LOG", "/active")) and path not in before


@MANY_OF_EVERY_LOG
@pytest.mark.parametrize("error", [errno.ENOSPC, errno.EDQUOT], ids=["ENOSPC", "EDQUOT"])
def test_row_22_a_secondary_file_that_can_not_be_made(error: int, setup: Setup) -> None:
    """Faults 22: the n-th call on the way to a secondary fails; work goes on, and a restart finds all of it."""
    calls = [("create", 1), ("create", 2), ("write", 1), ("write", 2), ("sync", 1), ("sync_dir", 1)]
    for kind, nth in calls:
        life = Life(setup)
        born(life)
        fault = life.disk.fail(kind, error, nth=nth, where=new_extents(life.disk))
        secondaries(life)
        assert fault.fired, kind
        life.check()
        life.crash(LOSE_ALL)
        life.restart()


@MANY_OF_EVERY_LOG
def test_row_22_crash_while_secondaries_come_and_go(setup: Setup) -> None:
    """Faults 22: states on the way of a secondary from nothing to use to nothing."""
    found = sweep(secondaries, mixes(1), setup=setup, prelude=born, every=3)
    assert found.life.disk.counts["create"] > 5
    assert any(kind == "unlink" and path.endswith(".LOG") for kind, path in found.life.disk.trace)


@EVERY_LOG
def test_row_27_prepared_over_twenty_restarts(setup: Setup) -> None:
    """Faults 27: in doubt each time, over checkpoints and wraps; resolved; then never in doubt again."""
    for commit in (True, False):
        life = Life(setup)
        born(life)
        life.prepare(unit_of(life, XID))
        for turn in range(20):
            assert set(life.qm.in_doubt()) == {XID}
            if turn % 3 == 0:
                life.checkpoint()
            if turn % 5 == 1:
                laps(life, 0.4)
            if turn % 4 == 2:
                life.end()
                life.start()
                life.check()
            else:
                life.crash(mixed(turn))
                life.restart()
        life.resolve(XID, commit=commit)
        for _ in range(3):
            life.crash(LOSE_ALL)
            life.restart()
            assert not life.qm.in_doubt()


@pytest.mark.parametrize("commit", [True, False], ids=["commit", "backout"])
def test_row_28_crash_while_a_prepared_unit_is_resolved(commit: bool) -> None:
    """Faults 28: it is prepared still or as told, nothing else; telling it again works."""

    def prelude(life: Life) -> None:
        born(life)
        life.prepare(unit_of(life, XID))

    def script(life: Life) -> None:
        life.resolve(XID, commit=commit)
        life.put("A")

    def again(fork: Life, moment: int) -> None:
        twin = fork.fork(KEEP_ALL)
        twin.restart()
        if twin.qm.in_doubt():
            twin.resolve(XID, commit=commit)
        twin.crash(LOSE_ALL)
        twin.restart()
        assert not twin.qm.in_doubt()

    for losses in (mixes(3), always(*EVERY_LOSS)):
        sweep(script, losses, prelude=prelude, deeper=again, short=True)


@EVERY_LOG
def test_row_29_crash_in_a_backout_and_in_the_backout_that_recovery_makes(setup: Setup) -> None:
    """Faults 29: what it put is nowhere, what it got is back in its place; twice."""

    def script(life: Life) -> None:
        one, two = life.begin(), life.begin()
        life.get("A", unit=one)
        life.put("B", unit=one, size=5000)
        life.get("A", unit=two)
        life.put("A", unit=two, priority=9)
        life.put("B", size=10)  # forces what came before it
        life.backout(one)
        life.put("B", size=10)

    sweep(script, mixes(3), setup=setup, prelude=born)
    sweep(script, mixes(1), setup=setup, prelude=born, offset=1, deeper=deeper(2, mixes(1), 1 if SOAK else 2))
    sweep(script, always(LOSE_ALL, KEEP_ALL), setup=setup, prelude=born, offset=3)


@MANY_OF_EVERY_LOG
def test_row_30_a_long_unit_of_work_meets_the_full_log(setup: Setup) -> None:
    """Faults 30: the oldest is backed out wholly and is told at its next call; a prepared one is kept; others go on."""
    life = Life(setup)
    born(life)
    life.prepare(unit_of(life, XID))
    old = life.begin()
    life.get("A", unit=old)
    life.put("B", size=100, unit=old)
    owner = life.open[old]
    for n in range(300):
        life.put("A", size=9000)
        life.get("A")
        if n % 50 == 0:
            young = life.begin()
            life.put("B", size=10, unit=young)
            life.commit(young)
        if old not in life.open:
            break
    else:
        raise AssertionError("the oldest unit of work was never backed out")
    assert not life.refused
    for call in (lambda: owner.put("A", b"late"), lambda: owner.get("A"), owner.commit):
        with pytest.raises(qmgr.BackedOut):
            call()
    owner.backout()  # succeeds: there is nothing left to undo
    life.check()
    assert life.model.in_doubt() == {XID}
    laps(life, 2)
    life.crash(LOSE_ALL)
    life.restart()
    life.resolve(XID, commit=True)
    life.check()


def test_row_30_the_backout_count_of_a_unit_that_was_rolled_back_is_durable_when_its_backout_returns() -> None:
    """Faults 29, 30; P3: whoever backs a unit of work out may believe the count, whoever has rolled it back."""
    life = Life()
    life.create()
    life.start()
    life.define("A")
    life.put("A", size=10)
    owner = life.qm.begin()
    owner.get("A")
    life.qm._housekeeper.log_space._release_unit(owner._unit)
    owner.backout()
    life.crash(LOSE_ALL)
    life.start()
    assert [m.backout_count for m in life.qm.browse("A")] == [1]


@MANY_OF_EVERY_LOG
def test_row_31_commit_and_backout_when_the_log_is_full(setup: Setup) -> None:
    """Faults 31: many open units fill the log; every commit and backout of one that is still there succeeds."""
    life = Life(setup)
    born(life)
    for turn in range(6):
        units = [life.begin() for _ in range(12)]
        refused = life.refused
        for n in range(400):
            unit = units[n % len(units)]
            if unit in life.open:
                life.put("A", size=9000, unit=unit)
            if life.refused > refused or not any(unit in life.open for unit in units):
                break
        else:
            raise AssertionError("the log never filled up")
        for n, unit in enumerate(units):
            if unit in life.open:
                (life.commit if (n + turn) % 2 else life.backout)(unit)
        life.check()
        life.get("A", limit=1 << 20)
        life.crash(LOSE_ALL)
        life.restart()
    assert life.refused + life.rolled_back > 5


def test_row_34_order_priority_ids_and_backout_counts_over_restarts() -> None:
    """Faults 34."""
    life = Life(TRIPLE)
    born(life)
    for n in range(60):
        life.put("A", priority=n * 7 % 10, correlation=n % 5, size=30 + n * 40)
        if n % 7 == 3:
            unit = life.begin()
            life.get("A", unit=unit, correlation=n % 5)
            life.get("A", unit=unit)
            life.put("A", unit=unit, priority=3)
            (life.backout if n % 2 else life.commit)(unit)
        if n % 20 == 19:
            life.checkpoint()
        if n % 10 == 9:
            before = life.observe()
            if n % 20 == 9:
                life.crash(mixed(n))
                life.restart()
            else:
                life.end()
                life.start()
                life.check()
            assert life.observe() == before
    assert any(message[4] for message in life.observe()["A"][1])  # some were backed out


def test_row_34_expiry_and_properties_over_restarts() -> None:
    """Faults 34: what else a message carries."""
    life = Life(TRIPLE)
    born(life)
    life.qm.put("B", b"short", expiry=50.0)
    life.qm.put("B", b"long", expiry=5000.0, reply_to="A", format="MQSTR", properties={"a": 1, "b": "two", "c": b"3"})
    before = [(m.body, m.reply_to, m.format, dict(m.properties), m.put_time) for m in life.qm.browse("B")]
    assert [found[0] for found in before] == [b"short", b"long"]
    life.disk = life.disk.crash(LOSE_ALL)
    life.start()
    assert [(m.body, m.reply_to, m.format, dict(m.properties), m.put_time) for m in life.qm.browse("B")] == before
    life.clock.advance(100)
    assert [m.body for m in life.qm.browse("B")] == [b"long"]
    (left,) = [m.expiry for m in life.qm.browse("B")]
    assert 4800 < left < 4901


def test_row_35_after_a_crash_the_outcome_can_be_asked_and_a_retry_does_not_duplicate() -> None:
    """Faults 35: an application that knows only what was returned to it does its work exactly once, by the Xid."""
    steps = ["nothing"]

    def script(life: Life) -> None:
        unit = life.begin(XID)
        life.get("A", unit=unit)
        life.put("B", size=40, priority=9, unit=unit)
        life.put("A", size=9000, priority=9, unit=unit)
        life.prepare(unit)
        steps.append("prepared")
        life.commit(unit)
        steps.append("committed")

    def retry(fork: Life, moment: int) -> None:
        twin = fork.fork(KEEP_ALL)
        twin.restart()
        if XID in twin.qm.in_doubt():
            twin.resolve(XID, commit=True)
        elif steps[-1] == "nothing":
            # prepare did not return: it did not happen, or it is in doubt, which was looked at above
            script(twin)
            del steps[1:]
        twin.crash(LOSE_ALL)
        twin.restart()
        assert not twin.qm.in_doubt()
        seen = twin.observe()
        assert [m[1] for m in seen["B"][1]] == [9]
        assert [m[1] for m in seen["A"][1]] == [9, 1, 0, 0]

    for losses in (mixes(4), always(*EVERY_LOSS)):
        del steps[1:]
        sweep(script, losses, prelude=born, deeper=retry, short=True)
        assert steps == ["nothing", "prepared", "committed"]


@EVERY_SETUP
def test_row_37_an_end_in_order_that_is_interrupted(setup: Setup) -> None:
    """Faults 37: at each step of it."""

    def prelude(life: Life) -> None:
        born(life)
        life.prepare(unit_of(life, XID))
        life.put("A", persistent=False)
        unit = life.begin()
        life.get("A", unit=unit)
        life.put("B", unit=unit)

    def script(life: Life) -> None:
        life.end()

    atomic = setup.atomic
    named = ATOMIC_LOSS if atomic else EVERY_LOSS
    sweep(script, always(*named), setup=setup, prelude=prelude)
    sweep(script, mixes(2 if setup.linear else 4, atomic=atomic), setup=setup, prelude=prelude, offset=1)
    sweep(
        script,
        mixes(1, atomic=atomic),
        setup=setup,
        prelude=prelude,
        offset=3,
        deeper=deeper(2, mixes(1, atomic=atomic), 3),
    )
