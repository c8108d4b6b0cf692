"""qm: one program with all the commands under it, `qm crtmqm QM1` being `crtmqm QM1`."""

import sys
from collections.abc import Sequence

from qmgr.cli import (
    amqsbcg,
    amqsblst,
    amqsgbr,
    amqsget,
    amqsput,
    archive_log,
    checkini,
    crtmqm,
    dltmqm,
    dmpmqlog,
    dspmq,
    dspmqaut,
    dspmqtrn,
    endmqm,
    logstat,
    migmqlog,
    rcdmqimg,
    rcrmqobj,
    recover_to,
    repair,
    rsvmqtrn,
    runmqsc,
    setmqaut,
    setuser,
    space,
    status,
    strmqm,
)
from qmgr.cli.command import Failure, printed
from qmgr.compiled import is_compiled

COMMANDS = {
    each.name: each
    for each in (
        crtmqm.COMMAND,
        strmqm.COMMAND,
        endmqm.COMMAND,
        dltmqm.COMMAND,
        dspmq.COMMAND,
        dspmqtrn.COMMAND,
        rsvmqtrn.COMMAND,
        runmqsc.COMMAND,
        rcdmqimg.COMMAND,
        rcrmqobj.COMMAND,
        recover_to.COMMAND,
        *archive_log.COMMANDS,
        dmpmqlog.COMMAND,
        checkini.COMMAND,
        status.COMMAND,
        logstat.COMMAND,
        space.COMMAND,
        setmqaut.COMMAND,
        dspmqaut.COMMAND,
        setuser.COMMAND,
        migmqlog.COMMAND,
        repair.COMMAND,
        amqsput.COMMAND,
        amqsget.COMMAND,
        amqsgbr.COMMAND,
        amqsbcg.COMMAND,
        amqsblst.COMMAND,
    )
}

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
    return HELP.format(commands="\n".join(f"  {each.name:<12} {each.purpose}" for each in COMMANDS.values()))


def qm(argv: Sequence[str] | None = None) -> int:
    """Do what the words in `argv` (else those of the command line) say; return the exit code."""
    words = sys.argv[1:] if argv is None else list(argv)
    if words and words[0] in COMMANDS:
        return COMMANDS[words[0]].main(words[1:])
    return printed(lambda: _say(words))


def version() -> str:
    from importlib import metadata  # takes as long as a tenth of all else

    try:
        return metadata.version("qmgr")
    except metadata.PackageNotFoundError:
        return "of a source tree"


def _say(words: Sequence[str]) -> int:
    if words in (["--version"], ["-V"]):
        print(f"qmgr {version()}{', compiled' if is_compiled() else ''}")
    elif not words or words[0] in ("--help", "-h", "help"):
        print(help_text(), end="")
    else:
        known = ", ".join(COMMANDS)
        raise Failure(36, "AMQ7075E", f"there is no command {words[0]!r}; there are {known}. See qm --help.")
    return 0 if words else 36


if __name__ == "__main__":
    sys.exit(qm())
