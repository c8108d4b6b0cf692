"""dspmq: the queue managers on a data path and what they are doing."""

import argparse
import os

from qmgr import life, locations
from qmgr.cli import access
from qmgr.cli.command import BAD_ARGUMENTS, Command, Failure, Parser, because, complain, denial
from qmgr.errors import IniError, MQError
from qmgr.locations import Location

ACTIVE = 5
NAME_WIDTH = len("QMNAME()") + 48 + 1


def options(parser: Parser) -> None:
    parser.add_argument("-m", metavar="QMgrName", help="only this one")
    parser.add_argument("-a", action="store_true", help="only those that are running; exits with 5 if there are any")
    parser.add_argument("-s", action="store_true", help="show the status; the default")
    parser.add_argument(
        "-o",
        action="append",
        type=shown,
        metavar="WHAT",
        help="show `status`, `default` (whether it is the default one), `standby` (not permitted here) or `all` that "
        "is known; may be repeated",
    )
    parser.add_argument("-x", action="store_true", help="show, on a line of its own, where each running one runs")
    parser.add_argument("-n", action="store_true", help="no translation of messages: no effect")


def shown(text: str) -> str:
    if text not in ("status", "default", "standby", "all"):
        raise Failure(BAD_ARGUMENTS, "AMQ7076E", f"-o was given {text!r}; allowed: status, default, standby or all.")
    return text


def run(args: argparse.Namespace) -> int:
    fields_shown = set(args.o or ["status"]) | ({"status"} if args.s else set())
    default = access.registry(args.data_path).default
    names = [args.m] if args.m else access.names(args.data_path)
    active = 0
    for name in names:
        try:
            active += _show(name, args, fields_shown, is_default=name == default)
        except (OSError, MQError, Failure) as exc:
            system = denial(exc) or exc
            if args.m or not isinstance(system, OSError):
                raise
            if not args.a:  # one that nobody may, or can, look at must not hide the others
                print(f"QMNAME({name})".ljust(NAME_WIDTH), "STATUS(Status not available)")
                if not isinstance(system, PermissionError):
                    complain(f"AMQ8118W: queue manager {name!r} can't be looked at: {because(system)}")
    left = [] if args.m else list(access.without_ini(args.data_path))
    for what in left:
        complain(f"AMQ8118W: {what}.")
    if not names and not left:
        root = locations.data_root(args.data_path)
        why = "" if access.DISK.exists(root) else ": there is no such directory; is its file system mounted?"
        complain(f"AMQ8919I: there are no queue managers on the data path {root}{why or '.'}")
    return ACTIVE if args.a and active else 0


def _show(name: str, args: argparse.Namespace, fields_shown: set[str], *, is_default: bool) -> bool:
    """The line of one of them; False where only those that run are shown, and it does not."""
    location = access.there(name, args.data_path)
    if args.a and not access.runs(location):
        return False
    fields = []
    if fields_shown & {"status", "all"}:
        fields.append(f"STATUS({access.status(location)})")
    if fields_shown & {"default", "all"}:
        fields.append(f"DEFAULT({'yes' if is_default else 'no'})")
    if fields_shown & {"standby", "all"}:
        fields.append("STANDBY(Not permitted)")
    if "all" in fields_shown:
        fields += [f"DATAPATH({location.data_dir})", f"LOGPATH({log_path(location)})"]
    print(f"QMNAME({name})".ljust(NAME_WIDTH), *fields)
    if args.x and access.runs(location):
        print(f"    INSTANCE({host(location)}) MODE(Active)")
    return True


def host(location: Location) -> str:
    """The machine, or container, that runs it."""
    note = life.daemon(access.DISK, location)
    return note.host if note is not None else os.uname().nodename


def log_path(location: Location) -> str:
    """Blank when qm.ini can't be read: one bad file must not hide the other queue managers."""
    try:
        return access.log_dir(location)
    except (IniError, OSError):
        return ""


COMMAND = Command(
    name="dspmq",
    purpose="Show the queue managers on the data path, one per line.",
    usage="[-m QMgrName] [-a] [-s] [-o status|default|standby|all] [-x] [-n] [--data-path dir]",
    elsewhere="-c -g -i",
    example="dspmq -o all",
    codes={ACTIVE: "done, and with -a there is one that runs"},
    options=options,
    run=run,
)
