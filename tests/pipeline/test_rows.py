"""Rows: what is decoded all at once is what is decoded record by record, whatever was logged, and wherever it lies."""

import tracemalloc
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pipeline import dividing, rows
from pipeline.filters import Filters
from pipeline.operations import of_record, operations
from pipeline.schema import COLUMNS
from recovery.records import LENGTH32, QUEUE_PLACE, Kind
from tests.pipeline import reference
from tests.pipeline.works import Works, index, told

STEPS = sorted(Works().steps)


def worked(steps: list[str], seed: int) -> Works:
    works = Works(seed)
    for step in steps:
        works.do(step)
    works.stop()
    return works


@pytest.fixture(scope="module")
def everything() -> Works:
    """Work of every shape."""
    order = [*STEPS, *STEPS[::-1], "prepare", "fill", "fill", "fill", "fill", "resolve", *STEPS]
    return worked(order, 5)


def test_all_kinds_of_records_come(everything: Works) -> None:
    found = {row["kind"] for row in told(everything.log(), everything.disk, columns=("kind",))}
    assert found == {kind.name for kind in Kind} - {"CALLS", "PUT_MANY"}


@settings(max_examples=15, deadline=None)
@given(st.lists(st.sampled_from(STEPS), max_size=25), st.integers(0, 1 << 30))
def test_rows_are_those_of_a_slow_reading(steps: list[str], seed: int) -> None:
    works = worked(steps, seed)
    assert_same(told(works.log(), works.disk), reference.rows(works.log(), works.disk))


def assert_same(found: list[dict[str, Any]], wanted: list[dict[str, Any]]) -> None:
    assert len(found) == len(wanted)
    for one, other in zip(found, wanted, strict=True):
        assert one == other


def test_the_log_of_every_shape_of_work(everything: Works) -> None:
    assert_same(told(everything.log(), everything.disk), reference.rows(everything.log(), everything.disk))


@pytest.mark.parametrize("indexed", [False, True])
def test_every_object_and_kind_can_be_chosen(indexed: bool) -> None:
    works = Works(5)
    for step in (*STEPS, *STEPS[::-1]):
        works.do(step)
    works.qm.put("A", b"given back")
    unit = works.qm.begin()
    unit.get("A")
    unit.backout()
    works.stop()
    if indexed:
        assert index(works)
    log, disk = works.log(), works.disk
    rows = reference.rows(log, disk)
    backouts = {row["lsn"] for row in rows if row["kind"] == "BACKOUT"}
    assert any(row["kind"] == "GET" and row["lsn"] in backouts for row in rows)
    kinds = {row["kind"] for row in rows}
    objects = {row["object"] for row in rows} - {None}
    assert {"A", "ALIAS", "PASSING"} <= objects
    for chosen in (
        *(Filters(objects=frozenset([name])) for name in objects),
        *(Filters(kinds=frozenset([kind])) for kind in kinds),
        *(Filters(objects=frozenset([name, "A"]), kinds=frozenset(["GET", "DEFINE_ALIAS"])) for name in objects),
    ):
        assert_same(told(log, disk, chosen), list(reference.passing(rows, chosen)))


def test_each_column_is_the_same_alone(everything: Works) -> None:
    rows = reference.rows(everything.log(), everything.disk)
    for column in COLUMNS:
        found = told(everything.log(), everything.disk, columns=(column,))
        assert found == [{column: row[column]} for row in rows]


@pytest.mark.parametrize("with_index", [True, False])
def test_no_more_is_held_of_a_large_extent_than_of_a_small_one(with_index: bool) -> None:
    small, large = (most_held(pages, with_index) for pages in (2048, 6144))
    assert large < small * 1.1
    assert large < 6144 * 4096


def most_held(pages: int, with_index: bool) -> int:
    """The most bytes that the reading of an extent of so many pages has at once, its batches among them."""
    works = Works(log_file_pages=pages, log_buffer_pages=4096)
    log, disk = works.log(), works.disk
    for _ in range(2 * log.extent_bytes // 100_000):
        with works.qm.begin() as unit:
            for _ in range(10):
                unit.put("A", bytes(10_000))
    works.stop()
    if with_index:
        index(works)
    [part] = dividing.plan(log, log.extent_bytes, 2 * log.extent_bytes, disk=disk)
    before, held = pa.total_allocated_bytes(), 0
    tracemalloc.start()
    try:
        for _ in rows.batches(part, COLUMNS, disk=disk):
            held = max(held, pa.total_allocated_bytes() - before)
        return held + tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def test_a_message_that_is_longer_than_its_record_is_not_understood() -> None:
    """What lies behind the record is no message's."""
    works = Works()
    works.qm.put_many("A", [b"one", b"two"])
    works.stop()
    raw = next(one for one in reference.raw_records(works.log(), works.disk) if one.kind == Kind.PUT_MANY)
    assert len(operations(of_record(raw))) == 2
    body = bytearray(raw.body)
    body[QUEUE_PLACE.size + LENGTH32.size + LENGTH32.size] += 1  # the length of the second one
    with pytest.raises(ValueError, match="a message is longer than its record"):
        operations(of_record(raw._replace(body=memoryview(body))))
