"""What a queue knows of its message groups: the same that looking through all of it would show."""

import errno
import random
from collections.abc import Iterator

import pytest

import qmgr
from qmgr import group_index
from qmgr.entry import Entry
from qmgr.errors import NoMessageAvailable, QueueFull, Unavailable
from qmgr.group_index import GroupIndex
from qmgr.groups import in_logical_order
from qmgr.ids import BEFORE_ALL
from qmgr.message import group_of, group_sequence_of, is_last_in_group
from qmgr.queue import Queue
from qmgr.verbs import GetOptions, PutOptions
from tests.conftest import SOAK
from tests.qmgr.world import World
from tests.sim.disk import Fault

GROUPS = (b"G", b"H", b"I")


def scan(queue: Queue, mine: list[Entry], limit: int, now: int, *, complete: bool) -> list[int]:
    """What a get in logical order takes, found by looking at all messages."""
    ready = [one for one in queue.after(BEFORE_ALL, queue.next_sequence) if not 0 < one.expires <= now]
    chosen: list[Entry] = []

    def whole(group: bytes) -> bool:
        there = [one for one in {e.sequence: e for e in [*ready, *mine]}.values() if group_of(one.head) == group]
        ends = [group_sequence_of(one.head) for one in there if is_last_in_group(one.head)]
        return bool(ends) and {group_sequence_of(one.head) for one in there} >= set(range(1, min(ends) + 1))

    def fits(one: Entry, last: Entry | None) -> bool:
        group, number = group_of(one.head), group_sequence_of(one.head)
        if last is not None and group_of(last.head) and not is_last_in_group(last.head):
            return (group, number) == (group_of(last.head), group_sequence_of(last.head) + 1)
        return not group or (number == 1 and (not complete or whole(group)))

    while len(chosen) < limit:
        last = [*mine, *chosen][-1] if mine or chosen else None
        left = (one for one in ready if all(one.sequence != other.sequence for other in chosen))
        found = next((one for one in left if fits(one, last)), None)
        if found is None:
            break
        chosen.append(found)
    return [one.sequence for one in chosen]


def state(made: GroupIndex) -> object:
    groups = {
        key: (list(one.numbers), list(one.repeated), list(one.ends), sorted(one.firsts), one.whole)
        for key, one in made._groups.items()
    }
    return len(made), list(made._alone), list(made._whole), list(made._others), groups


def check(qm: qmgr.QueueManager, units: list[qmgr.UnitOfWork]) -> None:
    """Every get in logical order takes what it should, and what is known is what there is."""
    queue = qm._engine.state.queues["A"]
    now = qm._engine.steady.now_us() if queue.expiring else 0
    for gets in [[], *[unit._unit.gets for unit in units]]:
        mine = [entry for one, entry in gets if one is queue]
        for complete in (False, True):
            for limit in (1, 4):
                found = in_logical_order(queue, gets, limit, None, now, complete=complete, read=True)
                assert [one.sequence for one in found] == scan(queue, mine, limit, now, complete=complete)
    assert queue.group_index is not None
    known = state(queue.group_index)
    queue._group_index = None
    while queue.index_groups(7):
        pass
    assert queue.group_index is not None
    assert state(queue.group_index) == known


class Life:
    """A queue manager whose queue has groups, and a seed that says what happens to it."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.world = World(
            ini={"DefaultPQBufferSize": "2000", "DefaultQBufferSize": "2000"},
            log_type=self.rng.choice(["circular", "linear"]),
        )
        self.units: list[qmgr.UnitOfWork] = []
        sequence = self.rng.choice(["FIFO", "PRIORITY"])
        self.qm.define_queue("A", delivery_sequence=sequence, non_persistent_class="HIGH")
        self.steps = [
            *(self.put, self.put, self.put, self.put_group, self.get, self.get_in_order, self.get_in_order),
            *(self.commit, self.back_out, self.wait, self.qm_checkpoint, self.alter, self.again),
        ]

    @property
    def qm(self) -> qmgr.QueueManager:
        return self.world.qm

    def somewhere(self) -> qmgr.QueueManager | qmgr.UnitOfWork:
        if len(self.units) < 3 and self.rng.random() < 0.3:
            self.units.append(self.qm.begin())
        return self.rng.choice([self.qm, *self.units])

    def options(self) -> PutOptions:
        rng = self.rng
        options: PutOptions = {"persistent": rng.random() < 0.7, "priority": rng.choice((0, 4))}
        if rng.random() < 0.1:
            options["expiry"] = rng.choice((5.0, 50.0))
        return options

    def put(self) -> None:
        options = self.options()
        if self.rng.random() < 0.8:
            number = self.rng.randint(1, 4)
            options |= {"group_id": self.rng.choice(GROUPS), "group_sequence": number}
            options["last_in_group"] = number >= 3 and self.rng.random() < 0.6
        self.somewhere().put("A", bytes(self.rng.choice((1, 300))), **options)

    def put_group(self) -> None:
        bodies = [b"x"] * self.rng.randint(1, 4)
        self.somewhere().put_many("A", bodies, group_id=self.rng.choice(GROUPS), last_in_group=True, **self.options())

    def get(self) -> None:
        chosen: GetOptions = {"group_id": self.rng.choice(GROUPS)} if self.rng.random() < 0.5 else {}
        self.somewhere().get_many("A", self.rng.randint(1, 4), **chosen)

    def get_in_order(self) -> None:
        if not self.units:
            self.units.append(self.qm.begin())
        unit = self.rng.choice(self.units)
        unit.get_many("A", self.rng.randint(1, 4), logical_order=True, all_available=self.rng.random() < 0.5)

    def _ending(self) -> qmgr.UnitOfWork | None:
        return self.units.pop(self.rng.randrange(len(self.units))) if self.units else None

    def commit(self) -> None:
        unit = self._ending()
        if unit is not None:
            unit.commit()

    def back_out(self) -> None:
        unit = self._ending()
        if unit is not None:
            unit.backout()

    def wait(self) -> None:
        self.world.clock.advance(self.rng.choice((1, 20)))

    def qm_checkpoint(self) -> None:
        self.qm.checkpoint()

    def alter(self) -> None:
        if self.rng.random() < 0.3:
            self.qm.alter_queue("A", delivery_sequence=self.rng.choice(["FIFO", "PRIORITY"]))

    def again(self) -> None:
        if self.rng.random() < 0.3:
            self.units = []
            self.rng.choice([self.world.crash, self.world.restart])()


@pytest.mark.parametrize("seed", range(200 if SOAK else 3))
def test_what_is_known_of_groups_is_what_there_is(seed: int, small_segments: object) -> None:
    life = Life(seed)
    for _ in range(150):
        life.rng.choice(life.steps)()
        check(life.qm, life.units)


@pytest.mark.parametrize("options", [{}, {"group_id": b"G"}])
def test_what_goes_while_groups_are_learnt_is_known_to_be_gone(qm: qmgr.QueueManager, options: PutOptions) -> None:
    """Up to the very message that has been reached."""
    for _ in range(4):
        qm.put("A", b"x", **options)
    queue = qm._engine.state.queues["A"]
    with qm._engine.lock:
        assert queue.index_groups(2)
    assert len(qm.get_many("A", 2)) == 2
    with qm._engine.lock:
        while queue.index_groups(1):
            pass
    check(qm, [])


def test_an_index_that_grows_too_large_is_dropped(qm: qmgr.QueueManager, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(group_index, "MAX_INDEXED", 20)
    monkeypatch.setattr("qmgr.finding.MAX_INDEXED", 20)
    queue = qm._engine.state.queues["A"]

    def nothing_whole() -> None:
        with qm.begin() as unit, pytest.raises(NoMessageAvailable):
            unit.get("A", all_available=True)

    for number in range(2, 12):
        qm.put("A", b"", group_id=b"G", group_sequence=number)
    nothing_whole()
    assert queue.group_index is not None
    for number in range(12, 30):
        qm.put("A", b"", group_id=b"G", group_sequence=number, last_in_group=number == 29)
        nothing_whole()
    assert queue.group_index is None
    qm.put("A", b"first", group_id=b"G")
    with qm.begin() as unit:
        assert unit.get("A", all_available=True).body == b"first"
        assert len(unit.get_many("A", 99, logical_order=True)) == 28
    with qm.begin() as unit:
        assert unit.get_many("A", 9, all_available=True) == []
    assert queue.group_index is not None


def test_an_index_that_nobody_asks_for_is_dropped(qm: qmgr.QueueManager, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(group_index, "MAX_INDEXED", 20)
    queue = qm._engine.state.queues["A"]
    with qm.begin() as unit:
        assert unit.get_many("A", 9, all_available=True) == []
    assert queue.group_index is not None
    for _ in range(30):
        qm.put("A", b"")
        qm.get("A")
    assert queue.group_index is None


@pytest.mark.interpreted
def test_a_put_does_not_make_a_get_look_at_the_whole_queue(
    qm: qmgr.QueueManager, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(2, 300):
        qm.put("A", b"", group_id=b"%d" % (number % 7), group_sequence=number)
    looked_at = 0
    after = Queue.after

    def counted(self: Queue, position: group_index.Position, before: int) -> Iterator[Entry]:
        nonlocal looked_at
        for entry in after(self, position, before):
            looked_at += 1
            yield entry

    monkeypatch.setattr(Queue, "after", counted)
    with qm.begin() as unit:
        assert unit.get_many("A", 1, all_available=True) == []
        assert looked_at == 298
        for number in range(300, 320):
            qm.put("A", b"", group_id=b"0", group_sequence=number)
            assert unit.get_many("A", 1, all_available=True) == []
        assert looked_at == 298
        qm.put("A", b"whole", group_id=b"W", last_in_group=True)
        assert unit.get("A", all_available=True).body == b"whole"
    assert looked_at == 299


def test_what_can_not_be_read_leaves_nothing_half_known(small_segments: object) -> None:
    world = World(ini={"DefaultPQBufferSize": "2000"})
    qm = world.qm
    qm.define_queue("A", default_persistence=True)
    for number in range(1, 60):
        qm.put("A", bytes(200), group_id=b"G", group_sequence=number, last_in_group=number == 59)
        qm.checkpoint()
    queue = qm._engine.state.queues["A"]
    fault = Fault(("read",), errno.EIO, nth=3, once=False, where=lambda path: path.endswith(".seg"))
    world.disk.faults.append(fault)
    with qm.begin() as unit, pytest.raises(Unavailable):
        unit.get_many("A", 99, all_available=True)
    assert fault.fired
    assert queue._group_index is None
    world.disk.faults.remove(fault)
    with qm.begin() as unit:
        assert len(unit.get_many("A", 99, all_available=True)) == 59


def test_a_full_queue_of_parts_can_be_waited_at(qm: qmgr.QueueManager) -> None:
    qm.alter_queue("A", max_depth=3)
    for number in (1, 2, 3):
        qm.put("A", b"", group_id=b"G", group_sequence=number)
    with pytest.raises(QueueFull):
        qm.put("A", b"", group_id=b"G", group_sequence=4, last_in_group=True)
    with qm.begin() as unit, pytest.raises(NoMessageAvailable):
        unit.get("A", all_available=True)
