"""`python -m qmgr` is the command `qm`."""

import sys

from qmgr.cli.programs import qm

if __name__ == "__main__":
    sys.exit(qm())
