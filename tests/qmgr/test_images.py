"""Media images that nobody asks for: when they are due, at the definition and at the end, and what is said of them."""

import errno
import json
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

import qmgr
from logger import at_rest
from qmgr import housekeeping, ini, media
from qmgr.errors import MediaImageMissing, Mistake, NotImageRecoverable
from qmgr.media import Media
from recovery.image import ImagePlace
from recovery.records import CATALOG_FIRST, Catalog, Kind
from tests.qmgr.world import DATA, NAME, World, bodies
from tests.sim.loss import KEEP_ALL, LOSE_ALL

EXTENT = 64 * 4096
MINUTE = 60
MB = 1 << 20


def world(**options: Any) -> World:
    """A linear log and the queues A, B and NOT; only NOT has no images."""
    made = World(**({"log_type": "linear", "log_primary_files": 4} | options))
    made.qm.define_queue("A")
    made.qm.define_queue("B")
    made.qm.define_queue("NOT", image_recoverable="NO")
    made.qm.put("A", b"a")
    made.qm.put("B", b"b")
    made.qm.put("NOT", b"n")
    return made


def images(made: World) -> dict[str, ImagePlace | None]:
    """Where the image of each queue lies."""
    return {name: queue.image for name, queue in made.qm._engine.state.queues.items()}


def recorded(made: World) -> list[str]:
    """The queues whose images the error log says were recorded."""
    lines = [line for line in made.errors().splitlines() if "AMQ9003" in line]
    return [line.split("for object ")[1].split(",")[0] for line in lines]


def pass_time(made: World, seconds: float) -> None:
    """Let it pass, and make a call: it does the housekeeping."""
    made.clock.advance(seconds)
    made.qm.put("NOT", b"")


def fill(made: World, megabytes: float) -> None:
    """So much goes through the log, and nothing stays."""
    tail = made.qm.status().log.tail
    while made.qm.status().log.tail < tail + megabytes * MB:
        made.qm.put("NOT", bytes(60_000))
        made.qm.get("NOT")


def kinds(made: World, since: int) -> list[int]:
    """The kinds of the log's records from an LSN on; nobody runs the queue manager."""
    config = ini.parse(made.disk.peek(f"{DATA}/qmgrs/{NAME}/qm.ini"), "qm.ini").log
    _, reader, _, _ = at_rest.read_with_history(made.disk, config)
    found = [raw.kind for raw in reader.records(since)]
    reader.close()
    return found


# -- when they are due -----------------------------------------------------------------------------------------------


@pytest.mark.interpreted
def test_small_images_are_forced_together_and_durable_in_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    """With 10,000 queues a force for each record of an image takes minutes on a disk that others use."""
    made = world()
    for number in range(50):
        made.qm.define_queue(f"Q{number}")
    made.qm.checkpoint()
    forces: list[int] = []
    force = made.qm._engine.force
    monkeypatch.setattr(made.qm._engine, "force", lambda end: [forces.append(end), force(end)][1])
    assert len(made.qm.record_image()) == 52
    assert len(forces) < 10
    recorded, catalog = images(made), made.qm._engine.state.catalog
    made.crash(LOSE_ALL)
    assert images(made) == recorded and None not in [recorded[f"Q{number}"] for number in range(50)]
    assert made.qm._engine.state.catalog == catalog


def test_what_was_recorded_by_itself_is_durable() -> None:
    made = world()
    for number in range(media.QUEUES_PER_PIECE):
        made.qm.define_queue(f"Q{number}")
    before, catalog = images(made)["Q1"], made.qm._engine.state.catalog
    made.qm.record_image("Q1")
    recorded = images(made)["Q1"]
    made.crash(LOSE_ALL)
    assert images(made)["Q1"] == recorded != before
    made.qm.record_definitions()  # in more than one piece
    later = made.qm._engine.state.catalog
    made.crash(LOSE_ALL)
    assert made.qm._engine.state.catalog == later > catalog


def test_images_before_one_that_fails_are_durable_too(monkeypatch: pytest.MonkeyPatch) -> None:
    made, record = world(), Media._record

    def failing(self: Media, checkpoint: Any, fields: dict[str, Any]) -> str:
        if fields["definition"]["name"] == "B":
            raise Mistake("it can't be read")
        return record(self, checkpoint, fields)

    before = images(made)
    monkeypatch.setattr(Media, "_record", failing)
    with pytest.raises(Mistake):
        made.qm.record_image()
    recorded = images(made)
    assert recorded["A"] != before["A"]
    made.crash(LOSE_ALL)
    assert images(made) == recorded


def test_under_the_lock_only_the_first_piece_of_the_definitions_is_written(monkeypatch: pytest.MonkeyPatch) -> None:
    """With 10,000 queues all of them would keep everybody waiting for a second; what comes later is not in them."""
    made = world()
    made.qm.define_alias("ALIAS", "A")
    monkeypatch.setattr(media, "QUEUES_PER_PIECE", 1)
    pieces: list[Catalog] = []
    locked: list[bool] = []

    def piece(flags: int, content: bytes) -> Catalog:
        if flags & CATALOG_FIRST:  # it may be made again once there is room for it
            pieces.clear()
            locked.clear()
        pieces.append(Catalog(flags, content))
        locked.append(made.qm._engine.lock.locked())
        if len(pieces) == 2 and not locked[1]:
            made.qm.alter_queue("B", description="later")
            made.qm.define_queue("LATER")
        return pieces[-1]

    monkeypatch.setattr(media, "Catalog", piece)
    made.qm.record_image()
    monkeypatch.setattr(media, "Catalog", Catalog)  # what is built below records its own
    assert locked == [True, False, False, False]
    said = [json.loads(one.content) for one in pieces]
    queues = [one["definition"] for piece in said for one in piece["queues"]]
    assert [(one["name"], one["description"]) for one in queues] == [("A", ""), ("B", ""), ("NOT", "")]
    assert [alias["name"] for piece in said for alias in piece.get("aliases", ())] == ["ALIAS"]
    made.qm.put("LATER", b"kept")
    made.qm.end()
    then = made.clock.wall_us()
    qmgr.recover_to(NAME, "/then", time_us=then, data_path=DATA, disk=made.disk, clock=made.clock)
    with qmgr.start(NAME, data_path="/then", disk=made.disk, clock=made.clock, background=False) as built:
        assert built.queue("B").description == "later"
        assert bodies(built, "LATER") == [b"kept"]


def test_images_are_recorded_when_the_interval_is_over_and_not_before() -> None:
    """IMGSCHED(AUTO) IMGINTVL(5): of those queues only that are to have images, with the definitions."""
    made = world()
    made.qm.alter(image_schedule="AUTO", image_interval=5)
    before, catalog = images(made), made.qm._engine.state.catalog
    for _ in range(4):
        pass_time(made, 1.2 * MINUTE)
    assert images(made) == before
    assert recorded(made) == []
    pass_time(made, 0.3 * MINUTE)
    assert recorded(made) == ["A", "B"]
    after = images(made)
    assert after["NOT"] is None
    for queue in ("A", "B"):
        assert after[queue].media > before[queue].media
        assert after[queue].time >= before[queue].time + 5 * MINUTE * 1_000_000
    assert made.qm._engine.state.catalog > catalog
    pass_time(made, 4.8 * MINUTE)
    assert images(made) == after
    pass_time(made, 0.3 * MINUTE)
    assert recorded(made) == ["A", "B"] * 2


@pytest.mark.parametrize("jump", [-365 * 86400, 365 * 86400])
def test_a_clock_that_is_set_back_or_forth_keeps_no_image_from_being_recorded_and_causes_none(jump: int) -> None:
    made = world()
    made.qm.alter(image_schedule="AUTO", image_interval=5)
    pass_time(made, 2 * MINUTE)
    made.clock.jump_wall(jump)
    pass_time(made, 2 * MINUTE)
    assert recorded(made) == []
    pass_time(made, 1.5 * MINUTE)
    assert recorded(made) == ["A", "B"]
    pass_time(made, 0.5 * MINUTE)
    made.clock.jump_wall(-jump)
    pass_time(made, 4 * MINUTE)
    assert recorded(made) == ["A", "B"]
    pass_time(made, 1 * MINUTE)
    assert recorded(made) == ["A", "B"] * 2
    made.clock.jump_wall(jump)
    made.restart()
    pass_time(made, 1 * MINUTE)
    once = recorded(made)
    assert len(once) <= 6, "one round at most"
    pass_time(made, 3 * MINUTE)
    assert recorded(made) == once
    pass_time(made, 2.5 * MINUTE)
    assert recorded(made) == [*once, "A", "B"]


def test_each_queue_has_a_time_of_its_own() -> None:
    """One that was recorded by hand meanwhile is not due with the others."""
    made = world()
    made.qm.alter(image_schedule="AUTO", image_interval=10)
    pass_time(made, 6 * MINUTE)
    made.qm.record_image("A")
    pass_time(made, 5 * MINUTE)
    assert recorded(made) == ["A", "B"]
    pass_time(made, 5.1 * MINUTE)
    assert recorded(made) == ["A", "B", "A"]


def test_images_are_recorded_when_so_much_log_was_written_and_not_before() -> None:
    """IMGLOGLN(2) IMGINTVL(OFF)."""
    made = world()
    made.qm.alter(image_schedule="AUTO", image_interval=None, image_log_length=2)
    fill(made, 1.8)
    pass_time(made, 100 * MINUTE)
    assert recorded(made) == []
    fill(made, 0.4)
    pass_time(made, 11)
    assert recorded(made) == ["A", "B"]
    fill(made, 1.5)
    pass_time(made, 11)
    assert recorded(made) == ["A", "B"]
    fill(made, 0.7)
    pass_time(made, 11)
    assert recorded(made) == ["A", "B"] * 2


@pytest.mark.parametrize(
    "attributes",
    [
        {"image_schedule": "MANUAL", "image_interval": 1, "image_log_length": 1},
        {"image_schedule": "AUTO", "image_interval": None, "image_log_length": None},
        {"image_schedule": "AUTO", "image_interval": 1, "image_recover_queues": False},
    ],
    ids=["manual", "off", "no queues"],
)
def test_where_nothing_is_scheduled_nothing_is_recorded(attributes: dict[str, Any]) -> None:
    made = world()
    made.qm.alter(**attributes)
    for _ in range(3):
        fill(made, 0.6)
        pass_time(made, 1000 * MINUTE)
    assert recorded(made) == []


def test_circular_logging_has_the_attributes_and_no_images() -> None:
    made = World()
    made.qm.define_queue("NOT")
    made.qm.alter(image_schedule="AUTO", image_interval=1)
    for _ in range(3):
        pass_time(made, 10 * MINUTE)
    assert "AMQ900" not in made.errors()


def test_what_is_due_at_the_start_is_recorded_soon() -> None:
    """An image grows old while the queue manager is down, too."""
    made = world()
    made.qm.alter(image_schedule="AUTO", image_interval=5)
    made.qm.end()
    made.clock.advance(6 * MINUTE)
    made.start()
    pass_time(made, 11)
    assert recorded(made) == ["A", "B"]


def test_the_oldest_extent_for_media_recovery_moves_on_and_is_said() -> None:
    """MEDIALOG, AMQ7467 and AMQ7468; what is superfluous then is used again."""
    made = world(log_management="Automatic")
    made.qm.alter(image_schedule="AUTO", image_interval=None, image_log_length=1)
    said = []
    for _ in range(8):
        fill(made, 0.6)
        pass_time(made, 11)
        made.qm.checkpoint()
        made.qm.checkpoint()
        restart, media = made.qm.oldest_extents()
        text = made.errors()
        assert f"needed to start queue manager {NAME!r} is {restart}." in text
        assert f"needed for media recovery of queue manager {NAME!r} is {media}." in text
        assert media <= restart
        said.append(media)
    assert said == sorted(said)
    assert len(set(said)) > 4
    assert "AMQ7490" in made.errors()
    assert min(made.qm._log.history().places()) > 4


# -- attributes ------------------------------------------------------------------------------------------------------


def test_the_attributes_survive_restarts_and_crashes() -> None:
    made = world()
    wanted = {
        "image_schedule": "AUTO",
        "image_interval": 77,
        "image_log_length": 999_999_999,
        "image_recover_objects": False,
        "image_recover_queues": False,
    }
    for attribute, value in wanted.items():
        made.qm.alter(**{attribute: value})
        made.crash(LOSE_ALL)
    made.qm.alter(image_interval=None)
    made.restart()
    found = {name: getattr(made.qm.attributes, name) for name in wanted}
    assert found == wanted | {"image_interval": None}


@pytest.mark.parametrize(
    ("attribute", "value"),
    [
        ("image_schedule", "SOMETIMES"),
        ("image_schedule", None),
        ("image_interval", 0),
        ("image_interval", -1),
        ("image_interval", 1.5),
        ("image_interval", True),
        ("image_interval", "60"),
        ("image_interval", 1_000_000_000),
        ("image_log_length", 0),
        ("image_log_length", 1_000_000_000),
        ("image_recover_queues", "YES"),
        ("image_recover_objects", 1),
        ("no_such", 1),
    ],
)
def test_wrong_attributes_are_refused_by_name(attribute: str, value: object) -> None:
    made = world()
    before = made.qm.attributes
    with pytest.raises(Mistake) as caught:
        made.qm.alter(**{"image_schedule": "AUTO", attribute: value})
    assert attribute in str(caught.value)
    assert made.qm.attributes == before
    made.crash(LOSE_ALL)
    assert made.qm.attributes == before


# -- which queues ----------------------------------------------------------------------------------------------------


def lose(made: World, queue: str) -> None:
    """Every segment of the queue."""
    for path in made.disk.files(f"{DATA}/qmgrs/{NAME}/queues/{queue}"):
        made.disk.remove(path)


def test_the_definition_of_a_queue_is_its_first_image() -> None:
    made = world()
    place = images(made)["A"]
    made.qm.checkpoint()
    lose(made, "A")
    assert made.qm.recreate("A").depth == 1
    assert bodies(made.qm, "A") == [b"a"]
    assert images(made)["A"] == place
    made.qm.delete_queue("A", purge=True)
    made.qm.define_queue("A")
    assert images(made)["A"].start > place.start
    made.qm.checkpoint()
    assert made.qm.recreate("A").depth == 0


def test_a_queue_altered_to_no_forgets_its_image_and_altered_back_is_due_at_once() -> None:
    made = world()
    made.qm.alter(image_schedule="AUTO", image_interval=60)
    made.qm.record_image()
    made.qm.alter_queue("A", image_recoverable="NO")
    assert images(made)["A"] is None
    with pytest.raises(NotImageRecoverable, match="IMGRCOVQ"):
        made.qm.recreate("A")
    with pytest.raises(NotImageRecoverable, match="image_recoverable='YES'"):
        made.qm.record_image("A")
    made.crash(KEEP_ALL)
    assert images(made)["A"] is None
    made.qm.alter_queue("A", image_recoverable="YES")
    with pytest.raises(MediaImageMissing, match="this log has no media image of queue 'A'"):
        made.qm.recreate("A")
    count = len(recorded(made))
    pass_time(made, 11)
    assert recorded(made)[count:] == ["A"]
    lose(made, "A")
    assert made.qm.recreate("A").depth == 1


def test_the_queue_manager_s_word_counts_for_queues_that_have_none() -> None:
    """IMGRCOVQ(QMGR)."""
    made = world()
    made.qm.alter_queue("B", image_recoverable="YES")
    made.qm.alter(image_recover_queues=False)
    assert images(made)["A"] is None
    assert images(made)["B"] is not None
    assert made.qm.record_image() == ["B"]
    made.qm.alter(image_recover_queues=True)
    assert images(made)["A"] is None
    assert sorted(made.qm.record_image()) == ["A", "B"]
    made.restart()
    assert images(made)["A"] is not None


# -- at the end ------------------------------------------------------------------------------------------------------


def test_an_end_in_order_records_images_of_what_is_empty_so_that_older_extents_go() -> None:
    """Empty queues and the definitions, nothing else; a queue with messages keeps its older image."""
    made = world(log_management="Automatic")
    made.qm.get("A")
    fill(made, 1.0)
    before, tail = images(made), made.qm.status().log.tail
    made.qm.end()
    found = kinds(made, tail)
    assert found.count(Kind.IMAGE_START) == found.count(Kind.IMAGE_END) == 1
    assert found.count(Kind.CATALOG) == 1
    made.start()
    after = images(made)
    assert after["A"].media >= tail
    assert after["B"] == before["B"]
    assert made.qm.oldest_extents()[1] == "S0000000.LOG"

    made.qm.get("B")
    made.restart()
    fill(made, 0.6)
    made.restart()
    made.qm.checkpoint()
    made.qm.checkpoint()
    assert min(made.qm._log.history().places()) >= tail // EXTENT
    for queue in ("A", "B"):
        made.qm.put(queue, b"new")
        made.qm.checkpoint()
        lose(made, queue)
        assert made.qm.recreate(queue).depth == 1


def test_an_end_in_order_records_nothing_that_would_let_no_extent_go() -> None:
    made = world()
    made.qm.get("A")
    for _ in range(3):
        tail = made.qm.status().log.tail
        made.qm.end()
        assert not {Kind.IMAGE_START, Kind.CATALOG} & set(kinds(made, tail))
        made.start()


def test_an_end_in_order_records_no_image_of_a_queue_in_use_by_a_unit_of_work_in_doubt() -> None:
    """It looks empty and is not."""
    made = world()
    made.qm.get("A")
    unit = made.qm.begin(qmgr.Xid(1, b"x", b""))
    unit.put("A", b"doubtful")
    unit.prepare()
    got = made.qm.begin(qmgr.Xid(1, b"y", b""))
    got.get("B")
    got.prepare()
    place = images(made)
    fill(made, 0.5)
    made.restart()
    assert images(made) == place
    made.qm.resolve(qmgr.Xid(1, b"x", b""), commit=True)
    made.qm.resolve(qmgr.Xid(1, b"y", b""), commit=False)
    for queue, body in (("A", b"doubtful"), ("B", b"b")):
        lose(made, queue)
        made.qm.recreate(queue)
        assert bodies(made.qm, queue) == [body]


# -- while others work -----------------------------------------------------------------------------------------------


def test_an_image_that_can_not_be_recorded_is_said_and_tried_again() -> None:
    """No room on the disk: AMQ9006; ten seconds later there is."""
    made = world()
    made.qm.alter(image_schedule="AUTO", image_interval=5)
    made.qm.put("A", b"more" * 1000)
    before = images(made)
    made.disk.fail("write", errno.ENOSPC, once=False, where=lambda path: path.endswith((".seg", ".chk.new", ".new")))
    pass_time(made, 6 * MINUTE)
    assert made.errors().count("AMQ9006") == 1
    assert "no disk space" in made.errors().split("AMQ9006")[1]
    assert recorded(made) == []
    assert images(made) == before
    pass_time(made, 11)
    assert made.errors().count("AMQ9006") == 2
    made.disk.heal()
    pass_time(made, 11)
    assert recorded(made) == ["A", "B"]
    pass_time(made, 11)
    assert made.errors().count("AMQ9006") == 2
    made.crash(LOSE_ALL)
    assert bodies(made.qm, "A") == [b"a", b"more" * 1000]


def test_one_queue_that_can_not_be_read_does_not_keep_the_others_from_having_images() -> None:
    made = world()
    made.qm.alter(image_schedule="AUTO", image_interval=5)
    made.qm.checkpoint()
    before = images(made)
    lose(made, "A")
    pass_time(made, 6 * MINUTE)
    pass_time(made, 11)
    assert "AMQ9006" in made.errors()
    assert made.qm.queue("A").damaged
    assert images(made)["A"] == before["A"]
    assert images(made)["B"] != before["B"]
    assert made.qm.recreate("A").depth == 1
    pass_time(made, 11)
    assert images(made)["A"] != before["A"]


class Held:
    """Image parts wait until they may go on."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.begun, self.go_on = threading.Event(), threading.Event()
        self.thread = ""
        real = Media._parts

        def parts(media: Media, *given: Any) -> Iterator[Any]:
            self.thread = threading.current_thread().name
            self.begun.set()
            assert self.go_on.wait(120)
            yield from real(media, *given)

        patch.setattr(Media, "_parts", parts)
        patch.setattr(housekeeping, "CHORES_INTERVAL_NS", 20_000_000)


@pytest.fixture
def held(monkeypatch: pytest.MonkeyPatch) -> Iterator[Held]:
    made = Held(monkeypatch)
    yield made
    made.go_on.set()


Real = Callable[..., qmgr.QueueManager]


def due(manager: qmgr.QueueManager) -> None:
    """An image of A is due."""
    manager.define_queue("A", image_recoverable="NO")
    manager.put_many("A", [b"x" * 1000] * 50)
    manager.alter(image_schedule="AUTO")
    manager.alter_queue("A", image_recoverable="YES")


def test_images_are_recorded_by_a_thread_of_their_own_and_hold_up_nobody(real: Real, held: Held) -> None:
    manager = real(log_type="linear", log_primary_files=8)
    due(manager)
    assert held.begun.wait(120)
    assert held.thread == f"CHORES-{NAME}"
    for _ in range(20):
        manager.put("A", b"y")
        manager.get("A")
        with manager.begin() as unit:
            unit.put("A", b"z")
    manager.checkpoint()  # the checkpoints of housekeeping go on too
    assert manager.queue("A").depth == 70
    assert manager._engine.state.queues["A"].image is None and not held.go_on.is_set()  # nobody has waited for it
    held.go_on.set()
    until = time.monotonic() + 120
    while manager._engine.state.queues["A"].image is None:
        assert time.monotonic() < until
        time.sleep(0.01)
    assert manager.recreate("A").depth == 70


def test_an_end_does_not_wait_for_images_to_be_complete(
    real: Real, held: Held, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What was begun is worth nothing and does no harm."""
    manager = real(log_type="linear", log_primary_files=8)
    due(manager)
    assert held.begun.wait(120)
    threading.Timer(0.2, held.go_on.set).start()
    manager.end("immediate")
    monkeypatch.setattr(housekeeping, "CHORES_INTERVAL_NS", 1 << 60)
    manager = real()
    assert manager.queue("A").depth == 50
    manager.record_image("A")
    assert manager.recreate("A").depth == 50


def test_of_a_damaged_queue_no_image_is_taken_that_it_would_be_built_from() -> None:
    made = world()
    made.qm.record_image("A")
    made.qm.checkpoint()
    lose(made, "A")
    with pytest.raises(qmgr.Damaged):
        made.qm.record_image("A")  # which finds it out
    assert made.qm.queue("A").damaged
    before = images(made)
    logged = made.qm.status().log.tail
    with pytest.raises(qmgr.Damaged, match="so no image can be taken"):
        made.qm.record_image("A")
    assert (images(made), made.qm.status().log.tail) == (before, logged)
    assert made.qm.recreate("A").depth == 1


@pytest.mark.interpreted
@pytest.mark.parametrize("busy", [False, True])
def test_who_records_an_image_makes_pauses_only_while_others_write(busy: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """A page that the log fills up behind a piece of the image is nobody's."""
    made = world(log_file_pages=1024)
    made.qm.put_many("A", [bytes(3000)] * 300)
    made.qm.checkpoint()
    engine = made.qm._engine
    real_force = engine.force
    before = made.qm.status().log.tail

    def force(end: int) -> None:
        real_force(end)
        if busy:
            engine.put_later(None, "NOT", b"by another one", {})

    monkeypatch.setattr(engine, "force", force)
    made.clock.waited.clear()
    made.qm.record_image("A")
    monkeypatch.undo()
    made.qm.end()
    assert Kind.FILL in kinds(made, before)
    assert bool(made.clock.waited) == busy
