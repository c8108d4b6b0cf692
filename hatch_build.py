"""Build hook: with QMGR_COMPILE=1 a wheel has the modules of the hot path compiled by mypyc, beside their sources.

The sources know nothing of it. They are copied, and in the copy three things are said in mypyc's words:

    @attrs.define           its class is made with @attr.s and written methods, since mypyc knows no other way to a
                            native class; one that is frozen stays an interpreted class
    a class that is derived from outside of what is compiled    is open for that
    a class with __lt__ and no __eq__                           is given the __hash__ that it has in Python anyway

What is compiled must not count on a generator expression to be lazy, since mypyc makes a list of it. Nor does it let
other threads go on in a loop, as the interpreter does: the files of segments and `ids.py`, which long loops call, are
left out. And it believes that an attribute stays what a check has found it to be, as long as it is not assigned to:
where others may change it while a call waits, the check is of a local name.
"""

import ast
import os
import re
import shutil
import subprocess
import sys
import tempfile
from importlib.util import find_spec
from pathlib import Path
from typing import Any

PACKAGES = ("logger", "recovery", "qmgr")
MODULES = (
    *("logger/lsn.py", "logger/frame.py", "logger/integrity.py", "logger/space.py", "logger/stats.py"),
    *("logger/buffer.py", "logger/force.py", "logger/extent.py", "logger/writer.py", "logger/log.py"),
    *("recovery/records.py", "recovery/uows.py"),
    *("qmgr/entry.py", "qmgr/batch.py", "qmgr/lane.py", "qmgr/due.py", "qmgr/message.py"),
    *(
        "qmgr/paging.py",
        "qmgr/finding.py",
        "qmgr/opened.py",
        "qmgr/front.py",
        "qmgr/queue.py",
        "qmgr/state.py",
        "qmgr/store.py",
        "qmgr/resource.py",
    ),
    *("qmgr/logged.py", "qmgr/units.py", "qmgr/definitions.py", "qmgr/puts.py", "qmgr/requeue.py"),
    *("qmgr/holding.py", "qmgr/waiting.py", "qmgr/gets.py", "qmgr/engine.py"),
)
OPEN = {"GroupCommit", "State", "Store"}  # others that are not compiled derive from these
# mypyc checks the types of what it compiles, so it needs those of what is imported; setuptools calls the C compiler.
NEEDED = [
    "mypy>=2.4,<3",
    "setuptools>=65",
    "attrs>=23.1",
    "sortedcontainers-stubs>=2.4",
    "structlog>=23.1",
    "zstandard",
]
MYPY = "[mypy]\nstrict = true\nnamespace_packages = true\nexplicit_package_bases = true\nmypy_path = .\n"
HEADING = """\
import attr
from builtins import memoryview
from typing import TYPE_CHECKING
if TYPE_CHECKING:
    from mypy_extensions import mypyc_attr
"""


def wanted() -> bool:
    return os.environ.get("QMGR_COMPILE", "") not in ("", "0")


def compiled(sources: Path, target: Path) -> list[Path]:
    """Copy the packages to `target` and compile them there; the libraries, relative to it."""
    for package in PACKAGES:
        for source in (sources / package).rglob("*.py"):
            name = source.relative_to(sources).as_posix()
            text = source.read_text()
            copy = target / name
            copy.parent.mkdir(parents=True, exist_ok=True)
            copy.write_text(rewritten(text) if name in MODULES else text)
    (target / "mypy.ini").write_text(MYPY)
    subprocess.run([sys.executable, __file__], cwd=target, check=True)
    return [path.relative_to(target) for pattern in ("*.so", "*/*.so") for path in sorted(target.glob(pattern))]


def rewritten(text: str) -> str:
    """A module's source as mypyc likes it."""
    tree = ast.parse(text)
    lines = text.split("\n")
    for node in reversed([node for node in tree.body if isinstance(node, ast.ClassDef)]):
        methods = {method.name for method in node.body if isinstance(method, ast.FunctionDef)}
        first = node.decorator_list[0].lineno if node.decorator_list else node.lineno
        if "__lt__" in methods and "__eq__" not in methods:
            lines[node.end_lineno : node.end_lineno] = ["", "    def __hash__(self) -> int:", "        return id(self)"]
        for decorator in node.decorator_list:
            said = ast.unparse(decorator)
            if said.startswith("attrs.define"):
                lines[node.end_lineno : node.end_lineno] = methods_of(node)
                options = f", {said[len('attrs.define(') : -1]}" if isinstance(decorator, ast.Call) else ""
                made = f"@attr.s(auto_attribs=True, init=False, order=False{options})"
                lines[decorator.lineno - 1 : decorator.end_lineno] = [made]
        if node.name in OPEN:
            lines.insert(first - 1, "@mypyc_attr(allow_interpreted_subclasses=True)")
    lines.insert(tree.body[0].end_lineno or 0, HEADING)  # behind the docstring
    return "\n".join(lines)


def methods_of(node: ast.ClassDef) -> list[str]:
    """The __init__ that attrs would make of the fields of a class, and how its objects are copied and pickled."""
    parameters, lines, fields = ["self"], [], []
    for field in node.body:
        if isinstance(field, ast.AnnAssign):
            name, annotation, value = ast.unparse(field.target), ast.unparse(field.annotation), name_of(field.value)
            fields.append(f"self.{name}")
            made = re.fullmatch(r"attrs\.Factory\((list|dict)\)", value)
            if made:
                parameters.append(f"{name}: {annotation} | None = None")
                lines.append(f"        self.{name} = {made[1]}() if {name} is None else {name}")
            else:
                parameters.append(f"{name}: {annotation}" + (f" = {value}" if value else ""))
                lines.append(f"        self.{name} = {name}")
    init = ["", f"    def __init__({', '.join(parameters)}) -> None:", *lines]
    reduce = [
        "",
        "    def __reduce__(self) -> tuple[object, ...]:",
        f"        return type(self), ({', '.join(fields)},)",
    ]
    return init + reduce


def name_of(value: ast.expr | None) -> str:
    return "" if value is None else ast.unparse(value)


def compile_here() -> None:
    """Compile the modules in the working directory, each library beside its source."""
    from mypyc.build import mypycify
    from setuptools import setup

    modules = mypycify(["--no-warn-unused-ignores", *MODULES], opt_level="2", debug_level="0", group_name="qmgr")
    setup(name="qmgr", packages=[], ext_modules=modules, script_args=["--quiet", "build_ext", "--inplace"])


if __name__ == "__main__":
    compile_here()
elif find_spec("hatchling") is not None:
    from hatchling.builders.hooks.plugin.interface import BuildHookInterface

    class CompileHook(BuildHookInterface[Any]):
        """Puts the libraries into the wheel."""

        def dependencies(self) -> list[str]:
            return NEEDED if wanted() else []

        def initialize(self, version: str, build_data: dict[str, Any]) -> None:
            if wanted() and version != "editable":
                self.target = Path(tempfile.mkdtemp(prefix="qmgr-compiled-"))
                libraries = compiled(Path(self.root), self.target)
                build_data["force_include"] |= {str(self.target / path): str(path) for path in libraries}
                build_data["pure_python"] = False
                build_data["infer_tag"] = True

        def finalize(self, version: str, build_data: dict[str, Any], artifact_path: str) -> None:
            if wanted() and version != "editable":
                shutil.rmtree(self.target)
