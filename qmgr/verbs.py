"""What calls ask for, checked against the state: may it be done? Changes nothing."""

import contextlib
from collections.abc import Callable, Iterator, Mapping
from typing import Any, TypedDict, cast

import attrs

from qmgr import message as m
from qmgr.errors import (
    AliasOfAlias,
    BackedOut,
    Damaged,
    Inhibited,
    MessageTooBig,
    Mistake,
    NoMessageAvailable,
    QueueFull,
    Reason,
    SyncpointLimit,
    UnitOfWorkEnded,
    UnknownQueue,
    quoted,
)
from qmgr.ids import CORRELATION_ID, GROUP_ID, MESSAGE_ID, id_of
from qmgr.message import NO_ID, NO_PROPERTIES, Descriptor
from qmgr.objects import check_flag, check_name
from qmgr.queue import Queue
from qmgr.state import State
from recovery.records import Xid
from recovery.uows import ACTIVE, BACKED_OUT, PREPARED, Uow


def known_queue(state: State, name: object) -> Queue:
    """The queue of that name, or that an alias of that name stands for. Raises NameError_, UnknownQueue, Damaged."""
    queue = state.queues.get(name) if isinstance(name, str) else None
    if queue is None:
        queue = base_of(state, name)
    if queue.damaged:
        raise damaged(queue)
    return queue


def base_of(state: State, name: object) -> Queue:
    """The queue that an alias stands for. Raises NameError_, UnknownQueue, AliasOfAlias."""
    alias = state.aliases.get(name) if isinstance(name, str) else None
    if alias is None:
        check_name(name, "queue")
        raise UnknownQueue(f"there is no queue {name!r}; define it first", name=str(name))
    queue = state.queues.get(alias.target)
    if queue is not None:
        return queue
    if alias.target in state.aliases:
        raise AliasOfAlias(
            f"alias {name!r} stands for {alias.target!r}, which is an alias itself; alter it to a queue",
            name=alias.name,
        )
    if not alias.target:
        text = f"alias {name!r} stands for no queue yet; alter it"
        raise UnknownQueue(text, reason=Reason.UNKNOWN_ALIAS_BASE_Q, name=alias.name)
    raise UnknownQueue(
        f"alias {name!r} stands for queue {alias.target!r}, which is not there; define it, or alter the alias",
        reason=Reason.UNKNOWN_ALIAS_BASE_Q,
        name=alias.name,
    )


def with_defaults(state: State, name: str, options: "PutOptions") -> "PutOptions":
    """The options of a put by this name of a queue, which may be an alias with defaults of its own."""
    alias = state.aliases.get(name)
    if alias is None:
        return options
    said = {"persistent": alias.default_persistence, "priority": alias.default_priority}
    missing = {key: value for key, value in said.items() if value is not None and options.get(key) is None}
    return cast("PutOptions", {**options, **missing}) if missing else options


def check_alias(state: State, name: str, queue: Queue, *, put: bool) -> None:
    """May one put to, or get from, the queue by that name of it? Raises UnknownQueue, Inhibited."""
    alias = state.aliases.get(name)
    if alias is None or alias.target != queue.name:
        raise UnknownQueue(f"{name!r} stands for queue {queue.name!r} no more", reason=Reason.Q_DELETED, name=name)
    if put and not alias.put_enabled:
        raise Inhibited(f"puts to alias {name!r} are disabled; {INHIBITED_ADVICE} PUT(ENABLED)", name=name)
    if not put and not alias.get_enabled:
        text = f"gets from alias {name!r} are disabled; {INHIBITED_ADVICE} GET(ENABLED)"
        raise Inhibited(text, name=name, reason=Reason.GET_INHIBITED)


def local_queue(state: State, name: object) -> Queue:
    """The queue of that name; an alias will not do. Raises NameError_, UnknownQueue, Damaged, Mistake (2057)."""
    refuse_alias(state, name)
    return known_queue(state, name)


def refuse_alias(state: State, name: object) -> None:
    """Raises Mistake (2057) if that is the name of an alias."""
    if isinstance(name, str) and name in state.aliases:
        raise Mistake(
            f"{name!r} is an alias of queue {state.aliases[name].target!r}; name that, or use alter_alias and "
            f"delete_alias",
            reason=Reason.Q_TYPE_ERROR,
            name=name,
        )


def damaged(queue: Queue) -> Damaged:
    """The error of a call to a damaged queue, with the way out."""
    if queue.blocked:
        return Damaged(f"queue {queue.name!r} can't be used now: {queue.damaged}; try again later", name=queue.name)
    way = "delete the queue with PURGE (purge=True), or restore the queue manager from a backup"
    if queue.image is not None:
        way = "recreate it from its media image (rcrmqobj, or qm.recreate), or delete it with PURGE (purge=True)"
    return Damaged(f"queue {queue.name!r} is damaged: {queue.damaged}; {way}", name=queue.name)


def deleted(name: str) -> UnknownQueue:
    """The error of a call to a queue that was there when the call began."""
    return UnknownQueue(f"queue {name!r} was deleted", reason=Reason.Q_DELETED, name=name)


INHIBITED_ADVICE = "try again later, or alter it to"
MAX_WAIT_S = 1e9  # seconds: more is for ever, since the system can't wait for centuries


class PutOptions(TypedDict, total=False):
    """What a put can be given; None, like leaving it out, takes the queue's default, or a new message id."""

    persistent: bool | None
    priority: int | None  # 0 to 9
    expiry: float | None  # seconds
    message_id: bytes | None  # at most 24 bytes
    correlation_id: bytes | None  # at most 24 bytes
    reply_to: str | None
    properties: Mapping[str, m.Value] | None
    format: str | None
    group_id: bytes | None  # at most 24 bytes
    group_sequence: int | None  # in the group, from 1 on; of the first where several are put
    last_in_group: bool | None


PUT_OPTIONS = PutOptions.__annotations__


class GetOptions(TypedDict, total=False):
    """What a get can be given, beside how long it waits; None and False are like leaving it out."""

    message_id: bytes | None  # at most 24 bytes
    correlation_id: bytes | None  # at most 24 bytes
    group_id: bytes | None  # at most 24 bytes
    logical_order: bool  # groups in their order, one after the other; in a unit of work
    all_available: bool  # the same, and only groups that are there whole
    backout_requeue: bool  # move what was backed out too often away first (BOTHRESH, BOQNAME)


GET_OPTIONS = GetOptions.__annotations__
IDS = frozenset(["message_id", "correlation_id", "group_id"])


@attrs.frozen
class Wanted:
    """Which messages a get takes."""

    message_id: bytes | None = None
    correlation_id: bytes | None = None
    group_id: bytes | None = None
    logical_order: bool = False
    all_available: bool = False
    backout_requeue: bool = False
    selective: bool = attrs.field(init=False)  # does it pass some messages over?

    @selective.default
    def _is_selective(self) -> bool:
        no_id = self.message_id is None and self.correlation_id is None and self.group_id is None
        return self.logical_order or not no_id

    def fits(self, head: bytes) -> bool:
        """May the message with this head be one of them? In logical order others may have to come before it."""
        return self.logical_order or not (
            (self.message_id is not None and self.message_id != id_of(head, MESSAGE_ID))
            or (self.correlation_id is not None and self.correlation_id != id_of(head, CORRELATION_ID))
            or (self.group_id is not None and self.group_id != id_of(head, GROUP_ID))
        )

    @property
    def which(self) -> int:
        """The id by which they are found."""
        if self.message_id is not None:
            return MESSAGE_ID
        return CORRELATION_ID if self.correlation_id is not None and self.group_id is None else GROUP_ID


ANY = Wanted()


def wanted(options: GetOptions) -> Wanted:
    """What these options say; ANY where they say nothing. Raises Mistake."""
    silent = True
    for name, value in options.items():
        if name not in GET_OPTIONS:
            raise TypeError(f"a get has no option {name!r}; it has wait, {', '.join(GET_OPTIONS)}")
        silent = silent and (value is None or (value is False and name not in IDS))
    if silent:
        return ANY
    ids = check_selectors(options.get("message_id"), options.get("correlation_id"), options.get("group_id"))
    if options.keys() <= IDS:
        return ids if ids.selective else ANY
    complete = _flag_of(options, "all_available")
    said = Wanted(
        message_id=ids.message_id,
        correlation_id=ids.correlation_id,
        group_id=ids.group_id,
        logical_order=_flag_of(options, "logical_order") or complete,
        all_available=complete,
        backout_requeue=_flag_of(options, "backout_requeue"),
    )
    by_id = ids.message_id is not None or ids.correlation_id is not None
    if said.logical_order and (by_id or said.backout_requeue):
        text = "groups in logical order are got without message_id, correlation_id and backout_requeue"
        raise Mistake(text, reason=Reason.OPTIONS_ERROR)
    return said if said.selective or said.backout_requeue else ANY


def _flag_of(options: Mapping[str, Any], name: str) -> bool:
    value = options.get(name)
    return value is not None and check_flag(value, name)


def given_id(options: PutOptions) -> bytes | None:
    """The message id that a put names; None for a new one. Raises Mistake."""
    return _id(options.get("message_id"), "message_id")


def _id(value: Any, what: str) -> bytes | None:
    """An id that was given; None also where it is all zero, which is that of none (MQMI_NONE). Raises Mistake."""
    given = NO_ID if value is None else m.check_id(value, what)
    return None if given == NO_ID else given


def describe(queue: Queue, options: PutOptions, expires_at: Callable[[float], int]) -> Descriptor:
    """What a put asks for, with the queue's defaults; `expires_at(seconds)` by the steady clock. Raises Mistake."""
    definition = queue.definition
    for name in options:
        if name not in PUT_OPTIONS:
            raise TypeError(f"a put has no option {name!r}; it has {', '.join(PUT_OPTIONS)}")
    persistent, priority, expiry = options.get("persistent"), options.get("priority"), options.get("expiry")
    correlation_id, reply_to = options.get("correlation_id"), options.get("reply_to")
    form, properties = options.get("format"), options.get("properties")
    group = None
    if "group_id" in options or "group_sequence" in options or "last_in_group" in options:
        group = m.check_group(options.get("group_id"), options.get("group_sequence"), options.get("last_in_group"))
    if expiry is not None:
        expiry = m.check_expiry(expiry)
    if definition.expiry_cap is not None:
        expiry = definition.expiry_cap if expiry is None else min(expiry, definition.expiry_cap)
    return m.describe(
        definition.default_priority if priority is None else m.check_priority(priority),
        definition.default_persistence if persistent is None else m.check_persistent(persistent),
        expires=0 if expiry is None else expires_at(expiry),
        expiry=expiry,
        correlation_id=NO_ID if correlation_id is None else m.check_id(correlation_id, "correlation_id"),
        reply_to="" if reply_to is None else m.check_reply_to(reply_to),
        form="" if form is None else m.check_format(form),
        properties=NO_PROPERTIES if properties is None else m.check_properties(properties),
        group=group,
    )


def check_put(queue: Queue, size: int, count: int = 1) -> None:
    """May `count` messages of at most `size` bytes be put? Raises UnknownQueue, Inhibited, MessageTooBig, QueueFull."""
    definition = queue.definition
    if queue.damaged:
        raise damaged(queue)
    if queue.deleted:
        raise deleted(queue.name)
    if not definition.put_enabled:
        raise Inhibited(f"puts to queue {queue.name!r} are disabled; {INHIBITED_ADVICE} PUT(ENABLED)", name=queue.name)
    if size > definition.max_message_length:
        raise MessageTooBig(
            f"a message of {size} bytes is longer than the {definition.max_message_length} (max_message_length) that "
            f"queue {queue.name!r} takes; make it shorter, or alter max_message_length (MAXMSGL)",
            name=queue.name,
        )
    if size > queue.max_length:
        raise MessageTooBig(
            f"a message of {size} bytes is longer than the {queue.max_length} (max_message_length) that the queue "
            f"manager takes; make it shorter, or alter max_message_length (MAXMSGL) of the queue manager",
            reason=Reason.MSG_TOO_BIG_FOR_Q_MGR,
            name=queue.name,
        )
    if queue.depth + count > definition.max_depth:
        raise QueueFull(
            f"queue {queue.name!r} holds {queue.depth} messages and max_depth is {definition.max_depth}; "
            f"get some, or alter max_depth (MAXDEPTH)",
            name=queue.name,
        )


def check_get(queue: Queue) -> None:
    """May messages be got? Raises Damaged, UnknownQueue (2052), Inhibited (2016)."""
    if queue.damaged:
        raise damaged(queue)
    if queue.deleted:
        raise deleted(queue.name)
    if not queue.definition.get_enabled:
        text = f"gets from queue {queue.name!r} are disabled; {INHIBITED_ADVICE} GET(ENABLED)"
        raise Inhibited(text, name=queue.name, reason=Reason.GET_INHIBITED)


@contextlib.contextmanager
def waiting_at(name: str) -> Iterator[None]:
    """A get that waits has found the queue: when there is none of the name any more, it was deleted (2052)."""
    try:
        yield
    except UnknownQueue as exc:
        raise deleted(name) from exc


def check_unit(unit: Uow, count: int, most: int) -> None:
    """May the unit of work go on, with `count` more messages? Raises BackedOut, UnitOfWorkEnded, SyncpointLimit."""
    if unit.state is not ACTIVE:
        raise ended(unit)
    if unit.put_count + len(unit.gets) + count > most:
        raise SyncpointLimit(
            f"a unit of work has at most {most} messages (MAXUMSGS, MaxUncommittedMsgs); commit it or back it out, and "
            f"go on in another"
        )


def ended(unit: Uow) -> BackedOut | UnitOfWorkEnded:
    """Why nothing more can be done in a unit of work."""
    if unit.state is BACKED_OUT and unit.evicted:
        return BackedOut(
            f"unit of work {unit.number} was rolled back by the queue manager to release log space; back it out and "
            f"start it again; if that happens each time, commit more often (it had put {unit.put_bytes} bytes), or "
            f"give the log more or larger files (LogPrimaryFiles, LogSecondaryFiles)"
        )
    way = "commit it or back it out" if unit.state is PREPARED else "begin another one"
    return UnitOfWorkEnded(f"unit of work {unit.number} is {unit.state.value}; {way}")


def check_wait(wait: Any) -> float | None:
    """Seconds to wait, None for ever. Raises Mistake."""
    if wait is None:
        return None
    if not isinstance(wait, (int, float)) or isinstance(wait, bool) or not wait >= 0:
        raise Mistake(
            f"wait is seconds, 0 or more, or None for ever, not {quoted(wait)}", reason=Reason.WAIT_INTERVAL_ERROR
        )
    return None if wait > MAX_WAIT_S else wait


def check_selectors(message_id: Any, correlation_id: Any, group_id: Any) -> Wanted:
    """The messages with these ids; with any where they are all zero. Raises Mistake."""
    return Wanted(
        message_id=_id(message_id, "message_id"),
        correlation_id=_id(correlation_id, "correlation_id"),
        group_id=None if group_id is None else m.check_group_id(group_id),
    )


def not_its_own(unit: object, name: str) -> Mistake:
    """The error for a dead letter in a unit of work of another queue manager, or of another connection."""
    text = f"a dead letter for queue manager {name!r} is put in a unit of work begun with the same object, or in None"
    return Mistake(f"{text}, not in {quoted(unit)}", reason=Reason.UOW_NOT_AVAILABLE, name=name)


def no_message(name: str) -> NoMessageAvailable:
    """The error of a get that has found none."""
    return NoMessageAvailable(f"queue {name!r} has no message for this get", name=name)


def check_resolution(xid: object, commit: object) -> None:
    """Raises Mistake unless it says which unit of work has which outcome."""
    if not isinstance(xid, Xid) or not isinstance(commit, bool):
        raise Mistake(f"resolve takes an Xid and True or False, not {quoted(xid)} and {quoted(commit)}")


def check_end_mode(mode: object) -> None:
    """Raises Mistake for what is no way to end a queue manager."""
    if mode not in ("quiesce", "immediate"):
        raise Mistake(f"mode is 'quiesce' or 'immediate', not {quoted(mode)}")


def check_limit(limit: Any) -> int:
    """Return `limit`, if it is a number of messages. Raises Mistake (2046)."""
    if type(limit) is not int or limit < 1:
        raise Mistake(f"limit is a whole number, 1 or more, not {quoted(limit)}", reason=Reason.OPTIONS_ERROR)
    return limit
