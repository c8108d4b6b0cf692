"""qm status: DISPLAY QMSTATUS LOG and the queues, of a queue manager that runs or not."""

import argparse
import json
from collections.abc import Mapping

from qmgr import qmstatus
from qmgr.cli import access
from qmgr.cli.command import NOT_AVAILABLE, Command, Parser


def options(parser: Parser) -> None:
    access.add_name(parser)
    parser.add_argument("--json", action="store_true", help="one JSON object: `qmstatus`, and `queues`, a list")


def run(args: argparse.Namespace) -> int:
    name = access.chosen_name(args)
    picture = access.current_picture(name, args.data_path)
    with access.damage_explained(name, args.data_path):
        shown = qmstatus.fields(picture)
        queues = [qmstatus.queue_fields(one) for one in sorted(picture["objects"], key=lambda one: str(one["name"]))]
    if args.json:
        print(json.dumps({"qmstatus": typed(shown), "queues": [typed(queue) for queue in queues]}))
        return 0
    print("AMQ8705I: Display Queue Manager Status Details.", *qmstatus.columns(shown), sep="\n")
    for queue in queues:
        print("AMQ8450I: Display queue status details.", *qmstatus.columns(queue), sep="\n")
    return 0


def typed(shown: Mapping[str, str]) -> dict[str, str | int | None]:
    """Numbers as numbers, and null for what is blank; a name may be of digits only."""

    def value(name: str, text: str) -> str | int | None:
        if text == qmstatus.BLANK:
            return None
        if name == "UNCOM" and text == qmstatus.NONE:
            return 0
        return int(text) if text.isdecimal() and name not in ("QMNAME", "QUEUE") else text

    return {name: value(name, text) for name, text in shown.items()}


COMMAND = Command(
    name="status",
    purpose="Show how a queue manager, its log and its queues stand, under the names of DISPLAY QMSTATUS.",
    notes="A running queue manager, in whatever process, is shown as it was a second ago; for one that is not\n"
    "running the log is read. Nothing is started or changed. docs/looking-inside.md says what the numbers mean.",
    usage="[[-m] QMgrName] [--json] [--data-path dir]",
    example="qm status -m QM1",
    codes={NOT_AVAILABLE: access.SILENT},
    options=options,
    run=run,
    own_name=False,
)
