"""What the documents say is so: the README's code runs, links lead somewhere, `make` has the targets that are named."""

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import pytest

import qmgr
from qmgr import aio, errors, public
from qmgr.objects import ALIAS_ATTRIBUTES, ATTRIBUTES
from qmgr.session import ADMIN, BROWSE, CALLS, CALLS_ON_OBJECTS, GET, PUT
from qmgr.verbs import GetOptions, PutOptions

ROOT = Path(__file__).resolve().parents[1]
DOCUMENTS = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")])
FENCE = re.compile(r"^```(\w*)[^\n]*\n(.*?)^```$", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"(?<!!)\[[^\]]*\]\(([^)\s]+)\)")
SET_UP = re.compile(
    r"^((\S+/)?pip|make|git|python3? -m (pip|venv)|source|cd|ln)\b"
)  # what a reader does once; not run again here


class Block(NamedTuple):
    language: str
    code: str


def name(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


def blocks(path: Path) -> list[Block]:
    return [Block(*found.groups()) for found in FENCE.finditer(path.read_text())]


def commands(block: Block) -> list[str]:
    """The commands of a shell block: all its lines, or those after `$ ` when it shows what they print."""
    lines = block.code.replace("\\\n", "").splitlines()
    prompted = [line[2:] for line in lines if line.startswith("$ ")]
    return prompted or [line for line in lines if line.strip() and not line.lstrip().startswith("#")]


def is_shell(block: Block) -> bool:
    return block.language in ("sh", "bash", "shell", "console")


def run(command: list[str], home: Path) -> subprocess.CompletedProcess[str]:
    """Run in a home of its own, with the commands of this Python on the path."""
    environment = {
        **os.environ,
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
        "PYTHONPATH": str(ROOT),
        "QMGR_DATA_PATH": str(home / "data"),
        "XDG_DATA_HOME": str(home),
    }
    return subprocess.run(command, cwd=home, env=environment, capture_output=True, text=True, timeout=300, check=False)


def test_the_readmes_code_runs_in_the_order_it_stands(tmp_path: Path) -> None:
    ran = {"python": 0, "shell": 0}
    for block in blocks(ROOT / "README.md"):
        if block.language == "python":
            done = run([sys.executable, "-c", block.code], tmp_path)
            crashes = "os._exit" in block.code or "SIGKILL" in block.code
            assert done.stderr == "" and (crashes or done.returncode == 0), f"{block.code}\n{done.stdout}{done.stderr}"
            ran["python"] += 1
        elif is_shell(block):
            script = [command for command in commands(block) if not SET_UP.match(command)]
            if script:
                done = run(["bash", "-euo", "pipefail", "-c", "\n".join(script)], tmp_path)
                assert done.returncode == 0, f"{block.code}\n{done.stdout}{done.stderr}"
                assert set(shown(block)) <= set(done.stdout.splitlines()), f"{block.code}\n{done.stdout}"
                ran["shell"] += 1
    assert all(ran.values()), "the README should show Python and shell"


def shown(block: Block) -> list[str]:
    """The lines that a block with prompts says its commands print, without those that have `...` in them."""
    lines = block.code.replace("\\\n", "").splitlines()
    if not any(line.startswith("$ ") for line in lines):
        return []
    return [line for line in lines if not line.startswith("$ ") and "..." not in line]


@pytest.mark.parametrize("path", DOCUMENTS, ids=name)
def test_links_lead_somewhere(path: Path) -> None:
    for link in LINK.findall(FENCE.sub("", path.read_text())):
        if "://" in link or link.startswith("mailto:"):
            continue
        file, _, anchor = link.partition("#")
        target = (path.parent / file).resolve() if file else path
        assert target.exists(), f"{name(path)} links to {link}"
        if anchor:
            assert anchor in anchors(target), f"{name(path)} links to {link}"


def anchors(path: Path) -> set[str]:
    """The names that a document's headings get on GitHub."""
    headings = re.findall(r"^#+ +(.*?) *$", FENCE.sub("", path.read_text()), re.MULTILINE)
    named = set(re.findall(r'<a id="([^"]+)"></a>', path.read_text()))
    return named | {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def test_the_readme_links_the_words_that_are_explained_where_it_first_uses_them() -> None:
    prose = re.sub("`[^`]*`", "", FENCE.sub("", (ROOT / "README.md").read_text()))
    links = {
        anchor: (words, at.start())
        for at in re.finditer(r"\[([^]]+)]\(docs/terms\.md#([^)]+)\)", prose)
        for words, anchor in [at.groups()]
    }
    assert set(links) == set(re.findall(r'<a id="([^"]+)"></a>', (ROOT / "docs/terms.md").read_text()))
    for words, at in links.values():
        first = re.search(rf"\b{words}\b", prose, re.IGNORECASE)
        assert first is not None and first.start() == at + 1, f"{words} is used before its link"


@pytest.mark.parametrize("path", DOCUMENTS, ids=name)
def test_make_has_the_targets_that_are_named(path: Path) -> None:
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    named = set(re.findall(r"`make ([a-z-]+)", path.read_text()))
    named |= {
        command.split()[1]
        for block in blocks(path)
        if is_shell(block)
        for command in commands(block)
        if command.startswith("make ")
    }
    assert named <= targets


API = ROOT / "docs" / "api.md"


def public_names(*classes: type) -> set[str]:
    return {name for one in classes for name in dir(one) if not name.startswith("_")}


def test_the_page_of_the_api_names_all_of_it() -> None:
    text = API.read_text()
    code = [block.code for block in blocks(API)] + re.findall(r"`([^`\n]+)`", FENCE.sub("", text))
    named = set(re.findall(r"\w+", " ".join(code)))
    there = {name for name in vars(public) if not name.startswith("_")}
    there |= public_names(public.QueueManager, public.Connection, public.UnitOfWork, public.Message) - INNER
    there |= set(PutOptions.__annotations__) | set(GetOptions.__annotations__) | ATTRIBUTES | ALIAS_ATTRIBUTES
    assert there - named == set()


def test_all_that_is_offered_says_what_it_is() -> None:
    there = {name: getattr(qmgr, name) for name in qmgr.__all__}
    there |= {f"aio.{name}": getattr(aio, name) for name in aio.__all__}
    verbs = {
        f"{name}.{verb}": getattr(one, verb)
        for name, one in there.items()
        if isinstance(one, type) and name.endswith(("QueueManager", "Connection", "UnitOfWork", "Replay"))
        for verb in dir(one)
        if not verb.startswith("_") and callable(getattr(one, verb))
    }
    assert [name for name, one in (there | verbs).items() if not one.__doc__] == []


INNER = {"note_unknown"}  # what the units of work of a connection call


def test_the_page_of_the_api_shows_an_example_that_runs() -> None:
    example = (ROOT / "examples" / "outlive.py").read_text()
    shown = [block.code for block in blocks(API) if block.code.startswith("def ")]
    assert len(shown) == 2 and all(code in example for code in shown)


def test_the_page_of_the_api_has_every_error_with_its_reason() -> None:
    table = API.read_text().partition("## Errors")[2]
    for name, error in vars(errors).items():
        if isinstance(error, type) and issubclass(error, errors.MQError):
            row = re.search(rf"^\|[^|]*`{name}`[^|]*\|([^|]*)\|", table, re.MULTILINE)
            assert row, name
            if error not in (errors.MQError, errors.TryAgain):
                assert str(error.default_reason.value) in row[1], name


def test_the_error_log_is_where_the_page_of_the_api_says(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    text = API.read_text().partition("## The error log")[2].partition("\n## ")[0]
    (place,) = re.findall(r"`~/.local/share/qmgr/(qmgrs/\S+)`", text)
    public.create("QM1", data_path=tmp_path, log_file_pages=64)
    public.start("QM1", data_path=tmp_path).end()
    assert "AMQ8003I" in (tmp_path / place).read_text()
    assert (*capfd.readouterr(), caplog.text) == ("", "", "")


RIGHTS = ROOT / "docs" / "users.md"
MESSAGES = {
    **dict.fromkeys(("put", "put_many", "send", "dead_letter"), PUT),
    **dict.fromkeys(("get", "get_many", "consume"), GET),
    **dict.fromkeys(("browse", "replay"), BROWSE),
}


def test_the_page_about_rights_has_each_call_with_its_right() -> None:
    chapter = RIGHTS.read_text().partition("## What needs which right")[2].partition("\n## ")[0]
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in chapter.splitlines() if line[:3] == "| `"]
    said = {call: (right, on) for calls, right, on in rows for call in re.findall(r"`(\w+)`", calls)}
    offered = {call: right for call, right in CALLS.items() if hasattr(public.Connection, call)}
    for call, right in {**offered, **MESSAGES, "end": ADMIN}.items():
        assert said[call][0] == right, call
        on_manager = call not in CALLS_ON_OBJECTS and call not in MESSAGES
        assert said[call][1].startswith("the queue manager") == on_manager, call


def test_the_unit_for_systemd_finds_the_commands_where_the_readme_links_them() -> None:
    unit = (ROOT / "examples" / "qmgr@.service").read_text()
    install = (ROOT / "README.md").read_text().partition("## Install")[2].partition("\n## ")[0]
    (place,) = set(re.findall(r"^Exec\w+=(/.*)/\w+mqm ", unit, re.MULTILINE))
    assert re.search(rf"^ln -s .* {place}/", install, re.MULTILINE)
