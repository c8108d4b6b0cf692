"""Repair of a log that a start refuses: what it finds of the table in `diagnosis.py`, and the plan that follows.

It changes nothing.

*Operation*: look at the control file, the checkpoint files and every extent; ask each what it says of the others; find
out how far the records go on from the checkpoint. *Goal*: the longest log that can be had without a gap, nothing in it
that a restart once declared lost, and a sentence for everything that would be missing from it. *Plan*: the end X that
was found is declared as a restart declares one: the control file that is written says that from X on only a new epoch
counts. So whatever lies beyond never comes back, and whatever lies before is what it was.

An extent's header, a checkpoint and each frame bear witness of epochs: a frame of epoch k that says that the log was
durable up to d was written by a start that began at d or before, so older frames from d on are dead.
"""

from collections import Counter
from collections.abc import Callable, Iterable

import attrs

from logger import control, lsn
from logger.at_rest import active_path, control_path
from logger.config import LogConfig, LogType
from logger.control import ControlState
from logger.disk import PAGE, Disk, read_whole
from logger.extent import DATA, ExtentHeader, linear_number
from logger.forensics import Chain, Epochs, Evidence, Seen, look, most_common, name_of, sequence_inside
from logger.frame import END, PAD
from logger.history import History, read_header
from recovery import checkpoint
from recovery.checkpoint import Checkpoint, decode_file, encode_file
from recovery.diagnosis import ROWS, Change, Does, Examination, Finding, Lost, Put, PutCopy, PutCut, PutMade, Remove
from recovery.records import Kind

MOST_EXTENTS = 511  # in a control file

Images = Callable[[ControlState, int], Callable[[], bytes] | None]
"""What makes a checkpoint file of media images, for the log that the state describes up to an LSN; None: they lack."""


def no_images(state: ControlState, end: int) -> None:
    return None


class Refused(Exception):
    """The examination ends here: nothing can be done."""


@attrs.frozen
class _CheckpointFile:
    path: str
    found: Checkpoint
    catalogue: list[bytes]


@attrs.frozen
class _End:
    """Where the log will end, and what a restart will begin with."""

    used: _CheckpointFile
    chain: Chain
    made: bool = False  # the checkpoint is not on the disk yet
    make: Callable[[], bytes] | None = None  # makes it, where it is not just empty


def examine(
    disk: Disk,
    data_dir: str,
    config: LogConfig,
    *,
    counters: Callable[[], dict[str, int]],
    images: Images = no_images,
) -> Examination:
    """Find out what is wrong with the log in `config.path` and the checkpoints in `data_dir`. Raises OSError.

    `counters()` gives the numbers that a queue manager which is replayed from its first record must not use again.
    """
    examiner = _Examiner(disk, data_dir, config, counters, images)
    try:
        return examiner.run()
    except Refused:
        return Examination(findings=tuple(examiner.findings))


class _Examiner:
    def __init__(
        self,
        disk: Disk,
        data_dir: str,
        config: LogConfig,
        counters: Callable[[], dict[str, int]],
        images: Images,
    ) -> None:
        self.disk = disk
        self.data_dir = data_dir
        self.config = config
        self.counters = counters
        self.images = images
        self.findings: list[Finding] = []
        self.changes: list[Change] = []
        self.active = active_path(config.path)
        self.control = control_path(config.path)
        self.bad: list[Seen] = []  # files that are no extents of this log, or not where they belong

    def note(self, row: str, where: str, text: str = "") -> None:
        self.findings.append(Finding(ROWS[row], where, text))

    def refuse(self, row: str, where: str, text: str = "") -> Refused:
        self.note(row, where, text)
        return Refused(row)

    def run(self) -> Examination:
        self.files = look(self.disk, self.active)
        copies = self._control_copies()
        self.checkpoints = self._checkpoint_files()
        self.log_id = self._identity(copies)
        self.extent_bytes = self._geometry(copies)
        state = self._believed(copies)
        self._drop_foreign_checkpoints()
        self.here = self._in_their_places(state)
        found = self._end(state)
        stale = self._older_than(found.chain, state) if state is not None and found is not None else ""
        if stale:
            self.note("control_stale", self.control, stale)
            state, found = None, self._end(None)
        if found is None:
            raise self._no_end(state)
        return self._plan(state, found)

    def _older_than(self, chain: Chain, state: ControlState) -> str:
        """What the log has that a control file always knows of, and this one does not; "" where there is nothing."""
        if chain.epoch > state.epoch:
            return f"of epoch {state.epoch}, the log is at {chain.epoch}"
        last = (chain.stopped - 1) // self.extent_bytes
        if state.log_type is LogType.CIRCULAR and last in self.here and last > max(s for _, s in state.extents):
            number, seen = self.here[last]
            if number not in dict(state.extents):
                return f"the log goes on in {seen.path}"
        return ""

    # ---- whose log it is

    def _control_copies(self) -> list[ControlState]:
        """The whole copies in the control file, newest first."""
        if not self.disk.exists(self.control):
            self.note("control_missing", self.control)
            return []
        data = read_whole(self.disk, self.control)
        copies = [control.decode(data[at : at + control.COPY]) for at in (0, control.COPY)]
        whole = sorted((copy for copy in copies if copy is not None), key=lambda copy: -copy[0])
        if not whole:
            self.note("control_no_whole_copy", self.control)
        elif len(whole) == 1:
            self.note("control_one_copy_torn", self.control)
        return [state for _, state in whole]

    def _checkpoint_files(self) -> list[_CheckpointFile]:
        """The whole checkpoint files, newest first, whosever they are."""
        found = []
        for name in (checkpoint.NAME, checkpoint.PREVIOUS):
            path = f"{self.data_dir}/{name}"
            if self.disk.exists(path):
                decoded = decode_file(read_whole(self.disk, path))
                if decoded is not None:
                    found.append(_CheckpointFile(path, *decoded))
                    continue
            if name == checkpoint.NAME:
                self.note("checkpoint_newest_damaged", path)
        return sorted(found, key=lambda one: -one.found.lsn)

    def _identity(self, copies: list[ControlState]) -> bytes:
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
        newest = max(epoch for epoch, _ in self._epochs_told([(state.epoch, 0)]))
        if newest > state.epoch:
            self.note("control_stale", self.control, f"of epoch {state.epoch}, the log is at {newest}")
            return None
        return state

    def _drop_foreign_checkpoints(self) -> None:
        for one in list(self.checkpoints):
            if one.found.log_id != self.log_id.hex():
                self.note("checkpoint_foreign", one.path)
                self.checkpoints.remove(one)

    def _epochs_told(self, more: Iterable[Epochs]) -> list[Epochs]:
        """(epoch, LSN from which on only that and later ones count), as extents and checkpoints tell."""
        mine = [one.found for one in self.checkpoints if one.found.log_id == self.log_id.hex()]
        headers = [seen.header for seen in self.files if seen.header is not None and seen.header.log_id == self.log_id]
        return [
            *more,
            *((one.epoch, one.lsn) for one in mine),
            *((header.epoch, header.sequence * header.extent_bytes) for header in headers if header.sequence),
        ]

    # ---- which extent is where

    def _in_their_places(self, state: ControlState | None) -> dict[int, tuple[int, Seen]]:
        """(file number, file) by sequence: what is of this log, under the name that it says it has."""
        expected = dict(state.extents) if state is not None else {}
        mine = {seen.number: seen for seen in self.files if seen.of(self.log_id, self.extent_bytes)}
        self.bad = [seen for seen in self.files if seen.number not in mine]
        right = {n: seen for n, seen in mine.items() if seen.header is None or seen.header.number == n}
        astray = [seen for seen in mine.values() if seen.number not in right]
        for seen in astray:
            assert seen.header is not None
            there = right.get(seen.header.number)
            wanted = state is None or seen.header.number in expected
            if wanted and (there is None or not there.whole(self.extent_bytes)):
                right[seen.header.number] = seen
                self.note("extents_swapped", seen.path, f"it is {name_of('', seen.header.number)[1:]}")
            else:
                self.bad.append(seen)
        places: dict[int, tuple[int, Seen]] = {}
        for number, seen in right.items():
            sequence, epoch = self._sequence(number, seen, expected)
            if sequence and self._fits(number, sequence):
                rival = places.get(sequence)
                if rival is None or self._sequence(rival[0], rival[1], expected)[1] < epoch:
                    places[sequence] = number, seen
        self.right = right
        self.archived = self._archived(places)
        return self.archived | places

    def _archived(self, places: dict[int, tuple[int, Seen]]) -> dict[int, tuple[int, Seen]]:
        """Extents of a linear log that are not in the active directory as they should be, but somewhere."""
        if self.config.log_type is LogType.CIRCULAR:
            return {}
        where = History(self.disk, (self.active, self.config.archive_directory), self.log_id, self.extent_bytes)
        found = {}
        for sequence, place in where.places().items():
            if sequence not in places or not places[sequence][1].whole(self.extent_bytes):
                places.pop(sequence, None)
                number = linear_number(sequence)
                header, size, _ = read_header(self.disk, place.path)
                found[sequence] = number, Seen(path=place.path, number=number, size=size, header=header)
        return found

    def _sequence(self, number: int, seen: Seen, expected: dict[int, int]) -> tuple[int, int]:
        if seen.header is not None:
            return seen.header.sequence, seen.header.epoch
        inside = expected.get(number)
        return (sequence_inside(self.disk, seen, self.log_id, self.extent_bytes) if inside is None else inside), 0

    def _fits(self, number: int, sequence: int) -> bool:
        return self.config.log_type is LogType.CIRCULAR or number == linear_number(sequence)

    def _evidence(self) -> Evidence:
        paths = {sequence: seen.path for sequence, (_, seen) in self.here.items()}
        return Evidence(self.disk, self.log_id, self.extent_bytes, paths)

    # ---- where the log ends

    def _end(self, state: ControlState | None) -> _End | None:
        """How far the records go on from the newest checkpoint that can be used; None where none can."""
        evidence = self._evidence()
        for one in self.checkpoints:
            chain = self._follow(evidence, one.found, state)
            if chain.end >= one.found.lsn:
                return _End(one, chain)
        return self._of_images(evidence, state) if state is not None else self._of_first_record(evidence, state)

    def _of_images(self, evidence: Evidence, state: ControlState) -> _End | None:
        """A linear log has all that the queues can be built again from, as of its end."""
        if state.log_type is LogType.CIRCULAR:
            return self._of_first_record(evidence, state)
        chain = self._follow(evidence, self._empty(state.head, 0), state)
        make = self.images(state, chain.end)
        if make is None:
            return None
        used = _CheckpointFile(f"{self.data_dir}/{checkpoint.NAME}", self._empty(chain.end, chain.time, state.head), [])
        return _End(used, chain, made=True, make=make)

    def _of_first_record(self, evidence: Evidence, state: ControlState | None) -> _End | None:
        """A log that is all there begins with nothing. Not so that of one that was recovered to a point in time."""
        first = self.extent_bytes
        begins = next((each for each in evidence.frames(first) if each.lsn == first), None)
        if 1 not in self.here or begins is None or begins.epoch != 1:
            return None
        chain = self._follow(evidence, self._empty(first, 0), state)
        used = _CheckpointFile(f"{self.data_dir}/{checkpoint.NAME}", self._empty(first, chain.time), [])
        return _End(used, chain, made=True)

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

    def _follow(self, evidence: Evidence, one: Checkpoint, state: ControlState | None) -> Chain:
        """The records from a checkpoint on. One that can't be used is a witness too of what was durable."""
        durable = max([one.durable, *(each.found.durable for each in self.checkpoints)])
        if state is not None:
            durable = max(durable, state.durable, state.clean_end)
            return evidence.follow(one.head, durable, (state.epoch_from, state.epoch))
        told = self._epochs_told([])
        witness = 0
        for each in evidence.frames(one.head):
            told.append((each.epoch, each.durable or each.lsn))
        epoch = max((epoch for epoch, _ in told), default=0)
        epochs = min((at for k, at in told if k == epoch), default=one.head), epoch
        chain = evidence.follow(one.head, durable, epochs)
        for each in evidence.frames(chain.end):  # an extent that is missing hides these from a reader
            if each.epoch >= chain.epoch and (each.lsn < epochs[0] or each.epoch >= epoch):
                witness = max(witness, each.durable)
        return evidence.follow(one.head, witness, epochs) if witness > chain.end else chain

    def _no_end(self, state: ControlState | None) -> Refused:
        if not self.checkpoints:
            return self.refuse("checkpoints_lost", f"{self.data_dir}/{checkpoint.NAME}")
        self._note_bad_extents(state, self.checkpoints[0].found.head // self.extent_bytes)
        newest = self.checkpoints[0].found
        chain = self._follow(self._evidence(), newest, state)
        if any(one.row.name == "checkpoint_newest_damaged" for one in self.findings) and chain.records == 0:
            text = f"{self.checkpoints[0].path} needs the log from {lsn.text(newest.head)}"
            return self.refuse("checkpoints_lost", f"{self.data_dir}/{checkpoint.NAME}", text)
        text = f"it can be read up to {lsn.text(chain.end)}, the checkpoint is that of {lsn.text(newest.lsn)}"
        return self.refuse("damaged_before_the_checkpoint", self.active, text)

    # ---- the plan

    def _plan(self, state: ControlState | None, found: _End) -> Examination:
        used, chain = found.used, found.chain
        needed = used.found.head // self.extent_bytes
        passed = chain.end // self.extent_bytes  # those before this one can be read, whatever else is wrong with them
        gone = {sequence for sequence in self._note_bad_extents(state, needed) if sequence >= passed}
        self._note_damaged_headers(needed)
        cut = chain.damage is not None or bool(gone)
        if found.made:
            row = "checkpoints_lost_log_complete" if found.make is None else "checkpoints_lost_images_there"
            self.note(row, used.path)
        if cut:
            self._note_damage(found, bool(gone))
        actual = [one for one in self.findings if one.row.does is not Does.KEEP]
        if not actual:
            return Examination(findings=tuple(self.findings))
        lost = self._lost(found, state, gone) if cut else None
        also_save = self._change(state, found, cut)
        return Examination(
            findings=tuple(self.findings), lost=lost, changes=tuple(self.changes), also_save=tuple(also_save)
        )

    def _note_bad_extents(self, state: ControlState | None, needed: int) -> set[int]:
        """Say which extents are bad; the sequences of those that a restart needs and that are not there."""
        gone: set[int] = set()
        foreign = {seen.number for seen in self.bad if seen.size >= DATA}
        for number, known in sorted(state.extents) if state is not None else ():
            row = self._badness(number, known, foreign)
            sequence = max(known, self._says(number)) if row == "extent_short" else known  # that copy may be the older
            path = name_of(self.active, number)
            if row and sequence >= max(1, needed) and sequence in self.archived:
                self.note("extent_in_the_archive", path, self.archived[sequence][1].path)
            elif row and sequence >= max(1, needed):
                self.note(row, path, f"it has the log from {lsn.text(sequence * self.extent_bytes)}")
                gone.add(sequence)
            elif row == "extent_foreign" or (row and sequence * self.extent_bytes >= self._floor(state)):
                self.note("extent_not_needed", path)  # a start refuses it all the same
        if state is None:
            gone |= self._gaps(needed)
        elif state.log_type is LogType.LINEAR:
            gone |= self._gaps_behind(max((self._newest(*one) for one in state.extents), default=0))
        return gone

    def _newest(self, number: int, known: int) -> int:
        """What an extent that the control file names holds by now."""
        return max(known, self._says(number))

    def _gaps_behind(self, last: int) -> set[int]:
        """A start takes what follows in a linear log for its own, and refuses a gap in that."""
        there = [sequence for sequence in self.here if sequence > last and sequence not in self.archived]
        gone = {sequence for sequence in range(last + 1, max(there, default=last)) if sequence not in self.here}
        for sequence in sorted(gone):
            self.note("extent_missing", f"{self.active}: sequence {sequence}")
        return gone

    def _floor(self, state: ControlState | None) -> int:
        """What a start takes for the first byte that it needs."""
        return 0 if state is None else state.head // self.extent_bytes * self.extent_bytes

    def _badness(self, number: int, sequence: int, foreign: set[int]) -> str:
        """The row for an extent that the control file says holds `sequence`; "" when it does, or a later one."""
        seen = self.right.get(number)
        if seen is None:
            cut = self.disk.exists(name_of(self.active, number))
            return "extent_foreign" if number in foreign else "extent_short" if cut else "extent_missing"
        if not seen.whole(self.extent_bytes):
            return "extent_short"
        return "extent_stale" if seen.header is not None and seen.header.sequence < sequence else ""

    def _says(self, number: int) -> int:
        """The sequence that the extent file says it holds; 0 where it says nothing."""
        seen = self.right.get(number)
        return seen.header.sequence if seen is not None and seen.header is not None else 0

    def _gaps(self, needed: int) -> set[int]:
        """Without a control file: what is not there among what is, and what is short."""
        there = [sequence for sequence in self.here if sequence >= needed]
        gone = set()
        for sequence in range(needed, max(there, default=needed - 1) + 1):
            if sequence not in self.here:
                self.note("extent_missing", f"{self.active}: sequence {sequence}")
                gone.add(sequence)
            elif sequence in self.archived:
                self.note("extent_in_the_archive", self.archived[sequence][1].path)
            elif not self.here[sequence][1].whole(self.extent_bytes):
                self.note("extent_short", self.here[sequence][1].path)
                gone.add(sequence)
        return gone

    def _note_damaged_headers(self, needed: int) -> None:
        for sequence, (_, seen) in sorted(self.here.items()):
            if seen.header is None and sequence >= needed:
                self.note("extent_header_damaged", seen.path)

    def _note_damage(self, found: _End, explained: bool) -> None:
        chain = found.chain
        newest = self.checkpoints[0] if self.checkpoints else found.used
        if found.used is not newest and not found.made:
            self.note("older_checkpoint_used", newest.path, f"that of {lsn.text(found.used.found.lsn)}")
        if explained:
            return
        text = f"at {lsn.text(chain.end)}"
        sequence = chain.end // self.extent_bytes
        path = self.here[sequence][1].path if sequence in self.here else self.active
        beyond = next((each for each in self._evidence().frames(chain.end + 8) if each.epoch >= chain.epoch), None)
        if sequence not in self.here:
            self.note("extent_missing", f"{self.active}: sequence {sequence}", text)
        elif beyond is None:
            self.note("extent_damaged_at_the_tail", path, text)
        else:
            self.note("extent_damaged_in_the_middle", path, text)

    def _lost(self, found: _End, state: ControlState | None, gone: set[int]) -> Lost:
        chain = found.chain
        units, prepared, times = [], [], []
        records = alone = readable = last = 0
        for each in self._evidence().frames(chain.end):
            if each.epoch < chain.epoch or each.kind == PAD:
                continue
            readable += each.end - each.lsn
            last = each.end
            times.append(each.time)
            if not each.flags & END:
                continue
            records += 1
            alone += not each.uow and each.kind < Kind.START_CHECKPOINT
            if each.kind == Kind.COMMIT:
                units.append(each.uow)
            elif each.kind in (Kind.PREPARE, Kind.ROLL_FORWARD):
                prepared.append(each.uow)
        told = [one.found.durable for one in self.checkpoints] + ([state.durable, state.clean_end] if state else [])
        border = [(sequence + 1) * self.extent_bytes for sequence in gone if state is None or not state.clean_end]
        return Lost(
            start=chain.end,
            end=max([chain.end, last, *told, *border]),
            records=records,
            units=tuple(units),
            prepared=tuple(prepared),
            alone=alone,
            readable=readable,
            first_time=min(times, default=0),
            last_time=max(times, default=0),
        )

    def _change(self, state: ControlState | None, found: _End, cut: bool) -> list[str]:
        """Settle what is written, the control file after all that it speaks of; which other files are saved too."""
        end, last = found.chain.end, (found.chain.end - 1) // self.extent_bytes
        needed = found.used.found.head // self.extent_bytes
        told = self._epochs_told([(state.epoch, 0)] if state is not None else [])
        epoch = max([found.chain.epoch, *(k for k, _ in told), *(f.epoch for f in self._evidence().frames(end))])
        made = self._made_anew(needed, end, epoch, cut)
        self.changes += made
        for number, seen in sorted(self.right.items()):
            path = name_of(self.active, number)
            if seen.number != number and all(change.path != path for change in made):
                self.changes.append(PutCopy(path, seen.path))
        for sequence, (number, seen) in self.archived.items():
            path = name_of(self.active, number)
            if needed <= sequence <= last and all(change.path != path for change in made):
                self.changes.append(PutCopy(path, seen.path))
        active = sorted((s, n) for s, (n, _) in self.here.items() if needed <= s <= last)[-MOST_EXTENTS:]
        table = {number: sequence for sequence, number in active}
        table |= {change.header.number: change.header.sequence for change in made}
        beyond = [seen.path for s, (_, seen) in self.here.items() if s > last and s not in self.archived]
        kept = {name_of(self.active, number) for number in table}
        if self.config.log_type is LogType.CIRCULAR:
            usable = {n: s for n, s in self._ring().items() if n not in table}
            table |= {n: (s if s < needed else 0) for n, s in usable.items()}
            kept |= {name_of(self.active, number) for number in usable}
        elif cut:
            self.changes += (Remove(path) for path in beyond if path not in kept)
        self._checkpoint_changes(found, cut)
        clean = state.clean_end if state is not None and not cut and not found.made else self._clean_end(found, state)
        after = ControlState(
            log_id=self.log_id,
            log_type=self.config.log_type,
            extent_bytes=self.extent_bytes,
            epoch=epoch + 1,
            epoch_from=end,
            head=found.used.found.head,
            checkpoint=found.used.found.lsn,
            durable=end,
            clean_end=0 if cut else clean,
            extents=tuple(sorted(table.items())),
        )
        twice = [after.encode(number).ljust(control.COPY, b"\0") for number in (1, 2)]
        self.changes.append(Put(self.control, b"".join(twice)))
        written = {change.path for change in self.changes}
        moved = [seen for number, seen in self.right.items() if seen.number != number]
        self.changes += (Remove(seen.path) for seen in [*self.bad, *moved] if seen.path not in written | kept)
        return [path for path in beyond if cut]

    def _made_anew(self, needed: int, end: int, epoch: int, cut: bool) -> list[PutCut]:
        """Extents that get the right size, and the one in which the log is cut."""
        short = [s for s, (_, seen) in self.here.items() if not seen.whole(self.extent_bytes)]
        wanted = {s for s in short if needed <= s and s * self.extent_bytes < end}
        if cut and end % self.extent_bytes:
            wanted.add(end // self.extent_bytes)
        return [self._up_to(sequence, end, epoch) for sequence in sorted(wanted)]

    def _up_to(self, sequence: int, end: int, epoch: int) -> PutCut:
        number, seen = self.here.get(sequence, (None, None))
        if number is None:  # nothing before `end` is needed of it
            number = linear_number(sequence) if self.config.log_type is LogType.LINEAR else self._free_number()
        header = seen.header if seen is not None else None
        header = header or ExtentHeader(
            number=number,
            log_id=self.log_id,
            sequence=sequence,
            extent_bytes=self.extent_bytes,
            epoch=epoch,
            time=0,
        )
        end = min(end, (sequence + 1) * self.extent_bytes)
        return PutCut(name_of(self.active, number), header, end, self._evidence())

    def _free_number(self) -> int:
        return next(n for n in range(len(self.right) + 1) if n not in self.right)

    def _ring(self) -> dict[int, int]:
        """The whole extents, and the sequence that each says it has."""
        whole = {number: seen for number, seen in self.right.items() if seen.whole(self.extent_bytes)}
        by_number = {number: sequence for sequence, (number, _) in self.here.items()}
        return {number: by_number.get(number, 0) for number in whole}

    def _checkpoint_changes(self, found: _End, cut: bool) -> None:
        """Let the checkpoint that is used be the newest, and say nothing of what is cut off."""
        used, end = found.used, found.chain.end
        if found.make is not None:
            self.changes.append(PutMade(used.path, found.make))
        elif found.made or used.found.durable > end:
            kept = attrs.evolve(used.found, durable=min(used.found.durable, end))
            self.changes.append(Put(used.path, encode_file(kept, used.catalogue)))
        for other in self.checkpoints:
            if other.path != used.path and (other.found.lsn > used.found.lsn or found.made):
                self.changes.append(Remove(other.path))

    def _clean_end(self, found: _End, state: ControlState | None) -> int:
        """Without a control file: the end of the log, if it ended in order; nothing was done since its last checkpoint.

        A start that was completed, or crashed, after that has left a record or an epoch.
        """
        one, chain = found.used.found, found.chain
        told = max((k for k, _ in self._epochs_told([])), default=0)
        clean = state is None and not found.made and one.clean and chain.epoch == one.epoch == told
        return chain.end if clean and chain.last_kind == Kind.END_CHECKPOINT else 0
