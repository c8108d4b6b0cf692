"""Remedy: the files that make a start take a log up to where it can be read. Settled here, written by `mend.py`.

The control file is written last, since it refers to all the others.
"""

from collections.abc import Callable

import attrs

from logger import control
from logger.at_rest import control_path
from logger.config import LogType
from logger.control import ControlState
from logger.extent import ExtentHeader, linear_number
from logger.forensics import Chain, Evidence
from recovery.checkpoint import Checkpoint, encode_file
from recovery.diagnosis import Change, Remove, WriteBytes, WriteCopy, WriteCut, WriteMade
from recovery.placing import Placed
from recovery.records import Kind

MAX_EXTENTS = 511  # in a control file
LOST_STARTS = 1000  # that nothing tells of where control file and extents are lost: their numbers are not given again
Witness = tuple[int, int]  # an epoch, and an LSN from which on only frames of that one or a later one count


@attrs.frozen
class CheckpointFile:
    path: str
    found: Checkpoint
    catalogue: list[bytes]


@attrs.frozen
class End:
    """Where the log will end, and what a restart will begin with."""

    used: CheckpointFile
    chain: Chain
    made: bool = False  # the checkpoint is not on the disk yet
    make: Callable[[], bytes] | None = None  # makes it, where it is not just empty


@attrs.frozen(kw_only=True)
class Remedy:
    """What is to be written for a log that ends at `end`."""

    end: End
    cut: bool  # there is more of it, which can't be had
    state: ControlState | None  # what the control file says, where it is believed
    placed: Placed
    checkpoints: list[CheckpointFile]  # newest first
    witnesses: list[Witness]  # extents and checkpoints
    log_directory: str

    def beyond(self) -> list[str]:
        """The extents behind the end: those of a circular log are written over once work goes on."""
        last = self._last
        there = self.placed.here.items()
        return [seen.path for s, (_, seen) in there if s > last and s not in self.placed.archived]

    def changes(self) -> list[Change]:
        """What is written, in this order."""
        placed, needed = self.placed, self._needed
        evidence = placed.evidence()
        epoch = self._epoch(evidence)
        made = self._made_anew(epoch, evidence)
        changes: list[Change] = [*made]
        anew = {change.path for change in made}
        beyond = set() if placed.circular or not self.cut else set(self.beyond())
        moved = [(number, seen) for number, seen in sorted(placed.right.items()) if seen.number != number]
        back = [held for sequence, held in placed.archived.items() if needed <= sequence <= self._asked_for]
        there = [(placed.path_of(number), seen.path) for number, seen in moved + back if seen.path not in beyond]
        changes += (WriteCopy(path, source) for path, source in there if path not in anew)
        after = self._state_after(epoch, made)
        kept = {placed.path_of(number) for number, _ in after.extents} | {change.path for change in changes}
        changes += (Remove(path) for path in sorted(beyond - kept))
        changes += self._checkpoint_changes()
        twice = [after.encode(number).ljust(control.COPY_BYTES, b"\0") for number in (1, 2)]
        changes.append(WriteBytes(control_path(self.log_directory), b"".join(twice)))
        kept |= {change.path for change in changes}
        changes += (Remove(seen.path) for seen in [*placed.bad, *(seen for _, seen in moved)] if seen.path not in kept)
        return changes

    def state_after(self) -> ControlState:
        """What the control file will say."""
        evidence = self.placed.evidence()
        epoch = self._epoch(evidence)
        return self._state_after(epoch, self._made_anew(epoch, evidence))

    @property
    def _last(self) -> int:
        """The sequence in which the log ends."""
        return (self.end.chain.end - 1) // self.placed.extent_bytes

    @property
    def _asked_for(self) -> int:
        """The last sequence of which a start asks where it is: up to the last file in the active directory.

        Behind the end are extents that had been taken for records which a crash has lost.
        """
        there = [] if self.cut else [s for s in self.placed.here if s not in self.placed.archived]
        return max([self._last, *there])

    @property
    def _needed(self) -> int:
        """The first sequence that a restart reads."""
        return self.end.used.found.head // self.placed.extent_bytes

    def _witnessed_epoch(self) -> int:
        """The highest epoch in any file, not counting frames beyond the end."""
        known = [] if self.state is None else [self.state.epoch]
        return max([self.end.chain.epoch, *known, *(epoch for epoch, _ in self.witnesses)])

    def _epoch(self, evidence: Evidence) -> int:
        """The highest epoch in any file, including frames beyond the end."""
        return max([self._witnessed_epoch(), *(each.epoch for each in evidence.frames(self.end.chain.end))])

    def _state_after(self, epoch: int, made: list[WriteCut]) -> ControlState:
        """What the control file will say: as after a restart, from the end on only a new epoch counts."""
        placed, found, needed = self.placed, self.end, self._needed
        active = sorted((s, n) for s, (n, _) in placed.here.items() if needed <= s <= self._last)[-MAX_EXTENTS:]
        table = {number: sequence for sequence, number in active}
        table |= {change.header.number: change.header.sequence for change in made}
        if placed.circular:
            table |= {n: (s if s < needed else 0) for n, s in self._ring().items() if n not in table}
        return ControlState(
            log_id=placed.log_id,
            log_type=LogType.CIRCULAR if placed.circular else LogType.LINEAR,
            extent_bytes=placed.extent_bytes,
            epoch=epoch + (LOST_STARTS if self.cut and self.state is None else 1),
            epoch_from=found.chain.end,
            head=found.used.found.head,
            checkpoint=found.used.found.lsn,
            durable=found.chain.end,
            clean_end=self._clean_end(),
            extents=tuple(sorted(table.items())),
        )

    def _clean_end(self) -> int:
        """The end of the log, if it ended in order: without a control file if nothing was done since its checkpoint.

        A start that was completed, or crashed, after that has left a record or an epoch.
        """
        one, chain = self.end.used.found, self.end.chain
        if self.cut or self.end.made:
            return 0
        if self.state is not None:
            return self.state.clean_end
        newest = max((epoch for epoch, _ in self.witnesses), default=0)
        clean = one.clean and chain.epoch == one.epoch == newest
        return chain.end if clean and chain.last_kind == Kind.END_CHECKPOINT else 0

    def _checkpoint_changes(self) -> list[Change]:
        """Let the checkpoint that is used be the newest, and say nothing of what is cut off."""
        found, used, end = self.end, self.end.used, self.end.chain.end
        changes: list[Change] = []
        if found.make is not None:
            changes.append(WriteMade(used.path, found.make))
        elif found.made or used.found.durable > end:
            kept = attrs.evolve(used.found, durable=min(used.found.durable, end))
            changes.append(WriteBytes(used.path, encode_file(kept, used.catalogue)))
        for other in self.checkpoints:
            if other.path != used.path and (other.found.lsn > used.found.lsn or found.made):
                changes.append(Remove(other.path))
        return changes

    # ---- extents

    def _made_anew(self, epoch: int, evidence: Evidence) -> list[WriteCut]:
        """Extents that get the right size, and the one in which the log is cut."""
        size, end = self.placed.extent_bytes, self.end.chain.end
        short = [sequence for sequence, (_, seen) in self.placed.here.items() if not seen.whole(size)]
        wanted = {sequence for sequence in short if self._needed <= sequence and sequence * size < end}
        if self.cut and end % size:
            wanted.add(end // size)
        return [self._up_to_the_end(sequence, epoch, evidence) for sequence in sorted(wanted)]

    def _up_to_the_end(self, sequence: int, epoch: int, evidence: Evidence) -> WriteCut:
        """One of these extents, with what there is of it up to the end of the log."""
        placed = self.placed
        number, seen = placed.here.get(sequence, (None, None))
        if number is None:  # nothing of it is needed
            number = self._free_number() if placed.circular else linear_number(sequence)
        header = seen.header if seen is not None else None
        header = header or ExtentHeader(
            number=number,
            log_id=placed.log_id,
            sequence=sequence,
            extent_bytes=placed.extent_bytes,
            epoch=epoch,
            time=0,
        )
        end = min(self.end.chain.end, (sequence + 1) * placed.extent_bytes)
        return WriteCut(placed.path_of(number), header, end, evidence)

    def _free_number(self) -> int:
        return next(n for n in range(len(self.placed.right) + 1) if n not in self.placed.right)

    def _ring(self) -> dict[int, int]:
        """The whole extents, and the sequence that each says it has."""
        placed = self.placed
        by_number = {number: sequence for sequence, (number, _) in placed.here.items()}
        whole = (number for number, seen in placed.right.items() if seen.whole(placed.extent_bytes))
        return {number: by_number.get(number, 0) for number in whole}
