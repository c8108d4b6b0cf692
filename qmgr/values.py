"""Values that calls take and give, as JSON and back: what JSON has not is an object with one key that says what it is.

    {"hex": "0a1b"}                      bytes
    {"moment": "2026-01-02T03:04:05+00:00"}
    {"tuple": [...]}                     a list is a list
    {"map": {...}}                       a mapping; keys are text
    {"set": [...]}
    {"of": "LogType", "is": "LINEAR"}    a member of an enumeration
    {"of": "QueueInfo", "with": {...}}   one of our classes, by its fields

Only classes that the API shows are known here, so nothing that comes can make anything else.
"""

import datetime
import enum
import inspect
import json
from collections.abc import Callable, Iterator
from types import ModuleType
from typing import Any

import attrs

from logger import archive, archive_plan, compressed, config, history, log, stats
from qmgr import authority, errors, infos, message, mqsc, objects, replay
from qmgr.errors import Mistake, MQError, Reason, quoted
from recovery import records, restart, uows

MODULES: tuple[ModuleType, ...] = (
    *(archive, archive_plan, compressed, config, history, log, stats),
    *(authority, errors, infos, message, mqsc, objects, replay),
    *(records, restart, uows),
)


def _classes() -> Iterator[type]:
    for module in MODULES:
        for _, one in inspect.getmembers(module, inspect.isclass):
            known = attrs.has(one) or issubclass(one, enum.Enum)
            if one.__module__ == module.__name__ and known and not one.__name__.startswith("_"):
                yield one


CLASSES: dict[str, type] = {one.__name__: one for one in _classes()}
ERRORS: dict[str, type[MQError]] = {
    name: one for name, one in inspect.getmembers(errors, inspect.isclass) if issubclass(one, MQError)
}
TEXT = json.JSONEncoder(separators=(",", ":"), allow_nan=True).encode
MAX_INT_BITS = 1024  # far more than any call takes, and JSON can have it
MAX_DEPTH = 32  # of values in each other


def dumps(value: Any) -> bytes:
    """Raises Mistake for what no call takes or gives."""
    try:
        return TEXT(_encode(value)).encode()
    except RecursionError:
        raise Mistake("a value that has itself in it can't be sent to a queue manager in another process") from None


def loads(data: bytes) -> Any:
    """Raises ValueError for what `dumps` does not make."""
    try:
        return _decode(_parsed(data), 0)
    except (TypeError, KeyError, AttributeError, RecursionError) as exc:
        raise ValueError(f"this is no value of a call ({exc})") from None


def _parsed(data: bytes) -> Any:
    try:
        return json.loads(data)
    except (json.JSONDecodeError, UnicodeDecodeError):
        raise
    except ValueError:  # Python reads no number of thousands of digits
        raise ValueError("a number in it is longer than any that a call takes") from None


def _encode(value: Any) -> Any:
    match value:
        case None | bool() | str() | float():
            return value
        case enum.Enum() if CLASSES.get(type(value).__name__) is type(value):
            return {"of": type(value).__name__, "is": value.name}
        case int() if not isinstance(value, enum.Enum) and value.bit_length() <= MAX_INT_BITS:
            return value
        case bytes() | bytearray() | memoryview():
            return {"hex": bytes(value).hex()}
        case datetime.datetime():
            return {"moment": value.isoformat()}
        case tuple():
            return {"tuple": [_encode(one) for one in value]}
        case list():
            return [_encode(one) for one in value]
        case set() | frozenset():
            return {"set": [_encode(one) for one in sorted(value, key=repr)]}
    if attrs.has(type(value)) and CLASSES.get(type(value).__name__) is type(value):
        return {"of": type(value).__name__, "with": {f.alias: _encode(getattr(value, f.name)) for f in _fields(value)}}
    if hasattr(value, "items"):
        return {"map": {_key(key): _encode(one) for key, one in value.items()}}
    raise Mistake(
        f"{quoted(value)} is nothing that a call takes: a {type(value).__name__} can't be sent to another process"
    )


def _fields(value: Any) -> Iterator["attrs.Attribute[Any]"]:
    return (field for field in attrs.fields(type(value)) if field.init)


def _key(key: Any) -> str:
    if not isinstance(key, str):
        raise Mistake(f"the keys of a mapping that is sent are text, not {quoted(key)}")
    return key


def _decode(told: Any, depth: int) -> Any:
    if depth > MAX_DEPTH:
        raise ValueError(f"values lie in each other more than {MAX_DEPTH} deep")
    if isinstance(told, list):
        return [_decode(one, depth + 1) for one in told]
    if not isinstance(told, dict):
        return told
    if "of" in told:
        one = CLASSES[told["of"]]
        if "is" in told and issubclass(one, enum.Enum):
            return one[told["is"]]
        given = {name: _decode(value, depth + 1) for name, value in told["with"].items()}
        return _instance(one, given)
    if len(told) != 1:
        raise ValueError(f"an object has one key, such as map, and not {len(told)}")
    [(kind, value)] = told.items()
    return DECODERS[kind](value, depth + 1)


def _instance(one: type, given: dict[str, Any]) -> Any:
    if not attrs.has(one):
        raise ValueError(f"a {one.__name__} has no fields")
    if one is message.Message and len(given["head"]) < message.HEAD.size:
        raise ValueError("the head of a message is too short for one")
    return one(**given)


DECODERS: dict[str, Callable[[Any, int], Any]] = {
    "hex": lambda value, depth: bytes.fromhex(value),
    "moment": lambda value, depth: datetime.datetime.fromisoformat(value),
    "tuple": lambda value, depth: tuple([_decode(one, depth) for one in value]),
    "set": lambda value, depth: frozenset(value),
    "map": lambda value, depth: {name: _decode(one, depth) for name, one in value.items()},
}


# ---- errors


def dump_error(exc: Exception) -> bytes:
    """An error, by its class, reason, name, text, and what else it has to say."""
    more = {name: value for name, value in vars(exc).items() if name not in ("reason", "name")}
    told = {
        "class": type(exc).__name__,
        "reason": getattr(exc, "reason", Reason.UNEXPECTED_ERROR).value,
        "name": getattr(exc, "name", ""),
        "text": str(exc),
    }
    if more:
        told["more"] = {name: value for name, value in more.items() if isinstance(value, (str, int))}
    return TEXT(told).encode()


def load_error(data: bytes) -> MQError:
    """The error that `dump_error` has encoded; its text is as it was."""
    told = json.loads(data)
    kind = ERRORS.get(told["class"], MQError)
    made = kind.__new__(kind)
    Exception.__init__(made, told["text"])
    vars(made).update(told.get("more", {}))
    made.reason = Reason(told["reason"]) if told["reason"] in Reason._value2member_map_ else Reason.UNEXPECTED_ERROR
    made.name = told["name"]
    return made
