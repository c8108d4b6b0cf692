"""Repairing a queue manager that can't be started: find its files, own them, examine, mend, start, end."""

import contextlib
import itertools
import json
from collections.abc import Callable

import attrs

from logger import at_rest, control, lsn
from logger.at_rest import active_path, control_path
from logger.clock import Clock
from logger.config import LogConfig, LogType
from logger.control import ControlState
from logger.disk import PAGE, Disk
from logger.errors import LogDamaged
from logger.forensics import extent_files
from logger.posix_disk import Path, PosixDisk
from logger.whole_files import read_whole
from qmgr import ini, locations
from qmgr.errors import InUse, Reason, Unavailable
from qmgr.ini import Config
from qmgr.locations import Location
from qmgr.manager import start
from qmgr.missing import away, unfinished, unknown
from qmgr.ownership import own, refuse_root
from qmgr.resource import Resource
from qmgr.segment_files import segments_below
from qmgr.stopped import media_lsn
from qmgr.survey import Survey, past_damage, rebuilt, survey
from qmgr.translated import translated
from recovery import mend
from recovery.checkpoint import Checkpoint, encode_file
from recovery.diagnosis import ROWS, Cure, Examination, Finding, WriteBytes
from recovery.errors import NotRecoverable
from recovery.remedy import CheckpointFile
from recovery.repair import examine
from recovery.restart import RestartReport


@attrs.frozen(kw_only=True)
class Repair:
    """What was found, and what was done about it."""

    examination: Examination
    interrupted: bool = False  # a repair before this one was; it is completed first
    planned: tuple[str, ...] = ()  # what that one had found, where it is not completed this time
    overtaken: str = ""  # the directory of an interrupted repair that does not fit the files any more
    loses: tuple[str, ...] = ()  # what completing the interrupted one loses, which was not accepted this time
    lost: tuple[str, ...] = ()  # what completing it has lost
    saved: str = ""  # the directory with the originals of what was changed
    report: RestartReport | None = None  # of the start that ends a repair

    @property
    def needed(self) -> bool:
        return self.interrupted or any(one.row.cure is not Cure.KEEP for one in self.examination.findings)

    def lines(self) -> list[str]:
        """All of it, for people."""
        said = ["A repair was interrupted while it changed files; it is completed first."] if self.interrupted else []
        if self.overtaken:
            said.append(
                f"A repair was interrupted, and files that it rested on have changed since: it is not completed; the "
                f"originals of what it may have changed are in {self.overtaken}."
            )
        found = [*self.planned, *self.examination.lines()]
        said += found
        said += [line for line in (*self.loses, *self.lost) if line not in found]
        if not found and not self.interrupted:
            said.append("There is nothing to repair.")
        if self.saved:
            said.append(f"The originals of what was changed are in {self.saved}.")
        if self.report is not None:
            one = self.report
            said += [
                f"The queue manager was started: {one.records_replayed} log records replayed from the checkpoint at "
                f"{lsn.text(one.checkpoint_lsn)} to the end at {lsn.text(one.end_lsn)}.",
                f"{one.resolved} of {one.in_flight} units of work in flight were backed out, {one.in_doubt} are in "
                f"doubt.",
                "It was ended in order, and can be started.",
            ]
        return said


def check(
    name: str, *, data_path: Path | None = None, log_path: Path | None = None, disk: Disk | None = None
) -> Repair:
    """Find out what is wrong, and what a repair would do and lose. Changes nothing. Raises InUse when it runs."""
    disk = disk or PosixDisk()
    location = _find(name, data_path, log_path, disk)
    with translated(name, "examined"):
        holder = locations.running(location, disk)
        if holder is not None:
            raise InUse(f"queue manager {name!r} is running: {holder} holds it", holder=holder, name=name)
        left = mend.unfinished(disk, location.data_dir)
        if left and mend.fits(disk, left, _log_config(disk, location)):
            return _left_alone(disk, left)
        return Repair(examination=_examine(disk, location), overtaken=left or "")


def repair(
    name: str,
    *,
    data_path: Path | None = None,
    log_path: Path | None = None,
    accept_loss: bool = False,
    before: Callable[[Repair], object] = lambda _: None,
    disk: Disk | None = None,
    clock: Clock | None = None,
) -> Repair:
    """Do what `check` says, then start the queue manager and end it in order.

    Nothing is done when nothing is wrong, when nothing can be done, and, without `accept_loss`, when anything would be
    lost. `before` hears what will be done and lost when nothing is changed yet. `log_path`: where logs are, when there
    is no qm.ini to say it. Raises InUse, Damaged, Unavailable.
    """
    disk = disk or PosixDisk()
    with translated(name, "repaired"):
        location = _find(name, data_path, log_path, disk)
        log = _log_config(disk, location)
        if not disk.exists(log.path):
            return Repair(examination=_no_log(log.path))
        refuse_root(disk, location.data_dir, name)
        held = own(disk, location, log.path, command="qm repair")
        try:
            done = _mend(disk, location, log, accept_loss, before)
        finally:
            held.release()
    if not done.saved:
        return done
    with start(name, data_path=data_path, disk=disk, clock=clock, background=False) as manager:
        return attrs.evolve(done, report=manager.restart_report)


def _find(name: str, data_path: Path | None, log_path: Path | None, disk: Disk) -> Location:
    location = locations.find(name, data_path, log_path=log_path)
    if not disk.exists(location.data_dir):
        raise unknown(disk, location)
    half = away(disk, location) or unfinished(disk, location)  # a mount would hide what is made in its place
    if half:
        raise Unavailable(half, reason=Reason.Q_MGR_NAME_ERROR, name=name)
    return location


def _left_alone(disk: Disk, left: str) -> Repair:
    """The interrupted repair in the directory `left` is reported, and not completed.

    Files that are half changed are not examined: an extent whose place another one has taken would seem to be lost.
    """
    planned, loses = tuple(mend.found(disk, left)), tuple(mend.loses(disk, left))
    return Repair(examination=Examination(findings=()), interrupted=True, planned=planned, loses=loses)


def _mend(
    disk: Disk, location: Location, log: LogConfig, accept_loss: bool, before: Callable[[Repair], object]
) -> Repair:
    """Complete an interrupted repair, examine, and repair what was found: what loses something only if `accept_loss`.

    The caller owns the files.
    """
    left, overtaken = mend.unfinished(disk, location.data_dir) or "", ""
    if left and not mend.fits(disk, left, log):
        mend.finish(disk, left)
        left, overtaken = "", left
    lost: tuple[str, ...] = ()
    if left:
        lost = tuple(mend.loses(disk, left))
        if lost and not accept_loss:  # it was, by somebody else, or before files were found
            return _left_alone(disk, left)
        before(Repair(examination=Examination(findings=()), interrupted=True, lost=lost))
        mend.carry_out(disk, left, log.path)
    examination = _examine(disk, location)
    saved = left
    if examination.changes and not examination.refused and (accept_loss or examination.lost is None):
        before(Repair(examination=examination, interrupted=bool(left), overtaken=overtaken, lost=lost))
        saved = mend.prepare(disk, location.data_dir, log, examination)
        mend.carry_out(disk, saved, log.path)
    elif examination.changes or examination.refused:
        saved = ""
    return Repair(examination=examination, interrupted=bool(left), overtaken=overtaken, lost=lost, saved=saved)


def _examine(disk: Disk, location: Location) -> Examination:
    found: list[Finding] = []
    config = _config(disk, location)
    if config is None:
        config = _config_of_log(disk, location)
        if config is None:
            active = active_path(location.log_dir)
            pages = {seen.header.extent_bytes // PAGE for seen in extent_files(disk, active) if seen.header is not None}
            if pages and at_rest.was_started(disk, location.log_dir):
                said = f"the log in {location.log_dir} has LogFilePages={pages.pop()}"
                return Examination(findings=(Finding(ROWS["ini_and_control_missing"], location.ini, said),))
            return _no_log(location.log_dir, "give the directory of logs with -ld, or write a qm.ini")
        found.append(Finding(ROWS["ini_missing"], location.ini))
    examination = examine(
        disk,
        location.data_dir,
        config.log,
        counters=lambda: _counters(disk, location),
        images=lambda state, end: _images(disk, location, config, state, end),
        media=lambda catalogue: media_lsn([json.loads(line) for line in catalogue]),
        away=lambda used, unlogged: _away(disk, location, config, used, unlogged),
    )
    if not found:
        return examination
    changes = (*examination.changes, WriteBytes(location.ini, ini.render(config).encode()))
    return attrs.evolve(examination, findings=(*found, *examination.findings), changes=changes)


def _no_log(log_dir: str, text: str = "") -> Examination:
    return Examination(findings=(Finding(ROWS["no_log"], log_dir, text),))


def _log_config(disk: Disk, location: Location) -> LogConfig:
    config = _config(disk, location)
    return LogConfig(path=location.log_dir) if config is None else config.log


def _config(disk: Disk, location: Location) -> Config | None:
    if not disk.exists(location.ini):
        return None
    try:
        return ini.parse(read_whole(disk, location.ini), location.ini)
    except IsADirectoryError:
        text = f"{location.ini} is a directory; move it away, and have the file made anew (qm repair)"
        raise Unavailable(text, reason=Reason.FILE_SYSTEM_ERROR) from None


def _config_of_log(disk: Disk, location: Location) -> Config | None:
    """What can be known of a qm.ini from the log: its geometry, and that all its files must fit."""
    try:
        _, state = control.read(disk, control_path(location.log_dir))
    except LogDamaged:
        return None
    if not state.epoch:
        return None  # never started: what a creation left behind
    default = LogConfig(path=location.log_dir)
    primary = min(max(default.primary_files, len(state.extents)), 511 - default.secondary_files)
    log = attrs.evolve(default, log_type=state.log_type, primary_files=primary, file_pages=state.extent_bytes // PAGE)
    return Config(log=log)


def _counters(disk: Disk, location: Location) -> dict[str, int]:
    """Numbers that nothing on the disk has."""
    numbers = itertools.chain.from_iterable(segments_below(disk, location.queues).values())
    return {"queue": 1, "segment": max(numbers, default=0) + 1}


def _away(disk: Disk, location: Location, config: Config, used: CheckpointFile, unlogged: bool) -> str:
    """Why a start refuses to load these queues, of which it finds no file; "" if it does not."""
    linear = config.log.log_type is LogType.LINEAR
    log_id = bytes.fromhex(used.found.log_id)
    like = Resource(disk, location.queues, log_id, lambda: None, (0, 0), imaged=linear)
    try:
        like.load(used.catalogue, unlogged=unlogged)
    except Unavailable as exc:
        return exc.sentence
    except NotRecoverable:  # a segment of an earlier format: the start says so
        pass
    return ""


def _images(
    disk: Disk, location: Location, config: Config, state: ControlState, end: int
) -> tuple[Callable[[], bytes], int] | None:
    """(what makes a checkpoint as of LSN `end` from the log's media images, the LSN from which a restart reads then).

    None where the log lacks images or definitions. Raises OSError where it is an extent that may have them which can't
    be read.
    """
    reader, start, seen = at_rest.read_history(disk, config.log, state)
    with contextlib.closing(reader):
        size = state.extent_bytes
        try:
            found, start, _ = past_damage(
                lambda start: survey(reader, start, end, first_lsn=size),
                start,
                reader,
                extent_bytes=size,
                head=state.head,
            )
        except LogDamaged:
            return None
    lacking = [place for _, place in found.queues.values() if place is None or place.media < start]
    if lacking or not found.complete:
        seen.refuse_unread(start // size - 1)
        return None
    head = min([found.until, *found.begun.values()])  # it may be before the head that the log has now
    return lambda: _checkpoint_of(disk, location, config, state, found), head


def _checkpoint_of(disk: Disk, location: Location, config: Config, state: ControlState, found: Survey) -> bytes:
    """Build the queues again, in segments with numbers of their own; the file of a checkpoint that refers to them."""
    counters = _counters(disk, location)
    found.counters["segment"] = max(found.counters["segment"], counters["segment"])
    buffers = config.tuning.default_q_buffer_size, config.tuning.default_pq_buffer_size
    like = Resource(disk, location.queues, state.log_id, lambda: None, buffers, imaged=True)
    reader, _, _ = at_rest.read_history(disk, config.log, state)
    with contextlib.closing(reader):
        rebuild = rebuilt(found, like, reader)
    try:
        lines = rebuild.write_out()
    except OSError:
        rebuild.give_up()
        raise
    units = {unit.number: unit.first_lsn for unit in rebuild.uows.logged()}
    made = Checkpoint(
        log_id=state.log_id.hex(),
        lsn=found.until,
        head=min([found.until, *units.values()]),
        durable=found.until,
        epoch=found.epoch,
        time=found.time,
        clean=False,
        counters={"queue": rebuild.next_queue, "segment": like.next_segment},
        units=units,
    )
    return encode_file(made, lines)
