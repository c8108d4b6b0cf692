"""A write that is begun before it is forced: who ends it, what may not come between, and when none is begun."""

import errno

import pytest

from logger.config import LogSync, WriteIntegrity
from logger.errors import LogFailed
from logger.log import Log
from logger.writer import OWNED_NS
from tests.logger.test_log import EXTENT, append, begun, made, restarted
from tests.sim.loss import KEEP_ALL, LOSE_ALL, Loss, mixed


def begin(log: Log) -> bool:
    with log.lock:
        log.begin_force()
        return log._begun


@pytest.mark.parametrize("size", [100, 3000])
@pytest.mark.parametrize("loss", [LOSE_ALL, KEEP_ALL])
def test_what_was_begun_is_not_safe_until_it_is_forced(size: int, loss: Loss) -> None:
    disk, log = made()
    log.force(append(log, b"first"))
    append(log, b"x" * size)
    safe = log.safe
    assert begin(log)
    assert log.safe == safe
    assert restarted(disk, loss) == [b"first", b"x" * size][: 1 + (loss is KEEP_ALL)]


@pytest.mark.parametrize("size", [100, 3000])
def test_the_force_that_follows_makes_it_so(size: int) -> None:
    disk, log = made()
    log.force(append(log, b"first"))
    end = append(log, b"x" * size)
    assert begin(log)
    log.force(end)
    assert log.safe >= end
    assert restarted(disk) == [b"first", b"x" * size]


@pytest.mark.parametrize("size", [100, 3000])
def test_what_comes_in_between_goes_out_with_the_next_write(size: int) -> None:
    disk, log = made()
    log.force(append(log, b"first"))
    append(log, b"x" * size)
    assert begin(log)
    calls = disk.counts["sync"]
    end = append(log, b"between")
    log.force(end)
    assert disk.counts["sync"] == calls + 2
    assert not log._begun
    assert restarted(disk) == [b"first", b"x" * size, b"between"]


@pytest.mark.parametrize("seed", range(20))
def test_a_crash_while_the_disk_is_about_it_leaves_all_of_it_or_nothing(seed: int) -> None:
    disk, log = made()
    for size in (50, 60, 3000, 400, 6000):
        log.force(append(log, b"s" * size))
    safe = [b"s" * size for size in (50, 60, 3000, 400, 6000)]
    last = b"begun" * (1 + 60 * (seed % 2))
    append(log, last)
    assert begin(log)
    assert restarted(disk, mixed(seed)) in (safe, [*safe, last])


def test_who_has_the_log_for_himself_finds_nothing_under_way() -> None:
    disk, log = made()
    log.force(append(log, b"first"))
    end = append(log, b"second")
    assert begin(log)
    log.check_owned_as_leader()
    assert not log._begun
    assert log.safe == end
    assert restarted(disk) == [b"first", b"second"]


def test_room_in_the_buffer_is_made_when_it_is_over() -> None:
    disk, log = made()
    log.force(append(log, b"first"))
    append(log, b"second")
    assert begin(log)
    bodies = [bytes([n]) * 30_000 for n in range(4)]
    for body in bodies:
        end = append(log, body)
    assert not log._begun
    log.force(end)
    assert restarted(disk) == [b"first", b"second", *bodies]


@pytest.mark.parametrize("clean", [True, False])
def test_a_log_is_closed_with_what_was_begun(clean: bool) -> None:
    disk, log = made()
    log.force(append(log, b"first"))
    append(log, b"second")
    assert begin(log)
    log.close(clean=clean)
    assert restarted(disk) == [b"first", b"second"][: 1 + clean]


def test_nothing_is_begun_where_somebody_waits_or_it_may_not_be() -> None:
    disk, log = made()
    log.force(append(log, b"first"))
    append(log, b"second")
    with log.lock:
        log._contended = 1
    assert not begin(log)
    with log.lock:
        log._contended = 0
        log._leader = object()
    assert not begin(log)
    with log.lock:
        log._leader = None
        log._appenders.add(log)
    assert not begin(log)
    with log.lock:
        log._appenders.clear()
    log._clock.advance(OWNED_NS / 1e9 + 1)  # type: ignore[attr-defined]
    assert not begin(log), "another process may have the log by now"
    log.force(append(log, b"third"))
    append(log, b"fourth")
    assert begin(log)
    assert restarted(disk) == [b"first", b"second", b"third"]


@pytest.mark.parametrize(
    ("size", "options"),
    [(100, {"sync": LogSync.OS}), (100, {"write_integrity": WriteIntegrity.SINGLE}), (9000, {})],
)
def test_nor_where_a_force_is_more_than_the_image_of_a_page(size: int, options: dict[str, object]) -> None:
    disk, log = made(**options)
    log.force(append(log, b"first"))
    end = append(log, b"x" * size)
    assert not begin(log)
    log.force(end)
    log.close(clean=True)
    assert restarted(disk, **options) == [b"first", b"x" * size]


def test_nor_before_what_was_written_without_a_sync_is_synced() -> None:
    disk, log = made()
    log.force(append(log, b"first"))
    bodies = [bytes([n]) * 30_000 for n in range(3)]
    for body in bodies:  # more than the buffer holds: full pages are written
        append(log, body)
    assert log._unsynced
    with log.lock:
        log.buffer.fill_page(0, 0)
        log._write_full_pages()
    end = append(log, b"last")
    assert not begin(log)
    log.force(end)
    assert restarted(disk) == [b"first", *bodies, b"last"]


def test_others_who_come_meanwhile_change_nothing_of_how_it_is_ended() -> None:
    disk, log = made()
    log.force(append(log, b"first"))
    end = append(log, b"second")
    assert begin(log)
    with log.lock:
        log._contended = 5
    log.force(end)
    assert restarted(disk) == [b"first", b"second"]


def test_a_control_file_does_not_speak_of_an_extent_before_its_header_does() -> None:
    """Who moves the head does not lead: the leader may have taken an extent, or been interrupted before it wrote."""
    disk, log = made()
    bodies = [b"0" * 3000]
    end = append(log, bodies[0])
    while log._extents.find((end - 1) // EXTENT) is not None:
        log.force(end)
        bodies.append(bytes([len(bodies)]) * 3000)
        end = append(log, bodies[-1])
    with log.lock:
        log._prepare()
    assert log._output is not None and log._output.new_extents
    log.move_head(log.state.head, log.durable)
    assert begun(disk.snapshot(LOSE_ALL))[0] == bodies[:-1]
    log.force(end)
    assert begun(disk.snapshot(LOSE_ALL))[0] == bodies


def test_a_write_that_fails_is_told_to_who_forces_it() -> None:
    disk, log = made()
    log.force(append(log, b"first"))
    end = append(log, b"second")
    assert begin(log)
    disk.fail("write", errno.EIO)
    with pytest.raises(LogFailed):
        log.force(end)
    with pytest.raises(LogFailed):
        log.force(end)
    assert restarted(disk) == [b"first"]


@pytest.mark.parametrize("integrity", list(WriteIntegrity))
@pytest.mark.parametrize("begins", [True, False])
def test_a_head_that_is_moved_in_between_names_no_extent_that_is_not_there(
    integrity: WriteIntegrity, begins: bool
) -> None:
    """A checkpoint of another thread comes between what was begun and its force, where the log enters an extent."""
    disk, log = made(write_integrity=integrity)
    disk.begins = lambda: begins
    number, next_extent = 0, (log.durable // EXTENT + 1) * EXTENT
    while log.durable < next_extent + 20_000:
        end = append(log, b"x" * 3000)
        begin(log)
        if end > next_extent - 20_000:
            log.move_head(log.state.head, log.durable)
            found, _ = begun(disk.snapshot(LOSE_ALL), write_integrity=integrity)
            assert len(found) >= number
        log.force(end)
        number += 1
    assert number > 80


@pytest.mark.parametrize("size", [100, 3000])
def test_row_63_what_was_begun_long_ago_is_not_written_again_into_a_log_that_is_anothers(size: int) -> None:
    """The disk has not done it, or an interrupt has struck its end; then another process has taken over."""
    disk, log = made()
    log.force(append(log, b"first"))
    end = append(log, b"x" * size)
    assert begin(log)
    files = {path: disk.peek(path) for path in disk.files()}
    _, rival = begun(disk)
    rival.force(append(rival, b"rival's"))
    after = {path: disk.peek(path) for path in disk.files()}
    assert files != after
    log._clock.advance(OWNED_NS / 1e9 + 1)  # type: ignore[attr-defined]
    with pytest.raises(LogFailed, match="another process"):
        log.force(end)
    assert {path: disk.peek(path) for path in disk.files()} == after
    rival.close(clean=True)
