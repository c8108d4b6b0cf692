"""A client that test_kill lets work while it kills the daemon, or the client: it tells of each unit of work.

    python -m tests.daemon.kill_client <data> <number>

Each unit puts one message to IN and moves one from IN to OUT. On standard output `try N` before the commit, and
`done N` or `not N` when it is known what became of it; `lost` when the connection is lost, and then it waits for a line
on standard input: `go`, or `stop`.
"""

import os
import sys

import qmgr
from qmgr.remote import RemoteUnit
from tests.qmgr.world import NAME


def say(*words: object) -> None:
    """One line, in one write."""
    os.write(1, " ".join(map(str, words)).encode() + b"\n")


def work(unit: RemoteUnit, body: bytes) -> None:
    with unit:
        unit.put("IN", body.ljust(len(body) + len(body) * 37 % 900, b"."))
        unit.put("OUT", unit.get("IN", wait=None).body)
        say("try", body.decode())


def outcome(qm: qmgr.Connection, unit_id: int) -> str:
    found = qm.outcome(unit_id) if unit_id else qmgr.UowState.BACKED_OUT
    assert found in (qmgr.UowState.COMMITTED, qmgr.UowState.BACKED_OUT), found
    return "done" if found is qmgr.UowState.COMMITTED else "not"


def main() -> None:
    data, worker = sys.argv[1:]
    qm = qmgr.connect(NAME, data_path=data)
    number = 0
    say("ready")
    while True:
        number += 1
        body = f"{worker}.{number}"
        unit = qm.begin()
        try:
            work(unit, body.encode())
            say("done", body)
        except (qmgr.Unavailable, qmgr.BackedOut):
            say("lost")
            word = sys.stdin.readline().strip()
            say(outcome(qm, unit._id), body)
            if word != "go":
                return


if __name__ == "__main__":
    main()
