"""Names and definitions of queues, aliases and the queue manager: frozen, checked when made, JSON in the log."""

import json
import re
from collections.abc import Iterable, Mapping
from typing import Any, TypedDict, TypeVar

import attrs

from qmgr.authority import Grant
from qmgr.errors import Mistake, NameError_, Reason, quoted

NAME = re.compile(r"[A-Za-z0-9._/%]{1,48}")
MAX_MESSAGE_LENGTH = MAX_BUFFER = 104_857_600
UNLIMITED = 999_999_999


def check_name(name: object, what: str, reason: Reason = Reason.OBJECT_NAME_ERROR) -> str:
    """Return `name`, if it is a valid one: 1 to 48 of A-Z a-z 0-9 . / _ %. Raises NameError_."""
    if isinstance(name, str) and NAME.fullmatch(name):
        return name
    use = "use 1 to 48 of the characters A-Z a-z 0-9 . / _ %"
    raise NameError_(
        f"{quoted(name)} can't be the name of {'an' if what == 'alias' else 'a'} {what}: "
        f"{use if isinstance(name, str) else f'give text (str), not {type(name).__name__}'}",
        reason=reason,
        name=(name if isinstance(name, str) else quoted(name))[:48],
    )


def is_event_queue(name: str) -> bool:
    """Does the queue manager put its events there? Such queues have no depth and inhibit events of their own."""
    return name.startswith("SYSTEM.ADMIN.") and name.endswith(".EVENT")


def mangle(name: str) -> str:
    """The name as a file name: `.` becomes `!`, `/` becomes `&`."""
    return name.replace(".", "!").replace("/", "&")


def unmangle(name: str) -> str:
    return name.replace("!", ".").replace("&", "/")


def is_mangled(name: str) -> bool:
    """Can the file name stand for an object? Any other, such as lost+found or .nfs0001, is none of ours."""
    return mangle(name) == name and NAME.fullmatch(unmangle(name)) is not None


def _refuse(attribute: str, value: object, allowed: str) -> Mistake:
    return Mistake(f"{attribute} is {quoted(value)}; allowed: {allowed}", reason=Reason.OPTIONS_ERROR)


def _whole(low: int, high: int) -> Any:
    def check(_: object, attribute: "attrs.Attribute[int]", value: int) -> None:
        if type(value) is not int or not low <= value <= high:
            raise _refuse(attribute.name, value, f"a whole number from {low} to {high}")

    return check


def check_flag(value: object, name: str) -> bool:
    """Return `value`, if it is a bool. Raises Mistake (2046)."""
    if not isinstance(value, bool):
        raise Mistake(f"{name} is True or False, not {quoted(value)}", reason=Reason.OPTIONS_ERROR)
    return value


def several(value: Any) -> Any:
    """`value` as a list, if it is an iterable of names; text, and what is no iterable, as it is.

    The list ends with the first element that is no text, which the call refuses: a range, say, may not fit into memory.
    """
    if isinstance(value, str) or not isinstance(value, Iterable):
        return value
    named = []
    for one in value:
        named.append(one)
        if not isinstance(one, str):
            break
    return named


def check_progress(progress: object) -> None:
    """Raises Mistake (2046) for what can't be called."""
    if not callable(progress):
        text = f"progress is a function that is told the bytes done and of how many, not {quoted(progress)}"
        raise Mistake(text, reason=Reason.OPTIONS_ERROR)


def _flag(_: object, attribute: "attrs.Attribute[bool]", value: bool) -> None:
    if not isinstance(value, bool):
        raise _refuse(attribute.name, value, "True or False")


def _one_of(*allowed: str) -> Any:
    def check(_: object, attribute: "attrs.Attribute[str]", value: str) -> None:
        if value not in allowed:
            raise _refuse(attribute.name, value, " or ".join(allowed))

    return check


def _text(most: int) -> Any:
    def check(_: object, attribute: "attrs.Attribute[str]", value: str) -> None:
        if not isinstance(value, str) or len(value) > most or not value.isprintable():
            raise _refuse(attribute.name, value, f"text of at most {most} printable characters")

    return check


def _queue_or_blank(_: object, attribute: "attrs.Attribute[str]", value: str) -> None:
    if value != "":
        check_name(value, "queue")


def _or_the_queues(check: Any) -> Any:
    """As `check`, and None is allowed: then the queue's own value counts."""

    def check_if_said(of: object, attribute: "attrs.Attribute[Any]", value: Any) -> None:
        if value is not None:
            check(of, attribute, value)

    return check_if_said


def _expiry_cap(_: object, attribute: "attrs.Attribute[float | None]", value: float | None) -> None:
    if value is not None and (not isinstance(value, (int, float)) or isinstance(value, bool) or not 0 < value < 1e9):
        raise _refuse(attribute.name, value, "seconds, more than 0 and less than 1e9, or None")


def _buffer(_: object, attribute: "attrs.Attribute[int | None]", value: int | None) -> None:
    if value is not None and (type(value) is not int or not 1 <= value <= MAX_BUFFER):
        raise _refuse(attribute.name, value, f"bytes, a whole number from 1 to {MAX_BUFFER}, or None")


@attrs.frozen(kw_only=True)
class QueueDefinition:
    """A local queue. Attributes are those of DEFINE QLOCAL, in words."""

    name: str
    id: int = 0  # number of the queue in log records; given by the queue manager, and never to another queue
    description: str = attrs.field(default="", validator=_text(64))  # DESCR
    put_enabled: bool = attrs.field(default=True, validator=_flag)  # PUT
    get_enabled: bool = attrs.field(default=True, validator=_flag)  # GET
    default_priority: int = attrs.field(default=0, validator=_whole(0, 9))  # DEFPRTY
    default_persistence: bool = attrs.field(default=True, validator=_flag)  # DEFPSIST
    max_depth: int = attrs.field(default=UNLIMITED, validator=_whole(0, UNLIMITED))  # MAXDEPTH
    max_message_length: int = attrs.field(default=4_194_304, validator=_whole(0, MAX_MESSAGE_LENGTH))  # MAXMSGL
    delivery_sequence: str = attrs.field(default="PRIORITY", validator=_one_of("PRIORITY", "FIFO"))  # MSGDLVSQ
    non_persistent_class: str = attrs.field(default="NORMAL", validator=_one_of("NORMAL", "HIGH"))  # NPMCLASS
    backout_threshold: int = attrs.field(default=0, validator=_whole(0, UNLIMITED))  # BOTHRESH
    backout_queue: str = attrs.field(default="", validator=_queue_or_blank)  # BOQNAME
    image_recoverable: str = attrs.field(default="QMGR", validator=_one_of("QMGR", "YES", "NO"))  # IMGRCOVQ
    depth_high: int = attrs.field(default=80, validator=_whole(0, 100))  # QDEPTHHI, percent of max_depth
    depth_low: int = attrs.field(default=20, validator=_whole(0, 100))  # QDEPTHLO
    depth_max_event: bool = attrs.field(default=True, validator=_flag)  # QDPMAXEV
    depth_high_event: bool = attrs.field(default=False, validator=_flag)  # QDPHIEV
    depth_low_event: bool = attrs.field(default=False, validator=_flag)  # QDPLOEV
    expiry_cap: float | None = attrs.field(default=None, validator=_expiry_cap)  # CAPEXPRY, seconds

    buffer_size: int | None = attrs.field(default=None, validator=_buffer)  # bytes in memory; None: that of qm.ini

    def encode(self) -> bytes:
        return json.dumps(attrs.asdict(self, recurse=False)).encode()


class QueueAttributes(TypedDict, total=False):
    """What a queue can be defined with, for those who check types: the fields of `QueueDefinition`."""

    description: str
    put_enabled: bool
    get_enabled: bool
    default_priority: int
    default_persistence: bool
    max_depth: int
    max_message_length: int
    delivery_sequence: str
    non_persistent_class: str
    backout_threshold: int
    backout_queue: str
    image_recoverable: str
    depth_high: int
    depth_low: int
    depth_max_event: bool
    depth_high_event: bool
    depth_low_event: bool
    expiry_cap: float | None
    buffer_size: int | None


@attrs.frozen(kw_only=True)
class AliasDefinition:
    """Another name for a queue. Attributes are those of DEFINE QALIAS, in words."""

    name: str
    target: str = attrs.field(validator=_queue_or_blank)  # TARGET: the name of a queue, which need not be there
    description: str = attrs.field(default="", validator=_text(64))  # DESCR
    put_enabled: bool = attrs.field(default=True, validator=_flag)  # PUT
    get_enabled: bool = attrs.field(default=True, validator=_flag)  # GET
    default_priority: int | None = attrs.field(default=None, validator=_or_the_queues(_whole(0, 9)))  # DEFPRTY
    default_persistence: bool | None = attrs.field(default=None, validator=_or_the_queues(_flag))  # DEFPSIST

    def encode(self) -> bytes:
        return json.dumps(attrs.asdict(self, recurse=False)).encode()


class AliasAttributes(TypedDict, total=False):
    """What an alias can be defined with beside its target: the fields of `AliasDefinition`."""

    description: str
    put_enabled: bool
    get_enabled: bool
    default_priority: int | None
    default_persistence: bool | None


class ChangedAlias(AliasAttributes, total=False):
    """What of an alias can be changed."""

    target: str


def _known(kind: type[attrs.AttrsInstance], fields: dict[str, Any]) -> dict[str, Any]:
    """`fields` without those that a later version has added: within one format all of these may be left out."""
    names = attrs.fields_dict(kind)
    return {name: value for name, value in fields.items() if name in names}


def read_alias(fields: dict[str, Any]) -> AliasDefinition:
    return AliasDefinition(**_known(AliasDefinition, fields))


def decode_alias(data: bytes) -> AliasDefinition:
    return read_alias(json.loads(data))


def _or_off(most: int) -> Any:
    def check(_: object, attribute: "attrs.Attribute[int | None]", value: int | None) -> None:
        if value is not None and (type(value) is not int or not 1 <= value <= most):
            raise _refuse(attribute.name, value, f"a whole number from 1 to {most}, or None for OFF")

    return check


def _grants(given: Iterable[Grant | dict[str, Any]]) -> tuple[Grant, ...]:
    try:
        if isinstance(given, (str, bytes, bytearray, Mapping)):  # an empty one would take all rights away
            raise TypeError
        return tuple(one if isinstance(one, Grant) else Grant(**one) for one in given)
    except TypeError:
        raise _refuse("authorities", given, "grants, each with user, kind, profile and rights") from None


def _uncommitted(_: object, attribute: "attrs.Attribute[int | None]", value: int | None) -> None:
    if value is not None and (type(value) is not int or not 1 <= value <= UNLIMITED):
        raise _refuse(attribute.name, value, f"a whole number from 1 to {UNLIMITED}, or None for that of qm.ini")


@attrs.frozen(kw_only=True)
class QmgrDefinition:
    """The queue manager itself. Attributes are those of ALTER QMGR, in words."""

    description: str = attrs.field(default="", validator=_text(64))  # DESCR
    dead_letter_queue: str = attrs.field(default="", validator=_queue_or_blank)  # DEADQ
    max_uncommitted: int | None = attrs.field(default=None, validator=_uncommitted)  # MAXUMSGS; None: that of qm.ini
    max_handles: int = attrs.field(default=256, validator=_whole(0, UNLIMITED))  # MAXHANDS, of each client
    max_message_length: int = attrs.field(default=4_194_304, validator=_whole(32_768, MAX_MESSAGE_LENGTH))  # MAXMSGL
    performance_events: bool = attrs.field(default=False, validator=_flag)  # PERFMEV
    inhibit_events: bool = attrs.field(default=False, validator=_flag)  # INHIBTEV
    start_stop_events: bool = attrs.field(default=True, validator=_flag)  # STRSTPEV
    logger_events: bool = attrs.field(default=False, validator=_flag)  # LOGGEREV
    authority_events: bool = attrs.field(default=False, validator=_flag)  # AUTHOREV
    image_schedule: str = attrs.field(default="MANUAL", validator=_one_of("MANUAL", "AUTO"))  # IMGSCHED
    image_interval: int | None = attrs.field(default=60, validator=_or_off(UNLIMITED))  # IMGINTVL, minutes
    image_log_length: int | None = attrs.field(default=None, validator=_or_off(UNLIMITED))  # IMGLOGLN, MB
    image_recover_objects: bool = attrs.field(default=True, validator=_flag)  # IMGRCOVO
    image_recover_queues: bool = attrs.field(default=True, validator=_flag)  # IMGRCOVQ
    authorities: tuple[Grant, ...] = attrs.field(default=(), converter=_grants)  # AUTHREC

    def encode(self) -> bytes:
        return json.dumps(attrs.asdict(self)).encode()


class QmgrAttributes(TypedDict, total=False):
    """What of the queue manager can be changed: the fields of `QmgrDefinition`."""

    description: str
    dead_letter_queue: str
    max_uncommitted: int | None
    max_handles: int
    max_message_length: int
    performance_events: bool
    inhibit_events: bool
    start_stop_events: bool
    logger_events: bool
    authority_events: bool
    image_schedule: str
    image_interval: int | None
    image_log_length: int | None
    image_recover_objects: bool
    image_recover_queues: bool
    authorities: Iterable[Grant]


def read_qmgr(fields: dict[str, Any]) -> QmgrDefinition:
    """The definition that was encoded, perhaps by a version that knew fewer attributes, or more."""
    said = {"max_message_length": MAX_MESSAGE_LENGTH} | _known(QmgrDefinition, fields)  # it once had no limit
    grants = [Grant(**_known(Grant, one)) for one in said.pop("authorities", ())]
    return QmgrDefinition(**said, authorities=grants)


def decode_qmgr(data: bytes) -> QmgrDefinition:
    return read_qmgr(json.loads(data))


ATTRIBUTES = frozenset(f.name for f in attrs.fields(QueueDefinition)) - {"name", "id"}


def read_definition(fields: dict[str, Any]) -> QueueDefinition:
    return QueueDefinition(**_known(QueueDefinition, fields))


def decode_definition(data: bytes) -> QueueDefinition:
    return read_definition(json.loads(data))


QMGR_ATTRIBUTES = frozenset(f.name for f in attrs.fields(QmgrDefinition))
ALIAS_ATTRIBUTES = frozenset(f.name for f in attrs.fields(AliasDefinition)) - {"name"}
KNOWN = {
    QueueDefinition: (ATTRIBUTES, "queue"),
    QmgrDefinition: (QMGR_ATTRIBUTES, "queue manager"),
    AliasDefinition: (ALIAS_ATTRIBUTES, "alias"),
}
D = TypeVar("D", QueueDefinition, QmgrDefinition, AliasDefinition)


def with_attributes(definition: D, attributes: Mapping[str, Any]) -> D:
    """`definition` with these attributes changed. Raises Mistake that names the attribute and what is allowed."""
    known, what = KNOWN[type(definition)]
    article = "an" if what == "alias" else "a"
    for name in attributes:
        if name not in known:
            raise Mistake(f"{article} {what} has no attribute {name!r}; it has {', '.join(sorted(known))}")
    return attrs.evolve(definition, **attributes)
