"""The same calls over all faces, each with one mistake at the most: every answer is the same, value and error."""

import itertools
import random
from collections.abc import Callable, Iterator
from typing import Any

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st

import qmgr
from qmgr import UowState, Xid
from tests.conformance.faces import FACES, Face
from tests.conformance.nursery import Nursery

QUEUES = ("LIVES", "SMALL", "FIFO", "ALSO")
WRONG_NAMES = ("NO", "NONE", "ALIAS2", "a b", "", "A" * 49, 5, None, b"LIVES", ["LIVES"])
WRONG_BODIES = ("text", None, 5, [b"x"], b"x" * 1001)
WRONG_IDS = (b"x" * 25, "text", 5, {b"set"})

GROUPS = (b"g", b"h")
VERBS = (
    *("put", "put", "put", "put_many", "put_many", "get", "get", "get", "get_many", "get_many", "begin", "begin"),
    *("commit", "backout", "prepare", "resolve", "in_doubt", "browse", "alter_queue", "clear_queue", "queue"),
)
Choices = tuple[Any, ...]
Options = dict[str, tuple[Choices, Choices]]

# what an option may be, and may not be
PUT: Options = {
    "persistent": ((True, False, None), (1, "yes")),
    "priority": ((0, 4, 9, None), (-1, 10, "3", True, 1.0)),
    "expiry": ((1000, 5000.0, None), (0, -1, float("nan"), float("inf"), 1e9, "5", True)),
    "message_id": ((b"m", b"n", b"", bytes(24), None), WRONG_IDS),
    "correlation_id": ((b"m", b"n", b"", None), WRONG_IDS),
    "reply_to": (("LIVES", "NO", "", None), ("a b", 5)),
    "format": (("MQSTR", "", None), ("too long.", "ä", b"MQSTR")),
    "properties": (({}, {"a": 1, "b": "x", "c": b"y"}, None), ({"": 1}, {"a": None}, {5: 1}, {"a": 2**63}, "x")),
    "group_id": ((*GROUPS, None), (b"", bytes(24), b"x" * 25, "g")),
    "colour": ((), ("red",)),
}
IN_GROUP: Options = {  # only of a message that is in one
    "group_sequence": ((1, 2, None), (0, -1, 10**9, True, "1")),
    "last_in_group": ((True, False, None), (1, "x")),
}
GET: Options = {
    "wait": ((0, 0.001), (-1, float("nan"), "1", True)),
    "message_id": ((b"m", b"", None), WRONG_IDS),
    "correlation_id": ((b"n", b"", None), WRONG_IDS),
    "group_id": ((b"g", None), (b"", "g")),
    "backout_requeue": ((True, False, None), (1, "x")),
    "colour": ((), ("red",)),
}
IN_ORDER: Options = {
    "logical_order": ((True, False), (1, "x")),
    "all_available": ((True, False), (1, "x")),
}
BROWSE = {name: GET[name] for name in ("message_id", "correlation_id", "group_id", "colour")}
LIMIT = ((1, 2, 10**9, 2**70), (0, -1, 1.0, "1", None, True))
ATTRIBUTES: Options = {
    "put_enabled": ((True, True, False), (1, "x")),
    "get_enabled": ((True, True, False), (1, None)),
    "max_depth": ((2, 50), (-1, 10**9, "5")),
    "default_priority": ((0, 7), (10, None)),
    "backout_threshold": ((0, 1), (-1, True)),
    "backout_queue": (("FIFO", "NO", ""), ("a b", 5)),
    "expiry_cap": ((None, 100.0), (0, "x")),
    "colour": ((), ("red",)),
}


@attrs.frozen
class Step:
    """A call of a unit of work, or of the queue manager."""

    unit: int | None
    verb: str
    args: tuple[Any, ...] = ()
    options: dict[str, Any] = attrs.field(factory=dict)


def step(choose: random.Random) -> Step:
    left = choose.random() < 0.35  # may there be a mistake yet?

    def one(allowed: Choices, refused: Choices = ()) -> Any:
        nonlocal left
        if left and refused and (not allowed or choose.random() < 0.4):
            left = False
            return choose.choice(refused)
        return choose.choice(allowed)

    def some(pool: Options) -> dict[str, Any]:
        names = choose.sample(sorted(pool), choose.choice([0, 0, 1, 2, 3]) % (len(pool) + 1))
        return {name: one(*pool[name]) for name in names if pool[name][0] or left}

    def bodies(count: int) -> list[Any]:
        return [one((b"a", b"bb", b""), WRONG_BODIES) for _ in range(count)]

    unit = choose.choice([None, 0, 0, 1])  # the last but so many
    verb = choose.choice(VERBS)
    args: tuple[Any, ...] = ()
    options: dict[str, Any] = {}
    match verb:
        case "put" | "put_many":
            several = verb == "put_many"
            args = one(QUEUES, WRONG_NAMES), bodies(choose.randrange(4)) if several else bodies(1)[0]
            options = some(PUT)
            if options.get("group_id") in GROUPS:
                options |= some(IN_GROUP)
        case "get" | "get_many":
            args = (one(QUEUES, WRONG_NAMES), *([one(*LIMIT)] if verb == "get_many" else []))
            options = some(IN_ORDER if unit is not None and choose.random() < 0.2 else GET)
        case "browse" | "queue" | "clear_queue":
            unit, args = None, (one(QUEUES, WRONG_NAMES),)
            options = some(BROWSE) if verb == "browse" else {}
        case "alter_queue":
            unit, args, options = None, (one(QUEUES[:3], WRONG_NAMES),), some(ATTRIBUTES)
        case "begin":
            unit, args = None, (choose.choice([None, 0, 1]),)
        case "resolve":
            unit, args = None, (choose.choice([0, 1]), one((True, False), (1, None)))
        case "in_doubt":
            unit = None
        case _:
            unit = unit or 0
    return Step(unit, verb, args, options)


def unnamed(answer: Any) -> Any:
    """The answer; of an error only that it is one."""
    return "an error" if type(answer) is tuple and isinstance(answer[0], type) else answer


class Player:
    """Makes the calls on one face, and tells each answer as it can be compared."""

    def __init__(self, face: Face, number: int) -> None:
        face.open()
        self._face = face
        self.qm = qm = face.qm
        self._number = number  # of Xids that no example before has had
        self.units: list[Any] = []
        for alias in qm.aliases():
            qm.delete_alias(alias.name)
        for queue in qm.queues():
            qm.delete_queue(queue.name, purge=True)
        qm.define_queue("LIVES", max_message_length=1000)
        qm.define_queue("SMALL", max_message_length=1000, max_depth=4, default_persistence=False)
        qm.define_queue("FIFO", max_message_length=1000, delivery_sequence="FIFO", backout_threshold=1)
        qm.define_alias("ALSO", "LIVES", default_priority=3)
        qm.define_alias("NONE", "NO")
        qm.define_alias("ALIAS2", "ALSO")

    def xid(self, which: int) -> Xid:
        return Xid(self._number, b"%d" % which, b"")

    def is_over(self, step: Step) -> bool:
        return step.unit is not None and self._of(step).state is not UowState.ACTIVE

    def _of(self, step: Step) -> Any:
        """What the step calls; the first unit of work is begun for it."""
        if step.unit is None:
            return self.qm
        if not self.units:
            self.units.append(self.qm.begin())
        return self.units[max(0, len(self.units) - 1 - step.unit)]

    def answer(self, step: Step) -> Any:
        args = step.args
        if step.verb in ("begin", "resolve"):
            args = tuple(self.xid(one) if type(one) is int and place == 0 else one for place, one in enumerate(args))
        try:
            told = getattr(self._of(step), step.verb)(*args, **step.options)
            if step.verb == "browse":
                told = list(told)
            if step.verb == "begin":
                self.units.append(told)
                return step.verb
        except qmgr.MQError as exc:
            return type(exc), exc.reason, exc.name
        except TypeError as exc:
            return TypeError, "red" in str(step.options.values()) and "colour" in str(exc)
        return self._plain(told)

    def _plain(self, told: Any) -> Any:
        if isinstance(told, list):
            return [self._plain(one) for one in told]
        if isinstance(told, qmgr.Message):
            given = (told.message_id[1:] == bytes(23)) * told.message_id  # others are this face's own
            names = ("body", "queue", "priority", "persistent", "format", "reply_to", "backout_count", "correlation_id")
            groups = (told.group_id, told.group_sequence, told.last_in_group)
            left = None if told.expiry is None else round(told.expiry, -2)
            return given, [getattr(told, name) for name in names], dict(told.properties), groups, left
        if isinstance(told, qmgr.QueueInfo):
            return attrs.evolve(told, id=0, last_put=0, last_get=0, memory=0)
        return told

    def close(self) -> None:
        for unit in self.units:
            if unit.state is UowState.ACTIVE:
                unit.backout()
        for xid in self.qm.in_doubt():
            self.qm.resolve(xid, False)
        self._face.close()


@pytest.fixture(scope="module")
def play(tmp_path_factory: pytest.TempPathFactory, nursery: Nursery) -> Iterator[Callable[[], list[Player]]]:
    faces = [kind(tmp_path_factory.mktemp("qm"), {}, nursery) for kind in FACES.values()]
    examples = itertools.count(1)

    def players() -> list[Player]:
        number = next(examples)
        return [Player(face, number) for face in faces]

    yield players
    for face in faces:
        face.stop()


@given(seed=st.integers(0, 2**32), count=st.integers(1, 60))
def test_every_face_answers_alike(play: Callable[[], list[Player]], seed: int, count: int) -> None:
    choose = random.Random(seed)
    players = play()
    try:
        for number in range(count):
            made = step(choose)
            over = players[0].is_over(made)
            answers = [player.answer(made) for player in players]
            if over:  # and with another mistake: which of the two is told may differ
                answers = [unnamed(answer) for answer in answers]
            for face, answer in zip(FACES, answers, strict=True):
                assert answer == answers[0], f"step {number}, {made}: {face} differs"
    finally:
        for player in players:
            player.close()
