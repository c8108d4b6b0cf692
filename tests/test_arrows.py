"""Imports go one way, the edge of the system is in two files, and no module is left over."""

import ast
import functools
import graphlib
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

import pipeline
import qmgr
from pipeline import jobs, session
from qmgr.cli.main import NAMES, module_of

ROOT = Path(__file__).resolve().parents[1]
PACKAGES = ["logger", "recovery", "qmgr", "pipeline"]  # each imports only itself and those before it
DEPENDENCIES = {"attrs", "sortedcontainers", "structlog", "zlib_ng", "zstandard"}
OF_SPARK = {"matplotlib", "numpy", "py4j", "pyarrow", "pyspark"}  # for `pipeline` alone
FILES = sorted(path for package in PACKAGES for path in (ROOT / package).rglob("*.py"))
INSIDE = [path for path in FILES if path.relative_to(ROOT).parts[0] != "pipeline"]  # Spark has an edge of its own
FOUND_BY_SPARK = sorted(ROOT.glob("pyspark_*/__init__.py"))

# What knows the machine, and the only files that may import it.
EDGE = {
    "fcntl": ["logger/posix_file.py", "logger/posix_lock.py"],
    "mmap": ["logger/posix_disk.py"],
    "ctypes": ["logger/polled.py"],
    "os": [
        "logger/crowded.py",
        "logger/posix_",
        "logger/polled.py",
        "qmgr/cli/",
        "qmgr/daemon/",
        "qmgr/sockets.py",
    ],
    "time": ["logger/clock.py", "logger/crowded.py", "logger/polled.py", "logger/posix_disk.py"],
    "io": ["qmgr/cli/"],
    "pathlib": [
        "qmgr/cli/",
        "qmgr/daemon/starting.py",
        "qmgr/shadows.py",
    ],  # the latter looks where modules lie and opens none
    "random": [],
    "secrets": [],
    "shutil": ["qmgr/cli/"],
    "socket": ["qmgr/daemon/", "qmgr/sockets.py"],
    "subprocess": [],
    "tempfile": [],
    "uuid": [],
}


def module_name(path: Path) -> str:
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


MODULES = {module_name(path): path for path in FILES}


def nodes(tree: ast.AST) -> Iterator[ast.AST]:
    """All of a tree but what stands there for type checkers only."""
    for node in ast.iter_child_nodes(tree):
        if not (isinstance(node, ast.If) and isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING"):
            yield node
            yield from nodes(node)


@functools.cache
def parsed(path: Path) -> ast.Module:
    return ast.parse(path.read_text())


@functools.cache
def imports(path: Path) -> tuple[str, ...]:
    """The full names of the modules that a file imports, wherever in the file."""
    return tuple(imported(path))


def imported(path: Path) -> Iterator[str]:
    for node in nodes(parsed(path)):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0 and node.module, f"{path}: relative import in line {node.lineno}"
            for alias in node.names:
                inner = f"{node.module}.{alias.name}"
                yield inner if inner in MODULES else node.module


def of(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


def number_formats(path: Path) -> Iterator[str]:
    """What is given to `struct`; of an f-string its own characters."""
    for node in ast.walk(parsed(path)):
        if isinstance(node, ast.Call) and re.match(r"struct\.|Struct$", ast.unparse(node.func)) and node.args:
            parts = node.args[0].values if isinstance(node.args[0], ast.JoinedStr) else [node.args[0]]
            texts = [one.value for one in parts if isinstance(one, ast.Constant) and isinstance(one.value, str)]
            if texts:
                yield "".join(texts)


def test_numbers_in_files_and_frames_have_the_same_bytes_on_every_processor() -> None:
    found = {(module_name(path), form) for path in FILES for form in number_formats(path)}
    assert ("logger.frame", "<4sIIIQQQIHBB") in found
    native = {(where, form) for where, form in found if form[0] not in "<>" and form.strip("s0123456789")}
    assert {where for where, _ in native} == {"qmgr.sockets"}, native  # what it asks of the kernel


def test_a_package_imports_only_the_packages_to_its_right() -> None:
    wrong = []
    for path in FILES:
        package = path.relative_to(ROOT).parts[0]
        allowed = {*PACKAGES[: PACKAGES.index(package) + 1], *DEPENDENCIES, *sys.stdlib_module_names}
        if package == "pipeline":
            allowed |= OF_SPARK
        wrong += [f"{of(path)} imports {name}" for name in imports(path) if name.split(".")[0] not in allowed]
    assert wrong == []


@pytest.mark.parametrize("path", FOUND_BY_SPARK, ids=of)
def test_what_spark_finds_by_its_name_leads_to_the_pipeline_alone(path: Path) -> None:
    found = {name.split(".")[0] for name in imports(path)} - {*OF_SPARK, *sys.stdlib_module_names}
    assert found == {"pipeline"}


def test_the_packages_files_stand_in_one_order() -> None:
    graph = {name: {other for other in imports(path) if other in MODULES} for name, path in MODULES.items()}
    graphlib.TopologicalSorter(graph).prepare()  # raises CycleError with the cycle


def toured() -> list[Path]:
    """The files that the tour names behind its first hour. A bare name lies where the one before it does."""
    text = (ROOT / "docs/tour.md").read_text().partition("**The log, from below.**")[2].partition("**The tests.**")[0]
    found: dict[Path, None] = {}
    folder = ROOT
    for name in re.findall(r"`([a-z0-9_/]+\.py)`", text):
        path = folder / name if (folder / name).exists() else ROOT / name
        assert path.exists(), f"docs/tour.md names {name}, and there is no such file"
        found.setdefault(path)
        folder = path.parent
    return list(found)


def test_the_tour_names_every_file_behind_those_that_it_needs() -> None:
    order = toured()
    for at, path in enumerate(order):
        needed = [of(MODULES[name]) for name in imports(path) if MODULES.get(name) in order[at + 1 :]]
        assert not needed, f"docs/tour.md comes to {of(path)} before {', '.join(needed)}"
    folders = {ROOT / "qmgr" / folder for folder in ("aio", "cli", "mqsc")}  # named as a whole
    left = [path for path in FILES if path not in order and path.parent not in folders]
    assert [of(path) for path in left if not path.name.startswith("__")] == []


def test_only_the_edge_knows_the_machine() -> None:
    wrong = []
    for path in INSIDE:
        for name in imports(path):
            allowed = EDGE.get(name.split(".")[0])
            if allowed is not None and not any(of(path).startswith(place) for place in allowed):
                wrong.append(f"{of(path)} imports {name}")
    assert wrong == []


def test_only_the_edge_opens_files_and_reads_the_clock() -> None:
    wrong = []
    for path in INSIDE:
        for node in ast.walk(parsed(path)) if not of(path).startswith("logger/posix_") else ():
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name | ast.Attribute):
                called = node.func.id if isinstance(node.func, ast.Name) else ast.unparse(node.func)
                if called in ("open", "datetime.now", "datetime.datetime.now", "datetime.utcnow", "date.today"):
                    wrong.append(f"{of(path)}:{node.lineno} calls {called}")
    assert wrong == []


def test_every_module_is_imported_by_something() -> None:
    scripts: dict[str, str] = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["scripts"]
    used = {target.split(":")[0] for target in scripts.values()}
    used |= {name for path in [*FILES, *FOUND_BY_SPARK] for name in imports(path)}
    used |= {".".join(name.split(".")[:depth]) for name in used for depth in range(1, name.count(".") + 1)}
    used |= {name for name in MODULES if name.endswith(".__main__")}  # run by `python -m`
    used |= {f"pipeline.jobs.{name}" for name in jobs.NAMES}  # imported by their names when they are run
    used |= {module_of(name) for name in NAMES}  # the same
    used |= {session.LOCAL["spark.python.daemon.module"]}  # run by Spark
    assert sorted(set(MODULES) - used - set(PACKAGES)) == []


def test_reading_a_log_loads_no_queue_manager() -> None:
    """Spark begins a process for each question to a source, so what that loads is waited for each time."""
    script = "import sys, pipeline.log_source; print(*sorted(sys.modules))"
    done = subprocess.run([sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True, check=True)
    loaded = set(done.stdout.split())
    assert {"pipeline.rows", "recovery.extent_index"} <= loaded
    assert not loaded & {"qmgr.manager", "qmgr.client", "pipeline.marks", "structlog", "matplotlib", "ssl"}


def test_what_the_packages_offer_is_found_where_it_is_made() -> None:
    for package in (qmgr, pipeline):
        assert set(package.__all__) <= set(dir(package))
        assert all(getattr(package, name) is not None for name in package.__all__)
        with pytest.raises(AttributeError, match="has no attribute 'nothing'"):
            package.nothing  # noqa: B018


def test_dead_letters_are_decoded_by_who_has_used_nothing_else() -> None:
    """`qmgr.deadletter` was there once something else of `qmgr` was used: not for who has a body from elsewhere."""
    script = "import sys, qmgr; print(qmgr.deadletter.decode.__name__, 'qmgr.manager' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout == "decode False\n"
