"""Makes `format("qmgr.queue")` known to Spark, which looks for modules of this kind of name by itself."""

from typing import Any

from pyspark.sql.datasource import DataSource
from pyspark.sql.types import StructType

from pipeline.queue_sink import QueueStreamWriter, QueueWriter

NAME = "qmgr.queue"


class DefaultSource(DataSource):
    """Queues as tables, streams and sinks; see docs/spark.md."""

    @classmethod
    def name(cls) -> str:
        return NAME

    def writer(self, schema: StructType, overwrite: bool) -> QueueWriter:
        return QueueWriter(self._given, schema, overwrite)

    def streamWriter(self, schema: StructType, overwrite: bool) -> QueueStreamWriter:
        return QueueStreamWriter(self._given, schema, overwrite)

    @property
    def _given(self) -> dict[str, Any]:
        return dict(self.options)
