"""Every kind of record: what is encoded is decoded."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from recovery import records
from recovery.records import (
    Backout,
    CheckpointMark,
    Commit,
    Define,
    Delete,
    Expire,
    Get,
    Kind,
    Prepare,
    Put,
    PutMany,
    Record,
    RollForward,
    Xid,
)

uows = st.integers(0, 2**64 - 1)
queues = st.integers(0, 2**32 - 1)
places = st.integers(0, 2**64 - 1)
messages = st.binary(max_size=200)
bodies = st.one_of(st.none(), messages)  # given apart from the rest of the message, or not
xids = st.builds(Xid, st.integers(-(2**31), 2**31 - 1), st.binary(min_size=1, max_size=64), st.binary(max_size=64))
sequences = st.lists(places, min_size=1, max_size=50).map(tuple)
every_record = st.one_of(
    st.builds(Put, uows, queues, places, messages, bodies),
    st.builds(PutMany, uows, queues, places, st.lists(st.tuples(messages, bodies), min_size=1, max_size=20)),
    st.builds(Get, uows, queues, sequences),
    st.builds(Expire, queues, sequences),
    st.builds(Commit, uows, st.dictionaries(queues, places, max_size=20)),
    st.builds(Backout, uows),
    st.builds(Prepare, uows, xids),
    st.builds(
        RollForward, uows, xids, st.lists(st.tuples(queues, places, messages), max_size=10),
        st.lists(st.tuples(queues, places), max_size=10),
    ),
    st.builds(Define, st.binary(max_size=100)),
    st.builds(Delete, queues),
    st.builds(CheckpointMark, st.sampled_from([Kind.START_CHECKPOINT, Kind.END_CHECKPOINT]), st.binary(max_size=50)),
)  # fmt: skip


def plain(record: Record) -> Record:
    """With every message in one piece, as it is read back."""
    if isinstance(record, Put):
        return Put(record.uow, record.queue, record.place, record.message + (record.body or b""))
    if isinstance(record, PutMany):
        whole: list[tuple[bytes, bytes | None]] = [(message + (body or b""), None) for message, body in record.messages]
        return PutMany(record.uow, record.queue, record.place, whole)
    return record


@given(every_record)
def test_what_is_encoded_is_decoded(record: Record) -> None:
    kind, uow, head, data = records.encode(record)
    assert Kind(kind)
    body = memoryview(bytes(head) + bytes(data))
    assert plain(records.decode(kind, uow, body)) == plain(record)


@given(every_record)
def test_costs_cover_bodies(record: Record) -> None:
    _, _, head, data = records.encode(record)
    if isinstance(record, PutMany):
        total = sum(len(message) + len(body or b"") for message, body in record.messages)
        assert records.put_many_cost(total, len(record.messages)) == len(head) + len(data)
    if isinstance(record, RollForward):
        total = sum(len(message) for _, _, message in record.puts)
        assert records.roll_forward_cost(total, len(record.puts), len(record.gets)) >= len(head) + len(data)


@given(xids)
def test_an_xid_comes_back(xid: Xid) -> None:
    assert records.decode_xid(xid.encode()) == xid


@pytest.mark.parametrize("kind", [0, 1, 256, 260, 999, 65535])
def test_row_39_a_kind_of_another_version_is_refused(kind: int) -> None:
    with pytest.raises(ValueError, match=f"record kind {kind}"):
        records.decode(kind, 0, memoryview(b""))


def test_kinds_are_in_their_families() -> None:
    families = {kind.name: kind & ~255 for kind in Kind}
    assert families["PUT"] == families["GET"] == families["EXPIRE"] == 256
    assert families["DEFINE"] == 512
    assert families["COMMIT"] == families["PREPARE"] == 768
    assert families["START_CHECKPOINT"] == 1024
    assert len(set(Kind)) == len(Kind)
