"""Records as text and JSON, for dmpmqlog."""

import itertools
import json

import attrs
import pytest

from logger import control, lsn
from logger.config import LogConfig, LogType
from logger.control import ControlState
from logger.disk import PAGE, File
from logger.errors import LogDamaged, NotInLog
from logger.extent import DATA as DATA_AT
from logger.extent import file_name, linear_number
from logger.history import History
from logger.reader import LogReader
from qmgr import Xid
from recovery import dump
from tests.qmgr.world import DATA, NAME, World

LOG = f"{DATA}/log/{NAME}"
EXTENT = 64 * PAGE


@pytest.fixture
def world() -> World:
    """A queue manager that crashed after one record of every kind."""
    made = World()
    qm = made.qm
    qm.define_queue("A")
    qm.put("A", b"body")
    qm.put_many("A", [b"1", b"2"])
    unit = qm.begin(Xid(7, b"\x01", b"\x02"))
    unit.get("A")
    unit.put("A", b"in unit")
    unit.prepare()
    unit.commit()
    other = qm.begin()
    other.put("A", b"never")
    other.get("A")
    other.backout()
    qm.put("A", b"short", expiry=1)
    made.clock.advance(5)
    qm.get_many("A", 10)
    qm.define_queue("B")
    qm.delete_queue("B")
    qm.put("A", b"last")
    made.disk = made.disk.crash()
    return made


def test_every_record_is_shown_in_order(world: World) -> None:
    found = list(dump.dump(world.disk, LOG))
    kinds = [record.type_name for record in found]
    for kind in (
        "AOC Create Object (513)", "AQM Put Message (257)", "AQM Get Message (259)", "ATM Transaction Prepared (770)",
        "ATM Commit Transaction (771)", "ATM Rollback Transaction (772)", "AQM Expire Message (261)",
    ):  # fmt: skip
        assert kind in kinds, kinds
    assert all(one.end <= two.lsn for one, two in itertools.pairwise(found))
    prepared = next(record for record in found if record.kind == 770)
    assert prepared.details == {"formatID": 7, "gtrid": "01", "bqual": "02"}
    put = next(record for record in found if record.kind == 257)
    assert put.details["queue"] == "A"
    calls = [one for record in found for one in record.details.get("calls", [])]
    assert [(one["call"], one["queue"], one.get("messages"), one.get("sequences")) for one in calls[:2]] == [
        ("put", "A", 1, None),
        ("get", "A", None, [1]),
    ]
    assert calls[0]["message_bytes"] > len(b"in unit")


def test_text_and_json_say_the_same(world: World) -> None:
    for record in dump.dump(world.disk, LOG):
        text = record.text()
        fields = json.loads(record.json())
        assert f"LOG RECORD - LSN {lsn.text(record.lsn)}" in text
        assert fields["lsn"] == lsn.text(record.lsn)
        assert fields["type_name"] in text
        assert "HLRH" in text and "ALRH" in text
        assert "\n" not in record.json()


def test_a_range_of_lsns(world: World) -> None:
    all_ = list(dump.dump(world.disk, LOG))
    some = list(dump.dump(world.disk, LOG, start_lsn=all_[3].lsn, end_lsn=all_[6].lsn))
    assert [r.lsn for r in some] == [r.lsn for r in all_[3:7]]
    with pytest.raises(LogDamaged, match="no record begins at"):
        list(dump.dump(world.disk, LOG, start_lsn=all_[3].lsn + 8))
    with pytest.raises(LogDamaged, match="not there any more"):
        list(dump.dump(world.disk, LOG, start_lsn=8))


def test_the_header_has_the_fields_that_mq_people_read(world: World) -> None:
    fields = dump.header(world.disk, LOG)
    assert (fields["hflag1"], fields["logtype"], fields["logsize"]) == ("CIRCULAR", "CIRCULAR", 64)
    assert fields["clean"] is False
    assert lsn.parse(fields["baselsn"]) <= lsn.parse(fields["headlsn"]) <= lsn.parse(fields["taillsn"])
    lines = dump.header_lines(fields)
    for name in ("baselsn", "nextlsn", "headlsn", "taillsn", "hflag1"):
        assert any(line.startswith(name) for line in lines)


def test_the_header_says_what_qm_ini_knows(world: World) -> None:
    config = LogConfig(path=LOG, primary_files=2, secondary_files=1, file_pages=64)
    fields = dump.header(world.disk, LOG, config=config)
    assert (fields["logactive"], fields["loginactive"], fields["softmax"]) == (2, 1, 3 * EXTENT * 80 // 100)


def test_a_record_of_a_kind_to_come_is_shown_too() -> None:
    record = dump.DumpRecord(lsn=8, end=64, kind=999, uow=3, epoch=1, time=0, length=2, details={"body": "0a0b"})
    assert record.type_name == "ATM Unknown (999)"
    assert "body .........: 0a0b" in record.text()
    assert json.loads(record.json())["body"] == "0a0b"


def test_an_lsn_beyond_the_end_is_refused(world: World) -> None:
    with pytest.raises(LogDamaged, match="the log ends at"):
        list(dump.dump(world.disk, LOG, start_lsn=1 << 40))


def test_a_damaged_log_is_shown_up_to_there(world: World) -> None:
    qm = world.start()
    for _ in range(3):  # so long that the second one lies in pages that have gone home
        qm.put("A", bytes(8000))
    world.disk = world.disk.crash()
    whole = list(dump.dump(world.disk, LOG))
    *_, victim, _last = (number for number, record in enumerate(whole) if record.length > 8000)
    path = f"{LOG}/active/S0000000.LOG"
    data = bytearray(world.disk.peek(path))
    data[DATA_AT + whole[victim].lsn % EXTENT + PAGE] ^= 1
    world.disk.poke(path, bytes(data))
    fields = dump.header(world.disk, LOG)
    shown = []
    with pytest.raises(LogDamaged):
        for record in dump.dump(world.disk, LOG):
            shown.append(record.lsn)
    assert shown == [record.lsn for record in whole[:victim]]
    assert "S0000000.LOG" in fields["damaged"]
    assert fields["taillsn"] == lsn.text(whole[victim].lsn)


def linear(world: World) -> tuple[dump.ReaderOf, ControlState, list[dump.DumpRecord]]:
    """A log of many extents as a linear one: all of them are read, and the control file says where the head is."""
    saved: dict[int, bytes] = {}
    qm = world.start()
    for _ in range(12):
        qm.put("A", bytes(60_000))
        qm.get("A")
        qm.checkpoint()
        for number, sequence in control.read(world.disk, f"{LOG}/{control.NAME}")[1].extents:
            saved[sequence] = world.disk.peek(f"{LOG}/active/{file_name(number)}")
    qm.end()
    for number, sequence in control.read(world.disk, f"{LOG}/{control.NAME}")[1].extents:
        saved[sequence] = world.disk.peek(f"{LOG}/active/{file_name(number)}")
    _, state = control.read(world.disk, f"{LOG}/{control.NAME}")
    state = attrs.evolve(
        state,
        log_type=LogType.LINEAR,
        extents=tuple((linear_number(sequence), sequence) for _, sequence in state.extents if sequence),
    )
    world.disk.unlink(f"{LOG}/{control.NAME}")
    control.create(world.disk, f"{LOG}/{control.NAME}", state)
    world.disk.mkdir(f"{LOG}/archive")
    for sequence, content in saved.items():
        world.disk.poke(f"{LOG}/archive/{file_name(linear_number(sequence))}", content)

    def reader(given: ControlState) -> LogReader:
        def open_extent(sequence: int) -> File | None:
            return world.disk.open_read(path(sequence)) if world.disk.exists(path(sequence)) else None

        def path(sequence: int) -> str:
            return f"{LOG}/archive/{file_name(linear_number(sequence))}"

        return LogReader(
            open_extent,
            extent_bytes=given.extent_bytes,
            log_id=given.log_id,
            name=path,
            close=lambda: None,
            last_epoch=(given.epoch_from, given.epoch),
        )

    return reader, state, list(dump.dump(world.disk, LOG, extent=0, reader=reader))


def test_a_linear_log_is_read_from_its_first_extent_on(world: World) -> None:
    reader, state, all_ = linear(world)
    assert state.head > 3 * EXTENT
    assert all_[0].type_name == "ALM Start Checkpoint (1025)"
    assert all(one.end <= two.lsn for one, two in itertools.pairwise(all_))
    third = list(dump.dump(world.disk, LOG, extent=2, reader=reader))
    assert [one.lsn for one in third] == [one.lsn for one in all_ if one.lsn >= third[0].lsn]
    assert 3 * EXTENT <= third[0].lsn < 4 * EXTENT
    begun = next(record for record in all_ if record.lsn >= 2 * EXTENT)
    assert next(dump.dump(world.disk, LOG, start_lsn=begun.lsn, reader=reader)).lsn == begun.lsn
    based = list(dump.dump(world.disk, LOG, base=True, reader=reader))
    assert based[0].lsn // EXTENT == state.head // EXTENT
    assert next(dump.dump(world.disk, LOG, reader=reader)).lsn == state.head


def test_what_a_linear_log_does_not_have_is_refused(world: World) -> None:
    reader, state, _ = linear(world)
    for number in (500, 9_999_999):
        with pytest.raises(LogDamaged, match=f"has no extent {file_name(number)}"):
            list(dump.dump(world.disk, LOG, extent=number, reader=reader))
    with pytest.raises(LogDamaged, match="the log begins at <0:0:4:0>"):
        list(dump.dump(world.disk, LOG, start_lsn=8, reader=reader))
    world.disk.remove(f"{LOG}/archive/S0000001.LOG")
    with pytest.raises(LogDamaged, match=r"S0000001\.LOG is missing"):
        list(dump.dump(world.disk, LOG, extent=0, reader=reader))
    assert dump.sequence_of(attrs.evolve(state, extents=((3, 10_000_004),)), 9_999_999) == 10_000_000
    assert dump.sequence_of(attrs.evolve(state, extents=((3, 10_000_004),)), 3) == 10_000_004


def test_an_extent_that_was_cut_is_not_said_to_be_gone() -> None:
    """Though it is the oldest one, so that nothing says that the log goes back that far."""
    world = World(log_type="linear")
    world.qm.define_queue("A")
    for _ in range(30):
        world.qm.put("A", bytes(20_000))
    world.qm.end()
    path = f"{LOG}/active/S0000000.LOG"
    world.disk.poke(path, world.disk.peek(path)[:5000])

    def reader(state: ControlState) -> LogReader:
        return History(world.disk, [f"{LOG}/active"], state.log_id, state.extent_bytes).reader(state)

    with pytest.raises(LogDamaged, match=rf"^log extent {path} is missing, or cut, or .*; restore it from a backup"):
        list(dump.dump(world.disk, LOG, extent=0, reader=reader))
    world.disk.remove(path)
    with pytest.raises(NotInLog, match="it was used again or removed when nothing needed it"):
        list(dump.dump(world.disk, LOG, extent=0, reader=reader))


def test_a_linear_log_that_was_never_written_to_says_so() -> None:
    made = World(start=False, log_type="linear")
    with pytest.raises(LogDamaged, match=r"has no extent S0000000\.LOG yet: nothing was written to it"):
        list(dump.dump(made.disk, LOG, extent=0))


def test_the_header_of_a_linear_log_names_its_extents(world: World) -> None:
    reader, state, all_ = linear(world)
    fields = dump.header(world.disk, LOG, reader=reader)
    assert (fields["hflag1"], fields["logtype"]) == ("LOG RETAIN", "LINEAR")
    assert fields["HeadExtentID"] == state.head // EXTENT - 1
    assert fields["RecHeadFile"] == file_name(fields["HeadExtentID"])
    assert fields["LastEID"] == (all_[-1].end - 1) // EXTENT - 1


def test_open_units_are_those_that_a_restart_finds(world: World) -> None:
    qm = world.start()
    kept, gone, flying = qm.begin(Xid(1, b"kept", b"")), qm.begin(Xid(1, b"gone", b"")), qm.begin()
    kept.put("A", b"1")
    kept.prepare()
    gone.put("A", b"2")
    gone.prepare()
    gone.commit()
    flying.put("A", b"3")
    qm.put("A", b"4")
    first = {each.number: each.first_lsn for each in qm.transactions()}
    world.disk = world.disk.crash()
    state, end, units, since = dump.open_units(world.disk, LOG)
    assert [(unit.number, unit.first_lsn) for unit in units] == sorted(first.items(), key=lambda one: one[1])
    assert [unit.xid for unit in units] == [Xid(1, b"kept", b""), None]
    assert state.checkpoint < end
    assert since >= 6
    world.start()
    assert [each.number for each in world.qm.transactions()] == [kept.id]


def test_dumping_changes_nothing(world: World) -> None:
    effects = world.disk.effects
    list(dump.dump(world.disk, LOG, base=True))
    assert world.disk.effects == effects
