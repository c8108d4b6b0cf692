"""The process that test_log_stream kills: puts to a queue, in and outside of units of work, and says what was safe.

    python -m tests.pipeline.putter <data path> <number of the first message>

Every third unit of work is backed out. A line on standard output for each message that is safe; it ends when it is
killed.
"""

import itertools
import os
import sys
import time

import qmgr
from tests.qmgr.world import NAME

PAUSE = 0.005  # seconds: a log that grows no faster than it is read


def main() -> None:
    path, first = sys.argv[1], int(sys.argv[2])
    with qmgr.start(NAME, data_path=path) as qm:
        for number in itertools.count(first):
            body = b"%d " % number
            if number % 2:
                qm.put("A", body.ljust(2000, b"."))
            else:
                with qm.begin() as uow:
                    uow.put("B", b"beside")
                    uow.put("A", body.ljust(100, b"."))
                    uow.put_many("A", [body + b"more"] * (number % 5))
                with qm.begin() as uow:
                    uow.put("A", b"never")
                    if number % 3:
                        uow.backout()
                    else:
                        qm.put("B", b"between")  # which has the unit's call logged before it
                        uow.backout()
            os.write(1, b"%d\n" % number)
            time.sleep(PAUSE)


if __name__ == "__main__":
    main()
