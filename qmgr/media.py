"""Media images and media recovery: rcdmqimg and rcrmqobj, and images that are due.

Recording an image stops nobody: a checkpoint is taken, and the blocks that it refers to are copied to the log while
work goes on. Recreating a queue stops that queue only: it is built again beside the damaged one, from its image and
the log up to the moment when calls to it were stopped. Then, under the lock, what units of work that had used it have
come to since (commit, backout, prepare) is added, and the new queue takes the place of the old one.
"""

import contextlib
import json
import threading
from collections.abc import Callable, Iterator
from typing import Any

import attrs

from logger import lsn
from logger.config import LogType
from logger.disk import PAGE
from logger.disk_errors import NO_SPACE, advice
from logger.errors import LogClosed, LogError
from logger.log import Log
from logger.progress import Progress, no_progress
from logger.whole_files import make_dirs
from qmgr.engine import Engine
from qmgr.entry import Entry
from qmgr.errors import (
    Damaged,
    MediaImageMissing,
    MediaNotSupported,
    MQError,
    NotImageRecoverable,
    ObjectInUse,
    Reason,
    StorageFull,
    Unavailable,
    UnknownQueue,
)
from qmgr.log_needs import LogNeeds
from qmgr.objects import AliasDefinition, QueueDefinition, check_name, read_definition
from qmgr.queue import Queue
from qmgr.rebuild import Rebuild, Skip
from qmgr.segment_format import Block, split_block
from qmgr.segments import Segment, from_description, large_bytes
from qmgr.state import PutRun
from qmgr.verbs import refuse_alias
from recovery import extent_index, image
from recovery.checkpoint import Checkpoint, OnTaken, tell_nobody
from recovery.errors import QueueDamaged, RecoveryError
from recovery.records import CATALOG_FIRST, CATALOG_LAST, Catalog, ImageEnd, ImagePart, ImageStart, UnitRecord
from recovery.uows import Uow

MINUTE_US = 60_000_000
QUEUES_PER_PIECE = 32  # or aliases, that one piece of the image of all definitions has
SMALL_ATTRIBUTES_BYTES = 4 << 10  # of the queue manager: larger ones have a piece of their own
PIECE_BYTES = 16 << 10  # of an image that are logged and forced at once
PAUSE_FACTOR = 8  # times as long as that took, while others write
MAX_PAUSE_S = 0.004


class _Found:
    """The queues that are wanted, as a checkpoint has them. The segments that it names stay there until `close`."""

    def __init__(self, engine: Engine, is_wanted: Callable[[dict[str, Any]], bool]) -> None:
        self.queues: list[tuple[Checkpoint, dict[str, Any]]] = []
        self._engine = engine
        self._is_wanted = is_wanted
        self._pins: dict[tuple[str, int], int] = {}  # (queue, segment): bytes
        self._closed = False  # after an interrupt another thread may call `hear` all the same

    def hear(self, checkpoint: Checkpoint, catalogue: list[bytes]) -> None:
        """The checkpoint is taken, and this is what it says of each queue."""
        pins: dict[tuple[str, int], int] = {}
        for line in catalogue:
            fields = json.loads(line)
            if "definition" in fields and self._is_wanted(fields):
                self.queues.append((checkpoint, fields))
                name = fields["definition"]["name"]
                pins.update(((name, segment["number"]), segment["length"]) for segment in fields["segments"])
        with self._engine.lock:
            if not self._closed:
                self._pins |= pins
                self._engine.state.pinned |= pins.keys()

    def close(self) -> None:
        with self._engine.lock:
            self._closed = True
        self._engine.state.unpin(self._pins)


class Media:
    """Records images of the queues of one queue manager, and recreates queues from them. One at a time."""

    def __init__(self, engine: Engine, checkpoint: Callable[[OnTaken], None], needs: LogNeeds) -> None:
        """`checkpoint(hear)` takes a checkpoint."""
        self._keep_from = needs.reading_from
        self._engine = engine
        self._state = engine.state
        self._log: Log = engine.log
        self._checkpoint = checkpoint
        self._one_at_a_time = threading.Lock()
        self._recreating = 0  # the thread that does
        self._recorded: dict[int, tuple[image.ImagePlace, int]] = {}  # by queue: its image, and when it was recorded
        self._looked_us = 0  # when that was looked at last, by the steady clock

    # ---- recording

    def record(self, names: list[str] | None = None, *, catalog: bool = False) -> list[str]:
        """Record images of these queues, or of all that can be recovered; return the names of those recorded.

        Raises MediaNotSupported, NotImageRecoverable, Damaged, UnknownQueue, ResourceProblem, StorageFull.
        """
        self._check_linear()
        if self._recreating == threading.get_ident():
            raise ObjectInUse("media images can't be recorded by the progress of a recreation")
        wanted = None if names is None else {self._recordable(name) for name in names}
        with self._one_at_a_time, self._keep_from(self._log.state.head):
            found = _Found(self._engine, lambda fields: self._is_wanted(fields, wanted))
            try:
                if wanted is None or wanted:
                    self._checkpoint(found.hear)
                recorded = [name for checkpoint, fields in found.queues if (name := self._record(checkpoint, fields))]
            except BaseException:
                with contextlib.suppress(MQError):  # else those before it count, and a crash takes them
                    self._force_rest()
                raise
            finally:
                found.close()
            if catalog:
                self._record_catalog()
            self._force_rest()
            return recorded

    def _check_linear(self) -> None:
        self._engine.check()
        if self._log.state.log_type is not LogType.LINEAR:
            raise MediaNotSupported(
                f"queue manager {self._engine.name!r} has circular logging, which keeps no media images; migmqlog "
                f"changes it to linear logging",
                name=self._engine.name,
            )

    def _known(self, name: str) -> Queue:
        queue = self._state.queues.get(name) if isinstance(name, str) else None
        if queue is None:
            check_name(name, "queue")
            refuse_alias(self._state, name)
            raise UnknownQueue(f"there is no queue {name!r}", name=str(name))
        return queue

    def _recordable(self, name: str) -> int:
        """The number of the queue. Raises UnknownQueue, NotImageRecoverable, Damaged."""
        with self._engine.lock:
            queue = self._known(name)
            if not self._state.recoverable(queue):
                raise NotImageRecoverable(
                    f"queue {name!r} is not media recoverable; alter it to image_recoverable='YES' (IMGRCOVQ) first",
                    name=name,
                )
            if queue.damaged:
                raise Damaged(f"queue {name!r} is damaged, so no image can be taken: {queue.damaged}", name=name)
            return queue.id

    def _is_wanted(self, fields: dict[str, Any], wanted: set[int] | None) -> bool:
        if wanted is not None:
            return fields["definition"]["id"] in wanted
        with self._engine.lock:
            queue = self._state.by_id.get(fields["definition"]["id"])
            return queue is not None and not queue.damaged and self._state.recoverable(queue)

    def _record(self, checkpoint: Checkpoint, fields: dict[str, Any]) -> str:
        """Write the image of one queue; "" if it is deleted meanwhile."""
        definition = read_definition(fields["definition"])
        self._log_record(ImageStart(definition.id, image.notes(fields, checkpoint.lsn, checkpoint.units)))
        queue = self._state.by_id.get(definition.id)
        if queue is None:
            return ""
        start = queue.imaging
        for part in self._parts(fields, queue, start):
            if queue.deleted:
                return ""
            self._log_record(part)
        self._log_record(ImageEnd(definition.id, start, checkpoint.lsn, checkpoint.head))
        return definition.name

    def _log_record(self, record: ImageStart | ImagePart | ImageEnd | Catalog) -> None:
        """Log, apply and force: this thread writes it, so that nobody else has to do that under the lock.

        Small ones are forced together, the last of them by `_force_rest`: with many queues there are two for each.
        While others write too, it pauses: whoever forces meanwhile waits for this write first.
        """
        if self._engine.quiescing:
            raise Unavailable(f"queue manager {self._engine.name!r} is ending", reason=Reason.Q_MGR_QUIESCING)
        clock = self._engine.clock
        end = self._engine.log_own(lambda: record)
        if end - self._log.safe < PIECE_BYTES:
            return
        began = clock.elapsed_ns()
        self._engine.force(end)
        if self._log.buffer.tail not in (end, lsn.page_of(end + PAGE - 1)):  # others log: a force adds only FILL
            clock.wait(threading.Event(), min(PAUSE_FACTOR * (clock.elapsed_ns() - began) / 1e9, MAX_PAUSE_S))

    def _force_rest(self) -> None:
        """What `_log_record` has left: an image that was recorded is durable."""
        self._engine.force(self._log.buffer.tail)

    def _parts(self, fields: dict[str, Any], queue: Queue, start: int) -> Iterator[ImagePart]:
        """The blocks that the checkpoint refers to and has something in. Damage marks the queue."""
        state, number = self._state, queue.id
        for described in fields["segments"]:
            segment = from_description(described)
            if segment.volatile:
                continue
            for priority, block in segment.live_blocks():
                data = self._read(queue, segment, block)
                for first, count, piece in split_block(data, block.cell, block.cells, PIECE_BYTES):
                    gone = segment.gone_among(first, count)
                    yield ImagePart(number, start, segment.number, first, count, priority, gone, piece)
                state.give_way()

    def _read(self, queue: Queue, segment: Segment, block: Block) -> bytes:
        try:
            return queue.reader.read_block(segment, block)
        except (QueueDamaged, OSError) as exc:
            with self._engine.lock:
                raise self._engine.unreadable(queue, exc) from exc

    def record_catalog(self) -> None:
        """Record the image of all definitions, in pieces; what changes meanwhile is in the log anyway."""
        self._check_linear()
        with self._one_at_a_time:
            self._record_catalog()
            self._force_rest()

    def _record_catalog(self) -> None:
        pieces: Iterator[Catalog] = iter(())

        def first() -> Catalog:
            nonlocal pieces
            pieces = self._catalog()
            return next(pieces)

        self._engine.force(self._engine.log_own(first))
        for piece in pieces:
            self._log_record(piece)

    def _catalog(self) -> Iterator[Catalog]:
        """All definitions, and where the images of the queues lie, as of the first piece, for which the lock is held.

        The others are written without it, from what was noted then: with many queues that takes long.
        """
        state, step = self._state, QUEUES_PER_PIECE
        queues = [(one.definition, one.image) for one in state.by_id.values()]
        aliases = list(state.aliases.values())
        parts: list[tuple[list[tuple[QueueDefinition, image.ImagePlace | None]], list[AliasDefinition]]]
        parts = [(queues[at : at + step], []) for at in range(0, len(queues), step)]
        parts += [([], aliases[at : at + step]) for at in range(0, len(aliases), step)]
        qmgr = {"qmgr": attrs.asdict(state.qmgr), "counters": state.counters()}
        if not parts or len(json.dumps(qmgr)) >= SMALL_ATTRIBUTES_BYTES:
            parts.insert(0, ([], []))
        for at, (few, others) in enumerate(parts):
            said: dict[str, Any] = {"queues": [{"definition": attrs.asdict(one), "image": place} for one, place in few]}
            if others:
                said["aliases"] = [attrs.asdict(alias) for alias in others]
            flags = (0 if at else CATALOG_FIRST) | (CATALOG_LAST if at == len(parts) - 1 else 0)
            yield Catalog(flags, json.dumps(said if at else said | qmgr).encode())

    # ---- images that nobody asked for

    def due(self) -> list[str]:
        """The names of the queues whose image is due.

        They have none, as they were defined with another log or as not recoverable; or, with IMGSCHED(AUTO), it is
        older, in time or in log, than IMGINTVL or IMGLOGLN allow.
        """
        said = self._state.qmgr
        if not self._state.imaged:
            return []
        if said.image_schedule != "AUTO":
            with self._engine.lock:
                queues = [queue for queue in self._state.by_id.values() if queue.image is None and not queue.damaged]
                return [queue.name for queue in queues if self._state.recoverable(queue)]
        oldest = 0 if said.image_log_length is None else self._log.buffer.tail - (said.image_log_length << 20)
        with self._engine.lock:
            wanted = [q for q in self._state.by_id.values() if not q.damaged and self._state.recoverable(q)]
            images = [(queue.id, queue.name, queue.image) for queue in wanted]
            places = {queue.id: queue.image for queue in self._state.by_id.values() if queue.image is not None}
        recorded = self._when_recorded(places)
        oldest_us = 0 if said.image_interval is None else self._looked_us - said.image_interval * MINUTE_US
        return [
            name
            for number, name, place in images
            if place is None or recorded[number] <= oldest_us or place.start <= oldest
        ]

    def _when_recorded(self, images: dict[int, image.ImagePlace]) -> dict[int, int]:
        """When the images of these queues were recorded, by the steady clock, which nobody sets back or forth.

        An image says when by the wall clock. One that is new since the last look was recorded between that and now.
        """
        now, before = self._engine.steady.now_us(), self._looked_us
        for number, place in images.items():
            known = self._recorded.get(number)
            if known is None or known[0] != place:
                self._recorded[number] = place, min(max(place.time, before), now)
        self._recorded = {number: self._recorded[number] for number in images}
        self._looked_us = now
        return {number: at for number, (_, at) in self._recorded.items()}

    def record_due(self) -> list[str]:
        """Record the images that are due; the names recorded."""
        names = self.due()
        return self.record(names, catalog=True) if names else []

    def record_at_end(self) -> None:
        """Record images of empty queues, which cost nothing, and of the definitions, so that older extents may go.

        The queue manager takes no calls any more. The lock is held. What finds no room is left out.
        """
        log, state = self._log, self._state
        if not state.imaged:
            return
        floor = log.floor_of(log.buffer.tail)
        for queue in state.by_id.values():
            empty = not (queue.depth or queue.uncommitted or queue.damaged)
            if empty and state.recoverable(queue) and (queue.image is None or queue.image.media < floor):
                fields = {
                    "definition": attrs.asdict(queue.definition),
                    "next": queue.next_sequence,
                    "backouts": ("", ""),
                }
                at = log.buffer.tail
                if self._log_at_end(ImageStart(queue.id, image.notes(fields, at, {}))):
                    self._log_at_end(ImageEnd(queue.id, queue.imaging, at, at))
        if state.catalog < floor:
            all(self._log_at_end(piece) for piece in self._catalog())

    def _log_at_end(self, record: ImageStart | ImageEnd | Catalog) -> bool:
        _, _, head, data = record.encode()
        size = self._log.cost(len(head) + len(data))
        if not self._log.space.fits(self._log.buffer.tail, size, 0):
            return False
        self._log.make_room(size)
        self._engine.log_locked(record)
        return True

    # ---- recreating

    def recreate(self, name: str, progress: Progress = no_progress) -> int:
        """Build the queue again as it is at this moment; return how many messages it has.

        Raises MediaNotSupported, NotImageRecoverable, MediaImageMissing, UnknownQueue, ObjectInUse, StorageFull,
        Unavailable when the disk can't be read.
        """
        self._check_linear()
        if self._recreating == threading.get_ident():
            raise ObjectInUse(f"queue {name!r} can't be recreated by the progress of another recreation")
        with self._one_at_a_time:  # images that are being recorded are complete soon
            try:
                self._recreating = threading.get_ident()
                return self._recreate(name, progress)
            finally:
                self._recreating = 0

    def _recreate(self, name: str, progress: Progress) -> int:
        engine, state = self._engine, self._state
        struck: list[BaseException] = []  # what the caller's `progress` has raised

        def tell(done: int, total: int) -> None:
            try:
                progress(done, total)
            except BaseException as exc:
                struck.append(exc)
                raise

        with contextlib.ExitStack() as observing:
            with engine.lock:
                old = self._known(name)
                media = self._place_of(old).media
            observing.enter_context(self._keep_from(media))  # without the lock: who decides what may go takes it, too
            rebuild = Rebuild(state, engine.lock)
            try:
                new = self._rebuilt(old, rebuild, tell, observing)
            except BaseException as exc:
                self._give_up(rebuild, old)
                if exc not in struck and isinstance(exc, (LogError, RecoveryError, KeyError, OSError)):
                    raise self._not_recreated(name, exc) from exc
                raise
        try:
            self._checkpoint(tell_nobody)
        except MQError as exc:  # the queue is there all the same; after a crash it would be built once more
            engine.check()
            engine.say("AMQ9002", text=str(exc))
        return new.depth

    def _rebuilt(self, old: Queue, rebuild: Rebuild, progress: Progress, observing: contextlib.ExitStack) -> Queue:
        """Stop calls to the queue, and build the one that takes its place, which is returned."""
        engine, state, name = self._engine, self._state, old.name
        heard: list[tuple[UnitRecord, int, int, int]] = []  # records of units of work since calls were stopped
        with engine.lock:
            if self._known(name) is not old:
                raise UnknownQueue(f"queue {name!r} was deleted while it was being recreated", name=name)
            place = self._place_of(old)  # an image that has come meanwhile lies behind the other
            self._stop_calls(old)
            until = self._log.buffer.tail
            users = {unit.number for unit in state.uows if _uses(unit, old)}
            hear = lambda *said: heard.append(said) if said[0].uow in users else None  # noqa: E731
            observing.enter_context(state.observed(hear))
        engine.force(until)
        self._build(rebuild, place, until, progress)
        make_dirs(state.disk, state.queue_directory(name))  # where that was lost, checkpoints would fail
        with engine.lock:
            if old.deleted:
                raise UnknownQueue(f"queue {name!r} was deleted while it was being recreated", name=name)
            for said in heard:
                rebuild.apply(*said)
            return self._replace(old, rebuild)

    def _stop_calls(self, queue: Queue) -> None:
        """From now on only units of work that have used the queue change it, by their outcome. The lock is held."""
        if not queue.damaged:
            queue.block("it is being recreated")
        for unit in self._state.uows:
            if unit.for_client:  # what a client has not acknowledged returns to its place, for anybody
                self._engine.release_locked(unit, [get for get in unit.gets if get[0] is queue])
        self._engine.log_held()

    def _give_up(self, rebuild: Rebuild, old: Queue) -> None:
        made = rebuild.by_id.get(old.id)
        if made is None or self._state.by_id.get(old.id) is not made:  # else an interrupt came when all was done
            rebuild.give_up()
        with self._engine.lock:
            if old.blocked and not old.deleted:
                old.unblock()

    def _not_recreated(self, name: str, exc: Exception) -> MQError:
        """What to raise when recreating the queue ended with `exc`."""
        if self._log.failure is not None and not isinstance(exc, KeyError):
            return self._engine.translated(LogClosed(str(exc)))  # whatever came of that
        if not isinstance(exc, OSError):
            text, away = f"queue {name!r} can't be recreated: {exc}", self._log.archive_away()
            return MediaImageMissing(f"{text}; {away}" if away else text, name=name)
        text = f"queue {name!r} can't be recreated ({exc}); nothing is lost by that: {advice(exc)} and try again"
        if exc.errno in NO_SPACE:
            return StorageFull(text, name=name)
        return Unavailable(text, reason=Reason.FILE_SYSTEM_ERROR, name=name)

    def _place_of(self, queue: Queue) -> image.ImagePlace:
        if queue.image is not None:
            return queue.image
        if not self._state.recoverable(queue):
            text = f"queue {queue.name!r} is not media recoverable (IMGRCOVQ): delete it, or restore from a backup"
            raise NotImageRecoverable(text, name=queue.name)
        raise MediaImageMissing(f"this log has no media image of queue {queue.name!r}", name=queue.name)

    def _build(self, rebuild: Rebuild, place: image.ImagePlace, until: int, progress: Progress) -> None:
        with contextlib.closing(self._log.live_reader()) as reader:
            rebuild.add_image(image.read(reader, place, until), place)
        with contextlib.closing(self._log.live_reader()) as reader:
            rebuild.replay(reader, place.media, until, progress, self._skip(rebuild))

    def _skip(self, rebuild: Rebuild) -> Skip:
        """Passes over extents by their indexes, as far as they have one.

        A unit of work may have used the queue in one extent and be committed in a later one, which does not name the
        queue then: while one is known to the rebuild, an extent with a record of it is read.
        """
        log, extent_bytes, durable = self._log, self._log.state.extent_bytes, self._log.durable
        places = log.history().places()

        def skip(at: int) -> tuple[int, int]:
            while True:
                sequence = at // extent_bytes
                border = (sequence + 1) * extent_bytes
                place = places.get(sequence) if border <= durable else None
                index = None if place is None else extent_index.load(self._state.disk, place, log.state.log_id)
                if index is None or any(map(index.has_queue, rebuild.by_id)):
                    return at, border
                if any(index.has_unit(unit.number) for unit in rebuild.uows):
                    return at, border
                at = max(index.end_lsn, border)

        return skip

    def _replace(self, old: Queue, rebuild: Rebuild) -> Queue:
        """Let the queue that was built take the place of the old one: wholly, or an error. The lock is held."""
        state = self._state
        new = rebuild.by_id[old.id]
        changes = [_relinked(unit, rebuild.uows.get(unit.number), old, new) for unit in state.uows if _uses(unit, old)]
        new.take_qmgr_attributes(state.qmgr)
        new.image = old.image
        new.changed = True  # for the checkpoints of this store
        try:
            for change in changes:
                change.make(old, new)
                self._engine.promise_again(change.unit)
            old.retire()
            state.retired += [(old.name, number) for number in old.segments] + rebuild.retired + rebuild.doomed
            state.retired_bytes += large_bytes(old.segments.values())
            state.queues[new.name] = state.by_id[new.id] = new
        except BaseException as exc:  # an interrupt: units of work hold the messages of one queue or the other
            self._engine.fail(exc)
            raise
        return new


def _uses(unit: Uow, queue: Queue) -> bool:
    """Has the unit of work put to the queue, or got from it?"""
    used = [run.queue for run in unit.puts] + [pair[0] for pair in unit.gets]
    return queue.id in unit.lost or any(one is queue for one in used)


@attrs.frozen
class _Relinked:
    """A unit of work that holds the messages of the new queue instead of the old one's."""

    unit: Uow
    puts: list[PutRun]
    puts_logged: int
    gets: list[tuple[Queue, Entry]]
    gets_logged: int
    volatile: int  # non-persistent messages that it has put to the queue

    def make(self, old: Queue, new: Queue) -> None:
        unit = self.unit
        unit.lost.pop(old.id, None)
        unit.puts, unit.puts_logged = self.puts, self.puts_logged
        unit.put_count = sum(len(run.heads) for run in self.puts)
        unit.gets, unit.gets_logged = self.gets, self.gets_logged
        if any(run.queue is new and run.persistent for run in self.puts):
            unit.touched[new.id] = new
        new.depth += self.volatile
        new.uncommitted += self.volatile


def _relinked(unit: Uow, rebuilt: Uow | None, old: Queue, new: Queue) -> _Relinked:
    """What is to be changed of the unit. Raises KeyError where the log does not have what it has got.

    Non-persistent messages that it has got are gone with the old queue; those that it has put are not there yet.
    """
    puts: list[PutRun] = [] if rebuilt is None else [run for run in rebuilt.puts if run.queue is new]
    gets: list[tuple[Queue, Entry]] = [] if rebuilt is None else [get for get in rebuilt.gets if get[0] is new]
    if old.id in unit.lost:  # in doubt since before the start: all that it has done is in the log
        gets += [get for get in unit.gets if get[0] is not old]
        puts = sorted([run for run in unit.puts if run.queue is not old] + puts, key=lambda run: run.ordinal)
        return _Relinked(unit, puts, len(puts), gets, len(gets), volatile=0)
    by_sequence = {entry.sequence: entry for _, entry in gets}
    gone = [queue is old and not entry.persistent for queue, entry in unit.gets]
    return _Relinked(
        unit,
        puts=[run.to(new) if run.queue is old else run for run in unit.puts],
        puts_logged=unit.puts_logged,
        gets=[
            (new, by_sequence[entry.sequence]) if queue is old else (queue, entry)
            for (queue, entry), left_out in zip(unit.gets, gone, strict=True)
            if not left_out
        ],
        gets_logged=unit.gets_logged - sum(gone[: unit.gets_logged]),
        volatile=sum(len(run.heads) for run in unit.puts if run.queue is old and not run.persistent),
    )
