"""Marks: what a queue manager remembers of Spark's batches, so that what Spark does twice has its effect once.

*Operations*: claim a part of a batch, do what it does, commit; list the marks, forget some. *Goals*: whatever crashes,
and however many attempts there are, also at the same time, a part of a batch has its effect once; what is remembered
is bounded. *Plan*: there is a message for each part of a query, which says which of its batches was done last. It is
replaced in the unit of work that has the effect, so both are durable or neither. That unit has an xid which is made of
the query and the part. So there is one at a time: a second attempt waits until the first has ended, and sees its mark.
A unit whose process dies is backed out at once, and its xid is free.
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
ID = 24  # bytes
PATIENCE = 600.0  # seconds that an attempt waits for another one to end
A_MOMENT = 0.05
A_FEW = 500  # marks that are forgotten in one unit of work
MESSAGES = 2  # of a unit of work: the mark that goes, and the one that comes

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
        return self.digest[:ID]

    @property
    def xid(self) -> Xid:
        return Xid(XIDS, self.digest, b"")

    def __str__(self) -> str:
        return f"part {self.part} of {self.query}"


@attrs.frozen(kw_only=True)
class Mark:
    """The last batch that was done of a part."""

    key: Key
    batch: int
    messages: int  # that it had
    time: datetime.datetime  # when it was done, UTC


@attrs.define
class Claim:
    """The unit of work for one part of a batch. Leaving the `with` block without a commit backs it out."""

    key: Key
    batch: int
    unit: Unit
    done: Mark | None = None  # it was done before: the unit of work is over, and nothing is to be done

    def commit(self, messages: int, *, life: float | None = None) -> None:
        """Remember that it is done; all of it is durable when this returns. `life`: seconds that it is remembered."""
        told = {"query": self.key.query, "part": self.key.part, "batch": self.batch, "messages": messages}
        self.unit.put(
            QUEUE,
            json.dumps(told).encode(),
            correlation_id=self.key.correlation_id,
            format=FORMAT,
            persistent=True,
            priority=0,
            expiry=life,
        )
        self.unit.commit()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, exc: BaseException | None, tb: TracebackType | None) -> None:
        with contextlib.suppress(MQError):  # it is over already: committed, or rolled back by the queue manager
            self.unit.backout()


def claim(qm: Manager, key: Key, batch: int, *, patience: float = PATIENCE, clock: Clock | None = None) -> Claim:
    """The unit of work in which this part of the batch is to be done, unless `.done` says that it was.

    Waits for another attempt to end. Raises TryAgain when that takes longer than `patience` seconds.
    """
    unit = _begin(qm, key, patience, clock or SystemClock())
    try:
        mark = _take(qm, unit, key)
        if mark is None or mark.batch < batch:
            return Claim(key, batch, unit)
        # What was seen may not be on disk yet. Since a mark was got, this returns when all is that came before.
        unit.backout()
        return Claim(key, batch, unit, mark)
    except BaseException:
        with contextlib.suppress(MQError):
            unit.backout()
        raise


def _begin(qm: Manager, key: Key, patience: float, clock: Clock) -> Unit:
    """Begin the unit of work that there is one of at a time."""
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
        clock.wait(threading.Event(), A_MOMENT)


def _take(qm: Manager, unit: Unit, key: Key) -> Mark | None:
    """Get the mark, for another one to take its place."""
    try:
        return decode(unit.get(QUEUE, correlation_id=key.correlation_id))
    except NoMessageAvailable:
        return None
    except UnknownQueue:
        define(qm)
        return None


def define(qm: Manager) -> None:
    """Define the queue of the marks, if it is not there."""
    with contextlib.suppress(AlreadyExists):  # another attempt was faster
        qm.define_queue(QUEUE, description=DESCRIPTION)


def decode(message: Message) -> Mark:
    """Raises Mistake for a message that is no mark."""
    try:
        told = json.loads(message.body)
        key = Key(str(told["query"]), str(told["part"]))
        return Mark(key=key, batch=int(told["batch"]), messages=int(told["messages"]), time=message.put_time)
    except (ValueError, TypeError, KeyError) as exc:
        text = f"message {message.message_id.hex()} on queue {QUEUE} is no mark of a batch; move it to another queue"
        raise Mistake(text, name=QUEUE) from exc


# ---- what operators do


def listed(qm: Manager) -> list[Mark]:
    """The marks that there are, by query and part."""
    return sorted((mark for mark, _ in _browsed(qm)), key=lambda mark: mark.key)


def forget(qm: Manager, query: str | None = None, *, before: datetime.datetime | None = None) -> int:
    """Delete the marks of a query that will never return, or those of all that were done before a moment; how many.

    Should the query return nevertheless, the last batch of it may have its effect again.
    """
    if (query is None) == (before is None):
        raise Mistake("forget takes a query, or the moment before which the marks to be forgotten were made")
    gone = [
        message_id
        for mark, message_id in _browsed(qm)
        if (mark.key.query == query if before is None else mark.time < before)
    ]
    forgotten = 0
    for start in range(0, len(gone), A_FEW):
        with qm.begin() as unit:
            for message_id in gone[start : start + A_FEW]:
                with contextlib.suppress(NoMessageAvailable):  # its query has replaced it
                    unit.get(QUEUE, message_id=message_id)
                    forgotten += 1
    return forgotten


def _browsed(qm: Manager) -> Iterator[tuple[Mark, bytes]]:
    """The marks with the ids of their messages."""
    try:
        for message in qm.browse(QUEUE):
            yield decode(message), message.message_id
    except UnknownQueue:
        return
