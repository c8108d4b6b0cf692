"""dmpmqlog: the records of the log, as text or JSON."""

import argparse
import json

from logger.at_rest import control_path
from logger.config import LogType
from logger.errors import LogDamaged
from qmgr.cli import access
from qmgr.cli.command import BAD_ARGUMENTS, Command, Failure, Parser, absolute, position, whole
from qmgr.cli.crtmqm import BAD_LOG_PATH
from recovery import dump


def options(parser: Parser) -> None:
    first = parser.add_mutually_exclusive_group()
    first.add_argument("-b", action="store_true", help="begin at the base: the start of the extent that holds the head")
    first.add_argument("-s", metavar="LSN", type=position, help="begin at this LSN, such as 0:0:4615:42406")
    text = "begin at the first record of this extent, 7 being S0000007.LOG; linear logs only"
    first.add_argument("-n", metavar="N", type=whole("-n", 0, 9_999_999), help=text)
    parser.add_argument("-e", metavar="LSN", type=position, help="end after the record at this LSN")
    parser.add_argument(
        "-f", metavar="DIR", type=absolute, help="the directory of amqhlctl.lfh and active/; else LogPath"
    )
    parser.add_argument("-m", metavar="QMgrName", help="the queue manager; else the default one")
    parser.add_argument("--json", action="store_true", help="one JSON object per line, the header first")


def run(args: argparse.Namespace) -> int:
    names: dict[int, str] = {}
    config = None
    if args.f is None or args.m is not None:
        location = access.known(access.named(args.m, args.data_path), args.data_path)
        names = access.queue_names(location)
        config = access.log_config(location) if args.f is None else None
    log_dir = args.f or access.log_dir(location)
    if args.f and not access.DISK.exists(control_path(args.f)):
        raise Failure(BAD_LOG_PATH, "AMQ7064E", f"-f was given {args.f!r}; there is no log: no {control_path(args.f)}.")
    if not access.DISK.exists(log_dir):
        text = f"the log directory {log_dir} is not there; mount its file system, or correct LogPath in qm.ini."
        raise Failure(BAD_LOG_PATH, "AMQ7064E", text)
    linear = access.log_type(log_dir) is LogType.LINEAR
    if args.n is not None and not linear:
        why = f"-n is for linear logs, and that in {log_dir} is circular; use -b or -s."
        raise Failure(BAD_ARGUMENTS, "AMQ7076E", why)
    reader = access.history_reader(log_dir, config) if linear else None
    header = dump.header(access.DISK, log_dir, config=config, reader=reader, pause=access.pause)
    print(json.dumps(header) if args.json else "\n".join(dump.header_lines(header)))
    wanted = dump.dump(
        access.DISK,
        log_dir,
        start_lsn=args.s,
        end_lsn=args.e,
        base=args.b,
        extent=args.n,
        names=names,
        reader=reader,
        pause=access.pause,
    )
    try:
        for record in wanted:
            print(record.json() if args.json else record.text())
    except LogDamaged as exc:
        away = access.archive_away(log_dir, config) if linear else ""
        if away:  # what is missing may be there
            raise type(exc)(f"{exc}; {away}") from exc
        raise
    return 0


COMMAND = Command(
    name="dmpmqlog",
    purpose="Show the records of the log, from the head (the oldest that a restart needs) to the end.",
    notes="It only reads, and needs no queue manager: the log may be a copy, or belong to one that is running.",
    usage="[-b | -s LSN | -n N] [-e LSN] [-f dir] [-m QMgrName] [--json] [--data-path dir]",
    example="dmpmqlog -b -m QM1",
    codes={BAD_LOG_PATH: "log path not valid"},
    options=options,
    run=run,
)
