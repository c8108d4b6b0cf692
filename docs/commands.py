"""Write docs/commands.md: what each command's --help says. Run it after changing a command; a test compares."""

from pathlib import Path

from qmgr.cli.command import Command
from qmgr.cli.main import commands, help_text

INTRODUCTION = """\
# Commands

Each command is installed under its own name and as a subcommand of `qm`: `crtmqm QM1` is `qm crtmqm QM1`. Those that
IBM MQ does not have are subcommands only: `qm status`, `qm logstat`, `qm space`. Options are those of IBM MQ. Output
goes to stdout; errors go to stderr, one line each, as `AMQnnnnE: sentence`. Besides the exit codes below, 130 says that
the command was interrupted and 141 that nobody reads its output any more. `-?` is `--help`, and so is `-h` where that
is no option of the command. `python -m docs.commands` makes this page from `--help`.
"""


def plain_help(command: Command) -> str:
    """What --help says, also where it would be in colours: on a terminal, with Python 3.14 and newer."""
    parser = command.parser()
    parser.color = False
    return parser.format_help()


def text() -> str:
    """The page."""
    parts = [INTRODUCTION, f"## qm\n\n```\n{help_text()}```\n"]
    parts += [f"## {name}\n\n```\n{plain_help(each)}```\n" for name, each in commands().items()]
    return "\n".join(parts)


if __name__ == "__main__":
    (Path(__file__).parent / "commands.md").write_text(text(), encoding="utf-8")
