"""DISPLAY QMSTATUS: each attribute from a mapping that is given, and how the lines look."""

import copy
from typing import Any

import pytest

from logger import lsn
from qmgr import qmstatus
from qmgr.qmstatus import columns, fields, queue_fields

MB = 1 << 20
EXTENT = 16 * MB

CIRCULAR: dict[str, Any] = {
    "name": "QM1",
    "state": "running",
    "process": "pid 7",
    "started": 1_700_000_000_000_000,
    "data_dir": "/data/qmgrs/QM1",
    "file_systems": {"data": [250 * MB, 1000 * MB], "log": [250 * MB, 1000 * MB], "shared": True},
    "checkpoints": 893,
    "records": 563,
    "log": {
        "config": {"log_type": "CIRCULAR", "path": "/log/QM1", "primary_files": 3, "secondary_files": 2},
        "extent_bytes": EXTENT,
        "head": 7 * EXTENT + MB,
        "tail": 8 * EXTENT + 5 * MB + 17,
        "durable": 8 * EXTENT + 5 * MB,
        "checkpoint": 8 * EXTENT,
        "used": EXTENT + 5 * MB + 17,
        "peak": 3 * EXTENT,
        "extents": [
            {"number": 2, "sequence": 6, "class": "inactive", "time": 1_699_000_000_000_000},
            {"number": 0, "sequence": 7, "class": "active", "time": 1_700_000_100_000_000},
            {"number": 1, "sequence": 8, "class": "active", "time": 1_700_000_200_000_000},
        ],
    },
}

ATTRIBUTES = """
    QMNAME STATUS STARTDA STARTTI CURRLOG RECLOG MEDIALOG ARCHLOG ARCHSZ MEDIASZ RECSZ REUSESZ LOGINUSE LOGUTIL
    LOGEXTSZ LOGPRIM LOGSEC LOGTYPE LOGPATH LOGSTRL LOGSTRDA LOGSTRTI DISKLSN CHKPTCNT CHKPTOPS CHKPTSZ LOGFSSZ
    LOGFSUSE QMFSSZ QMFSUSE DATFSSZ DATFSUSE DATPATH
"""


def changed(log: dict[str, Any] | None = None, **more: Any) -> dict[str, Any]:
    """The mapping above with some of it changed."""
    picture = copy.deepcopy(CIRCULAR) | more
    picture["log"] |= log or {}
    return picture


def linear(**more: Any) -> dict[str, Any]:
    config = CIRCULAR["log"]["config"] | {"log_type": "LINEAR"}
    return changed({"config": config, **more})


def test_every_attribute_is_there_in_order() -> None:
    assert list(fields(CIRCULAR)) == ATTRIBUTES.split()
    assert list(fields(linear())) == ATTRIBUTES.split()


def test_a_circular_log() -> None:
    shown = fields(CIRCULAR)
    assert (shown["STATUS"], shown["STARTDA"], shown["STARTTI"]) == ("RUNNING", "2023-11-14", "22.13.20")
    assert {shown[name] for name in ("CURRLOG", "RECLOG", "MEDIALOG", "ARCHLOG", "ARCHSZ", "MEDIASZ")} == {" "}
    assert (shown["RECSZ"], shown["REUSESZ"]) == ("20", "0")
    assert (shown["LOGINUSE"], shown["LOGUTIL"]) == ("43", "100")
    assert (shown["LOGEXTSZ"], shown["LOGPRIM"], shown["LOGSEC"]) == ("16396", "3", "2")
    assert (shown["LOGTYPE"], shown["LOGPATH"]) == ("CIRCULAR", "/log/QM1/active/")
    assert shown["LOGSTRL"] == lsn.text(7 * EXTENT)
    assert (shown["LOGSTRDA"], shown["LOGSTRTI"]) == ("2023-11-14", "22.15.00")
    assert shown["DISKLSN"] == lsn.text(8 * EXTENT + 5 * MB)
    assert (shown["CHKPTCNT"], shown["CHKPTOPS"], shown["CHKPTSZ"]) == ("893", "563", "5")
    assert shown["DATPATH"] == "/data/qmgrs/QM1"


def test_file_systems_are_shared_or_not_or_not_known() -> None:
    names = ("LOGFSSZ", "LOGFSUSE", "QMFSSZ", "QMFSUSE", "DATFSSZ", "DATFSUSE")
    assert [fields(CIRCULAR)[name] for name in names] == ["SHARED", "SHARED", "1000", "75", "SHARED", "SHARED"]
    apart = CIRCULAR["file_systems"] | {"shared": False, "log": [90 * MB, 100 * MB]}
    assert [fields(changed(file_systems=apart))[name] for name in names[:2]] == ["100", "10"]
    assert {fields(changed(file_systems={}))[name] for name in names} == {" "}


def test_secondaries_in_use_are_more_than_a_hundred_percent() -> None:
    shown = fields(changed({"used": 4 * EXTENT, "peak": 5 * EXTENT}))
    assert (shown["LOGINUSE"], shown["LOGUTIL"]) == ("133", "166")


def test_a_linear_log_names_its_extents() -> None:
    shown = fields(linear())
    assert (shown["CURRLOG"], shown["RECLOG"]) == ("S0000007.LOG", "S0000006.LOG")
    assert {shown[name] for name in ("MEDIALOG", "ARCHLOG", "ARCHSZ", "MEDIASZ", "REUSESZ")} == {" "}
    assert shown["LOGSTRL"] == lsn.text(6 * EXTENT)
    more = {
        "media": 6 * EXTENT + 9,
        "archived_from": 3,
        "media_bytes": 40 * MB,
        "archive_bytes": 0,
        "reuse_bytes": 5 * MB,
    }
    shown = fields(linear(**more))
    assert (shown["MEDIALOG"], shown["ARCHLOG"]) == ("S0000005.LOG", "S0000002.LOG")
    assert (shown["MEDIASZ"], shown["ARCHSZ"], shown["REUSESZ"]) == ("40", "0", "5")


def test_extent_numbers_begin_again_behind_the_last() -> None:
    at = 10_000_001 * EXTENT
    shown = fields(linear(head=at, checkpoint=at, tail=at + 8, durable=at))
    assert (shown["CURRLOG"], shown["RECLOG"]) == ("S0000000.LOG", "S0000000.LOG")


def test_a_log_that_nothing_was_written_to() -> None:
    shown = fields(linear(head=EXTENT, checkpoint=EXTENT, tail=EXTENT, durable=EXTENT, used=0, peak=0, extents=[]))
    assert (shown["CURRLOG"], shown["LOGINUSE"], shown["LOGSTRL"]) == ("S0000000.LOG", "0", lsn.text(EXTENT))
    assert (shown["LOGSTRDA"], shown["LOGSTRTI"]) == (" ", " ")


@pytest.mark.parametrize("state", qmstatus.STATES)
def test_each_state_has_a_word(state: str) -> None:
    assert fields(changed(state=state))["STATUS"].isupper()


def test_two_columns_as_runmqsc_shows_them() -> None:
    shown = {
        "QMNAME": "QM1",
        "STATUS": "RUNNING",
        "CURRLOG": " ",
        "LOGPATH": f"/{'x' * 40}",
        "LOGPRIM": "3",
        "LOGSEC": "2",
    }
    assert columns(shown) == [
        "   QMNAME(QM1)                             STATUS(RUNNING)",
        "   CURRLOG( )",
        f"   LOGPATH(/{'x' * 40})",
        "   LOGPRIM(3)                              LOGSEC(2)",
    ]
    assert columns({}) == []
    assert columns({"A": "1"}) == ["   A(1)"]


def test_a_queue() -> None:
    queue = {"name": "A", "depth": 3, "max_depth": 5, "uncommitted": 1, "memory": 0, "damaged": ""}
    assert queue_fields(queue) == {"QUEUE": "A", "TYPE": "QUEUE", "CURDEPTH": "3", "MAXDEPTH": "5", "UNCOM": "1"}
    assert queue_fields(queue | {"uncommitted": 0})["UNCOM"] == "NO"
    unknown = queue_fields(queue | {"depth": None, "uncommitted": None, "damaged": "a bad cell"})
    assert (unknown["CURDEPTH"], unknown["UNCOM"], unknown["DAMAGED"]) == (" ", " ", "a bad cell")
