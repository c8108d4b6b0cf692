"""The job `history`, run by run, in a process that test_history kills wherever it is.

python -m tests.pipeline.history_to_kill <data> <lake> <bytes of log for each run>
"""

import sys

from pipeline import __main__ as command
from pipeline import session
from tests.pipeline.query_to_kill import QUICK
from tests.qmgr.world import NAME

if __name__ == "__main__":
    data, lake, at_once = sys.argv[1:]
    session.spark("to be killed", **QUICK)
    sys.exit(command.main(["history", data, "--qmgr", NAME, "--out", lake, "--at-once", at_once]))
