"""The extents of a linear log through the queue manager: numbers rise, and none that is needed goes."""

import errno
import random
import re

import attrs
import pytest

import qmgr
from logger import control, extent
from logger.disk import PAGE
from logger.extent import FILE_NUMBERS, ExtentHeader, decode_header, file_name, linear_number, number_of
from qmgr.errors import Damaged
from recovery.checkpoint import decode_file, encode_file
from tests.conftest import SOAK
from tests.sim.disk import SimDisk
from tests.sim.life import AUTOMATIC, DATA, LINEAR, LOG, NAME, Life, Lookout, Setup, random_life
from tests.sim.loss import KEEP_ALL, LOSE_ALL, NAMES_ONLY, mixed
from tests.test_crash import Sweep, born, work_on
from tests.test_media import from_the_log_alone, furnished, round_and_round

SIZE = 64 * PAGE
ACTIVE = f"{LOG}/{NAME}/active"
CONTROL = f"{LOG}/{NAME}/amqhlctl.lfh"
CHECKPOINT = f"{DATA}/qmgrs/{NAME}/amqalchk.fil"
ERRORS = f"{DATA}/qmgrs/{NAME}/errors/AMQERR01.LOG"
BOTH = pytest.mark.parametrize("setup", [LINEAR, AUTOMATIC], ids=["manual", "automatic"])


def path_of(sequence: int) -> str:
    return f"{ACTIVE}/{file_name(linear_number(sequence))}"


def sequences(disk: SimDisk) -> dict[int, int]:
    """The sequence that each extent says it holds, by its file's number; 0: none yet."""
    found = {}
    for path in disk.files(ACTIVE):
        number = number_of(path.rsplit("/", 1)[1])
        header = decode_header(disk.peek(path)[:PAGE])
        if number is not None and header is not None:
            found[number] = header.sequence
    return found


def state_of(life: Life) -> control.ControlState:
    return control.read(life.disk, CONTROL)[1]


def fill(life: Life, extents: float) -> None:
    """So many extents of work on A, which leaves it as it was."""
    for _ in range(int(extents * SIZE / 12100)):
        life.put("A", size=12000, priority=9)
        life.get("A")


def check_extents(life: Life) -> None:
    """What must hold after any checkpoint."""
    state, there = state_of(life), sequences(life.disk)
    needed = life.qm._retention.needs.needed_from()
    last = max(there.values())
    for sequence in range(min(needed.values()), last + 1):
        assert there[linear_number(sequence)] == sequence, f"{sequence}, needed from {needed}, is not there"
    assert all(sequence == 0 or linear_number(sequence) == number for number, sequence in there.items())
    line = life.qm._log._extents.table(state.extents)
    assert set(state.extents) <= set(line)
    ahead = [number for number, sequence in line if not sequence]
    following = [linear_number(last + 1 + n) for n in range(len(ahead))]
    assert sorted(ahead) == sorted(following), "those made ahead are not the next ones"
    assert len(line) >= life.setup.primary_files


# -- numbers ---------------------------------------------------------------------------------------------------------


@BOTH
def test_numbers_rise_for_ever_and_those_made_ahead_follow(setup: Setup) -> None:
    life = Life(attrs.evolve(setup, primary_files=3))
    born(life)
    highest = 0
    for turn in range(12):
        fill(life, 0.7)
        if turn % 3 == 2:
            life.record_image()
        if turn % 4 == 3:
            life.crash(mixed(turn))
            life.restart()
        life.checkpoint()
        check_extents(life)
        last = max(sequences(life.disk).values())
        assert last >= highest
        highest = last
    assert highest > 7
    left = [path for path in life.disk.files(ACTIVE) if path.endswith(".LOG")]
    if setup is AUTOMATIC:
        assert len(left) < 3 + 3 + 4  # the line, those kept for reuse, and what the last images need
    else:
        assert {path_of(s) for s in range(1, highest + 1)} <= set(left)


def near_the_end_of_the_numbers(setup: Setup, sequence: int) -> Life:
    """A queue manager whose log begins with this sequence."""
    life = Life(setup)
    life.create()
    disk = life.disk
    state, start = state_of(life), sequence * SIZE
    numbers = [linear_number(sequence + n) for n in range(setup.primary_files)]
    for path in [path for path in disk.files(ACTIVE) if path.endswith(".LOG")]:
        disk.remove(path)
    disk.remove(CONTROL)
    fields = {"head": start, "checkpoint": start, "durable": start, "clean_end": start, "epoch_from": start}
    control.create(disk, CONTROL, attrs.evolve(state, extents=tuple((number, 0) for number in numbers), **fields))
    disk.sync_dir(f"{LOG}/{NAME}")
    for number in numbers:
        header = ExtentHeader(number=number, log_id=state.log_id, sequence=0, extent_bytes=SIZE, epoch=0, time=0)
        extent.create(disk, ACTIVE, header).file.close()
    decoded = decode_file(disk.peek(CHECKPOINT))
    assert decoded is not None
    checkpoint = attrs.evolve(decoded[0], lsn=start, head=start, durable=start)
    disk.poke(CHECKPOINT, encode_file(checkpoint, decoded[1]))
    life.start()
    life.crash(LOSE_ALL)
    life.restart()
    return life


@BOTH
def test_row_70_the_numbers_begin_again_at_zero(setup: Setup) -> None:
    """Faults 70: crashes, images and media recovery over the border, at any moment of it."""
    life = near_the_end_of_the_numbers(attrs.evolve(setup, secondary_files=2), FILE_NUMBERS - 2)
    life.define("A")
    life.define("B")
    for n in range(4):
        life.put("A", priority=n % 2)
    found = Sweep(life, lambda moment: [mixed(moment)], every=3 if SOAK else 61, deeper=from_the_log_alone)
    with Lookout(life.disk, found.look):
        for _ in range(5):
            fill(life, 1.2)
            life.record_image("B")
            life.checkpoint()
            check_extents(life)
    there = sequences(life.disk)
    assert there[0] == FILE_NUMBERS + 1
    assert there[1] == FILE_NUMBERS + 2
    from_the_log_alone(life)
    life.recreate("A")
    life.end()
    life.start()
    life.check()
    check_extents(life)


def test_row_70_a_random_life_over_the_border() -> None:
    for seed in range(40 if SOAK else 2):
        life = near_the_end_of_the_numbers(AUTOMATIC, FILE_NUMBERS - 1)
        random_life(life, random.Random(f"border {seed}"), 250)
        assert state_of(life).head // SIZE >= FILE_NUMBERS - 1


def test_row_70_an_old_extent_in_the_way_is_not_overwritten() -> None:
    """Faults 70: it holds a part of the log; work stops with its name, nothing is lost, and goes on without it."""
    life = near_the_end_of_the_numbers(LINEAR, FILE_NUMBERS - 2)
    life.define("A")
    life.put("A", number=3)
    state = state_of(life)
    old = ExtentHeader(number=2, log_id=state.log_id, sequence=3, extent_bytes=SIZE, epoch=1, time=0)
    data = old.encode() + bytes(extent.DATA - PAGE) + b"precious".ljust(SIZE, b"\0")
    life.disk.poke(path_of(3), data)
    failed: list[Exception] = []
    for _ in range(200):
        try:
            if not life.put("A", size=12000, priority=9):
                break
            life.get("A")
            life.checkpoint()
        except qmgr.MQError as exc:
            failed.append(exc)
            break
    else:
        raise AssertionError("it went on over the old extent")
    assert life.disk.peek(path_of(3)) == data
    told = life.disk.peek(ERRORS).decode() + repr(failed)
    assert file_name(2) in told, told[-500:]
    fork = life.fork(LOSE_ALL)
    fork.disk.remove(path_of(3))
    fork.restart()
    work_on(fork)
    fill(fork, 3)
    from_the_log_alone(fork)


# -- what is needed, and what is said --------------------------------------------------------------------------------


def said(life: Life, amq: str) -> list[str]:
    return re.findall(rf"{amq}\w?: (.*)", life.disk.peek(ERRORS).decode())


@BOTH
def test_what_is_needed_is_said_whenever_a_checkpoint_moves_it(setup: Setup) -> None:
    """AMQ7467 and AMQ7468 name the extents that restart and media recovery need, which are there."""
    life = Life(setup)
    furnished(life)
    life.resolve(sorted(life.model.in_doubt(), key=repr)[0], commit=True)
    pairs = set()
    for turn in range(8):
        fill(life, 0.9)
        if turn % 2:
            life.record_image()
        life.checkpoint()
        state = state_of(life)
        restart = file_name(linear_number(state.head // SIZE))
        inside = life.qm._engine.state
        media = min(inside.catalog, *(queue.image.media for queue in inside.queues.values()))
        assert restart in said(life, "AMQ7467")[-1]
        assert file_name(linear_number(min(media, state.head) // SIZE)) in said(life, "AMQ7468")[-1]
        pairs.add((restart, media // SIZE))
    assert len({restart for restart, _ in pairs}) > 4
    assert len({media for _, media in pairs}) > 2
    both = len(said(life, "AMQ7467"))
    life.checkpoint()
    life.checkpoint()
    assert len(said(life, "AMQ7467")) <= both + 1, "said though nothing had moved"


def test_the_extents_made_used_again_and_deleted_are_counted_right() -> None:
    """AMQ7490, against what was done on the disk."""
    life = Life(attrs.evolve(AUTOMATIC, primary_files=2, secondary_files=3))
    born(life)
    life.checkpoint()
    before = [tuple(int(n) for n in re.findall(r"(\d+) (?:c|r|d)", text)) for text in said(life, "AMQ7490")]
    begun = len(life.disk.trace)
    unit = life.begin()
    for _ in range(49):
        life.put("A", size=16000, unit=unit)
    life.backout(unit) if unit in life.open else None
    for _ in range(3):
        fill(life, 1.5)
        life.record_image()
    life.checkpoint()
    counts = [tuple(int(n) for n in re.findall(r"(\d+) (?:c|r|d)", text)) for text in said(life, "AMQ7490")]
    told = [sum(column) for column in zip(*counts[len(before) :], strict=True)]
    trace = [(kind, path.rsplit("/", 1)[1]) for kind, path in life.disk.trace[begun:] if path.startswith(ACTIVE)]
    created = sum(kind == "create" and name.startswith("S") for kind, name in trace)
    reused = sum(kind == "rename" and name.startswith("R") for kind, name in trace)
    deleted = sum(kind == "unlink" and name.endswith(".LOG") for kind, name in trace)
    assert told == [created, reused, deleted]
    assert reused > 1
    assert created > 1


def test_what_a_reader_needs_is_kept() -> None:
    """Under Automatic too; when it has gone on, or is done, the next checkpoint lets go of the extents."""
    life = Life(AUTOMATIC)
    born(life)
    start = state_of(life).head
    with life.qm._retention.needs.reading_from(start) as reading:
        for _ in range(3):
            fill(life, 1)
            life.record_image()
        life.checkpoint()
        life.checkpoint()
        check_extents(life)
        first = min(sequence for sequence in sequences(life.disk).values() if sequence)
        assert first == start // SIZE
        reading.move(start + 2 * SIZE)
        life.checkpoint()
        first = min(sequence for sequence in sequences(life.disk).values() if sequence)
        assert first == start // SIZE + 2
    fill(life, 1)
    life.record_image()
    life.checkpoint()
    assert min(sequence for sequence in sequences(life.disk).values() if sequence) > start // SIZE + 2


def test_a_crash_at_any_moment_finds_every_extent_that_is_needed() -> None:
    """Automatic: what is let go of is never what a restart, or an image, needs: at no moment and after no loss."""
    life = Life(attrs.evolve(AUTOMATIC, secondary_files=3))
    furnished(life)
    looked = 0

    def look(kind: str, path: str) -> None:
        nonlocal looked
        if kind in ("rename", "unlink", "create") and path.startswith(ACTIVE):
            losses = (LOSE_ALL, KEEP_ALL, mixed(life.disk.effects))
            for loss in losses if SOAK else losses[(looked + looked // 3) % 3 :][:1]:  # in another order each time
                looked += 1
                fork = life.fork(loss)
                from_the_log_alone(fork)

    with Lookout(life.disk, look):
        round_and_round(life)
    assert looked > 15


def test_row_16_a_crash_while_an_extent_is_made_of_one_that_is_kept() -> None:
    """It says what it is before it has the name: else a start would find an extent that belongs elsewhere."""
    life = Life(attrs.evolve(AUTOMATIC, secondary_files=3))
    furnished(life)
    looked = 0

    def look(kind: str, path: str) -> None:
        nonlocal looked
        if kind in ("write", "sync", "rename") and path.startswith(f"{ACTIVE}/R"):
            looked += 1
            if looked <= 6 or SOAK:
                for loss in (KEEP_ALL, NAMES_ONLY):
                    fork = life.fork(loss)
                    fork.restart()
                    check_extents(fork)

    with Lookout(life.disk, look):
        round_and_round(life)
    assert looked > 3


# -- files that are not what they should be --------------------------------------------------------------------------


@pytest.mark.parametrize("setup", [LINEAR, AUTOMATIC], ids=["manual", "automatic"])
def test_row_43_a_control_file_older_than_the_extents(setup: Setup) -> None:
    """Faults 43: from a backup: what follows is found and replayed, or it is refused with a name; never cut."""
    life = Life(setup)
    furnished(life)
    older = [life.disk.peek(CONTROL)]
    outcomes = []
    for turn in range(5):
        fill(life, 0.8)
        life.put("B", size=100)
        if turn == 3:
            life.record_image()
        life.checkpoint()
        for age, data in enumerate(older):
            fork = life.fork(LOSE_ALL)
            fork.disk.poke(CONTROL, data)
            try:
                fork.restart()
            except (qmgr.MQError, Damaged) as exc:
                assert "/base/" in str(exc), exc
                outcomes.append(f"refused {age}")
            else:
                work_on(fork)
                from_the_log_alone(fork)
                outcomes.append("replayed")
        older.append(life.disk.peek(CONTROL))
    assert outcomes.count("replayed") > 4, outcomes


@pytest.mark.parametrize("how", ["hole", "cut", "header", "missing", "noise"])
def test_a_ready_extent_that_is_not_whole(how: str) -> None:
    """It holds nothing yet: a start makes it anew, or uses it, and no record is ever lost in it."""
    life = Life(attrs.evolve(LINEAR, primary_files=4))
    furnished(life)
    life.checkpoint()
    ready = [number for number, sequence in state_of(life).extents if not sequence]
    assert len(ready) >= 2
    for number in ready:
        path = f"{ACTIVE}/{file_name(number)}"
        data = life.disk.peek(path)
        fork = life.fork(KEEP_ALL)
        if how == "missing":
            fork.disk.remove(path)
        else:
            changed = {
                "hole": data[: PAGE * 9] + bytes(len(data) - 9 * PAGE),
                "cut": data[: PAGE * 9],
                "header": bytes([data[0] ^ 1]) + data[1:],
                "noise": bytes(range(256)) * (len(data) // 256),
            }[how]
            fork.disk.poke(path, changed)
        fork.restart()
        fill(fork, 6)
        fork.checkpoint()
        check_extents(fork)
        fork.crash(LOSE_ALL)
        fork.restart()
        from_the_log_alone(fork)


def test_row_42_a_gap_in_the_active_extents_is_never_jumped() -> None:
    """Faults 42: any one of them: the start is refused with its name, and works when it is back."""
    life = Life(attrs.evolve(LINEAR, primary_files=6))
    furnished(life)
    life.record_image()
    life.checkpoint()
    fill(life, 4)
    base = life.disk.snapshot(LOSE_ALL)
    active = sorted(sequence for sequence in sequences(base).values() if sequence >= state_of(life).head // SIZE)
    assert len(active) >= 4
    for sequence in active:
        fork = life.fork(LOSE_ALL)
        kept = fork.disk.peek(path_of(sequence))
        fork.disk.remove(path_of(sequence))
        before = {path: fork.disk.peek(path) for path in fork.disk.files(ACTIVE)}
        with pytest.raises(qmgr.MQError) as caught:
            fork.start()
        assert file_name(linear_number(sequence)) in str(caught.value), sequence
        assert {path: fork.disk.peek(path) for path in fork.disk.files(ACTIVE)} == before, "a refused log was changed"
        fork.disk.poke(path_of(sequence), kept)
        fork.disk.locks.clear()
        fork.restart()


@pytest.mark.parametrize("actions", ["archive", "compress", "archive compress", "compress archive", "remove"])
def test_row_23_media_recovery_from_extents_that_went_elsewhere(actions: str) -> None:
    """Faults 23: archived, compressed, removed, in any order; a crash at any moment leaves all that is needed."""
    life = Life(LINEAR)
    furnished(life)
    life.resolve(sorted(life.model.in_doubt(), key=repr)[0], commit=True)
    fill(life, 2.5)
    life.record_image("B")
    fill(life, 1.5)
    life.checkpoint()
    life.checkpoint()
    found = Sweep(life, lambda moment: [mixed(moment)], every=2 if SOAK else 15, deeper=from_the_log_alone)
    with Lookout(life.disk, found.look):
        for action in actions.split():
            life.keep_log(action)
    assert found.moments > 3 or actions == "remove"
    if actions != "remove":
        moved = [path for path in life.disk.files(LOG) if "archive/" in path or path.endswith((".zst", ".gz"))]
        assert len(moved) >= 2, "nothing went elsewhere"
    from_the_log_alone(life)
    life.recreate("A")
    life.check()
    fill(life, 1)
    from_the_log_alone(life)


# -- a full disk -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("error", [errno.ENOSPC, errno.EIO, errno.EDQUOT], ids=["ENOSPC", "EIO", "EDQUOT"])
@BOTH
def test_row_54_no_extent_can_be_made_ahead(setup: Setup, error: int) -> None:
    """Faults 54: what is there is used; then puts are refused, gets are not; with room all goes on by itself."""
    life = Life(attrs.evolve(setup, primary_files=2, secondary_files=3))
    born(life)
    there = set(life.disk.files(ACTIVE))
    life.disk.fail(
        ("create", "write"), error, once=False, where=lambda path: path.startswith(ACTIVE) and path not in there
    )
    put = 0
    while put < 500 and life.put("A", size=9000):
        put += 1
    assert 10 < put < 500
    life.check()
    assert life.get("A") == 1
    fork = life.fork(LOSE_ALL)
    fork.disk.heal()
    fork.restart()
    from_the_log_alone(fork)
    life.disk.heal()
    life.clock.advance(5)
    life.checkpoint()
    for _ in range(100):
        assert life.put("A", size=9000)
    assert life.qm._state == "running"
    from_the_log_alone(life)


@pytest.mark.parametrize("room", [0.0, 0.5, 1.5, 3.5])
def test_row_54_a_small_disk_for_a_log_that_grows(room: float) -> None:
    """Faults 54: Manual: extents stay, so the disk fills; whatever was accepted is there, and an image is too late."""
    life = Life(LINEAR)
    furnished(life)
    life.disk.capacity = life.disk.used + int(room * SIZE)
    refused = False
    for _ in range(150):
        try:
            if not life.put("B", size=12000, priority=9):
                refused = True
                break
            life.get("B")
        except qmgr.MQError as exc:
            assert exc.reason in (qmgr.Reason.STORAGE_MEDIUM_FULL, qmgr.Reason.RESOURCE_PROBLEM), exc
            refused = True
            break
    assert refused or room > 2
    assert life.qm._state == "running"
    life.disk.capacity = None
    life.clock.advance(5)
    fill(life, 2)
    life.record_image()
    from_the_log_alone(life)
