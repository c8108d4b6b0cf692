"""Names and definitions."""

import inspect
import json
from typing import Any, Unpack, get_type_hints

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st

import qmgr
from qmgr import Mistake, Reason, aio, objects
from qmgr.authority import Grant
from qmgr.objects import QueueDefinition
from qmgr.survey import Survey
from recovery.records import CATALOG_FIRST, CATALOG_LAST, Catalog

names = st.from_regex(r"[A-Za-z0-9._/%]{1,48}", fullmatch=True)


@given(names)
def test_names_become_file_names_and_names_again(name: str) -> None:
    assert objects.check_name(name, "queue") == name
    mangled = objects.mangle(name)
    assert objects.unmangle(mangled) == name
    assert "/" not in mangled and "." not in mangled


@given(names, names)
def test_two_names_never_share_a_file(one: str, two: str) -> None:
    assert (objects.mangle(one) == objects.mangle(two)) == (one == two)


@given(st.text(max_size=60))
def test_everything_else_is_refused(name: str) -> None:
    if objects.NAME.fullmatch(name) is None:
        with pytest.raises(Mistake) as caught:
            objects.check_name(name, "queue")
        assert caught.value.reason == Reason.OBJECT_NAME_ERROR
        assert len(caught.value.name) <= 48


@given(names, st.integers(0, 9), st.text(st.characters(categories=["L", "N"]), max_size=64), st.floats(0.001, 1e8))
def test_a_definition_comes_back(name: str, priority: int, description: str, cap: float) -> None:
    one = QueueDefinition(name=name, id=7, default_priority=priority, description=description, expiry_cap=cap)
    assert objects.decode_definition(one.encode()) == one


def test_what_a_later_version_has_added_is_passed_over() -> None:
    def later(encoded: bytes) -> bytes:
        return encoded.replace(b"{", b'{"later": [1], ')

    queue = QueueDefinition(name="Q", id=3, max_depth=5)
    assert objects.decode_definition(later(queue.encode())) == queue
    alias = objects.AliasDefinition(name="A", target="Q")
    assert objects.decode_alias(later(alias.encode())) == alias
    grant = Grant(user="mia", profile="A.*", rights=("get",))
    qmgr = objects.QmgrDefinition(description="ours", authorities=(grant,))
    assert objects.decode_qmgr(later(qmgr.encode())) == qmgr


def test_what_a_later_version_has_added_to_an_image_of_the_definitions_is_passed_over() -> None:
    queue = QueueDefinition(name="Q", id=3, max_depth=5)
    said = {
        "qmgr": json.loads(objects.QmgrDefinition().encode()),
        "counters": {"queue": 4, "segment": 1},
        "queues": [{"definition": json.loads(queue.encode()) | {"later": [1]}, "image": None}],
    }
    found = Survey(0, 0, complete=False)
    found.take(Catalog(CATALOG_FIRST | CATALOG_LAST, json.dumps(said).encode()), 8, 0)
    assert found.queues == {3: (queue, None)}


def test_with_attributes_changes_only_those() -> None:
    one = QueueDefinition(name="Q", id=3, max_depth=5)
    two = objects.with_attributes(one, {"description": "x"})
    assert (two.name, two.id, two.max_depth, two.description) == ("Q", 3, 5, "x")
    with pytest.raises(Mistake, match="no attribute 'name'"):
        objects.with_attributes(one, {"name": "R"})


KINDS: list[tuple[Any, type, set[str]]] = [
    (objects.QueueAttributes, objects.QueueDefinition, {"name", "id"}),
    (objects.AliasAttributes, objects.AliasDefinition, {"name", "target"}),
    (objects.ChangedAlias, objects.AliasDefinition, {"name"}),
    (objects.QmgrAttributes, objects.QmgrDefinition, {"authorities"}),
]


@pytest.mark.parametrize(("named", "definition", "but"), KINDS)
def test_who_checks_types_is_told_of_every_attribute(named: Any, definition: type, but: set[str]) -> None:
    fields = {field.name: field.type for field in attrs.fields(definition)}
    assert {name: kind for name, kind in get_type_hints(named).items() if name not in but} == {
        name: kind for name, kind in fields.items() if name not in but
    }


@pytest.mark.parametrize("manager", [qmgr.QueueManager, qmgr.Connection, aio.Connection])
def test_calls_with_attributes_say_which(manager: type) -> None:
    said = {
        "define_queue": objects.QueueAttributes,
        "alter_queue": objects.QueueAttributes,
        "define_alias": objects.AliasAttributes,
        "alter_alias": objects.ChangedAlias,
        "alter": objects.QmgrAttributes,
    }
    shown = {verb: inspect.signature(getattr(manager, verb)).parameters["attributes"].annotation for verb in said}
    assert shown == {verb: Unpack[kind] for verb, kind in said.items()}  # type: ignore[valid-type, misc]
