"""The check of the check: leave out one kind of sync, or one care, and the sweep must notice. Else it proves nothing.

Faults 19 is one of these: a checkpoint that claims more than the queue files hold.
"""

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import attrs
import pytest

from logger.extent import Extent
from logger.linear import Line
from qmgr import media, queue_snapshot, rebuild, segments
from qmgr.log_needs import LogNeeds
from qmgr.state import State
from qmgr.store import Store
from recovery import image
from recovery.backouts import Backouts
from recovery.image import ImagePlace
from tests.conftest import SOAK
from tests.sim.life import AUTOMATIC, Life, Lookout, Setup, Violation
from tests.sim.loss import LOSE_ALL, mixed
from tests.sim.paging import Counted
from tests.test_crash import ACKNOWLEDGED, Sweep, born, checkpoints, laps, secondaries, sweep
from tests.test_media import DEEP, from_the_log_alone, image_while, recreate_while, with_open_unit

Ignore = Callable[[str, str], bool]

KINDS: dict[str, Ignore] = {
    "log extent": lambda kind, path: kind == "sync" and path.endswith(".LOG"),
    "control file": lambda kind, path: kind == "sync" and path.endswith(".lfh"),
    "segment (row 19)": lambda kind, path: kind == "sync" and path.endswith(".seg"),
    "checkpoint file": lambda kind, path: kind == "sync" and "amqalchk" in path,
    "directory": lambda kind, path: kind == "sync_dir",
    "directory of the queues": lambda kind, path: kind == "sync_dir" and "/queues" in path,
    "directory of the checkpoint file": lambda kind, path: kind == "sync_dir" and path.endswith("/qmgrs/SIM"),
    "directory of the log extents": lambda kind, path: kind == "sync_dir" and path.endswith("/active"),
}


def hunt(ignore: Ignore | None) -> None:
    """Short lives with everything in them; raises Violation where a promise is broken."""

    for verb in ("put", "commit", "define", "delete"):
        life = Life()
        try:
            born(life)
            life.disk.ignore_sync = ignore
            ACKNOWLEDGED[verb](life)
            life.crash(LOSE_ALL)
            life.restart()
        except Violation:
            raise
        except Exception as exc:
            raise Violation(f"{verb}: {exc!r}") from exc

    def prelude(life: Life) -> None:
        born(life)
        life.disk.ignore_sync = ignore  # from here on: creation is not what is checked

    def script(life: Life) -> None:
        checkpoints(life)
        life.define("NEW")
        life.put("NEW", size=4000)
        life.checkpoint()
        secondaries(life)
        life.end()
        life.start()
        life.check()
        life.put("A", size=10)

    sweep(
        script,
        lambda moment: [LOSE_ALL if moment % 2 else mixed(moment)],
        setup=Setup(primary_files=2, secondary_files=2),
        prelude=prelude,
        every=1,
    )


def test_with_every_sync_in_place_the_hunt_finds_nothing() -> None:
    hunt(None)


@pytest.mark.parametrize("kind", KINDS)
def test_row_19_a_sync_left_out_is_noticed(kind: str) -> None:
    with pytest.raises(Violation):
        hunt(KINDS[kind])


# -- linear logs: one care left out ------------------------------------------------------------------------------------


def hunt_in_images(ignore: Ignore | None = None) -> None:
    """Images, a log that goes on, extents let go of and used again, queues built again; all from the log alone."""
    life = Life(attrs.evolve(AUTOMATIC, secondary_files=2))
    with_open_unit(life)
    life.disk.ignore_sync = ignore
    every = 7 if SOAK else 17  # an odd number: both losses in turn
    found = Sweep(
        life, lambda moment: [LOSE_ALL if moment % 2 else mixed(moment)], every=every, deeper=from_the_log_alone
    )
    try:
        with Lookout(life.disk, found.look):
            life.record_image("A")
            for _ in range(3):
                laps(life, 0.3)
                life.record_image()
            life.recreate("A")
            life.checkpoint()
            laps(life, 0.2)
        from_the_log_alone(life)
    except Violation:
        raise
    except Exception as exc:
        raise Violation(repr(exc)) from exc


def hunt_while_others_work(ignore: Ignore | None = None) -> None:
    """What is put, got and ended while an image is recorded, and while a queue is built again."""
    life = Life(attrs.evolve(DEEP, primary_files=8))
    unit = with_open_unit(life)
    life.put("A", number=30, size=200)

    def meanwhile(count: int) -> None:
        life.get("A", limit=6)
        life.put("A", number=2, size=150)
        life.checkpoint()
        life.checkpoint()

    def ends() -> None:
        if unit in life.open:
            life.commit(unit)
        life.checkpoint()

    try:
        image_while(life, "A", meanwhile)
        from_the_log_alone(life)
        recreate_while(life, "A", lambda: None, ends)
        from_the_log_alone(life)
        life.settle()
    except Violation:
        raise
    except Exception as exc:
        raise Violation(repr(exc)) from exc


@pytest.fixture
def tiny_segments(small_segments: Counted, monkeypatch: pytest.MonkeyPatch) -> None:
    """Rewritten as soon as half of what they hold is gone."""
    monkeypatch.setattr(segments, "MAX_SEGMENT_BYTES", 2000)
    monkeypatch.setattr(queue_snapshot, "MAX_SURPLUS_BYTES", 0)


@pytest.mark.usefixtures("tiny_segments")
def test_with_every_care_in_place_the_hunts_find_nothing() -> None:
    hunt_in_images()
    hunt_while_others_work()


@pytest.mark.parametrize("kind", ["log extent", "directory", "directory of the log extents"])
def test_a_sync_left_out_is_noticed_with_a_linear_log(kind: str) -> None:
    with pytest.raises(Violation):
        hunt_in_images(KINDS[kind])


def an_image_counts_before_its_end(patch: pytest.MonkeyPatch) -> None:
    real = State._image_start

    def start(self: State, record: Any, lsn: int, end: int, time: int) -> None:
        real(self, record, lsn, end, time)
        self.by_id[record.queue].image = ImagePlace(lsn, lsn, lsn, time)

    patch.setattr(State, "_image_start", start)


def an_image_without_its_units_of_work(patch: pytest.MonkeyPatch) -> None:
    real = image.read
    patch.setattr(image, "read", lambda *given: attrs.evolve(real(*given), units={}))


def an_image_without_its_backout_counts(patch: pytest.MonkeyPatch) -> None:
    real = image.read
    patch.setattr(image, "read", lambda *given: attrs.evolve(real(*given), backouts=Backouts()))


def one_extent_too_many_let_go_of(patch: pytest.MonkeyPatch) -> None:
    real = LogNeeds.needed_from
    patch.setattr(LogNeeds, "needed_from", lambda self: {who: at + 1 for who, at in real(self).items()})


def only_what_a_restart_needs_is_kept(patch: pytest.MonkeyPatch) -> None:
    real = LogNeeds.needed_from
    patch.setattr(LogNeeds, "needed_from", lambda self: {"restart": real(self)["restart"]})


def an_extent_used_again_with_its_old_header(patch: pytest.MonkeyPatch) -> None:
    real_make, real_write = Line.make, Extent.write_header

    def make(self: Line) -> Extent:
        if not self.reusable():
            return real_make(self)
        with patch.context() as inner:
            inner.setattr(Extent, "write_header", lambda extent: None)
            return real_make(self)

    patch.setattr(Line, "make", make)
    patch.setattr(Extent, "write_header", real_write)


def a_header_that_does_not_say_what_the_extent_holds(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Extent, "write_header", lambda extent: None)


def segments_deleted_while_they_are_read(patch: pytest.MonkeyPatch) -> None:
    real = Store.doom

    def doom(self: Store, segments: list[tuple[str, int]]) -> list[tuple[str, int]]:
        pinned, self.pinned = self.pinned, set()
        try:
            return real(self, segments)
        finally:
            self.pinned = pinned

    patch.setattr(Store, "doom", doom)


def units_of_work_not_heard_of(patch: pytest.MonkeyPatch) -> None:
    @contextlib.contextmanager
    def deaf(self: State, hear: Any) -> Iterator[None]:
        yield

    patch.setattr(State, "observed", deaf)


def records_before_the_image_counted_too(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(rebuild.Rebuild, "_counts", lambda self, number, lsn, unit=0: number in self._since)


def units_of_work_left_with_the_old_queue(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(media._Relinked, "make", lambda *given: None)


CARES: dict[Callable[[pytest.MonkeyPatch], None], Callable[[], None]] = {
    an_image_counts_before_its_end: hunt_in_images,
    an_image_without_its_units_of_work: hunt_in_images,
    an_image_without_its_backout_counts: hunt_in_images,
    one_extent_too_many_let_go_of: hunt_in_images,
    only_what_a_restart_needs_is_kept: hunt_in_images,
    an_extent_used_again_with_its_old_header: hunt_in_images,
    a_header_that_does_not_say_what_the_extent_holds: hunt_in_images,
    segments_deleted_while_they_are_read: hunt_while_others_work,
    units_of_work_not_heard_of: hunt_while_others_work,
    records_before_the_image_counted_too: hunt_in_images,
    units_of_work_left_with_the_old_queue: hunt_while_others_work,
}


@pytest.mark.usefixtures("tiny_segments")
@pytest.mark.parametrize("care", CARES, ids=lambda care: care.__name__)
def test_a_care_left_out_is_noticed(
    care: Callable[[pytest.MonkeyPatch], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    care(monkeypatch)
    with pytest.raises(Violation):
        CARES[care]()
