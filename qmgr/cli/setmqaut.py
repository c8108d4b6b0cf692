"""setmqaut: give users who connect over a network rights, or take them away."""

import argparse

from qmgr.authority import WORDS, changed, is_there, meant, without
from qmgr.cli import access
from qmgr.cli.command import BAD_ARGUMENTS, NOT_AVAILABLE, WHERE_FULL, Command, Failure, Parser
from qmgr.cli.rights import RIGHTS, UNKNOWN_OBJECT, options, profile

RIGHTS_OF_IBM_MQ = (  # rights that IBM MQ has and we have not: the refusal of one says so
    *("altusr", "chg", "clr", "crt", "ctrl", "ctrlx", "dlt", "passall", "passid", "pub", "resume"),
    *("set", "setall", "setid", "sub", "system"),
)


def changes(parser: Parser) -> None:
    options(parser, several=True)
    parser.add_argument("-remove", action="store_true", help="delete the entry of this user and profile")
    parser.add_argument("rights", metavar="+right|-right", nargs="*", help="what to give, and what to take away")
    for word in (*WORDS, *RIGHTS_OF_IBM_MQ):  # else a word with a minus would be an option that nobody knows
        parser.add_argument(f"-{word}", dest="taken", action="append_const", const=f"-{word}", help=argparse.SUPPRESS)


def run(args: argparse.Namespace) -> int:
    name, which = access.named(args.m, args.data_path), profile(args)
    rights = args.rights + (args.taken or [])
    if args.remove == bool(rights):
        raise Failure(BAD_ARGUMENTS, "AMQ7006E", "say either -remove, or rights such as +put -get.")
    for word in rights:
        if word[:1] not in ("+", "-"):
            text = f"{word!r} is not + or - with a right behind it. {RIGHTS}"
            raise Failure(BAD_ARGUMENTS, "AMQ7076E", text)
    add, remove = settled(rights, args.t)
    users = list(dict.fromkeys(args.p))
    with access.running(name, args.data_path, offline=args.offline) as manager:
        if any(word.startswith("+") for word in rights) and not is_there(manager, which):
            raise Failure(
                UNKNOWN_OBJECT, "AMQ7085E", f"there is no queue {which!r} to give rights on; define it first."
            )
        then = manager.attributes.authorities
        for user in users:  # what is refused for one of them is done for none
            then = (
                without(then, user, args.t, which) if args.remove else changed(then, user, args.t, which, add, remove)
            )
        for user in users:
            if args.remove:
                manager.unauthorize(user, which)
            else:
                manager.authorize(user, which, add=add, remove=remove)
    print("The setmqaut command completed successfully.")
    return 0


def settled(rights: list[str], kind: str) -> tuple[list[str], list[str]]:
    """(rights to give, rights to take away). Of two words for one right, as in `-all +put`, the narrower one counts.

    Raises Failure where both are as narrow.
    """
    fewest: dict[str, dict[str, int]] = {"+": {}, "-": {}}
    for word in rights:
        verbs, stands_for = meant(word[1:], kind), len(WORDS[word[1:].lower()])
        for verb in verbs:
            fewest[word[0]][verb] = min(stands_for, fewest[word[0]].get(verb, stands_for))
    add, remove = fewest["+"], fewest["-"]
    both = [verb for verb in add if add[verb] == remove.get(verb)]
    if both:
        raise Failure(BAD_ARGUMENTS, "AMQ7006E", f"right {both[0]} is to be given and taken away; say one of the two.")
    most = len(WORDS["all"]) + 1
    return (
        [verb for verb in add if add[verb] < remove.get(verb, most)],
        [verb for verb in remove if remove[verb] < add.get(verb, most)],
    )


COMMAND = Command(
    name="setmqaut",
    purpose="Give users who connect over a network rights on queues and the queue manager, or take them away.",
    notes=f"{RIGHTS}\n\nOf the profiles that match a queue, the most specific one that names the user decides. "
    f"-all +put leaves put only: of two words that name a right the one counts that stands for fewer.\n\n"
    "With several -p each of these users has it; what is refused for one of them is done for none. "
    "qm setuser adds users.",
    usage="[-m QMgrName] -t qmgr|queue [-n Profile] -p User [-p User ...] (-remove | +right|-right ...)\n"
    "                [--offline] [--data-path dir]",
    example="setmqaut -m QM1 -t queue -n 'ORDERS.*' -p mia +put +browse",
    codes={
        NOT_AVAILABLE: access.NOT_THERE,
        **access.ENDING_CODE,
        **WHERE_FULL,
        UNKNOWN_OBJECT: "there is no such queue",
    },
    options=changes,
    mixed=True,
    run=run,
)
