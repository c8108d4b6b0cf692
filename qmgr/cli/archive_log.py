"""archive-log, compress-log, remove-log: what becomes of the log extents that no restart needs."""

import argparse
from collections.abc import Callable

from logger.archive import Outcome
from logger.archive_plan import DONE, Action, age_text, parse_age
from qmgr.cli import access
from qmgr.cli.command import BAD_ARGUMENTS, NOT_AVAILABLE, WHERE_FULL, Bar, Command, Failure, Parser, complain
from qmgr.errorlog import MESSAGES
from qmgr.errors import MediaNotSupported

NOT_SUPPORTED = 68
OLDER = "only extents last written at least so long ago, such as 36h"


def options(parser: Parser, *, age_required: bool = False) -> None:
    parser.add_argument("-m", metavar="QMgrName", help="the queue manager; else the default one")
    parser.add_argument("--dry-run", action="store_true", help="say what would be done, and do nothing")
    parser.add_argument("--older-than", metavar="AGE", type=age, default=0, required=age_required, help=OLDER)


def options_of_removal(parser: Parser) -> None:
    """As `options`, with --older-than required: an option forgotten must not delete all that can be deleted."""
    options(parser, age_required=True)


def age(text: str) -> int:
    try:
        return parse_age(text)
    except ValueError as exc:
        raise Failure(BAD_ARGUMENTS, "AMQ7076E", f"--older-than: {exc}.") from None


def doing(action: Action) -> Callable[[argparse.Namespace], int]:
    def run(args: argparse.Namespace) -> int:
        name = access.named(args.m, args.data_path)
        with access.started(name, args.data_path) as manager:
            bar = Bar()
            do: Callable[..., Outcome] = getattr(manager, f"{action.value}_log")
            try:
                outcome = do(older_than=args.older_than, dry_run=args.dry_run, progress=bar)
            except MediaNotSupported as exc:
                raise Failure(NOT_SUPPORTED, "AMQ7044E", str(exc)) from exc
            finally:
                bar.end()
            # said before the end of a queue manager run here: should that fail, this is done even so
            for step in outcome.done:
                print(("would " if args.dry_run else "") + step.text())
            size = sum(step.size for step in outcome.done)
            count = len(outcome.done)
            print(f"{count} log extent{'s' if count != 1 else ''}, {size} bytes.")
        for path in outcome.damaged:
            complain("AMQ9013W: " + MESSAGES["AMQ9013"][1].format(path=path))
        if outcome.held is not None:
            complain(f"AMQ9008I: {outcome.held.text()}.")
        elif not outcome.done:
            complain(f"AMQ9008I: {nothing(action, args.older_than)}.")
        return 0

    return run


def nothing(action: Action, older_than: int) -> str:
    """Why nothing was done where no extent in particular is the reason."""
    young = f", was last written less than {age_text(older_than)} ago" if older_than else ""
    done = "" if action is Action.REMOVE else f", or is {DONE[action]} already"
    return f"there is nothing to {action.value}: each extent is needed for a restart{young}{done}"


def command(action: Action, purpose: str, notes: str) -> Command:
    name = f"{action.value}-log"
    age_given = "--older-than AGE" if action is Action.REMOVE else "[--older-than AGE]"
    return Command(
        name=name,
        purpose=purpose,
        notes=notes + "\n\n" + access.WHERE_IT_RUNS.format(method=f"qm.{action.value}_log()"),
        usage=f"[-m QMgrName] {age_given} [--dry-run] [--data-path dir]",
        example=f"qm {name} -m QM1 --older-than 7d",
        own_name=False,
        codes={
            NOT_AVAILABLE: access.NO_ANSWER,
            **access.ENDING_CODE,
            **WHERE_FULL,
            NOT_SUPPORTED: "the log is circular",
        },
        options=options_of_removal if action is Action.REMOVE else options,
        run=doing(action),
    )


COMMANDS = (
    command(
        Action.ARCHIVE,
        "Move log extents that no restart needs to the archive.",
        "Each is copied, read back and compared before the original is deleted. Archived extents stay readable, for\n"
        "media recovery, dmpmqlog and replay. ArchivePath of qm.ini says where they go. Linear logging only.",
    ),
    command(
        Action.COMPRESS,
        "Compress log extents that no restart needs, where they lie.",
        "Compressed extents stay readable as archived ones do; gunzip and zstd -d read them too. Compression of\n"
        "qm.ini says how. Linear logging only.",
    ),
    command(
        Action.REMOVE,
        "Delete the oldest log extents that nothing needs.",
        "The oldest go first, so that there is never a gap; it stops at the first extent that a restart, media\n"
        "recovery, a reader or a message that nobody has got yet still needs, and says which. Linear logging only.",
    ),
)
