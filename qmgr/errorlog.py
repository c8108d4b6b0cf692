"""The error log: AMQERR01.LOG, as text or JSON; when it is full it becomes 02, and 02 becomes 03.

structlog carries the events. Where the error log can't be written they are lost, and nothing else fails for it.
"""

import contextlib
import datetime
import json
import threading
from typing import Any

from logger.clock import Clock
from logger.disk import Disk, File
from qmgr.ini import ErrorLogConfig, ErrorLogFormat

FILES = 3

# number -> (severity, text); the severities are MQ's: I information, W warning, E error, S severe
MESSAGES = {
    "AMQ5026": ("I", "Listener {name!r} has started: {protocol} on {address}, port {port}."),
    "AMQ6118": ("S", "An internal error has occurred: {text}"),
    "AMQ6287": ("I", "qmgr, {process}."),
    "AMQ6708": ("E", "A disk has no room or can't be written: {text}"),
    "AMQ6709": ("E", "The queue manager has stopped: {text}"),
    "AMQ7017": ("E", "The log is not available: {text}"),
    "AMQ7075": ("W", "qm.ini: {text}"),
    "AMQ7042": ("E", "Object {name}, type qlocal, was not recreated: {text}"),
    "AMQ7229": ("I", "{count} log records accessed on queue manager {qmgr!r} during the log replay phase."),
    "AMQ7230": ("I", "Log replay for queue manager {qmgr!r} complete."),
    "AMQ7231": ("I", "{count} log records accessed on queue manager {qmgr!r} during the recovery phase."),
    "AMQ7232": ("I", "Transaction manager state recovered for queue manager {qmgr!r}."),
    "AMQ7233": ("I", "{resolved} out of {in_flight} in-flight transactions resolved for queue manager {qmgr!r}."),
    "AMQ7463": ("E", "The log for queue manager {qmgr!r} {text}."),
    "AMQ7464": ("I", "The log for queue manager {qmgr!r} is no longer full."),
    "AMQ7465": ("E", "The log for queue manager {qmgr!r} is full: a long-running transaction holds it."),
    "AMQ7466": ("W", "The log for queue manager {qmgr!r} is too small for the present rate of data."),
    "AMQ7467": ("I", "The oldest log file needed to start queue manager {qmgr!r} is {name}."),
    "AMQ7468": ("I", "The oldest log file needed for media recovery of queue manager {qmgr!r} is {name}."),
    "AMQ7469": ("W", "Transaction {number} was rolled back to release log space."),
    "AMQ7472": ("E", "Object {name}, type queue, is damaged: {text}"),
    "AMQ7485": ("W", "Transaction {number} was rolled forward to release log space."),
    "AMQ7486": ("I", "Transaction {number} was preventing log space from being released; it began to log at {since}."),
    "AMQ7487": ("I", "Application {owner} was preventing log space from being released, by transaction {number}."),
    "AMQ7490": ("I", "Log extents of queue manager {qmgr!r}: {created} created, {reused} reused, {deleted} deleted."),
    "AMQ8003": ("I", "Queue manager {qmgr!r} started."),
    "AMQ8004": ("I", "Queue manager {qmgr!r} ended."),
    "AMQ8077": ("W", "User {user!r} has no right {verb!r} on {name!r}{more}."),
    "AMQ9557": ("W", "A client at {address} could not show who it is, user {user!r}: {text}"),
    "AMQ9209": ("W", "The connection from {address} over {channel} was broken: {text}"),
    "AMQ9213": ("W", "A communications error occurred: {text}"),
    "AMQ9513": ("W", "Listener {name!r} refuses connections: there are {count}, the maximum, already."),
    "AMQ9003": ("I", "Media image for object {name}, type qlocal recorded."),
    "AMQ9004": ("I", "Object {name}, type qlocal recreated: {depth} messages."),
    "AMQ9005": ("W", "A damaged file was set aside as {path}."),
    "AMQ9006": ("W", "Media images that were due could not be recorded: {text}"),
    "AMQ9015": (
        "W",
        "{count} log extents, from {name} on, are kept for media recovery only: record media images (rcdmqimg), or "
        "have the queue manager do so (ALTER QMGR IMGSCHED(AUTO)).",
    ),
    "AMQ9007": ("W", "Log extents could not be archived, compressed or removed: {text}"),
    "AMQ9012": (
        "W",
        "{path} still has {count} extents of this log, and ArchivePath is {text} now: they are not read. Move them "
        "there, or to the active log directory, or change ArchivePath back.",
    ),
    "AMQ9018": (
        "W",
        "The archive {path} has {count} files that are not what the log has: it was put back from an older copy, and "
        "they are of a past that was undone, or somebody has copied them too early. Nobody reads them; move them away, "
        "or delete them.",
    ),
    "AMQ9017": ("W", "Puts are refused, so that checkpoints can be written: {text}"),
    "AMQ9016": ("E", "Clients that have to say who they are will be refused: {text}"),
    "AMQ9014": ("W", "The archive of the log of queue manager {qmgr!r} is away: {text}."),
    "AMQ9019": (
        "W",
        "Work at the archive {path} has waited for {count} seconds: as long as it does no extent is archived, "
        "compressed or removed, and an end or a start of the queue manager waits too. See whether its file system "
        "hangs.",
    ),
    "AMQ9013": (
        "W",
        "Log extent {path} was cut or is damaged, so nothing was done with it: what is needed of it can't be recovered "
        "or replayed. Restore it from a backup.",
    ),
    "AMQ9011": ("I", "{count} log extents were {done}, {size} bytes."),
    "AMQ9020": ("I", "The queue manager ends: {how}."),
    "AMQ9021": ("E", "The queue manager has not ended in order: {text}"),
    "AMQ9024": ("W", "mqs.ini does not list the queue manager, and could not be changed: {text}"),
    "AMQ9022": ("W", "Automatic configuration: {text}"),
    "AMQ9023": ("I", "Automatic configuration: the commands of {path} were run."),
    "AMQ9218": ("E", "Listener {name!r} can't use {address}, port {port}: {text}"),
    "AMQ9633": ("W", "Bad certificate: {text}"),
    "AMQ9207": ("E", "The data received from {peer} is not valid: {text}"),
    "AMQ9001": ("W", "LogSync is {sync}: after a crash of the machine the last moments of the log may be missing."),
    "AMQ9002": ("E", "A checkpoint could not be taken, the one before counts on: {text}"),
    "AMQ9035": ("W", "Few file descriptors are left for clients and for files, {count}: raise the limit (ulimit -n)."),
    "AMQ9034": ("W", "Queue manager {qmgr!r} had not ended in order: its log goes up to {text}."),
    "AMQ9033": ("W", "Connection {number}, of {owner}, was stopped by an operator."),
    "AMQ9032": ("W", "Listener {name!r} has {count} connections that have not said who they are: the oldest ones go."),
    "AMQ9030": ("W", "Queue {name}: a message that was backed out {count} times stays there: {text}"),
}


class ErrorLogFile:
    """Where structlog's events end: one line, or one JSON object, for each."""

    def __init__(self, disk: Disk, directory: str, config: ErrorLogConfig) -> None:
        self._disk = disk
        self._directory = directory
        self._config = config
        self._file: File | None = None
        self._length = 0
        self._closed = False
        self._lock = threading.Lock()

    def msg(self, line: str) -> None:
        """Write an event; structlog calls it so. Raises nothing for want of a disk."""
        data = line.encode("utf-8", "replace") + b"\n"
        with self._lock, contextlib.suppress(OSError):
            if self._file is not None and not self._file.still_open():
                self._close_file()
            if self._file is None or self._length + len(data) > self._config.size:
                self._open(len(data))
            elif not self._disk.exists(self._path(1)):
                self._reopen(len(data))
            assert self._file is not None
            try:
                self._file.write(self._length, data)
            except OSError:
                self._file.truncate(self._length)  # no half a line stands before what comes next
                raise
            self._length += len(data)
            if self._closed:  # nobody will close it
                self._close_file()

    def _open(self, size: int) -> None:
        self._close_file()
        self._disk.mkdir(self._directory)  # but none above it: that the data directory is gone must be noticed
        newest = self._path(1)
        if self._disk.exists(newest):
            with contextlib.suppress(PermissionError):  # one that may not be written is renamed as a full one is
                self._file = self._disk.open(newest)
                self._length = self._file.size()
                if self._length + size <= self._config.size:
                    return
            self._close_file()
            for number in range(FILES - 1, 0, -1):
                if self._disk.exists(self._path(number)):
                    self._disk.rename(self._path(number), self._path(number + 1))
        self._file = self._disk.open(newest, create=True)
        self._length = 0

    def _reopen(self, size: int) -> None:
        """The name is gone, or can't be looked up: open a new file; where that fails, go on in the one that is open."""
        taken, length = self._file, self._length
        self._file = None
        try:
            self._open(size)
        except OSError:
            self._file, self._length = taken, length
        else:
            assert taken is not None
            with contextlib.suppress(OSError):
                taken.close()

    def _path(self, number: int) -> str:
        return f"{self._directory}/AMQERR{number:02d}.LOG"

    def close(self) -> None:
        """Keep no file open; what is said later is written all the same."""
        self._closed = True
        self._close_file()

    def _close_file(self) -> None:
        file, self._file = self._file, None
        if file is not None:
            with contextlib.suppress(OSError):
                file.close()


def open_error_log(disk: Disk, clock: Clock, directory: str, config: ErrorLogConfig, qmgr: str) -> "ErrorLog":
    return ErrorLog(ErrorLogFile(disk, directory, config), clock, config.format, qmgr, disk.process())


class ErrorLog:
    """Says what happened: `say("AMQ7463")`, with the inserts of the message as keywords."""

    def __init__(self, sink: ErrorLogFile, clock: Clock, form: ErrorLogFormat, qmgr: str, process: str) -> None:
        self._sink = sink
        self._clock = clock
        import structlog  # not before there is something to say: most processes never do, and it takes long to load

        render = self._as_json if form is ErrorLogFormat.JSON else self._as_text
        lazy = structlog.wrap_logger(sink, processors=[self._stamp, render], wrapper_class=structlog.BoundLogger)
        self._log = lazy.bind(qmgr=qmgr, process=process)  # once, not for each message

    def say(self, amq: str, **inserts: Any) -> None:
        self._log.msg(amq, **inserts)

    def close(self) -> None:
        self._sink.close()

    def _stamp(self, _logger: Any, _method: str, event: Any) -> Any:
        at = datetime.datetime.fromtimestamp(self._clock.wall_us() / 1e6, datetime.UTC)
        event["datetime"] = at.isoformat(timespec="milliseconds").replace("+00:00", "Z")
        return event

    def _as_text(self, _logger: Any, _method: str, event: Any) -> str:
        severity, text = MESSAGES[event["event"]]
        head = f"{event['datetime']} - QMgr({event['qmgr']}) Process({event['process']})"
        return f"{head}\n{event['event']}{severity}: {text.format(**event)}\n" + "-" * 80

    def _as_json(self, _logger: Any, _method: str, event: Any) -> str:
        severity, text = MESSAGES[event["event"]]
        levels = {"I": "INFO", "W": "WARNING", "E": "ERROR", "S": "SEVERE"}
        known = {
            "ibm_messageId": event["event"] + severity,
            "ibm_datetime": event["datetime"],
            "ibm_serverName": event["qmgr"],
            "ibm_processId": event["process"].removeprefix("pid "),
            "loglevel": levels[severity],
            "message": f"{event['event']}{severity}: {text.format(**event)}",
        }
        inserts = {k: v for k, v in event.items() if k not in ("event", "datetime", "qmgr", "process")}
        return json.dumps(known | {"inserts": inserts}, default=str)
