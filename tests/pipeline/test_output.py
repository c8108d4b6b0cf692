"""The folder of a job: what is not the job's stays as it is, whoever it is from, and two jobs do not mix."""

from pathlib import Path

import pytest

from pipeline.jobs import output
from pipeline.jobs.common import Failure
from pipeline.report import Report, new_chart

WRITES = ("messages", "report.txt")


def run(folder: Path, text: str, job: str = "flow", report: Report | None = None) -> None:
    with output.workshop(str(folder), job, WRITES) as shop:
        made = Path(shop.work, "messages")
        made.mkdir()
        (made / "part").write_text(text)
        shop.publish(report or Report(text), "messages")


def names(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir()}


def test_tables_take_the_places_of_the_last_run_s_and_the_workshop_goes(tmp_path: Path) -> None:
    for text in ("one", "two"):
        run(tmp_path, text)
        assert (tmp_path / "messages" / "part").read_text() == text
        assert names(tmp_path) == {*WRITES, output.LOCK, output.MARKER}


def test_a_run_that_fails_leaves_what_the_last_one_made(tmp_path: Path) -> None:
    run(tmp_path, "one")
    with pytest.raises(ZeroDivisionError), output.workshop(str(tmp_path), "flow", WRITES) as shop:
        Path(shop.work, "messages").mkdir()
        raise ZeroDivisionError
    assert (tmp_path / "messages" / "part").read_text() == "one"
    assert names(tmp_path) == {*WRITES, output.LOCK, output.MARKER}


def test_a_report_that_can_not_be_written_leaves_what_the_last_run_made(tmp_path: Path) -> None:
    """Such as where the disk is full: tables and report are of one run."""
    run(tmp_path, "one")
    before = {name: (tmp_path / name).read_text() for name in ("messages/part", "report.txt")}
    report = Report("two")
    figure, _ = new_chart("depth")
    report.chart("no folder/depth", figure)
    with pytest.raises(FileNotFoundError):
        run(tmp_path, "two", report=report)
    assert before == {name: (tmp_path / name).read_text() for name in before}
    assert names(tmp_path) == {*WRITES, output.LOCK, output.MARKER}


def test_who_may_read_the_tables_may_read_the_report(tmp_path: Path) -> None:
    run(tmp_path, "one")
    Report("two").write(tmp_path / "alone")
    made = (tmp_path / "messages" / "part").stat().st_mode
    assert [(tmp_path / name).stat().st_mode for name in ("report.txt", "alone/report.txt")] == [made, made]


def test_what_others_have_made_stays(tmp_path: Path) -> None:
    """Folders beside, also `work`; workshops of killed runs go, and only those."""
    left = f"{output.WORK}{'0a' * 8}"
    for name in ("work", "run=2024-05", f"{output.WORK}mine", left):
        (tmp_path / name).mkdir()
        (tmp_path / name / "thesis.txt").write_text("x")
    run(tmp_path, "one")
    stays = {"work", "run=2024-05", f"{output.WORK}mine"}
    assert names(tmp_path) == stays | {*WRITES, output.LOCK, output.MARKER}
    assert all((tmp_path / name / "thesis.txt").read_text() == "x" for name in stays)


@pytest.mark.parametrize("name", WRITES)
def test_what_the_job_would_replace_and_has_not_made_is_refused(name: str, tmp_path: Path) -> None:
    (tmp_path / name).write_text("x")
    with pytest.raises(Failure, match=rf"{name} was not written by the job flow, which would replace it"):
        run(tmp_path, "one")
    assert names(tmp_path) == {name}
    assert (tmp_path / name).read_text() == "x"


def test_a_folder_is_of_one_job(tmp_path: Path) -> None:
    run(tmp_path, "one")
    with pytest.raises(Failure, match="has what the job flow wrote; name another --out for audit"):
        run(tmp_path, "two", "audit")
    assert (tmp_path / "messages" / "part").read_text() == "one"


def test_one_job_at_a_time_works_in_a_folder(tmp_path: Path) -> None:
    refused = pytest.raises(Failure, match=r"another job works in .*: pid \d+; wait for it, or name another --out")
    with output.owned(str(tmp_path), "flow", WRITES), refused:
        run(tmp_path, "one")
    run(tmp_path, "one")


@pytest.mark.parametrize("text", ["", "[]", '{"job": "flow"}'])
def test_a_marker_that_can_not_be_understood_is_told(text: str, tmp_path: Path) -> None:
    (tmp_path / output.MARKER).write_text(text)
    with pytest.raises(Failure, match=r"job\.json can't be read: .*; name another --out"):
        run(tmp_path, "one")
