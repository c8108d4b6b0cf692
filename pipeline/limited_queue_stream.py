"""The stream of a queue for Spark 4.2 and newer: so many bytes of log in a batch, and an end with `availableNow`."""

from pipeline.limited_log_stream import LimitedLogStream
from pipeline.queue_stream import QueueStream


class LimitedQueueStream(QueueStream, LimitedLogStream):
    """What is read as in a QueueStream, how much of it as in a LimitedLogStream."""
