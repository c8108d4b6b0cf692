"""The data pipeline on Spark: the recovery log and queues as tables and streams, and the jobs that read them."""

from pipeline.manifest import lake as lake
