"""Media images and media recovery: whatever becomes of a queue's files, the queue is what the model says.

The disk is harmed behind the queue manager's back, wholly: all segments of all queues go. What is left then is the
log, and only a whole image with every extent since can bring the queues back. Faults 24-26, 49, 50.
"""

import errno
import random
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import attrs
import pytest

import qmgr
from qmgr.errors import Damaged, MediaImageMissing, MediaNotSupported, NotImageRecoverable, ObjectInUse
from qmgr.threads import this_thread
from tests.conftest import SOAK
from tests.qmgr.world import Call, World, bodies
from tests.sim.disk import SimDisk
from tests.sim.life import AUTOMATIC, DATA, LINEAR, LOG, NAME, Life, Lookout, Setup
from tests.sim.loss import DATA_ONLY, KEEP_ALL, LOSE_ALL, NAMES_ONLY, mixed
from tests.sim.paging import Counted
from tests.test_crash import Sweep, always, born, deeper, laps, mixes, sweep, work_on
from tests.test_machine import Worker, numbers

XID = qmgr.Xid(1, b"doubt", b"")
TWO = attrs.evolve(AUTOMATIC, primary_files=2, secondary_files=2)
SINGLE = attrs.evolve(TWO, write_integrity="SingleWrite")
BOTH = pytest.mark.parametrize("setup", [TWO, SINGLE], ids=["triple", "single"])
DEEP = attrs.evolve(TWO, buffer=1000)


def segments(disk: SimDisk) -> list[str]:
    return [path for path in disk.files(DATA) if path.endswith(".seg")]


def ruin(life: Life) -> int:
    """Remove every segment of every queue."""
    paths = segments(life.disk)
    for path in paths:
        life.disk.remove(path)
    life.suspects |= set(life.model.queues)
    return len(paths)


def from_the_log_alone(life: Life, moment: int = 0) -> None:
    """The life could go on without a single segment: at the start, and while it runs."""
    twin = life.fork(KEEP_ALL)
    ruin(twin)
    twin.restart()
    work_on(twin)
    twin.crash(LOSE_ALL)
    twin.restart()


def furnished(life: Life) -> None:
    """Two queues with all that can be: priorities, backouts, units of work that are open and in doubt, and images."""
    born(life)
    life.put("B", number=3, size=3000, correlation=2)
    life.put("A", size=13000, priority=5)
    life.put("A", persistent=False)
    life.record_image()
    unit = life.begin()
    life.get("A", unit=unit, limit=2)
    life.put("B", unit=unit)
    life.backout(unit)
    life.checkpoint()
    doubt = life.begin(XID)
    life.get("A", unit=doubt)
    life.get("B", unit=doubt)
    life.put("A", unit=doubt, priority=9, size=400)
    life.put("B", unit=doubt, number=2)
    life.prepare(doubt)
    life.put("B", size=700)


def with_open_unit(life: Life) -> object:
    """The same, and a unit of work whose calls are not logged yet, also of messages that are not persistent."""
    furnished(life)
    life.put("A", persistent=False, priority=9)
    unit = life.begin()
    life.get("A", unit=unit, limit=2)  # one of them is not persistent
    life.put("A", unit=unit, priority=3)
    life.put("A", unit=unit, persistent=False)
    life.get("B", unit=unit)
    return unit


# -- row 24: an image being recorded ---------------------------------------------------------------------------------


def recording(life: Life) -> None:
    life.record_image("A")
    life.get("A")
    life.put("B", size=5000)
    life.record_image()
    life.put("A", priority=4)
    life.checkpoint()


@BOTH
def test_row_24_a_crash_at_any_moment_of_recording_leaves_an_image_that_can_be_used(setup: Setup) -> None:
    """Faults 24: every queue comes back from the log alone, from whichever image counts."""
    found = sweep(recording, mixes(1, atomic=setup.atomic), setup=setup, prelude=furnished, deeper=from_the_log_alone)
    assert found.moments > 20
    sweep(
        recording,
        lambda moment: [(LOSE_ALL, KEEP_ALL, DATA_ONLY, NAMES_ONLY)[moment % 4]],
        setup=setup,
        prelude=furnished,
        deeper=from_the_log_alone,
    )


def round_and_round(life: Life) -> None:
    """The log goes on; images free its extents, which are used again."""
    for _ in range(4):
        laps(life, 0.4)
        life.record_image()
    life.checkpoint()


@BOTH
def test_row_24_extents_that_an_image_needs_are_never_used_again(setup: Setup) -> None:
    """Faults 21, 24: at the switch of extents, too, each queue comes back from the log alone."""
    life = Life(setup)
    furnished(life)
    found = Sweep(
        life, lambda moment: [mixed(moment, atomic=setup.atomic)], every=2 if SOAK else 31, deeper=from_the_log_alone
    )
    with Lookout(life.disk, found.look):
        round_and_round(life)
    renamed = [path.rsplit("/", 1)[1] for kind, path in life.disk.trace if kind == "rename" and path.endswith(".LOG")]
    assert any(name.startswith("S") for name in renamed), "no extent was ever let go of"
    assert any(name.startswith("R") for name in renamed), "no extent was ever used again"
    assert found.states > 20


def nth_calls() -> Iterator[int]:
    yield from range(1, 200, 1 if SOAK else 2)


KINDS = ("write", "sync", "create", "sync_dir", "rename", "unlink", "open", "read", "list", "size")


@pytest.mark.parametrize("error", [errno.ENOSPC, errno.EIO], ids=["ENOSPC", "EIO"])
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("script", ["record", "recreate", "switch"])
def test_row_54_a_call_fails_in_recording_and_recreating(script: str, kind: str, error: int) -> None:
    """Faults 52-54: nothing is lost; where space was missing work goes on without a restart, and it works later."""

    def do(life: Life) -> None:
        if script == "record":
            life.record_image("A")
            life.record_image()
        elif script == "recreate":
            life.recreate("A")
        else:
            life.record_image()
            laps(life, 0.6)
            life.checkpoint()
        if kind == "unlink":
            life.define("GONE")
            life.put("GONE")
            life.checkpoint()
            life.get("GONE")
            for _ in range(3):
                life.checkpoint()  # until the segment goes of which nothing is left

    start = Life(TWO)
    furnished(start)
    if script == "recreate":
        for path in start.segments("A"):
            start.disk.remove(path)
        start.suspects.add("A")
    fired = 0
    step = 1 if SOAK else {"record": 37, "recreate": 37, "switch": 89}[script]
    first = 1 if SOAK or kind in ("rename", "unlink", "list", "create") else 1 + (error == errno.EIO)
    for nth in range(first, 400, step):
        life = start.fork(KEEP_ALL)
        if script == "recreate":
            life.disk = life.disk.snapshot(KEEP_ALL)
            life.start()
            life.check()
            for path in life.segments("A"):
                life.disk.remove(path)
            life.suspects.add("A")
        else:
            life.restart()
        fault = life.disk.fail(kind, error, nth=nth, where=lambda path: not path.endswith("ERR01.LOG"))
        failed: Exception | None = None
        try:
            do(life)
        except qmgr.MQError as exc:
            failed = exc
        except OSError as exc:
            raise AssertionError(f"{script}, {kind} {nth}: a raw {exc!r}") from exc
        life.disk.heal()
        if not fault.fired:
            break
        fired += 1
        what = f"{script}, {kind} {nth}, {failed!r}"
        both = (LOSE_ALL, mixed(nth))
        try:
            for loss in both if SOAK else both[(fired + (error == errno.EIO)) % 2 :][:1]:
                fork = life.fork(loss)
                fork.restart()
                from_the_log_alone(fork)
            if life.qm._state == "running":
                life.clock.advance(5)
                life.qm.checkpoint()
                life.qm.recreate("A")
                life.model.recreate("A")
                life.check()
                life.record_image()
                work_on(life)
            else:
                # of the log itself, or while a checkpoint writes: nobody knows what the disk has
                told = kind in ("write", "sync") or (error == errno.EIO and kind not in ("read", "list"))
                assert told, f"{what}: stopped, though nothing that was written is in doubt"
        except Exception as exc:
            raise AssertionError(f"{what}: {exc!r}") from exc
    assert fired, "no call of that kind was made, so nothing was tried"


# -- row 25: a queue built again -------------------------------------------------------------------------------------


def test_row_25_the_walk_through(tmp_path: Path) -> None:
    """Faults 25: put a persistent and another message, record, delete the file: 2101; recreate: the persistent one."""
    data, log = str(tmp_path / "data"), str(tmp_path / "log")
    qmgr.create("QM", data_path=data, log_path=log, log_type="linear", log_file_pages=64, log_primary_files=2)
    with qmgr.start("QM", data_path=data) as qm:
        qm.define_queue("QL.A")
        qm.define_queue("QL.B")
        qm.put("QL.A", b"persistent")
        qm.put("QL.A", b"not", persistent=False)
        qm.put("QL.B", b"untouched", persistent=False)
        assert qm.record_image("QL.A") == ["QL.A"]
        for path in (tmp_path / "data").rglob("QL?A/*.seg"):
            path.unlink()
        with pytest.raises(Damaged):
            qm.record_image("QL.A")
        for call in (
            lambda: qm.put("QL.A", b"x"),
            lambda: qm.get("QL.A"),
            lambda: list(qm.browse("QL.A")),
            lambda: qm.put_many("QL.A", [b"1", b"2"]),
        ):
            with pytest.raises(qmgr.MQError) as caught:
                call()
            assert caught.value.reason == qmgr.Reason.OBJECT_DAMAGED
        assert qm.queue("QL.A").damaged
        assert qm.recreate("QL.A").depth == 1
        assert not qm.queue("QL.A").damaged
        assert [m.body for m in qm.browse("QL.A")] == [b"persistent"]
        assert [m.body for m in qm.browse("QL.B")] == [b"untouched"]
        assert qm.get("QL.A").body == b"persistent"


@pytest.mark.parametrize("how", ["remove", "cut", "flip", "zero", "stale"])
@pytest.mark.parametrize("online", [True, False], ids=["online", "at start"])
def test_row_25_any_harm_to_any_file_is_mended(how: str, online: bool, small_segments: Counted) -> None:
    """Faults 25: each segment in turn; locked messages, units in doubt, backouts and priorities are as before."""
    base = Life(DEEP)
    furnished(base)
    stale = {path: base.disk.peek(path) for path in segments(base.disk)}
    base.put("A", number=10, size=300)
    base.checkpoint()
    base.put("A", number=3, size=300)
    mended = 0
    for path in segments(base.disk):
        life = base.fork(KEEP_ALL)
        life.restart()
        if path not in life.disk.files(DATA):
            continue
        queue = path.rsplit("/", 2)[1]
        unit = life.begin()
        life.get("A", unit=unit)
        life.put("B", unit=unit)
        data = life.disk.peek(path)
        at = max(0, len(data) * 2 // 3)
        if how == "remove":
            life.disk.remove(path)
        elif how == "stale":
            life.disk.poke(path, stale.get(path, b""))
        else:
            life.disk.poke(
                path,
                {
                    "cut": data[:at],
                    "flip": data[:at] + bytes([data[at] ^ 16]) + data[at + 1 :],
                    "zero": data[:at] + bytes(len(data) - at),
                }[how],
            )
        life.suspects.add(queue)
        if not online:
            life.crash(KEEP_ALL)
            life.restart()
            mended += life.healed_at_start + life.found_damaged
        else:
            if queue in life.model.queues:
                life.find_damage(queue)
                life.recreate(queue)
                mended += 1
            life.check()
            life.commit(unit)
        life.settle()
        from_the_log_alone(life)
    assert mended >= 2


def recreating(life: Life) -> None:
    for path in life.segments("A"):
        life.disk.remove(path)
    life.suspects.add("A")
    life.recreate("A")
    life.get("A")
    life.put("A", size=100)


@BOTH
def test_row_26_a_crash_at_any_moment_of_recreating(setup: Setup) -> None:
    """Faults 26: interrupted, then done again by the start; and again, when that is interrupted."""
    found = sweep(recreating, mixes(1, atomic=setup.atomic), setup=setup, prelude=with_open_unit_)
    assert found.moments > 20
    sweep(
        recreating,
        always(LOSE_ALL),
        setup=setup,
        prelude=with_open_unit_,
        every=1 if SOAK else 6,
        deeper=deeper(2, lambda moment: [mixed(moment, atomic=setup.atomic)], 1 if SOAK else 3),
    )
    sweep(recreating, always(KEEP_ALL), setup=setup, prelude=with_open_unit_, deeper=from_the_log_alone)


def with_open_unit_(life: Life) -> None:
    with_open_unit(life)


@BOTH
def test_row_26_a_crash_at_any_moment_of_the_recreation_at_the_start(setup: Setup) -> None:
    """Faults 26: twice on the recovery of everything from the log alone, in a crash within that as well."""
    life = Life(setup)
    furnished(life)
    life.crash(LOSE_ALL)
    ruin(life)
    found = Sweep(
        life,
        lambda moment: [mixed(moment, atomic=setup.atomic)],
        deeper=deeper(2, lambda moment: [mixed(moment + 7, atomic=setup.atomic)], 1 if SOAK else 17),
        every=1 if SOAK else 31,
        offset=setup.atomic * 3,
    )
    with Lookout(life.disk, found.look):
        life.restart()
    assert found.moments > 30


# -- while others work -----------------------------------------------------------------------------------------------


def recreate_while(
    life: Life,
    queue: str,
    before: Callable[[], None],
    after: Callable[[], None],
    then: Callable[[], None] | None = None,
) -> None:
    """Recreate the queue; these are called when it can't be used, before and behind the reading of the log.

    `then`: called when it is there again, before anybody looks.
    """
    media = life.qm._media
    real = media._build

    def build(*given: Any) -> None:
        media._build = real  # whoever waits for this recreation is not meant
        before()
        real(*given)
        after()

    media._build = build
    try:
        life.qm.recreate(queue)
    finally:
        media._build = real
    if then is not None:
        then()
    model = life.model.copy()
    model.recreate(queue)
    model.forced()
    life._is(model, forced=True)
    life.check()


def prepared_and(end: Callable[[Life, Any], None]) -> Callable[[Life, Any], None]:
    def both(life: Life, unit: Any) -> None:
        life.prepare(unit)
        end(life, unit)

    return both


ENDS: dict[str, Callable[[Life, Any], None]] = {
    "commit": Life.commit,
    "backout": Life.backout,
    "prepare": Life.prepare,
    "prepare and commit": prepared_and(Life.commit),
    "prepare and back out": prepared_and(Life.backout),
    "nothing": lambda life, unit: None,
}


@pytest.mark.parametrize("harmed", [True, False], ids=["harmed", "whole"])
@pytest.mark.parametrize("behind", [False, True], ids=["before the reading", "behind it"])
@pytest.mark.parametrize("end", ENDS)
def test_units_of_work_that_have_used_the_queue_end_while_it_is_recreated(end: str, behind: bool, harmed: bool) -> None:
    """Faults 25: nothing of them is lost or doubled, and a crash at any moment finds the same."""
    life = Life(TWO)
    with_open_unit(life)
    extra = qmgr.Xid(2, b"open", b"")
    life.begin(extra)
    life.get("A", unit=extra)
    life.put("A", unit=extra, priority=8)
    life.put("B", unit=extra)
    life.checkpoint()  # this logs what was held
    life.put("A", unit=extra, priority=8, size=30)
    if harmed:
        for path in life.segments("A"):
            life.disk.remove(path)
        life.suspects.add("A")

    def ends() -> None:
        ENDS[end](life, extra)
        ordinary = next(unit for unit in life.open if unit not in (XID, extra))
        if end in ("commit", "backout"):
            ENDS[end](life, ordinary)
            life.resolve(XID, commit=end == "commit")
        life.put("B", size=60)
        life.get("B")
        for call in (lambda: life.qm.get("A"), lambda: life.qm.put("A", b"now?"), lambda: list(life.qm.browse("A"))):
            with pytest.raises(qmgr.MQError) as caught:
                call()
            assert caught.value.reason == qmgr.Reason.OBJECT_DAMAGED

    found = Sweep(life, lambda moment: [mixed(moment)], every=1 if SOAK else 19)
    with Lookout(life.disk, found.look):
        recreate_while(life, "A", (lambda: None) if behind else ends, ends if behind else lambda: None)
    from_the_log_alone(life)
    for unit in [unit for unit in life.open if not life.model.units[unit].prepared]:
        life.commit(unit)
    life.settle()
    life.get("A", limit=1000)
    life.check()
    life.crash(LOSE_ALL)
    life.restart()


def test_a_unit_of_work_is_rolled_forward_while_a_queue_that_it_has_used_is_recreated() -> None:
    """The record replaces those before it, which may be behind the head by then."""
    life = Life(TWO)
    furnished(life)
    start = next(t.first_lsn for t in life.qm.transactions() if t.xid == XID)

    def fill() -> None:
        for _ in range(12):
            for _ in range(12):
                life.put("B", size=16000)
            life.get("B", limit=1000)
            life.checkpoint()
        assert next(t.first_lsn for t in life.qm.transactions() if t.xid == XID) > start, "it was not rolled forward"

    recreate_while(life, "A", fill, lambda: None)
    from_the_log_alone(life)
    life.resolve(XID, commit=True)
    from_the_log_alone(life)
    life.check()


def test_other_queues_lose_nothing_and_the_recreated_one_only_what_is_not_persistent() -> None:
    life = Life(LINEAR)
    furnished(life)
    life.put("A", number=4, persistent=False)
    life.put("B", number=4, persistent=False)
    before = life.model.copy()
    life.recreate("A")
    assert [m.seen() for m in before.queues["B"]] == [m.seen() for m in life.model.queues["B"]]
    life.check()


def image_while(life: Life, queue: str | None, meanwhile: Callable[[int], None]) -> list[str]:
    """Record an image; `meanwhile` is called between its parts, with their number so far."""
    media = life.qm._media
    real = media._parts
    count = 0

    def parts(*given: Any) -> Iterator[Any]:
        nonlocal count
        for part in real(*given):
            yield part
            count += 1
            meanwhile(count)

    media._parts = parts
    try:
        recorded: list[str] = life.qm.record_image(queue)
    finally:
        media._parts = real
    assert count
    return recorded


def test_work_goes_on_while_an_image_is_recorded(small_segments: Counted) -> None:
    """Faults 24: the image and the log since are what is there, whatever is put, got or ended meanwhile."""
    life = Life(attrs.evolve(DEEP, primary_files=8))
    unit = with_open_unit(life)
    life.put("A", number=20, size=200)

    def meanwhile(count: int) -> None:
        life.get("A", limit=2)
        life.put("A", size=150, priority=count % 3)
        life.put("A", persistent=False)
        if count == 3 and unit in life.open:
            life.commit(unit)
        if count % 4 == 0:
            life.checkpoint()
        if count == 5 and life.model.in_doubt():
            life.resolve(XID, commit=True)

    for queue in ("A", None):
        found = Sweep(life, lambda moment: [mixed(moment)], every=1 if SOAK else 23, deeper=from_the_log_alone)
        with Lookout(life.disk, found.look):
            image_while(life, queue, meanwhile)
        from_the_log_alone(life)
        life.put("A", number=10, size=150)
    life.recreate("A")
    life.check()


def test_a_queue_deleted_while_its_image_is_recorded(small_segments: Counted) -> None:
    """It is not in the list of those recorded, it stays away, and another of its name is another queue."""
    life = Life(DEEP)
    born(life)
    life.define("C")
    for queue in ("B", "C"):
        life.put(queue, number=20, size=200)

    def meanwhile(count: int) -> None:
        if count == 2:
            life.delete("B")
            life.define("B", "another")
            life.put("B", size=10)

    assert set(image_while(life, None, meanwhile)) >= {"C"}
    life.check()
    from_the_log_alone(life)
    life.record_image("B")
    from_the_log_alone(life)


def test_a_queue_altered_while_its_image_is_recorded(small_segments: Counted) -> None:
    """What it is altered to comes after its image, and is there when it is recreated."""
    life = Life(DEEP)
    born(life)
    life.put("A", number=20, size=200)
    image_while(life, "A", lambda count: life.alter("A", f"altered {count}"))
    from_the_log_alone(life)
    life.recreate("A")
    life.check()


def test_a_queue_that_stops_being_recoverable_while_its_image_is_recorded(small_segments: Counted) -> None:
    """Then nothing keeps its extents, and it can't be recreated; made recoverable again it needs a new image first."""
    life = Life(DEEP)
    born(life)
    life.put("A", number=20, size=200)

    def meanwhile(count: int) -> None:
        if count == 1:
            life.qm.alter_queue("A", image_recoverable="NO")

    image_while(life, "A", meanwhile)
    with pytest.raises(NotImageRecoverable):
        life.qm.recreate("A")
    life.check()
    life.qm.alter_queue("A", image_recoverable="YES")
    with pytest.raises(MediaImageMissing):
        life.qm.recreate("A")
    life.check()
    life.record_image("A")
    life.recreate("A")
    from_the_log_alone(life)


def test_one_recreation_waits_for_another_but_not_for_its_own() -> None:
    life = Life(LINEAR)
    born(life)
    others: list[Call] = []

    def again() -> None:
        with pytest.raises(ObjectInUse):
            life.qm.recreate("B")
        others.append(Call(lambda: life.qm.recreate("B")))
        assert all(other.is_alive() for other in others)

    recreate_while(life, "A", again, again, lambda: [other.outcome() for other in others].clear())
    assert len(others) == 2


@pytest.mark.parametrize("again", [False, True], ids=["gone", "defined again"])
@pytest.mark.parametrize("behind", [False, True], ids=["before the reading", "behind it"])
@pytest.mark.parametrize("harmed", [True, False], ids=["harmed", "whole"])
def test_a_queue_deleted_while_it_is_recreated_stays_away(harmed: bool, behind: bool, again: bool) -> None:
    """Another queue of its name, and what was put to that, is left alone."""
    life = Life(TWO)
    born(life)
    if harmed:
        for path in life.segments("A"):
            life.disk.remove(path)

    def delete() -> None:
        life.delete("A")
        if again:
            life.define("A", "another")
            life.put("A", number=2)

    media = life.qm._media
    real = media._build

    def build(*given: Any) -> None:
        if behind:
            real(*given)
            delete()
        else:
            delete()
            real(*given)

    media._build = build
    with pytest.raises(qmgr.MQError) as caught:
        life.qm.recreate("A")
    media._build = real
    assert "deleted" in str(caught.value) or caught.value.reason == qmgr.Reason.OBJECT_DAMAGED
    life.check()
    if not again:
        life.checkpoint()
        assert life.segments("A") == [], "what was written for it is left"
    if again:
        life.put("A")
        life.get("A", limit=2)
    life.checkpoint()
    life.crash(LOSE_ALL)
    life.restart()
    from_the_log_alone(life)


def test_a_crash_while_a_whole_queue_is_recreated_leaves_it_whole() -> None:
    """Also when a checkpoint was taken meanwhile, and an extent that its image needs is missing."""
    life = Life(attrs.evolve(LINEAR, primary_files=2))
    born(life)
    life.put("A", number=3)
    for _ in range(60):
        life.put("B", size=12000)
        life.get("B")
    life.checkpoint()
    forks: list[Life] = []

    def meanwhile() -> None:
        life.checkpoint()
        life.put("B")
        forks.append(life.fork(LOSE_ALL))

    recreate_while(life, "A", meanwhile, meanwhile)
    for fork in forks:
        fork.disk.remove(f"{LOG}/{NAME}/active/S0000000.LOG")
        fork.restart()


# -- sizes -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("size", [1, 70_000, 300_000, 600_000])
def test_a_message_larger_than_a_block_and_over_several_extents(size: int) -> None:
    life = Life(attrs.evolve(AUTOMATIC, primary_files=6, secondary_files=4))
    born(life)
    life.put("A", size=size)
    life.record_image("A")
    life.put("B", size=size)
    from_the_log_alone(life)
    life.record_image()
    life.get("A", limit=3)
    life.checkpoint()
    from_the_log_alone(life)
    life.recreate("A")
    life.recreate("B")
    life.check()


def test_the_image_of_an_empty_queue() -> None:
    """Of one that was never used, and of one that was emptied."""
    life = Life(TWO)
    born(life)
    life.record_image("B")
    life.put("B", number=3)
    life.get("B", limit=3)
    life.checkpoint()
    life.record_image("B")
    from_the_log_alone(life)
    life.put("B")
    life.recreate("B")
    from_the_log_alone(life)


def test_no_queue_at_all() -> None:
    life = Life(TWO)
    life.create()
    life.start()
    life.record_image()
    life.crash(LOSE_ALL)
    life.restart()


def test_expiry_properties_and_times_survive() -> None:
    """A message from its image is the message, to the last property."""
    world = World(log_type="linear")
    qm = world.qm
    qm.define_queue("A")
    qm.put("A", b"short", expiry=50.0)
    qm.put("A", b"long", expiry=5000.0, reply_to="A", format="MQSTR", properties={"a": 1, "b": "two", "c": b"3"})
    qm.record_image("A")
    qm.put("A", b"later", expiry=60.0, correlation_id=b"c".ljust(24))
    before = [attrs.asdict(message) for message in qm.browse("A")]
    qm.recreate("A")
    assert [attrs.asdict(message) for message in qm.browse("A")] == before
    world.clock.advance(100)
    assert bodies(qm, "A") == [b"long"]
    for path in segments(world.disk):
        world.disk.remove(path)
    world.crash(LOSE_ALL)
    assert bodies(world.qm, "A") == [b"long"]


# -- refusals --------------------------------------------------------------------------------------------------------


def test_circular_logging_has_no_images() -> None:
    world = World()
    world.qm.define_queue("A")
    for call in (lambda: world.qm.record_image(), lambda: world.qm.record_image("A"), lambda: world.qm.recreate("A")):
        with pytest.raises(MediaNotSupported):
            call()


def test_an_extent_that_the_image_needs_is_missing() -> None:
    """Faults 42: refused with AMQ6767 and the name, nothing half done; put back, the queue is recreated."""
    life = Life(attrs.evolve(LINEAR, primary_files=2))
    furnished(life)
    for _ in range(80):
        life.put("A", size=12000, priority=9)
        life.get("A")
    life.put("A", size=500)
    life.qm.checkpoint()
    first = life.qm._engine.state.queues["A"].image.media // (64 * 4096)
    last = life.qm.status().log.head // (64 * 4096)
    assert last - first >= 2
    for sequence in range(first, last):
        name = f"S{sequence - 1:07d}.LOG"
        path = f"{LOG}/{NAME}/active/{name}"
        kept = life.disk.peek(path)
        life.disk.remove(path)
        with pytest.raises(MediaImageMissing) as caught:
            life.qm.recreate("A")
        assert name in str(caught.value)
        life.check()  # a queue that was whole is as it was
        fork = life.fork(KEEP_ALL)
        for segment in fork.segments("A"):
            fork.disk.remove(segment)
        fork.start()
        with pytest.raises(Damaged):
            list(fork.qm.browse("A"))
        assert name in fork.disk.peek(f"{DATA}/qmgrs/{NAME}/errors/AMQERR01.LOG").decode()
        fork.qm.put("B", b"the others go on")
        fork.disk.poke(path, kept)
        fork.qm.recreate("A")
        again = Life(fork.setup, fork.disk.crash(KEEP_ALL))
        again.start()
        expected = life.model.copy()
        expected.crash()
        assert [m.body for m in again.qm.browse("A")] == [m.body for m in expected.find("A", 1 << 60)]
        life.disk.poke(path, kept)
        life.recreate("A")
        life.check()


@pytest.mark.parametrize("crash", [False, True], ids=["at once", "after a crash"])
@pytest.mark.parametrize("rolled", [False, True], ids=["", "rolled forward"])
@pytest.mark.parametrize("commit", [True, False, None], ids=["committed", "backed out", "in doubt"])
def test_a_unit_in_doubt_whose_queue_could_not_be_recreated_at_the_start(
    commit: bool | None, rolled: bool, crash: bool
) -> None:
    """The log keeps what it has done to the queue, whatever becomes of it until the missing extent is put back."""
    life = Life(attrs.evolve(LINEAR, primary_files=2, secondary_files=2))
    born(life)
    life.put("B", number=3)
    for _ in range(60):
        life.put("B", size=12000, priority=9)
        life.get("B")
    unit = life.begin(XID)
    life.get("A", unit=unit, limit=2)
    life.put("A", unit=unit, size=300, number=2)
    life.put("A", unit=unit, priority=5)
    life.get("B", unit=unit)
    life.put("B", unit=unit)
    life.prepare(unit)
    life.checkpoint()
    image = f"{LOG}/{NAME}/active/S0000000.LOG"
    kept = life.disk.peek(image)
    life.disk.remove(image)
    for path in life.segments("A"):
        life.disk.remove(path)
    life.crash(KEEP_ALL)
    life.start()
    life.model.crash()
    life._is(life.model, forced=True)
    with pytest.raises(Damaged):
        list(life.qm.browse("A"))
    if rolled:
        first = next(iter(life.qm.transactions())).first_lsn
        for _ in range(12):
            for _ in range(12):
                life.put("B", size=16000, priority=9)
            life.get("B", limit=12)
            life.checkpoint()
        assert next(iter(life.qm.transactions())).first_lsn > first
    if commit is not None:
        life.resolve(XID, commit=commit)
    if crash:
        life.crash(LOSE_ALL)
        life.start()
        life.model.crash()
        life._is(life.model, forced=True)
    life.disk.poke(image, kept)
    life.recreate("A")
    life.check()
    from_the_log_alone(life)
    if commit is None:
        life.resolve(XID, commit=True)
    life.check()
    life.get("A", limit=100)
    life.crash(LOSE_ALL)
    life.restart()


@pytest.mark.parametrize("commit", [True, False], ids=["commit", "backout"])
@pytest.mark.parametrize("rolled", [False, True], ids=["", "rolled forward"])
def test_damage_found_in_the_middle_of_a_replay(commit: bool, rolled: bool, small_segments: Counted) -> None:
    """A unit in doubt had used the queue before that and after it: nothing it did is left out, and nothing doubled."""
    life = Life(DEEP)
    born(life)
    life.put("A", number=20, size=200)
    life.checkpoint()
    before = set(life.segments("A"))
    unit = life.begin(XID)
    life.put("A", unit=unit, size=30)
    life.get("A", unit=unit)
    life.put("B")  # so that what the unit has done is logged
    for msg in life.model.find("A", 30)[5::4]:
        life.get("A", message_id=int.from_bytes(msg.message_id, "big")) if any(msg.message_id) else None
    life.get("A", limit=12)
    life.put("A", unit=unit, size=40, number=2)
    life.get("A", unit=unit, limit=3)
    life.put("B")
    life.get("A", unit=unit)
    life.prepare(unit)
    harmed = 0
    for path in sorted(before):
        data = life.disk.peek(path)
        for at in range(600, len(data), 400 if SOAK else 700):
            fork = life.fork(KEEP_ALL)
            fork.disk.poke(path, data[:at] + bytes([data[at] ^ 4]) + data[at + 1 :])
            fork.suspects.add("A")
            fork.restart()
            harmed += 1
            if rolled:
                for _ in range(8):
                    fork.put("B", number=10, size=16000, priority=9)
                    fork.get("B", limit=10)
                    fork.checkpoint()
                fork.crash(LOSE_ALL)
                fork.restart()
            fork.resolve(XID, commit=commit)
            fork.check()
            from_the_log_alone(fork)
    assert harmed > 5


# -- threads ---------------------------------------------------------------------------------------------------------


class Images(threading.Thread):
    """Records images of everything, one after the other."""

    def __init__(self, qm: qmgr.QueueManager) -> None:
        super().__init__(daemon=True)
        self.qm = qm
        self.stop = False
        self.goes_on = threading.Event()  # cleared while it has to rest
        self.goes_on.set()
        self.recorded = 0
        self.error: BaseException | None = None

    def run(self) -> None:
        try:
            while not self.stop:
                self.goes_on.wait()
                try:
                    self.recorded += len(self.qm.record_image())
                except qmgr.ResourceProblem:
                    time.sleep(0.01)
        except BaseException as exc:
            self.error = exc


@pytest.mark.parametrize("buffer", [0, 1000], ids=["shallow", "deep"])
def test_threads_work_while_images_are_recorded_and_the_log_alone_has_everything(
    buffer: int, small_segments: Counted
) -> None:
    """Faults 12, 24: the disk is looked at in between, and each time every segment is removed."""
    setup = attrs.evolve(AUTOMATIC, primary_files=3, secondary_files=3, checkpoint_records=60, buffer=buffer)
    life = Life(setup)
    life.create()
    qm = qmgr.start(NAME, data_path=DATA, disk=life.disk, background=True)
    workers = [Worker(qm, f"W{n}", 1) for n in range(3)]
    for worker in workers:
        for queue in worker.queues:
            qm.define_queue(queue)
    images = Images(qm)
    for thread in (*workers, images):
        thread.start()
    looked = 0
    rng = random.Random(buffer)
    while looked < (300 if SOAK else 7) or (
        looked < 1000 and (images.recorded <= 6 or sum(worker.moved for worker in workers) <= 100)
    ):
        for thread in (*workers, images):
            thread.goes_on.set()
        time.sleep(rng.choice((0.005, 0.02, 0.06)))
        before = [(worker.put, worker.moved) for worker in workers]
        disk = life.disk.snapshot(mixed(looked))
        after = [worker.trying for worker in workers]
        for thread in (*workers, images):  # what is found does not change any more: let the look have the processor
            thread.goes_on.clear()
        for path in segments(disk):
            disk.remove(path)
        other = Life(setup, disk)
        other.start()
        looked += 1
        for worker, least, most in zip(workers, before, after, strict=True):
            a, b = (numbers(other, queue) for queue in worker.queues)
            moved = len(b)
            assert b == list(range(moved)), f"{worker.queues}: {b[:5]}..."
            assert a == list(range(moved, moved + len(a))), f"{worker.queues}: {a[:5]}..."
            assert least[0] <= moved + len(a) <= max(most[0], least[0])
            assert least[1] <= moved <= max(most[1], least[1])
        assert not any(thread.error for thread in (*workers, images)), [t.error for t in (*workers, images)]
    for thread in (*workers, images):
        thread.stop = True
        thread.goes_on.set()
    for thread in (*workers, images):
        thread.join(120)
        assert thread.error is None
    for worker in workers:
        for queue in worker.queues:
            there = [message.body for message in qm.browse(queue)]
            qm.recreate(queue)
            assert [message.body for message in qm.browse(queue)] == there
    qm.end()
    assert looked > 5
    assert images.recorded > 6
    assert sum(worker.moved for worker in workers) > 100


class Patient(Worker):
    """One whose queue may be under recreation: it waits and tries again."""

    waited = 0

    def step(self) -> None:
        try:
            super().step()
        except Damaged:
            self.waited += 1
            self.trying = (self.put, self.moved)
            for transaction in self.mine():
                transaction.backout()
            time.sleep(0.002)

    def mine(self) -> list[qmgr.UnitOfWork]:
        me = this_thread()
        engine = self.qm._engine
        with engine.lock:
            return [qmgr.UnitOfWork(self.qm, unit) for unit in engine.state.uows if unit.thread is me]


def test_what_the_progress_of_a_recreation_may_not_do_and_what_it_raises() -> None:
    """An image that was recorded by it waited for the recreation, for ever."""
    life = Life(LINEAR)
    born(life)
    life.record_image()
    for _ in range(300):
        life.put("A", size=5000)
    depth = life.qm.queue("A").depth

    def records(done: int, total: int) -> None:
        life.qm.record_image()

    def raises(done: int, total: int) -> None:
        raise KeyError("mine")

    with pytest.raises(qmgr.ObjectInUse, match="can't be recorded by the progress of a recreation"):
        life.qm.recreate("A", progress=records)
    with pytest.raises(KeyError, match="mine"):
        life.qm.recreate("A", progress=raises)
    assert life.qm.queue("A").depth == depth
    life.check()


def test_threads_work_on_a_real_disk_while_their_queues_are_recorded_and_recreated(tmp_path: Path) -> None:
    """Faults 24, 25: no message is lost, doubled or out of order; at last every segment is deleted."""
    data = str(tmp_path / "data")
    qmgr.create(
        "QM", data_path=data, log_path=str(tmp_path / "log"), log_type="linear", log_management="Automatic",
        log_file_pages=256, log_primary_files=3,
    )  # fmt: skip
    qm = qmgr.start("QM", data_path=data)
    workers = [Patient(qm, f"W{n}", 2) for n in range(3)]
    for worker in workers:
        for queue in worker.queues:
            qm.define_queue(queue)
    for worker in workers:
        worker.start()
    until = time.monotonic() + (60 if SOAK else 0.5)
    recreated = 0
    while time.monotonic() < until or (
        recreated < 500 and (recreated <= 6 or sum(worker.moved for worker in workers) <= 20)
    ):
        for worker in workers:
            for queue in worker.queues:
                qm.recreate(queue)
                recreated += 1
        qm.record_image()
    for worker in workers:
        worker.stop = True
    for worker in workers:
        worker.join(120)
        assert worker.error is None, worker.error
    expected = {queue: [m.body for m in qm.browse(queue)] for worker in workers for queue in worker.queues}
    for worker in workers:
        a, b = ([int(body.split(b".")[0]) for body in expected[queue]] for queue in worker.queues)
        assert b == list(range(worker.moved))
        assert a == list(range(worker.moved, worker.put))
    assert recreated > 6
    assert sum(worker.moved for worker in workers) > 20
    qm.abandon()
    for path in (tmp_path / "data").rglob("*.seg"):
        path.unlink()
    with qmgr.start("QM", data_path=data) as qm:
        assert {queue: [m.body for m in qm.browse(queue)] for queue in expected} == expected
