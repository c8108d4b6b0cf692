"""Spark looks for data sources in top-level modules whose names begin with `pyspark_`; here it finds `qmgr.queue`."""

from pyspark.sql.datasource import DataSource

DefaultSource: type[DataSource]
try:
    from pipeline.queue_source import QueueSource

    DefaultSource = QueueSource
except ModuleNotFoundError as exc:
    from pipeline.lacking import lacking

    DefaultSource = lacking("qmgr.queue", exc)

__all__ = ["DefaultSource"]
