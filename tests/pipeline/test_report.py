"""Reports: what was said stands in the text in its order, numbers can be read, charts lie beside it."""

import datetime
from pathlib import Path
from typing import Any

import pytest

from pipeline.jobs.common import explain
from pipeline.report import Report, lines_of, named, new_chart, over_time, shown

SIGNATURE = b"\x89PNG\r\n\x1a\n"


def test_a_table_has_columns_as_wide_as_they_must_be_and_numbers_to_the_right() -> None:
    assert lines_of(("queue", "rows", "mean"), [("ORDERS", 1234567, 0.5), ("A", 2, None)]) == [
        "queue        rows  mean",
        "------  ---------  ----",
        "ORDERS  1,234,567   0.5",
        "A               2     -",
    ]


def test_a_number_that_names_something_is_written_as_filters_take_it() -> None:
    assert lines_of(("unit of work",), [(named(1_099_511_627_778),), (named(None),)])[2:] == ["1099511627778", "-"]


def test_a_table_without_rows_has_its_headers() -> None:
    assert lines_of(("queue", "rows"), []) == ["queue  rows", "-----  ----"]


@pytest.mark.parametrize(
    ("value", "text"),
    [(None, "-"), (True, "yes"), (1234.5, "1,234.5"), (2.0, "2"), (0.00049, "0"), ("x", "x"), (0, "0")],
)
def test_values_are_written_for_people(value: object, text: str) -> None:
    assert shown(value) == text


def test_a_report_is_written_with_its_charts_and_says_where(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    report = Report("flow of QM1")
    report.line("Two queues.")
    report.heading("Depth")
    report.table(("queue", "depth"), [("A", 3)])
    figure, axes = new_chart("depth over time")
    axes.plot([0, 1], [3, 4])
    report.chart("depth", figure)
    path = report.write(tmp_path / "new" / "out")
    assert path == tmp_path / "new" / "out" / "report.txt"
    assert path.read_text().splitlines() == [
        *("flow of QM1", "###########", "Two queues.", "", "Depth", "====="),
        *("queue  depth", "-----  -----", "A          3", "chart: depth.png"),
    ]
    assert (path.parent / "depth.png").read_bytes().startswith(SIGNATURE)
    assert capsys.readouterr().out == f"flow of QM1: {path}\n"


@pytest.mark.parametrize("name", ["depth.png", "report.txt.new"])
def test_a_disk_that_is_full_is_told_with_the_file_that_did_not_fit(name: str, tmp_path: Path) -> None:
    report = Report("flow of QM1")
    report.chart("depth", new_chart("depth over time")[0])
    (tmp_path / name).symlink_to("/dev/full")
    with pytest.raises(OSError, match="No space left on device") as caught:
        report.save(tmp_path)
    file = str(tmp_path / name)
    assert caught.value.filename == file
    assert explain(caught.value) == (71, f"AMQ7002S: no room, free some space: No space left on device: {file}.")


@pytest.mark.parametrize(
    ("seconds", "first", "whole"),
    [(2, "22:54:44.0", "2026-Nov-21 22:54"), (3000, "23:00", "2026-Nov-21"), (3_000_000, "25 Nov", "2026-Dec")],
)
def test_moments_of_a_chart_can_be_matched_with_others(seconds: int, first: str, whole: str) -> None:
    _, axes = new_chart("depth")
    begin = datetime.datetime(2026, 11, 21, 22, 54, 44, tzinfo=datetime.UTC)
    moments: Any = [begin, begin + datetime.timedelta(seconds=seconds)]
    axes.plot(moments, [1, 2])
    over_time(axes)
    axes.figure.draw_without_rendering()
    assert first in [label.get_text() for label in axes.get_xticklabels()]
    assert axes.xaxis.get_offset_text().get_text() == whole
