"""What the build hook makes of the sources before they are compiled, and what it counts on in them."""

import ast
import runpy
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import attrs
import pytest

from recovery import records, uows

ROOT = Path(__file__).resolve().parents[1]
HOOK = runpy.run_path(str(ROOT / "hatch_build.py"), run_name="read")
AT_ONCE = {"all", "any", "deque", "dict", "extend", "frozenset", "join", "list", "max", "min", "next", "set"}
AT_ONCE |= {"sorted", "sum", "tuple", "update"}


def lazy(tree: ast.AST) -> Iterator[int]:
    """The lines of generator expressions that are not used up where they stand."""
    for node in ast.walk(tree):
        for child in ast.iter_child_nodes(node):
            if isinstance(child, ast.GeneratorExp) and not isinstance(node, (ast.AugAssign, ast.Starred)):
                called = ast.unparse(node.func).rsplit(".", 1)[-1] if isinstance(node, ast.Call) else ""
                if called not in AT_ONCE:
                    yield child.lineno


@pytest.mark.parametrize("name", HOOK["MODULES"])
def test_what_is_compiled_counts_on_no_lazy_generator_expression(name: str) -> None:
    """mypyc makes a list of it, where it stands."""
    assert list(lazy(ast.parse((ROOT / name).read_text()))) == []


def test_the_check_finds_lazy_ones() -> None:
    assert list(lazy(ast.parse("a = (x for x in y)\nb = list(x for x in y)\nislice((x for x in y), 3)"))) == [1, 3]


def rewritten(module: ModuleType, name: str) -> dict[str, Any]:
    """The module as it is compiled, interpreted."""
    made: dict[str, Any] = {"__name__": module.__name__}
    text = HOOK["rewritten"]((ROOT / name).read_text())
    exec(compile(text, name, "exec"), made)
    return made


@pytest.mark.parametrize(("module", "name"), [(records, "recovery/records.py"), (uows, "recovery/uows.py")])
def test_classes_are_made_as_attrs_makes_them(module: ModuleType, name: str) -> None:
    made = rewritten(module, name)
    ours = {key: one for key, one in vars(module).items() if attrs.has(one) and one.__module__ == module.__name__}
    assert len(ours) >= 1
    for key, one in ours.items():
        if key != "Xid":  # which stays as it is, and looks at its values
            values = [object() for field in attrs.fields(one) if field.default is attrs.NOTHING]
            assert repr(made[key](*values)) == repr(one(*values))
            assert (made[key](*values) == made[key](*values)) == (one(*values) == one(*values))
            assert [field.name for field in attrs.fields(made[key])] == [field.name for field in attrs.fields(one)]


def test_lists_are_made_anew_for_each() -> None:
    unit = rewritten(uows, "recovery/uows.py")["Uow"]
    one, other = unit(1), unit(2)
    one.puts.append(1)
    one.touched[1] = 2
    assert (other.puts, other.touched, other.gets) == ([], {}, [])


def test_what_is_ordered_keeps_its_hash() -> None:
    text = HOOK["rewritten"](
        '"""One."""\n\n\nclass A:\n    def __lt__(self, other: "A") -> bool:\n        return True\n'
    )
    made: dict[str, Any] = {}
    exec(compile(text, "a", "exec"), made)
    one = made["A"]()
    assert {one: 1}[one] == 1
    assert hash(one) == id(one)
