"""The stream of a queue for Spark 4.2 and newer: so many bytes of log in a batch, and an end with `availableNow`."""

from pipeline.limited_log_stream import LimitedLogStream
from pipeline.queue_stream import QueueStream


class LimitedQueueStream(QueueStream, LimitedLogStream):
    """Its methods are those of the two."""
