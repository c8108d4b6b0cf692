"""Damage to what was durable: recovered, refused with the file's name, or one queue damaged; never silent, never worse.

With linear logging a damaged queue is built again, at the start or when it is asked for; where the log itself is what
was harmed, that is refused with the extent's name, and nothing is half done.

Every test takes the disk of a queue manager that ended in order, or was killed, changes something on it behind the
queue manager's back, and starts it.
"""

import itertools
import random
import re
import struct
from collections.abc import Callable
from zlib import crc32

import pytest

import qmgr
from logger import control
from logger.errors import LogError
from logger.extent import DATA as RECORDS
from logger.extent import file_name, linear_number
from logger.integrity import open_spare
from logger.lsn import page_of
from qmgr.errors import MediaImageMissing, MediaNotSupported
from recovery.errors import RecoveryError
from tests.conftest import SOAK
from tests.model import Model
from tests.sim.disk import SimDisk
from tests.sim.life import DATA, LOG, NAME, Life, Setup
from tests.sim.loss import KEEP_ALL
from tests.test_crash import born, laps

PAGE = 4096
SECTOR = 512
XID = qmgr.Xid(7, b"damage", b"")
EXTENT = re.compile(r"[SR]\d{7}\.LOG")
ACTIVE = f"{LOG}/{NAME}/active"
REFUSALS = (qmgr.MQError, LogError, RecoveryError)


class Past:
    """A queue manager that was, with older copies of its files."""

    def __init__(self, *, clean: bool, log: str = "circular", seed: int = 0) -> None:
        management = "Automatic" if clean else "Manual"
        setup = Setup(primary_files=2, secondary_files=1, log_type=log, log_management=management)
        life = Life(setup, seed=seed)
        self.log = log
        self.linear = setup.linear
        self.one_queue = "one queue recreated" if self.linear else "one queue damaged"
        born(life)
        self.older: list[SimDisk] = []
        self.then: list[Model] = []  # what a crash at each of those moments would have left
        for turn in range(3):
            for n in range(6):
                life.put("A", size=300 + 900 * n, priority=n % 3)
                life.put("B", size=50)
            life.define(f"Q{turn}", "one of three")
            life.put(f"Q{turn}", size=7000)
            life.get("A", limit=2)
            if turn == 1:
                laps(life, 1.3)
            life.checkpoint()
            self.older.append(life.disk.snapshot(KEEP_ALL))
            self.then.append(life.model.copy())
            self.then[-1].crash()
        doubt = life.begin(XID)
        life.get("A", unit=doubt)
        life.put("B", unit=doubt)
        life.prepare(doubt)
        life.get("B")
        life.put("Q0", size=2500)
        self.allowed: list[Model] = []
        if clean:
            life.end()
        else:
            before = life.model.copy()
            before.crash()
            life.put("B", size=100)  # nothing after it says that it was durable
            self.allowed.append(before)
        after = life.model.copy()
        after.crash()
        self.allowed.append(after)
        self.disk = life.disk.snapshot(KEEP_ALL)
        self.clean = clean
        self.clock = life.clock
        self.files = [path for path in self.disk.files() if not path.endswith(".lock") and self.disk.peek(path)]


@pytest.fixture(
    scope="module",
    params=[(True, "circular"), (False, "circular"), (True, "linear"), (False, "linear")],
    ids=["ended", "killed", "linear ended", "linear killed"],
)
def past(request: pytest.FixtureRequest) -> Past:
    clean, log = request.param
    return Past(clean=clean, log=log)


def outcome(past: Past, disk: SimDisk, what: str, also: Model | None = None) -> str:
    """Start on the damaged disk and say how it went; fails where something is lost or changed in silence.

    `also`: a state that nothing on the disk contradicts.
    """
    life = Life(disk=disk)
    life.clock.wall = past.clock.wall
    try:
        life.start()
    except REFUSALS as exc:
        text = str(exc)
        assert (
            "/base/" in text
            or any(path.rsplit("/", 1)[1] in text for path in past.files)
            or (".ini" in what and NAME in text)
        ), f"{what}: a refusal that names no file: {text}"
        return "refused"
    except Exception as exc:
        raise AssertionError(f"{what}: {exc!r}") from exc
    best = ""
    for model in past.allowed if also is None else [*past.allowed, also]:
        best = compare(life, model.copy(), what) or best
    assert best, f"{what}: silently lost or changed"
    if past.linear:
        if best == "recovered" and "AMQ9004" in said(life.disk):
            best = past.one_queue  # by the start
        if best != "one queue damaged":
            recreates_or_refuses(past, life, what)
    if best in ("recovered", "one queue recreated"):  # and it goes on as if nothing had been
        try:
            life.qm.put("B", b"more")
            life.qm.checkpoint()
            life.disk = life.disk.crash(KEEP_ALL)
            life.start()
            assert [m.body for m in life.qm.browse("B")].count(b"more") == 1
        except REFUSALS as exc:
            assert "damage" in str(exc).lower() or "/base/" in str(exc), f"{what}: later: {exc!r}"
    return best


def said(disk: SimDisk) -> str:
    """The error log since the last start."""
    log = f"{DATA}/qmgrs/{NAME}/errors/AMQERR01.LOG"
    return disk.peek(log).decode(errors="replace").rpartition("AMQ6287")[2] if log in disk.files(DATA) else ""


def recreates_or_refuses(past: Past, life: Life, what: str) -> None:
    """Each queue can be built again and is the same then; or an extent that was harmed is named, and it is the same.

    Non-persistent messages are on none of them. The quick suite builds every other queue, which depends on the blow.
    """
    refused: list[str] = []
    queues = sorted(queue.name for queue in life.qm.queues() if not queue.name.startswith("SYSTEM."))
    for queue in queues if SOAK else queues[crc32(what.encode()) % 2 :: 2]:
        before = [(m.body, m.message_id, m.backout_count) for m in life.qm.browse(queue)]
        try:
            life.qm.recreate(queue)
        except qmgr.MQError as exc:
            assert isinstance(exc, MediaImageMissing), f"{what}: {queue}: {exc!r}"
            named = EXTENT.findall(str(exc))
            assert named, f"{what}: {queue}: {exc}"
            assert named[0] in what or "snapshot" in what or "extents" in what, f"{what}: {queue}: {exc}"
            refused.append(queue)
        after = [(m.body, m.message_id, m.backout_count) for m in life.qm.browse(queue)]
        assert before == after, f"{what}: {queue} was changed by its recreation"
    if refused and put_back(past, life, what):
        for queue in refused:
            before = [(m.body, m.message_id, m.backout_count) for m in life.qm.browse(queue)]
            life.qm.recreate(queue)
            after = [(m.body, m.message_id, m.backout_count) for m in life.qm.browse(queue)]
            assert before == after, f"{what}: {queue}, with the extent put back"


def put_back(past: Past, life: Life, what: str) -> bool:
    """Put inactive extents back that were harmed; False where the harmed one is in use."""
    inactive = {file_name(linear_number(sequence)) for sequence in life.qm._log.inactive()}
    inactive |= {name for name in EXTENT.findall(what) if f"{ACTIVE}/{name}" not in life.disk.files(LOG)}
    harmed = set(EXTENT.findall(what))
    for name in harmed & inactive:
        life.disk.poke(f"{ACTIVE}/{name}", past.disk.peek(f"{ACTIVE}/{name}"))
    return bool(harmed) and harmed <= inactive


def compare(life: Life, model: Model, what: str) -> str:
    """ "recovered", "one queue damaged", "one queue recreated", or "" when it is not this model."""
    damaged = recreated = 0
    try:
        names = {queue.name for queue in life.qm.queues() if not queue.name.startswith("SYSTEM.")}
        if names != model.queues.keys() or set(life.qm.in_doubt()) != model.in_doubt():
            return ""
        expected = model.seen()
        for queue in sorted(names):
            try:
                found = [
                    (m.body, m.priority, m.message_id, m.correlation_id, m.backout_count) for m in life.qm.browse(queue)
                ]
            except qmgr.MQError as exc:
                assert exc.reason == qmgr.Reason.OBJECT_DAMAGED, f"{what}: {exc!r}"
                try:
                    life.qm.recreate(queue)
                except (MediaNotSupported, MediaImageMissing) as refusal:
                    assert isinstance(refusal, MediaNotSupported) or ".LOG" in str(refusal), f"{what}: {refusal!r}"
                    damaged += 1
                    continue
                recreated += 1
                found = [
                    (m.body, m.priority, m.message_id, m.correlation_id, m.backout_count) for m in life.qm.browse(queue)
                ]
            if found != expected[queue][1]:
                return ""
    except qmgr.MQError as exc:
        raise AssertionError(f"{what}: {exc!r}") from exc
    if damaged > 1:
        raise AssertionError(f"{what}: {damaged} queues damaged by one blow")
    return "one queue damaged" if damaged else "one queue recreated" if recreated else "recovered"


def spot(rng: random.Random, data: bytes) -> int:
    """A place in a file: anywhere, or where something is written."""
    if rng.random() < 0.3:
        return rng.randrange(len(data))
    for _ in range(50):
        at = rng.randrange(len(data))
        if data[at]:
            return at
    return rng.randrange(min(len(data), 2000))


def flip(rng: random.Random, data: bytes) -> bytes:
    at = spot(rng, data)
    return data[:at] + bytes([data[at] ^ 1 << rng.randrange(8)]) + data[at + 1 :]


def blot(rng: random.Random, data: bytes) -> bytes:
    """A sector or a page becomes zeros or noise."""
    size = rng.choice((SECTOR, PAGE))
    at = spot(rng, data) // size * size
    size = min(size, len(data) - at)
    return data[:at] + (bytes(size) if rng.random() < 0.5 else rng.randbytes(size)) + data[at + size :]


def cut(rng: random.Random, data: bytes) -> bytes:
    return data[: rng.choice((0, 1, len(data) // 2, len(data) - 1, spot(rng, data)))]


def lie(rng: random.Random, data: bytes) -> bytes:
    """A length, or what may be one, becomes huge."""
    at = spot(rng, data) & -4
    value = rng.choice((2**31, 2**32 - 1, len(data) + 1, 2**31 - 1))
    return data[:at] + struct.pack("<I", value)[: len(data) - at] + data[at + 4 :]


def swap(rng: random.Random, data: bytes) -> bytes:
    """Two pages of one file change places."""
    if len(data) < 2 * PAGE:
        return flip(rng, data)
    a, b = spot(rng, data) // PAGE, spot(rng, data) // PAGE
    pages = bytearray(data)
    pages[a * PAGE : (a + 1) * PAGE], pages[b * PAGE : (b + 1) * PAGE] = (
        data[b * PAGE : (b + 1) * PAGE],
        data[a * PAGE : (a + 1) * PAGE],
    )
    return bytes(pages)


def kind_of(path: str) -> str:
    name = path.rsplit("/", 1)[1]
    return "segment" if name.endswith(".seg") else "extent" if name.endswith(".LOG") and name[0] == "S" else name


def blows(past: Past, damage: Callable[[random.Random, bytes], bytes], number: int, seed: int) -> dict[str, int]:
    """So many single damages, in every kind of file in turn; how they went."""
    rng = random.Random(seed)
    kinds: dict[str, list[str]] = {}
    for path in past.files:
        kinds.setdefault(kind_of(path), []).append(path)
    went: dict[str, int] = {}
    for n in range(number * (50 if SOAK else 1)):
        names = sorted(kinds)
        path = rng.choice(kinds[names[n % len(names)]] if n % 2 else past.files)
        before = past.disk.peek(path)
        after = damage(rng, before)
        disk = past.disk.snapshot(KEEP_ALL)
        disk.poke(path, after)
        how = outcome(past, disk, f"seed {seed} blow {n}: {damage.__name__} in {path}")
        went[how] = went.get(how, 0) + 1
    return went


def test_the_disk_undamaged_is_recovered(past: Past) -> None:
    assert outcome(past, past.disk.snapshot(KEEP_ALL), "nothing") == "recovered"


def test_row_40_bit_flips_in_every_kind_of_file(past: Past) -> None:
    """Faults 40: with the cuts and removals of faults 42 more than five hundred of what was ended in order."""
    went = blows(past, flip, 170 if past.clean else 60, 40)
    assert went["refused"] >= 2
    assert went[past.one_queue] > 3
    assert went["recovered"] > 40  # second copies, spare pages, or nothing that counts


def test_row_41_sectors_and_pages_zeroed_or_noise(past: Past) -> None:
    """Faults 41."""
    went = blows(past, blot, 40, 410)
    assert went["refused"] >= 2
    assert went[past.one_queue] >= 2


def test_row_42_files_cut_and_emptied(past: Past) -> None:
    """Faults 42."""
    went = blows(past, cut, 70 if past.clean else 28, 42)
    assert went["refused"] > 3


def test_row_42_each_file_missing(past: Past) -> None:
    """Faults 42: also each log extent: a gap is never jumped."""
    for path in past.files:
        disk = past.disk.snapshot(KEEP_ALL)
        disk.remove(path)
        outcome(past, disk, f"{path} missing")


def test_row_43_each_file_replaced_by_an_older_copy(past: Past) -> None:
    """Faults 43: alone, and with another one.

    One thing can't be told: when nobody said where the log ended, an older copy of the extent that it ended in, as old
    as the latest checkpoint or younger, is the disk of a queue manager that was killed then. An end in order says so.
    """
    rng = random.Random(43)
    for age, older in enumerate(past.older):
        also = past.then[age] if age == len(past.older) - 1 and not past.clean else None
        there = [path for path in past.files if path in older.files() and older.peek(path) != past.disk.peek(path)]
        for path in there:
            disk = past.disk.snapshot(KEEP_ALL)
            disk.poke(path, older.peek(path))
            outcome(past, disk, f"{path} from snapshot {age}", also if kind_of(path) == "extent" else None)
        for _ in range(10 if SOAK else 5):
            two = rng.sample(there, min(2, len(there)))
            if {kind_of(path) for path in two} == {"segment"}:
                continue  # two queues may be damaged then
            disk = past.disk.snapshot(KEEP_ALL)
            for path in two:
                disk.poke(path, older.peek(path))
            outcome(past, disk, f"{two} from snapshot {age}", also if "extent" in map(kind_of, two) else None)


def test_row_44_pages_in_the_wrong_place(past: Past) -> None:
    """Faults 44: of the same file, and of another."""
    blows(past, swap, 25 if SOAK else 13, 44)
    rng = random.Random(44)
    for n in range(400 if SOAK else 8):
        here, there = rng.sample(past.files, 2)
        data, other = past.disk.peek(here), past.disk.peek(there)
        at, source = spot(rng, data) // PAGE * PAGE, spot(rng, other) // PAGE * PAGE
        page = other[source : source + PAGE]
        disk = past.disk.snapshot(KEEP_ALL)
        disk.poke(here, data[:at] + page[: len(data) - at] + data[at + PAGE :])
        outcome(past, disk, f"seed 44 page {n}: {there} at {source} written into {here} at {at}")


def test_row_44_files_that_changed_places(past: Past) -> None:
    """Faults 44: whole files of the same kind, swapped or doubled."""
    for kind in ("segment", "extent"):
        files = [path for path in past.files if kind_of(path) == kind]
        for one, other in itertools.pairwise(files):
            disk = past.disk.snapshot(KEEP_ALL)
            disk.poke(one, past.disk.peek(other))
            outcome(past, disk, f"{other} over {one}")


def test_row_45_a_page_that_keeps_its_old_content(past: Past) -> None:
    """Faults 45: a write that the disk acknowledged and never did."""
    rng = random.Random(45)
    tried = 0
    for age, older in enumerate(past.older):
        for path in past.files:
            if path not in older.files():
                continue
            now, then = past.disk.peek(path), older.peek(path)
            pages = [
                at for at in range(0, min(len(now), len(then)), PAGE) if now[at : at + PAGE] != then[at : at + PAGE]
            ]
            for at in rng.sample(pages, min(6, len(pages))):
                tried += 1
                disk = past.disk.snapshot(KEEP_ALL)
                disk.poke(path, now[:at] + then[at : at + PAGE] + now[at + PAGE :])
                outcome(past, disk, f"{path}: the page at {at} as in snapshot {age}")
    assert tried > 20


def busy_log(integrity: str = "TripleWrite") -> Life:
    """Killed with much in the log that no checkpoint holds."""
    life = Life(Setup(primary_files=3, write_integrity=integrity))
    born(life)
    for n in range(12):
        life.put("A", size=2000)
        life.put("B", size=100 + n)
    return life


def extent_in_use(disk: SimDisk) -> str:
    """The log extent with the most in it."""
    extents = [path for path in disk.files(LOG) if kind_of(path) == "extent"]
    return max(extents, key=lambda path: len(disk.peek(path).rstrip(b"\0")))


def test_row_46_damage_in_the_middle_is_refused_and_a_torn_tail_is_not() -> None:
    """Faults 46: what was acknowledged is never cut off, whichever record of the log is hit."""
    life = busy_log()
    base = life.disk.crash(KEEP_ALL)
    path = extent_in_use(base)
    data = base.peek(path)
    used = len(data.rstrip(b"\0"))
    refused = 0
    for at in range(3 * PAGE + 100, used - 2 * PAGE, 1777):
        disk = base.snapshot(KEEP_ALL)
        disk.poke(path, data[:at] + bytes([data[at] ^ 0x40]) + data[at + 1 :])
        other = Life(disk=disk)
        try:
            other.start()
        except REFUSALS as exc:
            refused += 1
            assert path.rsplit("/", 1)[1] in str(exc), exc
            assert (
                disk.peek(path)[3 * PAGE :][: used - 3 * PAGE]
                == (data[:at] + bytes([data[at] ^ 0x40]) + data[at + 1 :])[3 * PAGE :][: used - 3 * PAGE]
            ), "a log that was refused was changed"
        else:
            other.model = life.model
            other.check()  # it hit nothing that counts: an old version in a spare page, say
    assert refused > 10


@pytest.mark.parametrize("integrity", ["TripleWrite", "SingleWrite"])
def test_row_47_the_last_record_before_an_end_in_order_damaged(integrity: str) -> None:
    """Faults 47: the control file names the exact end, so what was damaged there is not taken for a torn tail."""
    life = busy_log(integrity)
    life.end()
    base = life.disk.snapshot(KEEP_ALL)
    path = extent_in_use(base)
    data = base.peek(path)
    state = control.read(base, f"{LOG}/{NAME}/{control.NAME}")[1]
    page = page_of(state.clean_end)
    held = state.clean_end - page
    begins = RECORDS + page % state.extent_bytes  # of the page that the log ends in
    if integrity == "TripleWrite":
        spares = [(open_spare(data[at : at + PAGE], crc32(state.log_id)), at) for at in (PAGE, 2 * PAGE)]
        ((_, begins),) = [(one, at) for one, at in spares if one and one[:2] == (page, state.clean_end)]
    tried = range(1, state.clean_end - max(page, state.head), 3)  # what lies before the head is read by nobody
    refused = 0
    for back in tried:
        at = begins + held - back
        disk = base.snapshot(KEEP_ALL)
        disk.poke(path, data[:at] + bytes([data[at] ^ 0x01]) + data[at + 1 :])
        other = Life(disk=disk)
        try:
            other.start()
        except REFUSALS as exc:
            refused += 1
            assert path.rsplit("/", 1)[1] in str(exc), exc
        else:  # it hit what fills a frame up to the next one
            other.model = life.model
            other.check()
    assert refused > 0.8 * len(tried) > 10


def test_row_48_huge_lengths(past: Past) -> None:
    """Faults 48: nothing is allocated or skipped on the word of a damaged length."""
    went = blows(past, lie, 56, 48)
    assert went["refused"] >= 2
    assert went[past.one_queue] >= 2


def test_where_the_files_are() -> None:
    """The names that these tests look for are those that the queue manager uses."""
    disk = Past(clean=True).disk
    names = [path.rsplit("/", 1)[1] for path in disk.files()]
    assert {"qm.ini", "mqs.ini", "amqhlctl.lfh", "S0000000.LOG", "amqalchk.fil"} <= set(names)
    assert any(path.endswith(".seg") for path in disk.files(DATA))


# -- settings and strangers ----------------------------------------------------------------------------------------


SETTINGS = {
    "LogPrimaryFiles": ("2", "3", "9", "1"),
    "LogSecondaryFiles": ("1", "5", "0"),
    "LogFilePages": ("65", "128", "4096"),
    "LogBufferPages": ("0", "18", "600", "4097"),
    "LogWriteIntegrity": ("SingleWrite", "DoubleWrite", "HalfWrite"),
    "LogType": ("LINEAR", "CIRCULAR", "SQUARE"),
    "LogManagement": ("Manual", "Automatic", "Archive", "Mine"),
    "LogPath": ("/base/elsewhere/", "relative"),
    "LogSync": ("interval", "os", "never"),
}


def with_setting(text: str, name: str, value: str) -> str:
    kept = [line for line in text.splitlines() if not line.strip().startswith(f"{name}=")]
    kept.insert(next(n for n, line in enumerate(kept) if line.strip() == "Log:") + 1, f"   {name}={value}")
    return "\n".join(kept) + "\n"


@pytest.mark.parametrize("name", SETTINGS)
def test_row_38_a_restart_with_changed_settings(past: Past, name: str) -> None:
    """Faults 38: accepted or refused with a sentence; nothing is lost either way, and the old settings work again."""
    (ini,) = [path for path in past.files if path.endswith("/qm.ini")]
    text = past.disk.peek(ini).decode()
    for value in SETTINGS[name]:
        disk = past.disk.snapshot(KEEP_ALL)
        disk.poke(ini, with_setting(text, name, value).encode())
        assert outcome(past, disk, f"{name}={value} in qm.ini") in ("recovered", "refused")
        disk = past.disk.snapshot(KEEP_ALL)
        disk.poke(ini, with_setting(text, name, value).encode())
        life = Life(disk=disk)
        try:
            life.start()
        except REFUSALS:
            pass
        else:
            life.qm.end("immediate")
        again = disk.crash(KEEP_ALL)
        again.poke(ini, text.encode())
        assert outcome(past, again, f"{name}: back from {value}") == "recovered"


def test_row_39_files_of_another_queue_manager(past: Past) -> None:
    """Faults 39: every file says whose it is; a stranger's is refused, or damages its one queue."""
    stranger = Past(clean=past.clean, log=past.log, seed=39)
    for path in past.files:
        if path not in stranger.files or path.endswith((".ini", "AMQERR01.LOG")):
            continue
        disk = past.disk.snapshot(KEEP_ALL)
        disk.poke(path, stranger.disk.peek(path))
        outcome(past, disk, f"{path} of another queue manager")
    log = [path for path in past.files if path.startswith(LOG)]
    disk = past.disk.snapshot(KEEP_ALL)
    for path in log:
        disk.poke(path, stranger.disk.peek(path))
    assert outcome(past, disk, "the whole log of another queue manager") == "refused"


@pytest.mark.parametrize(
    ("magic", "newer"), [(b"QMGRLOG1", b"QMGRLOG9"), (b"QMGRCTL1", b"QMGRCTL9"), (b"QMGRCHK1", b"QMGRCHK9")]
)
def test_row_39_files_of_a_later_format(past: Past, magic: bytes, newer: bytes) -> None:
    """Faults 39: a version that is not known is not guessed at."""
    paths = [path for path in past.files if past.disk.peek(path).startswith(magic)]
    assert paths
    disk = past.disk.snapshot(KEEP_ALL)
    for path in paths:
        disk.poke(path, past.disk.peek(path).replace(magic, newer))
    assert outcome(past, disk, f"{newer!r}, extents and all") in ("refused", "recovered")
    if magic != b"QMGRLOG1":  # an extent's header only repeats what the control file knows
        disk = past.disk.snapshot(KEEP_ALL)
        for path in paths:
            disk.poke(path, past.disk.peek(path).replace(magic, newer))
        assert outcome(past, disk, f"{newer!r}") == "refused"
