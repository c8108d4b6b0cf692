"""What is installed as programs: each loads its command and does it. An interrupt while that is loaded ends it quietly.

To load a command takes a quarter of a second, in which people who have typed the wrong one interrupt it.
"""

import gc
import sys
from collections.abc import Callable
from functools import partial

INTERRUPTED = 130  # as in qmgr.cli.command, which may not be there yet


def __getattr__(name: str) -> Callable[[], int]:
    """The program of that name."""
    if name.startswith("_"):
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return partial(run, name)


def run(name: str) -> int:
    """Do what the words of the command line say; return the exit code."""
    gc.disable()  # while it is loaded; `program` turns it on
    try:
        from qmgr.cli.main import program

        return program() if name == "qm" else program([name, *sys.argv[1:]])
    except KeyboardInterrupt:
        return INTERRUPTED
