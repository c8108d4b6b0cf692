"""Which extents of a linear log are still needed, and what becomes of the others.

    active        a restart needs it
    inactive      media recovery needs it, or a reader that is at work
    superfluous   nothing needs it

With LogManagement=Manual superfluous extents stay until somebody removes them; with Automatic they are kept for reuse
or deleted; with Archive the same, once they were reported as archived. Beside that a policy of ages (`LogArchive`)
archives, compresses and removes. Always the oldest first, so that there is never a gap.
"""

import contextlib
import itertools
import threading
import weakref
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import attrs

from logger import claims, undone
from logger.archive import Archive, Outcome, undone_in
from logger.archive_plan import DONE, Action, ArchivePolicy, Plan, last_written
from logger.at_rest import active_path
from logger.clock import Clock
from logger.compressed import codec
from logger.config import LogType
from logger.disk import Disk
from logger.disk_errors import advice
from logger.errors import ArchiveFailed, LogError
from logger.extent import file_name, linear_number, number_of
from logger.history import History, Place, extent_number
from logger.log import Log
from logger.notices import ArchivedNotices
from logger.progress import GiveWay, Progress
from logger.whole_files import make_dirs
from qmgr.engine import Engine
from qmgr.errorlog import ErrorLog
from qmgr.errors import IniError, MediaNotSupported, Mistake, ObjectInUse, Reason, Unavailable, quoted
from qmgr.ini import LogManagement
from recovery import extent_index
from recovery.errors import QueueDamaged

POLICY_INTERVAL_NS = 10_000_000_000  # between looks whether an extent is old enough, at least
REST_FACTOR = 50  # times as long as a look took, until the next one
MAX_EXTENTS = 999_999_999  # that anybody asks to be removed
MAX_IDLE_NS = 15 * 60 * 1_000_000_000  # so long a reader that reads nothing keeps what it still has to read
LONG_AGO = 1  # microseconds since 1970-01-01: when a message was put that can be read nowhere but in the log
PAUSE_FACTOR = 6  # times as long as a piece of work took, others go on before the next one
MAX_PAUSE_S = 0.25


class _Ending(Exception):
    """The queue manager ends."""


class Retention:
    """Keeps the extents of one linear log; on a circular one it has nothing to do."""

    def __init__(self, engine: Engine, errors: ErrorLog, management: LogManagement, policy: ArchivePolicy) -> None:
        self._engine = engine
        self._log: Log = engine.log
        self._disk = disk = engine.state.disk
        self._clock = engine.clock
        self._errors = errors
        self._management = management
        self._policy = policy
        self._checkpointer = engine.checkpointer
        self._linear = engine.log.state.log_type is LogType.LINEAR
        self._reported_oldest = "", ""
        config = engine.log.config
        self._warn_above = config.max_files  # extents that are kept for want of a media image
        self._reported_damaged: set[str] = set()
        self.away = ""  # that the archive was away at the start, and what to do; "": it was there
        self._lock = threading.Lock()
        self._readers: weakref.WeakSet[Reading] = weakref.WeakSet()  # one that is forgotten needs nothing
        self._deciding = threading.Lock()  # held from the decision that an extent can go until it is gone
        self._working = threading.Lock()  # somebody moves or deletes extents
        self._noting = threading.Lock()  # somebody notes that extents are archived
        self._next_look_ns = self._next_house_ns = 0
        self._newly_archived = False  # extents were reported as archived since this was looked at
        self._archive_unseen = False  # the archive could not be looked at since the start
        self._latest: dict[int, tuple[int, int]] = {}  # by sequence: when it was taken, and its latest record's time
        self._indexed = 0  # the sequence before which no extent has to be looked at for an index
        if self._linear:
            self._check_archive(disk, config.archive_directory, active_path(config.path))
            self._history = engine.log.history()
            self._remember_undone()
            self._name_old_archives()
            self.away = engine.log.archive_away()
            if self.away:
                errors.say("AMQ9014", text=self.away)
            self._archive = Archive(disk, self._history, config.archive_directory)
            self._notices = ArchivedNotices(disk, config.path, engine.log.state.log_id)
            self._notices.forget_from(engine.log.buffer.tail // config.extent_bytes)
            if policy.compress_after is not None:
                self._try_codec()

    def _check_archive(self, disk: Disk, archive: str, active: str) -> None:
        """Raises IniError where archive and active directory lie in each other: both would be lost together."""
        inside, mine = disk.real_path(archive) + "/", disk.real_path(active) + "/"
        if inside.startswith(mine) or mine.startswith(inside):
            raise IniError(f"ArchivePath is {archive}, where the log itself lies ({active}); give another directory")
        if self._policy.archive_after is not None:
            try:
                make_dirs(disk, archive)
            except OSError as exc:
                self._errors.say("AMQ9007", text=f"ArchivePath can't be used ({exc}): {advice(exc)} or correct it")

    def _remember_undone(self) -> None:
        """Find what the archive has of a past that a backup has undone, before anybody reads it.

        What can't be looked at now counts for nothing until it can be; the queue manager works without it.
        """
        disk, config = self._disk, self._log.config
        log_id, size = self._log.state.log_id, self._log.state.extent_bytes
        known, archive = undone.read(disk, config.path, log_id), config.archive_directory
        head = min(self._checkpointer.heads) // size
        since = min(known.since, head) if known.since else head
        unused = False
        try:
            current = self._log.buffer.tail // size
            unused = archive != known.compared and archive not in claims.used_archives(disk, config.path)
            unused = unused and any(extent_number(name) is not None for name in disk.list(archive))
            names = undone_in(disk, self._history, since=since, current=current, unused=unused)
            found = attrs.evolve(known, names=known.names | names, since=0, unseen=False)
            if unused:
                found = attrs.evolve(found, compared=archive)
            if self._log.archive_away():
                found = attrs.evolve(found, since=since)
        except (LogError, OSError) as exc:
            found = attrs.evolve(known, since=since, unseen=unused)
            self._errors.say("AMQ9007", text=f"the archive can't be looked at ({exc}): what it has is not read for now")
        if found != known:
            undone.write(disk, config.path, log_id, found)
        self._archive_unseen = bool(found.since)
        if found.names - known.names:
            self._errors.say("AMQ9018", count=len(found.names), path=archive)

    def _check_archive_seen(self) -> None:
        """Nothing may be archived before it is known what the archive has. Raises ArchiveFailed, LogError, OSError."""
        if self._archive_unseen:
            with self._history.hidden_lock:  # it reads, compares, and writes what others may write meanwhile
                self._remember_undone()
        if self._archive_unseen:
            self._log.check_archive()  # where it is away, that says what to do
            archive = self._log.config.archive_directory
            raise ArchiveFailed(
                f"nothing was done: what the archive {archive} has could not be looked at; the error log says why"
            )

    def _name_old_archives(self) -> None:
        """Say which directories were the archive before and still have extents of this log, which nobody reads."""
        disk, config = self._disk, self._log.config
        known = {disk.real_path(directory) for directory in self._history.directories}
        with contextlib.suppress(OSError):  # where that can't be told the start goes on
            for path in [*claims.used_archives(disk, config.path), f"{config.path}/archive"]:
                if disk.real_path(path) not in known:
                    known.add(disk.real_path(path))
                    held = History(disk, [path], self._history.log_id, self._history.extent_bytes).places()
                    if held:
                        self._errors.say("AMQ9012", path=path, count=len(held), text=config.archive_directory)

    def _try_codec(self) -> None:
        """Say at the start, not only when the first extent is old enough, that there is no such compression here."""
        try:
            codec(self._policy.compression, "qm.ini")
        except LogError:
            text = "Compression=zstd of qm.ini needs the package zstandard: pip install zstandard, or use gzip"
            self._errors.say("AMQ9007", text=text)

    # ---- what is needed

    def needed_from(self) -> dict[str, int]:
        """For each that needs the log, by name, the sequence of the first extent needed, even after a crash.

        Raises LogError.
        """
        extent_bytes = self._log.state.extent_bytes
        with self._engine.lock:
            lsns = {"restart": min(self._checkpointer.heads)}  # with the older one a restart must do
            media = self._engine.state.media_lsn()
            tail = self._log.buffer.tail
        self._log.sync(tail)  # else the end of an image counts here, and is lost with what came before it
        if media:
            lsns["media recovery"] = media
        with self._lock:
            now = self._clock.elapsed_ns()
            read = [reading.lsn for reading in self._readers if reading.counts(now)]
        if read:
            lsns["a reader"] = min(read)
        return {who: at // extent_bytes for who, at in lsns.items()}

    def oldest(self) -> tuple[str, str]:
        """The names of the oldest extents that restart and media recovery need."""
        extent_bytes = self._log.state.extent_bytes
        restart = self._log.state.head
        with self._engine.lock:
            media = self._engine.state.media_lsn() or restart
        return name_of(restart // extent_bytes), name_of(min(media, restart) // extent_bytes)

    def awaits_archiving(self) -> str | None:
        """The name of the oldest extent that waits to be reported as archived, "" where none does.

        None unless LogManagement=Archive.
        """
        if self._management is not LogManagement.ARCHIVE:
            return None
        with contextlib.suppress(OSError):
            sequence = self.facts().get("archived_from")
            return name_of(sequence) if sequence else ""
        return ""

    @contextlib.contextmanager
    def reading_from(self, lsn: int) -> Iterator["Reading"]:
        """In the block nothing from this LSN on goes; the reader may move it forward."""
        reading = self.pin(lsn)
        try:
            yield reading
        finally:
            self.unpin(reading)

    def pin(self, lsn: int) -> "Reading":
        """Nothing from this LSN on goes before the reading is moved forward, unpinned or forgotten."""
        reading = Reading(lsn)
        with self._deciding, self._lock:
            self._readers.add(reading)
        return reading

    def unpin(self, reading: "Reading") -> None:
        with self._lock:
            self._readers.discard(reading)

    def _needed_to_remove(self, older_than: int, now_us: int) -> dict[str, int]:
        """From which sequence on extents may not be removed, by reason: those of `needed_from`, and the oldest message.

        An extent is not removed by age alone while it has a message that nobody has got yet. Those are looked at that
        were last written `older_than` seconds before `now_us`, or more: no others would be removed.
        """
        needed = self.needed_from()
        oldest_us = self._oldest_message()
        if oldest_us:
            copies = self._history.copies()
            written = last_written(copies)
            for gone in set(self._latest) - copies.keys():
                self._latest.pop(gone, None)
            first = min(copies, default=None)
            if oldest_us <= now_us:  # else the clock was set back since, and that may have been in any of them
                asked = (s for s in sorted(written) if s <= needed["restart"])  # whatever comes later is kept anyway
                old = itertools.takewhile(lambda s: now_us - written[s] >= older_than * 1_000_000, asked)
                has_it = (s for s in old if self._may_have(copies[s][0], written[s], oldest_us))
                first = next(has_it, None)
            if first is not None:
                needed["an undelivered message"] = first
        return needed

    def _may_have(self, place: Place, written_us: int, oldest_us: int) -> bool:
        """May the extent, last written then, have a message that was put at that moment or later?

        When its successor took its place tells, but where the clock was set back meanwhile: then it seems older than
        its own beginning, or than its last records, which its index says. Where nobody knows it may.
        """
        if written_us >= oldest_us:
            return True
        latest_us = self._latest_record(place, make=written_us < place.taken)
        return written_us < place.taken if latest_us is None else latest_us >= oldest_us

    def _latest_record(self, place: Place, *, make: bool) -> int | None:
        """The latest time of a record that begins in the extent; None where that is not known.

        By its index, which is made if need be where that is worth it (`make`).
        """
        disk, log_id, sequence = self._disk, self._log.state.log_id, place.sequence
        known = self._latest.get(sequence)
        if known is None or known[0] != place.taken:
            with contextlib.suppress(_Ending, LogError, OSError):
                index = extent_index.load(disk, place, log_id)
                give_way = partial(self._yield_or_end, self._pace())
                if index is None and make and self._index(self._log.history(), place, give_way):
                    index = extent_index.load(disk, place, log_id)
                if index is not None:
                    known = self._latest[sequence] = place.taken, index.high_time
        return None if known is None or known[0] != place.taken else known[1]

    def _oldest_message(self) -> int:
        """When the oldest persistent message that is still there was put, about; 0: there is none."""
        found = []
        with self._engine.lock:
            queues = list(self._engine.state.by_id.values())
        for queue in queues:
            try:
                with self._engine.lock:
                    found += [LONG_AGO] if queue.damaged else queue.put_times()
            except (QueueDamaged, OSError):
                found.append(LONG_AGO)
        with self._engine.lock:
            found += [entry.put_time for unit in self._engine.state.uows for _, entry in unit.gets]
        return min(found, default=0)

    # ---- after each checkpoint, and in between where an operator has done something or wants room

    def keep_house(self) -> None:
        """Say what is needed if that has changed, and let go of what is not.

        A disk that refuses costs nothing but the room: the next checkpoint tries again. Raises LogError.
        """
        if self._linear:
            try:
                self._keep_house()
            except OSError as exc:
                self._errors.say("AMQ6708", text=str(exc))

    def keep_house_if_due(self) -> None:
        """Keep house if extents were reported as archived or an image was recorded: the next checkpoint may be far."""
        now = self._clock.elapsed_ns()
        if not self._linear or now < self._next_house_ns:
            return
        self._next_house_ns = now + POLICY_INTERVAL_NS
        if self._newly_archived or self.oldest() != self._reported_oldest:
            with contextlib.suppress(LogError):  # a log that has failed is heard of by all others
                self.keep_house()

    def _keep_house(self) -> None:
        oldest = self.oldest()
        if oldest != self._reported_oldest:
            self._reported_oldest = oldest
            self._errors.say("AMQ7467", name=oldest[0])
            self._errors.say("AMQ7468", name=oldest[1])
        if self._management is not LogManagement.MANUAL and self._working.acquire(blocking=False):
            try:
                self._newly_archived = False
                self._reuse()
            finally:
                self._working.release()
        self._warn_of_missing_images()
        created, reused, deleted = self._log.drain_extent_counts()
        if created or reused or deleted:
            self._errors.say("AMQ7490", created=created, reused=reused, deleted=deleted)

    def _warn_of_missing_images(self) -> None:
        """Say, each time that they have become twice as many, how many extents are kept for want of an image.

        Where extents are archived by hand, or images are recorded by schedule, somebody looks after that.
        """
        if self._management is not LogManagement.AUTOMATIC or self._engine.state.qmgr.image_schedule == "AUTO":
            return
        needed = self.needed_from()
        count = needed["restart"] - needed.get("media recovery", needed["restart"])
        if count > self._warn_above:
            self._warn_above = 2 * count
            self._errors.say("AMQ9015", count=count, name=self.oldest()[1])

    def _reuse(self) -> None:
        """Keep as many superfluous extents for reuse as there are primaries; delete the others."""
        for sequence in self._log.inactive():
            with self._deciding:
                waiting = self._management is LogManagement.ARCHIVE and not self._archived(sequence)
                if sequence >= min(self.needed_from().values()) or waiting:
                    return
                self._log.recycle(sequence)

    def _archived(self, sequence: int) -> bool:
        """Has somebody else reported the extent as archived? Nobody has to where our own policy moves it there."""
        return self._policy.archive_after is None and self._notices.covers(sequence)

    # ---- the policy, and what an operator asks for

    def keep_policy(self) -> None:
        """Archive, compress and remove what has the age for it. What goes wrong is said."""
        policy, now = self._policy, self._clock.elapsed_ns()
        ages = policy.archive_after, policy.compress_after, policy.remove_after
        if not self._linear or now < self._next_look_ns or all(age is None for age in ages):
            return
        worked = False
        try:
            with self._working:
                self._check_archive_seen()
                now_us = self._clock.wall_us()
                kept = self._archive.apply_policy(
                    policy,
                    now_us=now_us,
                    active_from=self.needed_from()["restart"],
                    needed_from=lambda: self._needed_to_remove(policy.remove_after or 0, now_us),
                    still_needed_from=self.needed_from,
                    give_way=partial(self._yield_or_end, self._pace()),
                    removing=self._deciding,
                )
            worked = any(outcome.done for outcome in kept.values())
            for action, outcome in kept.items():
                if outcome.done:
                    size = sum(step.size for step in outcome.done)
                    self._errors.say("AMQ9011", count=len(outcome.done), size=size, done=DONE[action])
                self._name_damaged(outcome)
        except _Ending:
            return
        except (LogError, OSError) as exc:
            way = f"; nothing is lost: {advice(exc)} soon" if isinstance(exc, OSError) else ""
            self._errors.say("AMQ9007", text=f"{exc}{way}; it is tried again")
        took = self._clock.elapsed_ns() - now
        rest = POLICY_INTERVAL_NS if worked else max(POLICY_INTERVAL_NS, REST_FACTOR * took)
        self._next_look_ns = now + took + rest

    # ---- indexes

    def index_extents(self) -> None:
        """Build an index beside each extent that is full and has none, giving way; the rest is left to the next time.

        The last record of an extent may end in the next one, so that has to be full too. Nothing needs an index: what
        can't be read or written is passed over, and is built by whoever asks for it.
        """
        log, began = self._log, self._clock.elapsed_ns()
        full = log.durable // log.state.extent_bytes - 1
        if not self._linear or full <= self._indexed:
            return
        with contextlib.suppress(_Ending, OSError):
            history = log.history()
            give_way = partial(self._yield_or_end, self._pace())
            for sequence, place in history.places().items():
                if not self._indexed <= sequence < full:
                    continue
                give_way()
                with contextlib.suppress(LogError):
                    if not self._index(history, place, give_way):
                        return
                self._indexed = sequence + 1
                if self._clock.elapsed_ns() - began >= POLICY_INTERVAL_NS:
                    return
            self._indexed = full

    def _index(self, history: History, place: Place, give_way: GiveWay) -> bool:
        """False when the extent has moved meanwhile."""
        log, disk = self._log, self._disk
        if extent_index.is_stored(disk, place):
            return True  # it may be of another extent, which whoever reads it finds out
        with contextlib.closing(log.live_reader(history)) as reader:
            index = extent_index.build(reader, place, log.state.log_id, log.state.extent_bytes, give_way)
        with self._deciding:  # so that no index stays behind of an extent that goes
            there = disk.exists(place.path)
            if there:
                extent_index.store(disk, place, index)
        return there

    def _name_damaged(self, outcome: Outcome) -> None:
        """Say once of each extent that it was passed over because it is damaged."""
        for path in outcome.damaged:
            if path not in self._reported_damaged:
                self._reported_damaged.add(path)
                self._errors.say("AMQ9013", path=path)

    def _pace(self) -> "Pace":
        return Pace(self._clock, lambda: self._log.buffer.tail)

    def _yield_or_end(self, pace: "Pace") -> None:
        """Let others go on; end the work when the queue manager ends, or has failed."""
        if self._engine.quiescing or self._engine.refusal is not None:
            raise _Ending
        pace.give_way()

    def plan(self, action: Action, older_than: int) -> Plan:
        """What is to be done with extents that were last written so many seconds ago, or more."""
        self._check()
        if action is Action.ARCHIVE and self._management is LogManagement.AUTOMATIC:
            raise Mistake(
                "with LogManagement=Automatic extents are reused as soon as nothing needs them, so an archive would "
                "have gaps; set LogManagement=Manual or Archive"
            )
        self._check_archive_seen()
        now_us = self._clock.wall_us()
        needed = self._needed_to_remove(older_than, now_us)
        return self._archive.plan(
            action,
            after=older_than,
            now_us=now_us,
            active_from=needed["restart"],
            compression=self._policy.compression,
            needed_from=needed,
        )

    def do(self, action: Action, older_than: int, progress: Progress, *, dry_run: bool) -> Outcome:
        """Archive, compress or remove. Raises LogError, MediaNotSupported, ObjectInUse, Unavailable when it ends."""
        if dry_run:
            plan = self.plan(action, older_than)
            return Outcome(done=plan.steps, held=plan.held, damaged=plan.damaged)
        self._check()
        if not self._working.acquire(blocking=False):
            raise ObjectInUse("log extents are being archived, compressed or removed already; try again later")
        try:
            plan = self.plan(action, older_than)
            # The oldest message does not become older while this goes on, so only the others are asked again.
            return self._archive.run(
                plan,
                progress=progress,
                give_way=partial(self._yield_or_end, self._pace()),
                needed_from=self.needed_from,
                removing=self._deciding,
            )
        except _Ending:
            self._engine.check()
            text = f"queue manager {self._engine.name!r} is ending; what was done is done, ask for the rest again"
            raise Unavailable(text, reason=self._engine.ending, name=self._engine.name) from None
        finally:
            self._working.release()

    def note_archived(self, name: str, *, all_before: bool = False) -> None:
        """Note that others have archived an extent, or all up to it (SET LOG ARCHIVED, RESET QMGR TYPE(ARCHLOG)).

        Raises Mistake for one that is not known or is being written, or unless LogManagement=Archive.
        Raises LogError, OSError.
        """
        self._check()
        if self._management is not LogManagement.ARCHIVE:
            text = "extents are reported as archived with LogManagement=Archive only"
            raise Mistake(text, reason=Reason.LOG_TYPE_ERROR)
        number = number_of(name) if isinstance(name, str) else None
        places = self._log.history().places()
        held = {linear_number(sequence): sequence for sequence in places}
        if number is None or number not in held:
            text = f"there is no log extent {quoted(name)}; the oldest one is {name_of(min(held.values()))}"
            raise Mistake(text, reason=Reason.LOG_EXTENT_NOT_FOUND)
        current = self._log.buffer.tail // self._log.state.extent_bytes
        if held[number] >= current:
            text = f"log extent {name} is being written; it can be archived when the next one is"
            raise Mistake(text, reason=Reason.CURRENT_LOG_EXTENT)
        self._log.sync((held[number] + 1) * self._log.state.extent_bytes)  # else it may be written after a crash
        first = 1 if all_before else held[number]
        with self._noting:
            self._check_archive_seen()  # what is let go of now could not be told from what is of another past later
            self._archive.recognise(place for s, place in places.items() if first <= s <= held[number])
            self._notices.add(first, held[number])
            self._newly_archived = True

    def advance(self) -> None:
        """Go on in the next extent, so that this one can be archived (RESET QMGR TYPE(ADVANCELOG))."""
        self._check()
        self._engine.advance_log()

    def current(self) -> str:
        """The name of the extent that is being written."""
        return name_of((self._log.buffer.tail - 1) // self._log.state.extent_bytes)

    def facts(self) -> dict[str, Any]:
        """What `published.py` says of the extents of a linear log; {} for a circular one. Raises OSError."""
        if not self._linear:
            return {}
        with self._engine.lock:
            media = self._engine.state.media_lsn()
        head, extent_bytes = self._log.state.head, self._log.state.extent_bytes
        places = self._log.history().places()  # by one of its own: another thread may be planning with ours
        inactive = {s: place.size for s, place in places.items() if s < head // extent_bytes}
        since = min(media or head, head) // extent_bytes
        active = active_path(self._log.config.path) + "/"  # what our own archive has taken waits for nobody
        waiting = [s for s in inactive if places[s].path.startswith(active) and not self._notices.covers(s)]
        archiving = self._management is LogManagement.ARCHIVE
        return {
            "media": media or head,
            "media_bytes": sum(size for s, size in inactive.items() if s >= since),
            "archived_from": min(waiting) if archiving and waiting else 0,
            "archive_bytes": sum(inactive[s] for s in waiting if s < since) if archiving else 0,
            "reuse_bytes": self._log.reusable_bytes(),
        }

    def _check(self) -> None:
        self._engine.check()
        if not self._linear:
            raise MediaNotSupported(
                f"queue manager {self._engine.name!r} has circular logging, which reuses its extents by itself; "
                f"migmqlog changes it to linear logging",
                name=self._engine.name,
            )


class Pace:
    """Pauses in long work with files while others write to the log: disk and processor are theirs first.

    The work gets a seventh of the time then, and all of it where nobody writes.
    """

    def __init__(self, clock: Clock, tail: Callable[[], int]) -> None:
        """`tail()` says how far the log has been written."""
        self._clock = clock
        self._tail = tail
        self._seen = tail()
        self._since_ns = clock.elapsed_ns()

    def give_way(self) -> None:
        """A piece of the work is done."""
        clock, tail = self._clock, self._tail()
        if tail == self._seen:
            clock.give_way()
        else:
            seconds = (clock.elapsed_ns() - self._since_ns) / 1e9
            clock.wait(threading.Event(), min(PAUSE_FACTOR * seconds, MAX_PAUSE_S))
        self._seen, self._since_ns = self._tail(), clock.elapsed_ns()


class Reading:
    """Somebody reads the log, and still has to read what begins at `lsn`.

    One that says since when it is idle no longer counts after MAX_IDLE_NS, and has to pin anew before it reads on.
    """

    __slots__ = ("__weakref__", "idle_since", "lsn")

    def __init__(self, lsn: int) -> None:
        self.lsn = lsn
        self.idle_since: int | None = None  # by the clock's `elapsed_ns`; None: it is at work

    def counts(self, now: int) -> bool:
        """Does it keep extents at the moment `now`? A reader that was idle for too long finds out by `resume`."""
        since = self.idle_since
        return since is None or now - since < MAX_IDLE_NS

    def resume(self, ticks: Callable[[], int]) -> bool:
        """It is at work again. False: it has not counted for a while, so what it needs may be gone."""
        since, self.idle_since = self.idle_since, None
        return since is None or ticks() - since < MAX_IDLE_NS

    def move(self, lsn: int) -> None:
        self.lsn = lsn


def name_of(sequence: int) -> str:
    return file_name(linear_number(sequence))
