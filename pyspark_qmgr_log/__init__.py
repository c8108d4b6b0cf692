"""Spark looks for data sources in top-level modules whose names begin with `pyspark_`; this one gives it `qmgr.log`."""

from pyspark.sql.datasource import DataSource

DefaultSource: type[DataSource]
try:
    from pipeline.log_source import LogSource

    DefaultSource = LogSource
except ModuleNotFoundError as exc:
    from pipeline.lacking import lacking

    DefaultSource = lacking("qmgr.log", exc)

__all__ = ["DefaultSource"]
