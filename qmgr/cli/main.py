"""qm: one program with all the commands under it, `qm crtmqm QM1` being `crtmqm QM1`."""

import gc
import importlib
import sys
from collections.abc import Sequence

from qmgr.cli.command import BAD_ARGUMENTS, Command, Failure, printed
from qmgr.installed import is_compiled, version

NAMES = (  # in the order in which they are shown
    *("crtmqm", "strmqm", "endmqm", "dltmqm", "dspmq", "dspmqtrn", "rsvmqtrn", "runmqsc", "dmpmqcfg", "rcdmqimg"),
    *("rcrmqobj", "recover-to", "archive-log", "compress-log", "remove-log", "dmpmqlog", "checkini", "status"),
    *("logstat", "space", "setmqaut", "dspmqaut", "setuser", "migmqlog", "repair", "mqrc"),
    *("amqsput", "amqsget", "amqsgbr", "amqsbcg", "amqsblst"),
)
ELSEWHERE = {  # of IBM MQ: what to use
    "dspmqver": "qm --version",
    "runmqlsr": "a Listener stanza of qm.ini",
    "endmqlsr": "a Listener stanza of qm.ini",
    "dmpmqaut": "DISPLAY AUTHREC in runmqsc",
    **dict.fromkeys(("dspmqinf", "addmqinf", "rmvmqinf"), "mqs.ini, or --data-path"),
    "dspmqfls": "qm space",
    "dmpmqmsg": "amqsbcg or amqsgbr",
    "amqsevt": "amqsgbr, which shows events too",
    **dict.fromkeys(("amqldmpa", "amqsrua", "mqperfck"), "qm logstat, qm space or /metrics"),
    "runmqdlq": "an application with qmgr.deadletter.decode",
    "runmqtrm": "qm.consume, or gets that wait",
}
TOGETHER = {"compress-log": "archive_log", "remove-log": "archive_log"}  # modules that have more than the one they name


def module_of(name: str) -> str:
    return f"qmgr.cli.{TOGETHER.get(name, name.replace('-', '_'))}"


def command(name: str) -> Command:
    """The command of that name. It alone is loaded: to load all of them takes longer than most take to run."""
    module = importlib.import_module(module_of(name))
    found: dict[str, Command] = {each.name: each for each in getattr(module, "COMMANDS", None) or [module.COMMAND]}
    return found[name]


def commands() -> dict[str, Command]:
    return {name: command(name) for name in NAMES}


HELP = """\
usage: qm COMMAND ...

The commands of the queue manager, under the names that IBM MQ gives them, and some of our own.

{commands}

  qm COMMAND --help   options, example and exit codes of a command
  qm --version        the version

Example:
  qm crtmqm QM1

Exit codes:
  those of the command; 36 for a command that does not exist
"""


def help_text() -> str:
    return HELP.format(commands="\n".join(f"  {each.name:<12} {each.purpose}" for each in commands().values()))


def qm(argv: Sequence[str] | None = None) -> int:
    """Do what the words in `argv` (else those of the command line) say; return the exit code."""
    words = sys.argv[1:] if argv is None else list(argv)
    if words and words[0] in NAMES:
        return command(words[0]).main(words[1:])
    return printed(lambda: _say(words))


def program(argv: Sequence[str] | None = None) -> int:
    """As `qm`, for a process that does nothing else, such as that of a command or the daemon that `strmqm` forks."""
    sys.modules.setdefault("rich", None)  # type: ignore[arg-type]  # structlog would load it, for a terminal, in 40 ms
    words = sys.argv[1:] if argv is None else list(argv)
    if words and words[0] in NAMES:
        command(words[0])
    gc.freeze()  # modules stay: to look for cycles in them, at the end too, takes a fifth of what most commands take
    gc.enable()
    return qm(words)


def _say(words: Sequence[str]) -> int:
    if words in (["--version"], ["-V"]):
        print(f"qmgr {version()}{', compiled' if is_compiled() else ''}")
    elif not words or words[0] in ("--help", "-h", "-?", "help"):
        print(help_text(), end="")
    elif other := ELSEWHERE.get(words[0]):
        raise Failure(BAD_ARGUMENTS, "AMQ7075E", f"IBM MQ's {words[0]} is not provided here; use {other}.")
    else:
        known = ", ".join(NAMES)
        raise Failure(BAD_ARGUMENTS, "AMQ7075E", f"there is no command {words[0]!r}; there are {known}. See qm --help.")
    return 0 if words else BAD_ARGUMENTS


if __name__ == "__main__":
    sys.exit(program())
