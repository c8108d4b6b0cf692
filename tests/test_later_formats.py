"""What a later version wrote is refused by name and left alone: it is neither damaged nor a torn tail."""

from collections.abc import Iterator

import pytest

import qmgr
from logger import buffer, control, lsn
from logger.config import LogType
from qmgr import repairing
from tests.qmgr.world import DATA, NAME, World
from tests.sim.disk import SimDisk
from tests.sim.loss import KEEP_ALL

LOG = f"{DATA}/log/{NAME}"
CONTROL = f"{LOG}/{control.NAME}"
PLACES = {
    "the-first-copy-of-the-control-file": (CONTROL, 0),
    "the-second-copy-of-the-control-file": (CONTROL, control.COPY_BYTES),
    "the-checkpoint": (f"{DATA}/qmgrs/{NAME}/amqalchk.fil", 0),
    "the-checkpoint-before": (f"{DATA}/qmgrs/{NAME}/amqalchk.old", 0),
    "an-extent": (f"{LOG}/active/S0000000.LOG", 0),
    "a-segment": (f"{DATA}/qmgrs/{NAME}/queues/A/00000001.seg", 0),
}


@pytest.fixture(params=["circular", "linear"])
def world(request: pytest.FixtureRequest) -> Iterator[World]:
    world = World(log_type=request.param)
    world.qm.define_queue("A")
    world.qm.put("A", b"1")
    yield world
    world.qm.abandon()


def of_format_9(data: bytes, at: int) -> bytes:
    """What begins at `at` is of format 9, and its CRC, which comes next, is over that too."""
    return data[: at + 7] + b"9" + bytes(byte ^ 255 for byte in data[at + 8 : at + 12]) + data[at + 12 :]


def everything(disk: SimDisk) -> dict[str, bytes]:
    return {path: disk.peek(path) for path in disk.files() if "/errors/" not in path and not path.endswith(".lock")}


@pytest.mark.parametrize("place", PLACES)
def test_a_file_of_a_later_format_refuses_the_start_and_is_left_alone(world: World, place: str) -> None:
    """With linear logging a segment would be built again, and the one that is good put aside."""
    world.qm.end()
    path, at = PLACES[place]
    now = world.disk.peek(path)
    world.disk.poke(path, of_format_9(now, at))
    before = everything(world.disk)
    with pytest.raises(qmgr.Damaged, match=f"{path} is of format 9, .*; start .* the version that wrote it") as said:
        world.start()
    assert "mended" not in said.value.sentence
    assert everything(world.disk) == before
    world.disk.poke(path, now)
    assert world.start().get("A").body == b"1"


@pytest.mark.parametrize("place", PLACES)
def test_a_damaged_byte_where_the_version_is_refuses_no_more_than_another_one(world: World, place: str) -> None:
    """One bit makes a 3 of a 1 or a 2, and there is no version that could be started instead."""
    world.qm.end()
    path, at = PLACES[place]
    now = world.disk.peek(path)
    world.disk.poke(path, now[: at + 7] + b"3" + now[at + 8 :])
    assert not repairing.check(NAME, data_path=DATA, disk=world.disk).examination.refused
    qm = world.start()
    if place == "a-segment" and qm.config.log.log_type is LogType.CIRCULAR:
        with pytest.raises(qmgr.Damaged, match="its header is damaged"):
            qm.get("A")
    else:
        assert qm.get("A").body == b"1"


LOST = pytest.mark.parametrize("lost", ["nothing", "the control file"])


def make_log_later(disk: SimDisk, lost: str) -> None:
    for path in (path for path in disk.files() if path.startswith(LOG) and path.endswith((".lfh", ".LOG"))):
        now = of_format_9(disk.peek(path), 0)
        disk.poke(path, of_format_9(now, control.COPY_BYTES) if path == CONTROL else now)
    if lost == "the control file":
        disk.unlink(CONTROL)


@LOST
def test_no_queue_manager_is_made_over_a_log_of_a_later_format(world: World, lost: str) -> None:
    """As where the new one has its data elsewhere: nothing here says whose the log is."""
    world.qm.end()
    make_log_later(world.disk, lost)
    before = everything(world.disk)
    with pytest.raises(qmgr.Damaged, match=f"{LOG}.* is of format 9, .* the version that wrote it"):
        qmgr.create(NAME, data_path="/other", log_path=f"{DATA}/log", disk=world.disk, clock=world.clock)
    assert everything(world.disk) == before


@LOST
def test_no_log_of_a_later_format_is_deleted_where_another_queue_manager_leads_to_it(world: World, lost: str) -> None:
    world.qm.end()
    qmgr.create("QM2", data_path="/other", disk=world.disk, clock=world.clock)
    ini = "/other/qmgrs/QM2/qm.ini"
    world.disk.poke(ini, world.disk.peek(ini).replace(b"LogPath=/other/log/QM2", f"LogPath={LOG}".encode()))
    make_log_later(world.disk, lost)
    before = everything(world.disk)
    with pytest.raises(qmgr.Damaged, match=f"can't be deleted: {LOG}.* is of format 9, .* the version that wrote it"):
        qmgr.delete("QM2", data_path="/other", disk=world.disk)
    assert everything(world.disk) == before


@pytest.mark.interpreted
def test_records_of_a_later_format_are_no_torn_tail(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """They would be cut off in silence, although they were acknowledged."""
    end = world.qm.status().log.tail
    with monkeypatch.context() as patched:
        patched.setattr(buffer, "VERSION", 2)
        world.qm.put("A", b"2")
    world.qm.abandon()
    world.disk = world.disk.crash(KEEP_ALL)
    before = everything(world.disk)
    text = rf"S0000000\.LOG has a record of a later format at {lsn.text(end)}, .* the version that wrote it"
    with pytest.raises(qmgr.Damaged, match=text):
        world.start()
    assert everything(world.disk) == before
