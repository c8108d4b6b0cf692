"""Every kind of record: what is encoded is decoded."""

from typing import Any

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
    Fill,
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
parts = st.tuples(messages, messages)
xids = st.builds(Xid, st.integers(-(2**31), 2**31 - 1), st.binary(min_size=1, max_size=64), st.binary(max_size=64))
sequences = st.lists(places, min_size=1, max_size=50)
runs_of_puts = st.tuples(queues, places, st.lists(parts, min_size=1, max_size=5))
runs_of_gets = st.tuples(queues, sequences)
calls = st.lists(st.one_of(runs_of_puts, runs_of_gets), max_size=8)


def encoded(some: list[Any]) -> bytes:
    """Runs of calls."""
    done: list[bytes] = []
    for run in some:
        if len(run) == 2:
            done.append(records.run_of_gets(*run))
        else:
            done += records.run_of_puts(*run)
    return b"".join(done)


works = calls.map(encoded)
every_record = st.one_of(
    st.builds(Put, queues, places, messages, messages),
    st.builds(PutMany, queues, places, st.lists(parts, min_size=1, max_size=20)),
    st.builds(Get, queues, sequences.map(tuple)),
    st.builds(Expire, queues, sequences.map(tuple)),
    st.builds(Calls, uows, works),
    st.builds(Commit, uows, st.dictionaries(queues, places, max_size=20), works),
    st.builds(Backout, uows, works),
    st.builds(Prepare, uows, xids),
    st.builds(RollForward, uows, xids, works),
    st.builds(Define, st.binary(max_size=100)),
    st.builds(Delete, queues),
    st.builds(CheckpointMark, st.sampled_from([Kind.START_CHECKPOINT, Kind.END_CHECKPOINT]), st.binary(max_size=50)),
    st.builds(Fill, st.integers(0, 4048)),
)


def whole(messages: list[records.Parts]) -> list[records.Parts]:
    return [(head + body, b"") for head, body in messages]


def plain(record: Record) -> Record:
    """With every message in one piece, as it is read back."""
    match record:
        case Put(queue, sequence, head, body):
            return Put(queue, sequence, head + body)
        case PutMany(queue, sequence, messages):
            return PutMany(queue, sequence, whole(messages))
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
        found = list(records.runs(record.runs))
        messages = [message for _, _, run, _ in found for message in run]
        total = sum(len(head) + len(body) for head, body in messages)
        gets = sum(len(sequences) for *_, sequences in found)
        assert records.roll_forward_cost(total, len(messages) + gets) >= len(head) + len(data)


@given(calls)
def test_runs_come_back_and_cost_no_more_than_was_promised_for_them(some: list[Any]) -> None:
    body = encoded(some)
    expected: list[Any] = []
    promised = 0
    for run in some:
        if len(run) == 2:
            expected.append((run[0], 0, [], tuple(run[1])))
            promised += records.GET_COST * len(run[1])
        else:
            expected.append((run[0], run[1], whole(run[2]), ()))
            promised += sum(records.PUT_COST + len(head) + len(rest) for head, rest in run[2])
    assert list(records.runs(body)) == expected
    assert len(body) <= promised


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
