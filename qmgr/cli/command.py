"""What every command shares: its help, its options, its exit code, and one line on stderr for whatever goes wrong.

A command describes itself as a `Command` and raises `Failure`; it meets `argparse` and `sys.exit` only through here.
Options are IBM MQ's single-dash words. It opens no file and starts no queue manager.
"""

import argparse
import contextlib
import errno
import os
import re
import sys
import traceback
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NoReturn

import attrs

from logger import lsn
from logger.disk_errors import NO_SPACE, advice
from logger.errors import LogError, NotInLog
from qmgr.errors import (
    OWNER_ADVICE,
    IniError,
    InUse,
    Mistake,
    MQError,
    NameError_,
    NotAuthorized,
    ObjectInUse,
    Reason,
    Unavailable,
    quoted,
)
from qmgr.locations import can_be
from recovery.errors import RecoveryError

BAD_ARGUMENTS = 36
NOT_AVAILABLE = 40
ENDING = 49
NO_ROOM = 70
UNEXPECTED = 71
NAME_ERROR = 72
NOT_AUTHORISED = 119
INTERRUPTED = 130
BROKEN_PIPE = 141  # as a shell reports a program that SIGPIPE ended

GONE = {Reason.Q_MGR_NOT_AVAILABLE: "AMQ8146E", Reason.CONNECTION_BROKEN: "AMQ8145E"}
ENDINGS = {Reason.Q_MGR_QUIESCING: "AMQ8156E", Reason.Q_MGR_STOPPING: "AMQ8146E"}
NO_STORAGE = (Reason.RESOURCE_PROBLEM, Reason.STORAGE_MEDIUM_FULL)
WHERE_FULL = {NO_ROOM: "no room on the disk, or in the log"}
COMMON_CODES = {
    0: "done",
    UNEXPECTED: "another error, which the message names",
    NAME_ERROR: "queue manager name not valid or not known",
    NOT_AUTHORISED: "not authorised: the files belong to somebody else",
}


_untold: list[OSError] = []  # why `tell` could not print, in the command that runs


class Failure(Exception):
    """The command ends with `code`; its reason is a line `AMQnnnnE: sentence`."""

    def __init__(self, code: int, amq: str, text: str) -> None:
        super().__init__(f"{amq}: {text}")
        self.code = code


class Once(argparse.Action):
    """Keep the one value of an option, and refuse a second one: argparse would drop the first without a word."""

    said = False

    def __call__(
        self, parser: argparse.ArgumentParser, namespace: argparse.Namespace, values: Any, option: str | None = None
    ) -> None:
        if self.said and option:
            parser.error(f"{option} takes one value, and is given more than once")
        self.said = True
        setattr(namespace, self.dest, values)


class SaysItsHelp(argparse.ArgumentParser):
    """An ArgumentParser that fails where its help can't be written; Python's own passes that over."""

    def _print_message(self, message: str, file: Any = None) -> None:
        stream = file or sys.stderr
        if message and stream is not None:
            stream.write(message)


class Parser(SaysItsHelp):
    """An ArgumentParser that knows no abbreviations and leaves exit codes and message ids to its command."""

    bad_arguments = BAD_ARGUMENTS
    words: Sequence[str] = ()  # what is parsed
    elsewhere: Collection[str] = ()  # options that IBM MQ has and we have not

    def __init__(self, **other: Any) -> None:
        super().__init__(**other)
        self.register("action", None, Once)  # of each argument that takes a value and names no action

    def error(self, message: str) -> NoReturn:
        amq = "AMQ7076E"
        unknown = self._unknown()
        if unknown and ("required" in message or message.startswith("unrecognized")):  # which may be what was meant
            message = f"unrecognized arguments: {' '.join(unknown)}"
        if theirs := [word for word in unknown if word in self.elsewhere]:
            message = f"unrecognized arguments: {' '.join(theirs)} (IBM MQ's, and not provided here)"
        if message.startswith("unrecognized"):
            message += "''" if message.endswith(" ") else ""  # an empty word can't be seen
            amq = "AMQ7075E"
        elif "required" in message or "expected" in message:
            amq = "AMQ7006E"
        raise Failure(self.bad_arguments, amq, f"{message}; see {self.prog} --help.")

    def _unknown(self) -> list[str]:
        """The words that can only be options, and are none; a value may follow an option without a blank."""
        known = tuple(self._option_string_actions)
        return [word for word in self.words if re.match("--?[A-Za-z]", word) and not word.startswith(known)]


@attrs.frozen(kw_only=True)
class Command:
    """One command: what `--help` says of it, its options, and the function that does it and returns its exit code."""

    name: str
    purpose: str
    usage: str
    example: str
    codes: Mapping[int, str]
    options: Callable[[Parser], None]
    run: Callable[[argparse.Namespace], int]
    notes: str = ""
    elsewhere: str = ""  # options that IBM MQ has and we have not
    bad_arguments: int = BAD_ARGUMENTS
    common_codes: Mapping[int, str] = attrs.field(factory=COMMON_CODES.copy)
    quiet: bool = False  # has -z
    mixed: bool = False  # its words may stand between its options
    own_name: bool = True  # installed under its name too; else under `qm` only

    @property
    def program(self) -> str:
        """What people type."""
        return self.name if self.own_name else f"qm {self.name}"

    def parser(self) -> Parser:
        parser = Parser(
            prog=self.program,
            usage=f"{self.program} {self.usage}",
            description="\n\n".join(filter(None, [self.purpose, self.notes])),
            epilog=f"Example:\n  {self.example}\n\nExit codes:\n{self._code_lines()}",
            formatter_class=_Format,
            add_help=False,
            allow_abbrev=False,
        )
        parser.bad_arguments = self.bad_arguments
        parser.elsewhere = self.elsewhere.split()
        self.options(parser)
        if self.quiet:
            parser.add_argument("-z", action="store_true", help="no error messages")
        parser.add_argument(
            "--data-path", metavar="DIR", type=absolute, help="where the queue managers are; else QMGR_DATA_PATH"
        )
        parser.add_argument("--help", action="help", help="show this help and exit")
        for word in ("-?", "-h"):  # IBM MQ's commands answer it with their usage
            if word not in parser._option_string_actions:
                parser.add_argument(word, action="help", help=argparse.SUPPRESS)
        return parser

    def main(self, argv: Sequence[str] | None = None) -> int:
        """Do what the words in `argv` (else those of the command line) say; return the exit code."""
        words = sys.argv[1:] if argv is None else list(argv)
        return printed(lambda: self._run(words), quiet=self.quiet and "-z" in words)

    def _run(self, words: Sequence[str]) -> int:
        parser = self.parser()
        parser.words = words
        args = parser.parse_intermixed_args(words) if self.mixed else parser.parse_args(words)
        args.words = words
        try:
            return self.run(args)
        except (IniError, NameError_, NotAuthorized, ObjectInUse):
            raise
        except Mistake as exc:  # what was asked for can't be
            raise Failure(self.bad_arguments, "AMQ7076E", str(exc)) from exc

    def _code_lines(self) -> str:
        codes = {**self.common_codes, self.bad_arguments: "arguments not valid", **self.codes}
        return "\n".join(f"  {code:>3}  {meaning}" for code, meaning in sorted(codes.items()))


class _Format(argparse.RawDescriptionHelpFormatter):
    """Help of one width, so that docs/commands.md does not depend on the terminal that made it."""

    def __init__(self, prog: str, **other: Any) -> None:
        super().__init__(prog, **{**other, "width": 110, "max_help_position": 26})


def printed(run: Callable[[], int], *, quiet: bool = False) -> int:
    """Do `run`, which prints; return its exit code, or that of what went wrong, having said so on stderr."""
    _make_printable()
    _untold.clear()
    code, text = _attempt(run)
    if (lost := _flushed(done=code == 0)) and not text:  # what went wrong before is the better answer
        code, text = lost
    if text and not quiet:
        complain(text)
    return code


def _attempt(run: Callable[[], int]) -> tuple[int, str]:
    try:
        return run(), ""
    except SystemExit as exc:  # argparse, after --help
        return (exc.code if isinstance(exc.code, int) else 0), ""
    except KeyboardInterrupt:
        return INTERRUPTED, ""
    except Exception as exc:
        return explain(exc)


WAYS_OUT = {  # what to do about an error of the system's
    errno.ENOTDIR: "a file lies where a directory is wanted: name another directory, or move the file away",
    errno.EISDIR: "a directory lies where a file is wanted: move it away, and put the file there",
    errno.EROFS: "mount the file system for writing, or name another directory",
    errno.ENAMETOOLONG: "choose a shorter path",
    errno.ELOOP: "a symbolic link leads to itself: correct it",
    errno.EMFILE: "file descriptors have run out: raise the limit (ulimit -n)",
    errno.ENFILE: "the system's file descriptors have run out: close files, or raise its limit (fs.file-max)",
    errno.EIO: "mend the disk",
}
ANOTHER_PATH = "name another directory"  # where what was named on the command line can't be made


def explain(exc: Exception) -> tuple[int, str]:
    """The exit code and the one line that an error becomes."""
    if isinstance(exc, Failure):
        return exc.code, str(exc)
    if isinstance(exc, BrokenPipeError):
        return BROKEN_PIPE, ""
    if isinstance(exc, NameError_):
        return NAME_ERROR, f"AMQ7048E: {exc}"
    if isinstance(exc, NotAuthorized):
        return NOT_AUTHORISED, f"AMQ7077E: {exc}"
    if isinstance(exc, InUse):
        return NOT_AVAILABLE, f"AMQ8146E: {exc}"
    if isinstance(exc, MQError | LogError) and (denied := denial(exc)) is not None:
        return NOT_AUTHORISED, _not_authorised(denied)
    if (full := _full_disk(exc)) is not None:
        return NO_ROOM, f"AMQ7002S: no room, {advice(full).removesuffix(',')}: {because(full)}"
    if isinstance(exc, MQError) and exc.reason in NO_STORAGE:
        return NO_ROOM, f"AMQ8139E: {exc}"
    if isinstance(exc, MQError) and exc.reason in ENDINGS:
        return ENDING, f"{ENDINGS[exc.reason]}: {exc}"
    if isinstance(exc, Unavailable) and exc.reason in GONE and not _is_of_this_process(exc):
        return NOT_AVAILABLE, f"{GONE[exc.reason]}: {exc}"
    if isinstance(exc, NotInLog):
        return BAD_ARGUMENTS, f"AMQ7076E: {exc}"
    if isinstance(exc, MQError):
        cause = getattr(exc.__cause__, "amq", "AMQ8101")  # the log's and recovery's errors have a number of their own
        return UNEXPECTED, numbered(str(exc), f"{cause}S")
    if isinstance(exc, LogError | RecoveryError):
        return UNEXPECTED, f"{exc.amq}S: {exc}"
    if isinstance(exc, PermissionError):
        return NOT_AUTHORISED, _not_authorised(exc)
    if isinstance(exc, OSError):
        what = "a file" if exc.filename else "a file, or standard output,"
        return UNEXPECTED, f"AMQ7002S: {what} can't be used: {with_way_out(exc)}"
    if os.environ.get("QMGR_TRACEBACK"):
        traceback.print_exc()
    return (
        UNEXPECTED,
        f"AMQ6118S: internal error {exc!r}; run the command with QMGR_TRACEBACK=1 and report what it says.",
    )


def numbered(text: str, number: str) -> str:
    """The text with the number of its message, unless it has one already, as those about ini files have."""
    return text if re.match(r"AMQ\d{4}[IWEST]: ", text) else f"{number}: {text}"


def _is_of_this_process(exc: Unavailable) -> bool:
    """Has the queue manager failed in this process? Else another process has it and does not answer."""
    cause = exc.__cause__
    return isinstance(cause, (LogError, RecoveryError, OSError)) and not isinstance(
        cause, (BlockingIOError, ConnectionError)
    )


def _not_authorised(exc: PermissionError) -> str:
    way = f"; {OWNER_ADVICE}." if exc.errno == errno.EACCES else "."
    return f"AMQ7077E: you are not authorised: {because(exc).removesuffix('.')}{way}"


def denial(exc: BaseException) -> PermissionError | None:
    """What the system would not let this user do, if an error came of that."""
    return next((each for each in _causes(exc) if isinstance(each, PermissionError)), None)


def _full_disk(exc: BaseException) -> OSError | None:
    """What the system had no room for, if an error came of that."""
    found = (each for each in _causes(exc) if isinstance(each, OSError) and each.errno in NO_SPACE)
    return next((each for each in found if each.filename), None)  # else it is what the command prints


def _causes(exc: BaseException) -> Iterator[BaseException]:
    cause: BaseException | None = exc
    while cause is not None:
        yield cause
        cause = cause.__cause__


def because(exc: OSError) -> str:
    """What the system says of a file, as a sentence."""
    text = exc.strerror or errno.errorcode.get(exc.errno or 0, "unknown error")
    return f"{text}: {exc.filename}." if exc.filename else f"{text}."


def with_way_out(exc: OSError, otherwise: str = "") -> str:
    """The same, and what to do; `otherwise` where that is not known of the error alone."""
    way = WAYS_OUT.get(exc.errno or 0, otherwise)
    return f"{because(exc).removesuffix('.')}; {way}." if way else because(exc)


def complain(text: str) -> None:
    """Write a line to stderr, if there is one."""
    if sys.stderr is not None:
        with contextlib.suppress(OSError):
            print(typed(" ".join(text.split("\n"))), file=sys.stderr, flush=True)


def tell(text: str) -> None:
    """Print a line at once, in the midst of work that goes on: what is wrong with stdout is said at the end of it."""
    try:
        print(text, flush=True)
    except OSError as exc:
        _untold.append(exc)


def typed(text: str) -> str:
    """The text with bytes that are no UTF-8, as a name may have that somebody has typed, shown as bytes: \\xff."""
    return re.sub(r"\\udc([89a-f][0-9a-f])", r"\\x\1", text.encode("utf-8", "backslashreplace").decode())


def _make_printable() -> None:
    """Names and paths may hold what the terminal can't show: show it escaped, fail at nothing."""
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="backslashreplace")


def _flushed(*, done: bool) -> tuple[int, str] | None:
    """Write out what was printed; the exit code and line of an error if it can't be."""
    if sys.stdout is None:
        return None
    try:
        sys.stdout.flush()
        if _untold:
            raise _untold[0]
        return None
    except OSError as exc:
        with contextlib.suppress(OSError):
            sys.stdout.close()  # else the interpreter tries once more, and complains
        if isinstance(exc, BrokenPipeError):
            return explain(exc)
        but = "the command did its work, but " if done else ""
        return UNEXPECTED, f"AMQ7002S: {but}standard output can't be written: {because(exc)}"


class Bar:
    """How far long work has come, on a terminal."""

    def __init__(self) -> None:
        self._shown = -1
        self._there = sys.stderr is not None and sys.stderr.isatty()

    def __call__(self, done: int, total: int) -> None:
        percent = 100 * done // total if total else 100
        if self._there and percent != self._shown:
            self._shown = percent
            print(f"\r[{'#' * (percent * 40 // 100):<40}] {percent:3} %", end="", file=sys.stderr, flush=True)

    def end(self) -> None:
        if self._shown >= 0:
            print("\r" + " " * 50 + "\r", end="", file=sys.stderr, flush=True)


# Types of options


def absolute(text: str) -> str:
    """The absolute path of a directory, a relative one being seen from where the user is."""
    if not can_be(text):
        raise argparse.ArgumentTypeError(f"a directory can't be {quoted(text)}")
    return str(Path(text).absolute())


def position(text: str) -> int:
    """An LSN from its text form; ends the command for any other text."""
    try:
        return lsn.parse(text)
    except ValueError as exc:
        raise Failure(BAD_ARGUMENTS, "AMQ7076E", f"{exc}.") from None


def whole(option: str, low: int, high: int, code: int = BAD_ARGUMENTS) -> Callable[[str], int]:
    """A whole number from `low` to `high`; the command ends with `code` for any other."""

    def read(text: str) -> int:
        if text.isascii() and text.isdigit() and len(text) < 20 and low <= int(text) <= high:
            return int(text)
        raise Failure(code, "AMQ7076E", f"{option} was given {text!r}; allowed: a whole number from {low} to {high}.")

    return read
