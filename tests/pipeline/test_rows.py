"""Rows: what is decoded all at once is what is decoded record by record, whatever was logged, and wherever it lies."""

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pipeline import extents, windows
from pipeline.schema import COLUMNS
from recovery.records import Kind
from tests.pipeline import reference
from tests.pipeline.works import Works, told

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


@pytest.fixture(autouse=True)
def _forgotten() -> None:
    """What one test has learned of a log is none of the next one's."""
    windows._indexes.clear()
    extents._known.clear()


def assert_same(found: list[dict[str, Any]], wanted: list[dict[str, Any]]) -> None:
    assert len(found) == len(wanted)
    for one, other in zip(found, wanted, strict=True):
        assert one == other


def test_the_log_of_every_shape_of_work(everything: Works) -> None:
    assert_same(told(everything.log(), everything.disk), reference.rows(everything.log(), everything.disk))


def test_each_column_is_the_same_alone(everything: Works) -> None:
    rows = reference.rows(everything.log(), everything.disk)
    for column in COLUMNS:
        found = told(everything.log(), everything.disk, columns=(column,))
        assert found == [{column: row[column]} for row in rows]
