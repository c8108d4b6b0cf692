"""Every kind of record: what is encoded is decoded."""

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from recovery import records
from recovery.records import (
    Backout,
    Calls,
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
    Work,
    Xid,
)

uows = st.integers(0, 2**64 - 1)
queues = st.integers(0, 2**32 - 1)
places = st.integers(0, 2**64 - 1)
messages = st.binary(max_size=200)
parts = st.tuples(messages, messages)
xids = st.builds(Xid, st.integers(-(2**31), 2**31 - 1), st.binary(min_size=1, max_size=64), st.binary(max_size=64))
sequences = st.lists(places, min_size=1, max_size=50)
runs_of_puts = st.lists(st.tuples(queues, places, st.lists(parts, min_size=1, max_size=5)), max_size=6)
runs_of_gets = st.lists(st.tuples(queues, sequences), max_size=6)
works = st.builds(Work, runs_of_puts, runs_of_gets)
gets_only = st.builds(Work, st.just([]), runs_of_gets)
every_record = st.one_of(
    st.builds(Put, queues, places, messages, messages),
    st.builds(PutMany, queues, places, st.lists(parts, min_size=1, max_size=20)),
    st.builds(Get, queues, sequences.map(tuple)),
    st.builds(Expire, queues, sequences.map(tuple)),
    st.builds(Calls, uows, works),
    st.builds(Commit, uows, st.dictionaries(queues, places, max_size=20), st.one_of(st.none(), works)),
    st.builds(Backout, uows, st.one_of(st.none(), gets_only)),
    st.builds(Prepare, uows, xids),
    st.builds(RollForward, uows, xids, works),
    st.builds(Define, st.binary(max_size=100)),
    st.builds(Delete, queues),
    st.builds(CheckpointMark, st.sampled_from([Kind.START_CHECKPOINT, Kind.END_CHECKPOINT]), st.binary(max_size=50)),
)


def whole(messages: list[records.Parts]) -> list[records.Parts]:
    return [(head + body, b"") for head, body in messages]


def plain(record: Record) -> Record:
    """With every message in one piece, and no empty work, as it is read back."""
    match record:
        case Put(queue, sequence, head, body):
            return Put(queue, sequence, head + body)
        case PutMany(queue, sequence, messages):
            return PutMany(queue, sequence, whole(messages))
        case Calls(_, work) | Commit(_, _, work) | Backout(_, work) | RollForward(_, _, work) if work is not None:
            puts = [(queue, place, whole(messages)) for queue, place, messages in work.puts]
            empty = not (work.puts or work.gets) and isinstance(record, (Commit, Backout))
            return attrs.evolve(record, work=None if empty else Work(puts, work.gets))
    return record


@given(every_record)
def test_what_is_encoded_is_decoded(record: Record) -> None:
    kind, uow, head, data = record.encode()
    assert Kind(kind)
    assert plain(records.decode(kind, uow, memoryview(head + data))) == plain(record)


@given(every_record)
def test_costs_cover_bodies(record: Record) -> None:
    _, _, head, data = record.encode()
    if isinstance(record, PutMany):
        total = sum(len(message) + len(body) for message, body in record.messages)
        assert records.put_many_cost(total, len(record.messages)) == len(head) + len(data)
    if isinstance(record, RollForward):
        messages = [message for _, _, run in record.work.puts for message in run]
        total = sum(len(head) + len(body) for head, body in messages)
        gets = sum(len(sequences) for _, sequences in record.work.gets)
        assert records.roll_forward_cost(total, len(messages), gets) >= len(head) + len(data)


@given(works)
def test_held_back_work_costs_no_more_than_was_promised_for_it(work: Work) -> None:
    messages = [message for _, _, run in work.puts for message in run]
    total = sum(len(head) + len(body) for head, body in messages)
    gets = sum(len(sequences) for _, sequences in work.gets)
    promised = total + len(messages) * records.PUT_COST + gets * records.GET_COST
    assert len(b"".join(work.encode())) <= promised


@given(xids)
def test_an_xid_comes_back(xid: Xid) -> None:
    assert records.decode_xid(xid.encode()) == xid


@pytest.mark.parametrize("kind", [0, 1, 256, 262, 999, 65535])
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
