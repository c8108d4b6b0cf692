"""Media images: a queue as it was at one LSN, in the log, from which it can be built again.

    IMAGE_START, IMAGE_PART …, IMAGE_END        with other records between them

What an image holds is what the checkpoint held that was taken just before it: nothing stops for it, and whatever came
after that checkpoint is in the log anyway. The parts are blocks of segments as they are. An image counts when its end
is in the log; until then the one before does.

The record that defines a queue is the first image of it.
"""

import json
from collections.abc import Iterator
from typing import Any, NamedTuple

import attrs

from logger import lsn
from logger.errors import LogDamaged
from logger.reader import LogReader
from recovery import backouts
from recovery.backouts import Backouts
from recovery.records import Define, ImageEnd, ImagePart, ImageStart, Kind, decode


class ImagePlace(NamedTuple):
    """Where an image lies, all LSNs, and when it was recorded."""

    start: int  # of its first record
    checkpoint: int  # it holds the state before this LSN
    media: int  # of the first record that is needed beside it: of the units of work that were in flight
    time: int  # microseconds since 1970-01-01 UTC


@attrs.frozen
class Image:
    """What an image says."""

    queue: int
    definition: bytes  # JSON
    next_sequence: int
    backouts: Backouts
    units: dict[int, int]  # number -> first LSN of the units of work that were in flight
    parts: Iterator[ImagePart]


PART, END = int(Kind.IMAGE_PART), int(Kind.IMAGE_END)
HEADED_PART = 516  # kind of the parts of an earlier version, whose cells had a header each


def notes(fields: dict[str, Any], checkpoint_lsn: int, units: dict[int, int]) -> bytes:
    """The body of IMAGE_START; `fields` is the queue's line of the checkpoint's catalogue."""
    said = {
        "definition": fields["definition"],
        "next": fields["next"],
        "backouts": fields["backouts"][1],
        "checkpoint": checkpoint_lsn,
        "units": units,
    }
    return json.dumps(said).encode()


def read(reader: LogReader, place: ImagePlace, durable: int) -> Image:
    """The image at this place; its parts are read as they are asked for. Raises LogDamaged.

    The log was durable up to the LSN `durable`.
    """
    raws = reader.records(place.start, durable=durable)
    first = next(raws, None)
    record = None if first is None else decode(first.kind, first.uow, first.body)
    if isinstance(record, Define):
        queue: int = json.loads(record.definition)["id"]
        return Image(queue, record.definition, 1, Backouts(), {}, iter(()))
    if not isinstance(record, ImageStart):
        raise LogDamaged(f"no media image begins at {lsn.text(place.start)} of the log", lsn=place.start)
    said = json.loads(record.notes)

    def parts() -> Iterator[ImagePart]:
        for raw in raws:
            if raw.kind == HEADED_PART:
                text = (
                    f"the media image at {lsn.text(place.start)} of the log is of an earlier version; record a new one"
                )
                raise LogDamaged(text, lsn=raw.lsn)
            if raw.kind in (PART, END):
                piece = decode(raw.kind, raw.uow, raw.body)
                if isinstance(piece, ImagePart) and piece.start == place.start:
                    yield piece
                elif isinstance(piece, ImageEnd) and piece.start == place.start:
                    return
        raise LogDamaged(f"the media image at {lsn.text(place.start)} of the log has no end", lsn=place.start)

    return Image(
        queue=record.queue,
        definition=json.dumps(said["definition"]).encode(),
        next_sequence=said["next"],
        backouts=backouts.read(said["backouts"]),
        units={int(number): first_lsn for number, first_lsn in said["units"].items()},
        parts=parts(),
    )
