"""What the log says of definitions and media images up to one LSN: what all queues can be built again from.

It is complete where the log reaches back to its very beginning, or holds an image of the definitions.
"""

import json
from collections.abc import Callable
from typing import Any, TypeVar

import attrs

from logger import lsn
from logger.errors import LogDamaged
from logger.progress import Progress, no_progress
from logger.reader import LogReader
from qmgr.objects import (
    AliasDefinition,
    QmgrDefinition,
    QueueDefinition,
    decode_alias,
    decode_definition,
    decode_qmgr,
    read_alias,
    read_definition,
    read_qmgr,
)
from qmgr.rebuild import Rebuild
from qmgr.store import Store
from recovery import image, records
from recovery.errors import NotRecoverable
from recovery.image import ImagePlace
from recovery.records import Kind, decode

T = TypeVar("T")
DEFINITION_KINDS = {
    *(Kind.DEFINE, Kind.DELETE, Kind.IMAGE_END, Kind.QMGR, Kind.CATALOG, Kind.DEFINE_ALIAS, Kind.DELETE_ALIAS),
}
IN_DOUBT_KINDS = {Kind.PREPARE, Kind.ROLL_FORWARD}
OUTCOME_KINDS = {Kind.COMMIT, Kind.BACKOUT}


@attrs.define
class Survey:
    """What there was, by the records before one LSN."""

    start: int  # LSN from which on records could be read
    until: int  # LSN behind the last record that was read
    complete: bool  # nothing that there was is missing
    time: int = 0  # of the last record, microseconds since 1970-01-01 UTC
    epoch: int = 0
    qmgr: QmgrDefinition = attrs.Factory(QmgrDefinition)
    queues: dict[int, tuple[QueueDefinition, ImagePlace | None]] = attrs.Factory(dict)
    aliases: dict[str, AliasDefinition] = attrs.Factory(dict)
    counters: dict[str, int] = attrs.Factory(lambda: {"queue": 1, "segment": 1})
    pieces: list[dict[str, Any]] = attrs.Factory(list)  # of an image of the definitions that is not complete yet,
    since: list[tuple[records.Record, int, int]] = attrs.Factory(list)  # and what was read since its first one
    doubtful: dict[int, int] = attrs.Factory(dict)  # units of work that are prepared -> LSN of the record of that
    begun: dict[int, int] = attrs.Factory(dict)  # units of work without an outcome -> LSN of the first record needed

    def take(self, record: records.Record, at: int, time: int) -> None:
        """Take in a record of DEFINITION_KINDS, which begins at the LSN `at`."""
        match record:
            case records.Define(encoded):
                definition = decode_definition(encoded)
                begins = ImagePlace(at, at, at, time) if self.complete else None  # else it may be an older one, altered
                _, place = self.queues.get(definition.id, (None, begins))
                self.queues[definition.id] = definition, place
                self.counters["queue"] = max(self.counters["queue"], definition.id + 1)
            case records.Delete(number):
                self.queues.pop(number, None)
            case records.ImageEnd(number, start, checkpoint, media):
                if number in self.queues:
                    self.queues[number] = self.queues[number][0], ImagePlace(start, checkpoint, media, time)
            case records.AlterQmgr(encoded):
                self.qmgr = decode_qmgr(encoded)
            case records.DefineAlias(encoded):
                alias = decode_alias(encoded)
                self.aliases[alias.name] = alias
            case records.DeleteAlias(name):
                self.aliases.pop(name, None)
            case records.Catalog(flags, content):
                self._take_catalog(flags, json.loads(content))
                return
        if self.pieces:
            self.since.append((record, at, time))

    def _take_catalog(self, flags: int, said: dict[str, Any]) -> None:
        """It is as of its first piece: what was read between the pieces is taken again when it is complete."""
        if flags & records.CATALOG_FIRST:
            self.pieces, self.since = [], []
        elif not self.pieces:
            return  # it begins before what can be read
        self.pieces.append(said)
        if not flags & records.CATALOG_LAST:
            return
        pieces, since, before = self.pieces, self.since, self.queues
        self.pieces, self.since, self.queues, self.complete = [], [], {}, True
        self.qmgr = read_qmgr(pieces[0]["qmgr"])
        aliases = [read_alias(alias) for piece in pieces for alias in piece.get("aliases", ())]
        self.aliases = {alias.name: alias for alias in aliases}
        self.counters |= pieces[0]["counters"]
        for one in (queue for piece in pieces for queue in piece["queues"]):
            definition = read_definition(one["definition"])
            _, known = before.get(definition.id, (None, None))
            self.queues[definition.id] = definition, ImagePlace(*one["image"]) if one["image"] else known
        for record, at, time in since:
            self.take(record, at, time)


def survey(reader: LogReader, start: int, until: int, *, first_lsn: int) -> Survey:
    """Read the log from `start` to the LSN `until`.

    `first_lsn`: where every log begins. If the record there is of epoch 1, there was nothing before it; the log of a
    queue manager that was recovered to a point in time begins with a later epoch, and there was. A record in whose
    middle `until` lies is left out. Raises LogDamaged.
    """
    found = Survey(start, start, complete=False)
    try:
        for raw in reader.records(start, durable=until, resync=True):
            if raw.end > until:
                break
            if raw.lsn == first_lsn:
                found.complete = raw.epoch == 1
            found.until, found.time, found.epoch = raw.end, raw.time, raw.epoch
            if raw.kind in OUTCOME_KINDS:
                found.doubtful.pop(raw.uow, None)
                found.begun.pop(raw.uow, None)
                continue
            if raw.uow:
                found.begun.setdefault(raw.uow, raw.lsn)
            if raw.kind in DEFINITION_KINDS:
                found.take(decode(raw.kind, raw.uow, raw.body), raw.lsn, raw.time)
            elif raw.kind in IN_DOUBT_KINDS:
                found.doubtful[raw.uow] = raw.lsn
                if raw.kind == Kind.ROLL_FORWARD:  # it has all that the unit has done
                    found.begun[raw.uow] = raw.lsn
    except LogDamaged:
        if reader.end < until:  # else the damage lies behind all that is wanted
            raise
    return found


def past_damage(
    look: Callable[[int], T], start: int, reader: LogReader, *, extent_bytes: int, head: int
) -> tuple[T, int, LogDamaged | None]:
    """(what `look(start)` reads, the start with which it was read, the damage that was passed over, if any).

    Where an extent before the head is damaged, `look` begins behind it, as if it were missing. Raises LogDamaged where
    that would be behind the head.
    """
    damage = None
    while True:
        try:
            return look(start), start, damage
        except LogDamaged as exc:
            damage = damage or exc
            start = max(start, reader.end // extent_bytes * extent_bytes) + extent_bytes
            if start > head:
                raise damage from None


def rebuilt(found: Survey, like: Store, reader: LogReader, progress: Progress = no_progress) -> Rebuild:
    """All queues as they were, in the directory of `like`. Raises NotRecoverable, LogDamaged, OSError.

    Units of work that had no outcome then are in flight or in doubt in it.
    """
    if not found.complete:
        raise NotRecoverable(
            f"the log that is there begins at {lsn.text(found.start)} and has no image of the definitions from before "
            f"what is wanted; bring the older extents back, or take a later moment"
        )
    like.next_segment = max(like.next_segment, found.counters["segment"])
    rebuild = Rebuild(like)
    rebuild.take_attributes(found.qmgr)
    rebuild.aliases = dict(found.aliases)
    first = min(found.doubtful.values(), default=found.until)  # one that has used no queue is in no image
    for definition, place in found.queues.values():
        if place is None or place.media < found.start:
            since = "was never recorded" if place is None else f"needs the log from {lsn.text(place.media)}"
            raise NotRecoverable(
                f"queue {definition.name!r} can't be built again: its media image {since}, and the log that is there "
                f"begins at {lsn.text(found.start)}; bring the older extents back, or take a later moment"
            )
        rebuild.add_image(image.read(reader, place, found.until), place)
        first = min(first, place.media)
    rebuild.next_queue = max(rebuild.next_queue, found.counters["queue"])
    rebuild.replay(reader, first, found.until, progress)
    return rebuild
