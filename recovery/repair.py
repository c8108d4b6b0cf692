"""Repair of a log that a start refuses: what it finds of the table in `diagnosis.py`, and the plan that follows.

It changes nothing.

*Operation*: examine the control file, the checkpoint files and every extent, check them against each other, and find
out how far the records go on from the checkpoint. *Goal*: the longest log that can be had without a gap, nothing in it
that a restart once declared lost, and a sentence for everything that would be missing from it. *Plan*: the end X that
was found is declared as a restart declares one: the control file that is written says that from X on only a new epoch
counts. So whatever lies beyond never comes back, and whatever lies before is what it was.

Headers of extents, checkpoints and frames are evidence of epochs: a frame of epoch k that says that the log was durable
up to d was written by a start that began at d or before, so frames of older epochs from d on do not count.
"""

from collections import Counter
from collections.abc import Callable, Iterable

from logger import control, lsn
from logger.at_rest import active_path, control_path
from logger.config import LogConfig, LogType
from logger.control import ControlState
from logger.disk import PAGE, Disk
from logger.errors import LaterFormat
from logger.forensics import Chain, EpochFrom, Evidence, extent_files, most_common
from logger.frame import END, FILL, PAD
from logger.whole_files import read_whole
from recovery import checkpoint
from recovery.checkpoint import Checkpoint, decode_file
from recovery.diagnosis import ROWS, Cure, Examination, Finding, Lost
from recovery.placing import Placed
from recovery.records import Kind
from recovery.remedy import CheckpointFile, End, Remedy, Witness

Media = Callable[[list[bytes]], int]
"""The first LSN that media recovery needs by the catalogue of a checkpoint; 0: it has no image."""

Images = Callable[[ControlState, int], tuple[Callable[[], bytes], int] | None]
"""What makes a checkpoint file of media images, for the log that the state describes up to an LSN, and the LSN that a
restart reads from then; None: they lack."""

Away = Callable[[CheckpointFile, bool], str]
"""Why a start can't have the queues of a checkpoint, "" if it can; True: with what only an end in order keeps."""


def no_images(state: ControlState, end: int) -> None:
    return None


def no_media(catalogue: list[bytes]) -> int:
    return 0


def none_away(used: CheckpointFile, unlogged: bool) -> str:
    return ""


class Refused(Exception):
    """The examination ends here: nothing can be done."""


def examine(
    disk: Disk,
    data_dir: str,
    config: LogConfig,
    *,
    counters: Callable[[], dict[str, int]],
    images: Images = no_images,
    media: Media = no_media,
    away: Away = none_away,
) -> Examination:
    """Find out what is wrong with the log in `config.path` and the checkpoints in `data_dir`. Raises OSError.

    `counters()` gives the numbers that a queue manager which is replayed from its first record must not use again.
    """
    examiner = _Examiner(disk, data_dir, config, counters, images, media, away)
    try:
        return examiner.run()
    except LaterFormat as exc:
        examiner.note("later_format", exc.path)
    except Refused:
        pass
    return Examination(findings=tuple(examiner.findings))


class _Examiner:
    """One examination. What it finds out is noted, and kept for the steps that follow."""

    def __init__(
        self,
        disk: Disk,
        data_dir: str,
        config: LogConfig,
        counters: Callable[[], dict[str, int]],
        images: Images,
        media: Media,
        away: Away,
    ) -> None:
        self.disk = disk
        self.data_dir = data_dir
        self.config = config
        self.counters = counters
        self.images = images
        self.media = media
        self.away = away
        self.findings: list[Finding] = []
        self.active = active_path(config.path)
        self.control = control_path(config.path)
        self.one_copy = False  # one copy of the control file is whole, which may be the older one

    def note(self, row: str, where: str, text: str = "") -> None:
        self.findings.append(Finding(ROWS[row], where, text))

    def refuse(self, row: str, where: str, text: str = "") -> Refused:
        self.note(row, where, text)
        return Refused(row)

    def run(self) -> Examination:
        self.files = extent_files(self.disk, self.active)
        copies = self._control_copies()
        self.checkpoints = self._checkpoint_files()
        self.log_id = self._identity(copies)
        self.extent_bytes = self._geometry(copies)
        state = self._believed(copies)
        self._drop_foreign_checkpoints()
        self.placed = Placed(self.disk, self.config, self.log_id, self.extent_bytes, self.files, state, self.note)
        found = self._end(state)
        if state is not None and found is not None and found.chain.epoch > state.epoch:
            self.note("control_stale", self.control, f"of epoch {state.epoch}, the log is at {found.chain.epoch}")
            state, found = None, self._end(None)
        if found is None:
            raise self._no_end(state)
        return self._plan(state, found)

    # ---- whose log it is

    def _control_copies(self) -> list[ControlState]:
        """The whole copies in the control file, newest first."""
        if not self.disk.exists(self.control):
            self.note("control_missing", self.control)
            return []
        data = read_whole(self.disk, self.control)
        copies = [control.decode(data[at : at + control.COPY_BYTES], self.control) for at in (0, control.COPY_BYTES)]
        whole = sorted((copy for copy in copies if copy is not None), key=lambda copy: -copy[0])
        if not whole:
            self.note("control_no_whole_copy", self.control)
        elif len(whole) == 1:
            self.note("control_one_copy_torn", self.control)
            self.one_copy = True
        return [state for _, state in whole]

    def _checkpoint_files(self) -> list[CheckpointFile]:
        """The whole checkpoint files, newest first, whosever they are."""
        found = []
        newest = ""
        for name in (checkpoint.NAME, checkpoint.PREVIOUS):
            path = f"{self.data_dir}/{name}"
            if self.disk.exists(path):
                decoded = decode_file(read_whole(self.disk, path), path)
                if decoded is not None:
                    found.append(CheckpointFile(path, *decoded))
                    continue
            if name == checkpoint.NAME:
                newest = path
        if newest and found:
            self.note("checkpoint_newest_damaged", newest)
        return sorted(found, key=lambda one: -one.found.lsn)

    def _identity(self, copies: list[ControlState]) -> bytes:
        """The log id that most of the files have. Raises Refused."""
        votes = Counter(seen.header.log_id for seen in self.files if seen.header is not None)
        if not votes and not copies:
            raise self.refuse("no_log", self.active)
        votes.update(bytes.fromhex(one.found.log_id) for one in self.checkpoints)
        votes.update(state.log_id for state in copies[:1])
        best = most_common(votes)
        if best is None:
            raise self.refuse("whose_log", self.active, "of " + " and ".join(sorted(each.hex() for each in votes)))
        return best

    def _geometry(self, copies: list[ControlState]) -> int:
        """The bytes of an extent, as most of the headers say. Raises Refused, also where qm.ini says something else."""
        sizes = Counter(
            seen.header.extent_bytes.to_bytes(8, "big")
            for seen in self.files
            if seen.header is not None and seen.header.log_id == self.log_id
        )
        sizes.update(state.extent_bytes.to_bytes(8, "big") for state in copies[:1] if state.log_id == self.log_id)
        best = most_common(sizes)
        if best is None:
            raise self.refuse("no_log", self.active)
        size = int.from_bytes(best, "big")
        if size != self.config.extent_bytes:
            said = f"{self.config.file_pages}; it has {size // PAGE}: set LogFilePages={size // PAGE}"
            raise self.refuse("ini_pages_differ", "qm.ini", said)
        return size

    def _believed(self, copies: list[ControlState]) -> ControlState | None:
        """What the control file says, unless it is another log's or too old."""
        if not copies:
            return None
        state = copies[0]
        if state.log_id != self.log_id:
            self.note("control_foreign", self.control)
            return None
        if state.log_type is not self.config.log_type:
            raise self.refuse("ini_type_differs", "qm.ini", f"the log is {state.log_type.value}")
        newest = max(epoch for epoch, _ in self._witnesses([(state.epoch, 0)]))
        if newest > state.epoch:
            self.note("control_stale", self.control, f"of epoch {state.epoch}, the log is at {newest}")
            return None
        return state

    def _drop_foreign_checkpoints(self) -> None:
        whole = list(self.checkpoints)
        for one in whole:
            if one.found.log_id != self.log_id.hex():
                self.note("checkpoint_foreign", one.path)
                self.checkpoints.remove(one)
        if whole and not self.checkpoints:  # however complete this log is: it has nothing of what the data has
            raise self.refuse("data_foreign", self.data_dir, f"the log is in {self.config.path}")

    def _witnesses(self, more: Iterable[Witness]) -> list[Witness]:
        """(epoch, LSN) of each checkpoint and extent header, after `more`."""
        mine = [one.found for one in self.checkpoints if one.found.log_id == self.log_id.hex()]
        headers = [seen.header for seen in self.files if seen.header is not None and seen.header.log_id == self.log_id]
        return [
            *more,
            *((one.epoch, one.lsn) for one in mine),
            *((header.epoch, header.sequence * header.extent_bytes) for header in headers if header.sequence),
        ]

    # ---- where the log ends

    def _end(self, state: ControlState | None) -> End | None:
        """How far the records go on from the newest checkpoint that can be used; None where none can."""
        evidence = self.placed.evidence()
        unfollowed = None
        for one in self.checkpoints:
            chain = self._follow(evidence, one.found, state)
            if chain.end >= one.found.lsn:
                if self._is_followed(evidence, one.found, chain, state):
                    return End(one, chain)
                unfollowed = unfollowed or End(one, chain)
        return self._of_images(evidence, state) or unfollowed

    def _is_followed(self, evidence: Evidence, one: Checkpoint, chain: Chain, state: ControlState | None) -> bool:
        """Does the log go on from this checkpoint? Not from an older copy that the log does not reach back to."""
        if chain.records or (state is not None and one.lsn >= state.checkpoint):
            return True
        return next(evidence.frames(one.head), None) is None

    def _of_images(self, evidence: Evidence, state: ControlState | None) -> End | None:
        """The end of a linear log, with a checkpoint there that is made of its media images; None where these lack.

        A circular log has none: it has to be all there.
        """
        if self.placed.circular:
            return self._of_first_record(evidence, state)
        if state is not None:
            chain = self._follow(evidence, self._empty(state.head, 0), state)
            return self._with_images(state, chain)
        return self._of_images_without_control(evidence) or self._of_first_record(evidence, state)

    def _of_images_without_control(self, evidence: Evidence) -> End | None:
        """As `_of_images` where nothing says from where on a restart needs the log.

        Damage before the images loses nothing, so what lies behind the last damage is asked last, and goes before: if
        it is of this past, which what lies before may tell.
        """
        found, start = None, min(self.placed.here, default=0)
        epochs = self._epochs(evidence, 0)
        while start:
            begin = self._empty(start * self.extent_bytes, 0)
            chain = self._follow(evidence, begin, None, epochs, resync=True)
            found = self._with_images(self._supposed(chain, epochs), chain) or found
            if chain.damage is None:
                break
            behind = max(start, chain.end // self.extent_bytes)
            start = min((sequence for sequence in self.placed.here if sequence > behind), default=0)
        return found

    def _supposed(self, chain: Chain, epochs: EpochFrom) -> ControlState:
        """What a control file would say of a linear log that is read from the beginning of the chain to its end."""
        begins, epoch = epochs
        return ControlState(
            log_id=self.log_id,
            log_type=LogType.LINEAR,
            extent_bytes=self.extent_bytes,
            epoch=epoch,
            epoch_from=begins,
            head=chain.start,
            checkpoint=chain.start,
            durable=chain.end,
            clean_end=0,
            extents=(),
        )

    def _with_images(self, state: ControlState, chain: Chain) -> End | None:
        found = self.images(state, chain.end)
        if found is None:
            return None
        make, head = found
        used = CheckpointFile(f"{self.data_dir}/{checkpoint.NAME}", self._empty(chain.end, chain.time, head), [])
        return End(used, chain, made=True, make=make)

    def _of_first_record(self, evidence: Evidence, state: ControlState | None) -> End | None:
        """The end of a log that is all there, to be replayed from its first record on; None for any other.

        Before the first record there was nothing, but in a queue manager that was recovered to a point in time: the
        epoch of that record is above 1.
        """
        first = self.extent_bytes
        begins = next((each for each in evidence.frames(first) if each.lsn == first), None)
        if 1 not in self.placed.here or begins is None or begins.epoch != 1:
            return None
        chain = self._follow(evidence, self._empty(first, 0), state)
        used = CheckpointFile(f"{self.data_dir}/{checkpoint.NAME}", self._empty(first, chain.time), [])
        return End(used, chain, made=True)

    def _empty(self, at: int, time: int, head: int = 0) -> Checkpoint:
        return Checkpoint(
            log_id=self.log_id.hex(),
            lsn=at,
            head=head or at,
            durable=at,
            epoch=0,
            time=time,
            clean=False,
            counters=self.counters(),
            units={},
        )

    def _follow(
        self,
        evidence: Evidence,
        one: Checkpoint,
        state: ControlState | None,
        epochs: EpochFrom | None = None,
        *,
        resync: bool = False,
    ) -> Chain:
        """The records from a checkpoint on. One that can't be used is a witness too of what was durable.

        `epochs` are asked for where neither they nor the state are given.
        """
        durable = max([one.durable, *(each.found.durable for each in self.checkpoints)])
        if state is not None:
            durable = max(durable, state.durable, state.clean_end)
            epochs = state.epoch_from, state.epoch
            chain = evidence.follow(one.head, durable, epochs)
            own = None if chain.damage is None else self.placed.own_evidence(state, chain.stopped)
            return chain if own is None else own.follow(one.head, durable, epochs)
        epochs = epochs or self._epochs(evidence, one.head)
        durable_beyond = 0
        chain = evidence.follow(one.head, durable, epochs, resync=resync)
        for each in evidence.frames(chain.end):  # an extent that is missing hides these from a reader
            if each.epoch >= chain.epoch and (each.lsn < epochs[0] or each.epoch >= epochs[1]):
                durable_beyond = max(durable_beyond, each.durable)
        if durable_beyond > chain.end:
            return evidence.follow(one.head, durable_beyond, epochs, resync=resync)
        return chain

    def _epochs(self, evidence: Evidence, start: int) -> EpochFrom:
        """Where the latest epoch began, and its number, by what there is from the LSN `start` on."""
        witnesses = self._witnesses([(each.epoch, each.durable or each.lsn) for each in evidence.frames(start)])
        epoch = max((epoch for epoch, _ in witnesses), default=0)
        return min((at for k, at in witnesses if k == epoch), default=start), epoch

    def _no_end(self, state: ControlState | None) -> Refused:
        """What to raise where the log goes on from no checkpoint; notes why."""
        if not self.checkpoints:
            return self.refuse("checkpoints_lost", f"{self.data_dir}/{checkpoint.NAME}", self._never_used(state))
        newest = self.checkpoints[0].found
        chain = self._follow(self.placed.evidence(), newest, state)
        self.placed.note_bad(state, newest.head // self.extent_bytes, chain.stopped)
        if any(one.row.name == "checkpoint_newest_damaged" for one in self.findings) and chain.records == 0:
            text = f"{self.checkpoints[0].path} needs the log from {lsn.text(newest.head)}"
            return self.refuse("checkpoints_lost", f"{self.data_dir}/{checkpoint.NAME}", text)
        text = f"it can be read up to {lsn.text(chain.end)}, the checkpoint is that of {lsn.text(newest.lsn)}"
        return self.refuse("damaged_before_the_checkpoint", self.active, text)

    def _never_used(self, state: ControlState | None) -> str:
        """What to say of a log that seems to have had no record ever: one that was wiped looks the same; else ""."""
        if state is None or state.durable > self.extent_bytes or next(self.placed.evidence().frames(0), None):
            return ""
        return "its log has no record: if it was never used, delete it and create it again"

    # ---- the plan

    def _plan(self, state: ControlState | None, found: End) -> Examination:
        used, chain = found.used, found.chain
        unlogged = used.found.clean and state is not None and chain.end == state.clean_end
        if away := self.away(used, unlogged):
            raise self.refuse("queues_away", self.data_dir, away)
        needed = used.found.head // self.extent_bytes
        passed = chain.end // self.extent_bytes  # those before this one can be read, whatever else is wrong with them
        gone = {sequence for sequence in self.placed.note_bad(state, needed, chain.stopped) if sequence >= passed}
        if state is not None and chain.end == state.clean_end:
            gone = set()  # it has all that there was: the rest of a file that was cut had nothing
        if chain.damage is None and not gone:  # what the control file says, or will say, is not all that a start asks
            expected = state if state is not None else self._remedy(None, found, cut=False).state_after()
            one_copy = self.one_copy and state is not None
            gone = self.placed.note_suspect_files(expected, chain.stopped, chain.epoch, one_copy=one_copy)
            if state is None:
                gone |= self.placed.note_foreign_files(chain.stopped)
            if state is None and not gone:
                torn = any(each.epoch >= chain.epoch for each in self.placed.evidence().frames(chain.stopped + 8))
                gone |= self.placed.note_lost_file(chain.stopped, torn=torn)
        media = self.media(used.catalogue) // self.extent_bytes
        if media:
            self.placed.note_history(media, needed)
        self.placed.note_damaged_headers(needed)
        cut = chain.damage is not None or bool(gone)
        if found.made:
            row = "checkpoints_lost_log_complete" if found.make is None else "checkpoints_lost_images_there"
            self.note(row, used.path)
        if cut:
            self._note_damage(found, bool(gone))
        if all(one.row.cure is Cure.KEEP for one in self.findings):
            return Examination(findings=tuple(self.findings))
        remedy = self._remedy(state, found, cut=cut)
        return Examination(
            findings=tuple(self.findings),
            lost=self._lost(found, state, gone) if cut else None,
            changes=tuple(remedy.changes()),
            also_save=tuple(remedy.beyond()) if cut else (),
        )

    def _remedy(self, state: ControlState | None, found: End, *, cut: bool) -> Remedy:
        return Remedy(
            end=found,
            cut=cut,
            state=state,
            placed=self.placed,
            checkpoints=self.checkpoints,
            witnesses=self._witnesses([]),
            log_directory=self.config.path,
        )

    def _note_damage(self, found: End, explained: bool) -> None:
        chain = found.chain
        newest = self.checkpoints[0] if self.checkpoints else found.used
        if found.used is not newest and not found.made:
            self.note("older_checkpoint_used", newest.path, f"that of {lsn.text(found.used.found.lsn)}")
        if explained:
            return
        text = f"at {lsn.text(chain.end)}"
        sequence = chain.end // self.extent_bytes
        path = self.placed.where(sequence)
        later = self.placed.evidence().frames(chain.end + 8)
        if sequence not in self.placed.here and sequence < min(self.placed.here, default=0):
            self.note("log_behind_the_checkpoint", found.used.path, text)
        elif sequence not in self.placed.here:
            self.note("extent_missing", path, text)
        elif any(each.epoch >= chain.epoch for each in later):
            self.note("extent_damaged_in_the_middle", path, text)
        else:
            self.note("extent_damaged_at_the_tail", path, text)

    def _lost(self, found: End, state: ControlState | None, gone: set[int]) -> Lost:
        """What a cut at the end that was found loses; `gone`: sequences of extents that lack."""
        chain = found.chain
        units, prepared, times = [], [], []
        records = outside_units = readable = last = 0
        for each in self.placed.evidence().frames(chain.end):
            if each.epoch < chain.epoch or each.kind == PAD:
                continue
            readable += each.end - each.lsn
            last = each.end
            times.append(each.time)
            if not each.flags & END or each.kind == FILL:
                continue
            records += 1
            outside_units += not each.uow and each.kind < Kind.START_CHECKPOINT
            if each.kind == Kind.COMMIT:
                units.append(each.uow)
            elif each.kind in (Kind.PREPARE, Kind.ROLL_FORWARD):
                prepared.append(each.uow)
        durable = [one.found.durable for one in self.checkpoints] + ([state.durable, state.clean_end] if state else [])
        lacking = min(map(self.placed.ends, gone), default=chain.end)
        linear = self.config.log_type is LogType.LINEAR
        border = [(sequence + 1) * self.extent_bytes for sequence in gone if state is None or not state.clean_end]
        return Lost(
            start=chain.end,
            end=max([chain.end, last, *durable, *border]),
            records=records,
            units=tuple(units),
            prepared=tuple(dict.fromkeys(prepared)),  # one that was rolled forward says so again
            outside_units=outside_units,
            readable=readable,
            first_time=min(times, default=0),
            last_time=max(times, default=0),
            history=lacking if linear and lacking < chain.end else 0,
        )
