"""Starting a daemon, in this process or in one of its own behind the command's back; and what a failure means.

In the background: a child process in a session of its own, which keeps no descriptor of ours but a pipe. On it the
child tells how the start goes, one JSON object a line. The command waits for the one with the exit code, or for the
end of the pipe.
"""

import contextlib
import errno
import json
import os
import resource
import signal
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any, NoReturn

from logger.disk_errors import NO_SPACE, retry_advice
from logger.errors import LogError
from logger.posix_lock import process_numbers
from qmgr import locations
from qmgr.daemon.listeners import MAKERS
from qmgr.daemon.process import Daemon, StartReporter
from qmgr.daemon.service import Service
from qmgr.errors import OWNER_ADVICE, IniError, InUse, MQError, NameError_, Reason, command_in
from qmgr.threads import NO_THREAD
from qmgr.translated import MORE_THREADS
from recovery.errors import RecoveryError

DONE, RUNNING, UNKNOWN, LOG_NOT_AVAILABLE, STILL_USED, STOPPING = 0, 5, 16, 23, 24, 49
BAD_INI, NO_STORAGE, UNEXPECTED, NAME_ERROR, BAD_LOG_PATH, NOT_AUTHORISED = 39, 69, 71, 72, 100, 119

ACTIVE = "active"  # where the extents of a log are
STDIO = (0, 1, 2)
OPEN_MAX = 10240  # descriptors
INIT = 1  # in a container, where it gets the children of others that have ended: nobody else takes leave of them


# What a failure means


def explain(exc: BaseException) -> tuple[int, str]:
    """The exit code and the sentence for the error with which a start, or a daemon, has failed."""
    cause = exc.__cause__ if isinstance(exc, MQError) and exc.__cause__ is not None else exc
    text = _because(exc) if isinstance(exc, OSError) else str(exc)
    if isinstance(exc, IniError):
        return BAD_INI, text if text.startswith("AMQ") else f"AMQ7076E: {text}"
    if isinstance(exc, NameError_):
        return NAME_ERROR, f"AMQ7048E: {text}"
    if isinstance(exc, InUse):
        runs = not (command_in(exc.holder) or text.startswith("the log in"))
        return (RUNNING, f"AMQ7005E: {text}") if runs else (STILL_USED, f"AMQ8146E: {text}")
    if text.startswith("AMQ9218E"):
        return (NOT_AUTHORISED if isinstance(cause, PermissionError) else UNEXPECTED), text
    if isinstance(cause, LogError | RecoveryError):
        return LOG_NOT_AVAILABLE, f"AMQ7017E: {text}"
    if isinstance(cause, PermissionError):
        way = f"; {OWNER_ADVICE}" if cause.errno == errno.EACCES else ""  # else it says what to do
        return NOT_AUTHORISED, f"AMQ7077E: you are not authorised to start the queue manager: {_because(cause)}{way}"
    if isinstance(cause, RuntimeError) and NO_THREAD in str(cause):
        text = f"the system has no thread for it ({cause}); {MORE_THREADS} and try again"
        return NO_STORAGE, f"AMQ6708E: there is no room to start the queue manager: {text}"
    if isinstance(cause, MemoryError) or (isinstance(cause, OSError) and cause.errno in (*NO_SPACE, errno.ENOMEM)):
        return NO_STORAGE, f"AMQ6708E: there is no room to start the queue manager: {text or 'no memory'}"
    if isinstance(cause, FileNotFoundError) and f"/{ACTIVE}/" in str(cause.filename):
        return LOG_NOT_AVAILABLE, f"AMQ7017E: {text}"
    if isinstance(cause, OSError) and str(cause.filename).endswith("/qm.ini") and not retry_advice(cause):
        way = "; move it away, and have the file made anew (qm repair)" if isinstance(cause, IsADirectoryError) else ""
        return BAD_INI, f"AMQ7076E: qm.ini can't be read: {_because(cause)}{way}"
    if isinstance(exc, MQError):
        return _by_reason(exc, text)
    if isinstance(cause, OSError):
        return UNEXPECTED, f"AMQ7002S: {text}{retry_advice(cause)}"
    return UNEXPECTED, f"AMQ6118S: internal error {exc!r}."


def _because(exc: OSError) -> str:
    """What the system says, without its number."""
    return f"{exc.strerror}: {exc.filename}" if exc.strerror and exc.filename else exc.strerror or str(exc)


def _by_reason(exc: MQError, text: str) -> tuple[int, str]:
    if exc.reason is Reason.Q_MGR_NAME_ERROR:
        return UNKNOWN, f"AMQ8118E: {text}"
    if "LogPath" in text:
        return BAD_LOG_PATH, f"AMQ7064E: {text}"
    return UNEXPECTED, f"AMQ8101S: {text}"


# In this process


class Printer:
    """A StartReporter for a terminal: where nothing can be printed, a queue manager starts and ends all the same."""

    def line(self, text: str) -> None:
        try:
            print(text, flush=True)
        except OSError:  # a full disk, or a pipe that nobody reads: what is left goes nowhere, at the end too
            nowhere = os.open(os.devnull, os.O_WRONLY)
            os.dup2(nowhere, sys.stdout.fileno())
            os.close(nowhere)

    def ready(self) -> None:
        """Nobody waits."""


def _raise_limit() -> None:
    """As many descriptors as this process may have: clients take some each, and log and checkpoints need theirs."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == hard:
        return
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    except (OSError, ValueError):  # macOS says that there is no limit, and takes no more than this
        if 0 <= soft < OPEN_MAX:
            with contextlib.suppress(OSError, ValueError):
                resource.setrlimit(resource.RLIMIT_NOFILE, (OPEN_MAX, hard))


def foreground(name: str, data_path: str | None) -> tuple[int, str]:
    """Run it in this process until it has ended; the exit code, and the sentence if it is another than 0."""
    _fill_stdio()
    if os.getpid() == INIT:
        signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    return _serve(name, data_path, Printer(), background=False)


def _fill_stdio() -> None:
    """A closed stdin, stdout or stderr would be the next file that is opened: of the log, perhaps."""
    for fd in STDIO:
        try:
            os.fstat(fd)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # takes the lowest that is free, which is this one


def _serve(name: str, data_path: str | None, reporter: StartReporter, *, background: bool) -> tuple[int, str]:
    """Run the daemon in this process until it has ended; exit code and sentence."""
    try:
        _raise_limit()
        service = Service(
            name,
            process=os.getpid(),
            host=os.uname().nodename,
            numbers=process_numbers(),
            makers=MAKERS,
            data_path=data_path,
        )
    except MQError as exc:
        return explain(exc)

    def uncaught(args: threading.ExceptHookArgs) -> None:
        """A thread has ended with an error that nobody has caught."""
        with contextlib.suppress(AttributeError):  # there is no error log yet
            service.say("AMQ6118", text=f"{args.exc_value!r} in {args.thread.name if args.thread else 'a thread'}")

    threading.excepthook = uncaught
    try:
        error = Daemon(service, reporter, background=background).run()
    except (RuntimeError, MemoryError) as exc:  # a RuntimeError: the system has no more threads
        error = exc
    return (DONE, "") if error is None else explain(error)


# In a process of its own


class PipeReporter:
    """Tells whoever holds the other end of the pipe; if that is gone, nobody."""

    def __init__(self, fd: int) -> None:
        self._fd = fd

    def line(self, text: str) -> None:
        self._send(line=text)

    def ready(self) -> None:
        self._send(code=DONE, text="")
        self.close()

    def failed(self, code: int, text: str) -> None:
        self._send(code=code, text=text)

    def close(self) -> None:
        fd, self._fd = self._fd, -1
        if fd >= 0:
            os.close(fd)

    def _send(self, **fields: Any) -> None:
        if self._fd >= 0:
            with contextlib.suppress(OSError):
                os.write(self._fd, json.dumps(fields).encode() + b"\n")


def background(name: str, data_path: str | None, line: Callable[[str], None]) -> tuple[int, str]:
    """Start it in a process of its own and return when it is ready or has failed: exit code and sentence.

    `line` hears what it tells. This process must have no other thread.
    """
    data_path = locations.data_root(data_path)  # as seen from here: the daemon goes elsewhere
    read, write = os.pipe()
    try:
        child = os.fork()
    except OSError as exc:
        os.close(read)
        os.close(write)
        text = f"the system has no process for it ({exc.strerror}); {MORE_THREADS} and try again"
        return NO_STORAGE, f"AMQ6708E: there is no room to start the queue manager: {text}"
    if child == 0:
        _run_child(name, data_path, write)
    os.close(write)
    with os.fdopen(read, encoding="utf-8") as told:
        for text in told:
            said = json.loads(text)
            if "line" in said:
                line(said["line"])
            else:
                return said["code"], said["text"]
    _, status = os.waitpid(child, 0)
    how = f"was ended by signal {os.WTERMSIG(status)}" if os.WIFSIGNALED(status) else "ended"
    return UNEXPECTED, f"AMQ5008S: the process of queue manager {name!r} {how} while it started."


def _run_child(name: str, data_path: str, write: int) -> NoReturn:
    code = UNEXPECTED
    while write in STDIO:  # which were closed
        write = os.dup(write)
    reporter = PipeReporter(write)
    try:
        _detach(write)
        code, text = _serve(name, data_path, reporter, background=True)
        reporter.failed(code, text)
    except BaseException as exc:
        reporter.failed(*explain(exc))
    finally:
        os._exit(code)  # and not by sys.exit: the parent's exit handlers and buffers are not for us


def _close_all_but(write: int) -> None:
    """Close all descriptors but those of stdin, stdout and stderr, and this one."""
    try:
        found = [int(each.name) for each in Path("/dev/fd").iterdir()]
    except OSError:  # neither /proc nor another file system tells which there are
        os.closerange(len(STDIO), write)
        os.closerange(write + 1, os.sysconf("SC_OPEN_MAX"))
        return
    for fd in found:
        if fd not in (*STDIO, write):
            with contextlib.suppress(OSError):
                os.close(fd)


def _detach(write: int) -> None:
    """Keep nothing of the parent's but the pipe. Raises OSError, where a chroot has no /dev/null, say."""
    os.setsid()
    signal.pthread_sigmask(signal.SIG_SETMASK, [])
    null = os.open(os.devnull, os.O_RDWR)
    for fd in STDIO:
        os.dup2(null, fd)
    _close_all_but(write)
    os.chdir("/")
    os.umask(0o077)
