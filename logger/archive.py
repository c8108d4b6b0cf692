"""Archive: extents that no restart needs are moved to the archive directory, compressed and removed.

*Operations*: archive moves an extent's file to the archive directory; compress puts a smaller one in its place; remove
deletes the oldest. *Goals*: at every moment each part of the log that is kept is whole in a durable file, whatever
crashes or fills up; what is kept has no gap; each operation can be cut off anywhere and asked for again. *Plan*: the
new file is written under a temporary name, synced, read back and compared with the original byte by byte, renamed, and
its directory synced; only then the original goes. Removal takes the oldest first and makes each durable before the
next. What was left behind half done is swept when the next work begins.

What to do is decided in `archive_plan.py`, as a `Plan` that can be shown; `Archive.run` does it. Callers ensure that
only one process and thread at a time works on the extents that no restart needs.
"""

import contextlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import attrs

from logger import claims
from logger.archive_plan import (
    DONE,
    Action,
    ArchivePolicy,
    Held,
    Plan,
    Step,
    directory_of,
    held_by,
    name_in,
    plan_archive,
    plan_compress,
    plan_remove,
)
from logger.compressed import CHUNK_BYTES, NEW_SUFFIX, Compression, compress, compression_of, open_plain
from logger.disk import Disk, File
from logger.disk_errors import advice
from logger.errors import ArchiveFailed, LogDamaged, LogError
from logger.extent import linear_number
from logger.history import (
    INDEX_NAME,
    History,
    Place,
    extent_number,
    index_name,
    is_before,
    is_extent_or_index,
    read_header,
)
from logger.progress import GiveWay, Progress, no_pause, no_progress
from logger.whole_files import make_and_keep_dirs, read_whole, replace_file

NeededFrom = Callable[[], Mapping[str, int]]


@attrs.frozen(kw_only=True)
class Outcome:
    """What was done of a plan, and why the rest was not."""

    done: tuple[Step, ...]
    held: Held | None
    damaged: tuple[str, ...] = ()  # what was passed over


def _no_gates() -> Mapping[str, int]:
    return {}


NO_LOCK: AbstractContextManager[Any] = nullcontext()


def undone_in(disk: Disk, history: History, *, since: int, current: int, unused: bool = False) -> frozenset[str]:
    """The names of the files in the archive that are of another past; see `undone.py`. Raises LogDamaged, OSError.

    `since`: the sequence where a restart begins; `current`: the one that is written; `unused`: the log has never used
    this archive. Indexes in the active directory from `since` on may be of that past too, and go: they are made again.
    """
    active = history.directories[0]
    for name in disk.list(active):
        index = INDEX_NAME.fullmatch(name)
        if index is not None and not is_before(int(index[1]), since):
            with contextlib.suppress(FileNotFoundError):
                disk.unlink(f"{active}/{name}")
    every = History(disk, history.directories, history.log_id, history.extent_bytes, skip_undone=False)
    found = set()
    for sequence, places in every.copies(since=0 if unused else since).items():
        mine = next((place for place in places if directory_of(place.path) == active), None)
        for place in places if sequence >= since or (unused and mine is not None) else ():
            true = mine is not None and sequence < current and _same(disk, mine.path, place.path)
            if directory_of(place.path) != active and not true:
                found.add(name_in(place.path))
    return frozenset(found)


def _same(disk: Disk, mine: str, other: str) -> bool:
    """Do both files hold the same extent, byte by byte?"""
    with contextlib.closing(open_plain(disk, mine)) as one, contextlib.closing(open_plain(disk, other)) as two:
        size = one.size()
        with contextlib.suppress(LogDamaged):
            return two.size() == size and all(
                one.read(at, CHUNK_BYTES) == two.read(at, CHUNK_BYTES) for at in range(0, size, CHUNK_BYTES)
            )
    return False


class Archive:
    """The extents of one log that no restart needs: carries out plans."""

    def __init__(self, disk: Disk, history: History, directory: str) -> None:
        """`directory` is the archive, one of those that `history` looks at."""
        assert directory in history.directories
        self._disk = disk
        self._history = history
        self.directory = directory

    def plan(
        self,
        action: Action,
        *,
        after: int,
        now_us: int,
        active_from: int,
        compression: Compression = Compression.GZIP,
        needed_from: Mapping[str, int] | None = None,
    ) -> Plan:
        """What to do now about extents that were last written `after` seconds ago or more. Raises OSError."""
        copies = self._history.copies()
        whole = {linear_number(sequence) for sequence in copies}
        damaged = tuple(  # only before `active_from`: a file behind it may be in the making
            path
            for path in self._history.damaged
            if (number := extent_number(name_in(path))) is not None
            and number not in whole
            and is_before(number, active_from)
        )
        if action is Action.ARCHIVE:
            plan = plan_archive(copies, self.directory, after=after, now_us=now_us, active_from=active_from)
        elif action is Action.COMPRESS:
            plan = plan_compress(copies, compression, after=after, now_us=now_us, active_from=active_from)
        else:
            plan = plan_remove(copies, needed_from or {}, after=after, now_us=now_us, active_from=active_from)
        return attrs.evolve(plan, damaged=damaged)

    def run(
        self,
        plan: Plan,
        *,
        progress: Progress = no_progress,
        give_way: GiveWay = no_pause,
        needed_from: NeededFrom = _no_gates,
        removing: AbstractContextManager[Any] = NO_LOCK,
    ) -> Outcome:
        """Do what is planned. Raises ArchiveFailed, LogDamaged, LogError: what was done before is done.

        `give_way` is called for each MiB that is copied or compared, so that others can go on. `needed_from` is asked
        before each removal: a gate may have come down since the plan was made. `removing` is entered for each, so
        that no gate comes down between that and the removal.
        """
        try:
            self._sync_names(plan)
            self.sweep()
        except OSError as exc:
            where, why = " and ".join(self._history.directories), exc.strerror or exc
            raise ArchiveFailed(
                f"{where} could not be prepared ({why}); nothing is lost: {advice(exc)} and do it again"
            ) from exc
        work = _Work(self._disk, self._history, progress, give_way, total=plan.size)
        done: list[Step] = []
        for step in plan.steps:
            remove = step.action is Action.REMOVE
            try:
                with removing if remove else NO_LOCK:
                    held = held_by(needed_from(), step.sequence, step.paths[0]) if remove else None
                    if held is not None:
                        return Outcome(done=tuple(done), held=held, damaged=plan.damaged)
                    work.do(step)
            except OSError as exc:
                if isinstance(exc, FileNotFoundError) and not self._disk.exists(step.paths[0]):
                    continue  # reused or removed meanwhile
                raise _failed(step, exc) from exc
            done.append(step)
        return Outcome(done=tuple(done), held=plan.held, damaged=plan.damaged)

    def apply_policy(
        self,
        policy: ArchivePolicy,
        *,
        now_us: int,
        active_from: int,
        needed_from: NeededFrom = _no_gates,
        still_needed_from: NeededFrom = _no_gates,
        progress: Progress = no_progress,
        give_way: GiveWay = no_pause,
        removing: AbstractContextManager[Any] = NO_LOCK,
    ) -> dict[Action, Outcome]:
        """Do what the policy asks for by now, what is removed first. Raises as `plan` and `run` do.

        `needed_from` is asked once, for the plan; `still_needed_from` before each removal, for those that may have
        come since.
        """
        ages = {
            Action.REMOVE: policy.remove_after,
            Action.ARCHIVE: policy.archive_after,
            Action.COMPRESS: policy.compress_after,
        }
        done: dict[Action, Outcome] = {}
        for action, after in ages.items():
            if after is not None:
                plan = self.plan(
                    action,
                    after=after,
                    now_us=now_us,
                    active_from=active_from,
                    compression=policy.compression,
                    needed_from=needed_from() if action is Action.REMOVE else None,
                )
                done[action] = self.run(
                    plan, progress=progress, give_way=give_way, needed_from=still_needed_from, removing=removing
                )
        return done

    def _sync_names(self, plan: Plan) -> None:
        """Make durable the names that the plan builds on: work that was killed may have left them in memory only.

        Without the archive's own name its copies are lost; with an older extent back that was removed there is a gap.
        Raises ArchiveFailed where the archive is not there.
        """
        disk = self._disk
        if plan.steps:
            log_directory = directory_of(self._history.directories[0])
            claims.check_there(disk, self.directory, self._history.log_id, log_directory)
        if any(step.target for step in plan.steps):
            make_and_keep_dirs(disk, self.directory)
            if any(directory_of(step.target) == self.directory for step in plan.steps):
                self._claim()
        for directory in self._history.directories if plan.steps else ():
            if disk.exists(directory):
                disk.sync_dir(directory)

    def _claim(self) -> None:
        """Claim the archive for this log, and note that the log uses it. Raises ArchiveFailed, OSError."""
        active = self._history.directories[0]
        claims.claim(self._disk, self.directory, self._history.log_id, f"the log of {active}")
        claims.note_used(self._disk, directory_of(active), self.directory)

    def recognise(self, places: Iterable[Place]) -> None:
        """Stop hiding files in the archive that are the same as these: they have been copied there since.

        Raises LogDamaged, OSError.
        """
        hidden = {extent_number(name): name for name in self._history.hidden()}
        for place in places if hidden else ():
            name = hidden.get(linear_number(place.sequence), "")
            copy = f"{self.directory}/{name}"
            if name and place.path != copy and self._disk.exists(copy) and _same(self._disk, place.path, copy):
                self._history.show(name)

    def sweep(self) -> None:
        """Delete what work that was cut off has left behind: half-made files, and indexes of extents that are gone.

        In the archive only where it is this log's: another's may be at work there.
        """
        mine = {self._history.log_id}
        for directory in self._history.directories:
            if directory == self.directory and claims.owners(self._disk, directory) != mine:
                continue
            names = self._disk.list(directory)
            there = {extent_number(name) for name in names}
            for name in names:
                index = INDEX_NAME.fullmatch(name)
                half_made = name.endswith(NEW_SUFFIX) and is_extent_or_index(name)
                if half_made or (index is not None and int(index[1]) not in there):
                    with contextlib.suppress(FileNotFoundError):
                        self._disk.unlink(f"{directory}/{name}")


class _Work:
    """The steps of one plan, being done."""

    def __init__(self, disk: Disk, history: History, progress: Progress, give_way: GiveWay, *, total: int) -> None:
        self._disk = disk
        self._history = history
        self._log_id = history.log_id
        self._progress = progress
        self._give_way = give_way
        self._done = 0  # bytes of steps before this one
        self._total = total

    def do(self, step: Step) -> None:
        match step.action:
            case Action.REMOVE:
                self._remove(step)
            case Action.ARCHIVE:
                self._replace(step, self._copy)
            case Action.COMPRESS:
                self._replace(step, self._compress)
        self._done += step.size
        self._progress(self._done, self._total)

    def _replace(self, step: Step, write: Callable[[str, str], None]) -> None:
        """Put a file that `write` makes in the place of the step's, and drop that once the new one is safe."""
        disk, source, target = self._disk, step.paths[0], step.target
        made, directory = target + NEW_SUFFIX, directory_of(target)
        self._refuse_foreign(step)
        try:
            write(source, made)
            self._compare(step, made)
            self._drop_index_of_another_past(source, directory)
            disk.rename(made, target)
        except Exception:
            with contextlib.suppress(OSError):
                disk.unlink(made)
            raise
        disk.sync_dir(directory)
        if directory != self._history.directories[0]:
            self._history.show(name_in(target))
        self._take_index_along(source, directory)
        self._drop([source])

    def _copy(self, source: str, made: str) -> None:
        """Write the bytes of `source` as the new file `made`, and sync it."""
        original = self._disk.open_read(source)
        try:
            copy = self._disk.open(made, create=True)
            try:
                for at in range(0, original.size(), CHUNK_BYTES):
                    copy.write(at, original.read(at, CHUNK_BYTES))
                    self._report(at // 2)
                copy.sync()
            finally:
                copy.close()
        finally:
            original.close()

    def _compress(self, source: str, made: str) -> None:
        kind = compression_of(made)
        assert kind is not None
        compress(self._disk, source, made, kind, each_chunk=lambda done: self._report(done // 2))

    def _compare(self, step: Step, made: str) -> None:
        """Raise ArchiveFailed unless `made`, as it is read back, is the extent, byte by byte."""
        original = self._disk.open_read(step.paths[0])
        try:
            compressed = step.action is Action.COMPRESS
            copy: File = open_plain(self._disk, made) if compressed else self._disk.open_read(made)
            try:
                size = original.size()
                same = copy.size() == size
                for at in range(0, size, CHUNK_BYTES):
                    same = same and original.read(at, CHUNK_BYTES) == copy.read(at, CHUNK_BYTES)
                    self._report((size + at) // 2)
            except LogDamaged:
                same = False
            finally:
                copy.close()
        finally:
            original.close()
        header, _, _ = read_header(self._disk, made)
        header = header or self._history.header_from_first_frame(made)
        if not same or header is None or (header.log_id, header.sequence) != (self._log_id, step.sequence):
            raise ArchiveFailed(
                f"{step.target} was not what {step.paths[0]} holds when it was read back, so it was given up; the "
                f"extent is still where it was: check the disk and the memory of this machine"
            )

    def _report(self, part: int) -> None:
        """Report the bytes of this step that are done, and give way to other threads."""
        self._progress(self._done + part, self._total)
        self._give_way()

    def _refuse_foreign(self, step: Step) -> None:
        """Raise ArchiveFailed where the new file would take the place of another log's, or of another part of this."""
        if not self._disk.exists(step.target):
            return
        try:
            header, _, _ = read_header(self._disk, step.target)
        except LogDamaged:
            return  # it is of no use to anybody
        if header is None:
            return
        whose = "another part of this log" if header.log_id == self._log_id else "another queue manager's log"
        if (header.log_id, header.sequence) == (self._log_id, step.sequence):
            # What is moved to the archive is the truth: a copy that lies there may have been made too early.
            if step.action is Action.ARCHIVE or _same(self._disk, step.paths[0], step.target):
                return
            in_archive = directory_of(step.target) != self._history.directories[0]
            if in_archive and name_in(step.target) in self._history.hidden():
                return
            whose = "the same part of the log otherwise; compare the two"
        raise ArchiveFailed(
            f"{step.paths[0]} can't be {DONE[step.action]}: {step.target} holds {whose}; move that file away, and give "
            f"each queue manager an ArchivePath of its own"
        )

    def _drop_index_of_another_past(self, source: str, directory: str) -> None:
        """Delete an index that lies where the extent goes: it is of a file that was there before."""
        number = extent_number(name_in(source))
        assert number is not None
        index = f"{directory}/{index_name(number)}"
        if directory_of(source) != directory and self._disk.exists(index):
            self._disk.unlink(index)

    def _take_index_along(self, source: str, directory: str) -> None:
        """Move the extent's index to the directory that the extent has gone to."""
        number = extent_number(name_in(source))
        assert number is not None
        index = f"{directory_of(source)}/{index_name(number)}"
        if directory_of(source) != directory and self._disk.exists(index):
            with contextlib.suppress(OSError):  # it can be built again
                replace_file(self._disk, f"{directory}/{index_name(number)}", read_whole(self._disk, index))
            self._disk.unlink(index)

    def _remove(self, step: Step) -> None:
        for path in step.paths:
            index = f"{directory_of(path)}/{index_name(linear_number(step.sequence))}"
            if self._disk.exists(index):
                self._disk.unlink(index)
        self._drop(step.paths)

    def _drop(self, paths: Sequence[str]) -> None:
        """Delete the files, durably."""
        for path in paths:
            with contextlib.suppress(FileNotFoundError):
                self._disk.unlink(path)
        for directory in dict.fromkeys(directory_of(path) for path in paths):
            self._disk.sync_dir(directory)


def _failed(step: Step, exc: OSError) -> LogError:
    to = f" as {step.target}" if step.target else ""
    return ArchiveFailed(
        f"{' and '.join(step.paths)} could not be {DONE[step.action]}{to} ({exc.strerror or exc}); nothing is lost: "
        f"{advice(exc)} and do it again"
    )
