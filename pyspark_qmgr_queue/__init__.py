"""Spark looks for data sources in top-level modules whose names begin with `pyspark_`; here it finds `qmgr.queue`."""

from pipeline.queue_source import QueueSource as DefaultSource

__all__ = ["DefaultSource"]
