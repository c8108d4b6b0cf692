"""The process that test_sigkill kills: works on a queue manager and says on standard output what was acknowledged.

    python -m tests.kill_worker <data> <log> <seed> <threads> [daemon]

With `daemon` it is the client of one that it starts, a child of its own. It prints one JSON line for each queue that it
found (`found`), one for what is in doubt, then, for every call, a line before it (`try`) and a line when it has
returned (`done`). Each thread has two queues of its own.
"""

import contextlib
import json
import os
import random
import subprocess
import sys
import threading
import time

import qmgr
from logger.config import LogType

NAME = "KILL"


def say(**fields: object) -> None:
    """One line, in one write: lines of different threads never mix."""
    os.write(1, json.dumps(fields).encode() + b"\n")


def number_of(message: qmgr.Message) -> int:
    return int(message.body.split()[0])


def through_daemon(data: str) -> qmgr.Connection:
    """A daemon of this process, when it is ready."""
    served = subprocess.Popen([sys.executable, "-m", "qmgr.daemon", NAME, data], stdout=subprocess.DEVNULL)
    while True:
        try:
            return qmgr.connect(NAME, data_path=data)
        except qmgr.Unavailable:
            assert served.poll() is None, "the daemon did not start"
            time.sleep(0.05)


def work(qm: qmgr.QueueManager | qmgr.Connection, thread: int, seed: int, start: int) -> None:
    """Random calls for ever."""
    rng = random.Random(seed * 100 + thread)
    linear = qm.status().log.config.log_type is LogType.LINEAR
    a, b = f"T{thread}.A", f"T{thread}.B"
    count = start

    def body() -> bytes:
        nonlocal count
        count += 1
        return (b"%d " % count).ljust(rng.choice((10, 200, 3000, 12000)), b".")

    while True:
        kind = rng.random()
        if kind < 0.3:
            made = body()
            priority = rng.randrange(3)
            say(thread=thread, do="try", puts=[[a, count, priority]])
            qm.put(a, made, priority=priority)
        elif kind < 0.45:
            say(thread=thread, do="try", get=a)
            try:
                qm.get(a)
            except qmgr.NoMessageAvailable:
                say(thread=thread, do="none")
                continue
        elif kind < 0.5:
            say(thread=thread, do="same")
            if linear and rng.random() < 0.7:
                qm.record_image(rng.choice((None, a, b)))
            elif linear:
                qm.recreate(b)
            elif thread == 0:
                qm.checkpoint()
        else:
            xid = qmgr.Xid(1, b"%d" % rng.randrange(1 << 60), b"") if kind > 0.9 else None
            unit = qm.begin(xid) if xid is not None else qm.begin()
            puts = []
            gets = []
            for _ in range(rng.randint(1, 4)):
                queue = rng.choice((a, b))
                priority = rng.randrange(3)
                unit.put(queue, body(), priority=priority)
                puts.append([queue, count, priority])
            for queue in (a, b):
                for _ in range(rng.randint(0, 2)):
                    with contextlib.suppress(qmgr.NoMessageAvailable):
                        gets.append([queue, number_of(unit.get(queue))])
            if rng.random() < 0.15:
                say(thread=thread, do="same")
                unit.backout()
            else:
                if xid is not None:
                    say(thread=thread, do="try", prepare=xid.gtrid.decode(), puts=puts, gets=gets)
                    unit.prepare()
                    say(thread=thread, do="done")
                    say(thread=thread, do="try", resolve=xid.gtrid.decode())
                else:
                    say(thread=thread, do="try", puts=puts, gets=gets)
                unit.commit()
        say(thread=thread, do="done")


def main() -> None:
    data, log, seed, threads = sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
    del log
    qm = through_daemon(data) if "daemon" in sys.argv[5:] else qmgr.start(NAME, data_path=data)
    there = {queue.name for queue in qm.queues()}
    for thread in range(threads):
        for name in (f"T{thread}.A", f"T{thread}.B"):
            if name not in there:
                qm.define_queue(name, buffer_size=None if thread % 2 else 8192)
            say(do="found", queue=name, bodies=[number_of(message) for message in qm.browse(name)])
    say(do="in doubt", xids=[xid.gtrid.decode() for xid in qm.in_doubt()])
    for xid in qm.in_doubt():
        qm.resolve(xid, commit=True)
    for thread in range(threads):
        for name in (f"T{thread}.A", f"T{thread}.B"):
            say(do="resolved", queue=name, bodies=[number_of(message) for message in qm.browse(name)])
    say(do="begin")
    if seed < 0:
        qm.end()
        return
    for thread in range(threads):
        threading.Thread(target=work, args=(qm, thread, seed, seed * 1_000_000 + 1), daemon=True).start()
    threading.Event().wait()


if __name__ == "__main__":
    main()
