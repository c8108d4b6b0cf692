"""Marks: which of Spark's batches are done, kept on a queue, so that a batch that is run again has its effect once.

*Operations*: claim a part of a batch, do what it does, commit; compare what is done again with what was done; list the
marks, forget some, skip a batch. *Goals*: whatever crashes, and however many attempts there are, also at the same time,
a part of a batch has its effect once; other rows under the number of a batch that was done are never taken for done;
what is remembered is bounded. *Plan*: there is a message for each part of a query, which says which of its batches was
done last, and the fingerprint of its rows. It is replaced in the unit of work that has the effect, so both are durable
or neither. That unit has an xid which is made of the query and the part. So there is one at a time: a second attempt
waits until the first has ended, and sees its mark. A unit whose process dies is backed out at once; its xid is free.
"""

import contextlib
import datetime
import hashlib
import json
import threading
from collections.abc import Iterator
from types import TracebackType
from typing import Self

import attrs

from logger.clock import Clock, SystemClock
from pipeline.fingerprint import Fingerprint
from qmgr import (
    AlreadyExists,
    Connection,
    Message,
    Mistake,
    MQError,
    NoMessageAvailable,
    QueueManager,
    Reason,
    TryAgain,
    UnitOfWork,
    UnknownQueue,
    Xid,
)
from qmgr.remote import RemoteUnit

QUEUE = "SYSTEM.SPARK.MARKS"
DESCRIPTION = "what was done of batches of Spark"
FORMAT = "SPKMARK"  # of the messages
XIDS = 0x53504B31  # format id of the xids
ID_BYTES = 24
ATTEMPT_TIMEOUT_S = 600.0  # in which an attempt waits for another one to end
POLL_S = 0.05
ALL = "*"  # the part that stands for all parts of a query: what was skipped
MAX_LISTED_PARTS = 20

Manager = QueueManager | Connection
Unit = UnitOfWork | RemoteUnit


@attrs.frozen(order=True)
class Key:
    """A part of a query, of which each batch is to have its effect once."""

    query: str  # id of the query, or of the writing
    part: str  # a partition's number, or who else has effects

    @property
    def digest(self) -> bytes:
        return hashlib.sha256(json.dumps([self.query, self.part]).encode()).digest()

    @property
    def correlation_id(self) -> bytes:
        return self.digest[:ID_BYTES]

    @property
    def group_id(self) -> bytes:
        """By which all marks of the query are found."""
        return _group(self.query)

    @property
    def xid(self) -> Xid:
        return Xid(XIDS, self.digest, b"")

    def __str__(self) -> str:
        return f"part {self.part} of {self.query}"


def _group(query: str) -> bytes:
    return hashlib.sha256(query.encode()).digest()[:ID_BYTES]


@attrs.frozen(kw_only=True)
class Mark:
    """The last batch that was done of a part."""

    key: Key
    batch: int
    messages: int  # that it had
    digest: str | None  # of the fingerprint of its rows; None: whatever they are, it is not to be done (`skip`)
    time: datetime.datetime  # when it was done, UTC


@attrs.define
class Claim:
    """The unit of work for one part of a batch. Leaving the `with` block without a commit backs it out."""

    key: Key
    batch: int
    unit: Unit
    done: Mark | None = None  # it was done before: the unit of work is over, and nothing is to be done

    def commit(self, what: Fingerprint, *, life: float | None = None) -> None:
        """Remember that it is done; all of it is durable when this returns. `life`: seconds that it is remembered."""
        _put(self.unit, self.key, self.batch, what.rows, what.digest, life)
        self.unit.commit()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, exc: BaseException | None, tb: TracebackType | None) -> None:
        with contextlib.suppress(MQError):  # it is over already: committed, or rolled back by the queue manager
            self.unit.backout()


def claim(
    qm: Manager, key: Key, batch: int, *, patience: float = ATTEMPT_TIMEOUT_S, clock: Clock | None = None
) -> Claim:
    """The unit of work in which this part of the batch is to be done, unless `.done` says that it was: then `compare`.

    Waits for another attempt to end. Raises TryAgain when that takes longer than `patience` seconds, and Mistake for a
    batch that is older than the last one that was done.
    """
    unit = _begin(qm, key, patience, clock or SystemClock())
    try:
        mark = _reached(qm, Key(key.query, ALL), batch) or _take(qm, unit, key)
        if mark is None or mark.batch < batch:
            return Claim(key, batch, unit)
        # What was seen may not be on disk yet. Since a mark was got, this returns when all is that came before.
        unit.backout()
        if mark.batch > batch:
            raise _older(mark, batch)
        return Claim(key, batch, unit, mark)
    except BaseException:
        with contextlib.suppress(MQError):
            unit.backout()
        raise


def done(qm: Manager, key: Key, batch: int) -> Mark | None:
    """The mark of this part of the batch, if it was done, by a look that claims nothing and waits for nobody.

    Raises Mistake for a batch that is older than the last one that was done.
    """
    mark = _reached(qm, Key(key.query, ALL), batch) or _reached(qm, key, batch)
    if mark is not None and mark.batch > batch:
        raise _older(mark, batch)
    return mark


def _reached(qm: Manager, key: Key, batch: int) -> Mark | None:
    """The mark, if it is one of this batch or of a later one."""
    try:
        found = next((decode(message) for message in qm.browse(QUEUE, correlation_id=key.correlation_id)), None)
    except UnknownQueue:
        return None
    return found if found is not None and found.batch >= batch else None


def _begin(qm: Manager, key: Key, patience: float, clock: Clock) -> Unit:
    """Begin the unit of work of a part, of which there is one at a time. Raises TryAgain when `patience` is over."""
    deadline = clock.elapsed_ns() + int(patience * 1e9)
    while True:
        try:
            return qm.begin(key.xid)
        except Mistake as exc:
            if exc.reason != Reason.UOW_IN_PROGRESS:
                raise
            if clock.elapsed_ns() >= deadline:
                raise TryAgain(
                    f"another attempt has been at work on {key} for {patience:g} seconds, at queue manager "
                    f"{qm.name!r}; wait until it has ended, or end its process: dspmqtrn shows which that is",
                    reason=Reason.UOW_IN_PROGRESS,
                    name=qm.name,
                ) from exc
        clock.wait(threading.Event(), POLL_S)


def _take(qm: Manager, unit: Unit, key: Key) -> Mark | None:
    """Get the mark, for another one to take its place."""
    try:
        return decode(unit.get(QUEUE, correlation_id=key.correlation_id))
    except NoMessageAvailable:
        return None
    except UnknownQueue:
        define(qm)
        return None


def _put(unit: Unit, key: Key, batch: int, messages: int, digest: str | None, life: float | None = None) -> None:
    fields = {"query": key.query, "part": key.part, "batch": batch, "messages": messages, "digest": digest}
    unit.put(
        QUEUE,
        json.dumps(fields).encode(),
        correlation_id=key.correlation_id,
        group_id=key.group_id,
        format=FORMAT,
        persistent=True,
        priority=0,
        expiry=life,
    )


def define(qm: Manager) -> None:
    """Define the queue of the marks, if it is not there."""
    with contextlib.suppress(AlreadyExists):  # another attempt was faster
        qm.define_queue(QUEUE, description=DESCRIPTION)


def decode(message: Message) -> Mark:
    """Raises Mistake for a message that is no mark."""
    try:
        fields = json.loads(message.body)
        key = Key(str(fields["query"]), str(fields["part"]))
        digest = None if fields["digest"] is None else str(fields["digest"])
        batch, messages = fields["batch"], fields["messages"]
        if type(batch) is not int or type(messages) is not int:
            raise ValueError("these are whole numbers")
        return Mark(key=key, batch=batch, messages=messages, digest=digest, time=message.put_time)
    except (ValueError, TypeError, KeyError, RecursionError) as exc:
        raise Mistake(
            f"message {message.message_id.hex()} on queue {QUEUE} is no mark of a batch that can be read; if it was "
            f"one, a batch that is run again has its effect again without it. End the queries that have marks here, "
            f"move it to another queue, and skip what may be run again before you start them (pipeline.marks.skip): "
            f"of a query the last batch in offsets of its checkpoint, if commits there does not have that",
            name=QUEUE,
        ) from exc


# ---- what is done again


def compare(qm: Manager, mark: Mark, key: Key, now: Fingerprint) -> None:
    """Raises Mistake where the rows are not those that were done: to go on would lose some, or put some twice."""
    if mark.digest is None or (mark.messages, mark.digest) == (now.rows, now.digest):
        return
    others = " others" if mark.messages == now.rows else ""
    raise Mistake(
        f"{key} was done with batch {mark.batch} before, with {mark.messages} messages, and now it has {now.rows}"
        f"{others}; {_parts_done(qm, mark)}: {_ways(mark.key.query, mark.batch)}"
    )


def refuse_left_over(qm: Manager, query: str, batch: int, parts: frozenset[str]) -> None:
    """Raises Mistake where a part that the batch has not got now has a mark of it, or of a later batch.

    The batch was divided otherwise then, and what that part had may be there twice.
    """
    left = [mark for mark in listed(qm, query) if mark.batch >= batch and mark.key.part not in (*parts, ALL)]
    for mark in left:
        if mark.batch > batch:
            raise _older(mark, batch)
    if left:
        raise Mistake(
            f"batch {batch} of {query} has {len(parts)} parts now, and before {left[0].key} was done with it, with "
            f"{left[0].messages} messages; {_parts_done(qm, left[0])}, and what it had may be there twice: "
            f"{_ways(query, batch)}"
        )


def _parts_done(qm: Manager, mark: Mark) -> str:
    """Which parts of the batch are done, as the end of a sentence."""
    there = [one for one in listed(qm, mark.key.query) if one.batch == mark.batch and one.digest is not None]
    some = ", ".join(f"{one.key.part} ({one.messages} messages)" for one in there[:MAX_LISTED_PARTS])
    more = f" and {len(there) - MAX_LISTED_PARTS} more" if len(there) > MAX_LISTED_PARTS else ""
    return f"done of this batch are the parts {some}{more}"


def _older(mark: Mark, batch: int) -> Mistake:
    return Mistake(
        f"{mark.key} was done up to batch {mark.batch} before, at {mark.time:%Y-%m-%d %H:%M:%S} UTC, and now it comes "
        f"with batch {batch}. A late attempt of a task that Spark has given up may fail so, which does no harm. "
        f"Else: {_ways(mark.key.query, batch)}"
    )


def _ways(query: str, batch: int) -> str:
    """Why it can be, and the ways out."""
    return (
        "the checkpoint was put back from an older copy, or its newest files are lost; or the batch is divided into "
        "other partitions, or makes other rows each time. Run it with the checkpoint, data and settings of then; or "
        f"have the whole batch put again (pipeline.marks.forget(qm, {query!r})); or go on behind it, which loses what "
        f"it has that is not there yet (pipeline.marks.skip(qm, {query!r}, {batch}))"
    )


# ---- what operators do


def listed(qm: Manager, query: str | None = None) -> list[Mark]:
    """The marks that there are, or those of one query, by query and part.

    Raises Mistake where one of them can't be read: to leave it out would say that nothing was done.
    """
    return sorted((mark for mark, _ in _browsed(qm, query)), key=lambda mark: mark.key)


def skip(qm: Manager, query: str, batch: int, *, patience: float = ATTEMPT_TIMEOUT_S) -> None:
    """Let a query that is refused go on behind this batch: take the batch for done, whatever it has.

    What it has that was not put, or consumed, before is left out by it for good. All other marks that the query had are
    deleted: the batches behind it are done, whatever was done under their numbers before. Raises TryAgain where the
    query is at work, and goes on with that, for longer than `patience` seconds.
    """
    define(qm)
    key = Key(query, ALL)
    before = [(mark, message_id) for mark, message_id in _browsed(qm, query) if mark.key != key]
    with _begin(qm, key, patience, SystemClock()) as unit:
        _take(qm, unit, key)
        _put(unit, key, batch, 0, None)
    _delete(qm, before, patience)  # and none that is made from now on


def forget(
    qm: Manager,
    query: str | None = None,
    *,
    before: datetime.datetime | None = None,
    patience: float = ATTEMPT_TIMEOUT_S,
) -> int:
    """Delete the marks of a query that will never return, or those of all that were done before a moment; how many.

    Should the query return nevertheless, the last batch of it may have its effect again. Raises TryAgain as `skip`.
    """
    if (query is None) == (before is None):
        raise Mistake("forget takes a query, or the moment before which the marks to be forgotten were made")
    found = [(mark, message_id) for mark, message_id in _browsed(qm, query) if before is None or mark.time < before]
    return _delete(qm, found, patience)


def _delete(qm: Manager, gone: list[tuple[Mark, bytes]], patience: float) -> int:
    """Delete these; how many were still there. No attempt is at work on a part while its mark is looked for."""
    deleted = 0
    for mark, message_id in gone:
        with _begin(qm, mark.key, patience, SystemClock()) as unit, contextlib.suppress(NoMessageAvailable):
            unit.get(QUEUE, message_id=message_id)  # no other one: a newer mark is of something that was done since
            deleted += 1
    return deleted


def _browsed(qm: Manager, query: str | None) -> Iterator[tuple[Mark, bytes]]:
    """The marks, or those of one query, with the ids of their messages."""
    try:
        for message in qm.browse(QUEUE) if query is None else qm.browse(QUEUE, group_id=_group(query)):
            yield decode(message), message.message_id
    except UnknownQueue:
        return
