"""What becomes of the extents of a linear log that no restart needs any more: kept, archived, reused or removed.

    active        a restart needs it
    inactive      media recovery needs it, or a reader that is at work
    superfluous   nothing needs it

With LogManagement=Manual superfluous extents stay until somebody removes them; with Automatic they are kept for reuse
or deleted; with Archive the same, once they were reported as archived. Beside that a policy of ages (`LogArchive`)
archives, compresses and removes. Always the oldest first, so that there is never a gap.
"""

import contextlib
import threading
from typing import Any

import attrs

from logger import claims, undone
from logger.archive import Archive, Outcome, undone_in
from logger.archive_plan import DONE, Action, ArchivePolicy, Plan
from logger.at_rest import active_path
from logger.compressed import codec
from logger.config import LogType
from logger.disk import Disk
from logger.disk_errors import advice
from logger.errors import ArchiveFailed, LogError
from logger.extent import linear_number, number_of
from logger.history import History, extent_number
from logger.log import Log
from logger.notices import ArchivedNotices
from logger.progress import GiveWay, Progress
from logger.whole_files import make_dirs
from qmgr.archive_watch import ArchiveWatch
from qmgr.engine import Engine
from qmgr.errorlog import ErrorLog
from qmgr.errors import IniError, MediaNotSupported, Mistake, ObjectInUse, Reason, Unavailable, quoted
from qmgr.extent_indexing import ExtentIndexing
from qmgr.ini import LogManagement
from qmgr.log_needs import LogNeeds, name_of
from qmgr.pace import Ending, pace_of
from qmgr.threads import LOOK_S
from qmgr.undelivered import Undelivered

POLICY_INTERVAL_NS = 10_000_000_000  # between looks whether an extent is old enough, at least
REST_FACTOR = 50  # times as long as a look took, until the next one
MAX_REST_NS = 3600_000_000_000  # one took long also where the process was stopped in it, or the disk hung
MAX_EXTENTS = 999_999_999  # that anybody asks to be removed


class Retention:
    """Keeps the extents of one linear log; on a circular one it has nothing to do."""

    def __init__(
        self,
        engine: Engine,
        needs: LogNeeds,
        indexing: ExtentIndexing,
        errors: ErrorLog,
        management: LogManagement,
        policy: ArchivePolicy,
        watch: ArchiveWatch,
    ) -> None:
        self._engine = engine
        self._watch = watch
        self.needs = needs
        self.indexing = indexing
        self._log: Log = engine.log
        self._disk = engine.state.disk
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
        self._working = threading.Lock()  # somebody moves or deletes extents
        self._noting = threading.Lock()  # somebody notes that extents are archived
        self._next_look_ns = self._next_house_ns = 0
        self._left_over = False  # extents were reported as archived since this was looked at, or could not be then
        self._archive_unseen = False  # the archive could not be looked at since the start
        self._archive_sizes: dict[int, int] = {}  # by sequence: what it has for media recovery, as of the last look
        if self._linear:
            with watch.at_work():
                self._open_archive()

    def _open_archive(self) -> None:
        """Look at the archive for the first time."""
        engine, disk, config = self._engine, self._disk, self._log.config
        self._check_archive(disk, config.archive_directory, active_path(config.path))
        self._history = engine.log.history()
        self._remember_undone()
        self._name_old_archives()
        self.away = engine.log.archive_away()
        if self.away:
            self._errors.say("AMQ9014", text=self.away)
        self._undelivered = Undelivered(engine, self._history, self.needs, self.indexing)
        self._archive = Archive(disk, self._history, config.archive_directory)
        self._notices = ArchivedNotices(disk, config.path, engine.log.state.log_id)
        self._notices.forget_from(engine.log.buffer.tail // config.extent_bytes)
        if self._policy.compress_after is not None:
            self._try_codec()
        self.look_at_archive()

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
        if self._left_over or self.needs.oldest() != self._reported_oldest:
            with contextlib.suppress(LogError):  # a log that has failed is heard of by all others
                self.keep_house()

    def _keep_house(self) -> None:
        oldest = self.needs.oldest()
        if oldest != self._reported_oldest:
            self._reported_oldest = oldest
            self._errors.say("AMQ7467", name=oldest[0])
            self._errors.say("AMQ7468", name=oldest[1])
        if self._management is not LogManagement.MANUAL:
            self._left_over = True  # while somebody moves extents; then it is looked at again
            if self._working.acquire(blocking=False):
                try:
                    self._left_over = False
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
        needed = self.needs.needed_from()
        count = needed["restart"] - needed.get("media recovery", needed["restart"])
        if count > self._warn_above:
            self._warn_above = 2 * count
            self._errors.say("AMQ9015", count=count, name=self.needs.oldest()[1])

    def _reuse(self) -> None:
        """Keep as many superfluous extents for reuse as there are primaries; delete the others."""
        for sequence in self._log.inactive():
            if not self.needs.deciding.acquire(timeout=LOOK_S):
                self._left_over = True  # who has it may wait for the archive, and a checkpoint for nobody who does
                return
            try:
                waiting = self._management is LogManagement.ARCHIVE and not self._archived(sequence)
                if sequence >= min(self.needs.needed_from().values()) or waiting:
                    return
                self._log.recycle(sequence)
            finally:
                self.needs.deciding.release()

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
            with self._working, self._watch.at_work():  # an operator's work, which has steps of its own, is no wait
                self._check_archive_seen()
                now_us = self._clock.wall_us()
                kept = self._archive.apply_policy(
                    policy,
                    now_us=now_us,
                    active_from=self.needs.needed_from()["restart"],
                    needed_from=lambda: self._undelivered.needed_to_remove(policy.remove_after or 0, now_us),
                    still_needed_from=self.needs.needed_from,
                    give_way=self._pace(),
                    removing=self.needs.deciding,
                )
            worked = any(outcome.done for outcome in kept.values())
            for action, outcome in kept.items():
                if outcome.done:
                    size = sum(step.size for step in outcome.done)
                    self._errors.say("AMQ9011", count=len(outcome.done), size=size, done=DONE[action])
                self._name_damaged(outcome)
        except Ending:
            return
        except (LogError, OSError) as exc:
            way = f"; nothing is lost: {advice(exc)} soon" if isinstance(exc, OSError) else ""
            self._errors.say("AMQ9007", text=f"{exc}{way}; it is tried again")
        took = self._clock.elapsed_ns() - now
        rest = POLICY_INTERVAL_NS if worked else max(POLICY_INTERVAL_NS, min(REST_FACTOR * took, MAX_REST_NS))
        self._next_look_ns = now + took + rest

    def _pace(self) -> GiveWay:
        """What work at the archive calls after each piece of it."""
        give_way = pace_of(self._engine)

        def step() -> None:
            self._watch.step()
            give_way()

        return step

    def _name_damaged(self, outcome: Outcome) -> None:
        """Say once of each extent that it was passed over because it is damaged."""
        for path in outcome.damaged:
            if path not in self._reported_damaged:
                self._reported_damaged.add(path)
                self._errors.say("AMQ9013", path=path)

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
        needed = self._undelivered.needed_to_remove(older_than, now_us)
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
            with self._watch.at_work():
                plan = self.plan(action, older_than)
                # The oldest message does not become older while this goes on, so only the others are asked again.
                outcome = self._archive.run(
                    plan,
                    progress=progress,
                    give_way=self._pace(),
                    needed_from=self.needs.needed_from,
                    removing=self.needs.deciding,
                )
                self.look_at_archive()
            return outcome
        except Ending:
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
            self._left_over = True

    def advance(self) -> None:
        """Go on in the next extent, so that this one can be archived (RESET QMGR TYPE(ADVANCELOG))."""
        self._check()
        self._engine.advance_log()

    def current(self) -> str:
        """The name of the extent that is being written."""
        return name_of((self._log.buffer.tail - 1) // self._log.state.extent_bytes)

    def index_extents(self) -> None:
        """Build the indexes that lack, in the archive too."""
        if self._linear:
            with self._watch.at_work():
                self.indexing.index_extents(self._pace())

    def look_at_archive(self) -> None:
        """Note what the archive has that media recovery needs, for `facts`. For those who may wait for that directory.

        Where it can't be looked at what was noted before stays.
        """
        if self._linear:
            active = active_path(self._log.config.path) + "/"
            with contextlib.suppress(LogError, OSError), self._watch.at_work():
                places = self._log.history().places_from(self._kept_from(self._media_lsn()))
                self._archive_sizes = {s: one.size for s, one in places.items() if not one.path.startswith(active)}

    def _media_lsn(self) -> int:
        """From where on media recovery needs the log; 0: there is no image."""
        with self._engine.lock:
            return self._engine.state.media_lsn()

    def _kept_from(self, media: int) -> int:
        """The sequence from which on the log is needed, for media recovery from the LSN `media` on or a restart."""
        head = self._log.state.head
        return min(media or head, head) // self._log.state.extent_bytes

    def facts(self) -> dict[str, Any]:
        """What `published.py` says of the extents of a linear log; {} for a circular one. Raises OSError.

        The archive is not looked at: its file system may be slow, hang or be away, and the housekeeping asks this.
        """
        if not self._linear:
            return {}
        media = self._media_lsn()
        log_id, extent_bytes, head = self._log.state.log_id, self._log.state.extent_bytes, self._log.state.head
        since, end = self._kept_from(media), head // extent_bytes
        history = History(self._disk, [active_path(self._log.config.path)], log_id, extent_bytes, skip_undone=False)
        inactive = {s: place.size for s, place in history.places().items() if s < end}
        waiting = [s for s in inactive if not self._notices.covers(s)]  # what our own archive has waits for nobody
        kept = self._archive_sizes | inactive
        archiving = self._management is LogManagement.ARCHIVE
        return {
            "media": media or head,
            "media_bytes": sum(size for s, size in kept.items() if since <= s < end),
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
