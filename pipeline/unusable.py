"""A file that the system does not let anybody read: what commands and jobs say of it, for the sources of Spark.

Of an error of a source Spark shows what Python does. `[Errno 21] Is a directory` would not say what to do.
"""

import contextlib
from collections.abc import Iterator

from logger.errors import LogError
from qmgr.cli import command


class FileUnusable(LogError):
    """There is a way out, which the sentence says."""

    amq = "AMQ7002"


@contextlib.contextmanager
def with_way_out() -> Iterator[None]:
    """Raises FileUnusable for an OSError of a file about which something can be done, else what was raised."""
    try:
        yield
    except OSError as exc:
        if not exc.filename or exc.errno not in command.WAYS_OUT:
            raise
        _, text = command.explain(exc)
        raise FileUnusable(text.removeprefix(f"{FileUnusable.amq}S: ").removesuffix(".")) from exc
