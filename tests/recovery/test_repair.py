"""Repair: every row of its table; what it says would be lost is what is lost; any crash or error, and it goes on."""

import contextlib
import errno
import random
import re
from collections import Counter
from collections.abc import Callable
from itertools import count
from pathlib import Path
from zlib import crc32

import attrs
import pytest

import qmgr
from logger import control, extent, frame, integrity, lsn
from logger.at_rest import control_path, read_only
from logger.compressed import Compression, compress
from logger.control import ControlState
from logger.extent import DATA, decode_header, file_name
from logger.reader import Record
from logger.whole_files import make_dirs
from qmgr import ini, locations, repairing
from qmgr.pointintime import recover_to
from qmgr.repairing import Repair
from qmgr.segment_files import segment_path, segments_below
from recovery import checkpoint, records
from recovery.checkpoint import decode_file
from recovery.diagnosis import TABLE, Lost, WriteBytes, WriteMade
from recovery.records import Kind
from recovery.uows import UowState
from tests.conftest import SOAK
from tests.model import Model
from tests.sim.clock import SimClock
from tests.sim.disk import SimCrash, SimDisk
from tests.sim.life import DATA as DATA_PATH
from tests.sim.life import LOG as LOG_PATH
from tests.sim.life import NAME, Life, Lookout, Setup, random_life, random_step
from tests.sim.loss import KEEP_ALL, LOSE_ALL, mixed
from tests.test_crash import born, laps, work_on
from tests.test_damage import blot, lie
from tests.test_damage import cut as cut_off
from tests.test_damage import flip as flip_bit
from tests.test_damage import swap as swap_pages

PAGE = 4096
CIRCULAR = Setup(primary_files=3, secondary_files=2)
LINEAR = Setup(primary_files=3, secondary_files=2, log_type="linear")
HOME = f"{DATA_PATH}/qmgrs/{NAME}"
LOG = f"{LOG_PATH}/{NAME}"
CONTROL = f"{LOG}/{control.NAME}"
NEWEST = f"{HOME}/{checkpoint.NAME}"
PREVIOUS = f"{HOME}/{checkpoint.PREVIOUS}"
INI = f"{HOME}/qm.ini"
XID = qmgr.Xid(7, b"repaired", b"")


class Past:
    """A queue manager that was, and what each end of its log would have left: (LSN, model) for each durable state."""

    def __init__(self, setup: Setup, *, clean: bool, turns: float = 1.6) -> None:
        self.life = life = Life(setup)
        self.clean = clean
        self.moments: list[tuple[int, Model]] = []
        born(life)
        laps(life, turns)
        life.checkpoint()
        self.early = life.disk.snapshot(KEEP_ALL)  # of the same epoch
        self.early_model = life.model.copy()
        life.end()
        self.ended_before = life.disk.snapshot(KEEP_ALL)
        life.start()
        self.remember()
        for n in range(3):
            life.put("A", size=300 + 900 * n)
            self.remember()
        life.checkpoint()
        self.remember()
        doubt = life.begin(XID)
        life.get("A", unit=doubt)
        life.put("B", unit=doubt, size=5000)
        life.prepare(doubt)
        self.remember()
        life.put("B")
        self.remember()
        life.checkpoint()
        self.remember()
        for n in range(50 if setup.linear else 44):  # over three extents at least
            unit = life.begin()
            life.put("A", unit=unit, size=11000 + n)
            life.put("B", unit=unit, size=500)
            life.commit(unit)
            self.remember()
            life.get("A")
            self.remember()
            life.put("B", size=30)
            self.remember()
        if clean:
            life.end()
        after = life.model.copy()
        after.crash()
        self.last = after
        self.disk = life.disk.snapshot(KEEP_ALL)
        self.state = control.read(self.disk, CONTROL)[1]
        self.extent_bytes = self.state.extent_bytes
        decoded = checkpoint.decode_file(self.disk.peek(NEWEST))
        assert decoded is not None
        self.checkpoint = decoded[0]
        self.head = self.checkpoint.head
        _, reader = read_only(self.disk, LOG)
        with contextlib.closing(reader):
            fills = {one.end: one.lsn for one in reader.records(self.head) if one.kind == Kind.FILL}
        self.moments = [(fills.get(end, end), model) for end, model in self.moments]

    def remember(self) -> None:
        model = self.life.model.copy()
        model.crash()
        self.moments.append((self.life.qm.status().log.tail, model))

    def fork(self) -> Life:
        """A life on a copy of the disk, which may find what was there last."""
        life = Life(self.life.setup, self.disk.snapshot(KEEP_ALL))
        life.clock.wall = self.life.clock.wall + 1_000_000
        life.model, life.allowed = self.last, [self.last]
        life.made, life.crashed = True, True
        life.count = self.life.count + 1000
        return life

    def as_of(self, end: int) -> Model:
        """What is there when the log ends at this LSN."""
        return max((one for one in self.moments if one[0] <= end), key=lambda one: one[0])[1]

    @property
    def sequences(self) -> dict[int, str]:
        """The paths of the extents that a restart needs, by sequence."""
        needed = self.head // self.extent_bytes
        return {s: path_of(number) for number, s in self.state.extents if s >= needed and s}

    @property
    def middle(self) -> tuple[int, str]:
        """An extent that a restart needs, after the checkpoint and before the last one."""
        first = self.checkpoint.lsn // self.extent_bytes
        sequence = sorted(s for s in self.sequences if s > first)[0]
        assert sequence < max(self.sequences)
        return sequence, self.sequences[sequence]


def path_of(number: int) -> str:
    return f"{LOG}/active/{file_name(number)}"


CASES = {
    "circular-killed": (CIRCULAR, False),
    "circular-ended": (CIRCULAR, True),
    "linear-killed": (LINEAR, False),
}
_PASTS: dict[str, Past] = {}


@pytest.fixture(params=CASES)
def past(request: pytest.FixtureRequest) -> Past:
    return of(request.param)


def of(case: str) -> Past:
    if case not in _PASTS:
        setup, clean = CASES[case]
        _PASTS[case] = Past(setup, clean=clean)
    return _PASTS[case]


@pytest.fixture(params=["circular-killed", "linear-killed"])
def killed(request: pytest.FixtureRequest) -> Past:
    """One whose log goes over several extents from the checkpoint on."""
    return of(request.param)


def check(life: Life, log_path: str | None = LOG_PATH) -> Repair:
    before = everything(life.disk)
    found = repairing.check(NAME, data_path=DATA_PATH, log_path=log_path, disk=life.disk)
    assert everything(life.disk) == before, "check changes nothing"
    return found


def repair(life: Life, *, accept_loss: bool = False, log_path: str | None = LOG_PATH) -> Repair:
    return repairing.repair(
        NAME, data_path=DATA_PATH, log_path=log_path, accept_loss=accept_loss, disk=life.disk, clock=life.clock
    )


def everything(disk: SimDisk) -> dict[str, bytes]:
    return {path: disk.peek(path) for path in disk.files() if not path.endswith(".lock")}


def rows(done: Repair) -> set[str]:
    return {one.row.name for one in done.examination.findings}


def refused_by_start(life: Life) -> str:
    other = life.fork(KEEP_ALL)
    try:
        other.start()
    except qmgr.MQError as exc:
        return str(exc)
    other.qm.abandon()
    return ""


def goes_on(life: Life, model: Model) -> None:
    """It can be started, holds just what it should, and works on over crashes."""
    life.model, life.allowed, life.crashed, life.made = model, [model], True, True
    life.epoch = 0
    life.restart()
    work_on(life)
    laps(life, 1.2)
    life.crash(LOSE_ALL)
    life.restart()
    life.settle()
    life.end()
    assert rows(check(life)) <= {"control_one_copy_torn"}


def loses_what_is_accepted(life: Life, model: Model, row: str, start: int) -> None:
    """What is lost begins at the LSN `start`; nothing is changed before that is accepted."""
    found = check(life)
    assert row in rows(found)
    assert found.examination.lost is not None and found.examination.lost.start == start
    before = everything(life.disk)
    assert repair(life).report is None and everything(life.disk) == before
    assert repair(life, accept_loss=True).report is not None
    model.crash()
    goes_on(life, model)


def mended(life: Life, row: str, model: Model) -> Repair:
    """A repair that loses nothing: it says so before, and does it without --accept-loss."""
    found = check(life)
    assert row in rows(found), found.lines()
    assert found.needed and found.examination.lost is None and not found.examination.refused
    done = repair(life)
    assert rows(done) == rows(found) and done.report is not None and done.saved.startswith(f"{HOME}/repair-")
    goes_on(life, model)
    return done


def cut(past: Past, life: Life, row: str) -> Repair:
    """A repair that loses: not without --accept-loss, and just what it said."""
    found = check(life)
    assert row in rows(found), found.lines()
    lost = found.examination.lost
    assert lost is not None and lost.end > lost.start and found.needed
    before = everything(life.disk)
    refused = repair(life)
    assert refused.report is None and not refused.saved
    assert everything(life.disk) == before, "nothing without --accept-loss"
    done = repair(life, accept_loss=True)
    assert done.report is not None and done.report.end_lsn == lost.start
    for path, data in before.items():
        after = life.disk.peek(path) if life.disk.exists(path) else None
        if after != data and path.endswith((".LOG", ".lfh")) and "/errors/" not in path and after is None:
            assert data in [life.disk.peek(one) for one in life.disk.files(done.saved)], f"{path} was not saved"
    goes_on(life, past.as_of(lost.start))
    return done


def refused(life: Life, row: str, *, says: str = "", log_path: str | None = LOG_PATH) -> Repair:
    found = check(life, log_path)
    assert found.examination.refused and row in rows(found), found.lines()
    text = "\n".join(found.lines())
    assert says in text
    before = everything(life.disk)
    for accept in (False, True):
        done = repair(life, accept_loss=accept, log_path=log_path)
        assert done.report is None and done.examination.refused
    assert everything(life.disk) == before
    return found


def poke(life: Life, path: str, at: int, data: bytes) -> None:
    now = life.disk.peek(path)
    life.disk.poke(path, now[:at] + data + now[at + len(data) :])


def flip(life: Life, path: str, at: int) -> None:
    poke(life, path, at, bytes(byte ^ 255 for byte in life.disk.peek(path)[at : at + 4]))


# The table


def test_every_row_has_a_test() -> None:
    text = Path(__file__).read_text()
    for row in TABLE:
        assert f"def test_{row.name}(" in text, row.name


def test_the_table_is_in_the_document() -> None:
    text = (Path(__file__).parents[2] / "docs" / "recovery.md").read_text()
    for row in TABLE:
        assert row.found in text, row.name
        assert row.how in text, row.name


def test_nothing_wrong_nothing_changed(past: Past) -> None:
    life = past.fork()
    assert not rows(check(life))
    before = everything(life.disk)
    done = repair(life, accept_loss=True)
    assert not done.needed and done.report is None and done.lines() == ["There is nothing to repair."]
    assert everything(life.disk) == before
    goes_on(life, past.last)


def test_control_one_copy_torn(past: Past) -> None:
    life = past.fork()
    newest = control.read(life.disk, CONTROL)[0]
    older = 0 if newest % 2 == 0 else control.COPY_BYTES  # number n is at (n - 1) % 2
    poke(life, CONTROL, older + 30, b"????")
    found = check(life)
    assert rows(found) == {"control_one_copy_torn"} and not found.needed
    before = everything(life.disk)
    repair(life, accept_loss=True)
    assert everything(life.disk) == before
    goes_on(life, past.last)


def test_control_no_whole_copy(past: Past) -> None:
    life = past.fork()
    for at in (30, control.COPY_BYTES + 30):
        poke(life, CONTROL, at, b"????")
    assert "no whole copy" in refused_by_start(life)
    mended(life, "control_no_whole_copy", past.last)


def test_control_missing(past: Past) -> None:
    life = past.fork()
    life.disk.remove(CONTROL)
    mended(life, "control_missing", past.last)


def test_control_stale(past: Past) -> None:
    life = past.fork()
    life.disk.poke(CONTROL, past.ended_before.peek(CONTROL))
    mended(life, "control_stale", past.last)


def with_an_older_control_file() -> tuple[Life, bytes, ControlState]:
    """A life whose log can go on in extents that the control file of this moment does not name."""
    life = Life(Setup(primary_files=2, secondary_files=3))
    born(life)
    doubt = life.begin(XID)  # it holds the head
    life.put("B", unit=doubt)
    life.prepare(doubt)
    return life, life.disk.peek(CONTROL), control.read(life.disk, CONTROL)[1]


@pytest.mark.parametrize("size", [60, 30000])
@pytest.mark.parametrize("restarts", [0, 1])
def test_an_older_control_file_and_the_log_went_on_in_an_extent_that_it_does_not_name(size: int, restarts: int) -> None:
    """Whether the first page there is in its place yet, or in a spare page."""
    life, stale, state = with_an_older_control_file()
    for _ in range(restarts):
        life.end()
        life.start()
    while life.qm.status().log.tail // state.extent_bytes <= len(state.extents):
        life.put("A", size=9000)
    life.put("A", size=size)
    life.disk = life.disk.crash(KEEP_ALL)
    life.disk.poke(CONTROL, stale)
    assert not refused_by_start(life) and check(life).examination.lost is None
    model = life.model.copy()
    model.crash()
    goes_on(life, model)


def test_an_older_control_file_and_the_extent_that_the_log_went_on_in_was_cut() -> None:
    """Its records can be read, up to where it was cut; a start takes nothing that is not whole."""
    life = Life(LINEAR)
    born(life)
    stale, state = life.disk.peek(CONTROL), control.read(life.disk, CONTROL)[1]
    beyond = max(number for number, _ in state.extents) + 1
    while not life.disk.exists(path_of(beyond)) or life.qm.status().log.tail < (beyond + 1) * state.extent_bytes + 9000:
        life.put("A", size=9000)
    life.disk = life.disk.crash(KEEP_ALL)
    life.disk.poke(CONTROL, stale)
    life.disk.poke(path_of(beyond), life.disk.peek(path_of(beyond))[:-1])
    assert path_of(beyond) in refused_by_start(life)
    found = check(life)
    assert "extent_short" in rows(found) and found.examination.lost is not None
    model = life.model.copy()
    model.crash()
    assert repair(life, accept_loss=True).report is not None
    goes_on(life, model)


@pytest.mark.parametrize("gone", [1, 2, 4])
def test_an_older_control_file_and_an_extent_is_gone_that_only_it_needs(gone: int) -> None:
    """It has the head where it was, and a start asks for all from there; the newest checkpoint needs less."""
    life = Life(LINEAR)
    born(life)
    stale, state = life.disk.peek(CONTROL), control.read(life.disk, CONTROL)[1]
    while life.qm.status().log.head < 7 * state.extent_bytes:
        life.put("A", size=9000)
        life.checkpoint()
    life.put("A")
    model = as_it_was(life)
    life.disk.poke(CONTROL, stale)
    life.disk.remove(path_of(gone))
    assert path_of(gone) in refused_by_start(life)
    mended(life, "extent_not_needed", model)


@pytest.mark.parametrize("writes", [1, 2, 3, 4, 5, 6, 7])
def test_an_older_control_file_and_what_went_on_is_a_part_of_a_record(writes: int) -> None:
    """A start takes the extent for what it says it is, whatever the crash has left of a long record there."""
    life, stale, state = with_an_older_control_file()
    border = (len(state.extents) + 1) * state.extent_bytes
    while life.qm.status().log.tail < border - 20_000:
        life.put("A", size=9000)
    model = life.model.copy()
    life.disk.crash_after(writes)
    with contextlib.suppress(SimCrash):
        life.put("A", size=100_000)
    life.disk = life.disk.crash(KEEP_ALL)
    life.disk.poke(CONTROL, stale)
    assert not refused_by_start(life) and not check(life).needed
    model.crash()
    goes_on(life, model)


@pytest.mark.parametrize("ended", [False, True], ids=["crashed", "ended"])
def test_a_copy_that_is_put_back_over_a_log_that_has_more_extents_since(ended: bool) -> None:
    """They are of another life: the log ends before it comes to them."""
    life = Life(Setup(primary_files=2, secondary_files=3))
    born(life)
    life.put("A", size=4000)
    if ended:
        life.end()
    model, early = life.model.copy(), life.disk.snapshot(KEEP_ALL)
    if ended:
        life.start()
    doubt = life.begin(XID)  # it holds the head
    life.put("B", unit=doubt)
    life.prepare(doubt)
    while life.qm.status().log.files < 4:
        life.put("A", size=9000)
    life.disk = life.disk.crash(KEEP_ALL)
    for path in early.files("/base"):
        life.disk.poke(path, early.peek(path))
    model.crash()
    goes_on(life, model)


@pytest.mark.parametrize("ended", [False, True], ids=["crashed", "ended"])
def test_a_copy_that_is_put_back_over_a_linear_log_that_went_on_since(ended: bool) -> None:
    """Of the extents that were made since it is not known whose they are: a start refuses, and repair has a way."""
    life = Life(LINEAR)
    born(life)
    life.put("A", size=4000)
    tail = life.qm.status().log.tail
    if ended:
        life.end()
    model, early = life.model.copy(), life.disk.snapshot(KEEP_ALL)
    end = control.read(early, CONTROL)[1].clean_end or tail
    if ended:
        life.start()
    while life.qm.status().log.tail // (64 * PAGE) <= 5:
        life.put("A", size=9000)
    life.disk = life.disk.crash(KEEP_ALL)
    for path in early.files("/base"):
        life.disk.poke(path, early.peek(path))
    assert "which a restart needs" in refused_by_start(life)
    loses_what_is_accepted(life, model, "extent_missing", end)


def test_control_foreign(past: Past) -> None:
    life = past.fork()
    life.disk.poke(CONTROL, another(past).peek(CONTROL))
    mended(life, "control_foreign", past.last)


def another(past: Past) -> SimDisk:
    """The disk of another queue manager of that name and size."""
    other = Life(past.life.setup, SimDisk(99))
    born(other)
    laps(other, 1.2)
    other.end()
    return other.disk


def test_checkpoint_newest_damaged(past: Past) -> None:
    life = past.fork()
    poke(life, NEWEST, 60, b"????")
    found = check(life)
    assert "checkpoint_newest_damaged" in rows(found) and not found.needed
    goes_on(life, past.last)


def with_old_checkpoints() -> tuple[Life, bytes]:
    """A linear log that has gone on for some extents since this checkpoint, and has images of its queues since."""
    life = Life(LINEAR)
    born(life)
    life.checkpoint()
    old = life.disk.peek(NEWEST)
    size = control.read(life.disk, CONTROL)[1].extent_bytes
    while life.qm.status().log.tail < 6 * size:
        life.put("A", size=9000)
        life.checkpoint()
    life.record_image()
    for _ in range(2):
        life.checkpoint()
    return life, old


def as_it_was(life: Life) -> Model:
    life.disk = life.disk.crash(KEEP_ALL)
    model = life.model.copy()
    model.crash()
    return model


def test_checkpoints_older_than_the_active_log_and_the_archive_has_what_lies_between() -> None:
    life, old = with_old_checkpoints()
    life.keep_log("archive")
    life.put("A")
    model = as_it_was(life)
    life.disk.poke(NEWEST, old)
    life.disk.remove(PREVIOUS)
    assert "no longer reaches back" in refused_by_start(life)
    mended(life, "extent_in_the_archive", model)


def test_checkpoints_older_than_the_log_and_the_images_have_all() -> None:
    """The log can't be cut where it does not reach back to, as long as there is something better."""
    life, old = with_old_checkpoints()
    life.put("A")
    model = as_it_was(life)
    for number in range(4):
        life.disk.remove(path_of(number))
    for path in (NEWEST, PREVIOUS):
        life.disk.poke(path, old)
    assert "no longer reaches back" in refused_by_start(life)
    mended(life, "checkpoints_lost_images_there", model)


@pytest.mark.parametrize("again", [False, True])
def test_a_unit_of_work_that_ended_behind_the_cut_had_begun_in_what_is_archived_by_now(again: bool) -> None:
    """The head was before it then, and is not any more."""
    life = Life(LINEAR)
    born(life)
    life.record_image()
    unit = life.begin()
    life.put("A", size=9000, unit=unit)
    life.checkpoint()
    size = control.read(life.disk, CONTROL)[1].extent_bytes
    for extents in (3, 4):
        while life.qm.status().log.tail < extents * size:
            life.put("A", size=9000)
        if extents == 3:
            if again:
                life.put("A", size=9000, unit=unit)
            life.put("A", size=9000, unit=life.begin())  # this one keeps the head before the cut, to the end
            life.checkpoint()
    early, place = life.model.copy(), life.qm.status().log.tail
    life.put("B")
    life.commit(unit)
    for _ in range(2):
        life.put("B", size=9000)
        life.checkpoint()
    life.keep_log("archive")
    life.disk = life.disk.crash(KEEP_ALL)
    assert not life.disk.exists(path_of(0)) and life.disk.exists(path_of(place // size - 1))
    flip(life, path_of(place // size - 1), DATA + place % size + 60)
    for path in (NEWEST, PREVIOUS):
        life.disk.remove(path)
    assert refused_by_start(life)
    assert "extent_in_the_archive" in rows(check(life))
    loses_what_is_accepted(life, early, "checkpoints_lost_images_there", place)


def test_checkpoint_foreign(past: Past) -> None:
    life = past.fork()
    life.disk.poke(NEWEST, another(past).peek(NEWEST))
    found = check(life)
    assert "checkpoint_foreign" in rows(found) and not found.needed
    goes_on(life, past.last)


def test_checkpoints_lost_log_complete() -> None:
    for setup in (CIRCULAR, LINEAR):
        life = Life(setup)
        born(life)
        life.put("B", size=9000, number=3)
        life.delete("A")
        life.define("A", "again")
        doubt = life.begin(XID)
        life.get("B", unit=doubt)
        life.put("A", unit=doubt)
        life.prepare(doubt)
        life.checkpoint()
        life.put("A", size=100)
        life.crash(KEEP_ALL)
        for path in (NEWEST, PREVIOUS):
            poke(life, path, 60, b"????")
        assert "can't be read" in refused_by_start(life)
        assert "checkpoint_newest_damaged" not in rows(check(life)), "there is none before it"
        row = "checkpoints_lost_log_complete" if setup is CIRCULAR else "checkpoints_lost_images_there"
        mended(life, row, life.model)


def test_segments_get_numbers_that_no_file_has_however_long_those_are() -> None:
    disk, where = SimDisk(), locations.find(NAME, DATA_PATH)
    for number in (7, 123_456_789):
        make_dirs(disk, f"{where.queues}/Q")
        disk.poke(segment_path(f"{where.queues}/Q", number), b"segment")
    assert repairing._counters(disk, where)["segment"] == 123_456_790


def test_segments_of_a_queue_that_is_built_again_of_images_get_such_numbers_too() -> None:
    """The log has those of the segments that were there when it was written, and no more."""
    life = Life(LINEAR)
    born(life)
    life.put("A", size=9000, number=3)
    life.qm.record_image()
    life.crash(KEEP_ALL)
    state = control.read(life.disk, CONTROL)[1]
    for path in (NEWEST, PREVIOUS):
        poke(life, path, 60, b"????")
    where = locations.find(NAME, DATA_PATH)
    queue = next(name for name, numbers in segments_below(life.disk, where.queues).items() if numbers)
    life.disk.poke(segment_path(f"{where.queues}/{queue}", 900), b"segment")
    found = check(life)
    assert rows(found) == {"checkpoints_lost_images_there"}
    made = [one.make() for one in found.examination.changes if isinstance(one, WriteMade)]
    decoded = decode_file(made[0])
    assert decoded is not None
    assert decoded[0].counters["segment"] > 900
    assert life.disk.peek(segment_path(f"{where.queues}/{queue}", 900)) == b"segment"
    assert decoded[0].log_id == state.log_id.hex()


@pytest.mark.parametrize("files", [3, 510, 511])
def test_an_ini_that_is_made_of_the_largest_log_can_be_read(files: int) -> None:
    disk, where = SimDisk(), locations.find(NAME, DATA_PATH)
    state = attrs.evolve(
        control.read(of("circular-killed").fork().disk, CONTROL)[1], extents=tuple((n, 0) for n in range(files))
    )
    make_dirs(disk, where.log_dir)
    disk.poke(control_path(where.log_dir), state.encode(1).ljust(control.COPY_BYTES, b"\0") * 2)
    made = repairing._config_of_log(disk, where)
    assert made is not None
    assert ini.parse(ini.render(made).encode(), where.ini).log.max_files == min(files + 2, 511)


def test_checkpoints_lost() -> None:
    life = of("circular-killed").fork()
    for path in (NEWEST, PREVIOUS):
        life.disk.remove(path)
    refused(life, "checkpoints_lost", says="restore data and log from one backup")
    assert "create it again" not in "\n".join(check(life).lines())


@pytest.mark.parametrize("told_by", ["control", "records"])
def test_checkpoints_lost_of_one_that_was_used_which_not_all_files_tell(told_by: str) -> None:
    past = of("circular-killed")
    life = past.fork()
    for path in (NEWEST, PREVIOUS):
        life.disk.remove(path)
    if told_by == "control":
        for name in life.disk.list(f"{LOG}/active"):
            path = f"{LOG}/active/{name}"
            life.disk.poke(path, life.disk.peek(path)[:PAGE].ljust(DATA + past.extent_bytes, b"\0"))
    else:
        young = attrs.evolve(past.state, durable=past.extent_bytes)
        twice = [young.encode(number).ljust(control.COPY_BYTES, b"\0") for number in (1, 2)]
        life.disk.poke(CONTROL, b"".join(twice))
    found = check(life)
    assert found.examination.refused
    assert "create it again" not in "\n".join(found.lines())


@pytest.mark.parametrize("setup", [CIRCULAR, LINEAR], ids=["circular", "linear"])
@pytest.mark.parametrize("effects", [0, 4])
def test_checkpoints_lost_of_one_that_was_never_used(setup: Setup, effects: int) -> None:
    """Created, or killed in its first start."""
    life = Life(setup)
    life.create()
    if effects:
        life.disk.crash_after(effects)
        with pytest.raises(SimCrash):
            life.start()
        life.disk = life.disk.crash(KEEP_ALL)
    for path in (NEWEST, PREVIOUS):
        if life.disk.exists(path):
            life.disk.remove(path)
    refused(life, "checkpoints_lost", says="its log has no record: if it was never used, delete it and create it again")


@pytest.mark.parametrize("log_type", ["circular", "linear"])
def test_attributes_of_its_creation_are_there_for_whoever_replays_the_log_from_its_first_record(log_type: str) -> None:
    disk, clock = SimDisk(), SimClock()
    given = {"dead_letter_queue": "DEAD"}
    qmgr.create(
        NAME, data_path=DATA_PATH, log_path=LOG_PATH, log_type=log_type, attributes=given, disk=disk, clock=clock
    )
    with qmgr.start(NAME, data_path=DATA_PATH, disk=disk, clock=clock, background=False) as qm:
        qm.define_queue("A")
    with qmgr.start(NAME, data_path=DATA_PATH, disk=disk, clock=clock, background=False):
        pass
    _, reader = read_only(disk, LOG)
    with contextlib.closing(reader):
        assert [one.kind for one in reader.records(PAGE * 4096)].count(Kind.QMGR) == 1, "the first start alone does"
    recover_to(NAME, "/then", time_us=clock.wall, data_path=DATA_PATH, disk=disk, clock=clock)
    for path in (NEWEST, PREVIOUS):
        disk.remove(path)
    assert repairing.repair(NAME, data_path=DATA_PATH, disk=disk, clock=clock).report is not None
    for data_path in (DATA_PATH, "/then"):
        with qmgr.start(NAME, data_path=data_path, disk=disk, clock=clock, background=False) as qm:
            assert qm.attributes.dead_letter_queue == "DEAD"
            assert [queue.name for queue in qm.queues()] == ["A"]


def test_checkpoints_lost_images_there() -> None:
    for images in (1, 2):
        life = Life(LINEAR)
        born(life)
        for _ in range(images):
            laps(life, 0.8)
            life.put("A", size=9000, number=3)
            life.checkpoint()
            life.qm.record_image()
        life.delete("A")
        life.define("A", "another")
        life.put("B", size=2000, priority=3)
        doubt = life.begin(XID)
        life.get("B", unit=doubt)
        life.put("A", unit=doubt)
        life.prepare(doubt)
        life.checkpoint()
        life.put("A", size=100)
        life.crash(KEEP_ALL)
        state = control.read(life.disk, CONTROL)[1]
        for name in life.disk.list(f"{LOG}/active")[:3]:  # before the images
            assert name not in [file_name(number) for number, _ in state.extents]
            life.disk.remove(f"{LOG}/active/{name}")
        for path in (NEWEST, PREVIOUS):
            poke(life, path, 60, b"????")
        assert "can't be read" in refused_by_start(life)
        mended(life, "checkpoints_lost_images_there", life.model)


@pytest.mark.parametrize("damage", ["", "before", "gap", "archived", "behind"])
def test_checkpoints_and_control_file_lost_images_there(damage: str) -> None:
    """Nothing says where the log begins that a restart needs: the images do."""
    life = Life(LINEAR)
    born(life)
    laps(life, 1.8)
    old = life.begin(XID)  # it is older than the images
    life.put("A", unit=old, size=700)
    life.get("B", unit=old)
    life.prepare(old)
    life.checkpoint()
    kept = control.read(life.disk, CONTROL)[1].head // control.read(life.disk, CONTROL)[1].extent_bytes
    laps(life, 1.2)
    life.qm.record_image()
    imaged = life.qm.status().log.tail
    size = control.read(life.disk, CONTROL)[1].extent_bytes
    while life.qm.status().log.tail < imaged + 2 * size:
        life.put("A", size=9000)
    life.checkpoint()
    early, place = life.model.copy(), life.qm.status().log.tail
    while life.qm.status().log.tail < place + 2 * size:
        life.put("B", size=9000)
    model = as_it_was(life)
    for path in (CONTROL, NEWEST, PREVIOUS):
        life.disk.remove(path)
    if damage == "before":  # what has no part of what the images need
        flip(life, path_of(kept - 2), DATA + 2000)
    elif damage == "gap":
        life.disk.remove(path_of(kept - 2))
    elif damage == "archived":
        make_dirs(life.disk, f"{LOG}/archive")
        path = f"{LOG}/archive/{file_name(kept - 2)}{Compression.GZIP.suffix}"
        compress(life.disk, path_of(kept - 2), path, Compression.GZIP)
        life.disk.remove(path_of(kept - 2))
        flip(life, path, 200)
    elif damage == "behind":
        flip(life, path_of(place // size - 1), DATA + place % size + 60)
    assert "is missing" in refused_by_start(life)
    if damage == "behind":
        loses_what_is_accepted(life, early, "checkpoints_lost_images_there", place)
    else:
        done = mended(life, "checkpoints_lost_images_there", model)
        assert rows(done) == {"control_missing", "checkpoints_lost_images_there"}


def test_checkpoints_and_control_file_lost_and_the_archive_has_images_of_another_past() -> None:
    """The log was put back from an older copy, what said so is lost, too, and a record is damaged."""
    life = Life(LINEAR)
    born(life)
    laps(life, 0.8)
    life.qm.record_image()
    life.checkpoint()
    size = control.read(life.disk, CONTROL)[1].extent_bytes
    older = life.fork(KEEP_ALL)
    left = life.qm.status().log.tail // size
    life.qm.advance_log()
    life.put("A", size=9000)
    life.qm.record_image()
    assert life.qm.status().log.tail // size == left + 1
    older.restart()
    older.put("A")
    early, place = older.model.copy(), older.qm.status().log.tail
    for _ in range(3):
        older.put("B", size=9000)
    assert older.qm.status().log.tail // size == left
    older.crash(KEEP_ALL)
    make_dirs(older.disk, f"{LOG}/archive")
    older.disk.poke(f"{LOG}/archive/{file_name(left)}", life.disk.peek(path_of(left)))
    for path in (CONTROL, NEWEST, PREVIOUS):
        older.disk.remove(path)
    flip(older, path_of(left - 1), DATA + place % size + 60)
    loses_what_is_accepted(older, early, "checkpoints_lost_images_there", place)


@pytest.mark.parametrize("control_file", [True, False])
def test_the_archive_has_the_extent_that_was_not_begun_yet_in_the_copy_that_was_put_back(control_file: bool) -> None:
    """At any moment of going over to it: its file, made ahead, is there, so it was not moved away."""
    life = Life(LINEAR)
    born(life)
    laps(life, 0.8)
    copies: list[SimDisk] = []
    with Lookout(life.disk, lambda kind, path: copies.append(life.disk.snapshot(KEEP_ALL))):
        life.qm.advance_log()
    model = life.model.copy()
    model.crash()
    laps(life, 2)
    life.keep_log("archive")
    archived = {path: life.disk.peek(path) for path in life.disk.files(f"{LOG}/archive")}
    life.disk.crash(KEEP_ALL)
    assert copies
    for life.disk in copies:
        make_dirs(life.disk, f"{LOG}/archive")
        for path, data in archived.items():
            life.disk.poke(path, data)
        assert not refused_by_start(life)
        found = check(life)
        assert not found.needed, found.lines()
    if not control_file:
        life.disk.remove(CONTROL)
        mended(life, "control_missing", model)


@pytest.mark.parametrize("in_order", [True, False])
def test_the_archive_has_what_came_after_the_copy_that_was_put_back(in_order: bool) -> None:
    """Before a start has seen it, that is no witness of damage: the log is as it was when the copy was made."""
    life = Life(LINEAR)
    born(life)
    laps(life, 0.8)
    if in_order:
        life.end()
    older = life.fork(KEEP_ALL)
    if in_order:
        life.start()
    laps(life, 2)
    life.keep_log("archive")
    make_dirs(older.disk, f"{LOG}/archive")
    for path in life.disk.files(f"{LOG}/archive"):
        older.disk.poke(path, life.disk.peek(path))
    ends = control.read(older.disk, CONTROL)[1].extents
    assert max(sequence for _, sequence in ends) + 1 < len(life.disk.files(f"{LOG}/archive"))
    assert not refused_by_start(older)
    found = check(older)
    assert not found.needed and not rows(found), found.lines()


def test_what_the_disk_can_not_read_just_once_is_no_lack_of_images() -> None:
    """With that sentence a backup would be restored, where the next try loses nothing."""
    life = Life(LINEAR)
    born(life)
    life.qm.record_image()
    laps(life, 0.8)
    for _ in range(2):
        life.checkpoint()
    life.put("A", size=100)
    life.crash(KEEP_ALL)
    for path in (NEWEST, PREVIOUS):
        poke(life, path, 60, b"????")
    told = 0
    for name in life.disk.list(f"{LOG}/active"):
        path = f"{LOG}/active/{name}"
        for nth in count(1):
            fault = life.disk.fail("open", errno.EIO, nth=nth, where=path.__eq__)
            try:
                assert rows(check(life)) == {"checkpoints_lost_images_there"}, path
            except qmgr.Unavailable as exc:
                assert path in str(exc)
                told += 1
            life.disk.heal()
            if not fault.fired:
                break
    assert told > 9
    mended(life, "checkpoints_lost_images_there", life.model)


def test_log_behind_the_checkpoint() -> None:
    """A circular log has gone round since the checkpoint before the newest one, which is lost."""
    life = Life(CIRCULAR)
    born(life)
    life.end()
    life.start()
    old, early = life.disk.peek(NEWEST), life.model.copy()
    size = control.read(life.disk, CONTROL)[1].extent_bytes
    while life.qm.status().log.head < 6 * size:
        life.put("A", size=9000)
        life.get("A")
        life.checkpoint()
    life.disk = life.disk.crash(KEEP_ALL)
    life.disk.poke(PREVIOUS, old)
    life.disk.remove(NEWEST)
    assert "no longer reaches back" in refused_by_start(life)
    decoded = checkpoint.decode_file(old)
    assert decoded is not None
    loses_what_is_accepted(life, early, "log_behind_the_checkpoint", decoded[0].lsn)


def test_extent_missing(killed: Past) -> None:
    for _, path in (killed.middle, (0, killed.sequences[max(killed.sequences)])):
        life = killed.fork()
        life.disk.remove(path)
        assert path in refused_by_start(life)
        cut(killed, life, "extent_missing")


def test_extent_in_the_archive() -> None:
    past = of("linear-killed")
    _, path = past.middle
    for suffix in ("", ".gz"):
        for size in (0, DATA + 8192):
            life = past.fork()
            make_dirs(life.disk, f"{LOG}/archive")
            target = f"{LOG}/archive/{path.rpartition('/')[2]}{suffix}"
            whole = life.disk.peek(path)
            life.disk.poke(target, whole)
            if suffix:
                life.disk.remove(target)
                compress(life.disk, path, target, Compression.GZIP)
                life.disk.sync_dir(f"{LOG}/archive")
            life.disk.poke(path, whole[:size])
            if not size:
                life.disk.remove(path)
            assert refused_by_start(life)
            mended(life, "extent_in_the_archive", past.last)
            assert life.disk.exists(target)


def test_an_extent_in_the_archive_that_an_older_control_file_takes_for_an_empty_one() -> None:
    life = Life(LINEAR)
    born(life)
    stale, state = life.disk.peek(CONTROL), control.read(life.disk, CONTROL)[1]
    last = max(sequence for _, sequence in state.extents) + 1
    while life.qm.status().log.tail < last * state.extent_bytes + 9000:
        life.put("A", size=9000)
    life.checkpoint()
    life.put("A")
    model = as_it_was(life)
    life.disk.poke(CONTROL, stale)
    path = path_of(last - 1)
    make_dirs(life.disk, f"{LOG}/archive")
    life.disk.poke(f"{LOG}/archive/{path.rpartition('/')[2]}", life.disk.peek(path))
    life.disk.remove(path)
    assert "from where it was archived" in refused_by_start(life)
    mended(life, "extent_in_the_archive", model)


@pytest.mark.parametrize("control_file", [True, False])
def test_an_extent_in_the_archive_lies_between_the_end_and_one_that_was_taken_for_what_a_crash_has_lost(
    control_file: bool,
) -> None:
    life = Life(LINEAR)
    born(life)
    life.put("A")
    size = control.read(life.disk, CONTROL)[1].extent_bytes
    last = life.qm.status().log.tail // size
    model = life.model.copy()
    model.crash()
    lost: list[SimDisk] = []

    def look(kind: str, path: str) -> None:
        if not lost and max(known for _, known in control.read(life.disk, CONTROL)[1].extents) == last + 2:
            lost.append(life.disk.snapshot(LOSE_ALL))

    with Lookout(life.disk, look), life.qm.begin() as unit:
        unit.put("B", bytes(2 * size + 50000), persistent=True)
    life.disk = life.disk.crash(KEEP_ALL)
    life.disk = lost[0]
    between = path_of(last)
    make_dirs(life.disk, f"{LOG}/archive")
    life.disk.poke(f"{LOG}/archive/{between.rpartition('/')[2]}", life.disk.peek(between))
    life.disk.remove(between)
    if not control_file:
        life.disk.remove(CONTROL)
    assert refused_by_start(life)
    mended(life, "extent_in_the_archive", model)


@pytest.mark.parametrize("error", [errno.EIO, errno.EACCES])
@pytest.mark.parametrize("control_file", [True, False])
def test_an_extent_in_the_archive_that_can_not_be_read_for_now_is_not_missing(control_file: bool, error: int) -> None:
    past = of("linear-killed")
    _, path = past.middle
    for size in (0, DATA + 8192):
        life = past.fork()
        make_dirs(life.disk, f"{LOG}/archive")
        whole = life.disk.peek(path)
        life.disk.poke(f"{LOG}/archive/{path.rpartition('/')[2]}", whole)
        life.disk.poke(path, whole[:size])
        if not size:
            life.disk.remove(path)
        if not control_file:
            life.disk.remove(CONTROL)
        for kind in ("open", "read"):
            fork = life.fork(KEEP_ALL)
            fork.disk.fail(kind, error, where=lambda path: path.startswith(f"{LOG}/archive/"))
            with pytest.raises(qmgr.Unavailable, match=rf"{LOG}/archive/{path.rpartition('/')[2]}"):
                repair(fork, accept_loss=True)
            assert not fork.disk.exists(f"{HOME}/repair-1")
            mended(fork, "extent_in_the_archive", past.last)


def test_a_bad_block_costs_less_in_a_copy_with_zeros_for_it_than_the_file_moved_away(killed: Past) -> None:
    """As the manual says, of what there is twice, and of the header pages of extents."""
    headers = [(path, 0) for path in killed.sequences.values()]
    for path, at in [(CONTROL, 0), (CONTROL, control.COPY_BYTES), (NEWEST, 0), (PREVIOUS, 0), *headers]:
        life = killed.fork()
        whole = life.disk.peek(path)
        whole += bytes(-len(whole) % PAGE)
        life.disk.poke(path, whole[:at] + bytes(PAGE) + whole[at + PAGE :])
        goes_on(life, killed.last)
    _, path = killed.middle
    life = killed.fork()
    life.disk.remove(path)
    assert check(life).examination.lost is not None


def test_a_log_that_is_cut_where_its_checkpoint_begins_an_extent() -> None:
    """What is left of a linear log is history only."""
    life = Life(LINEAR)
    born(life)
    laps(life, 0.8)
    life.checkpoint()
    extent_bytes = control.read(life.disk, CONTROL)[1].extent_bytes
    while (left := -life.qm.status().log.tail % extent_bytes) > 20000:
        life.put("B", size=9000)
    for less in range(120, 300, 8):
        other = life.fork(KEEP_ALL)
        other.restart()
        left = -other.qm.status().log.tail % extent_bytes
        other.put("A", size=left - less)
        if 0 < -other.qm.status().log.tail % extent_bytes < 80:
            break
    model = other.model.copy()
    other.checkpoint()
    other.put("B", size=3000)
    other.disk = other.disk.crash(KEEP_ALL)
    state = control.read(other.disk, CONTROL)[1]
    assert state.head == state.checkpoint and state.head % extent_bytes == 0
    last = state.head // extent_bytes
    other.disk.remove(path_of(last - 1))
    other.disk.remove(path_of(0))  # nor does that reach back to the beginning
    found = check(other)
    assert rows(found) == {"extent_missing"} and found.examination.lost is not None
    assert repair(other, accept_loss=True).report is not None
    goes_on(other, model)


def test_extent_short(killed: Past) -> None:
    _, path = killed.middle
    for size in (0, PAGE - 1, DATA - 1, DATA, DATA + killed.extent_bytes // 2, DATA + killed.extent_bytes - 1):
        life = killed.fork()
        life.disk.poke(path, life.disk.peek(path)[:size])
        cut(killed, life, "extent_short")


def test_an_extent_was_cut_behind_the_end_of_a_log_that_has_ended_in_order() -> None:
    """The control file says where it ended, so it is known that nothing is lost."""
    past = of("circular-ended")
    life = past.fork()
    path, end = past.sequences[max(past.sequences)], past.state.clean_end % past.extent_bytes
    assert end
    life.disk.poke(path, life.disk.peek(path)[: DATA + end])
    assert path in refused_by_start(life)
    mended(life, "extent_short", past.last)
    life = past.fork()
    life.disk.poke(path, life.disk.peek(path)[: DATA + end - 2 * PAGE])
    cut(past, life, "extent_short")


def test_extent_of_zeros(killed: Past) -> None:
    """As good as none: nothing in it could say that the log had gone on there."""
    for _, path in (killed.middle, (0, killed.sequences[max(killed.sequences)])):
        life = killed.fork()
        life.disk.poke(path, bytes(len(life.disk.peek(path))))
        assert path in refused_by_start(life)
        cut(killed, life, "extent_short")


def test_extent_foreign(killed: Past) -> None:
    _, path = killed.middle
    life = killed.fork()
    header = extent.decode_header(life.disk.peek(path)[:PAGE])
    assert header is not None
    poke(life, path, 0, attrs.evolve(header, log_id=bytes(16)).encode())
    assert "another log" in refused_by_start(life)
    cut(killed, life, "extent_foreign")


@pytest.mark.parametrize("setup", [CIRCULAR, LINEAR], ids=["circular", "linear"])
def test_extent_foreign_in_the_place_of_the_last_one_and_no_control_file(setup: Setup) -> None:
    """That there was more is told by this file alone: the extent before it is full."""
    life, other = Life(setup), Life(setup, seed=1)
    born(life)
    size = life.setup.file_pages * PAGE
    life.checkpoint()
    while life.qm.status().log.tail < 2 * size:
        early, place = life.model.copy(), life.qm.status().log.tail
        life.put("A", size=3000)
    life.crash(KEEP_ALL)
    born(other)
    life.disk.remove(CONTROL)
    life.disk.poke(path_of(1), other.disk.peek(path_of(0)))
    found = check(life)
    assert rows(found) >= {"control_missing", "extent_foreign"}, found.lines()
    loses_what_is_accepted(life, early, "extent_foreign", place)


@pytest.mark.parametrize("left", [None, b"", bytes(DATA + LINEAR.file_pages * PAGE)], ids=["gone", "empty", "zeros"])
@pytest.mark.parametrize("setup", [CIRCULAR, LINEAR], ids=["circular", "linear"])
def test_the_last_extent_and_the_control_file_are_lost(setup: Setup, left: bytes | None) -> None:
    """That there was more is told by what there is: the extent before it is full, and its successor is made ahead."""
    life = Life(setup)
    born(life)
    size = life.setup.file_pages * PAGE
    life.checkpoint()
    while life.qm.status().log.tail < 2 * size:
        early, place = life.model.copy(), life.qm.status().log.tail
        life.put("A", size=3000)
    life.crash(KEEP_ALL)
    for path in (CONTROL, path_of(1)):
        life.disk.remove(path)
    if left is not None:
        life.disk.poke(path_of(1), left)
    found = check(life)
    row = "extent_missing" if setup is CIRCULAR or left is None else "extent_short"
    assert rows(found) == {"control_missing", row}, found.lines()
    assert f"it may have the log from {lsn.text(2 * size)}" in "\n".join(found.lines())
    loses_what_is_accepted(life, early, row, place)


@pytest.mark.parametrize("gone", [True, False])
@pytest.mark.parametrize("setup", [CIRCULAR, LINEAR], ids=["circular", "linear"])
def test_the_extent_and_the_control_file_are_lost_that_tell_a_damaged_record_from_a_torn_one(
    setup: Setup, gone: bool
) -> None:
    life = Life(setup)
    born(life)
    size = life.setup.file_pages * PAGE
    life.checkpoint()
    while life.qm.status().log.tail < 2 * size - 90_000:
        life.put("A", size=3000)
    early, place = life.model.copy(), life.qm.status().log.tail
    life.put("A", size=150_000)
    life.put("A")  # it says that the one before it was durable
    life.crash(KEEP_ALL)
    flip(life, path_of(0), DATA + place % size + 60)
    life.disk.remove(CONTROL)
    if gone:
        life.disk.remove(path_of(1))
    loses_what_is_accepted(life, early, "extent_missing" if gone else "extent_damaged_in_the_middle", place)


@pytest.mark.parametrize("setup", [CIRCULAR, LINEAR], ids=["circular", "linear"])
def test_numbers_that_only_what_is_lost_tells_of_are_not_given_again(setup: Setup) -> None:
    """Else who asks what became of a commit that is lost is told of another one."""
    life = Life(setup)
    born(life)
    size = life.setup.file_pages * PAGE
    while life.qm.status().log.tail < 2 * size:
        life.put("A", size=3000)
    for _ in range(3):
        life.end()
        life.start()
    lost = life.qm.begin()
    lost.put("A", b"lost")
    lost.commit()
    life.crash(KEEP_ALL)
    for path in (CONTROL, NEWEST, PREVIOUS, path_of(1)):
        life.disk.remove(path)
    repair(life, accept_loss=True)
    for _ in range(5):
        life.start()
        unit = life.qm.begin()
        unit.put("A", b"another")
        assert unit.id > lost.id
        unit.commit()
        assert life.qm.outcome(lost.id) is UowState.BACKED_OUT
        life.qm.end("immediate")


def test_extents_without_a_control_file_are_looked_at_however_few_descriptors_there_are() -> None:
    """The archive may have thousands."""
    life = Life(LINEAR)
    born(life)
    laps(life, 6)
    life.put("A", size=9000)
    life.record_image()
    life.crash(KEEP_ALL)
    assert len(life.disk.list(f"{LOG}/active")) > 16
    for path in (CONTROL, NEWEST, PREVIOUS):
        life.disk.remove(path)
    life.disk.max_open = life.disk.open_files + 12
    mended(life, "checkpoints_lost_images_there", life.model)


def test_extent_stale() -> None:
    past = of("circular-killed")
    last = max(past.sequences)
    older = [n for n, s in control.read(past.early, CONTROL)[1].extents if past.sequences[last] == path_of(n) and s]
    assert older, "that file had an earlier part of the log before"
    life = past.fork()
    life.disk.poke(past.sequences[last], past.early.peek(past.sequences[last]))
    assert "older" in refused_by_start(life)
    cut(past, life, "extent_stale")


def test_extents_swapped(killed: Past) -> None:
    one, two = list(killed.sequences.values())[:2]
    life = killed.fork()
    first, second = life.disk.peek(one), life.disk.peek(two)
    life.disk.poke(one, second)
    life.disk.poke(two, first)
    assert refused_by_start(life)
    mended(life, "extents_swapped", killed.last)


def test_extents_swapped_one_of_which_no_control_file_knows() -> None:
    life, stale, state = with_an_older_control_file()
    while life.qm.status().log.tail // state.extent_bytes <= len(state.extents):
        life.put("A", size=9000)
    unknown = len(state.extents)
    assert life.disk.exists(path_of(unknown)) and unknown not in dict(state.extents)
    life.disk = life.disk.crash(KEEP_ALL)
    life.disk.poke(CONTROL, stale)
    first, second = life.disk.peek(path_of(0)), life.disk.peek(path_of(unknown))
    life.disk.poke(path_of(0), second)
    life.disk.poke(path_of(unknown), first)
    model = life.model.copy()
    model.crash()
    mended(life, "extents_swapped", model)


def test_an_extent_behind_the_cut_lies_under_the_name_of_one_that_stays() -> None:
    """It is not put back, as it goes; and the other one, whose name it had, stays."""
    past = of("linear-killed")
    life = past.fork()
    last, first = max(past.sequences), min(past.sequences)
    ahead, behind = past.sequences[first], past.sequences[last]
    history, cut_off = life.disk.peek(ahead), life.disk.peek(behind)
    life.disk.poke(ahead, cut_off)
    life.disk.poke(behind, history)
    life.disk.remove(past.sequences[last - 1])
    done = cut(past, life, "extent_missing")
    assert "extents_swapped" in rows(done)
    assert DATA + past.extent_bytes == len(life.disk.peek(ahead)) and life.disk.peek(ahead) == history


def test_extents_swapped_and_an_older_copy_is_in_the_right_place(killed: Past) -> None:
    """The one that has more of the log is taken, wherever it lies."""
    life = killed.fork()
    path = path_of(dict(reversed(pair) for pair in killed.state.extents)[max(killed.sequences)])
    newest = life.disk.peek(path)
    last = max(frames(killed, max(killed.sequences)))
    older = DATA + last % killed.extent_bytes
    life.disk.poke(path, newest[:PAGE] + bytes(DATA - PAGE) + newest[DATA:older] + bytes(len(newest) - older))
    life.disk.poke(path_of(9_000_000), newest)
    done = check(life)
    assert "extents_swapped" in rows(done) and done.examination.lost is None
    assert repair(life).report is not None
    goes_on(life, killed.last)


def frames(past: Past, sequence: int) -> list[int]:
    """LSNs of the records in an extent."""
    data = past.disk.peek(past.sequences[sequence])
    found = []
    at = data.find(b"HLRH", DATA)
    while at >= 0:
        own = int.from_bytes(data[at + 16 : at + 24], "little")
        if own == sequence * past.extent_bytes + at - DATA and data[at + 46] & 1 and any(data[at + 44 : at + 46]):
            found.append(own)
        at = data.find(b"HLRH", at + 1)
    return found


def all_records(past: Past) -> list[Record]:
    """All that are there."""
    state, reader = read_only(past.disk, LOG)
    try:
        return [each._replace(body=memoryview(b"")) for each in reader.records(state.head)]
    finally:
        reader.close()


def test_extent_damaged_in_the_middle(killed: Past) -> None:
    sequence, path = killed.middle
    places = frames(killed, sequence)
    for place in (places[0], places[len(places) // 2], places[len(places) * 3 // 4]):
        life = killed.fork()
        flip(life, path, DATA + place % killed.extent_bytes + 50)
        assert lsn.text(place) in refused_by_start(life)
        done = cut(killed, life, "extent_damaged_in_the_middle")
        lost = done.examination.lost
        assert lost is not None and lost.start == place
        later = [record for record in all_records(killed) if record.lsn > place]
        assert lost.records == sum(record.kind != Kind.FILL for record in later)
        assert lost.units == tuple(record.uow for record in later if record.kind == Kind.COMMIT)
        assert (lost.first_time, lost.last_time) == (later[0].time, later[-1].time)
        text = "\n".join(done.lines())
        assert re.search(r"the commits of \d+ units of work: 0,\d+", text)
        assert f"{lost.records} records that can still be read, from 2023-11-" in text


@pytest.mark.parametrize("damaged", ["a put before it", "the prepare itself"])
def test_a_unit_of_work_that_was_rolled_forward_is_one_whose_prepare_is_lost(damaged: str) -> None:
    """It is told by the record of that, too: alone where the prepare can't be read, and once where it can."""
    life = Life(CIRCULAR)
    born(life)
    laps(life, 0.3)
    life.checkpoint()
    life.put("B", size=100)
    doubt = life.begin(XID)
    life.put("B", unit=doubt, size=500)
    life.prepare(doubt)
    early = found_in(life)
    while all(one.kind != Kind.ROLL_FORWARD for one in found_in(life)):  # then the checkpoint before is older than it
        life.put("A", size=9000)
        life.get("A")
    other = life.fork(KEEP_ALL)
    flip(other, NEWEST, 60)
    kind = Kind.PREPARE if damaged == "the prepare itself" else Kind.PUT
    place = next(one.lsn for one in early if one.kind == kind)
    state = control.read(other.disk, CONTROL)[1]
    path = path_of({sequence: number for number, sequence in state.extents}[place // state.extent_bytes])
    flip(other, path, DATA + place % state.extent_bytes + 50)
    lost = check(other).examination.lost
    assert lost is not None and lost.start == place
    assert lost.prepared == (next(one.uow for one in early if one.kind == Kind.PREPARE),)
    assert f"Lost: the prepares of 1 units of work: 0,{lost.prepared[0]}." in lost.lines()


def found_in(life: Life) -> list[Record]:
    """The records that a restart would read."""
    state, reader = read_only(life.disk.snapshot(KEEP_ALL), LOG)
    with contextlib.closing(reader):
        return [each._replace(body=memoryview(b"")) for each in reader.records(state.head)]


def test_the_rest_of_an_extent_that_was_left_empty_is_no_record_that_is_lost() -> None:
    life = Life(LINEAR)
    born(life)
    life.checkpoint()
    life.put("A", unit=life.begin())  # so that a restart reads from here on
    life.put("B", size=30)
    place = life.qm.status().log.tail
    life.put("B", size=20_000)
    for _ in range(3):  # by then no spare page has the first of its pages
        life.put("B", size=30)
    life.qm.advance_log()
    life.put("B", size=30)
    size = control.read(life.disk, CONTROL)[1].extent_bytes
    assert life.qm.status().log.tail // size == place // size + 1
    life.crash(LOSE_ALL)
    later = [one for one in found_in(life) if one.lsn > place and one.kind != Kind.FILL]
    flip(life, path_of(extent.linear_number(place // size)), DATA + place % size + 50)
    lost = check(life).examination.lost
    assert lost is not None
    assert lost.start == place
    assert lost.records == len(later)
    assert lost.outside_units == 4, "of the messages all but the first can be read"


def test_lost_units_of_work_are_many_or_few_and_what_is_readable_is_never_more_than_all() -> None:
    few = Lost(
        start=100,
        end=200,
        records=0,
        units=(),
        prepared=(7,),
        outside_units=0,
        readable=150,
        first_time=0,
        last_time=0,
        history=9,
    )
    assert few.lines()[0].endswith("100 bytes, of which 0 can't be read.")
    assert few.lines()[1] == "Lost: the prepares of 1 units of work: 0,7."
    assert few.lines()[2].startswith("Lost: some of <0:0:0:9> to <0:0:0:100>, which no restart needs")
    many = attrs.evolve(few, units=tuple(range(21)), history=0)
    assert many.lines()[1] == f"Lost: the commits of 21 units of work: {', '.join(f'0,{n}' for n in range(20))}, ...."
    assert "..." not in attrs.evolve(many, units=tuple(range(20))).lines()[1]


def test_extent_damaged_at_the_tail() -> None:
    past = of("circular-ended")
    last = max(past.sequences)
    place = frames(past, last)[-2]
    life = past.fork()
    size = past.state.clean_end - place
    poke(life, past.sequences[last], DATA + place % past.extent_bytes, bytes(size))
    poke(life, past.sequences[last], PAGE, bytes(2 * PAGE))
    assert "is damaged at" in refused_by_start(life)
    done = cut(past, life, "extent_damaged_at_the_tail")
    assert done.examination.lost is not None and done.examination.lost.end == past.state.clean_end
    assert f"{size} bytes, of which {size} can't be read" in "\n".join(done.lines())


def test_both_spare_pages_damaged() -> None:
    """A row of extent_damaged_at_the_tail: how much is missing can't be told."""
    past = of("circular-killed")
    life = past.fork()
    path = past.sequences[max(past.sequences)]
    poke(life, path, PAGE, b"?" * (2 * PAGE))
    assert "both spare pages" in refused_by_start(life)
    found = check(life)
    assert rows(found) == {"extent_damaged_at_the_tail"} and found.examination.lost is not None
    assert repair(life).report is None
    done = repair(life, accept_loss=True)
    assert done.report is not None
    goes_on(life, past.as_of(done.report.end_lsn))


def test_the_front_of_the_last_extent_and_the_control_file_are_lost(killed: Past) -> None:
    """What a start asks once there is a control file again is asked before: a spare page may have had the last page."""
    life = killed.fork()
    poke(life, killed.sequences[max(killed.sequences)], 0, bytes(DATA))
    life.disk.remove(CONTROL)
    done = cut(killed, life, "extent_damaged_at_the_tail")
    assert rows(done) == {"control_missing", "extent_header_damaged", "extent_damaged_at_the_tail"}


def test_extent_header_damaged(killed: Past) -> None:
    _, path = killed.middle
    life = killed.fork()
    poke(life, path, 20, b"????")
    found = check(life)
    assert rows(found) == {"extent_header_damaged"} and not found.needed
    life.disk.remove(CONTROL)  # now only the records in it can say
    mended(life, "control_missing", killed.last)


def test_extent_not_needed() -> None:
    life = Life(CIRCULAR)
    born(life)
    laps(life, 1.3)
    life.checkpoint()
    state = control.read(life.disk, CONTROL)[1]
    spare = next(number for number, sequence in state.extents if sequence < state.head // state.extent_bytes)
    life.disk = life.disk.crash(KEEP_ALL)
    other = life.fork(KEEP_ALL)
    other.disk.remove(path_of(spare))  # a start makes it anew
    assert not check(other).needed
    header = extent.decode_header(life.disk.peek(path_of(spare))[:PAGE])
    assert header is not None
    poke(life, path_of(spare), 0, attrs.evolve(header, log_id=bytes(16)).encode())
    assert "another log" in refused_by_start(life)
    mended(life, "extent_not_needed", life.model)


def with_spares() -> tuple[Life, list[int], int]:
    """One whose last extent was taken in a later epoch, the numbers of extents that it does not need, and of that."""
    life = Life(CIRCULAR)
    born(life)
    laps(life, 1.3)
    life.end()
    life.start()
    laps(life, 1.1)
    life.put("B", size=9000)
    life.checkpoint()
    life.put("B", size=9000)
    state = control.read(life.disk, CONTROL)[1]
    spares = [number for number, sequence in state.extents if sequence < state.head // state.extent_bytes]
    last = max(state.extents, key=lambda one: one[1])[0]
    life.crash(LOSE_ALL)
    return life, spares, last


def test_extent_not_named() -> None:
    """A crash came before the extent was removed that the newest checkpoint lets go of; the one before needs it."""
    life = Life(CIRCULAR)
    born(life)
    unit = life.begin()
    life.put("B", unit=unit)
    size = control.read(life.disk, CONTROL)[1].extent_bytes
    while life.qm.status().log.tail < 5 * size:  # over the secondaries
        life.put("A", size=9000)
        life.checkpoint()
    life.commit(unit)
    struck: list[SimDisk] = []

    def look(kind: str, path: str) -> None:
        if kind == "unlink" and path.endswith(".LOG") and not struck:
            struck.append(life.disk.snapshot(KEEP_ALL))

    with Lookout(life.disk, look):
        life.checkpoint()
    model = as_it_was(life)
    life.disk = struck[0]
    assert not refused_by_start(life) and not check(life).needed
    life.disk.remove(NEWEST)
    assert "does not know of it" in refused_by_start(life)
    mended(life, "extent_not_named", model)


def header_of(life: Life, number: int) -> extent.ExtentHeader:
    header = decode_header(life.disk.peek(path_of(number))[:PAGE])
    assert header is not None
    return header


def test_of_two_extents_that_say_they_have_the_same_part_that_of_the_later_epoch_has_it() -> None:
    """A start that crashed before it had logged anything there took the other one."""
    life, spares, last = with_spares()
    header = header_of(life, last)
    assert header.epoch > 1
    assert min(spares) < last or max(spares) > last
    for spare in spares:
        fork = life.fork(KEEP_ALL)
        poke(fork, path_of(spare), 0, attrs.evolve(header, number=spare, epoch=header.epoch - 1).encode())
        found = check(fork)
        assert found.examination.lost is None
        assert not found.needed
        goes_on(fork, life.model)


def test_a_damaged_header_of_the_first_extent_that_is_needed_is_told(killed: Past) -> None:
    life = killed.fork()
    flip(life, killed.sequences[killed.head // killed.extent_bytes], 20)
    assert "extent_header_damaged" in rows(check(life))


def test_without_a_control_file_the_last_extent_is_looked_at_too(killed: Past) -> None:
    life = killed.fork()
    path = killed.sequences[max(killed.sequences)]
    life.disk.remove(CONTROL)
    life.disk.poke(path, life.disk.peek(path)[:-PAGE])
    assert {"control_missing", "extent_short"} <= rows(check(life))


def test_extents_that_were_used_again_since_an_older_control_file_are_not_stale() -> None:
    life = Life(CIRCULAR)
    born(life)
    laps(life, 1.3)
    life.checkpoint()
    older = life.disk.peek(CONTROL)
    laps(life, 1.3)
    life.checkpoint()
    life.put("B", size=9000)
    life.crash(LOSE_ALL)
    now = dict(control.read(life.disk, CONTROL)[1].extents)
    poke(life, CONTROL, 0, older)
    state = control.read(life.disk, CONTROL)[1]
    first = state.head // state.extent_bytes
    assert any(first <= sequence < now[number] for number, sequence in state.extents)
    assert not rows(check(life)) & {"extent_stale", "extent_not_needed"}


def test_an_older_copy_under_the_name_of_another_takes_the_place_of_nothing_that_is_newer() -> None:
    life, spares, last = with_spares()
    for spare in spares:
        fork = life.fork(KEEP_ALL)
        data = life.disk.peek(path_of(last))
        fork.disk.poke(path_of(spare), data[: DATA + PAGE] + bytes(len(data) - DATA - PAGE))
        assert refused_by_start(fork)
        assert check(fork).examination.lost is None
        assert repair(fork).report is not None
        goes_on(fork, life.model)


def test_extent_of_history_bad() -> None:
    """Nothing is mended, but it is said: a restart needs none of it, media recovery does."""
    life = Life(LINEAR)
    born(life)
    laps(life, 1.3)
    life.record_image()
    imaged = life.qm.status().log.tail
    while life.qm.status().log.tail < imaged + 3 * 64 * PAGE:
        life.put("B", size=9000)
        life.get("B")
    life.checkpoint()
    life.disk = life.disk.crash(KEEP_ALL)
    state = control.read(life.disk, CONTROL)[1]
    head, last = state.head // state.extent_bytes, (state.durable - 1) // state.extent_bytes
    needed = imaged // state.extent_bytes + 1
    assert head > needed
    path = path_of(extent.linear_number(needed))
    half = life.disk.peek(path)[: DATA + state.extent_bytes // 2]
    for how in ("removed", "cut", "whole"):
        other = life.fork(KEEP_ALL)
        if how == "removed":
            other.disk.remove(path)
        elif how == "cut":
            other.disk.poke(path, half)
        found = check(other)
        assert rows(found) == (set() if how == "whole" else {"extent_of_history_bad"}), found.lines()
        assert not found.needed and found.examination.lost is None
        assert how == "whole" or any("record media images" in line for line in found.lines())
        assert repair(other).saved == ""
    # The same extent is cut that the log ends in: the units of work are what the checkpoint has, its history is not.
    path, begins = path_of(extent.linear_number(last)), last * state.extent_bytes
    for size in (PAGE, state.head - begins + PAGE):
        other = life.fork(KEEP_ALL)
        other.disk.poke(path, other.disk.peek(path)[: DATA + size])
        found = check(other)
        lost = found.examination.lost
        assert lost is not None and begins + size != lost.start
        behind = begins + size > lost.start
        assert lost.history == (0 if behind else begins + size), found.lines()
        assert any("which no restart needs, but media" in line for line in found.lines()) is not behind
    # What lies before the images is needed by nobody, nor is what is gone when there are newer ones.
    other = life.fork(KEEP_ALL)
    other.disk.remove(path_of(extent.linear_number(needed - 3)))
    assert rows(check(other)) == set()
    other.disk.remove(path_of(extent.linear_number(needed)))
    assert rows(check(other)) == {"extent_of_history_bad"}
    other.restart()
    other.record_image()
    other.checkpoint()
    other.disk = other.disk.crash(KEEP_ALL)
    assert rows(check(other)) == set()


def test_damaged_before_the_checkpoint() -> None:
    life = Life(CIRCULAR)
    born(life)
    laps(life, 1.3)
    doubt = life.begin(XID)
    life.put("B", unit=doubt)
    life.prepare(doubt)
    for _ in range(3):
        life.put("A", size=30000)
        life.checkpoint()
    state = control.read(life.disk, CONTROL)[1]
    assert state.head < state.checkpoint
    number = next(number for number, sequence in state.extents if sequence == state.head // state.extent_bytes)
    life.disk = life.disk.crash(KEEP_ALL)
    poke(life, path_of(number), DATA + state.head % state.extent_bytes + 60, b"????")
    refused(life, "damaged_before_the_checkpoint", says="or data and log from one backup")


@pytest.mark.parametrize("setup", [CIRCULAR, LINEAR], ids=["circular", "linear"])
@pytest.mark.parametrize("checkpoints", [1, 2, 3])
def test_a_log_that_is_older_than_the_checkpoints(setup: Setup, checkpoints: int) -> None:
    """Each checkpoint file says how far the log was durable, also one that can't be used: nothing is lost unsaid."""
    life = Life(setup)
    born(life)
    doubt = life.begin(XID)  # it holds the head, which each of the checkpoints needs
    life.put("B", unit=doubt)
    life.prepare(doubt)
    life.put("A", size=4000)
    life.checkpoint()
    if setup.linear:
        life.record_image()
    life.put("B", size=700)
    model, early, end = life.model.copy(), life.disk.snapshot(KEEP_ALL), life.qm.status().log.tail
    for n in range(checkpoints):
        life.put("A", size=900 + n)
        life.checkpoint()
    life.put("B", size=70)
    life.disk = life.disk.crash(KEEP_ALL)
    for path in [path for path in life.disk.files(LOG) if not path.endswith(".lock")]:
        life.disk.poke(path, early.peek(path))
    assert "was durable" in refused_by_start(life)
    loses_what_is_accepted(life, model, "extent_damaged_at_the_tail", end)


def test_older_checkpoint_used() -> None:
    life = Life(CIRCULAR)
    born(life)
    life.put("B", size=4000)
    life.checkpoint()
    life.put("A", size=9000)
    doubt = life.begin(XID)
    life.put("B", unit=doubt)
    life.prepare(doubt)
    place = life.qm.status().log.tail
    model = life.model.copy()
    life.put("A", size=200)
    life.put("A", size=9000)
    life.checkpoint()
    life.put("B", size=70)
    life.disk = life.disk.crash(KEEP_ALL)
    state = control.read(life.disk, CONTROL)[1]
    number = next(number for number, sequence in state.extents if sequence == place // state.extent_bytes)
    flip(life, path_of(number), DATA + place % state.extent_bytes + 50)
    found = check(life)
    assert "older_checkpoint_used" in rows(found)
    assert found.examination.lost is not None and found.examination.lost.start == place
    assert repair(life).report is None
    done = repair(life, accept_loss=True)
    assert done.report is not None and done.report.end_lsn == place
    model.crash()
    goes_on(life, model)


def test_ini_missing(past: Past) -> None:
    life = past.fork()
    life.disk.remove(INI)
    done = mended(life, "ini_missing", past.last)
    assert "Lost: settings other than LogType, LogFilePages and LogPath." in done.lines()
    life = past.fork()
    life.disk.remove(INI)
    elsewhere = "/elsewhere"
    for path in past.disk.files(LOG):
        target = path.replace(LOG, f"{elsewhere}/{NAME}")
        make_dirs(life.disk, target.rpartition("/")[0])
        life.disk.poke(target, life.disk.peek(path))
        life.disk.remove(path)
    refused(life, "no_log", says="-ld", log_path=None)
    assert repair(life, log_path=elsewhere).report is not None
    goes_on(life, past.last)


def test_ini_pages_differ(past: Past) -> None:
    life = past.fork()
    life.disk.poke(INI, life.disk.peek(INI).replace(b"LogFilePages=64", b"LogFilePages=65"))
    refused(life, "ini_pages_differ", says="set LogFilePages=64")


@pytest.mark.parametrize("where", ["control", "checkpoint", "extent"])
def test_later_format(past: Past, where: str) -> None:
    """What is made of the other files would have nothing of what only that one has."""
    life = past.fork()
    path = {"control": CONTROL, "checkpoint": NEWEST, "extent": past.sequences[max(past.sequences)]}[where]
    flip(life, path, 8)  # its CRC is another one
    poke(life, path, 7, b"9")
    found = refused(life, "later_format", says="start the queue manager with the version that wrote it")
    assert path in "\n".join(found.lines())
    assert f"{path} is of format 9" in refused_by_start(life)


def test_ini_type_differs(past: Past) -> None:
    life = past.fork()
    text = life.disk.peek(INI)
    other = text.replace(b"=CIRCULAR", b"=LINEAR") if b"=CIRCULAR" in text else text.replace(b"=LINEAR", b"=CIRCULAR")
    life.disk.poke(INI, other)
    refused(life, "ini_type_differs", says="run migmqlog again")


def test_whose_log() -> None:
    past = of("circular-killed")
    life = past.fork()
    other = another(past)
    numbers = [number for number, _ in past.state.extents]
    for number in numbers[: (len(numbers) + 2) // 2]:
        if other.exists(path_of(number)):
            life.disk.poke(path_of(number), other.peek(path_of(number)))
    for path in (CONTROL, NEWEST, PREVIOUS):
        life.disk.poke(path, other.peek(path))
    ours = sum(life.disk.peek(path_of(n)) == past.disk.peek(path_of(n)) for n in numbers)
    theirs = len(numbers) - ours + 3
    for number in range(theirs - ours):  # as many as say the other
        life.disk.poke(path_of(900 + number), past.disk.peek(path_of(numbers[-1])))
    refused(life, "whose_log", says="restore from one backup")


def test_data_foreign() -> None:
    """The log of another queue manager is complete by itself: what the data has would go by a repair with it."""
    for setup in (CIRCULAR, LINEAR):
        life, other = Life(setup), Life(setup, SimDisk(99))
        for each in (life, other):
            born(each)
            each.put("B", size=900, number=3)
            each.checkpoint()
            each.end()
        for path in (NEWEST, PREVIOUS):
            life.disk.poke(path, other.disk.peek(path))
        assert "belongs to another queue manager" in refused_by_start(life)
        refused(life, "data_foreign", says="correct LogPath in qm.ini")
        for path in (NEWEST, PREVIOUS):
            life.disk.remove(path)
        row = "checkpoints_lost_log_complete" if setup is CIRCULAR else "checkpoints_lost_images_there"
        mended(life, row, life.model)


def test_ini_and_control_missing(past: Past) -> None:
    life = past.fork()
    text = life.disk.peek(INI)
    life.disk.remove(INI)
    life.disk.remove(CONTROL)
    pages = text.decode().partition("LogFilePages=")[2].split()[0]
    refused(life, "ini_and_control_missing", says=f"has LogFilePages={pages}")
    life.disk.poke(INI, text)
    mended(life, "control_missing", past.last)


def test_no_log(past: Past) -> None:
    life = past.fork()
    for path in past.disk.files(LOG):
        if not path.endswith(".lock"):
            life.disk.remove(path)
    refused(life, "no_log", says="LogPath is wrong")


def test_queues_away() -> None:
    """Each word that a start says; where it does start, for images or since it was told so, nothing is to repair."""
    for past in map(of, CASES):
        life, linear = past.fork(), past.life.setup.linear
        life.disk.rename(f"{HOME}/queues", "/away")
        said = refused_by_start(life).partition(" (2208")[0]
        assert bool(said) is not linear
        if said:
            refused(life, "queues_away", says=f"all files of the queues are missing ({said}).")
            make_dirs(life.disk, f"{HOME}/queues/A")
        assert not rows(check(life))


def test_queues_away_that_had_what_only_an_end_in_order_keeps() -> None:
    life = Life(CIRCULAR)
    born(life)
    for queue in life.qm.queues():
        life.qm.delete_queue(queue.name, purge=True)
    life.qm.define_queue("KEPT", default_persistence=False, non_persistent_class="HIGH")
    life.qm.put("KEPT", b"kept")
    life.qm.end()
    life.disk.rename(f"{HOME}/queues", "/away")
    assert "mount its file system" in refused_by_start(life)
    refused(life, "queues_away", says="mount its file system")


# Crashes and errors


def no_control(past: Past, life: Life) -> None:
    life.disk.remove(CONTROL)


def torn_control(past: Past, life: Life) -> None:
    for at in (30, control.COPY_BYTES + 30):
        poke(life, CONTROL, at, b"????")


def one_missing(past: Past, life: Life) -> None:
    life.disk.remove(past.middle[1])


def one_flipped(past: Past, life: Life) -> None:
    sequence, path = past.middle
    flip(life, path, DATA + frames(past, sequence)[5] % past.extent_bytes + 50)


def one_short(past: Past, life: Life) -> None:
    path = past.middle[1]
    life.disk.poke(path, life.disk.peek(path)[: DATA + past.extent_bytes // 2])


def swapped(past: Past, life: Life) -> None:
    one, two = list(past.sequences.values())[:2]
    first, second = life.disk.peek(one), life.disk.peek(two)
    life.disk.poke(one, second)
    life.disk.poke(two, first)


def no_control_and_one_flipped(past: Past, life: Life) -> None:
    no_control(past, life)
    one_flipped(past, life)


def no_ini_and_swapped(past: Past, life: Life) -> None:
    life.disk.remove(INI)
    swapped(past, life)


def no_checkpoints(past: Past, life: Life) -> None:
    for path in (NEWEST, PREVIOUS):
        poke(life, path, 60, b"????")


def no_control_and_no_checkpoints(past: Past, life: Life) -> None:
    no_control(past, life)
    no_checkpoints(past, life)


BLOWS = [
    ("circular-killed", no_control),
    ("circular-killed", torn_control),
    ("circular-killed", one_missing),
    ("circular-killed", one_flipped),
    ("circular-killed", one_short),
    ("circular-killed", swapped),
    ("circular-killed", no_control_and_one_flipped),
    ("circular-killed", no_ini_and_swapped),
    ("linear-killed", no_control),
    ("linear-killed", one_missing),
    ("linear-killed", one_flipped),
    ("linear-killed", no_checkpoints),
    ("linear-killed", no_control_and_no_checkpoints),
]
every_blow = pytest.mark.parametrize(("case", "blow"), BLOWS, ids=lambda it: getattr(it, "__name__", it))


def struck(past: Past, blow: Callable[[Past, Life], None]) -> tuple[Life, Model]:
    """A life after the blow, and what a repair has to bring back."""
    life = past.fork()
    blow(past, life)
    found = check(life)
    assert found.needed and not found.examination.refused, found.lines()
    lost = found.examination.lost
    return life, past.last if lost is None else past.as_of(lost.start)


def completed(fork: Life, model: Model) -> None:
    """After an interrupted repair: a start is refused, or finds just what it should; then it is completed."""
    other = fork.fork(KEEP_ALL)
    other.model, other.allowed, other.crashed, other.epoch = model, [model], True, 0
    try:
        other.restart()
    except qmgr.MQError as exc:
        assert NAME in str(exc)
    else:
        work_on(other)
        other.end()
        after = repair(other, accept_loss=True)
        assert after.examination.lost is None
        other.crashed, other.epoch = False, 0
        other.restart()
    repair(fork, accept_loss=True)
    fork.model, fork.allowed, fork.crashed, fork.epoch = model, [model], True, 0
    fork.restart()
    work_on(fork)
    fork.crash(LOSE_ALL)
    fork.restart()
    fork.settle()


@every_blow
def test_crash_before_any_change_of_the_disk(case: str, blow: Callable[[Past, Life], None]) -> None:
    life, model = struck(of(case), blow)
    seen = looked = 0

    def look(kind: str, path: str) -> None:
        nonlocal seen, looked
        seen += 1
        if kind == "write" and seen % 4:  # the many writes of a copy are alike
            return
        if not SOAK and (seen // 3 + BLOWS.index((case, blow))) % 17:
            return
        looked += 1
        loss = (KEEP_ALL, LOSE_ALL, mixed(seen))[seen % 3]
        try:
            completed(life.fork(loss), model)
        except Exception as exc:
            raise AssertionError(f"before {kind} {path} (moment {seen}), {loss}: {exc!r}") from exc

    with Lookout(life.disk, look):
        repair(life, accept_loss=True)
    assert seen > 20 and looked > 2


def test_what_a_killed_repair_left_in_memory_of_its_directory_is_durable_before_the_next_one_changes_a_file() -> None:
    """Else a power failure in that one takes the plan and the originals of what it has changed."""
    life, _ = struck(of("circular-killed"), swapped)
    directory, followed = f"{HOME}/repair-1", 0

    def killed(kind: str, path: str) -> None:
        if kind == "sync_dir" and path == HOME and life.disk.exists(directory) and not life.disk.list(directory):
            fork = life.fork(KEEP_ALL)
            with Lookout(fork.disk, lambda kind, changed: following(fork, kind, changed)):
                repair(fork, accept_loss=True)

    def following(fork: Life, kind: str, changed: str) -> None:
        nonlocal followed
        if kind == "rename" and changed.startswith(LOG):
            followed += 1
            after = fork.disk.snapshot(LOSE_ALL)
            assert after.exists(f"{directory}/plan") and after.list(f"{directory}/log/active"), f"before {changed}"

    with Lookout(life.disk, killed):
        repair(life, accept_loss=True)
    assert followed


def test_a_plan_that_a_killed_repair_left_in_memory_is_durable_before_the_next_one_follows_it() -> None:
    """Else a power failure in that one leaves files that were changed, and no word of where their originals are."""
    life, _ = struck(of("circular-killed"), swapped)
    followed = 0

    def killed(kind: str, path: str) -> None:
        if kind == "sync_dir" and life.disk.exists(f"{path}/plan") and not life.disk.exists(f"{path}/done"):
            fork = life.fork(KEEP_ALL)
            with Lookout(fork.disk, lambda kind, changed: following(fork, kind, changed, path)):
                repair(fork, accept_loss=True)

    def following(fork: Life, kind: str, changed: str, directory: str) -> None:
        nonlocal followed
        if kind in ("rename", "unlink", "write") and not changed.startswith(
            (directory, f"{DATA_PATH}/qmgrs/{NAME}/err")
        ):
            followed += 1
            assert fork.disk.snapshot(LOSE_ALL).exists(f"{directory}/plan"), f"before {kind} {changed}"

    with Lookout(life.disk, killed):
        repair(life, accept_loss=True)
    assert followed


@every_blow
def test_a_repair_that_is_interrupted_again_and_again(case: str, blow: Callable[[Past, Life], None]) -> None:
    life, model = struck(of(case), blow)
    for step in (4, 11, 25) if SOAK else (7, 25)[BLOWS.index((case, blow)) % 2 :][:1]:
        fork = life.fork(KEEP_ALL)
        for turn in range(300):
            fork.disk.crash_after(step + turn)
            try:
                repair(fork, accept_loss=True)
            except BaseException as exc:
                assert type(exc).__name__ == "SimCrash", f"{exc!r}"
                fork.disk = fork.disk.crash(mixed(step * turn))
            else:
                break
        fork.disk.no_crash()
        completed(fork, model)


@every_blow
@pytest.mark.parametrize("error", [errno.ENOSPC, errno.EIO])
def test_an_error_at_any_call_and_the_next_repair_gets_to_the_end(
    case: str, blow: Callable[[Past, Life], None], error: int
) -> None:
    """ENOSPC, EIO at the n-th call that changes the disk, or that reads it; then the disk is well again."""
    life, model = struck(of(case), blow)
    changing = ("write", "sync", "create", "rename", "unlink", "sync_dir", "mkdir", "rmdir")
    for kinds in (changing, ("read", "open", "list")) if error == errno.EIO else (changing,):
        nth, failed = 1 if SOAK else 1 + (BLOWS.index((case, blow)) + 2 * (error == errno.EIO)) % 4, True
        while failed:
            fork = life.fork(KEEP_ALL)
            fault = fork.disk.fail(kinds, error, nth=nth)
            try:
                repair(fork, accept_loss=True)
            except qmgr.MQError as exc:
                assert "\n" not in str(exc) and NAME in str(exc)
            failed = bool(fault.fired)
            fork.disk.heal()
            assert not fork.disk.locks
            if fork.disk.exists(f"{HOME}/repair-1/done"):  # the start or the end that comes last has failed
                fork.disk = fork.disk.crash(mixed(nth))
            try:
                completed(fork, model)
            except Exception as exc:
                raise AssertionError(f"{kinds[0]}... {nth}: {exc!r}") from exc
            nth += 1 + (nth // 5 if SOAK else 4 * nth)
        assert nth > 20


def test_a_plan_that_fits_the_files_no_more_is_not_carried_out() -> None:
    """A backup was put back between an interrupted repair and the next one."""
    past = of("circular-killed")
    life, _ = struck(past, one_flipped)
    life.disk.fail("rename", errno.EIO, where=lambda path: path.endswith(".LOG.new"))
    with pytest.raises(qmgr.MQError):
        repair(life, accept_loss=True)
    life.disk.heal()
    assert check(life).interrupted
    for path in past.disk.files(LOG):
        life.disk.poke(path, past.disk.peek(path))
    found = check(life)
    assert not found.interrupted and not found.needed
    assert f"in {HOME}/repair-1" in found.lines()[0]
    assert repair(life, accept_loss=True).lines() == [*found.lines()[:1], "There is nothing to repair."]
    assert repair(life, accept_loss=True).lines() == ["There is nothing to repair."]
    goes_on(life, past.last)


def struck_while_it_repairs(past: Past, blow: Callable[[Past, Life], None]) -> Life:
    """A repair was interrupted before its first change, when the plan was there."""
    life, _ = struck(past, blow)
    life.disk.fail(("rename", "unlink"), errno.EIO, where=lambda path: path.startswith(LOG))
    with pytest.raises(qmgr.MQError):
        repair(life, accept_loss=True)
    life.disk.heal()
    assert check(life).interrupted
    return life


@pytest.mark.parametrize("case", ["circular-killed", "linear-killed"])
def test_a_repair_that_was_interrupted_cuts_nothing_when_the_extent_that_was_missing_is_back(case: str) -> None:
    """The plan changes other files than that one, and is what it was without it."""
    past = of(case)
    life = struck_while_it_repairs(past, one_missing)
    back = [path for path in past.disk.files(LOG) if not life.disk.exists(path)]
    assert len(back) == 1
    life.disk.poke(back[0], past.disk.peek(back[0]))
    found = check(life)
    assert not found.interrupted and not found.needed
    assert repair(life).lines()[1:] == ["There is nothing to repair."]
    goes_on(life, past.last)


def test_a_repair_that_was_interrupted_cuts_nothing_when_the_extent_that_was_missing_is_in_an_archive() -> None:
    past = of("linear-killed")
    life = struck_while_it_repairs(past, one_missing)
    back = next(path for path in past.disk.files(LOG) if not life.disk.exists(path))
    make_dirs(life.disk, f"{LOG}/archive")
    life.disk.poke(f"{LOG}/archive/{back.rpartition('/')[2]}", past.disk.peek(back))
    assert not check(life).interrupted
    assert repair(life).examination.lost is None
    goes_on(life, past.last)


def test_the_plan_of_an_interrupted_repair_that_is_damaged_is_told_in_a_sentence_that_leads_back() -> None:
    """Without it a swap that is half done looks like the loss of an extent, whose only copy is among the originals."""
    past = of("circular-killed")
    life = struck_while_it_repairs(past, swapped)
    plan = f"{HOME}/repair-1/plan"
    good = life.disk.peek(plan)
    flips = [good[:at] + bytes([good[at] ^ 1]) + good[at + 1 :] for at in range(2, len(good), 9)]
    for bad in (b"", b"{}", b"5", b"[]", b"null", b"\xff", b"[" * 100_000, good[:-2], *flips):
        life.disk.poke(plan, bad)
        for do in (check, repair):
            with pytest.raises(qmgr.Damaged, match=rf"{plan} is damaged.*put what lies in .*move .* away, and repair"):
                do(life)
    originals = f"{HOME}/repair-1"
    for path in life.disk.files(originals):
        for part, home in (("log", LOG), ("data", HOME)):
            if path.startswith(f"{originals}/{part}/"):
                life.disk.poke(path.replace(f"{originals}/{part}", home), life.disk.peek(path))
        life.disk.remove(path)
    assert repair(life).examination.lost is None
    goes_on(life, past.last)


@pytest.mark.parametrize("kind", ["open", "list"])
def test_an_archive_that_can_not_be_looked_at_keeps_nobody_from_a_repair_that_does_not_need_it(kind: str) -> None:
    past = of("linear-killed")
    life = struck_while_it_repairs(past, one_missing)
    make_dirs(life.disk, f"{LOG}/archive")
    life.disk.poke(f"{LOG}/archive/{file_name(0)}", past.disk.peek(f"{LOG}/active/{file_name(0)}"))
    assert not check(life).interrupted, "a file has come"
    life.disk.fail(kind, errno.EACCES, once=False, where=lambda path: path.startswith(f"{LOG}/archive"))
    with contextlib.suppress(qmgr.MQError):  # what the archive has is looked at by others, too
        assert repair(life, accept_loss=True).saved
        return
    assert kind == "list"


@pytest.mark.parametrize("kind", ["list", "read", "open"])
def test_a_repair_that_is_half_done_is_not_given_up_for_an_error_that_passes(kind: str) -> None:
    """A swap that is half done looks like the loss of an extent, whose only copy is among the originals."""
    life, model = struck(of("circular-killed"), swapped)
    life.disk.fail("rename", errno.EIO, nth=2, where=lambda path: path.startswith(LOG))
    with pytest.raises(qmgr.MQError):
        repair(life)
    life.disk.heal()
    found = check(life)
    assert found.interrupted and not found.loses and found.examination.lost is None
    assert not [line for line in found.lines() if line.startswith("Lost")]
    assert [line for line in found.lines() if "extents lie under each other's names" in line]
    nth, failed = 1, True
    while failed:
        fork = life.fork(KEEP_ALL)
        fault = fork.disk.fail(kind, errno.EIO, nth=nth)
        with contextlib.suppress(qmgr.MQError):
            repair(fork, accept_loss=True)
        failed = bool(fault.fired)
        fork.disk.heal()
        if fork.disk.exists(f"{HOME}/repair-1/done"):  # the start or the end that comes last has failed
            fork.disk = fork.disk.crash(KEEP_ALL)
        completed(fork, model)
        nth += 1 if SOAK or kind == "list" else 1 + nth
    assert nth > 9


def test_what_a_repair_loses_is_said_before_anything_is_changed() -> None:
    """Else nobody hears of it where the repair, or the end of the queue manager behind it, is interrupted."""
    life, _ = struck(of("linear-killed"), one_missing)
    wanted, before = check(life).lines(), everything(life.disk)

    def said(done: Repair) -> None:
        assert done.lines() == wanted and any(line.startswith("Lost: ") for line in wanted)
        assert everything(life.disk) == before
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        repairing.repair(
            NAME,
            data_path=DATA_PATH,
            log_path=LOG_PATH,
            accept_loss=True,
            before=said,
            disk=life.disk,
            clock=life.clock,
        )
    assert repair(life, accept_loss=True).saved


@pytest.mark.parametrize("case", ["circular-killed", "linear-killed"])
def test_a_repair_that_was_interrupted_needs_the_word_for_what_it_loses_again(case: str) -> None:
    past = of(case)
    life = struck_while_it_repairs(past, one_missing)
    before = everything(life.disk)
    for found in (check(life), repair(life)):
        assert found.interrupted and not found.saved
        assert found.loses and set(found.loses) <= set(found.lines())
    assert everything(life.disk) == before
    done = repair(life, accept_loss=True)
    assert done.interrupted and done.saved == f"{HOME}/repair-1"
    assert done.lost == found.loses and set(done.lost) <= set(done.lines()), "nobody may have heard of it yet"


def test_a_repair_that_was_interrupted_goes_on_in_a_copy_and_changes_nothing_of_the_original() -> None:
    """Who does not trust the rest of it copies data and log first; the original is not even locked then."""
    past = of("circular-killed")
    life, model = struck(past, one_flipped)
    life.disk.fail("rename", errno.EIO, where=lambda path: path.endswith(".LOG.new"))
    with pytest.raises(qmgr.MQError):
        repair(life, accept_loss=True)
    life.disk.heal()
    original = {path: life.disk.peek(path) for path in life.disk.files("/")}
    for path, data in original.items():
        make_dirs(life.disk, f"/copy{path}".rpartition("/")[0])
        ini = path == f"{HOME}/qm.ini"
        life.disk.poke(f"/copy{path}", data.replace(LOG.encode(), f"/copy{LOG}".encode()) if ini else data)
    where = f"/copy{DATA_PATH}"
    assert repairing.check(NAME, data_path=where, disk=life.disk).interrupted
    done = repairing.repair(NAME, data_path=where, accept_loss=True, disk=life.disk, clock=life.clock)
    assert (done.interrupted, done.saved) == (True, f"/copy{HOME}/repair-1")
    assert original == {path: life.disk.peek(path) for path in life.disk.files("/") if not path.startswith("/copy/")}
    completed(life, model)


def test_a_second_repair_keeps_the_originals_of_the_first() -> None:
    past = of("circular-killed")
    life, _ = struck(past, one_flipped)
    first = repair(life, accept_loss=True)
    damaged = life.disk.peek(f"{first.saved}/log/active/{past.middle[1].rpartition('/')[2]}")
    life.disk.remove(CONTROL)
    second = repair(life)
    assert (first.saved, second.saved) == (f"{HOME}/repair-1", f"{HOME}/repair-2")
    assert life.disk.peek(f"{first.saved}/log/active/{past.middle[1].rpartition('/')[2]}") == damaged


def test_a_running_queue_manager_is_refused() -> None:
    life = Life(CIRCULAR)
    born(life)
    for call in (check, repair):
        with pytest.raises(qmgr.InUse):
            call(life)


# What was declared lost


def test_what_a_restart_declared_lost_stays_lost_when_the_control_file_is_made_anew(killed: Past) -> None:
    """A start at T crashed; a record of its is there beyond T, and at T one of before has become whole again."""
    life = killed.fork()
    end = killed.fork()
    end.start()
    tail, state = end.qm.restart_report.end_lsn, killed.state
    path = killed.sequences[tail // killed.extent_bytes]
    seed = crc32(state.log_id)
    home = DATA + lsn.page_of(tail) % killed.extent_bytes
    spares = [integrity.open_spare(life.disk.peek(path)[at : at + PAGE], seed) for at in (PAGE, 2 * PAGE)]
    newest = max((one for one in spares if one is not None), key=lambda one: one.tail)
    assert newest.tail == tail
    poke(life, path, home, newest.image[: tail % PAGE])

    def put(at: int, epoch: int, durable: int) -> None:
        body = memoryview(bytearray(60))
        delete = records.Delete(1).encode()
        size = frame.encode_into(
            body, 0, seed, epoch, at, 0, 1, (at - durable) // 8, Kind.DELETE, frame.WHOLE, delete[2], delete[3]
        )
        poke(life, path, DATA + at % killed.extent_bytes, bytes(body[:size]))

    put(tail, state.epoch, tail)
    put(lsn.page_of(tail) + 2 * PAGE, state.epoch + 1, tail)
    crashed = attrs.evolve(state, epoch=state.epoch + 1, epoch_from=tail, durable=tail)
    life.disk.poke(CONTROL, b"".join(crashed.encode(n).ljust(control.COPY_BYTES, b"\0") for n in (8, 9)))
    assert not rows(check(life))
    life.disk.remove(CONTROL)
    found = check(life)
    change = found.examination.changes[-1]
    assert isinstance(change, WriteBytes)
    anew = control.decode(change.data)
    assert anew is not None and (anew[1].epoch_from, anew[1].epoch) == (tail, state.epoch + 2)
    mended(life, "control_missing", killed.last)


# Any damage


DAMAGES = (flip_bit, blot, cut_off, lie, swap_pages)


@pytest.mark.parametrize("case", CASES)
def test_any_damage_is_mended_or_refused_and_never_changes_what_is_kept(case: str) -> None:
    """One file or two; what is there afterwards is what was there at the moment at which the log was cut."""
    past = of(case)
    rng = random.Random(case)
    paths = [*past.sequences.values(), CONTROL, NEWEST, PREVIOUS]
    went: Counter[str] = Counter()
    for n in range(1200 if SOAK else 27):
        life = past.fork()
        done = []
        for path in rng.sample(paths, rng.choice((1, 1, 2))):
            damage = rng.choice(DAMAGES)
            life.disk.poke(path, damage(rng, life.disk.peek(path)))
            done.append(f"{damage.__name__} in {path}")
        try:
            went[struck_by_chance(past, life)] += 1
        except Exception as exc:
            raise AssertionError(f"{case}, blow {n}: {done}: {exc!r}") from exc
    assert went["as it was"] > 5 and went["cut"] + went["mended"] > 5, went


@pytest.mark.parametrize("left", [DATA, DATA + PAGE, -1])
def test_an_extent_that_was_cut_is_known_by_its_header_where_the_control_file_is_older(left: int) -> None:
    """The newer copy of the control file is gone, and the older one knows of an earlier part in that extent."""
    past = of("circular-killed")
    life = past.fork()
    newest = control.read(life.disk, CONTROL)[0]
    poke(life, CONTROL, (newest - 1) % 2 * control.COPY_BYTES + 30, b"????")
    known = dict(control.read(life.disk, CONTROL)[1].extents)
    last = max(past.sequences)
    path = past.sequences[last]
    assert any(path == path_of(number) and sequence < last for number, sequence in known.items())
    life.disk.poke(path, life.disk.peek(path)[:left])
    assert path in refused_by_start(life)
    found = check(life)
    assert {"control_one_copy_torn", "extent_short"} <= rows(found) and found.examination.lost is not None
    assert repair(life, accept_loss=True).report is not None
    goes_on(life, past.as_of(found.examination.lost.start))


def with_the_older_copy(past: Past) -> tuple[Life, str]:
    """The newer copy of the control file is not whole; it alone knew what the last extent, of this path, holds."""
    life = past.fork()
    newest = control.read(life.disk, CONTROL)[0]
    poke(life, CONTROL, (newest - 1) % 2 * control.COPY_BYTES + 30, b"????")
    last = max(past.sequences)
    assert last not in dict(control.read(life.disk, CONTROL)[1].extents).values()
    assert not refused_by_start(life), "the extent itself says what it holds"
    return life, past.sequences[last]


@pytest.mark.parametrize("left", [b"", b"Q", bytes(5000), "zeros", "noise", "stale"])
def test_an_extent_that_is_lost_may_be_what_the_newer_copy_of_the_control_file_knew_of(left: bytes | str) -> None:
    """The older copy takes it for one that no restart needs; the log before it is full."""
    past = of("circular-killed")
    life, path = with_the_older_copy(past)
    if left != "stale":
        size = len(life.disk.peek(path))
        whole = {"zeros": bytes(size), "noise": random.Random(1).randbytes(size)}
        life.disk.poke(path, left if isinstance(left, bytes) else whole[left])
    else:
        header = decode_header(life.disk.peek(path)[:PAGE])
        assert header is not None
        poke(life, path, 0, attrs.evolve(header, sequence=header.sequence - 6, epoch=1).encode())
    assert path in refused_by_start(life)
    found = check(life)
    row = {"stale": "extent_stale", "noise": "extent_damaged_at_the_tail"}.get(str(left), "extent_short")
    assert {"control_one_copy_torn", row} <= rows(found)
    assert found.examination.lost is not None
    assert found.examination.lost.end >= (max(past.sequences) + 1) * past.extent_bytes
    assert repair(life, accept_loss=True).report is not None
    goes_on(life, past.as_of(found.examination.lost.start))


def test_a_lost_extent_where_the_older_copy_of_the_control_file_says_that_the_log_has_ended_in_order() -> None:
    """Before a record that goes on in that extent: it was the end once, and repair says what a start refuses for."""
    past = of("circular-killed")
    life, path = with_the_older_copy(past)
    life.disk.poke(path, random.Random(1).randbytes(len(life.disk.peek(path))))
    lost = check(life).examination.lost
    assert lost is not None
    number, state = control.read(life.disk, CONTROL)
    ended = attrs.evolve(state, clean_end=lost.start)
    poke(life, CONTROL, (number - 1) % 2 * control.COPY_BYTES, ended.encode(number))
    assert path in refused_by_start(life)
    found = check(life)
    assert "extent_damaged_at_the_tail" in rows(found) and found.examination.lost is not None
    assert repair(life).report is None, "not without --accept-loss"


@pytest.mark.parametrize("left", [b"", b"\xff" * PAGE], ids=["noise", "noise, cut"])
def test_the_same_of_a_linear_log(left: bytes) -> None:
    """As long as something of the extent is there: of one that is not there at all nothing is known."""
    past = of("linear-killed")
    life, path = with_the_older_copy(past)
    data = random.Random(1).randbytes(len(life.disk.peek(path)))
    life.disk.poke(path, left * 3 or data)
    assert path in refused_by_start(life)
    found = check(life)
    row = "extent_short" if left else "extent_damaged_at_the_tail"
    assert {"control_one_copy_torn", row} <= rows(found) and found.examination.lost is not None
    assert repair(life, accept_loss=True).report is not None
    goes_on(life, past.as_of(found.examination.lost.start))


@pytest.mark.parametrize("size", [4, PAGE])
def test_the_records_say_what_an_extent_holds_that_the_newer_copy_of_the_control_file_knew_of(size: int) -> None:
    """Its header is not whole, and the older copy takes it for one that no restart needs: a start knows better."""
    past = of("circular-killed")
    life, path = with_the_older_copy(past)
    poke(life, path, 0 if size == PAGE else 40, bytes(size) if size == PAGE else b"????")
    assert not refused_by_start(life)
    found = check(life)
    assert {"control_one_copy_torn", "extent_header_damaged"} == rows(found) and not found.needed
    goes_on(life, past.last)


@pytest.mark.parametrize("front", [b"\xff" * PAGE, bytes(PAGE)], ids=["noise", "zeros"])
def test_an_extent_without_a_whole_header_that_no_restart_needs_refuses_no_start(front: bytes) -> None:
    """Its records are of an earlier lap, as the only whole copy of the control file says.

    Not so where its spare pages are lost, too: they may have had a later one.
    """
    past = of("circular-killed")
    life, path = with_the_older_copy(past)
    header = decode_header(life.disk.peek(path)[:PAGE])
    assert header is not None
    earlier = attrs.evolve(header, sequence=header.sequence - 3, epoch=1)
    data = bytearray(len(life.disk.peek(path)))
    delete = records.Delete(1).encode()
    at, seed = earlier.sequence * past.extent_bytes, crc32(past.state.log_id)
    frame.encode_into(memoryview(data), DATA, seed, 1, at, 0, 1, 0, Kind.DELETE, frame.WHOLE, delete[2], delete[3])
    life.disk.poke(path, front + bytes(data[PAGE:]))
    if any(front):
        assert not refused_by_start(life)
        assert check(life).examination.lost is None
        return
    assert path in refused_by_start(life)
    found = check(life)
    assert {"control_one_copy_torn", "extent_damaged_at_the_tail"} <= rows(found) and found.examination.lost is not None
    assert repair(life, accept_loss=True).report is not None
    goes_on(life, past.as_of(found.examination.lost.start))


def struck_by_chance(past: Past, life: Life) -> str:
    """Start it, or repair it and start it; how that went."""
    refusal = refused_by_start(life)
    found = check(life)
    assert found.needed or found.examination.refused or not refusal, f"a start says {refusal}, and repair says nothing"
    done = repair(life, accept_loss=True)
    if done.examination.refused:
        assert refusal, f"refused, and a start would work: {done.lines()}"
        return "refused"
    lost = done.examination.lost
    model = past.last if lost is None else past.as_of(lost.start)
    life.model, life.allowed, life.crashed, life.epoch = model, [model], True, 0
    if lost is None and not past.clean:  # of the very last force nothing says that it was there
        life.allowed = [past.moments[-1][1], past.moments[-2][1], past.last]
    life.restart()
    work_on(life)
    return "cut" if lost is not None else "mended" if done.needed else "as it was"


def cut_short(life: Life, rng: random.Random) -> tuple[SimDisk, set[str]]:
    """What is left of the disk when the machine stops at some moment, a few calls from now; queues that were harmed."""
    other = life.fork(KEEP_ALL)
    other.restart()
    other.disk.crash_after(rng.randint(1, 40), rng.choice((0.0, rng.random())))
    while True:
        try:
            random_step(other, rng)
        except BaseException:
            if not other.disk.dead:
                raise
            return other.disk.crash(mixed(rng.randrange(1 << 30))), other.suspects


@pytest.mark.parametrize("setup", [CIRCULAR, LINEAR], ids=["circular", "linear"])
@pytest.mark.parametrize("seed", [*range(120)] if SOAK else [1, 2, 5, 107])
def test_a_control_file_made_anew_says_what_the_lost_one_did(setup: Setup, seed: int) -> None:
    """After random lives with crashes and lost writes: the same end of the log, the same queues, the same in doubt."""
    life = Life(setup, seed=seed)
    rng = random.Random(f"control {seed}")
    for _ in range(4):
        random_life(life, rng, 25, crashes=0.1)
        disk, suspects = cut_short(life, rng)
        seen = []
        for lost in (False, True):
            other = Life(setup, disk.snapshot(KEEP_ALL))
            other.clock.wall = life.clock.wall
            if lost:
                other.disk.remove(CONTROL)
                found = check(other)
                assert found.examination.lost is None, found.lines()
                [end] = [
                    one for one in found.examination.changes if isinstance(one, WriteBytes) and one.path == CONTROL
                ]
                repair(other)
            other.start()
            if not lost:
                expected = other.qm.restart_report.end_lsn
            other.suspects = set(suspects)
            other.mend()
            seen.append((other.observe(), set(other.qm.in_doubt())))
        state = control.decode(end.data[: control.COPY_BYTES])
        assert state is not None and state[1].epoch_from == expected
        assert seen[0] == seen[1]
