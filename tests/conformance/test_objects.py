"""Queues, the queue manager and its state over every face: define, alter, delete, show; types of what is shown."""

import attrs
import pytest

import qmgr.aio
from logger.log import LogStatus
from qmgr import QmgrDefinition, QueueInfo, Reason
from qmgr.remote import RemoteUnit
from tests.conformance.calls import bodies, drain, refused
from tests.conformance.faces import Face, numbers
from tests.qmgr.test_api_objects import ATTRIBUTES, WRONG
from tests.qmgr.world import NAME

Manager = qmgr.QueueManager


def new_name() -> str:
    return f"N{next(numbers)}"


INSIDE = {  # what only the process that runs it can use
    *(
        "abandon",
        "archive_away",
        "begin_for",
        "busy",
        "damaged",
        "force",
        "healthy",
        "look_around",
        "not_authorized",
        "picture",
        "quiesce",
    ),
    *("refusal", "say"),
}


def public(face: type) -> set[str]:
    return {name for name in dir(face) if not name.startswith("_")}


def test_every_face_has_every_verb() -> None:
    verbs = public(qmgr.QueueManager) - INSIDE
    for face in (qmgr.Connection, qmgr.aio.Connection):
        assert verbs - public(face) == set()
    for unit in (RemoteUnit, qmgr.aio.UnitOfWork):
        assert public(qmgr.UnitOfWork) - public(unit) == set()


def test_the_defaults(qm: Manager) -> None:
    name = new_name()
    info = qm.define_queue(name)
    assert type(info) is QueueInfo
    assert (info.put_enabled, info.get_enabled, info.default_priority) == (True, True, 0)
    assert (info.default_persistence, info.max_depth, info.max_message_length) == (True, 999_999_999, 4_194_304)
    assert (info.delivery_sequence, info.non_persistent_class, info.description) == ("PRIORITY", "NORMAL", "")
    assert (info.backout_threshold, info.backout_queue, info.image_recoverable) == (0, "", "QMGR")
    assert (info.depth_high, info.depth_low, info.expiry_cap) == (80, 20, None)
    assert (info.name, info.depth, info.uncommitted, info.damaged) == (name, 0, 0, "")
    assert qm.queue(name) == info
    assert [found for found in qm.queues() if found.name == name] == [info]


def test_every_attribute_is_kept(face: Face) -> None:
    qm, defined, altered = face.qm, new_name(), face.queue()
    for info in (qm.define_queue(defined, **ATTRIBUTES), qm.alter_queue(altered, **ATTRIBUTES)):
        assert type(info) is QueueInfo
        for found in (info, qm.queue(info.name)):
            assert {attribute: getattr(found, attribute) for attribute in ATTRIBUTES} == ATTRIBUTES


def test_queues_come_by_name_with_their_depth(face: Face) -> None:
    qm = face.qm
    names = [face.queue() for _ in range(3)]
    for depth, name in enumerate(names):
        qm.put_many(name, [b"x"] * depth)
    found = {info.name: info for info in qm.queues()}
    assert [found[name].depth for name in names] == [0, 1, 2]
    assert list(found) == sorted(found)
    assert {type(info) for info in found.values()} == {QueueInfo}
    with qm.begin() as unit:
        unit.get(names[2])
        unit.put(names[2], b"")
        assert attrs.asdict(qm.queue(names[2])) | {"memory": 0} == attrs.asdict(found[names[2]]) | {
            "uncommitted": 2,
            "memory": 0,
        }


@pytest.mark.parametrize(("attribute", "value"), WRONG, ids=lambda value: str(value)[:30])
def test_a_wrong_attribute_is_named_and_changes_nothing(
    qm: Manager, shared: str, attribute: str, value: object
) -> None:
    before, name = qm.queue(shared), new_name()
    with pytest.raises(qmgr.Mistake, match=attribute if attribute != "backout_queue" else "name|backout_queue"):
        qm.alter_queue(shared, **{attribute: value})
    with pytest.raises(qmgr.Mistake):
        qm.define_queue(name, **{attribute: value})
    assert qm.queue(shared) == before
    assert name not in [found.name for found in qm.queues()]


@pytest.mark.parametrize("name", ["x" * 48, "A.B/C_D%1", ".", "..", "/", "%", "a"])
def test_names_of_every_allowed_character(qm: Manager, name: str) -> None:
    qm.define_queue(name)
    qm.put(name, name.encode())
    assert qm.queue(name).name == name
    assert bodies(qm, name) == [name.encode()]
    qm.delete_queue(name, purge=True)


def test_defining_twice_is_2100(qm: Manager, queue: str) -> None:
    qm.put(queue, b"x")
    with refused(qmgr.AlreadyExists, Reason.OBJECT_ALREADY_EXISTS, queue, f"'{queue}'"):
        qm.define_queue(queue, max_depth=1)
    assert bodies(qm, queue) == [b"x"]


def test_altering_a_queue_with_messages_leaves_them(qm: Manager, queue: str) -> None:
    for n in range(6):
        qm.put(queue, b"%d" % n, priority=n % 3)
    assert qm.alter_queue(queue, delivery_sequence="FIFO", max_depth=2, max_message_length=0).depth == 6
    assert bodies(qm, queue) == [b"%d" % n for n in range(6)]
    qm.alter_queue(queue, delivery_sequence="PRIORITY")
    assert drain(qm, queue) == [b"2", b"5", b"1", b"4", b"0", b"3"]


def test_a_queue_with_messages_is_deleted_only_with_purge_2055(qm: Manager, queue: str) -> None:
    qm.put(queue, b"x")
    with refused(qmgr.ObjectInUse, Reason.Q_NOT_EMPTY, queue):
        qm.delete_queue(queue)
    with refused(qmgr.Mistake, Reason.OPTIONS_ERROR, match="purge is True or False"):
        qm.delete_queue(queue, purge="no")  # type: ignore[arg-type]
    assert bodies(qm, queue) == [b"x"]
    qm.delete_queue(queue, purge=True)
    for call in (
        lambda: qm.put(queue, b""),
        lambda: qm.get(queue),
        lambda: list(qm.browse(queue)),
        lambda: qm.queue(queue),
        lambda: qm.delete_queue(queue),
    ):
        with refused(qmgr.UnknownQueue, Reason.UNKNOWN_OBJECT_NAME, queue):
            call()
    qm.define_queue(queue)
    assert bodies(qm, queue) == []  # and not the messages of the old one


def test_a_queue_of_a_unit_in_flight_is_not_deleted_2042(qm: Manager, queue: str) -> None:
    with qm.begin() as unit:
        unit.put(queue, b"x")
        for purge in (False, True):
            with refused(qmgr.ObjectInUse, Reason.OBJECT_IN_USE, queue):
                qm.delete_queue(queue, purge=purge)
        unit.backout()
    qm.delete_queue(queue)


def test_attributes_of_the_queue_manager(qm: Manager) -> None:
    before = qm.attributes
    assert type(before) is QmgrDefinition
    after = qm.alter(image_interval=None, image_log_length=7)
    assert type(after) is QmgrDefinition
    assert after == qm.attributes == attrs.evolve(before, image_interval=None, image_log_length=7)
    with refused(qmgr.Mistake, Reason.OPTIONS_ERROR, match="image_interval"):
        qm.alter(image_interval=0)
    with refused(qmgr.Mistake, Reason.OPTIONS_ERROR, match="colour"):
        qm.alter(colour="red")
    assert qm.alter(image_interval=60, image_log_length=None) == before


def test_status_shows_what_there_is(qm: Manager, queue: str) -> None:
    qm.put(queue, b"x" * 100)
    with qm.begin() as unit:
        unit.put(queue, b"y")
        status = qm.status()
        assert type(status) is qmgr.Status
        assert (status.name, status.state, status.log_sync) == (NAME, "running", "always")
        assert (status.units_of_work, status.in_doubt) == (1, 0)
    assert status.queues == len(qm.queues())
    assert status.messages == sum(info.depth for info in qm.queues())
    log = qm.status().log
    assert type(log) is LogStatus
    assert log.files == 2
    assert log.head <= log.checkpoint <= log.durable <= log.tail
    assert log.capacity == 3 * 64 * 4096
    assert log.writes.writes > 0
    assert log.config.extent_bytes == 64 * 4096
    assert type(status.restart) is qmgr.RestartReport
    assert qm.name == NAME


def test_a_checkpoint_moves_on(qm: Manager, queue: str) -> None:
    before = qm.status()
    qm.put(queue, b"x")
    qm.checkpoint()
    after = qm.status()
    assert after.checkpoints == before.checkpoints + 1
    assert after.log.checkpoint > before.log.checkpoint
    assert after.checkpoint_seconds > 0


def test_what_needs_a_linear_log_is_2298(qm: Manager, queue: str) -> None:
    for call in (
        lambda: qm.record_image(queue),
        lambda: qm.recreate(queue),
        lambda: list(qm.replay(queue, "oldest")),
        qm.archive_log,
    ):
        with refused(qmgr.MediaNotSupported, Reason.FUNCTION_NOT_SUPPORTED):
            call()
