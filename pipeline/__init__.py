"""The data pipeline on Spark: the recovery log and queues as tables and streams, and the jobs that read them."""

from pipeline.consume import Effects as Effects
from pipeline.consume import consume as consume
from pipeline.manifest import lake as lake
from pipeline.sharing import shared as shared
