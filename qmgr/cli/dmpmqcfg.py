"""dmpmqcfg: the definitions of a queue manager as commands that make them again."""

import argparse
import shlex
import sys
from collections.abc import Iterator

import attrs

from logger.config import LogType
from qmgr import authority, qmstatus
from qmgr.cli import access
from qmgr.cli.command import BAD_ARGUMENTS, NOT_AVAILABLE, WHERE_FULL, Command, Failure, Parser
from qmgr.cli.objects import ABSENT
from qmgr.cli.rights import UNKNOWN_OBJECT
from qmgr.installed import version
from qmgr.mqsc import script
from qmgr.mqsc.where import fits

ALL, OBJECT, AUTHREC = "all", "object", "authrec"
QMGR, QLOCAL, QALIAS = "qmgr", "qlocal", "qalias"
MEANT = {  # by -t: the objects, and what the rights are on
    ALL: ((QMGR, QLOCAL, QALIAS), authority.RIGHTS_ON),
    QMGR: ((QMGR,), (authority.QMGR,)),
    **dict.fromkeys(("queue", "q"), ((QLOCAL, QALIAS), (authority.QUEUE,))),
    **dict.fromkeys((QLOCAL, "ql"), ((QLOCAL,), (authority.QUEUE,))),
    **dict.fromkeys((QALIAS, "qa"), ((QALIAS,), (authority.QUEUE,))),
    AUTHREC: ((), authority.RIGHTS_ON),
}
EXPORTS = (ALL, OBJECT, AUTHREC)
MQSC, ONE_LINE, SETMQAUT = "mqsc", "1line", "setmqaut"
FORMATS = (MQSC, ONE_LINE, SETMQAUT)
NOT_HERE = {  # of IBM MQ
    "-t": (*ABSENT, "comminfo", "mqttchl", "sub", "chlauth", "policy"),
    "-x": ("chlauth", "sub", "policy"),
    "-o": ("2line", "grtmqmaut"),
}
RULE = "*" * 79


def options(parser: Parser) -> None:
    parser.add_argument("-m", metavar="QMgrName", help="the queue manager; else the default one")
    parser.add_argument("-n", metavar="ObjName", help="objects and profiles of this name, or that begin so: 'ORDERS.*'")
    parser.add_argument(
        "-t", metavar="ObjType", type=str.lower, default=ALL, help="all, qmgr, queue, qlocal, qalias or authrec"
    )
    parser.add_argument("-x", metavar="Export", type=str.lower, default=ALL, help="all, object or authrec")
    text = "mqsc, 1line (a command is one line), or setmqaut (rights, for a shell)"
    parser.add_argument("-o", metavar="Format", type=str.lower, default=MQSC, help=text)
    parser.add_argument("-a", action="store_true", help="all attributes, not only those that differ from the defaults")
    access.add_offline(parser)


def run(args: argparse.Namespace) -> int:
    for option, value, allowed in (("-t", args.t, MEANT), ("-x", args.x, EXPORTS), ("-o", args.o, FORMATS)):
        _check(option, value, tuple(allowed))
    if args.t == AUTHREC and args.x == OBJECT:
        raise Failure(BAD_ARGUMENTS, "AMQ7076E", "-t authrec leaves nothing for -x object; say one of the two.")
    if args.o == SETMQAUT and AUTHREC not in (args.t, args.x):
        raise Failure(BAD_ARGUMENTS, "AMQ7076E", "-o setmqaut writes rights only; say -x authrec with it.")
    name = access.named(args.m, args.data_path)
    with access.running(name, args.data_path, offline=args.offline) as manager:
        written = [*_objects(manager, args), *_rights(manager, args)]
    if args.n is not None and not written:
        text = f"queue manager {name!r} has nothing of the name {args.n!r} for -t {args.t} -x {args.x}."
        raise Failure(UNKNOWN_OBJECT, "AMQ7085E", text)
    if hasattr(sys.stdout, "reconfigure"):
        sys.stdout.reconfigure(encoding="utf-8")  # as runmqsc -f reads it, whatever the terminal shows
    for line in (*_header(name, args), *written, *_end()):
        print("#" + line[1:] if args.o == SETMQAUT and line.startswith("*") else line)
    return 0


def _check(option: str, value: str, allowed: tuple[str, ...]) -> None:
    if value in NOT_HERE.get(option, ()):
        text = f"{option} was given {value!r}, which IBM MQ has and is not provided here"
    elif value not in allowed:
        text = f"{option} was given {value!r}"
    else:
        return
    raise Failure(BAD_ARGUMENTS, "AMQ7076E", f"{text}; allowed: {', '.join(allowed)}.")


def _objects(manager: access.Manager, args: argparse.Namespace) -> Iterator[str]:
    """The lines that define the objects that the options name; -n goes for the queue manager's own name too."""
    kinds = MEANT[args.t][0] if args.x != AUTHREC else ()
    commands = []
    if QMGR in kinds and _named(manager.name, args):
        definition = manager.attributes
        if manager.status().log.config.log_type is not LogType.LINEAR:  # it has no effect then, and would be refused
            definition = attrs.evolve(definition, logger_events=False)
        commands.append(script.queue_manager(definition, everything=args.a))
    if QLOCAL in kinds:
        commands += [script.queue(each, everything=args.a) for each in manager.queues() if _named(each.name, args)]
    if QALIAS in kinds:
        commands += [script.alias(each, everything=args.a) for each in manager.aliases() if _named(each.name, args)]
    for command in commands:
        yield from command.lines(one_line=args.o == ONE_LINE)


def _rights(manager: access.Manager, args: argparse.Namespace) -> Iterator[str]:
    """The lines that give the rights that the options name. Those on a queue that is not there now are comments."""
    kinds = MEANT[args.t][1] if args.x != OBJECT else ()
    there = {"", *(each.name for each in manager.queues()), *(each.name for each in manager.aliases())}
    for one in manager.attributes.authorities:
        if one.kind not in kinds or not _named(one.profile or manager.name, args):
            continue
        taken = authority.is_generic(one.profile) or one.profile in there  # others would be refused
        if args.o == SETMQAUT:
            lines = [script.setmqaut(manager.name, one)]
        else:
            lines = [*script.grant(one).lines(one_line=args.o == ONE_LINE or not taken)]
        yield from lines if taken else (script.comment(f"There is no such queue: {line}") for line in lines)


def _named(name: str, args: argparse.Namespace) -> bool:
    return args.n is None or fits(name, args.n)


def _header(name: str, args: argparse.Namespace) -> list[str]:
    date, time = _now()
    return [
        RULE,
        script.comment(f"Script generated on {date} at {time} UTC by qmgr {version()}"),
        script.comment(f"Queue manager name: {name}"),
        script.comment(f"Command issued: {shlex.join(['dmpmqcfg', *args.words])}"),
        RULE,
    ]


def _end() -> list[str]:
    """The last lines of a script: one that lacks them was cut off."""
    date, time = _now()
    return [RULE, script.comment(f"Script ended on {date} at {time} UTC"), RULE]


def _now() -> tuple[str, str]:
    return qmstatus.moment(access.CLOCK.wall_us())


COMMAND = Command(
    name="dmpmqcfg",
    purpose="Write the definitions of a queue manager as MQSC that defines them again: a backup in text.",
    notes="runmqsc takes it back. Objects are replaced (REPLACE), rights are added to those that are there. Without -a "
    "what is\nnot written of the queue manager stays as it is there. docs/mqsc.md says what is not in it.",
    usage="[-m QMgrName] [-n ObjName] [-t ObjType] [-x Export] [-o Format] [-a] [-z] [--offline]\n"
    "                [--data-path dir]",
    elsewhere="-c -q -r -s -u -w",
    example="dmpmqcfg -m QM1 -a > QM1.mqsc",
    codes={
        NOT_AVAILABLE: access.NOT_THERE,
        **access.ENDING_CODE,
        **WHERE_FULL,
        UNKNOWN_OBJECT: "there is nothing of that name",
    },
    quiet=True,
    options=options,
    run=run,
)
