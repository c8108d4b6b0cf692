"""Checkpoints: when to take one, the checkpoint file, and the head that it gives.

`amqalchk.fil` is written whole to a new file, synced and renamed; the one before stays as `amqalchk.old`. On a full
disk it takes the room of `amqalchk.rsv`, which is kept for that: what messages held on the disk is given back by
checkpoints only, so one must be possible when they have been got. It holds:

    offset  size  field     meaning
         0     8  magic     "QMGRCHK1": the format's version is its last character
         8     4  crc       CRC-32 of bytes 12..length
        12     8  length    of the whole file, bytes
        20     -  lines     JSON, one a line: first the fields of `Checkpoint`, then the catalogue, a line per object

A checkpoint is fuzzy only in time: it holds the state as of its LSN, taken under the lock in memory, and is written
while work goes on.
"""

import contextlib
import json
import struct
import threading
from collections.abc import Callable
from typing import Any

import attrs

from logger import lsn
from logger.clock import Clock
from logger.crc import crc32
from logger.disk import Disk
from logger.disk_errors import NO_SPACE, RETRYABLE
from logger.errors import LogClosed, refuse_later
from logger.log import Log
from logger.whole_files import read_whole, size_of, write_whole
from recovery.errors import CheckpointDamaged
from recovery.records import CheckpointMark, Kind
from recovery.resource import ResourceManager, Snapshot

HEADER = struct.Struct("<8sIQ")
MAGIC = b"QMGRCHK1"
NAME = "amqalchk.fil"
PREVIOUS = "amqalchk.old"
RESERVE = "amqalchk.rsv"
MIN_RESERVE_BYTES = 64 << 10
MAX_MARK_BYTES = 120  # of the notes of a checkpoint record
CLOCK_JUMP_US = 10_000_000  # of the system's clock, after which a checkpoint is due
ARRIVED_MAX_BYTES = 128 << 20  # of messages; then it is asked how many are there still, for a checkpoint to move out
REPLAYED_MAX_BYTES = 512 << 20  # of log that may come to lie behind the head for messages that are long gone


@attrs.frozen(kw_only=True)
class Checkpoint:
    """What the checkpoint file says before the catalogue."""

    log_id: str  # hex
    lsn: int  # the state is that before this LSN
    head: int
    durable: int  # the log was durable up to here when the file was written
    epoch: int
    time: int  # by the clock that messages expire by
    clean: bool  # taken while ending in order, behind all work
    counters: dict[str, int]
    units: dict[int, int]  # number -> first LSN of the units of work that were in flight or in doubt
    wall: int = 0  # by the system's clock; files of before there was this field have none


FIELDS = attrs.fields_dict(Checkpoint)  # others are of a later version, which works without them within a format


def encode_file(checkpoint: Checkpoint, catalogue: list[bytes]) -> bytes:
    fields = attrs.asdict(checkpoint)
    fields["counters"]["wall"] = fields.pop("wall")  # where versions that do not know the field ignore it
    lines = b"\n".join([json.dumps(fields).encode(), *catalogue])
    rest = HEADER.pack(MAGIC, 0, HEADER.size + len(lines))[12:] + lines
    return MAGIC + crc32(rest).to_bytes(4, "little") + rest


def decode_file(data: bytes, path: str = "") -> tuple[Checkpoint, list[bytes]] | None:
    """(checkpoint, catalogue), or None when the file is not whole. Raises LaterFormat, if given the file's path."""
    if len(data) < HEADER.size:
        return None
    magic, crc, length = HEADER.unpack_from(data)
    if length != len(data) or crc32(data[12:]) != crc:
        refuse_later(data, MAGIC, path)
        return None
    if magic != MAGIC:
        return None
    first, *catalogue = data[HEADER.size :].split(b"\n")
    fields: dict[str, Any] = json.loads(first)
    fields["wall"] = fields["counters"].pop("wall", fields.get("wall", 0))
    fields["units"] = {int(number): first_lsn for number, first_lsn in fields["units"].items()}
    return Checkpoint(**{name: value for name, value in fields.items() if name in FIELDS}), catalogue


def read_files(disk: Disk, directory: str, log_id: bytes) -> list[tuple[Checkpoint, list[bytes]]]:
    """The whole checkpoint files in `directory`, newest first. Raises CheckpointDamaged when there is none."""
    found = []
    foreign = ""
    for name in (NAME, PREVIOUS):
        path = f"{directory}/{name}"
        try:
            decoded = decode_file(read_whole(disk, path), path)
        except FileNotFoundError:  # or a queue manager that runs has just made it the previous one
            continue
        if decoded is not None and decoded[0].log_id != log_id.hex():
            foreign = f"; {path} belongs to another queue manager"
        elif decoded is not None:
            found.append(decoded)
    if not found:
        raise CheckpointDamaged(
            f"{directory}/{NAME} and {PREVIOUS} can't be read{foreign}: the queue manager can't be restarted without "
            f"a checkpoint; restore both from a backup"
        )
    return sorted(found, key=lambda one: -one[0].lsn)


def write_new(disk: Disk, directory: str, data: bytes) -> None:
    """Write a new checkpoint file beside the one that counts."""
    path, reserve = f"{directory}/{NAME}.new", f"{directory}/{RESERVE}"
    try:
        write_whole(disk, path, data)
    except OSError as exc:
        if exc.errno not in NO_SPACE or not disk.exists(reserve):
            raise
        disk.unlink(reserve)
        write_whole(disk, path, data)


def put_in_place(disk: Disk, directory: str, log_id: bytes) -> None:
    """Let the new checkpoint file count, keeping the one before. Whatever crashes, a whole one is there.

    One that is damaged, or another queue manager's, is not kept: a start has gone back to the one before it, which is
    the only whole one until the new file has its name.
    """
    path, previous = f"{directory}/{NAME}", f"{directory}/{PREVIOUS}"
    if _is_whole(disk, path, log_id):
        disk.rename(path, previous)
    disk.rename(path + ".new", path)
    disk.sync_dir(directory)


def _is_whole(disk: Disk, path: str, log_id: bytes) -> bool:
    """Is that a checkpoint file of this log that a start could use?"""
    try:
        decoded = decode_file(read_whole(disk, path))
    except FileNotFoundError:
        return False
    except OSError as exc:
        if exc.errno in RETRYABLE:  # that says nothing of the file
            raise
        return False
    return decoded is not None and decoded[0].log_id == log_id.hex()


def keep_reserve(disk: Disk, directory: str, size: int) -> None:
    """Have room for two more checkpoint files of `size` bytes, if there are means for it. Its name needs no sync."""
    path, wanted = f"{directory}/{RESERVE}", max(2 * size, MIN_RESERVE_BYTES)
    try:
        if disk.exists(path) and size_of(disk, path) >= wanted:
            return
        write_whole(disk, path, bytes(wanted))
    except OSError as exc:
        if exc.errno not in RETRYABLE:
            raise
        if exc.errno in NO_SPACE:
            with contextlib.suppress(OSError):  # a file system that copies takes room for that too
                disk.unlink(path)


OnTaken = Callable[[Checkpoint, list[bytes]], None]


def tell_nobody(checkpoint: Checkpoint, catalogue: list[bytes]) -> None:
    """For a checkpoint that nobody waits to hear of."""


@attrs.frozen(kw_only=True)
class Triggers:
    """When a checkpoint is due: by records, or by time when there are enough records."""

    records_max: int = 50000
    records_min: int = 100
    wait_us: int = 30 * 60 * 1_000_000


class Checkpointer:
    """Takes checkpoints of one queue manager, one at a time."""

    def __init__(
        self,
        disk: Disk,
        clock: Clock,
        directory: str,
        log: Log,
        resource: ResourceManager,
        triggers: Triggers,
        now_us: Callable[[], int],
    ) -> None:
        """`now_us` is the clock that messages expire by, which the next start goes on with."""
        self._disk = disk
        self._clock = clock
        self._directory = directory
        self._log = log
        self._resource = resource
        self._triggers = triggers
        self._now_us = now_us
        self._one_at_a_time = threading.Lock()
        self.records = 0  # logged since the last checkpoint began; counted by callers that append
        self.arrived_max_bytes = ARRIVED_MAX_BYTES
        self.arrived_bytes = 0  # of messages put since then, logged or not; counted by callers that put
        self.returned_bytes = 0  # of messages that segments have and backouts gave back; counted by callers too
        self.next_unit: Callable[[], int] = lambda: 0  # a number above those of all units that have begun; 0: not known
        self.count = 0  # taken since the start
        self.last_ns = clock.elapsed_ns()
        self._last_clock_lead_us = self._clock_lead_us()
        self.last_seconds = 0.0
        self.heads = (log.state.head,) * 2  # of the checkpoints in the two files
        self.in_flight = 0  # bytes that units of work had put which were in flight at the newest one, so not in it
        self._interrupted = LogClosed("a checkpoint was interrupted")  # made while there is memory for it
        self._failed = False  # the last try: the disk had no room
        self._known_worth_it = False  # what came since the last one was looked at, and much of it is there
        self._ended = False  # that of an end in order was taken: after it there is no other

    @property
    def records_max(self) -> int:
        return self._triggers.records_max

    def limit_reached(self) -> bool:
        """Has enough come for a checkpoint, whatever the time?"""
        most = self.arrived_max_bytes
        return self.records >= self._triggers.records_max or self.arrived_bytes >= most or self.returned_bytes >= most

    def may_lack_room(self) -> bool:
        """Is it in doubt that the disk has room for one? One that is taken then takes the doubt away."""
        with contextlib.suppress(OSError):
            free, _ = self._disk.free_bytes(self._directory)
            return self._failed or free < self.arrived_bytes
        return True

    def overdue(self) -> bool:
        """Has so much come that callers have to wait for a checkpoint?"""
        return self.arrived_bytes >= 3 * self.arrived_max_bytes

    def under_way(self) -> bool:
        """Is one being taken? Then some messages are neither in memory, as far as the queues know, nor on the disk."""
        return self._one_at_a_time.locked()

    def due(self) -> bool:
        """Is one to be taken now: by what has come, for the room it gives back, after a jump of the clock, by time?"""
        triggers = self._triggers
        if (
            (self.limit_reached() and self._worth_it())
            or self._resource.wasteful()
            or abs(self._clock_lead_us() - self._last_clock_lead_us) >= CLOCK_JUMP_US
        ):
            return True
        waited_us = (self._clock.elapsed_ns() - self.last_ns) // 1000
        return waited_us >= triggers.wait_us and self.records >= max(1, triggers.records_min)

    def _worth_it(self) -> bool:
        """Would it spare a restart many records, or move much out of memory? What came may be gone again."""
        if self.records >= self._triggers.records_max or self._known_worth_it or self._failed:
            return True  # to look takes long, and this is asked again and again until one can be taken
        with self._log.lock:
            try:
                there = self._resource.unwritten()
            except MemoryError:  # it may move some out
                return True
            behind = self._log.buffer.tail - self.heads[1]
            look = self.returned_bytes >= self.arrived_max_bytes
            returned = self._resource.beyond_buffers() if look else 0
            much = max(there, returned) >= self.arrived_max_bytes // 2
            self._known_worth_it = much or behind >= REPLAYED_MAX_BYTES
            if not self._known_worth_it:
                self.arrived_bytes = there
                if look:  # else what there is of them is still to be counted
                    self.returned_bytes = 0
            return self._known_worth_it

    def _clock_lead_us(self) -> int:
        """Microseconds that the system's clock is ahead of that which messages expire by.

        A start takes what the system's clock has gone on by since the last checkpoint for time that has passed.
        """
        return self._clock.wall_us() - self._now_us()

    def head_if_taken_now(self) -> int:
        """Where the head would come to lie. The caller holds the lock."""
        logged = self._resource.uows.logged()
        return logged[0].first_lsn if logged else self._log.buffer.tail

    def take(self, *, clean: bool = False, on_taken: OnTaken = tell_nobody) -> Checkpoint:
        """Take a checkpoint. Raises OSError when it can't be written (the last one counts on), LogFailed, LogClosed.

        `on_taken` is called with its content before files are deleted that only the previous one refers to.
        """
        with self._one_at_a_time:
            if self._ended:
                raise LogClosed("the last checkpoint was taken: the queue manager ends")
            began = self._clock.elapsed_ns()
            log = self._log
            try:
                checkpoint, catalogue, size, snapshot = self._write(clean=clean)
            except OSError:
                raise  # what could not be written is still to be written
            except BaseException as exc:  # memory and checkpoint may be apart: a restart mends it
                failure = self._interrupted
                try:
                    failure = LogClosed(f"a checkpoint was interrupted ({type(exc).__name__})")
                finally:
                    log.stop(failure)
                raise
            log.move_head(checkpoint.head, checkpoint.lsn)
            on_taken(checkpoint, catalogue)
            snapshot.clean_up()
            keep_reserve(self._disk, self._directory, size)
            with log.lock:
                self._make_room()
                self._append_mark(Kind.END_CHECKPOINT, {"lsn": lsn.text(checkpoint.lsn)})
            self._ended = clean
            self.count += 1
            self.last_ns = self._clock.elapsed_ns()
            self._last_clock_lead_us = checkpoint.wall - checkpoint.time
            self.last_seconds = (self.last_ns - began) / 1e9
            return checkpoint

    def _write(self, *, clean: bool) -> tuple[Checkpoint, list[bytes], int, Snapshot]:
        """Make a checkpoint durable: what it says, its catalogue, the bytes of its file, and what it was made of.

        After an OSError what was to be written is still to be written.
        """
        log = self._log
        with log.lock:
            self._make_room()
            units = {u.number: u.first_lsn for u in self._resource.uows.logged()}
            in_flight = sum(u.put_bytes for u in self._resource.uows)
            head = lsn.text(min(units.values())) if units else None  # None: where it is itself
            notes = {"units": len(units), "head": head, "next": self.next_unit()}
            marked, end = self._append_mark(Kind.START_CHECKPOINT, notes)
            records, self.records = self.records, 0
            arrived_bytes, self.arrived_bytes = self.arrived_bytes, 0
            returned_bytes, self.returned_bytes = self.returned_bytes, 0
            self._known_worth_it = False
            snapshot = self._resource.snapshot()
            counters = self._resource.counters()  # with what the snapshot itself has taken
        named = False  # the new file may count
        try:
            log.sync(end)
            catalogue = list(snapshot.write())
            checkpoint = Checkpoint(
                log_id=log.state.log_id.hex(),
                lsn=marked,
                head=min(marked, *units.values()) if units else marked,
                durable=log.durable,
                epoch=log.epoch,
                time=self._now_us(),
                wall=self._clock.wall_us(),
                clean=clean,
                counters=counters,
                units=units,
            )
            data = encode_file(checkpoint, catalogue)
            log.check_owned_as_leader()
            write_new(self._disk, self._directory, data)
            named = True
            put_in_place(self._disk, self._directory, log.state.log_id)
            self.heads = self.heads[1], checkpoint.head
            self.in_flight = in_flight
        except OSError:
            with log.lock:
                self._failed = True
                snapshot.give_up(named=named)
                self.records += records
                self.arrived_bytes += arrived_bytes
                self.returned_bytes += returned_bytes
            raise
        self._failed = False
        snapshot.finish(log.lock)
        return checkpoint, catalogue, len(data), snapshot

    def _make_room(self) -> None:
        """In the log buffer, for a record of a checkpoint. May let go of the lock: look at the state afterwards."""
        self._log.make_room(self._log.cost(MAX_MARK_BYTES))

    def _append_mark(self, kind: Kind, notes: dict[str, Any]) -> tuple[int, int]:
        """Append a checkpoint record, if need be into the room that is kept for them; (LSN, end).

        A restart does without the record; replays, the search for an outcome, repairs and people read it. Where not
        even that room is left there is none, and the tail is the LSN. Nor is there one where the disk has no room for
        puts, or had none at the last try: tries would use up what is kept for gets.
        """
        log = self._log
        code, uow, head, data = CheckpointMark(kind, json.dumps(notes).encode()).encode()
        assert len(head) <= MAX_MARK_BYTES, "room was made for it"
        size = log.cost(len(head))
        tail, space = log.buffer.tail, log.space
        scarce = self._failed or space.for_gets > space.usual_for_gets
        if not (space.fits(tail, size, space.for_gets) if scarce else space.fits_for_checkpoint(tail, size)):
            return tail, tail
        at = log.append(code, uow, self._clock.wall_us(), head, data)
        return at, log.buffer.tail
