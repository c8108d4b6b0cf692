"""Spark looks for data sources in top-level modules whose names begin with `pyspark_`; this one gives it `qmgr.log`."""

from pipeline.log_source import LogSource as DefaultSource

__all__ = ["DefaultSource"]
