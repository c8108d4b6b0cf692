"""The folder of a job: what is not the job's stays as it is, whoever it is from, and two jobs do not mix."""

import errno
import os
import platform
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import NoReturn

import pytest

from pipeline.jobs import output
from pipeline.jobs.common import Failure
from pipeline.report import Report, new_chart
from tests.conftest import SOAK

WRITES = ("messages", "queues", "report.txt", "depth.png")
TABLES = ("messages", "queues")
OF_JOB = {output.LOCK, output.MARKER}
ALL = {*TABLES, "report.txt", output.CURRENT, "a run", *OF_JOB}
STEPS = frozenset({"os.rename", "os.symlink", "os.mkdir", "os.remove", "os.rmdir"})


def run(folder: Path, text: str, job: str = "flow", report: Report | None = None) -> None:
    with output.workshop(str(folder), job, WRITES) as shop:
        for table in TABLES:
            made = Path(shop.work, table)
            made.mkdir()
            (made / "part").write_text(text)
        shop.publish(report or Report(text), *TABLES)


def names(folder: Path) -> set[str]:
    """What is there, as there is one folder of a run."""
    found = [path.name for path in folder.iterdir()]
    runs = [name for name in found if name.startswith(output.RUN)]
    assert len(runs) <= 1
    return {*found}.difference(runs) | ({"a run"} if runs else set())


def seen(folder: Path) -> dict[str, str]:
    """Of which run all that can be read is."""
    files = {"messages": "messages/part", "queues": "queues/part", "report.txt": "report.txt"}
    return {
        name: (folder / file).read_text().split("\n")[0] for name, file in files.items() if (folder / file).exists()
    }


def killed(step: int, folder: Path, text: str) -> bool:
    """Is a run, in a process of its own, killed before this of its steps in the file system, or done before?"""
    child = os.fork()
    if not child:
        left = iter(range(step))

        def before(event: str, _: object) -> None:
            if event in STEPS and next(left, None) is None:
                os._exit(9)

        sys.addaudithook(before)
        run(folder, text)
        os._exit(0)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 9


def inodes_synced(patched: pytest.MonkeyPatch) -> set[int]:
    """What is synced from now on: its inodes."""
    found: set[int] = set()

    def noting(sync: Callable[[int], None]) -> Callable[[int], None]:
        def noted(fd: int) -> None:
            sync(fd)
            found.add(os.fstat(fd).st_ino)

        return noted

    for name in {"fsync", "fdatasync"} & {*dir(os)}:
        patched.setattr(os, name, noting(getattr(os, name)))
    return found


def no_links(_to: object, _place: object, _is_folder: bool = False) -> NoReturn:
    raise OSError(errno.EPERM, "Operation not permitted")


def of_an_older_version(folder: Path) -> None:
    """Tables and report themselves, and not links to them."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(os, "symlink", no_links)
        run(folder, "one")
    assert names(folder) == {*TABLES, "report.txt", *OF_JOB}
    assert not (folder / "messages").is_symlink()


def of_a_copy(folder: Path) -> None:
    """Made by a program that follows links."""
    run(folder, "one")
    shutil.copytree(folder, f"{folder}-copy")
    shutil.rmtree(folder)
    Path(f"{folder}-copy").rename(folder)
    assert (folder / output.CURRENT).is_dir() and not (folder / output.CURRENT).is_symlink()


@pytest.mark.parametrize("links", [True, False])
def test_all_of_a_run_is_durable_before_it_counts(links: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its files, their names and its own; and then the name by which it counts."""
    synced, durable = inodes_synced(monkeypatch), []
    folder_of, switch = output.Output._folder_of_a_run, output.Output._switch

    def begun(shop: output.Output) -> Path:
        synced.clear()
        return folder_of(shop)

    def switched(shop: output.Output, made: Path, names: tuple[str, ...]) -> None:
        durable.append({path.stat().st_ino for path in (tmp_path, made, *made.rglob("*"))} <= synced)
        synced.clear()
        switch(shop, made, names)

    monkeypatch.setattr(output.Output, "_folder_of_a_run", begun)
    monkeypatch.setattr(output.Output, "_switch", switched)
    if not links:
        monkeypatch.setattr(os, "symlink", no_links)
    run(tmp_path, "one")
    assert durable == [True]
    assert tmp_path.stat().st_ino in synced


@pytest.mark.parametrize(
    ("before", "may_lack"), [(run, False), (of_an_older_version, True), (of_a_copy, True)], ids=["", "older", "copy"]
)
def test_a_run_that_is_killed_anywhere_leaves_what_the_last_one_made_or_all_of_its_own(
    before: Callable[..., None], may_lack: bool, tmp_path: Path
) -> None:
    """Whoever looks then finds tables and report of one run; where they are no links yet one of them may be away."""
    outcomes, step = [], 0 if SOAK or before is run else 1
    while True:
        out = tmp_path / str(step)
        out.mkdir()
        before(out, *(["one"] if before is run else []))
        if not killed(step, out, "two"):
            break
        found = seen(out)
        assert len({*found.values()}) == 1, step
        assert len(found) == 3 or may_lack, step
        outcomes += found.values()
        run(out, "three")
        assert {*seen(out).values()} == {"three"} and names(out) == ALL, step
        step += 1 if SOAK else 3
    assert {*outcomes} == {"one", "two"}
    assert {*seen(out).values()} == {"two"} and names(out) == ALL


def test_without_links_a_run_that_is_killed_leaves_nothing_of_two_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And no report, unless all is there."""
    monkeypatch.setattr(os, "symlink", no_links)
    outcomes, step = set(), 0
    while True:
        out = tmp_path / str(step)
        out.mkdir()
        run(out, "one")
        if not killed(step, out, "two"):
            break
        found = seen(out)
        assert len({*found.values()}) <= 1, step
        assert len(found) == 3 or "report.txt" not in found, step
        outcomes.add(len(found))
        run(out, "three")
        assert {*seen(out).values()} == {"three"} and names(out) == {*TABLES, "report.txt", *OF_JOB}, step
        step += 1
    assert outcomes == {0, 1, 2, 3}


def test_a_chart_that_the_last_run_made_and_this_one_does_not_goes(tmp_path: Path) -> None:
    report = Report("one")
    report.chart("depth", new_chart("depth")[0])
    run(tmp_path, "one", report=report)
    assert names(tmp_path) == {*ALL, "depth.png"}
    run(tmp_path, "two")
    assert names(tmp_path) == ALL


def test_tables_take_the_places_of_the_last_run_s_and_the_workshop_goes(tmp_path: Path) -> None:
    for text in ("one", "two"):
        run(tmp_path, text)
        assert (tmp_path / "messages" / "part").read_text() == text
        assert names(tmp_path) == ALL


def test_a_run_that_fails_leaves_what_the_last_one_made(tmp_path: Path) -> None:
    run(tmp_path, "one")
    with pytest.raises(ZeroDivisionError), output.workshop(str(tmp_path), "flow", WRITES) as shop:
        Path(shop.work, "messages").mkdir()
        raise ZeroDivisionError
    assert (tmp_path / "messages" / "part").read_text() == "one"
    assert names(tmp_path) == ALL


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
    assert names(tmp_path) == ALL


def test_the_last_run_stays_where_it_can_not_be_told_just_now_which_that_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """From Python 3.14 on pathlib takes an error of the disk for no link."""
    run(tmp_path, "one")
    lstat, is_symlink = Path.lstat, Path.is_symlink
    current = tmp_path / output.CURRENT

    def fails(path: Path) -> os.stat_result:
        if path == current:
            raise OSError(errno.EIO, os.strerror(errno.EIO), str(path))
        return lstat(path)

    with monkeypatch.context() as patched:
        patched.setattr(Path, "lstat", fails)
        patched.setattr(Path, "is_symlink", lambda path: path != current and is_symlink(path))
        with pytest.raises(OSError, match=output.CURRENT):
            run(tmp_path, "two")
    assert seen(tmp_path) == dict.fromkeys((*TABLES, "report.txt"), "one")
    run(tmp_path, "two")
    assert seen(tmp_path) == dict.fromkeys((*TABLES, "report.txt"), "two")


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
    assert names(tmp_path) == stays | ALL
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
    refused = pytest.raises(Failure, match=rf"another job works in .*: pid \d+ on {platform.node()}; wait for it")
    with output.owned(str(tmp_path), "flow", WRITES), refused:
        run(tmp_path, "one")
    run(tmp_path, "one")


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("", "Expecting value"),
        pytest.param("[" * 200_000, "", id="deep"),
        *(
            (text, "it does not say which job that was, and what that writes")
            for text in (
                "null",
                "[]",
                '{"job": "flow"}',
                '{"job": null, "names": []}',
                '{"job": "flow", "names": null}',
                '{"job": "flow", "names": "report.txt"}',
                '{"job": "flow", "names": [null]}',
            )
        ),
    ],
    ids=str,
)
def test_a_marker_that_can_not_be_understood_is_told(text: str, told: str, tmp_path: Path) -> None:
    (tmp_path / output.MARKER).write_text(text)
    with pytest.raises(Failure, match=rf"job\.json is not what a job has written there \({told}.*; name another --out"):
        run(tmp_path, "one")
    assert (tmp_path / output.MARKER).read_text() == text
