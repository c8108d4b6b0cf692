"""migmqlog: whatever the moment of a crash or an error, one log is whole, and running it again gets to the end."""

import errno
import json
import os
from collections.abc import Callable, Iterable
from pathlib import Path

import attrs
import pytest

import qmgr
from logger import at_rest, claims, control, extent, undone
from logger.at_rest import control_path
from logger.compressed import Compression, compress
from logger.config import LogConfig, LogType
from logger.extent import decode_header, file_name, linear_number
from logger.migrate import MOVED_FROM, SIDE_FILES, active_extents, copy, to_circular
from logger.posix_disk import PosixDisk
from logger.whole_files import make_dirs
from qmgr.migration import migrate_log
from recovery import checkpoint
from tests.conftest import SOAK
from tests.logger.extents import ID
from tests.qmgr.world import SMALL
from tests.sim.disk import SimCrash, SimDisk
from tests.sim.life import DATA, LOG, NAME, Life, Lookout, Setup
from tests.sim.loss import DATA_ONLY, KEEP_ALL, LOSE_ALL, NAMES_ONLY, Loss, mixed
from tests.test_crash import born, laps, work_on

CIRCULAR = Setup(primary_files=3, secondary_files=2)
LINEAR = Setup(primary_files=3, secondary_files=2, log_type="linear")
INI = f"{DATA}/qmgrs/{NAME}/qm.ini"
OLD = f"{LOG}/{NAME}"
ELSEWHERE = "/other/logs"
XID = qmgr.Xid(7, b"migrates", b"")


def ended(setup: Setup, *, turns: float = 1.2, long: bool = True) -> Life:
    """A queue manager that ended in order, with a unit in doubt that holds several extents of the log."""
    life = Life(setup)
    born(life)
    laps(life, turns)
    doubt = life.begin(XID)
    life.get("A", unit=doubt)
    life.put("B", unit=doubt, size=20000)
    life.prepare(doubt)
    if long:
        for _ in range(30):
            life.put("A", size=12000)
            life.get("A")
    life.put("B", size=700)
    life.end()
    return life


def migrate(life: Life, **how: str) -> None:
    migrate_log(NAME, data_path=DATA, disk=life.disk, **how)
    life.setup = attrs.evolve(life.setup, log_type=how.get("log_type", life.setup.log_type))


def state_of(disk: SimDisk, directory: str = OLD) -> control.ControlState:
    return control.read(disk, control_path(directory))[1]


def extents(disk: SimDisk, directory: str = OLD) -> dict[int, int]:
    """Sequences by file number, as the headers say."""
    found = {}
    for name in disk.list(f"{directory}/active"):
        number = extent.number_of(name)
        header = extent.decode_header(disk.peek(f"{directory}/active/{name}")[:4096])
        if number is not None and header is not None:
            assert header.number == number
            found[number] = header.sequence
    return found


HOW: dict[str, tuple[Setup, dict[str, str]]] = {
    "to_linear": (CIRCULAR, {"log_type": "linear"}),
    "to_linear_archive": (CIRCULAR, {"log_type": "linear", "log_management": "archive"}),
    "to_circular": (LINEAR, {"log_type": "circular"}),
    "move_circular": (CIRCULAR, {"log_path": ELSEWHERE}),
    "move_linear": (LINEAR, {"log_path": ELSEWHERE}),
    "to_linear_and_move": (CIRCULAR, {"log_type": "linear", "log_path": ELSEWHERE}),
    "to_circular_and_move": (LINEAR, {"log_type": "circular", "log_path": ELSEWHERE}),
}


@pytest.mark.parametrize("how", HOW)
def test_a_migrated_queue_manager_is_what_it_was(how: str) -> None:
    setup, options = HOW[how]
    life = ended(setup)
    migrate(life, **options)
    directory = f"{ELSEWHERE}/{NAME}" if "log_path" in options else OLD
    state = state_of(life.disk, directory)
    assert state.log_type.value.lower() == options.get("log_type", setup.log_type)
    named = dict(state.extents)
    assert len([s for s in named.values() if s]) >= 2
    if state.log_type is LogType.LINEAR:
        assert all(number == linear_number(sequence) for number, sequence in named.items() if sequence)
    else:
        assert extents(life.disk, directory) == named
    if directory != OLD:
        assert not life.disk.files(OLD + "/")
    before = state.head
    migrate(life, **options)  # there is nothing left to do
    assert state_of(life.disk, directory).head == before
    life.restart()
    work_on(life)
    laps(life, 2.2)
    life.crash(KEEP_ALL)
    life.restart()
    life.settle()


@pytest.mark.parametrize("turns", [0, 0.7, 1.2, 2.1, 3.4, 4.6])
def test_there_and_back_whatever_the_file_numbers(turns: float) -> None:
    """In the ring, files stand in each other's way under the numbers of a linear log."""
    life = ended(CIRCULAR, turns=turns)
    for kind in ("linear", "circular", "linear", "circular"):
        migrate(life, log_type=kind)
        life.restart()
        work_on(life)
        for _ in range(4):
            life.put("B", size=12000)
            life.get("B")
        life.end()
    life.restart()
    laps(life, 3.1)
    life.crash(KEEP_ALL)
    life.restart()
    life.settle()


def test_files_that_stand_in_each_others_way_lose_nothing() -> None:
    """Each has the number that the next one gets: none may be copied over another."""
    life = ended(CIRCULAR, turns=1.2)
    state, active = state_of(life.disk, OLD), f"{OLD}/active"
    there = {s: life.disk.peek(f"{active}/{file_name(n)}") for s, n in active_extents(state).items()}
    numbers = [linear_number(sequence) for sequence in there]
    assert len(numbers) > 1
    astray = dict(zip(there, [*numbers[1:], numbers[0]], strict=True))
    for sequence, number in astray.items():
        header = decode_header(there[sequence])
        assert header is not None
        begins = attrs.evolve(header, number=number).encode()
        life.disk.poke(f"{active}/{file_name(number)}", begins + there[sequence][len(begins) :])
    file = control.ControlFile(life.disk, control_path(OLD))
    file.write(attrs.evolve(state, extents=tuple(sorted((number, sequence) for sequence, number in astray.items()))))
    file.close()
    migrate(life, log_type="linear")
    assert dict(state_of(life.disk, OLD).extents) == {linear_number(sequence): sequence for sequence in astray}
    life.restart()
    life.settle()


def test_a_queue_manager_that_was_never_started_can_be_migrated() -> None:
    for first, then in (("circular", "linear"), ("linear", "circular")):
        life = Life(Setup(log_type=first))
        life.create()
        migrate(life, log_type=then, log_path=ELSEWHERE)
        life.start()
        life.define("A")
        life.put("A")
        life.crash(KEEP_ALL)
        life.restart()


# Crashes


def several(moment: int) -> Iterable[Loss]:
    return (KEEP_ALL, mixed(moment)) if moment % 2 else (LOSE_ALL, mixed(moment))


def names(moment: int) -> Iterable[Loss]:
    return (NAMES_ONLY,) if moment % 2 else (DATA_ONLY,)


def examine(fork: Life, options: dict[str, str]) -> None:
    """After a crash in the middle: start it as it is, or be told to run migmqlog again; run it again; work."""
    other = fork.fork(KEEP_ALL)
    try:
        other.restart()
    except qmgr.MQError as exc:
        assert "migmqlog" in str(exc), f"{exc}"
    else:
        work_on(other)
        other.end()
        migrate(other, **options)
        other.restart()
        other.settle()
    migrate(fork, **options)
    fork.restart()
    work_on(fork)
    fork.crash(LOSE_ALL)
    fork.restart()
    fork.settle()


@pytest.mark.parametrize("how", HOW)
@pytest.mark.parametrize("losses", [several, names], ids=lambda f: f.__name__)
def test_crash_before_any_change_of_the_disk(how: str, losses: Callable[[int], Iterable[Loss]]) -> None:
    setup, options = HOW[how]
    life = ended(setup)
    seen = looked = 0

    def look(kind: str, path: str) -> None:
        nonlocal seen, looked
        seen += 1
        if kind == "write" and seen % 5:  # the many writes of a copy are alike
            return
        if not SOAK and kind != "-" and (seen // 2 + list(HOW).index(how)) % 9:
            return
        looked += 1
        found = list(losses(seen))
        for loss in found if SOAK else found[looked // 2 % len(found) :][:1]:  # `losses` goes by odd and even as well
            try:
                examine(life.fork(loss), options)
            except Exception as exc:
                raise AssertionError(f"{how}: before {kind} {path} (moment {seen}), {loss}: {exc!r}") from exc

    with Lookout(life.disk, look):
        migrate(life, **options)
    assert seen > 10 and looked > 2
    look("-", "-")


@pytest.mark.parametrize("how", [how for how in HOW if "log_path" in HOW[how][1]])
def test_where_the_control_file_came_to_is_all_that_was_copied_before_it(how: str) -> None:
    """Whichever of the names a crash takes."""
    setup, options = HOW[how]
    life = ended(setup)
    directory = f"{ELSEWHERE}/{NAME}"
    seen = 0

    def look(kind: str, path: str) -> None:
        nonlocal seen
        if not life.disk.exists(control_path(directory)):
            return
        wanted = {MOVED_FROM, *SIDE_FILES} & set(life.disk.list(directory))
        for seed in range(12):
            disk = life.disk.snapshot(Loss(seed=seed, sectors="new", names="mixed"))
            if disk.exists(control_path(directory)):
                seen += 1
                assert wanted <= set(disk.list(directory)), f"{kind} {path}, {seed}"

    with Lookout(life.disk, look):
        migrate(life, **options)
    assert seen > 10


@pytest.mark.parametrize("how", HOW)
def test_an_interrupted_run_that_is_interrupted_again(how: str) -> None:
    """Crash at the n-th change, and again at the n-th of the next run, until it completes."""
    setup, options = HOW[how]
    life = ended(setup)
    number = list(HOW).index(how)
    for step in range(3, 40, 6) if SOAK else (3 + 2 * number, 27)[number % 2 :][:1]:
        fork = life.fork(KEEP_ALL)
        for turn in range(200):
            fork.disk.crash_after(step + turn)
            try:
                migrate(fork, **options)
            except BaseException as exc:
                assert type(exc).__name__ == "SimCrash", f"{exc!r}"
                fork.disk = fork.disk.crash(mixed(step * turn))
            else:
                break
        fork.disk.no_crash()
        fork.restart()
        fork.settle()


@pytest.mark.parametrize("how", HOW)
def test_a_run_that_is_killed_and_a_crash_in_the_next(how: str) -> None:
    """What the first had written and not synced is there for the second, and after the crash it need not be."""
    setup, options = HOW[how]
    life = ended(setup)
    moments = looked = 0

    def killed(kind: str, path: str) -> None:
        nonlocal moments
        if kind not in ("sync", "sync_dir"):
            return
        moments += 1
        if not SOAK and path.endswith(".LOG"):  # a copy that is made anew
            return
        fork = life.fork(KEEP_ALL)
        with Lookout(fork.disk, lambda kind, path: crashed(fork, f"{kind} {path}")):
            migrate(fork, **options)
        crashed(fork, "the end of it")

    def crashed(fork: Life, before: str) -> None:
        nonlocal looked
        looked += 1
        if not SOAK and looked % 51:
            return
        again = fork.fork(LOSE_ALL)
        try:
            migrate(again, **options)
            again.restart()
            again.settle()
        except Exception as exc:
            raise AssertionError(f"{how}: killed at sync {moments}, crash before {before}: {exc!r}") from exc

    with Lookout(life.disk, killed):
        migrate(life, **options)
    assert looked > 30


# Errors


@pytest.mark.parametrize("how", HOW)
@pytest.mark.parametrize("error", [errno.ENOSPC, errno.EIO])
def test_an_error_at_any_call_leaves_a_whole_log(how: str, error: int) -> None:
    """ENOSPC, EIO at the n-th call that changes the disk, or at the n-th that reads it; then the disk is well again."""
    setup, options = HOW[how]
    life = ended(setup)
    changing = ("write", "sync", "create", "rename", "unlink", "sync_dir", "mkdir", "rmdir")
    for kinds in (changing, ("read", "open", "list")) if error == errno.EIO else (changing,):
        nth, failed = 1 if SOAK else 1 + (list(HOW).index(how) + 2 * (error == errno.EIO)) % 4, True
        while failed:
            fork = life.fork(KEEP_ALL)
            fault = fork.disk.fail(kinds, error, nth=nth)
            try:
                migrate(fork, **options)
            except qmgr.MQError as exc:
                assert "\n" not in str(exc) and NAME in str(exc)
            failed = bool(fault.fired)
            fork.disk.heal()
            assert not fork.disk.locks
            try:
                examine(fork, options)
            except Exception as exc:
                raise AssertionError(f"{how}: {kinds[0]}... {nth}: {exc!r}") from exc
            nth += 1 + (nth // 12 if SOAK else 4 * nth)
        assert nth > 10


def named_images(disk: SimDisk) -> list[str]:
    """The checkpoint files that say where in the log an image is, or the definitions."""
    found = []
    for name in (checkpoint.NAME, checkpoint.PREVIOUS):
        path = f"{DATA}/qmgrs/{NAME}/{name}"
        decoded = checkpoint.decode_file(disk.peek(path)) if disk.exists(path) else None
        lines = [json.loads(line) for line in decoded[1]] if decoded is not None else []
        found += [name] if any(line.get("image") or line.get("catalog") for line in lines) else []
    return found


@pytest.mark.parametrize("then", [{}, {"log_type": "linear"}], ids=["goes_on", "to_linear"])
def test_no_checkpoint_relies_on_images_of_a_history_that_a_killed_run_has_deleted(then: dict[str, str]) -> None:
    """Whether the next run goes on with the change to circular logging, or the log is to stay linear after all."""
    life = Life(LINEAR)
    born(life)
    for _ in range(3):
        laps(life, 1.2)
        life.qm.record_image()
    life.checkpoint()
    life.end()
    assert len(named_images(life.disk)) == 2
    moments = 0

    def look(kind: str, path: str) -> None:
        nonlocal moments
        fork = life.fork((KEEP_ALL, LOSE_ALL, mixed(moments))[moments % 3])
        if state_of(fork.disk).log_type is LogType.CIRCULAR:
            moments += 1
            migrate(fork, **then)
            assert named_images(fork.disk) == [], f"{kind} {path}"
            fork.restart()
            if then:
                fork.qm.record_image()
                for queue in fork.qm.queues():
                    fork.qm.recreate(queue.name)
                fork.check()

    with Lookout(life.disk, look):
        migrate(life, log_type="circular")
    assert moments > 10


def test_no_room_for_another_extent_then_room_again() -> None:
    life = ended(CIRCULAR)
    for spare in (0, 4096, 100_000):
        fork = life.fork(KEEP_ALL)
        fork.disk.capacity = fork.disk.used + spare
        try:
            migrate(fork, log_path=ELSEWHERE)
            raise AssertionError("there was no room for that")
        except qmgr.MQError as exc:
            assert exc.reason == qmgr.Reason.STORAGE_MEDIUM_FULL
        fork.disk.capacity = None
        examine(fork, {"log_path": ELSEWHERE})


# Refusals


def test_one_that_did_not_end_in_order_is_refused() -> None:
    life = Life(CIRCULAR)
    born(life)
    life.crash(KEEP_ALL)
    for options in ({"log_type": "linear"}, {"log_path": ELSEWHERE}, {}):
        with pytest.raises(qmgr.MQError, match="did not end in order; start the queue manager and end it"):
            migrate(life, **options)
    life.restart()


def test_a_running_one_is_refused() -> None:
    life = Life(CIRCULAR)
    born(life)
    with pytest.raises(qmgr.InUse):
        migrate(life, log_type="linear")


def test_a_damaged_log_is_refused_and_not_changed() -> None:
    life = ended(CIRCULAR)
    state = state_of(life.disk)
    number = max(state.extents, key=lambda one: one[1])[0]
    path = f"{OLD}/active/{extent.file_name(number)}"
    data = bytearray(life.disk.peek(path))
    at = extent.DATA + (state.clean_end - 300) % state.extent_bytes
    data[at : at + 50] = bytes(50)
    for spare in (1, 2):  # nor is it whole in a spare page
        data[4096 * spare : 4096 * (spare + 1)] = bytes(4096)
    life.disk.poke(path, bytes(data))
    before = {path: life.disk.peek(path) for path in life.disk.files(OLD) if not path.endswith(".lock")}
    with pytest.raises(qmgr.MQError, match="damaged"):
        migrate(life, log_type="linear")
    assert before == {path: life.disk.peek(path) for path in before}


def test_a_place_with_another_log_is_refused() -> None:
    life = ended(CIRCULAR)
    qmgr.create("OTHER", data_path="/their/data", log_path="/their/log", disk=life.disk, clock=life.clock)
    for path in life.disk.files("/their/log/OTHER"):
        target = path.replace("/their/log/OTHER", f"{ELSEWHERE}/{NAME}")
        make(life.disk, target.rsplit("/", 1)[0])
        life.disk.poke(target, life.disk.peek(path))
    with pytest.raises(qmgr.MQError, match="holds another log; give another directory"):
        migrate(life, log_path=ELSEWHERE)
    life.restart()


def test_a_place_with_an_archived_extent_of_another_log_is_refused() -> None:
    """A compressed one too. The control file and the active extents of that log may lie elsewhere, or be gone."""
    life = ended(LINEAR)
    qmgr.create("OTHER", data_path="/their/data", log_path="/their/log", disk=life.disk, clock=life.clock)
    archived = f"{ELSEWHERE}/{NAME}/archive/{extent.file_name(3)}"
    for directory in (f"{OLD}/archive", archived.rpartition("/")[0]):
        make(life.disk, directory)
    whole = life.disk.peek(f"/their/log/OTHER/active/{extent.file_name(0)}")
    life.disk.poke(archived, whole)
    compress(life.disk, archived, f"{archived}.gz", Compression.GZIP)
    life.disk.remove(archived)
    life.disk.poke(f"{OLD}/archive/{extent.file_name(99)}", b"brings the archive along")
    before = life.disk.files(ELSEWHERE)
    with pytest.raises(qmgr.MQError, match="holds another log; give another directory"):
        migrate(life, log_path=ELSEWHERE)
    assert [path for path in life.disk.files(ELSEWHERE) if not path.endswith("lock")] == before
    life.restart()


def test_what_is_not_of_the_log_stays_in_the_new_place_and_so_does_its_own_archive() -> None:
    life = ended(LINEAR)
    numbers = sorted(extents(life.disk))
    first, second = (extent.file_name(number) for number in numbers[:2])
    there = f"{ELSEWHERE}/{NAME}"
    for directory in (f"{OLD}/archive", f"{there}/archive", f"{there}/active"):
        make(life.disk, directory)
    life.disk.poke(f"{OLD}/archive/{first}", life.disk.peek(f"{OLD}/active/{first}"))
    life.disk.poke(f"{there}/archive/{second}", life.disk.peek(f"{OLD}/active/{second}"))
    life.disk.poke(f"{there}/archive/notes.txt", b"mine")
    life.disk.poke(f"{there}/active/notes.txt", b"mine")
    life.disk.poke(f"{there}/active/S0009999.LOG", b"of an attempt before")
    migrate(life, log_path=ELSEWHERE)
    assert life.disk.list(f"{there}/archive") == [first, second, "notes.txt"]
    assert "notes.txt" in life.disk.list(f"{there}/active")
    assert "S0009999.LOG" not in life.disk.list(f"{there}/active")
    life.restart()


def make(disk: SimDisk, path: str) -> None:
    parts = path.split("/")[1:]
    for depth in range(1, len(parts) + 1):
        disk.mkdir("/" + "/".join(parts[:depth]))


def test_a_place_inside_the_log_is_refused() -> None:
    life = ended(CIRCULAR)
    with pytest.raises(qmgr.MQError, match="one of them lies in the other"):
        migrate(life, log_path=OLD)
    life.restart()


def test_a_backup_from_the_middle_of_a_move_does_not_delete_the_log_that_was_moved_back_since() -> None:
    """Its note says that what lies in the old place is to be deleted; it was, and now the living log is there."""
    life = ended(LINEAR)
    backup: dict[str, bytes] = {}

    def look(kind: str, path: str) -> None:
        if kind == "unlink" and path.startswith(OLD) and not backup:
            names = life.disk.files(f"{DATA}/qmgrs/{NAME}") + life.disk.files(ELSEWHERE)
            backup.update((path, life.disk.peek(path)) for path in names)

    with Lookout(life.disk, look):
        migrate(life, log_path=ELSEWHERE)
    for path, data in backup.items():
        make(life.disk, f"/backup{path}".rpartition("/")[0])
        ini = path == INI
        life.disk.poke(
            f"/backup{path}", data.replace(ELSEWHERE.encode(), f"/backup{ELSEWHERE}".encode()) if ini else data
        )
    migrate(life, log_path=LOG)
    life.restart()
    life.put("A", size=100)
    before = life.disk.files(OLD)
    said: list[str] = []
    migrate_log(NAME, data_path=f"/backup{DATA}", disk=life.disk, say=said.append)
    assert life.disk.files(OLD) == before
    assert said[0].startswith(f"{OLD} is not empty and stays: active")
    life.crash()
    life.restart()


def started_since(setup: Setup, text: str) -> tuple[Life, bytes]:
    """The log has moved and gone on, and a copy of the old one and of its qm.ini came back, which know nothing."""
    life = ended(setup, long=False)
    before = {path: life.disk.peek(path) for path in [INI, *life.disk.files(OLD)]}
    migrate(life, log_path=ELSEWHERE)
    life.restart()
    life.put("A", size=100)
    life.end()
    newer = life.disk.peek(INI)
    for path, data in before.items():
        make(life.disk, path.rpartition("/")[0])
        life.disk.poke(path, data)
    there = {path: life.disk.peek(path) for path in life.disk.files("/") if not path.endswith("lock")}
    with pytest.raises(qmgr.MQError, match=text):
        migrate(life, log_path=ELSEWHERE)
    assert {path: life.disk.peek(path) for path in life.disk.files("/") if not path.endswith("lock")} == there
    return life, newer


@pytest.mark.parametrize("setup", [CIRCULAR, LINEAR])
def test_a_log_that_is_older_than_the_checkpoints_is_not_moved(setup: Setup) -> None:
    life, newer = started_since(setup, "it is an older copy, or LogPath in qm.ini is wrong")
    life.disk.poke(INI, newer)
    life.restart()


@pytest.mark.parametrize("again", [False, True], ids=["crashed", "ended"])
@pytest.mark.parametrize("how", [{"log_type": "linear"}, {"log_path": ELSEWHERE}], ids=["linear", "moved"])
def test_an_older_control_file_of_a_log_that_went_on_is_refused_and_nothing_changed(
    again: bool, how: dict[str, str]
) -> None:
    """What it says to be the end in order is not the end: what came later would not be brought along."""
    life = ended(CIRCULAR, long=False)
    older = life.disk.peek(control_path(OLD))
    life.start()
    life.put("A", size=100)
    if again:
        life.end()
    disk = life.disk = life.disk.crash(KEEP_ALL)
    disk.poke(control_path(OLD), older)
    before = {path: disk.peek(path) for path in disk.files(LOG) if not path.endswith(".lock")}
    with pytest.raises(qmgr.Damaged, match=r"but there are records up to .*the control file is an older copy"):
        migrate(life, **how)
    assert before == {path: disk.peek(path) for path in disk.files(LOG) if not path.endswith(".lock")}


@pytest.mark.parametrize("lost", ["nothing", "control"])
def test_a_place_where_this_log_has_gone_on_is_refused(lost: str) -> None:
    """Its epoch says so, or without a control file those of its extents."""
    life = ended(CIRCULAR, long=False)
    life.restart()
    laps(life, 1.2)
    life.end()
    copied = life.disk.files(OLD)
    target = f"{ELSEWHERE}/{NAME}"
    for path in copied if lost == "nothing" else [path for path in copied if path != control_path(OLD)]:
        make(life.disk, path.replace(OLD, target).rpartition("/")[0])
        life.disk.poke(path.replace(OLD, target), life.disk.peek(path))
    older = ended(CIRCULAR, long=False)
    for path in copied:
        life.disk.remove(path)
    for path in older.disk.files(LOG) + older.disk.files(DATA):
        life.disk.poke(path, older.disk.peek(path))
    there = {path: life.disk.peek(path) for path in life.disk.files(ELSEWHERE)}
    with pytest.raises(qmgr.MQError, match="holds this log as it went on"):
        migrate(life, log_path=ELSEWHERE)
    assert there.items() <= {path: life.disk.peek(path) for path in life.disk.files(ELSEWHERE)}.items()


def test_the_archive_of_another_queue_manager_in_the_log_s_directory_stays_where_it_is() -> None:
    life = ended(LINEAR)
    qmgr.create("OTHER", data_path="/their/data", log_path="/their/log", disk=life.disk, clock=life.clock)
    theirs, archive = control.read(life.disk, control_path("/their/log/OTHER"))[1], f"{OLD}/archive"
    make(life.disk, archive)
    life.disk.poke(f"{archive}/{extent.file_name(5)}", life.disk.peek("/their/log/OTHER/active/S0000000.LOG"))
    life.disk.poke(f"{archive}/{claims.mark_name(theirs.log_id)}", b"")
    before = life.disk.files(archive)
    said: list[str] = []
    migrate_log(NAME, data_path=DATA, disk=life.disk, log_path=ELSEWHERE, say=said.append)
    assert (life.disk.files(archive), life.disk.files(f"{ELSEWHERE}/{NAME}/archive")) == (before, [])
    assert any("is not empty and stays: archive" in line for line in said)
    life.restart()


def test_the_mark_of_an_archive_goes_with_it_after_all_that_it_is_the_mark_of() -> None:
    """Else the next queue manager that logs here hears that this is another one's archive."""
    life = ended(LINEAR)
    log_id, name = state_of(life.disk).log_id, extent.file_name(min(extents(life.disk)))
    old, new = f"{OLD}/archive", f"{ELSEWHERE}/{NAME}/archive"
    make_dirs(life.disk, old)
    claims.claim(life.disk, old, log_id, "the log")
    copy(life.disk, f"{OLD}/active/{name}", f"{old}/{name}")
    life.disk.sync_dir(old)
    moments = []

    def look(kind: str, path: str) -> None:
        for loss in (LOSE_ALL, NAMES_ONLY, KEEP_ALL):
            disk = life.fork(loss).disk
            left, moved = disk.list(old), disk.list(new)
            assert left == [] or claims.mark_name(log_id) in left, (kind, path, left)
            assert claims.mark_name(log_id) in {*left, *moved}, (kind, path)
        moments.append(claims.mark_name(log_id) in left)

    with Lookout(life.disk, look):
        migrate(life, log_path=ELSEWHERE)
    assert {*moments} == {True, False}
    assert not life.disk.exists(OLD)
    assert {*life.disk.list(new)} == {name, claims.mark_name(log_id)}
    life.restart()
    life.end()
    migrate(life, log_path=LOG)  # back again: the archive has its mark there, too
    assert claims.owners(life.disk, old) == {log_id}
    assert not life.disk.exists(f"{ELSEWHERE}/{NAME}")
    life.restart()


def test_an_archive_of_another_log_in_the_new_place_is_refused_and_the_log_stays() -> None:
    life = ended(LINEAR)
    old, new = f"{OLD}/archive", f"{ELSEWHERE}/{NAME}/archive"
    for directory in (old, new):
        make(life.disk, directory)
    claims.claim(life.disk, old, state_of(life.disk).log_id, "the log")
    life.disk.poke(f"{new}/{claims.mark_name(bytes(16))}", b"")
    with pytest.raises(qmgr.MQError, match="is the archive of another queue manager's log"):
        migrate(life, log_path=ELSEWHERE)
    life.restart()


@pytest.mark.parametrize("junk", [b"", bytes(40), b"\xff\xfe", b"relative\n3", b"/there\nthree"])
def test_a_note_of_the_old_place_that_can_not_be_read_is_told_in_a_sentence(junk: bytes) -> None:
    life = ended(CIRCULAR, long=False)
    life.disk.poke(f"{OLD}/{MOVED_FROM}", junk)
    with pytest.raises(qmgr.Damaged, match=f"{MOVED_FROM} can't be read.* delete what is left there by hand"):
        migrate(life)
    life.restart()


# What is kept, and what is said


def test_comments_and_all_else_of_the_ini_file_stay() -> None:
    life = ended(CIRCULAR)
    text = life.disk.peek(INI).decode()
    text = text.replace("   LogType=CIRCULAR", "   logtype = CIRCULAR   # for now")
    text = "".join(line for line in text.splitlines(keepends=True) if "LogManagement" not in line)
    text += "; the end\n"
    life.disk.poke(INI, text.encode())
    migrate(life, log_type="linear", log_management="archive", log_path=ELSEWHERE)
    expected = text.replace("logtype = CIRCULAR   #", "logtype = LINEAR   #")
    expected = expected.replace(f"LogPath={OLD}/", f"LogPath={ELSEWHERE}/{NAME}")
    expected = expected.replace("Log:\n", "Log:\n   LogManagement=Archive\n")
    assert life.disk.peek(INI).decode() == expected
    life.restart()


def test_the_end_of_media_recovery_is_said_before_and_archived_extents_stay() -> None:
    life = Life(LINEAR)
    born(life)
    laps(life, 1.5)
    life.checkpoint()
    life.end()
    history = sorted(set(extents(life.disk)) - {number for number, _ in state_of(life.disk).extents})
    assert len(history) > 2
    first = f"{OLD}/active/{extent.file_name(history[0])}"
    make(life.disk, f"{OLD}/archive")
    life.disk.poke(first.replace("active", "archive"), life.disk.peek(first))
    life.disk.poke(f"{OLD}/active/S0000099.IDX", b"an index")
    life.disk.poke(f"{OLD}/active/R0000077.LOG", b"nothing")
    life.disk.poke(f"{OLD}/active/S0000098.LOG.gz.new", b"half made")
    life.disk.remove(first)
    said: list[str] = []
    size = len(life.disk.peek(f"{OLD}/active/{extent.file_name(history[1])}"))

    def say(text: str) -> None:
        if not said:
            assert state_of(life.disk).log_type is LogType.LINEAR
        said.append(text)

    migrate_log(NAME, data_path=DATA, disk=life.disk, log_type="circular", say=say)
    assert f"(log extents: {len(history) - 1}, bytes: {(len(history) - 1) * size})" in said[0]
    assert sorted(extents(life.disk)) == sorted(number for number, _ in state_of(life.disk).extents)
    assert not [name for name in life.disk.list(f"{OLD}/active") if name[0] == "R" or name.endswith(("IDX", "new"))]
    assert life.disk.exists(first.replace("active", "archive"))
    life.restart()


def test_what_is_not_of_the_log_stays_in_the_old_place() -> None:
    life = ended(CIRCULAR)
    life.disk.poke(f"{OLD}/notes.txt", b"mine")
    said: list[str] = []
    migrate_log(NAME, data_path=DATA, disk=life.disk, log_path=ELSEWHERE, say=said.append)
    assert life.disk.peek(f"{OLD}/notes.txt") == b"mine"
    assert any("notes.txt" in line for line in said)
    life.restart()


@pytest.mark.parametrize("what", ["log", "active", "archive"])
def test_a_directory_of_the_log_that_is_a_link_stays_and_is_in_nobody_s_way(tmp_path: Path, what: str) -> None:
    """The log moved, and no run of it got to an end; nor did a deletion."""
    qmgr.create("QM1", data_path=tmp_path / "data", log_type="linear", **SMALL)
    old = tmp_path / "data/log/QM1"
    (old / "archive").mkdir()
    link = {"log": old, "active": old / "active", "archive": old / "archive"}[what]
    link.rename(tmp_path / "fast")
    link.symlink_to(tmp_path / "fast")
    with qmgr.start("QM1", data_path=tmp_path / "data") as manager:
        manager.define_queue("Q")
        manager.put("Q", b"kept")
    migrate_log("QM1", data_path=tmp_path / "data", log_path=tmp_path / "new")
    with qmgr.start("QM1", data_path=tmp_path / "data") as manager:
        assert manager.get("Q").body == b"kept"
    migrate_log("QM1", data_path=tmp_path / "data", log_path=tmp_path / "data/log")
    assert not (tmp_path / "new/QM1").exists()
    qmgr.delete("QM1", data_path=tmp_path / "data")
    assert not (tmp_path / "data/qmgrs/QM1").exists()
    assert [path.name for path in (tmp_path / "fast").rglob("*.LOG")] == []


class MountedIni(PosixDisk):
    """Where qm.ini is mounted by itself, as from a config map: nothing takes its place."""

    def rename(self, old: str, new: str) -> None:
        if new.endswith("/qm.ini"):
            raise OSError(errno.EBUSY, os.strerror(errno.EBUSY), old, None, new)
        super().rename(old, new)


@pytest.mark.parametrize("how", ["linear", "circular", "moved"])
def test_where_qm_ini_can_t_be_replaced_the_log_stays_as_it_says(tmp_path: Path, how: str) -> None:
    """The log was changed, qm.ini was not, and no start was possible."""
    qmgr.create("QM1", data_path=tmp_path, log_type="linear" if how == "circular" else "circular", **SMALL)
    ini = tmp_path / "qmgrs/QM1/qm.ini"
    with qmgr.start("QM1", data_path=tmp_path) as manager:
        manager.define_queue("Q")
        manager.put("Q", b"kept")
    before = ini.read_bytes()
    wanted = {"log_path": tmp_path / "elsewhere"} if how == "moved" else {"log_type": how}
    with pytest.raises(qmgr.Unavailable, match=f"busy: '{ini}'"):
        migrate_log("QM1", data_path=tmp_path, disk=MountedIni(), **wanted)
    assert (ini.read_bytes(), ini.with_name("qm.ini.new").exists()) == (before, False)
    with qmgr.start("QM1", data_path=tmp_path) as manager:
        assert manager.get("Q").body == b"kept"


def test_where_qm_ini_is_a_link_what_it_leads_to_is_changed(tmp_path: Path) -> None:
    """The link became a file of its own, and who went on to change what it had led to was not heard."""
    qmgr.create("QM1", data_path=tmp_path, **SMALL)
    ini, kept = tmp_path / "qmgrs/QM1/qm.ini", tmp_path / "kept.ini"
    ini.rename(kept)
    ini.symlink_to(kept)
    migrate_log("QM1", data_path=tmp_path, log_type="linear")
    assert ini.is_symlink() and "LogType=LINEAR" in kept.read_text()


def test_a_run_without_options_completes_what_was_begun_with_its_log_management() -> None:
    completed = 0
    for moment in range(1, 60):
        life = ended(CIRCULAR, long=False)
        life.disk.crash_after(moment)
        try:
            migrate(life, log_type="linear", log_management="Automatic")
        except SimCrash:
            life.disk = life.disk.crash(KEEP_ALL)
        else:
            break
        migrate(life)
        text = life.disk.peek(INI).decode()
        completed += "LogType=LINEAR" in text
        assert ("LogType=LINEAR" not in text) or "LogManagement=Automatic" in text
    assert completed > 2


@pytest.mark.parametrize(("known", "since"), [(0, 5), (2, 2), (7, 5)])
def test_from_where_the_log_is_circular_or_before_an_archive_is_not_its_past(known: int, since: int) -> None:
    """Before: the archive was away when a backup was put back, and could not be looked at yet."""
    disk, config = SimDisk(), LogConfig(path="/log", log_type=LogType.LINEAR, primary_files=3, file_pages=64)
    at_rest.create(disk, config, ID)
    file = control.ControlFile(disk, control_path("/log"))
    at = 5 * config.extent_bytes
    file.write(attrs.evolve(file.state, head=at, checkpoint=at, durable=at, clean_end=at))
    file.close()
    if known:
        undone.write(disk, "/log", ID, undone.Undone(frozenset({file_name(0)}), known))
    to_circular(disk, "/log", 3)
    left = undone.read(disk.crash(LOSE_ALL), "/log", ID)
    assert (left.since, len(left.names)) == (since, bool(known))
