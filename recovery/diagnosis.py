"""What may be wrong with a log that a start refuses, as a table; what an examination says of it, and would change."""

import enum
from collections.abc import Callable

import attrs

from logger import lsn
from logger.clock import moment
from logger.extent import ExtentHeader
from logger.forensics import Evidence


class Cure(enum.Enum):
    """What repair does with something that was found."""

    KEEP = "keep"
    REBUILD = "rebuild"
    CUT = "cut"
    REFUSE = "refuse"


@attrs.frozen
class Row:
    """A row of the decision table; its test is `test_<name>` in tests/recovery/test_repair.py."""

    name: str
    found: str
    cure: Cure
    how: str  # what repair does
    loses: str = "nothing"


UNITS = "the units of work whose commits lie beyond"

TABLE = (
    Row("control_one_copy_torn", "one copy of the control file is not whole", Cure.KEEP, "the other one counts"),
    Row("control_no_whole_copy", "no copy of the control file is whole", Cure.REBUILD, "it is made of the extents"),
    Row("control_missing", "the control file is missing", Cure.REBUILD, "it is made of the extents"),
    Row("control_stale", "the control file is an older copy", Cure.REBUILD, "it is made of the extents"),
    Row("control_foreign", "the control file belongs to another log", Cure.REBUILD, "it is made of the extents"),
    Row(
        "checkpoint_newest_damaged",
        "the newest checkpoint file is missing, or not whole",
        Cure.KEEP,
        "the one before counts",
    ),
    Row("checkpoint_foreign", "a checkpoint file belongs to another queue manager", Cure.KEEP, "the other one counts"),
    Row(
        "checkpoints_lost_log_complete",
        "no checkpoint file can be used, and the log reaches back to its first record",
        Cure.REBUILD,
        "everything is replayed from the first record",
        "non-persistent messages",
    ),
    Row(
        "checkpoints_lost_images_there",
        "no checkpoint file can be used, and the log has images of the queues",
        Cure.REBUILD,
        "the queues are rebuilt from their images and the log",
        "non-persistent messages",
    ),
    Row(
        "checkpoints_lost",
        "no checkpoint file can be used, and the log does not reach back to its first record",
        Cure.REFUSE,
        "restore data and log from one backup",
    ),
    Row(
        "log_behind_the_checkpoint",
        "the log does not reach back to the newest checkpoint that can be used",
        Cure.CUT,
        "that one is used, with nothing of the log",
        "what was done since that checkpoint",
    ),
    Row("extent_missing", "an extent is missing", Cure.CUT, "the log is cut before it", UNITS),
    Row("extent_in_the_archive", "an extent that a restart needs is in the archive", Cure.REBUILD, "it is put back"),
    Row("extent_short", "an extent was cut", Cure.CUT, "the log is cut where it ends", UNITS),
    Row("extent_foreign", "an extent belongs to another log", Cure.CUT, "the log is cut before it", UNITS),
    Row("extent_stale", "an extent is an older copy", Cure.CUT, "the log is cut before it", UNITS),
    Row("extents_swapped", "extents lie under each other's names", Cure.REBUILD, "they are put back"),
    Row("extent_damaged_in_the_middle", "a record can't be read, later ones can", Cure.CUT, "the log is cut", UNITS),
    Row("extent_damaged_at_the_tail", "the last records can't be read", Cure.CUT, "the log is cut", UNITS),
    Row("extent_header_damaged", "the header of an extent is not whole", Cure.KEEP, "each record says where it is"),
    Row(
        "extent_of_history_bad",
        "an extent that no restart needs, but media recovery may, is missing or was cut",
        Cure.KEEP,
        "record media images when the queue manager is started (rcdmqimg)",
    ),
    Row("extent_not_needed", "an extent that a restart does not need is bad", Cure.REBUILD, "it is left out"),
    Row(
        "extent_not_named",
        "the control file does not name an extent that a restart needs",
        Cure.REBUILD,
        "it is made of the extents",
    ),
    Row(
        "damaged_before_the_checkpoint",
        "what a restart needs can't be read, and lies before the checkpoint",
        Cure.REFUSE,
        "restore the extent, or data and log from one backup",
    ),
    Row(
        "older_checkpoint_used",
        "the log ends before the newest checkpoint, and not before the previous one",
        Cure.CUT,
        "that one is used, and the log cut",
        UNITS,
    ),
    Row(
        "ini_missing",
        "qm.ini is missing",
        Cure.REBUILD,
        "it is made of the log",
        "settings other than LogType, LogFilePages and LogPath",
    ),
    Row(
        "ini_and_control_missing",
        "qm.ini is missing, and the control file can't be read",
        Cure.REFUSE,
        "bring one of them back, or write a qm.ini with LogType, LogFilePages and LogPath; then repair again",
    ),
    Row("ini_pages_differ", "LogFilePages in qm.ini is not that of the log", Cure.REFUSE, "set it as the log has it"),
    Row("ini_type_differs", "LogType in qm.ini is not that of the log", Cure.REFUSE, "run migmqlog again"),
    Row("whose_log", "the files are of several logs, and none has most", Cure.REFUSE, "restore from one backup"),
    Row(
        "data_foreign",
        "no checkpoint file is of this log, and one of another",
        Cure.REFUSE,
        "correct LogPath in qm.ini, or restore data and log from one backup; where only the checkpoint files are "
        "wrong, move them away and repair again",
    ),
    Row(
        "later_format",
        "a file, or a record in it, is of a later format than this version reads",
        Cure.REFUSE,
        "start the queue manager with the version that wrote it",
    ),
    Row(
        "queues_away",
        "all files of the queues are missing",
        Cure.REFUSE,
        "bring back their directory, or say that they are gone for good",
    ),
    Row("no_log", "there is no extent of a log", Cure.REFUSE, "restore from one backup; or LogPath is wrong"),
)
ROWS = {row.name: row for row in TABLE}


@attrs.frozen
class Finding:
    row: Row
    where: str  # a file
    text: str = ""  # more about it

    def __str__(self) -> str:
        more = f" ({self.text})" if self.text else ""
        return f"{self.where}: {self.row.found}{more}"


@attrs.frozen(kw_only=True)
class Lost:
    """What would be missing: from LSN `start` on."""

    start: int
    end: int  # the log went at least as far
    records: int  # that can still be read
    units: tuple[int, ...]  # units of work whose commit is among them
    prepared: tuple[int, ...]  # units of work whose prepare is among them
    outside_units: int  # records of calls outside of units of work
    readable: int  # bytes of them all
    first_time: int
    last_time: int
    history: int = 0  # LSN from which on what lies before `start` may lack, too, which media recovery may need; 0: none

    def lines(self) -> list[str]:
        size = self.end - self.start
        unreadable = max(0, size - self.readable)
        said = [
            f"Lost: {lsn.text(self.start)} to {lsn.text(self.end)}, {size} bytes, of which {unreadable} can't be read."
        ]
        if self.records:
            said.append(
                f"Lost: {self.records} records that can still be read, from {moment(self.first_time)} to "
                f"{moment(self.last_time)}; {self.outside_units} of them calls outside of units of work."
            )
        for what, numbers in (("commits", self.units), ("prepares", self.prepared)):
            if numbers:
                shown = ", ".join(f"0,{n}" for n in numbers[:20]) + (", ..." if len(numbers) > 20 else "")
                said.append(f"Lost: the {what} of {len(numbers)} units of work: {shown}.")
        if self.history:
            said.append(
                f"Lost: some of {lsn.text(self.history)} to {lsn.text(self.start)}, which no restart needs, but media "
                f"recovery may: record media images when the queue manager is started (rcdmqimg)."
            )
        return said


# What is to be changed


@attrs.frozen
class WriteBytes:
    """A file gets these bytes."""

    path: str
    data: bytes


@attrs.frozen
class WriteCopy:
    """A file gets the content of another, as it was."""

    path: str
    source: str


@attrs.frozen
class WriteMade:
    """A file gets bytes that take some time to make; what else is written for them nothing refers to until then."""

    path: str
    make: Callable[[], bytes]


@attrs.frozen
class WriteCut:
    """An extent is made anew: what readers see of it up to the LSN `end`, then zeros."""

    path: str
    header: ExtentHeader
    end: int
    evidence: Evidence  # which has it, unless nothing of it can be had


@attrs.frozen
class Remove:
    path: str


Change = WriteBytes | WriteCopy | WriteMade | WriteCut | Remove


@attrs.frozen(kw_only=True)
class Examination:
    """What was found, and what repair would do about it."""

    findings: tuple[Finding, ...]
    lost: Lost | None = None
    changes: tuple[Change, ...] = ()
    also_save: tuple[str, ...] = ()  # files that are not changed, and will be written over once work goes on

    @property
    def refused(self) -> bool:
        return any(one.row.cure is Cure.REFUSE for one in self.findings)

    def lines(self) -> list[str]:
        refused = self.refused
        said = [f"Found: {one}." for one in self.findings]
        for row in dict.fromkeys(one.row for one in self.findings if not refused or one.row.cure is Cure.REFUSE):
            said.append(f"Repair: {row.found}: {row.cure.value}: {row.how}.")
        for also in dict.fromkeys(one.row.loses for one in self.findings if one.row.cure is Cure.REBUILD):
            if also != "nothing":
                said.append(f"Lost: {also}.")
        return said + (self.lost.lines() if self.lost else [])
