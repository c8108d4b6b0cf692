"""The data source `qmgr.log`: the recovery log as a table and as a stream of Spark, a row per operation.

Which columns there are is the business of `pipeline/schema.py`, what lies where that of `pipeline/log_files.py`, and
what a record says that of `pipeline/rows.py`.
"""

import sys
from importlib.util import find_spec

import attrs
from pyspark.sql.datasource import DataSource, DataSourceReader, DataSourceStreamReader
from pyspark.sql.types import StructType

from logger.errors import LogError
from pipeline.log_options import LATEST, asked, ddl, target_of
from pipeline.log_stream import UnlimitedLogStream
from pipeline.log_table import LogTable, PushedLogTable
from qmgr.errors import Mistake, MQError

PUSHING = "pyspark.sql.worker.data_source_pushdown_filters"  # Spark's planner of sources that may be given filters

# Until it learned to push limits too, Spark kept what it had planned for one filter, and read no more than that for
# any other use of the same DataFrame, in the same query or a later one (apache/spark#57752).
SAFE = hasattr(DataSourceReader, "pushLimit")


class LogSource(DataSource):
    """Made by Spark, in a process of its own, for each table or stream."""

    def __init__(self, options: dict[str, str]) -> None:
        super().__init__(options)
        self._loaded = _end_now(options)

    @classmethod
    def name(cls) -> str:
        return "qmgr.log"

    def schema(self) -> str:
        return ddl(asked(self.options).columns)

    def reader(self, schema: StructType) -> DataSourceReader:
        """Raises Mistake for wrong options or columns."""
        options = attrs.evolve(asked(self.options), loaded=self._loaded)
        if options.max_bytes is not None:
            raise Mistake("a table is read as one: maxBytesPerTrigger is for spark.readStream; leave it out")
        wanted = SAFE if options.pushdown is None else options.pushdown
        made = PushedLogTable if wanted and _may_be_pushed() else LogTable
        return made(options, target_of(schema))

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        """Raises Mistake for wrong options or columns."""
        options = asked(self.options)
        if options.end != LATEST:
            raise Mistake("a stream has no end: endingLsn and endingTime are for spark.read; stop the query instead")
        if options.pushdown is not None:
            raise Mistake(
                "a stream is given no filters of its query: pushdown is for spark.read; use objects and kinds"
            )
        if find_spec("pyspark.sql.streaming.datasource") is None:  # Spark 4.1
            return UnlimitedLogStream(options, target_of(schema))
        from pipeline.limited_log_stream import LimitedLogStream

        return LimitedLogStream(options, target_of(schema))


def _end_now(options: dict[str, str]) -> int | None:
    """Where the log ends now: all uses of a DataFrame are to show the same rows, though Spark plans each anew.

    None where that can't be found out: planning raises the reason.
    """
    try:
        given = asked(options)
        return given.log().end()
    except (MQError, LogError, OSError, ValueError):
        return None


def _may_be_pushed() -> bool:
    """Does Spark's session allow to push filters? Otherwise Spark refuses a reader that could be given some.

    No call says so; but a session that allows it plans in another module of Spark's.
    """
    main = getattr(sys.modules["__main__"], "__spec__", None)
    return PUSHING in sys.modules or (main is not None and main.name == PUSHING)
