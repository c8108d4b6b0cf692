"""The data source `qmgr.queue`: queues as a table, by browsing, as a stream, and as a sink."""

from collections.abc import Iterator, Mapping, Sequence
from importlib.util import find_spec

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceReader, DataSourceStreamReader, InputPartition
from pyspark.sql.types import StructType

from pipeline import queue_rows
from pipeline.log_options import asked, switch
from pipeline.queue_rows import Seen
from pipeline.queue_sink import QueueStreamWriter, QueueWriter
from pipeline.queue_stream import UnlimitedQueueStream
from pipeline.reach import Reach, lowered, reach, refuse_unknown
from qmgr import Mistake

STREAM_OPTIONS = ("startingLsn", "startingTime", "maxBytesPerTrigger")
INCOMPLETE = "leaveOutIncomplete"


class QueueSource(DataSource):
    """Made by Spark, in a process of its own, for each table, stream or sink."""

    @classmethod
    def name(cls) -> str:
        return "qmgr.queue"

    def schema(self) -> str:
        return queue_rows.DDL

    def reader(self, schema: StructType) -> DataSourceReader:
        """Raises Mistake for wrong options or columns."""
        refuse_unknown(self.options)
        return QueueTable(reach(self.options), queue_rows.target_of(schema))

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        """Raises Mistake for wrong options or columns."""
        return stream(self.options, queue_rows.target_of(schema))

    def writer(self, schema: StructType, overwrite: bool) -> QueueWriter:
        """Raises Mistake for wrong options or columns."""
        return QueueWriter(dict(self.options), schema, overwrite)

    def streamWriter(self, schema: StructType, overwrite: bool) -> QueueStreamWriter:
        """Raises Mistake for wrong options or columns."""
        return QueueStreamWriter(dict(self.options), schema, overwrite)


# ---- the table


class QueueTable(DataSourceReader):
    """What can be got from a queue while it is read. One partition, since a queue has one order."""

    def __init__(self, place: Reach, target: pa.Schema) -> None:
        self.reach = place
        self.target = target

    def partitions(self) -> Sequence[InputPartition]:
        """Open the queue, so that errors are raised before there are tasks. Raises MQError."""
        with self.reach.connect("spark browse") as qm:
            qm.queue(self.reach.queue)
        return [InputPartition(0)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Raises MQError."""
        with self.reach.connect("spark browse") as qm:
            yield from queue_rows.batches(map(Seen, qm.browse(self.reach.queue)), self.target)


# ---- the stream


def stream(options: Mapping[str, str], target: pa.Schema) -> DataSourceStreamReader:
    """Raises Mistake."""
    refuse_unknown(options, *STREAM_OPTIONS, INCOMPLETE)
    place, given = reach(options), lowered(options)
    if place.data_path is None:
        raise Mistake(
            "a stream of a queue reads the files of the log, and a url does not say where they lie; give the options "
            "qmgr and dataPath, where they can be read"
        )
    of_log = {name: given[name.lower()] for name in STREAM_OPTIONS if name.lower() in given}
    wanted = asked({"path": place.data_path, "qmgr": place.name_or_url, **of_log})
    leave_out = switch(given.get(INCOMPLETE.lower(), "false"), INCOMPLETE)
    if find_spec("pyspark.sql.streaming.datasource") is None:  # Spark 4.1
        return UnlimitedQueueStream(wanted, target, place.queue, leave_out)
    from pipeline.limited_queue_stream import LimitedQueueStream

    return LimitedQueueStream(wanted, target, place.queue, leave_out)
