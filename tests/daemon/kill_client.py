"""A client that test_kill lets work while it kills the daemon, or the client: it tells of each unit of work.

    python -m tests.daemon.kill_client <data> <number> <tasks>

Each unit puts one message to IN and moves one from IN to OUT. On standard output `try N` before the commit, and
`done N` or `not N` when it is known what became of it; `lost` when the connection is lost, and then it waits for a line
on standard input: `go`, or `stop`. With tasks it is asynchronous, and so many work at a time.
"""

import asyncio
import itertools
import os
import sys

import qmgr.aio
from qmgr import UowState
from tests.qmgr.world import NAME


def say(*words: object) -> None:
    """One line, in one write."""
    os.write(1, " ".join(map(str, words)).encode() + b"\n")


def padded(name: str) -> bytes:
    """The body of a message: of some length."""
    return name.encode().ljust(len(name) * 37 % 900, b".")


def word() -> str:
    """What to do now that the connection is lost."""
    say("lost")
    return sys.stdin.readline().strip()


def tell(name: str, found: UowState | None) -> None:
    assert found in (UowState.COMMITTED, UowState.BACKED_OUT), found
    say("done" if found is UowState.COMMITTED else "not", name)


def work(data: str, names: "itertools.count[int]", worker: str) -> None:
    qm = qmgr.connect(NAME, data_path=data)
    for number in names:
        name, unit = f"{worker}.{number}", qm.begin()
        try:
            with unit:
                unit.put("IN", padded(name))
                unit.put("OUT", unit.get("IN", wait=None).body)
                say("try", name)
            say("done", name)
        except (qmgr.Unavailable, qmgr.BackedOut):
            told = word()
            tell(name, qm.outcome(unit._id) if unit._id else UowState.BACKED_OUT)
            if told != "go":
                return


async def work_in_tasks(data: str, names: "itertools.count[int]", worker: str, tasks: int) -> None:
    async with qmgr.aio.connect(NAME, data_path=data) as qm:
        while True:
            left = await asyncio.gather(*[work_until_lost(qm, names, worker) for _ in range(tasks)])
            told = word()
            for name, unit_id in left:
                tell(name, await qm.outcome(unit_id) if unit_id else UowState.BACKED_OUT)
            if told != "go":
                return


async def work_until_lost(qm: qmgr.aio.Connection, names: "itertools.count[int]", worker: str) -> tuple[str, int]:
    """Units of work until the connection is lost; the name and the id of the last one."""
    for number in names:
        name, unit = f"{worker}.{number}", qm.begin()
        try:
            async with unit:
                await unit.put("IN", padded(name))
                await unit.put("OUT", (await unit.get("IN", wait=None)).body)
                say("try", name)
            say("done", name)
        except (qmgr.Unavailable, qmgr.BackedOut):
            return name, unit.id
    raise AssertionError


def main() -> None:
    data, worker, tasks = sys.argv[1:]
    names = itertools.count(1)
    if int(tasks):
        asyncio.run(work_in_tasks(data, names, worker, int(tasks)))
    else:
        work(data, names, worker)


if __name__ == "__main__":
    main()
