"""crtmqm: create a queue manager."""

import argparse
from typing import Any, NoReturn

import qmgr
from qmgr import mqsini
from qmgr.cli import access
from qmgr.cli.command import (
    ANOTHER_PATH,
    NOT_AVAILABLE,
    UNEXPECTED,
    WHERE_FULL,
    Command,
    Failure,
    Parser,
    absolute,
    complain,
    whole,
    with_way_out,
)
from qmgr.errors import AlreadyExists, IniError, InUse, NameError_, Reason, Unavailable
from qmgr.ini_stanzas import ATTRIBUTES
from qmgr.ini_values import Directory, Whole
from qmgr.locations import data_root
from qmgr.objects import check_name

EXISTS = 8
BAD_PARAMETER = 39
BAD_LOG_PATH = 100
BAD_LOG_SIZE = 115

LINEAR = {  # option -> LogManagement, and what it means
    "ll": ("Manual", "linear logging; somebody removes the extents that nothing needs"),
    "lla": ("Automatic", "linear logging; the queue manager reuses or deletes them, once media images allow it"),
    "lln": ("Archive", "linear logging; the same, once they are archived"),
}


def options(parser: Parser) -> None:
    kind = parser.add_mutually_exclusive_group()
    kind.add_argument(
        "-lc", action="store_true", help="circular logging (the default, unless LogDefaults of mqs.ini says else)"
    )
    for option, (_, text) in LINEAR.items():
        kind.add_argument(f"-{option}", action="store_true", help=text)
    for option, attribute, text in [
        ("-lp", "LOGPRIMARYFILES", "primary extents"),
        ("-ls", "LOGSECONDARYFILES", "secondary extents"),
        ("-lf", "LOGFILEPAGES", "size of an extent in pages of 4 KiB; can't be changed later"),
    ]:
        values = ATTRIBUTES["LOG"][attribute].values
        assert isinstance(values, Whole)
        read = whole(option, values.low, values.high, BAD_LOG_SIZE)
        parser.add_argument(option, metavar="N", type=read, help=f"{text}; {values.low} to {values.high}")
    parser.add_argument("-ld", metavar="DIR", type=log_directory, help="where logs go; else `log` in the data path")
    parser.add_argument("-md", metavar="DIR", type=absolute, help="IBM MQ's name for --data-path")
    unused = "accepted, without effect"
    parser.add_argument("-u", metavar="QUEUE", type=queue, help="dead-letter queue (DEADQ)")
    parser.add_argument("-d", metavar="QUEUE", type=queue, help=f"default transmission queue: {unused}")
    parser.add_argument("-c", metavar="TEXT", type=description, help="description, up to 64 characters (DESCR)")
    for option, low, text in [
        ("-h", 1, "units of work that one client may have at a time (MAXHANDS)"),
        ("-t", 0, f"trigger interval in milliseconds: {unused}"),
        ("-x", 1, "puts and gets that one unit of work may have; default 10000"),
    ]:
        parser.add_argument(option, metavar="N", type=whole(option, low, 999_999_999, BAD_PARAMETER), help=text)
    parser.add_argument("-ic", metavar="FILE", type=there, help="MQSC commands of each start (MQSCConfig of qm.ini)")
    parser.add_argument("-ii", metavar="FILE", type=there, help="laid over qm.ini at each start (IniConfig of qm.ini)")
    parser.add_argument("-p", type=no_port, help=argparse.SUPPRESS)
    parser.add_argument("-q", action="store_true", help="make it the default queue manager")
    parser.add_argument("name", metavar="QMgrName", help="up to 48 characters of A-Z a-z 0-9 . / _ %%")


def log_directory(text: str) -> str:
    try:
        return Directory().read(absolute(text))
    except ValueError:
        raise Failure(BAD_LOG_PATH, "AMQ7064E", f"-ld was given {text!r}; allowed: {Directory.allowed}.") from None


def there(text: str) -> str:
    """A file that is there, or a directory of them."""
    path = absolute(text)
    if not access.DISK.exists(path):
        raise Failure(BAD_PARAMETER, "AMQ6166E", f"{path}: no such file or directory.")
    return path


def no_port(text: str) -> NoReturn:
    why = f"-p was given {text!r}; a queue manager listens on the ports that Listener stanzas of its qm.ini name."
    raise Failure(BAD_PARAMETER, "AMQ7076E", why)


def queue(text: str) -> str:
    try:
        return check_name(text, "queue")
    except NameError_ as exc:
        raise Failure(BAD_PARAMETER, "AMQ7076E", str(exc)) from None


def description(text: str) -> str:
    if len(text) > 64 or not text.isprintable():
        raise Failure(BAD_PARAMETER, "AMQ7076E", f"-c was given {text!r}; allowed: up to 64 printable characters.")
    return text


def run(args: argparse.Namespace) -> int:
    if args.md and args.data_path and args.md != args.data_path:
        raise Failure(BAD_PARAMETER, "AMQ7076E", "-md and --data-path name different directories; give one of the two.")
    try:
        Directory().read(absolute(data_root(args.data_path or args.md)))
    except ValueError:
        why = f"the data path is {data_root(args.data_path or args.md)!r}; allowed: {Directory.allowed}."
        raise Failure(BAD_PARAMETER, "AMQ7076E", why) from None
    data_path = args.data_path or args.md
    _create(args, data_path)
    for option in "dt":
        if getattr(args, option) is not None and not args.z:
            complain(f"AMQ7076W: -{option} {getattr(args, option)} has no effect in this version.")
    location = access.known(args.name, data_path)
    print(f"Queue manager {args.name!r} created.")
    print(f"Directory {location.data_dir!r} created.")
    print(f"Log directory {access.log_dir(location)!r} created.")
    if args.q:
        print(f"Queue manager {args.name!r} is the default one.")
    if args.md:
        print(f"Other commands find it with --data-path {args.md}, or QMGR_DATA_PATH={args.md}.")
    print("Setup completed.")
    return 0


def _create(args: argparse.Namespace, data_path: str | None) -> None:
    if access.exists(args.name, data_path):
        raise _exists(args.name)
    access.registry(data_path)  # a damaged mqs.ini is better heard of before than after
    wanted = _wanted(args, data_path)
    try:
        qmgr.create(args.name, data_path=data_path, default=args.q, **wanted)
    except AlreadyExists as exc:
        raise Failure(EXISTS, "AMQ8110E", str(exc)) from exc
    except InUse as exc:
        if access.exists(args.name, data_path):
            raise _exists(args.name) from exc
        text = str(exc)  # of the log, or mqs.ini, which others have too
        if text.startswith("queue manager"):
            text = f"queue manager {args.name!r} can't be created: {exc.holder or 'another process'} is about to."
        raise Failure(NOT_AVAILABLE, "AMQ8146E", text) from exc
    except Unavailable as exc:
        system = exc.__cause__
        if not isinstance(system, OSError) or exc.reason is Reason.STORAGE_MEDIUM_FULL:
            raise
        if args.ld and str(system.filename).startswith(args.ld):
            text = f"the log path can't be used: {with_way_out(system, ANOTHER_PATH)}"
            raise Failure(BAD_LOG_PATH, "AMQ7064E", text) from exc
        if isinstance(system, FileNotFoundError):
            text = f"the data path can't be used: {with_way_out(system, ANOTHER_PATH)}"
            raise Failure(UNEXPECTED, "AMQ7002S", text) from exc
        raise system from None


def _wanted(args: argparse.Namespace, data_path: str | None) -> dict[str, Any]:
    """The options of `qmgr.create`: what the command line says, and else LogDefaults of mqs.ini."""
    asked: dict[str, Any] = {
        "log_path": args.ld,
        "log_primary_files": args.lp,
        "log_secondary_files": args.ls,
        "log_file_pages": args.lf,
        "max_uncommitted": args.x,
        "mqsc_config": args.ic,
        "ini_config": args.ii,
    }
    named = {"dead_letter_queue": args.u, "description": args.c, "max_handles": args.h}
    asked["attributes"] = {name: value for name, value in named.items() if value is not None}
    linear = next((management for option, (management, _) in LINEAR.items() if getattr(args, option)), None)
    if linear:
        asked |= {"log_type": "linear", "log_management": linear}
    elif args.lc:
        asked |= {"log_type": "circular", "log_management": "Manual"}
    try:
        defaults = mqsini.defaults(access.DISK, f"{data_root(data_path)}/mqs.ini")
    except IniError as exc:
        amq, _, text = exc.sentence.partition(": ")
        raise Failure(BAD_PARAMETER, amq, text) from exc
    wanted = defaults | {keyword: value for keyword, value in asked.items() if value is not None}
    primary, secondary = wanted.get("log_primary_files", 3), wanted.get("log_secondary_files", 2)
    if primary + secondary > 511:  # one of the two may be that of LogDefaults
        text = f"-lp and -ls, here {primary} and {secondary}, add up to {primary + secondary} extents"
        raise Failure(BAD_LOG_SIZE, "AMQ7076E", f"{text}; allowed: 3 to 511.")
    return wanted


def _exists(name: str) -> Failure:
    way = f"start it (strmqm {name}), or delete it first (dltmqm {name})"
    return Failure(EXISTS, "AMQ8110E", f"queue manager {name!r} exists already; {way}.")


COMMAND = Command(
    name="crtmqm",
    purpose="Create a queue manager.",
    usage="[-lc | -ll | -lla | -lln] [-lp n] [-ls n] [-lf n] [-ld dir] [-md dir] [-u queue] [-d queue] [-c text]\n"
    "              [-h n] [-t n] [-x n] [-ic file] [-ii file] [-q] [-z] [--data-path dir] QMgrName",
    elsewhere="-lr -a -fs -g -iv -oa -rr -sa -sax -si -ss -sx -sxs",
    example="crtmqm -lp 8 -lf 16384 -q QM1",
    codes={
        EXISTS: "the queue manager exists already",
        BAD_PARAMETER: "arguments, or LogDefaults of mqs.ini, not valid",
        NOT_AVAILABLE: "another process is creating it",
        **WHERE_FULL,
        BAD_LOG_PATH: "log path not valid",
        BAD_LOG_SIZE: "log size not valid: -lp, -ls, -lf",
    },
    options=options,
    run=run,
    bad_arguments=BAD_PARAMETER,
    quiet=True,
)
