"""The log as a whole: append, force, read back; what a crash leaves; when it stops for good."""

import contextlib
import errno
import re
import threading
from collections.abc import Callable
from typing import Any

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from logger import at_rest, lsn
from logger.at_rest import control_path
from logger.config import LogConfig, LogSync, LogType, WriteIntegrity
from logger.control import COPY_BYTES
from logger.disk import PAGE
from logger.errors import LogClosed, LogDamaged, LogError, LogFailed
from logger.extent import DATA, ExtentHeader, decode_header
from logger.frame import FILL, HEADER
from logger.log import Log
from logger.reader import LogReader
from tests.sim.clock import SimClock
from tests.sim.disk import SimCrash, SimDisk
from tests.sim.life import Lookout
from tests.sim.loss import KEEP_ALL, LOSE_ALL, Loss, mixed

ID = b"identity of 16 b"
EXTENT = 64 * PAGE


class Full(Exception):
    """The log has no room for the record."""


def config(**options: Any) -> LogConfig:
    given = {"primary_files": 2, "secondary_files": 1, "file_pages": 64, "buffer_pages": 18} | options
    return LogConfig(path="/log", **given)


def made(**options: Any) -> tuple[SimDisk, Log]:
    disk = SimDisk()
    at_rest.create(disk, config(**options), ID)
    disk.sync_dir("/")
    return disk, begun(disk, **options)[1]


def begun(disk: SimDisk, **options: Any) -> tuple[list[bytes], Log]:
    """(the bodies that are in the log, the log ready to go on)."""
    log = Log(disk, SimClock(), config(**options))
    reader, records = log.read(log.state.head, 0)
    bodies = [bytes(record.body) for record in records if record.kind != FILL]
    log.begin(reader.end, reader.epoch, reader.page_up_to(reader.end))
    reader.close()
    return bodies, log


def append(log: Log, body: bytes) -> int:
    """Append a record and return the LSN to force."""
    with log.lock:
        if not log.reserve(log.cost(len(body)), 0):
            raise Full
        log.append(300, 0, 0, body)
        return log.buffer.tail


def restarted(disk: SimDisk, loss: Any = LOSE_ALL, **options: Any) -> list[bytes]:
    return begun(disk.crash(loss), **options)[0]


@pytest.mark.parametrize("integrity", list(WriteIntegrity))
@pytest.mark.parametrize("size", [0, 1, 100, 4000, 4048, 5000, 33_000, 100_000])
def test_what_was_forced_is_there_after_a_crash(integrity: WriteIntegrity, size: int) -> None:
    disk, log = made(write_integrity=integrity)
    bodies = [bytes([n]) * size for n in range(3)]
    for body in bodies:
        log.force(append(log, body))
    assert log.durable == log.buffer.tail
    assert restarted(disk, write_integrity=integrity) == bodies


def test_what_was_not_forced_may_be_lost_but_only_from_the_end() -> None:
    disk, log = made()
    bodies = [b"%d" % n for n in range(20)]
    for n, body in enumerate(bodies):
        end = append(log, body)
        if n == 9:
            log.force(end)
    for loss in (LOSE_ALL, KEEP_ALL, 1, 2, 3):
        found = begun(disk.snapshot(loss))[0]
        assert found == bodies[: len(found)]
        assert len(found) >= 10


@given(
    st.lists(
        st.tuples(st.integers(0, 6000) | st.integers(0, 30_000), st.sampled_from(["", "write", "force"])), max_size=40
    ),
    st.integers(0, 1000),
)
def test_any_crash_keeps_a_prefix_with_all_that_was_forced(steps: list[tuple[int, str]], seed: int) -> None:
    disk, log = made()
    bodies: list[bytes] = []
    forced = 0
    for n, (size, then) in enumerate(steps):
        body = bytes([n]) * size
        try:
            end = append(log, body)
        except Full:
            break
        bodies.append(body)
        if then == "write":
            with log.lock:
                log._write_full_pages()
        elif then == "force":
            log.force(end)
            forced = len(bodies)
    found = restarted(disk, seed)
    assert found == bodies[: len(found)]
    assert len(found) >= forced


def test_a_force_of_what_is_safe_writes_nothing() -> None:
    disk, log = made()
    end = append(log, b"x")
    log.force(end)
    effects = disk.effects
    log.force(end)
    log.force(0)
    assert disk.effects == effects


def test_one_force_is_one_sync() -> None:
    disk, log = made()
    log.force(append(log, b"first of the extent, which syncs the header too"))
    for body in (b"x", b"y" * 5000, b"z"):
        before = disk.counts["sync"]
        log.force(append(log, body))
        assert disk.counts["sync"] == before + 1


def test_group_commit_one_sync_serves_all_that_wait() -> None:
    _, log = made()
    log.force(append(log, b""))
    ends = [append(log, b"%d" % n) for n in range(30)]
    before = log._stats.writes
    threads = [threading.Thread(target=log.force, args=(end,)) for end in ends]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(120)
        assert not thread.is_alive()
    assert 1 <= log._stats.writes - before <= 3
    assert log.durable >= max(ends)


def test_the_log_is_full_when_the_head_stays() -> None:
    disk, log = made()
    log.force(append(log, b"first"))
    with pytest.raises(Full):
        for _ in range(1000):
            append(log, bytes(4000))
    assert log.grow()
    append(log, bytes(4000))
    assert not log.grow()
    with pytest.raises(Full):
        for _ in range(1000):
            append(log, bytes(4000))
    log.force(log.buffer.tail)
    used = log.space.used(log.buffer.tail)
    assert used > 2 * EXTENT
    log.move_head(log.buffer.tail, log.buffer.tail)
    append(log, bytes(4000))
    assert disk.exists("/log/active/S0000002.LOG")
    assert log.release_secondary() == 1
    assert len(disk.files("/log/active")) == 2


def test_row_22_a_secondary_that_was_given_back_is_not_missed_where_a_copy_of_the_control_file_is_torn() -> None:
    """Faults 22: the copy that is left must not name a file that is gone, where the log ends with an extent."""
    disk, log = made(secondary_files=2)
    assert log.grow()
    for _ in range(4):
        log.force(append(log, b"x"))
        assert log.advance(0, 0)
        log.force(log.buffer.tail)
        log.move_head(log.durable, log.durable)
    before = len(log._extents)
    assert log.release_secondary() == 1
    assert len(log._extents) == before - 1
    last = log.buffer.tail
    assert last % log.config.extent_bytes == 0
    disk = disk.crash(KEEP_ALL)
    path = at_rest.control_path("/log")
    data = disk.peek(path)
    torn = COPY_BYTES * (log._control._number % 2)  # which is written next
    disk.poke(path, data[:torn] + bytes(512) + data[torn + 512 :])
    assert begun(disk, secondary_files=2)[0] == []


@pytest.mark.parametrize("integrity", [WriteIntegrity.SINGLE, WriteIntegrity.TRIPLE])
def test_row_21_many_laps(integrity: WriteIntegrity) -> None:
    disk, log = made(write_integrity=integrity)
    for n in range(40):
        for _ in range(20):
            log.force(append(log, bytes([n]) * 3000))
        log.move_head(log.buffer.tail, log.buffer.tail)
        end = append(log, b"after %d" % n)
        log.force(end)
        if n % 7 == 0:
            disk = disk.crash(n)
            found, log = begun(disk, write_integrity=integrity)
            assert found == [b"after %d" % n]
    assert log.buffer.tail > 3 * 3 * EXTENT


@pytest.mark.parametrize("log_type", LogType)
@pytest.mark.parametrize("seed", range(3))
def test_rows_21_and_42_the_head_moves_while_the_leader_writes_and_begins_extents(log_type: LogType, seed: int) -> None:
    """Who moves it does not lead, so each of the leader's effects may lie before or behind that; a crash at any."""
    disk, log = made(log_type=log_type)
    safe: list[tuple[int, bytes]] = []
    last = b""
    looks = extents = 0

    def look(kind: str, path: str) -> None:
        nonlocal looks, extents
        assert log.space.floor == log.floor_of(log.state.head), "it is durable before others may have the extent"
        assert log._extents.holds(log.state.head // EXTENT)
        if not forces or log._control_lock.locked():
            return
        extents += path.endswith(".LOG") and log._output is not None and bool(log._output.new_extents)
        head = safe[-5][0]
        log.move_head(head, head)
        looks += 1
        if looks % 8 == seed:
            for loss in (LOSE_ALL, KEEP_ALL, mixed(looks)):
                found, _ = begun(disk.snapshot(loss), log_type=log_type)
                there = [body for at, body in safe if at >= head]
                assert found in (there, [*there, last])

    forces = False
    disk.before_effect = look
    for n in range(130):
        last = b"%d " % n + bytes([n]) * 9000
        with log.lock:
            assert log.reserve(log.cost(len(last)), 0)
            at = log.append(300, 0, 0, last)
        forces = n >= 8
        log.force(log.buffer.tail)
        forces = False
        safe.append((at, last))
        if log.space.can_grow() and not log.space.fits(log.buffer.tail, 2 * EXTENT, 0):
            assert log.grow()
    assert looks > 100
    assert extents > 2


def at_the_end_of_an_extent(log: Log) -> None:
    """Force so much that the next record of 9000 bytes takes another extent."""
    while log.buffer.tail % EXTENT < EXTENT - 9000:
        log.force(append(log, bytes(9000)))


@pytest.mark.parametrize("log_type", LogType)
def test_row_16_the_control_file_names_no_extent_whose_header_is_still_to_be_written(log_type: LogType) -> None:
    """Who moves the head may come just then; after a crash the extent would pass for one that was put back."""
    disk, log = made(log_type=log_type)
    at_the_end_of_an_extent(log)
    append(log, bytes(9000))
    with log.lock:
        log._take()
    assert log._output is not None
    assert log._output.new_extents
    log.move_head(log.durable, log.durable)
    for loss in (LOSE_ALL, KEEP_ALL):
        begun(disk.snapshot(loss), log_type=log_type)


def test_row_43_the_control_file_names_an_extent_as_soon_as_something_forced_is_in_it() -> None:
    """One that was put back as it was before is not taken for the end of the log."""
    disk, log = made()
    at_the_end_of_an_extent(log)
    before = {path: disk.peek(path) for path in disk.files("/log/active")}
    log.force(append(log, bytes(9000)))
    (path,) = (path for path in before if disk.peek(path)[:PAGE] != before[path][:PAGE])
    disk = disk.crash(LOSE_ALL)
    disk.poke(path, before[path])
    with pytest.raises(LogDamaged, match=path):
        begun(disk)


@pytest.mark.parametrize("log_type", LogType)
def test_row_42_no_crash_tears_both_a_header_and_a_copy_of_the_control_file(log_type: LogType) -> None:
    """Where the log ends at a border it could not be told then from a part of the log that is lost."""
    disk, log = made(log_type=log_type)
    log.force(append(log, b"first"))
    here = {"control": threading.Event(), "header": threading.Event()}
    syncs = {"control": 0, "header": 0}
    met = []

    def look(kind: str, path: str) -> None:
        taken = [] if log._output is None else log._output.new_extents
        header = any(extent.path == path and not extent.header_written for extent in taken)
        what = "control" if path == control_path("/log") else "header" if header else ""
        if kind == "sync" and what:
            other = here["header" if what == "control" else "control"]
            syncs[what] += 1
            here[what].set()
            met.append(other.wait(0.02))
            here[what].clear()

    def moves() -> None:
        while not over.is_set():
            log.move_head(log.durable, log.durable)

    over = threading.Event()
    disk.before_effect = look
    mover = threading.Thread(target=moves)
    mover.start()
    while min(syncs.values()) < 6:
        try:
            log.force(append(log, bytes(9000)))
        except Full:
            log.make_primaries()
            over.wait(0.001)  # until the head has moved
    over.set()
    mover.join(60)
    assert not any(met)


def test_row_42_a_start_that_has_one_copy_of_the_control_file_makes_the_other_before_it_mends_a_header() -> None:
    """A power failure tears the one as an extent is taken at a border, the next one may tear that extent's header."""
    disk, log = made()
    for _ in range(5):  # so that no extent is as it was made
        log.force(append(log, bytes(EXTENT // 2)))
        with log.lock:
            assert log.advance(0, 0)
        log.force(log.buffer.tail)
        log.move_head(log.durable, log.durable)
    assert log.durable % EXTENT == 0
    end = log.durable
    torn: list[SimDisk] = []

    def look(kind: str, path: str) -> None:
        if (kind, path) == ("sync", control_path("/log")):
            torn.append(disk.snapshot(Loss(sectors="noise")))

    disk.before_effect = look
    log.force(append(log, b"takes an extent"))
    assert len(torn) == 1
    again: list[SimDisk] = []
    there = torn[0].snapshot(KEEP_ALL)
    there.before_effect = lambda kind, path: again.extend(
        there.snapshot(Loss(sectors=sectors)) for sectors in ("noise", "zero", "old")
    )
    _, log = begun(there)
    assert log.durable == end
    for twice in again:
        assert begun(twice)[1].durable == end


def test_row_16_a_start_with_a_torn_header_wipes_no_spare_page_that_has_what_was_forced() -> None:
    """The header is the front of its file, and so are the spare pages: what they have is at home only later."""
    disk, log = made()
    log.force(append(log, b"forced"))
    disk = disk.crash(LOSE_ALL)
    path = "/log/active/S0000000.LOG"
    disk.poke(path, bytes(8) + disk.peek(path)[8:])
    changes = []

    def look(kind: str, changed: str) -> None:
        changes.append(kind)
        assert restarted(disk.snapshot(LOSE_ALL)) == [b"forced"], f"{kind} {changed}"

    with Lookout(disk, look):
        assert begun(disk)[0] == [b"forced"]
    assert len(changes) > 3


def test_a_control_file_that_could_not_be_written_is_never_written_again() -> None:
    """Whoever waited to write it next, as a leader that has begun an extent, hears of it before he writes anything."""
    disk, log = made()
    log.force(append(log, b"first"))
    disk.fail("sync", errno.EIO, where=control_path("/log").__eq__)
    with pytest.raises(OSError, match="Input/output error"):
        log._update_control()
    before = disk.peek(control_path("/log"))
    with pytest.raises(OSError, match="Input/output error"):
        log._update_control()
    assert disk.peek(control_path("/log")) == before
    with pytest.raises(LogFailed) as caught:
        log.move_head(log.durable, log.durable)
    with pytest.raises(LogFailed, match=re.escape(str(caught.value))):
        log.force(log.buffer.tail + 8)
    with pytest.raises(LogFailed, match=re.escape(str(caught.value))):
        log.move_head(log.durable, log.durable)


@pytest.mark.parametrize("integrity", [WriteIntegrity.TRIPLE, WriteIntegrity.SINGLE])
@pytest.mark.parametrize("before", [[4048], [4048, 500]], ids=["at a border", "in a page"])
def test_row_07_a_spare_page_that_outlived_the_pages_before_it_hides_nothing_later(
    integrity: WriteIntegrity, before: list[int]
) -> None:
    """Faults 3, 7: of one run only the last page was kept, in a spare page; then that page goes home with other
    records, which a restart reads: it must not take the spare page for a newer version.
    """
    disk, log = made()
    for size in before:
        log.force(append(log, bytes(size)))
    end = append(log, b"lost" * 2500)
    found: list[SimDisk] = []

    def look(kind: str, path: str) -> None:
        if kind == "sync" and not found:
            found.append(disk.snapshot(Loss(sectors="prefix", cut=PAGE // 512)))

    disk.before_effect = look
    log.force(end)
    bodies, log = begun(found[0], write_integrity=integrity)
    assert bodies == [bytes(size) for size in before], "the pages before it were lost"
    page = -log.buffer.tail % PAGE or PAGE
    bodies += [b"a" * (page - 48), b"b" * 4048, b"c" * 4048]
    for body in bodies[-3:]:
        end = append(log, body)
    assert end % PAGE == 0
    log.force(end)
    assert restarted(found[0], write_integrity=integrity) == bodies


@pytest.mark.parametrize("torn", [False, True], ids=["both whole", "one torn"])
def test_power_that_is_lost_in_a_start_with_single_writes_leaves_a_log_that_starts(torn: bool) -> None:
    """Both spare pages are wiped, and a restart that finds both torn takes the log for damaged."""
    disk, log = made()
    bodies = [b"%d" % n * 100 for n in range(3)]
    for body in bodies:
        log.force(append(log, body))
    left = disk.crash(LOSE_ALL)
    if torn:
        path = "/log/active/S0000000.LOG"
        left.poke(path, left.peek(path)[: 2 * PAGE] + b"torn" + left.peek(path)[2 * PAGE + 4 :])
    moment, crashed = 0, True
    while crashed:
        moment, crashed = moment + 1, False
        for seed in range(20):
            starting = left.snapshot(LOSE_ALL)
            starting.crash_after(moment)
            with contextlib.suppress(SimCrash):
                begun(starting, write_integrity=WriteIntegrity.SINGLE)
                break
            crashed = True
            found = restarted(starting, Loss(sectors="each", seed=seed, atomic=True))
            assert found == bodies[: len(found)]
            assert len(found) >= len(bodies) - torn
    assert moment > 10


@pytest.mark.parametrize("integrity", WriteIntegrity)
def test_a_last_page_that_was_lost_with_the_front_is_damage_however_the_log_is_written_now(
    integrity: WriteIntegrity,
) -> None:
    disk, log = made()
    log.force(append(log, b"there"))
    path = "/log/active/S0000000.LOG"
    log.force(append(log, bytes(PAGE)))
    left = disk.crash(LOSE_ALL)
    left.poke(path, bytes(DATA) + left.peek(path)[DATA:])
    with pytest.raises(LogDamaged, match="was cut or is damaged at its beginning"):
        begun(left, write_integrity=integrity)


@pytest.mark.parametrize("integrity", [WriteIntegrity.SINGLE, WriteIntegrity.TRIPLE])
@pytest.mark.parametrize("loss", [KEEP_ALL, LOSE_ALL], ids=["kept", "lost"])
def test_row_07_what_lies_just_behind_the_end_is_a_whole_record_of_an_earlier_lap(
    loss: Loss, integrity: WriteIntegrity
) -> None:
    """Faults 7: each record fills a page, so that on each lap one begins where one began on the lap before."""
    disk, log = made(write_integrity=integrity)
    pages = [b"%06d" % n * 674 + b"last" for n in range(4 * 3 * 64)]
    for n, page in enumerate(pages):
        end = append(log, page)
        if n % 40 == 39:
            log.force(end)
            log.move_head(end, end)
            begins = n + 1
    assert (end - EXTENT) // EXTENT >= 12
    log.force(append(log, pages[0]))
    append(log, pages[1])  # nobody waits for it
    assert begun(disk.crash(loss), write_integrity=integrity)[0] == [*pages[begins:], pages[0]]


def test_row_07_a_lost_write_that_comes_back_after_the_next_start_does_not_count() -> None:
    """As from the other half of a mirror: that start has found the end of the log before it, and wrote nothing yet."""
    disk, log = made()
    log.force(append(log, b"kept"))
    lost = disk.snapshot(KEEP_ALL)
    log.force(append(log, bytes(20_000)))
    assert begun(lost)[0] == [b"kept"]
    lost = lost.crash(KEEP_ALL)
    for path in lost.files("/log/active"):
        lost.poke(path, lost.peek(path)[:DATA] + disk.peek(path)[DATA:])
    assert begun(lost)[0] == [b"kept"]


def test_row_43_what_a_restart_has_read_is_active_again_though_the_head_was_beyond_it() -> None:
    """Faults 43: it began with an older checkpoint. Until the next one nobody may take away those extents."""
    linear = config(log_type=LogType.LINEAR)
    disk = SimDisk()
    at_rest.create(disk, linear, ID)
    log = Log(disk, SimClock(), linear)
    log.begin(log.state.head, 0, b"")
    first = log.buffer.tail
    bodies = [bytes([n]) * 4000 for n in range(100)]
    for body in bodies:
        log.force(append(log, body))
    log.move_head(log.buffer.tail, log.buffer.tail)
    assert log.inactive() == [1]
    disk = disk.crash(LOSE_ALL)
    log = Log(disk, SimClock(), linear)
    reader, records = log.read(first, 0)
    assert [bytes(record.body) for record in records if record.kind != FILL] == bodies
    log.begin(reader.end, reader.epoch, reader.page_up_to(reader.end), first)
    reader.close()
    assert log.inactive() == [], "a crash now needs it again"
    assert sorted(sequence for _, sequence, _ in log.extents() if sequence) == [1, 2]
    status = log.status()
    assert status.capacity >= status.used, "it is counted"
    log.force(append(log, b"goes on"))


def test_row_43_an_epoch_that_an_older_control_file_does_not_know_of_is_not_used_again() -> None:
    disk, log = made()
    path = at_rest.control_path("/log")
    older = disk.peek(path)
    for n in range(3):
        log.force(append(log, b"%d" % n))
        _, log = begun(disk := disk.crash(LOSE_ALL))
    log.force(append(log, b"3"))
    epoch = log.epoch
    disk = disk.crash(LOSE_ALL)
    disk.poke(path, older)
    bodies, log = begun(disk)
    assert bodies == [b"0", b"1", b"2", b"3"]
    assert log.epoch > epoch


def test_rows_16_and_21_two_crashes_while_several_extents_are_taken_at_once() -> None:
    """The first leaves extents in the control file's table that the next start may give another part of the stream."""
    wide: dict[str, Any] = {"buffer_pages": 512, "primary_files": 3}
    disk, log = made(**wide)
    for _ in range(4):  # so that the files come in another order than that of their numbers
        append(log, bytes(EXTENT))
        log.force(log.buffer.tail)
        log.move_head(log.buffer.tail, log.buffer.tail)
    kept = [b"%d " % (10 + n) * 14_000 for n in range(14)]

    def fill(disk: SimDisk, log: Log) -> list[SimDisk]:
        """Append all of it and force it; the disk before each change of it, and in the end."""
        found: list[SimDisk] = []
        disk.before_effect = lambda kind, path: found.append(disk.snapshot(KEEP_ALL))
        with contextlib.suppress(Full):
            for body in kept:
                append(log, body)
        log.force(log.buffer.tail)
        disk.before_effect = None
        return [*found, disk]

    for number, cut_off in enumerate(fill(disk, log)):
        for one in (LOSE_ALL, mixed(number))[: 1 + number % 2]:
            there, log = begun(disk := cut_off.snapshot(one), **wide)
            assert there == kept[: len(there)]
            for again in fill(disk, log):
                for other in (KEEP_ALL, LOSE_ALL):
                    found = restarted(again, other, **wide)
                    assert found == (there + kept)[: len(found)]
                    assert len(found) >= len(there)


def test_epochs_and_lsns_only_grow() -> None:
    disk, log = made()
    last = (log.epoch, log.buffer.tail)
    for n in range(10):
        append(log, b"lost")
        if n % 2:
            log.force(append(log, b"kept"))
        disk = disk.crash(LOSE_ALL)
        _, log = begun(disk)
        log.force(append(log, b"of the new epoch"))
        assert log.epoch > last[0]
        assert log.buffer.tail > last[1] - 200
        last = (log.epoch, log.buffer.tail)


@pytest.mark.parametrize("kind", ["write", "sync"])
def test_row_52_after_a_failed_write_or_sync_nothing_is_written_any_more(kind: str) -> None:
    disk, log = made()
    log.force(append(log, b"good"))
    end = append(log, b"bad")
    disk.fail(kind, errno.EIO)
    with pytest.raises(LogFailed, match="mend the disk"):
        log.force(end)
    effects = disk.effects
    disk.heal()
    for call in (lambda: log.force(end), lambda: append(log, b"more"), lambda: log.force(end + 8)):
        with pytest.raises(LogFailed):
            call()
    assert disk.effects == effects
    assert restarted(disk)[:1] == [b"good"]


class Speechless(MemoryError):
    """There is no memory for saying so either."""

    def __str__(self) -> str:
        raise MemoryError


@pytest.mark.interpreted
@pytest.mark.parametrize("kind", [MemoryError, Speechless])
@pytest.mark.parametrize("way", ["force", "sync", "append"])
def test_rows_57_and_65_pages_that_were_taken_and_not_planned_end_the_log(
    monkeypatch: pytest.MonkeyPatch, way: str, kind: type[MemoryError]
) -> None:
    """They are not in the buffer any more and nowhere else: what comes behind them must not count."""
    disk, log = made()
    log.force(append(log, b"good"))
    plan, failures = log._plan, [kind()]

    def scarce(run: Any) -> Any:
        if failures:
            raise failures.pop()
        return plan(run)

    monkeypatch.setattr(log, "_plan", scarce)
    with pytest.raises((MemoryError, LogFailed)):
        if way == "append":
            append(log, bytes(100_000))
        (log.sync if way == "sync" else log.force)(append(log, bytes(10_000)))
    assert not failures
    with pytest.raises(LogFailed, match="give it more"):  # not: mend the disk
        log.force(append(log, b"behind them"))
    assert restarted(disk, KEEP_ALL) == [b"good"]


def test_row_47_a_clean_end_names_the_exact_end() -> None:
    disk, log = made()
    append(log, b"one")
    append(log, b"two")
    tail = log.buffer.tail
    log.close(clean=True)
    with pytest.raises(LogClosed):
        log.force(tail + 8)
    state = Log(disk, SimClock(), config()).state
    assert state.clean_end == tail
    for path in disk.files("/log/active"):
        disk.poke(path, disk.peek(path)[: 3 * PAGE] + bytes(len(disk.peek(path)) - 3 * PAGE))
        disk.poke(path, disk.peek(path)[:PAGE] + bytes(2 * PAGE) + disk.peek(path)[3 * PAGE :])
    with pytest.raises(LogDamaged, match="is damaged at"):
        begun(disk)


def test_row_47_a_log_that_was_started_since_did_not_end_in_order() -> None:
    disk, log = made()
    log.close(clean=True)
    begun(disk)
    assert Log(disk.crash(LOSE_ALL), SimClock(), config()).state.clean_end == 0


@pytest.mark.interpreted
def test_the_end_that_the_control_file_names_is_what_was_synced(monkeypatch: pytest.MonkeyPatch) -> None:
    """A call that comes late may still append."""
    disk, log = made()
    put(log, b"in time")
    synced, name_end = log.buffer.tail, log._record_clean_end

    def names_end() -> None:
        with log.lock:
            assert log.reserve(log.cost(4), 0)
            log.append(1, 0, 0, b"late")
        name_end()

    monkeypatch.setattr(log, "_record_clean_end", names_end)
    log.close(clean=True)
    assert log.buffer.tail > synced
    bodies, again = begun(disk)
    assert bodies == [b"in time"]
    assert again.buffer.tail == synced


def test_row_46_damage_in_the_middle_is_not_the_torn_tail() -> None:
    disk, log = made()
    ends = []
    for n in range(30):
        ends.append(append(log, bytes([65 + n]) * 1000))
        log.force(ends[-1])
    path = "/log/active/S0000000.LOG"
    content = bytearray(disk.peek(path))
    content[3 * PAGE + ends[9] - EXTENT + 200] ^= 1
    disk.poke(path, bytes(content))
    with pytest.raises(LogDamaged) as caught:
        restarted(disk, KEEP_ALL)
    assert caught.value.path == path
    assert caught.value.lsn == ends[9]


def test_row_46_two_damaged_spare_pages_are_no_torn_tail() -> None:
    """A crash tears the one that is being written; the other one has what was durable before."""
    disk, log = made()
    log.force(append(log, bytes(4048)))
    for n in range(3):
        log.force(append(log, b"%d" % n))
    path = "/log/active/S0000000.LOG"
    good = disk.peek(path)
    disk.poke(path, good[:PAGE] + b"\1" * (2 * PAGE) + good[3 * PAGE :])
    with pytest.raises(LogDamaged, match="both spare pages") as caught:
        restarted(disk, KEEP_ALL)
    assert caught.value.path == path
    newer = 1 - log._spare
    torn = good[: PAGE * (1 + newer)] + b"\1" * PAGE + good[PAGE * (2 + newer) :]
    disk.poke(path, torn)
    assert restarted(disk, KEEP_ALL) == [bytes(4048), b"0", b"1"]


def test_row_46_a_damaged_spare_page_says_itself_what_was_durable() -> None:
    """Its frames do, where a crash has left nothing of the other one: that one was being written."""
    disk, log = made()
    ends = [append(log, bytes(4048))]
    for n in range(3):
        log.force(ends[-1])
        ends.append(append(log, b"%d" % n))
    log.force(ends[-1])
    path = "/log/active/S0000000.LOG"
    newer = (2 - log._spare) * PAGE
    content = disk.peek(path)[: (1 + log._spare) * PAGE] + bytes(PAGE) + disk.peek(path)[(2 + log._spare) * PAGE :]
    disk.poke(path, content)
    assert restarted(disk, KEEP_ALL) == [bytes(4048), b"0", b"1", b"2"]
    for at, known in ((ends[0], ends[2]), (ends[2], ends[1])):  # in the first record of the page, and in the last one
        damaged = bytearray(content)
        damaged[newer + at % PAGE + HEADER.size] ^= 1
        disk.poke(path, bytes(damaged))
        with pytest.raises(LogDamaged, match=f"durable up to {re.escape(lsn.text(known))}") as caught:
            restarted(disk, KEEP_ALL)
        assert (caught.value.path, caught.value.lsn) == (path, ends[0])


@pytest.mark.parametrize("ahead", [6, 2], ids=["made by then", "never heard of"])
def test_rows_42_and_43_a_gap_behind_what_an_older_control_file_knows_is_not_jumped(ahead: int) -> None:
    size = {"primary_files": ahead, "secondary_files": 8 - ahead, "file_pages": 64, "buffer_pages": 18}
    linear = LogConfig(path="/log", log_type=LogType.LINEAR, **size)
    disk = SimDisk()
    at_rest.create(disk, linear, ID)
    log = Log(disk, SimClock(), linear)
    log.begin(log.state.head, 0, b"")
    log.force(append(log, b"first"))
    older = disk.peek(at_rest.control_path("/log"))
    while len(log._extents) < 6:
        assert log.grow()
    for _ in range(70):
        log.force(append(log, bytes(15_000)))
    paths = [held.path for held in log._extents.in_order(1)]
    assert len(paths) >= 4
    log.close(clean=False)
    disk = disk.crash(KEEP_ALL)
    disk.poke(at_rest.control_path("/log"), older)
    copy = disk.peek(paths[2])
    disk.remove(paths[2])
    with pytest.raises(LogDamaged, match=f"{paths[2]} is missing"):
        Log(disk, SimClock(), linear)
    disk.poke(paths[2], copy)
    log = Log(disk, SimClock(), linear)
    reader, records = log.read(log.state.head, 0)
    assert sum(1 for record in records if record.kind != FILL) == 71
    reader.close()


def test_row_46_what_the_control_file_knows_to_be_durable_is_not_taken_for_a_torn_tail() -> None:
    """Nothing else is left that knows: all behind it is zeros, and no checkpoint was there since."""
    disk, log = made()
    while not log._extents.holds(2):
        log.force(append(log, bytes(3000)))
    assert log.state.durable > EXTENT + 30 * PAGE
    paths = [log._extents.at(sequence).path for sequence in (1, 2)]
    log.close(clean=False)
    disk = disk.crash(KEEP_ALL)
    for path, kept in zip(paths, (DATA + 20 * PAGE, PAGE), strict=True):
        data = disk.peek(path)
        disk.poke(path, data[:PAGE] + bytes(DATA - PAGE) + data[DATA:kept].ljust(len(data) - DATA, b"\0"))
    with pytest.raises(LogDamaged):
        begun(disk)


@pytest.mark.parametrize("log_type", LogType)
def test_row_44_two_extents_that_have_changed_places_are_refused(log_type: LogType) -> None:
    disk, log = made(log_type=log_type)
    log.force(append(log, bytes(4000)))
    log.close(clean=False)
    disk = disk.crash(KEEP_ALL)
    one, other = disk.files("/log/active")[:2]
    contents = disk.peek(one), disk.peek(other)
    disk.poke(one, contents[1])
    disk.poke(other, contents[0])
    with pytest.raises(LogDamaged, match=f"{one} belongs to another log or another place"):
        Log(disk, SimClock(), config(log_type=log_type))


def test_row_44_an_extent_of_a_linear_log_whose_part_belongs_into_another_file_is_refused() -> None:
    disk, log = made(log_type=LogType.LINEAR)
    log.force(append(log, b"x"))
    path = "/log/active/S0000000.LOG"
    header = decode_header(disk.peek(path)[:PAGE])
    assert header is not None
    disk.poke(path, attrs.evolve(header, sequence=7).encode() + disk.peek(path)[PAGE:])
    with pytest.raises(LogDamaged, match=r"belongs into S0000006\.LOG"):
        begun(disk.crash(KEEP_ALL), log_type=LogType.LINEAR)


@pytest.mark.parametrize("log_type", LogType)
def test_row_42_a_log_that_was_never_started_wants_its_directory_and_makes_its_files_anew(log_type: LogType) -> None:
    disk = SimDisk()
    at_rest.create(disk, config(log_type=log_type), ID)
    disk.sync_dir("/")
    for path in disk.files("/log/active"):
        disk.unlink(path)
    disk.rmdir("/log/active")
    with pytest.raises(LogDamaged, match="extents /log/active is not there; mount its file system or bring it"):
        begun(disk, log_type=log_type)
    disk.mkdir("/log/active")
    log = begun(disk, log_type=log_type)[1]
    log.force(append(log, b"put"))
    assert restarted(disk, log_type=log_type) == [b"put"]


def with_inactive() -> tuple[SimDisk, Log]:
    """A linear log with extents that a restart needs no more."""
    disk, log = made(log_type=LogType.LINEAR)
    for _ in range(10):
        log.force(append(log, bytes(EXTENT // 2)))
        log.make_primaries()
        log.move_head(log.durable, log.durable)
    return disk, log


def test_an_extent_that_was_let_go_of_stays_gone_after_a_crash() -> None:
    """Else it could be there again though one behind it is not: before a gap."""
    disk, log = with_inactive()
    let_go = log.inactive()
    assert len(let_go) > 3
    for sequence in let_go:
        log.recycle(sequence)
        assert f"/log/active/S{sequence - 1:07d}.LOG" not in disk.snapshot(LOSE_ALL).files("/log/active")
    kept = [path for path in disk.files("/log/active") if "/R" in path]
    assert len(kept) == 2
    assert log.reduce(9) == len(kept)
    assert not set(kept) & set(disk.snapshot(LOSE_ALL).files("/log/active"))


def test_of_secondaries_and_of_extents_kept_for_reuse_no_more_go_than_are_asked_for() -> None:
    disk, log = with_inactive()
    while not log.release_secondary():
        assert log.grow()
    assert log.grow()
    for sequence in log.inactive():
        log.recycle(sequence)
    there = len(disk.files("/log/active"))
    assert [log.reduce(2), log.reduce(2), log.reduce(2)] == [2, 1, 0]
    assert len(disk.files("/log/active")) == there - 3


def test_a_reader_that_owns_nothing_sees_the_same() -> None:
    disk, log = made()
    bodies = [bytes([n]) * 2000 for n in range(10)]
    for body in bodies:
        log.force(append(log, body))
    effects = disk.effects
    state, reader = at_rest.read_only(disk, "/log")
    assert isinstance(reader, LogReader)
    assert [bytes(record.body) for record in reader.records(state.head)] == bodies
    reader.close()
    assert disk.effects == effects


def test_records_carry_what_they_were_given() -> None:
    _, log = made()
    with log.lock:
        assert log.reserve(1000, 0)
        first = log.append(300, 7, 123456, b"head", b"data")
        second = log.append(65535, 2**63, 1, b"")
        tail = log.buffer.tail
    log.force(tail)
    reader, records = log.read(first, 0)
    one, two = [(r.lsn, r.end, r.kind, r.uow, r.epoch, r.time, bytes(r.body)) for r in records]
    assert one == (first, second, 300, 7, log.epoch, 123456, b"headdata")
    assert two == (second, tail, 65535, 2**63, log.epoch, 1, b"")
    reader.close()


@pytest.mark.parametrize("sync", [LogSync.OS, LogSync.INTERVAL])
def test_lazy_modes_write_and_sync_only_when_asked(sync: LogSync) -> None:
    disk, log = made(sync=sync)
    log.sync(append(log, b"first"))
    before = disk.counts["sync"]
    log.force(append(log, b"second"))
    assert disk.counts["sync"] == before
    assert begun(disk.snapshot(KEEP_ALL), sync=sync)[0] == [b"first", b"second"]
    assert begun(disk.snapshot(LOSE_ALL), sync=sync)[0][:1] == [b"first"]
    log.sync(log.buffer.tail)
    assert restarted(disk, sync=sync) == [b"first", b"second"]


@pytest.mark.parametrize("sync", [LogSync.OS, LogSync.INTERVAL])
def test_lazy_modes_take_nothing_for_durable_that_was_only_written(sync: LogSync) -> None:
    """Else a record would say so of those before it, and where they are lost alone no start would believe the log."""
    disk, log = made(sync=sync)
    log.sync(append(log, b"synced"))
    bodies = [b"synced", *(bytes([n]) * 9000 for n in range(4))]
    for body in bodies[1:]:
        log.force(append(log, body))
    for seed in range(50):
        found = begun(disk.snapshot(mixed(seed)), sync=sync)[0]
        assert found == bodies[: max(1, len(found))]


@pytest.mark.parametrize("sync", LogSync)
def test_row_52_what_a_failed_sync_has_left_in_memory_is_not_built_on(sync: LogSync) -> None:
    """The system takes it for written, so no later sync would make it durable."""
    disk, log = made(sync=sync)
    log.sync(append(log, b"first"))
    disk.fail("sync", errno.EIO)
    with pytest.raises(LogFailed):
        log.sync(append(log, bytes(20_000)))
    disk = disk.snapshot(KEEP_ALL)
    found, log = begun(disk, sync=sync)
    assert found == [b"first"]
    log.sync(append(log, b"second"))
    for seed in range(20):
        assert begun(disk.snapshot(mixed(seed)), sync=sync)[0] == [b"first", b"second"]


@given(st.integers(0, 2_000_000))
def test_a_cost_covers_what_a_record_takes(size: int) -> None:
    _, log = made()
    assert log.cost(size) >= size + 48
    if size < 150_000:
        before = log.buffer.tail
        assert append(log, bytes(size)) - before <= log.cost(size) + 2048  # and what an extent's end may waste


def test_row_38_extents_of_another_size_are_refused() -> None:
    disk, _ = made()
    with pytest.raises(LogError, match="LogFilePages=64"):
        Log(disk.crash(), SimClock(), LogConfig(path="/log", file_pages=128))


@pytest.mark.parametrize("sync", LogSync)
@pytest.mark.parametrize("integrity", WriteIntegrity)
@pytest.mark.parametrize("size", [300, 2500, 3400, 5000, 10_000, 20_000, 70_000])
def test_a_force_fills_its_last_page_up_where_little_is_left_of_it(
    size: int, integrity: WriteIntegrity, sync: LogSync
) -> None:
    """Then it is one write and one sync, where the version of a partial page would be one more."""
    disk, log = made(write_integrity=integrity, sync=sync)
    always = sync is LogSync.ALWAYS
    log.force(append(log, b"the extent is taken"))
    bodies = [b"the extent is taken"]
    filled = 0
    for n in range(6):
        begin = log.buffer.tail
        end = append(log, b"%d" % n + bytes(size))
        writes, syncs = disk.counts["write"], disk.counts["sync"]
        guarded = log._only_home == log.buffer.base
        log.force(end)
        bodies.append(b"%d" % n + bytes(size))
        writes, syncs = disk.counts["write"] - writes, disk.counts["sync"] - syncs
        rest, pages = log.buffer.tail - end, end // PAGE - begin // PAGE
        filled += rest > 0
        if begin // EXTENT < end // EXTENT:  # where that has begun, its header and the control file are written too
            continue
        if not always or integrity is WriteIntegrity.SINGLE or not pages:
            assert rest == 0
        elif rest:
            assert log.durable == log.safe == log.buffer.tail == -(-end // PAGE) * PAGE
            assert 2 * rest <= end - begin and writes == 1 + guarded
            assert end <= log.space.checkpoint_at, "there is room enough"
        else:
            assert writes == 1 or 2 * (-end % PAGE) > end - begin or end > log.space.checkpoint_at, "much is left"
        if writes == 1 or not always:
            assert syncs == always
    assert filled == (FILLED[size] if always and integrity is not WriteIntegrity.SINGLE else 0)
    reader = log.live_reader()
    records = list(reader.records(log.state.head, until=log.buffer.tail))
    assert [one.end for one in records[:-1]] == [one.lsn for one in records[1:]], "a record begins where one ends"
    reader.close()
    assert restarted(disk, KEEP_ALL, write_integrity=integrity, sync=sync) == bodies


FILLED = {300: 0, 2500: 0, 3400: 3, 5000: 3, 10_000: 6, 20_000: 6, 70_000: 4}  # of six forces of so many bytes


@pytest.mark.parametrize("size", [4000, 20_000], ids=["begins a page", "fills pages up"])
@pytest.mark.parametrize("seed", range(12))
def test_a_page_that_is_only_at_home_is_copied_before_a_force_that_writes_over_it(seed: int, size: int) -> None:
    disk, log = made()
    kept = [b"the extent is taken" + bytes(3000), b"behind the end of the page" + bytes(1500)]
    for body in kept:
        log.force(append(log, body))
    assert log._only_home == log.buffer.base > 0, "the second one went home, with the page that it begins"
    end = append(log, bytes(size))
    disk.crash_after(1 + seed % 6, part=0.5)  # the copy, its sync, the pages, the spare page, the sync
    with contextlib.suppress(SimCrash, LogFailed):
        log.force(end)
    assert restarted(disk, Loss(seed=seed, sectors="noise"))[:2] == kept


def test_a_log_is_written_where_memory_has_run_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where a page that is only at home is copied first: a failed write would end the queue manager."""
    disk, log = made()
    kept = [b"the extent is taken" + bytes(3000)]
    log.force(append(log, kept[0]))

    def none(size: int) -> memoryview:
        raise OSError(errno.ENOMEM, "Cannot allocate memory")

    monkeypatch.setattr(disk, "buffer", none)
    guards = 0
    for n in range(40):
        kept.append(b"%d" % n + bytes(997 * n % 4500))
        guards += log._only_home == log.buffer.base
        log.force(append(log, kept[-1]))
    assert guards > 2
    monkeypatch.undo()
    assert restarted(disk, LOSE_ALL) == kept


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("first", [1, 2], ids=["one spare page", "both spare pages"])
def test_row_07_the_spare_page_that_a_long_force_ended_in_is_not_the_next_one_written(seed: int, first: int) -> None:
    disk, log = made()
    kept = [b"the extent is taken", b"the other spare page", b"a page and a part of the next" * 180]
    kept = kept[-first - 1 :]
    for body in kept:
        log.force(append(log, body))
    assert lsn.page_of(log.durable) < log.durable
    assert log._only_home != log.buffer.base, "of its last page only a spare page has what is safe"
    end = append(log, b"the next")
    disk.crash_after(1, part=0.5)
    with contextlib.suppress(SimCrash):
        log.force(end)
    assert restarted(disk, Loss(seed=seed, sectors="noise"))[: len(kept)] == kept


@pytest.mark.interpreted
@pytest.mark.parametrize("goes", ["beyond the page", "up to its end"])
@pytest.mark.parametrize("seed", range(24))
def test_row_65_so_is_one_that_went_home_for_a_force_that_was_interrupted(
    seed: int, goes: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """When that had written: what it has made durable nobody was told of."""
    disk, log = made()
    kept = [b"the extent is taken" + bytes(3000), b"behind the end of the page" + bytes(1500)]
    log.force(append(log, kept[0]))
    write = log._write

    def interrupted() -> int:
        write()
        monkeypatch.undo()
        raise KeyboardInterrupt

    monkeypatch.setattr(log, "_write", interrupted)
    end = append(log, kept[1])
    with pytest.raises(KeyboardInterrupt):
        log.force(end)
    assert log.safe < log._only_home == log.buffer.base < log.durable == end
    last = bytes(5000 if goes == "beyond the page" else -end % PAGE - HEADER.size)
    end = append(log, last)
    crashes = 1 + seed % 4  # in the copy, its sync, the page or its sync; in more where the next page begins
    if seed < 20:
        disk.crash_after(crashes, part=0.5)
        with contextlib.suppress(SimCrash):
            log.force(end)
    else:
        log.force(end)
        kept.append(last)
    assert restarted(disk, Loss(seed=seed, sectors="noise"))[: len(kept)] == kept


def test_no_page_is_filled_up_with_room_that_is_promised() -> None:
    _, log = made()
    log.force(append(log, b"the extent is taken"))
    for lacking in (1, 0):
        end = append(log, bytes(20_000))
        log.space.promised = log.space.limit - log.space.for_gets - PAGE - end + lacking
        log.force(end)
        assert (log.buffer.tail == end) == bool(lacking)
        log.space.promised = 0


def test_row_02_what_was_written_without_a_sync_is_not_safe() -> None:
    """Whoever forces a record that has gone to the disk, with a full page and no sync, still waits for one."""
    disk, log = made()
    log.force(append(log, b"the extent is taken"))
    end = append(log, b"written")
    append(log, bytes(30_000))
    writes, syncs = disk.counts["write"], disk.counts["sync"]
    with log.lock:
        log._write_full_pages()
    assert (disk.counts["write"], disk.counts["sync"]) == (writes + 1, syncs)
    log.force(end)
    assert restarted(disk)[1] == b"written"


def test_who_goes_on_in_the_next_extent_waits_for_who_writes() -> None:
    disk, log = made()
    log.force(append(log, b"the extent is taken"))
    hangs, go_on = threading.Event(), threading.Event()
    advanced: list[bool] = []

    def hang(path: str) -> None:
        hangs.set()
        assert go_on.wait(120)

    def advance() -> None:
        with log.lock:
            advanced.append(log.advance(0, 0))

    end = append(log, bytes(10_000))
    disk.during_sync = hang
    forcing = threading.Thread(target=log.force, args=(end,), daemon=True)
    forcing.start()
    assert hangs.wait(120)
    advancing = threading.Thread(target=advance, daemon=True)
    advancing.start()
    while advancing.is_alive() and not log._appenders:
        threading.Event().wait(0.001)
    go_on.set()
    forcing.join(120)
    advancing.join(120)
    assert advanced == [True]
    log.force(append(log, b"next"))
    assert restarted(disk)[1:] == [bytes(10_000), b"next"]


@pytest.mark.interpreted
def test_who_is_interrupted_while_pages_are_taken_hears_of_that_and_others_that_the_log_has_failed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    _, log = made()
    end = append(log, bytes(20_000))

    def interrupted(*, partial: bool) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(log.buffer, "take", interrupted)
    with pytest.raises(KeyboardInterrupt):
        log.force(end)
    with pytest.raises(LogFailed, match=r"failed \(KeyboardInterrupt\);"):
        log.force(end)


@pytest.mark.parametrize("interrupted", [100, 20_000])
def test_row_65_a_force_writes_its_own_too_after_what_an_interrupted_one_has_left(interrupted: int) -> None:
    disk, log = made()
    log.force(append(log, b"the extent is taken"))
    end = append(log, bytes(interrupted))

    def interrupt(kind: str, path: str) -> None:
        disk.before_effect = None
        raise KeyboardInterrupt

    disk.before_effect = interrupt
    with pytest.raises(KeyboardInterrupt):
        log.force(end)
    log.force(append(log, b"mine"))
    assert restarted(disk)[1:] == [bytes(interrupted), b"mine"]


def test_records_of_many_threads_that_fill_the_buffer_are_all_there() -> None:
    disk, log = made()
    kept: list[bytes] = []

    def work(me: int) -> None:
        for n in range(12):
            body = b"%d %d " % (me, n) + bytes([me]) * (9000 if n % 3 else 100)
            try:
                end = append(log, body)
            except Full:
                return
            if n % 2:
                log.force(end)
                kept.append(body)

    threads = [threading.Thread(target=work, args=(me,)) for me in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(120)
        assert not thread.is_alive()
    assert set(kept) <= set(restarted(disk))


def ready(disk: SimDisk, clock: SimClock, log_type: LogType) -> Log:
    """Another process starts, or the first one."""
    log = Log(disk, clock, config(log_type=log_type))
    reader, records = log.read(log.state.head, 0)
    assert [bytes(one.body) for one in records] == [b"before"] * log.state.epoch
    log.begin(reader.end, reader.epoch, reader.page_up_to(reader.end))
    reader.close()
    return log


def put(log: Log, body: bytes) -> None:
    with log.lock:
        assert log.reserve(log.cost(len(body)), 0)
        log.append(257, 0, 0, b"", body)
    log.force(log.buffer.tail)


CALLS: dict[str, Callable[[Log], object]] = {
    "a small record": lambda log: put(log, b"lost"),
    "a large record": lambda log: put(log, bytes(100_000)),
    "a head": lambda log: log.move_head(log.state.head, log.durable),
    "other files": lambda log: log.check_owned_as_leader(),
    "an end": lambda log: log.close(clean=True),
}
ANOTHER = "another process has started this queue manager"


@pytest.mark.parametrize("call", CALLS)
@pytest.mark.parametrize("log_type", LogType)
def test_row_63_who_was_stopped_while_another_took_over_writes_nothing_more(log_type: LogType, call: str) -> None:
    """The epoch in the control file says so; an hour later, as after SIGCONT, nothing is acknowledged."""
    disk, clock = SimDisk(), SimClock()
    at_rest.create(disk, config(log_type=log_type), ID)
    old = ready(disk, clock, log_type)
    put(old, b"before")
    rival = ready(disk, clock, log_type)
    put(rival, b"rival's")
    clock.advance(3600)
    assert rival.grow()
    while rival._extents.table()[-1][1] == 0:
        put(rival, bytes(10_000))
    files = {path: disk.peek(path) for path in disk.files()}
    with pytest.raises(OSError, match=ANOTHER):
        old.grow()  # the extent has the same number
    for one in (call, "a small record"):
        with pytest.raises(LogFailed, match=ANOTHER):
            CALLS[one](old)
    assert {path: disk.peek(path) for path in disk.files()} == files
    put(rival, b"goes on")
    rival.close(clean=True)


def test_row_63_who_has_closed_the_log_makes_no_extent_where_the_next_one_may_have_made_it() -> None:
    disk, old = made()
    old.close(clean=True)
    _, log = begun(disk)
    assert log.grow()
    files = {path: disk.peek(path) for path in disk.files()}
    with pytest.raises(OSError, match="the log is closed"):
        old.grow()
    assert {path: disk.peek(path) for path in disk.files()} == files


def test_row_63_a_control_file_that_can_not_be_read_tells_nothing_of_another_process() -> None:
    disk, clock = SimDisk(), SimClock()
    at_rest.create(disk, config(), ID)
    log = ready(disk, clock, LogType.CIRCULAR)
    clock.advance(3600)
    disk.fail(("read",), errno.EIO, once=False)
    put(log, b"x")
    disk.heal()
    assert restarted(disk) == [b"x"]


def test_row_63_a_control_file_that_is_just_being_written_is_still_ours() -> None:
    """As another thread sees it."""
    disk, log = made()
    looked: list[str] = []

    def looks(kind: str, path: str) -> None:
        if kind == "sync" and path.endswith("amqhlctl.lfh"):
            log.check_owned()
            looked.append(path)

    disk.before_effect = looks
    log.move_head(log.state.head, log.durable)
    assert looked


@pytest.mark.parametrize("written", [0, 1])  # the other one writes the first copy of the control file, or the second
@pytest.mark.parametrize("size", [10, 10_000, 100_000])
def test_row_63_who_was_stopped_in_a_write_while_another_took_over_acknowledges_nothing(
    size: int, written: int
) -> None:
    disk, clock = SimDisk(), SimClock()
    at_rest.create(disk, config(), ID)
    old = ready(disk, clock, LogType.CIRCULAR)
    put(old, b"before")
    for _ in range(written):
        old.move_head(old.state.head, old.durable)

    def stopped(kind: str, path: str) -> None:
        disk.before_effect = None
        ready(disk, clock, LogType.CIRCULAR)
        clock.advance(3600)

    disk.before_effect = stopped
    with pytest.raises(LogFailed, match=ANOTHER):
        put(old, bytes(size))


def test_no_file_is_closed_while_somebody_writes_to_it() -> None:
    """Its descriptor may be another file's by the time of the system call."""
    disk, log = made()
    end = append(log, b"x" * 5000)
    hangs, go_on = threading.Event(), threading.Event()
    closed: list[int] = []

    def slow(kind: str, path: str) -> None:
        if kind == "write" and path.endswith(".LOG"):
            hangs.set()
            assert go_on.wait(60)

    before = disk.open_files
    log._clock = Slow(go_on, lambda: closed.append(disk.open_files))  # type: ignore[assignment]
    with Lookout(disk, slow):
        forcing = threading.Thread(target=log.force, args=(end,))
        forcing.start()
        assert hangs.wait(60)
        log.close(clean=False)
        forcing.join(60)
    assert closed and set(closed) == {before}, "they were closed, and somebody was about to write"
    assert disk.open_files < before
    assert restarted(disk) == [b"x" * 5000], "it was acknowledged"


class Slow(SimClock):
    """Whoever waits by it sees how it stands, and after some times it goes on."""

    def __init__(self, go_on: threading.Event, look: Callable[[], object]) -> None:
        super().__init__()
        self.go_on, self.look, self.left = go_on, look, 20

    def wait(self, event: threading.Event, seconds: float | None) -> bool:
        self.look()
        self.left -= 1
        if self.left == 0:
            self.go_on.set()
        threading.Event().wait(0.001)
        return super().wait(event, seconds)


@pytest.mark.parametrize("log_type", LogType)
@pytest.mark.parametrize("number", [2, 5])
@pytest.mark.parametrize("sequence", [9, 0])
def test_what_another_log_has_in_an_extent_is_never_deleted(log_type: LogType, number: int, sequence: int) -> None:
    """Somebody moved it here by mistake: it may be the only copy. A cut one of this log is left alone as well."""
    disk, log = made(log_type=log_type)
    log.force(append(log, b"there"))
    other = log.state.log_id[::-1]
    path = f"/log/active/S{number:07}.LOG"
    theirs = ExtentHeader(number=number, log_id=other, sequence=sequence, extent_bytes=EXTENT, epoch=1, time=0)
    cut = ExtentHeader(number=9, log_id=ID, sequence=12, extent_bytes=EXTENT, epoch=1, time=0)
    left = disk.crash(LOSE_ALL)
    for name, header in ((path, theirs), ("/log/active/S0000009.LOG", cut)):
        with_header = left.peek("/log/active/S0000001.LOG")[: 9 * PAGE]
        left.poke(name, header.encode() + with_header[len(header.encode()) :])
    before = {name: left.peek(name) for name in left.files("/log/active/")}
    bodies, log = begun(left, log_type=log_type)
    assert bodies == [b"there"]
    assert left.peek(path) == before[path]
    assert left.peek("/log/active/S0000009.LOG") == before["/log/active/S0000009.LOG"]
    if number == 2:  # that is the secondary
        with pytest.raises(LogDamaged, match=f"S0000002.LOG is one of log {other.hex()} and in the way"):
            log.grow()
        assert left.peek(path) == before[path]
        left.unlink(path)
        assert log.grow()
