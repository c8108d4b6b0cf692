"""Archive plans: what is to become of the extents that no restart needs, by their ages. Pure: looks at no file."""

import enum
from collections.abc import Mapping, Sequence

import attrs

from logger.compressed import Compression
from logger.history import Form, Place

UNIT_SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86400, "w": 604800}
MAX_AGE_SECONDS = 999_999_999


def parse_age(text: str) -> int:
    """The seconds in `90s`, `15m`, `36h`, `7d` or `4w`. Raises ValueError."""
    number, unit = text[:-1], text[-1:].lower()
    if not (number.isascii() and number.isdigit()) or unit not in UNIT_SECONDS:
        raise ValueError(f"{text[:40]!r} is not an age; write a whole number and s, m, h, d or w, such as 36h")
    if len(number) > len(str(MAX_AGE_SECONDS)) or int(number) * UNIT_SECONDS[unit] > MAX_AGE_SECONDS:
        raise ValueError(f"{text[:40]!r} is too long; an age is at most {MAX_AGE_SECONDS // UNIT_SECONDS['d']}d")
    return int(number) * UNIT_SECONDS[unit]


def age_text(seconds: int) -> str:
    """The shortest text that `parse_age` reads as so many seconds."""
    exact = [unit for unit, size in UNIT_SECONDS.items() if seconds % size == 0]
    unit = max(exact, key=UNIT_SECONDS.__getitem__) if seconds else "s"
    return f"{seconds // UNIT_SECONDS[unit]}{unit}"


@attrs.frozen(kw_only=True)
class ArchivePolicy:
    """The LogArchive stanza of qm.ini. Ages in seconds since an extent was last written; None: never."""

    archive_after: int | None = None
    compress_after: int | None = None
    remove_after: int | None = None
    compression: Compression = Compression.GZIP


# What to do


class Action(enum.Enum):
    ARCHIVE = "archive"
    COMPRESS = "compress"
    REMOVE = "remove"


DONE = {Action.ARCHIVE: "archived", Action.COMPRESS: "compressed", Action.REMOVE: "removed"}


@attrs.frozen(kw_only=True)
class Step:
    """One extent, and what is done with its file."""

    action: Action
    sequence: int
    paths: tuple[str, ...]  # one file; of an extent that is removed all its files
    target: str  # what it becomes; empty when it is removed
    size: int  # bytes on disk

    def text(self) -> str:
        """The step in one line, for people."""
        to = f" to {self.target}" if self.target else ""
        return f"{self.action.value} {' and '.join(self.paths)}{to} ({self.size} bytes)"


@attrs.frozen(kw_only=True)
class Held:
    """Why removal stops at an extent that is old enough."""

    sequence: int
    path: str
    gates: tuple[str, ...]

    def text(self) -> str:
        return f"{self.path} and what came after it is kept: it is still needed for {' and '.join(self.gates)}"


@attrs.frozen(kw_only=True)
class Plan:
    """What would be done, in order."""

    steps: tuple[Step, ...]
    held: Held | None = None
    damaged: tuple[str, ...] = ()  # files that were cut or damaged, so that nothing is done with them

    @property
    def size(self) -> int:
        """Bytes of all files that the steps begin with."""
        return sum(step.size for step in self.steps)


Copies = Mapping[int, Sequence[Place]]  # as `History.copies` gives them


def last_written(copies: Copies) -> dict[int, int]:
    """When each extent was last written, microseconds since 1970-01-01 UTC; not the newest, which may be written now.

    That is when the next one took its place in the stream. The files' own times say nothing: they are made ahead.
    """
    found: dict[int, int] = {}
    later = 0
    for sequence in sorted(copies, reverse=True):
        if later:
            found[sequence] = later
        later = copies[sequence][0].taken or later
    return found


def _old_enough(copies: Copies, after: int, now_us: int, active_from: int) -> list[int]:
    """The sequences before `active_from` whose age is at least `after` seconds, rising."""
    written = last_written(copies)
    return [
        sequence
        for sequence in sorted(copies)
        if sequence < active_from and sequence in written and now_us - written[sequence] >= after * 1_000_000
    ]


def plan_archive(copies: Copies, directory: str, *, after: int, now_us: int, active_from: int) -> Plan:
    """Move to `directory` every file outside of it that is old enough and not needed for a restart."""
    return Plan(
        steps=tuple(
            Step(
                action=Action.ARCHIVE,
                sequence=sequence,
                paths=(place.path,),
                target=f"{directory}/{name_in(place.path)}",
                size=place.size,
            )
            for sequence in _old_enough(copies, after, now_us, active_from)
            for place in copies[sequence]
            if directory_of(place.path) != directory
        )
    )


def plan_compress(copies: Copies, kind: Compression, *, after: int, now_us: int, active_from: int) -> Plan:
    """Compress every plain file that is old enough and not needed for a restart, where it lies."""
    return Plan(
        steps=tuple(
            Step(
                action=Action.COMPRESS,
                sequence=sequence,
                paths=(place.path,),
                target=place.path + kind.suffix,
                size=place.size,
            )
            for sequence in _old_enough(copies, after, now_us, active_from)
            for place in copies[sequence]
            if place.form is not Form.COMPRESSED
        )
    )


def plan_remove(copies: Copies, needed_from: Mapping[str, int], *, after: int, now_us: int, active_from: int) -> Plan:
    """Remove the oldest extents, up to the first that is too young or still needed.

    `needed_from`: by the name of a gate ("media recovery", "reader" …) the first sequence that it still needs. What a
    restart needs, from `active_from` on, is one of them always.
    """
    gates = {**needed_from, "restart": min(active_from, needed_from.get("restart", active_from))}
    written = last_written(copies)
    steps: list[Step] = []
    for sequence in sorted(copies):
        if sequence not in written or now_us - written[sequence] < after * 1_000_000:
            break
        places = copies[sequence]
        held = held_by(gates, sequence, places[0].path)
        if held is not None:
            return Plan(steps=tuple(steps), held=held)
        paths = tuple(place.path for place in places)
        size = sum(place.size for place in places)
        steps.append(Step(action=Action.REMOVE, sequence=sequence, paths=paths, target="", size=size))
    return Plan(steps=tuple(steps))


def held_by(gates: Mapping[str, int], sequence: int, path: str) -> Held | None:
    """The gates that keep an extent from being removed; None: there is none."""
    holding = tuple(gate for gate, needed in gates.items() if sequence >= needed)
    return Held(sequence=sequence, path=path, gates=holding) if holding else None


def name_in(path: str) -> str:
    return path.rsplit("/", 1)[1]


def directory_of(path: str) -> str:
    return path.rsplit("/", 1)[0]
