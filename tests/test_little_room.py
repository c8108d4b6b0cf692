"""A disk with little room for the queues (faults, row 52): puts leave what a checkpoint and gets need.

Only a checkpoint gives back what messages held that have been got. So puts end before the disk does, and nothing else.
"""

import contextlib
import errno
from collections import Counter
from typing import Any
from unittest.mock import patch

import pytest

import qmgr
from logger.disk import PAGE
from qmgr import disk_space, queue_snapshot, segments, store
from tests.qmgr.world import DATA, NAME, World
from tests.sim.disk import SimDisk, SimFile
from tests.sim.loss import KEEP_ALL, LOSE_ALL

BODY = bytes(3000)
REFUSED = r"file system of .*queues"


def fill(world: World, queue: str = "A", body: bytes = BODY) -> int:
    """Put to `queue` until there is no room for more; how many messages went there."""
    put = 0
    with pytest.raises(qmgr.ResourceProblem, match=REFUSED):
        while put < 20_000:
            world.qm.put(queue, body)
            put += 1
            world.clock.advance(0.01)
    return put


def has_served(world: World) -> None:
    """Nothing but puts was refused, no checkpoint failed, and no unit of work was rolled back."""
    assert "AMQ9017W" in world.errors()
    assert [word for word in ("AMQ9002", "AMQ7463", "AMQ7465", "AMQ7469") if word in world.errors()] == []


def apart(monkeypatch: pytest.MonkeyPatch) -> None:
    """The log lies on another disk, which has room."""
    monkeypatch.setattr(SimDisk, "same_file_system", lambda *paths: False)
    for name in ("write", "truncate"):
        usual = getattr(SimFile, name)

        def call(self: Any, *args: Any, usual: Any = usual) -> None:
            disk, capacity, used = self.disk, self.disk.capacity, self.disk.used
            if capacity is None or "/log/" not in self.path:
                return usual(self, *args)
            disk.capacity = None
            try:
                usual(self, *args)
            finally:
                disk.capacity = capacity + disk.used - used

        monkeypatch.setattr(SimFile, name, call)


def test_row_52_a_disk_filled_by_messages_serves_again_when_they_have_been_got() -> None:
    """Faults 52: only a checkpoint gives back the room that messages held, and there is room kept for it."""
    world = World()
    world.qm.define_queue("A")
    world.disk.capacity = world.disk.used + 900_000
    put = 0
    with pytest.raises(qmgr.ResourceProblem, match=r"file system of .*queues"):
        while put < 10_000:
            with world.qm.begin() as unit:
                unit.put_many("A", [bytes(3000)] * 5)
            put += 5
    world.clock.advance(2)
    world.disk.capacity = world.disk.used  # somebody else takes the rest
    got = 0
    while taken := world.qm.get_many("A", 20):
        got += len(taken)
    assert got == put > 200
    world.clock.advance(2)
    for n in range(200):
        world.qm.put("A", b"%d" % n + bytes(3000))
        world.qm.get("A")
        world.clock.advance(0.1)
    world.qm.put("A", b"last")
    world.disk.capacity = None
    world.crash(LOSE_ALL)
    assert [message.body for message in world.qm.browse("A")] == [b"last"]


@pytest.mark.parametrize(("priorities", "share"), [(1, 0.5), (10, 0.85)])
def test_row_52_gets_make_room_on_a_disk_that_is_full(
    priorities: int, share: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Puts leave room for a checkpoint, and for segments to be rewritten of which most is gone, whatever log they fill.

    An open unit of work has nothing to do with it, and stays.
    """
    monkeypatch.setattr(segments, "MAX_SEGMENT_BYTES", 100_000)
    world = World()
    world.qm.define_queue("A")
    world.qm.define_queue("B")
    world.qm.put("B", b"open")
    world.disk.capacity = world.disk.used + 1_500_000
    put: Counter[int] = Counter()
    with pytest.raises(qmgr.ResourceProblem, match=r"file system of .*queues"):
        while put.total() < 10_000:
            world.qm.put("A", bytes(3000), priority=put.total() % priorities)
            put[put.total() % priorities] += 1
            world.clock.advance(0.01)
    assert put.total() > 300
    unit = world.qm.begin()
    assert unit.get("B") is not None
    got = int(put.total() * share)
    for _ in range(got):
        world.qm.get("A")
    world.clock.advance(2)
    again = min(got // 2, 60)  # the unit of work holds the log
    for _ in range(again):
        world.qm.put("A", bytes(3000), priority=9)
        world.clock.advance(0.1)
    assert world.errors().count("AMQ9017W") == 1
    assert all(word not in world.errors() for word in ("AMQ9002", "AMQ7463", "AMQ7465", "AMQ7469"))
    unit.backout()
    world.disk.capacity = None
    world.crash(LOSE_ALL)
    assert world.qm.queue("A").depth == put.total() - got + again
    assert world.qm.get("B").body == b"open"  # type: ignore[union-attr]


@pytest.mark.parametrize("crash", [None, KEEP_ALL, LOSE_ALL])
def test_row_52_the_segment_that_is_appended_to_is_rewritten_too_where_room_is_scarce(crash: Any) -> None:
    """Else a queue of less than one segment would give nothing back before its last message is got."""
    world = World()
    world.qm.define_queue("A")
    world.disk.capacity = world.disk.used + 1_500_000
    put = fill(world)
    world.qm.checkpoint()
    world.disk.capacity = world.disk.used + 200_000  # somebody else has taken some
    left = put // 20
    assert len(world.qm.get_many("A", put - left)) == put - left
    for _ in range(20):
        world.clock.advance(2)
        with contextlib.suppress(qmgr.ResourceProblem):
            world.qm.put("A", b"one more")
            break
    else:
        raise AssertionError("nothing was given back")
    if crash is not None:
        world.crash(crash)
    assert [len(message.body) for message in world.qm.browse("A")] == [len(BODY)] * left + [len(b"one more")]


@pytest.mark.parametrize("kept", [2, 3, 4])
def test_row_52_segments_are_rewritten_one_by_one_where_there_is_room_for_no_more(
    kept: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each makes room for the next ones; so the space of a queue comes to what it has where there is room."""
    monkeypatch.setattr(segments, "MAX_SEGMENT_BYTES", 400_000)
    monkeypatch.setattr(segments, "SMALL_SEGMENT_BYTES", 10_000)
    monkeypatch.setattr(queue_snapshot, "MAX_SURPLUS_BYTES", 400_000)
    monkeypatch.setattr(store, "WORTHWHILE_BYTES", 200_000)
    monkeypatch.setattr(disk_space, "rewrite_reserve", lambda total: 250_000)
    world = World()
    world.qm.define_queue("A", buffer_size=5000)
    world.disk.capacity = world.disk.used + 10_000_000
    put = fill(world)
    others = world.disk.capacity - world.disk.used - 50_000
    world.disk.capacity -= others  # somebody else takes them for now
    ids = [message.message_id for message in world.qm.browse("A")]
    left = [one for number, one in enumerate(ids) if number % 10 < kept]
    for one in set(ids) - set(left):
        world.qm.get("A", message_id=one)

    def held() -> int:
        return sum(len(world.disk.peek(path)) for path in world.disk.files(f"{DATA}/qmgrs/{NAME}/queues/A"))

    live = len(left) * (len(BODY) + 116)
    bound = 2 * live + 400_000 + 200_000 + 50_000
    assert put > 900
    assert held() > bound
    world.disk.capacity += others
    for _ in range(30):
        world.clock.advance(2)
        world.qm._housekeeper.work()
        with contextlib.suppress(qmgr.ResourceProblem):
            world.qm.get("A", message_id=world.qm.put("A", b"one more").message_id)
    assert live < held() <= bound
    count = world.qm._checkpointer.count
    world.clock.advance(100)
    world.qm._housekeeper.work()
    assert world.qm._checkpointer.count == count, "no more is tried in vain"
    world.crash(LOSE_ALL)
    assert [message.message_id for message in world.qm.browse("A")] == left


def test_row_52_messages_of_a_unit_that_was_under_way_at_the_last_checkpoint_have_their_room() -> None:
    """They are in the log before it and in no segment: the next one writes them."""
    world = World(log_file_pages=2048, log_primary_files=3)
    world.qm.define_queue("A")
    world.disk.capacity = world.disk.used + 5_000_000
    unit = world.qm.begin()
    for _ in range(25):
        unit.put_many("A", [BODY] * 30)
    world.qm.checkpoint()
    unit.commit()
    put = fill(world)
    world.qm.checkpoint()
    has_served(world)
    world.disk.capacity = None
    world.crash(LOSE_ALL)
    assert world.qm.queue("A").depth == 750 + put > 900


def test_row_52_each_of_many_queues_has_its_pages() -> None:
    """What a checkpoint appends to a queue begins a page, however small; the simulated disk counts bytes only."""

    def puts(queues: int) -> int:
        world = World(log_file_pages=512)
        for n in range(queues):
            world.qm.define_queue(f"Q{n}")
        world.qm.define_queue("A")
        world.qm.checkpoint()
        world.disk.capacity = world.disk.used + 2_000_000
        world.qm.checkpoint()
        return fill(world)

    assert (puts(1) - puts(101)) * len(BODY) > 100 * PAGE


def test_row_52_persistent_messages_have_room_before_others() -> None:
    """What is not persistent may stay in memory; a checkpoint that can't write the others gives nothing back."""
    world = World()
    world.qm.define_queue("A", default_persistence=False)
    world.qm.define_queue("B")
    world.disk.capacity = world.disk.used + 4_000_000
    for _ in range(38):
        world.qm.put_many("A", [bytes(10_000)] * 10)
    put = fill(world, "B")
    world.qm.checkpoint()
    has_served(world)
    assert world.qm.queue("A").depth == 380
    world.disk.capacity = None
    world.crash(LOSE_ALL)
    assert world.qm.queue("B").depth == put > 900


def test_row_52_extents_that_a_linear_log_makes_ahead_take_no_room_that_messages_need() -> None:
    world = World(log_type="linear", log_file_pages=512, log_primary_files=3, log_secondary_files=2)
    world.qm.define_queue("A")
    world.qm.define_queue("B")
    world.disk.capacity = world.disk.used + 14_000_000
    world.qm.checkpoint()
    for _ in range(50):
        world.qm.put_many("B", [BODY] * 20)
    put = 0
    with pytest.raises(qmgr.ResourceProblem):
        while put < 9000:
            world.qm.put("A", BODY)
            put += 1
            world.clock.advance(0.005)
    assert put > 1000
    while world.qm.get_many("B", 50):
        pass
    for _ in range(5):
        world.clock.advance(2)
        world.qm.checkpoint()
        world.qm.put("A", BODY)
    assert "AMQ9002" not in world.errors()


def test_row_52_a_queue_whose_messages_are_got_at_once_needs_no_room() -> None:
    """Each message of the log may have to move to a segment, but these are gone: it is worth to look at them."""
    world = World(log_file_pages=512, log_primary_files=3)
    world.qm.define_queue("A")
    world.qm.checkpoint()
    world.disk.capacity = world.disk.used + 550_000
    world.qm.checkpoint()
    for _ in range(3000):
        world.qm.put("A", BODY)
        world.qm.get("A")
        world.clock.advance(0.001)
    assert "AMQ9017" not in world.errors()


def test_row_52_puts_that_are_refused_roll_nobody_back(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each has a checkpoint tried, which writes records: an open unit of work holds the log, and would pay for it."""
    apart(monkeypatch)
    world = World()
    world.qm.define_queue("A")
    world.qm.define_queue("B")
    world.qm.put("B", b"open")
    world.disk.capacity = world.disk.used + 1_000_000
    fill(world)
    unit = world.qm.begin()
    unit.get("B")
    for _ in range(2000):
        world.clock.advance(1.01)
        with pytest.raises(qmgr.ResourceProblem, match=REFUSED):
            world.qm.put("A", BODY)
    has_served(world)
    unit.commit()


def test_row_52_gets_have_room_of_their_own_and_roll_nobody_back() -> None:
    """A get that finds the log full has an extent, where puts would not."""
    world = World(log_secondary_files=4)
    world.qm.define_queue("A")
    world.qm.define_queue("B")
    world.qm.put("B", b"open")
    for _ in range(60):
        world.qm.put_many("A", [bytes(10)] * 100)
    world.qm.checkpoint()
    world.disk.capacity = world.disk.used + 600_000
    world.qm.checkpoint()
    unit = world.qm.begin()
    unit.get("B")
    world.qm.put("A", b"")  # the get of the unit is logged by that: it holds the head
    for _ in range(6000):
        world.qm.get("A")
        world.clock.advance(0.01)
    assert "AMQ7469" not in world.errors()
    unit.commit()


@pytest.mark.parametrize(("kind", "room"), [("circular", 1_400_000), ("circular", 2_600_000), ("linear", 1_400_000)])
def test_row_52_a_log_that_grows_takes_no_room_that_its_messages_need(kind: str, room: int) -> None:
    """An open unit of work holds the log, so that each put may need another extent, and a checkpoint what they put."""
    world = World(log_type=kind, log_secondary_files=6)
    world.qm.define_queue("A")
    world.qm.define_queue("B")
    world.qm.put("B", b"open")
    unit = world.qm.begin()
    unit.get("B")
    unit.put("B", b"")
    world.disk.capacity = world.disk.used + room
    world.qm.checkpoint()
    put = 0
    with pytest.raises(qmgr.ResourceProblem):
        while put < 9000:
            world.qm.put("A", BODY)
            put += 1
            world.clock.advance(0.01)
    assert put > 100
    world.qm.checkpoint()
    assert "AMQ9002" not in world.errors()
    unit.commit()


@pytest.mark.parametrize("before", [0, 1], ids=["puts come when it moves them", "puts come before"])
def test_row_52_what_a_checkpoint_moves_to_the_disk_takes_no_room_that_was_granted_to_puts(before: int) -> None:
    """It may leave these messages in memory. Puts go on while it writes, as far as was found before that they may."""
    world = World(log_primary_files=2, log_secondary_files=1, log_file_pages=1024)
    world.qm.define_queue("A")
    world.qm.define_queue("N", default_persistence=False)
    world.qm.checkpoint()
    world.disk.capacity = world.disk.used + 8_000_000
    world.qm.checkpoint()
    for _ in range(50):
        world.qm.put_many("N", [bytes(10_000)] * 10)
    put = 0
    log, housekeeper = world.qm._log, world.qm._housekeeper

    def puts(kind: str, path: str) -> None:
        """As of a thread of their own, which finds no room at last."""
        nonlocal put
        world.disk.before_effect = lambda kind, path: None
        for _ in range(3):
            while log.space.fits(log.buffer.tail, 100_000, log.space.for_gets):
                world.qm._engine.watchful = False
                with patch.object(housekeeper, "notice", lambda **options: None):
                    world.qm.put_many("A", [bytes(10)] * 100)
                put += 100
            housekeeper._disk_space.limit_puts()  # as housekeeping does once a second, and each put that is refused

    for _ in range(before):
        world.qm.put("A", b"")
    world.disk.before_effect = lambda kind, path: puts(kind, path) if path.endswith(".seg") else None
    world.qm.checkpoint()
    assert put > 1000
    assert (world.qm._engine.state.queues["N"].memory_bytes[0] > 4_000_000) is bool(
        before
    )  # they stay in memory, or are moved
    world.qm._engine.watchful = True
    world.qm.checkpoint()
    assert "AMQ9002" not in world.errors()
    while world.qm.get_many("A", 500):
        world.clock.advance(0.01)
    world.clock.advance(2)
    world.qm.put("A", b"")


def test_row_52_a_start_that_has_no_room_for_its_checkpoint_lets_puts_go_no_further_for_that() -> None:
    """Messages that were in flight at the checkpoint before are in the log before that, and in no segment."""
    world = World(log_primary_files=3, log_file_pages=2048)
    world.qm.define_queue("A")
    unit = world.qm.begin()
    for _ in range(40):
        unit.put_many("A", [BODY] * 100)
    world.qm.checkpoint()
    unit.commit()
    world.disk.capacity = world.disk.used
    world.crash(KEEP_ALL)
    assert world.qm.status().checkpoints == 0
    world.disk.capacity += 9_000_000
    world.clock.advance(2)
    with pytest.raises(qmgr.ResourceProblem, match=REFUSED):
        world.qm.put("A", BODY)
    world.disk.capacity += 12_000_000
    world.clock.advance(2)
    put = fill(world)
    world.qm.checkpoint()
    assert world.qm.queue("A").depth == 4000 + put


def test_row_52_a_start_on_a_full_disk_asks_for_no_extent_that_it_can_do_without() -> None:
    """Its log is full up to what is kept for checkpoints: one moves the head, or needs no record at all."""
    world = World()
    world.qm.define_queue("A")
    world.qm.define_queue("B")
    world.qm.put("B", b"open")
    for _ in range(300):
        world.qm.put("A", bytes(100))
    world.disk.capacity = world.disk.used
    unit = world.qm.begin()
    unit.get("B")
    unit.put("B", b"")
    depth = 300
    with pytest.raises(qmgr.ResourceProblem):
        while world.qm.put("A", bytes(100)):
            depth += 1
    with pytest.raises(qmgr.ResourceProblem):
        while world.qm.get("A"):
            depth -= 1
    assert depth > 100
    world.crash(KEEP_ALL)
    assert world.depths() == {"A": depth, "B": 1}


@pytest.mark.parametrize(
    ("number", "where", "way"),
    [
        (errno.EIO, ".new", "mend the disk and start it again, which recovers it"),
        (errno.EROFS, ".seg", "mount its file system for writing, and start it again, which recovers it"),
        (errno.ENOSPC, "/active/", "nobody knows what reached the disk: free some space and start it again"),
    ],
)
def test_row_52_an_end_that_the_disk_refuses_says_what_to_do(number: int, where: str, way: str) -> None:
    """It named the file. On btrfs and ZFS writing over an extent needs room, too."""
    world = World()
    world.qm.define_queue("A")
    world.qm.put("A", BODY)
    world.disk.fail(("write", "create"), number, once=False, where=lambda path: where in path)
    with pytest.raises(qmgr.Unavailable, match=rf"could not be ended in order \(.*{where}.*{way}"):
        world.qm.end()
    world.disk.heal()
    world.start()
    assert world.depths() == {"A": 1}


def test_row_52_an_end_without_room_for_what_it_has_to_keep_says_so() -> None:
    world = World()
    world.qm.define_queue("H", default_persistence=False, non_persistent_class="HIGH")
    world.qm.define_queue("N", default_persistence=False)
    world.qm.put_many("H", [BODY] * 100)
    world.qm.put("N", BODY)
    world.disk.capacity = world.disk.used
    why = r"has ended, and .* \(\[Errno 28\] .*\.seg'\): .*NPMCLASS\(HIGH\) are lost \(H\)"
    with pytest.raises(qmgr.StorageFull, match=why + ", persistent ones are not; free some space and start"):
        world.qm.end()
    world.disk.capacity = None
    world.start()
    assert world.depths() == {"H": 0, "N": 0}
    world.qm.alter_queue("H", buffer_size=1)
    world.qm.put_many("H", [BODY] * 20)
    world.qm.checkpoint()
    assert not world.qm._engine.state.queues["H"].memory_bytes[
        0
    ]  # they are in a segment, which only the end would keep
    world.disk.fail("create", errno.ENOSPC, once=False, where=lambda path: path.endswith("amqalchk.fil.new"))
    with pytest.raises(qmgr.StorageFull, match=r"are lost \(H\)"):
        world.qm.end()
    world.disk.heal()
    world.start()
    world.qm.put("N", BODY)
    world.disk.fail("create", errno.ENOSPC, once=False, where=lambda path: path.endswith("amqalchk.fil.new"))
    world.qm.end()
