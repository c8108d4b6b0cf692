"""A log that goes on in a new extent because somebody asks for it, and extents that are removed because of that too."""

import contextlib

import pytest

import qmgr
from logger.buffer import LogBuffer
from logger.disk import PAGE
from logger.extent import file_name, linear_number
from qmgr.errors import MediaNotSupported, Mistake, ResourceProblem
from tests.conftest import SOAK
from tests.qmgr.test_interrupts import Strike, interrupted
from tests.qmgr.world import World, bodies
from tests.sim.life import AUTOMATIC, LINEAR, LOG, Life, Lookout
from tests.sim.loss import LOSE_ALL, mixed
from tests.test_crash import Sweep, born
from tests.test_extents import SIZE, check_extents, fill, path_of, sequences
from tests.test_media import from_the_log_alone


def name_of(sequence: int) -> str:
    return file_name(linear_number(sequence))


def test_the_next_record_is_in_a_new_extent_and_the_old_one_can_be_archived() -> None:
    life = Life(LINEAR)
    born(life)
    life.put("A", size=100)
    before = max(sequences(life.disk).values())
    assert life.qm.advance_log() == name_of(before + 1)
    assert life.qm.advance_log() == name_of(before + 2)
    life.put("A", size=100)
    assert life.qm.status().log.tail // SIZE == before + 2
    life.checkpoint()
    check_extents(life)
    life.keep_log("archive")
    assert f"{LOG}/SIM/archive/{name_of(before)}" in life.disk.files(LOG)
    life.crash(LOSE_ALL)
    life.restart()
    life.check()
    from_the_log_alone(life)


def test_a_crash_at_any_moment_of_it_loses_nothing() -> None:
    life = Life(LINEAR)
    born(life)
    for size in (100, 30_000, 4000):
        life.put("A", size=size)
        unit = life.begin()
        life.put("A", size=700, unit=unit)
        found = Sweep(life, lambda moment: [LOSE_ALL, mixed(moment)], every=1 if SOAK else 2)
        with Lookout(life.disk, found.look):
            life.keep_log("advance")
        assert found.moments > 3
        life.commit(unit)
    life.crash(LOSE_ALL)
    life.restart()
    fill(life, 2)
    life.check()


def test_an_extent_larger_than_the_log_buffer_is_left_by_one_frame() -> None:
    """What is left of it is neither written nor copied through the buffer."""
    world = World(log_type="linear", log_file_pages=512, log_buffer_pages=18)
    world.qm.define_queue("A")
    world.qm.put("A", b"before")
    world.qm.advance_log()
    assert world.qm.status().log.tail // (512 * PAGE) == 2
    assert world.qm.status().log.writes.write_size_max < 18 * PAGE
    world.qm.put("A", b"after")
    world.crash()
    assert bodies(world.qm, "A") == [b"before", b"after"]


@pytest.mark.interpreted
def test_row_65_an_interrupt_in_the_middle_hides_nothing_that_is_acknowledged_after_it() -> None:
    """A record behind the frame that says that the rest of the extent is empty is one that no restart finds."""
    world = World(log_type="linear")
    world.qm.define_queue("A")
    world.qm.put("A", b"before")
    log = world.qm._log
    tail = log.buffer.tail
    strike = Strike(LogBuffer.skip_extent.__code__, lambda frame: log.buffer.tail > tail)
    with contextlib.suppress(qmgr.Unavailable):
        assert not interrupted(strike, world.qm.advance_log)
    assert strike.where
    acknowledged = [b"before"]
    for body in (b"after", b"and on"):
        with contextlib.suppress(qmgr.Unavailable):
            world.qm.put("A", body)
            acknowledged.append(body)
    world.crash(LOSE_ALL)
    assert bodies(world.qm, "A") == acknowledged


def test_a_circular_log_does_not_do_that() -> None:
    world = World()
    with pytest.raises(MediaNotSupported, match="circular"):
        world.qm.advance_log()


def test_a_log_without_room_for_another_extent_says_so_and_goes_on() -> None:
    world = World(log_type="linear")
    world.qm.define_queue("A")
    with world.qm.begin(qmgr.Xid(1, b"g", b"")) as unit:
        unit.put("A", bytes(100))
        unit.prepare()
        refused = 0
        for _ in range(8):
            try:
                world.qm.advance_log()
            except ResourceProblem:
                refused += 1
        assert world.qm.status().log.used <= world.qm.status().log.capacity
        unit.commit()
    world.qm.put("A", b"on")
    world.crash()
    assert bodies(world.qm, "A") == [bytes(100), b"on"]


@pytest.mark.parametrize("room", [0.0, 0.5, 1.5])
def test_row_54_a_full_disk_refuses_and_nothing_is_lost(room: float) -> None:
    """Faults 54: what there was room for was done; with room it all goes on."""
    life = Life(LINEAR)
    born(life)
    life.put("A", size=5000)
    life.disk.capacity = life.disk.used + int(room * SIZE)
    refused = 0
    for _ in range(6):
        try:
            life.qm.advance_log()
        except qmgr.MQError as exc:
            assert exc.reason in (qmgr.Reason.STORAGE_MEDIUM_FULL, qmgr.Reason.RESOURCE_PROBLEM), exc
            refused += 1
    assert refused
    assert life.qm._state == "running"
    life.check()
    life.disk.capacity = None
    life.clock.advance(5)
    life.qm.advance_log()
    fill(life, 1)
    life.crash(LOSE_ALL)
    life.restart()
    from_the_log_alone(life)


# -- reduce ----------------------------------------------------------------------------------------------------------


def reusable(life: Life) -> list[str]:
    return sorted(path for path in life.disk.files(LOG) if "/R" in path)


def test_extents_kept_for_reuse_are_removed_when_asked() -> None:
    life = Life(AUTOMATIC)
    born(life)
    for _ in range(3):
        fill(life, 1.5)
        life.record_image()
        life.checkpoint()
    there = reusable(life)
    assert len(there) == 2
    assert life.qm.reduce_log("ONE") == 1
    assert len(reusable(life)) == 1
    assert life.qm.reduce_log() == 0  # AUTO keeps half as many as there are primaries
    assert life.qm.reduce_log("MAX") == 1
    assert life.qm.reduce_log(5) == 0
    fill(life, 2)
    check_extents(life)
    life.check()
    assert path_of(max(sequences(life.disk).values())) in life.disk.files(LOG)


@pytest.mark.parametrize("how", ["one", 0, -1, True, None, 2.0, ""])
def test_anything_else_is_refused(how: object) -> None:
    with pytest.raises(Mistake, match="AUTO, ONE, MAX or a number"):
        World().qm.reduce_log(how)  # type: ignore[arg-type]
