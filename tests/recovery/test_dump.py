"""Records as text and JSON, for dmpmqlog."""

import itertools
import json

import pytest

from logger import lsn
from logger.errors import LogDamaged
from qmgr import Xid
from recovery import dump
from tests.qmgr.world import DATA, NAME, World

LOG = f"{DATA}/log/{NAME}"


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


def test_dumping_changes_nothing(world: World) -> None:
    effects = world.disk.effects
    list(dump.dump(world.disk, LOG, base=True))
    assert world.disk.effects == effects
