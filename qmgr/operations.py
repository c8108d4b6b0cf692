"""What operators do with a queue manager, and what it tells them: images, log extents, attributes, rights, status."""

import contextlib
import math
from collections.abc import Iterable
from typing import Any, Unpack

from logger.archive import Outcome
from logger.archive_plan import Action, parse_age
from logger.disk_errors import NO_SPACE, advice
from logger.errors import LogError
from logger.progress import Progress, no_progress
from qmgr import authority, events
from qmgr.errors import (
    AlreadyExists,
    MediaNotSupported,
    Mistake,
    Reason,
    StorageFull,
    Unavailable,
    quoted,
)
from qmgr.infos import Status, TransactionInfo
from qmgr.objects import QmgrAttributes, QmgrDefinition, check_flag, check_progress, several, with_attributes
from qmgr.published import describe_extents, describe_inactive, describe_space, file_systems, jsonable
from qmgr.queue import Queue
from qmgr.retention import MAX_EXTENTS
from qmgr.running import Running

NEVER = float("inf")  # seconds


def describe_queue(queue: Queue) -> dict[str, Any]:
    """How a queue stands, for those who look from other processes. The caller need not hold the lock."""
    return {
        "name": queue.name,
        "depth": queue.depth or (None if queue.damaged else 0),  # what can't be read may be any number
        "uncommitted": queue.uncommitted,
        "memory": sum(queue.memory_bytes),
        "max_depth": queue.definition.max_depth,
        "last_put": queue.last_put,
        "last_get": queue.last_get,
        "damaged": queue.damaged,
    }


def _age(older_than: object) -> int:
    """`older_than` in seconds, rounded up, so that nothing younger goes. Raises Mistake."""
    if isinstance(older_than, str):
        try:
            return parse_age(older_than)
        except ValueError as exc:
            raise Mistake(f"older_than: {exc}") from exc
    if not isinstance(older_than, int | float) or isinstance(older_than, bool) or not 0 <= older_than < NEVER:
        raise Mistake(f"older_than is seconds, 0 or more, or text such as 36h, not {quoted(older_than)}")
    return math.ceil(older_than)


class Operations(Running):
    """The verbs of operators."""

    def transactions(self) -> list[TransactionInfo]:
        """Every unit of work that has not ended, oldest first."""
        self._engine.check()
        with self._engine.lock:
            return self._transactions()

    def _transactions(self) -> list[TransactionInfo]:
        return [
            TransactionInfo(
                number=u.number,
                state=u.state,
                xid=u.xid,
                started=u.began,
                log_started=u.logged,
                first_lsn=u.first_lsn,
                puts=u.put_count,
                gets=len(u.gets),
                owner=u.owner,
            )
            for u in sorted(self._engine.state.uows, key=lambda u: u.number)
            if not u.for_client
        ]

    def force(self, lsn: int) -> None:
        """Wait until the log is as safe up to `lsn` as LogSync says: on disk, unless that is not `always`.

        One force serves all who wait. Raises Mistake beyond the log's end.
        """
        tail = self._log.buffer.tail
        if type(lsn) is not int or not 0 <= lsn <= tail:  # a force of what is not there would never end
            raise Mistake(f"{quoted(lsn)} is no LSN of this log; it ends at {tail}")
        self._engine.force(lsn)

    def checkpoint(self) -> None:
        """Take a checkpoint now. Raises StorageFull (2192) when the disk has no room for it."""
        self._checkpoint()

    def record_image(self, queue: str | Iterable[str] | None = None) -> list[str]:
        """Record media images of a queue, of some, or of all and the definitions (rcdmqimg); the names recorded.

        Work goes on meanwhile. Linear logging only. Raises MediaNotSupported, NotImageRecoverable, Damaged (2101).
        """
        if queue is not None and not isinstance(queue, Iterable):
            raise Mistake(
                f"media images are recorded of a queue, of several names, or of all (None), not of {quoted(queue)}"
            )
        names = [queue] if isinstance(queue, str) else queue
        recorded = self._media.record(None if names is None else several(names), catalog=names is None)
        for name in recorded:
            self.say("AMQ9003", name=name)
        return recorded

    def record_definitions(self) -> None:
        """Record the media image of all definitions: those of the queues and of the queue manager."""
        self._media.record_catalog()

    def oldest_extents(self) -> tuple[str, str]:
        """The names of the oldest log extents that a restart and media recovery need; the error log says them too."""
        self._engine.check()
        restart, media = self._retention.needs.oldest()
        self.say("AMQ7467", name=restart)
        self.say("AMQ7468", name=media)
        return restart, media

    def archive_log(
        self, *, older_than: str | int = 0, dry_run: bool = False, progress: Progress = no_progress
    ) -> Outcome:
        """Move the log extents that no restart needs to the archive; what was done, or would be.

        `older_than`: seconds since an extent was last written, 0 or more, or an age such as "36h". Each is copied, read
        back and compared before the original goes. `progress(done, total)` is called with bytes. Linear logging only.
        """
        return self._keep_extents(Action.ARCHIVE, older_than, dry_run, progress)

    def compress_log(
        self, *, older_than: str | int = 0, dry_run: bool = False, progress: Progress = no_progress
    ) -> Outcome:
        """Compress the log extents that no restart needs, wherever they lie; see `archive_log`. They stay readable."""
        return self._keep_extents(Action.COMPRESS, older_than, dry_run, progress)

    def remove_log(self, *, older_than: str | int, dry_run: bool = False, progress: Progress = no_progress) -> Outcome:
        """Delete the oldest log extents, archived or not, up to the first that is still needed; see `archive_log`.

        `.held` of what is returned says what needs that one: a restart, media recovery, a reader, a message that
        nobody has got yet.
        """
        return self._keep_extents(Action.REMOVE, older_than, dry_run, progress)

    def _keep_extents(self, action: Action, older_than: str | int, dry_run: bool, progress: Progress) -> Outcome:
        age = _age(older_than)
        check_flag(dry_run, "dry_run")
        check_progress(progress)
        try:
            return self._retention.do(action, age, progress, dry_run=dry_run)
        except (LogError, OSError) as exc:
            self._engine.check()
            way = f"; nothing is lost by that: {advice(exc)} and try again" if isinstance(exc, OSError) else ""
            system = exc if isinstance(exc, OSError) else exc.__cause__
            if isinstance(system, OSError) and system.errno in NO_SPACE:
                raise StorageFull(f"{exc}{way}", name=self.name) from exc
            raise Unavailable(f"{exc}{way}", reason=Reason.FILE_SYSTEM_ERROR, name=self.name) from exc

    def advance_log(self) -> str:
        """Go on in a new log extent, whose name is returned: the one so far can be archived then. Linear logging only.

        A checkpoint is taken in the new one at once, so that a restart soon does not need the old one. Raises
        ResourceProblem (2102), StorageFull (2192) when the disk has no room for the checkpoint.
        """
        self._retention.advance()
        self.checkpoint()
        return self._retention.current()

    def reduce_log(self, how: str | int = "AUTO") -> int:
        """Remove log extents that nothing needs: secondaries, and those kept for reuse; return how many went.

        `how`: "ONE", "MAX", at most so many, or "AUTO": all but half as many for reuse as there are primaries.
        """
        most = {"AUTO": MAX_EXTENTS, "MAX": MAX_EXTENTS, "ONE": 1}.get(how) if isinstance(how, str) else how
        if type(most) is not int or not 1 <= most <= MAX_EXTENTS:
            raise Mistake(f"how is AUTO, ONE, MAX or a number of log extents from 1 on, not {quoted(how)}")
        self._engine.check()
        self._retention.keep_house()
        keep = self.config.log.primary_files // 2 if how == "AUTO" else 0
        try:
            return self._log.reduce(most, keep)
        except LogError as exc:
            raise self._engine.translated(exc) from exc
        except OSError as exc:
            raise Unavailable(
                f"a log extent could not be removed ({exc}); {advice(exc)} and try again",
                reason=Reason.FILE_SYSTEM_ERROR,
                name=self.name,
            ) from exc

    def note_archived(self, extent: str, *, all_before: bool = False) -> None:
        """Note that others have archived this log extent, or all up to it (SET LOG ARCHIVED, LogManagement=Archive)."""
        check_flag(all_before, "all_before")
        try:
            self._retention.note_archived(extent, all_before=all_before)
        except LogError as exc:
            raise self._engine.translated(exc) from exc
        except OSError as exc:
            text = (
                f"that {extent} is archived could not be noted ({exc}); give the disk room, or mend it, and try again"
            )
            if exc.errno in NO_SPACE:
                raise StorageFull(text, name=self.name) from exc
            raise Unavailable(text, reason=Reason.FILE_SYSTEM_ERROR, name=self.name) from exc

    def alter(self, **attributes: Unpack[QmgrAttributes]) -> QmgrDefinition:
        """Change attributes of the queue manager: those of ALTER QMGR, in words.

        The queue of events that are switched on is defined if it is not there.
        """
        with_attributes(self._engine.state.qmgr, attributes)  # what is refused defines nothing
        if attributes.get("logger_events") and not self._linear:
            raise MediaNotSupported(
                f"AMQ8518E: logger events need linear logging, and queue manager {self.name!r} has circular logging; "
                f"migmqlog changes it",
                name=self.name,
            )
        for name in {queue for said, queue in events.QUEUES.items() if attributes.get(said)}:
            with contextlib.suppress(AlreadyExists):
                self._engine.define(name, events.ATTRIBUTES)
        changed = self._engine.alter_qmgr(attributes)
        self._put_events()
        return changed

    @property
    def attributes(self) -> QmgrDefinition:
        """The attributes of the queue manager."""
        self._engine.check()
        return self._engine.state.qmgr

    def authorize(
        self, user: str, profile: str = "", *, add: Iterable[str] = (), remove: Iterable[str] = ()
    ) -> QmgrDefinition:
        """Give a user rights on the queues that a profile fits, and take others away; "": on the queue manager.

        Rights: connect, inquire, put, get, browse, admin; see `authority.py`. They count for clients over a network.
        """
        kind = authority.QUEUE if profile else authority.QMGR
        with self._authorizing:
            return self.alter(
                authorities=authority.changed(self.attributes.authorities, user, kind, profile, add, remove)
            )

    def unauthorize(self, user: str, profile: str = "") -> QmgrDefinition:
        """Remove the grant of this user and profile, and its rights with it. Raises Mistake where there is none."""
        kind = authority.QUEUE if profile else authority.QMGR
        with self._authorizing:
            return self.alter(authorities=authority.without(self.attributes.authorities, user, kind, profile))

    def status(self) -> Status:
        """How the queue manager and its log stand."""
        self._engine.check()
        with self._engine.lock:
            return self._status()

    def _status(self) -> Status:
        state = self._engine.state
        return Status(
            name=self.name,
            state=self._state,
            log=self._log.status(),
            log_sync=self.config.log.sync.value,
            checkpoints=self._checkpointer.count,
            checkpoint_seconds=self._checkpointer.last_seconds,
            units_of_work=len(state.uows),
            in_doubt=len(state.uows.in_doubt()),
            queues=len(state.queues),
            messages=sum(queue.depth for queue in state.queues.values()),
            restart=self.restart_report,
        )

    @property
    def healthy(self) -> bool:
        """Does it take calls?"""
        return self._state == "running" and self._engine.refusal is None

    def picture(self) -> dict[str, Any]:
        """How it stands for those who look from other processes, in any state; see `published.py`."""
        log, engine = self._log, self._engine
        with engine.lock:  # what changes with every call; the rest is read as it goes
            status, units = self._status(), self._transactions()
            extents, space = log.extents(), describe_space(log.space)
            queues = list(engine.state.queues.values())
            records = self._checkpointer.records
            committed, backed_out = engine.state.committed, engine.state.backed_out
            media = engine.state.media_lsn()
        extent_bytes = status.log.config.extent_bytes
        needed_for_media = media // extent_bytes or None
        extents += describe_inactive(self._disk, status.log.config.path, log.inactive(), needed_for_media)
        transactions = [jsonable(unit) for unit in units]
        logged = [unit for unit in transactions if unit["first_lsn"]]
        picture: dict[str, Any] = jsonable(status)
        picture["log"] |= space | {
            "extent_bytes": extent_bytes,
            "extents": describe_extents(extents, status.log.head // extent_bytes, needed_for_media),
        }
        picture["log"] |= self._retention.facts()
        return picture | {
            "process": self._process,
            "started": self._started,
            "uptime_us": (self._clock.elapsed_ns() - self._started_ns) // 1000,
            "data_dir": self._location.data_dir,
            "file_systems": file_systems(self._disk, self._location.data_dir, self.config.log.path),
            "transactions": transactions,
            "holder": min(logged, key=lambda unit: unit["first_lsn"], default=None),
            "objects": [describe_queue(queue) for queue in queues],
            "records": records,
            "committed": committed,
            "backed_out": backed_out,
        }
