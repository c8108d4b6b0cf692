"""The state of a daemon, for other processes: a line of JSON, the note, in the file that the daemon locks.

Only the lock says whether there is a daemon: the process number in the note may be another process's by now. The note
says which process that is and what it is doing; one that is left behind says how the last daemon ended. It is written
over in place, always with the same length, so that a reader finds the old line or the new one.
"""

import contextlib
import enum
import json

import attrs

from logger.disk import Disk, Locks
from logger.errors import LogInUse
from logger.posix_lock import elsewhere
from logger.whole_files import read_whole
from qmgr.errors import InUse
from qmgr.locations import Location, running

LINE_BYTES = 512  # padded


class Stage(enum.StrEnum):
    """What a daemon is doing, in the words of dspmq."""

    STARTING = "Starting"
    RUNNING = "Running"
    QUIESCING = "Quiescing"
    ENDING = "Ending immediately"
    KILLING = "Ending pre-emptively"
    ENDED = "Ended normally"
    ENDED_AT_ONCE = "Ended immediately"
    FAILED = "Ended unexpectedly"


@attrs.frozen(kw_only=True)
class Note:
    """What the line says."""

    stage: Stage
    process: int
    host: str  # machine or container
    numbers: str = ""  # within which process numbers mean something: containers may share a host's name, and not these
    epoch: int = 0  # of the log since this start, which tells whether the queue manager was started again since
    why: str = ""  # it has failed, cut where the line has no more room: on a full disk the error log may not have it

    def encode(self) -> bytes:
        fields, why = attrs.asdict(self, filter=lambda field, value: field.name != "why"), self.why
        while why and len(json.dumps(fields | {"why": why})) >= LINE_BYTES:
            why = why.removesuffix("…")[:-1] + "…" if len(why) > 1 else ""
        return json.dumps(fields | ({"why": why} if why else {})).encode().ljust(LINE_BYTES - 1) + b"\n"


def decode(data: bytes) -> Note | None:
    """The note in `data`, or None: after a power failure there may be anything."""
    try:
        fields = json.loads(data)
        note = Note(**(fields | {"stage": Stage(fields["stage"])}))
    except (ValueError, TypeError, KeyError, RecursionError):
        return None
    sound = isinstance(note.process, int) and note.process > 0
    sound = sound and all(isinstance(text, str) for text in (note.host, note.numbers, note.why))
    return note if sound and isinstance(note.epoch, int) else None


def path(location: Location) -> str:
    """The file with the note."""
    return f"{location.data_dir}/daemon.json"


def last(disk: Disk, location: Location) -> Note | None:
    """The note of the present daemon or of the last one; None where there was none, or it can't be understood."""
    try:
        return decode(read_whole(disk, path(location)))
    except (FileNotFoundError, NotADirectoryError):
        return None


def daemon(disk: Disk, location: Location) -> Note | None:
    """The note of the daemon that runs the queue manager now; None when there is none, or it has written none yet."""
    return last(disk, location) if disk.locked_by(path(location)) is not None else None


def write(disk: Disk, location: Location, note: Note) -> None:
    """Write over the note. Raises OSError."""
    file = disk.open(path(location))
    try:
        file.write(0, note.encode())
    finally:
        file.close()


class Life:
    """The lock and the note of the daemon in this process, from `begin` to `close`."""

    def __init__(self, disk: Disk, location: Location, process: int, host: str, numbers: str) -> None:
        self._disk = disk
        self._location = location
        self._locks: Locks = []
        self.note = Note(stage=Stage.STARTING, process=process, host=host[:200], numbers=numbers)

    def begin(self) -> None:
        """Be the daemon of the queue manager. Raises InUse when there is one; OSError."""
        try:
            self._disk.lock(path(self._location), self.note.encode().decode().rstrip("\n"), self._locks)
        except LogInUse as exc:
            note = last(self._disk, self._location)
            known = running(self._location, self._disk) if note is None else f"pid {note.process}{self._place(note)}"
            holder = known or "another process"
            name = self._location.name
            text = f"queue manager {name!r} is running already: {holder} holds it; endmqm {name} ends it"
            raise InUse(text, holder=holder, name=name) from exc

    def _place(self, other: Note) -> str:
        """Where the other's process number means something, if that is elsewhere; "" where it does here."""
        here = (other.host, other.numbers) == (self.note.host, self.note.numbers)
        return "" if here else elsewhere(other.host, other.numbers)

    def say(self, stage: Stage, epoch: int | None = None, why: str = "") -> None:
        """Write what the daemon is doing now. Errors of the disk are passed over: the note promises nothing."""
        self.note = attrs.evolve(self.note, stage=stage, epoch=self.note.epoch if epoch is None else epoch, why=why)
        with contextlib.suppress(OSError):
            for lock in self._locks:  # were the file removed meanwhile, the one of that name would be another daemon's
                lock.write(self.note.encode())

    def close(self) -> None:
        """Somebody else may start the queue manager now."""
        for lock in self._locks:
            lock.release()
