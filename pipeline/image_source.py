"""The messages of some media images as a table of Spark; a part of an extent is read by one task.

A source of its own, registered where it is used: its options are what the job `rebuild` has found in the log.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from pipeline import worker
from pipeline.finding import find
from pipeline.images import MESSAGE, Extent, batches, parts_of
from pipeline.schema import SQL, arrow_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def image_table(spark: "SparkSession", path: str, qmgr: str | None, images: Sequence[Extent]) -> "DataFrame":
    """The messages of these images of the log there, with the columns `pipeline.images.MESSAGE`."""
    spark.dataSource.register(ImageSource)
    options = {"images": json.dumps([(image.start, image.end) for image in images])}
    if qmgr is not None:
        options["qmgr"] = qmgr
    return spark.read.format(ImageSource.name()).options(**options).load(path)


class ImageSource(DataSource):
    """Made by Spark, in a process of its own, for each table."""

    @classmethod
    def name(cls) -> str:
        return "qmgr.images"

    def schema(self) -> str:
        return ", ".join(f"{field.name} {SQL[field.type]}" for field in arrow_of(MESSAGE))

    def reader(self, schema: StructType) -> DataSourceReader:
        return ImageReader(self.options)


class ImageReader(DataSourceReader):
    """Plans and reads."""

    def __init__(self, options: Mapping[str, str]) -> None:
        self.path = options["path"]
        self.qmgr = options.get("qmgr")
        self.images = [Extent(start, end) for start, end in json.loads(options["images"])]

    def partitions(self) -> Sequence[InputPartition]:
        """Raises LogError, MQError, OSError."""
        return [InputPartition(part) for part in parts_of(find(self.path, self.qmgr), self.images)]

    def read(self, partition: InputPartition | None) -> Iterator[pa.RecordBatch]:
        """Raises LogDamaged, OSError."""
        # Where there is nothing to read Spark makes up a partition: Spark 4.1 None, newer ones one with nothing in it.
        if partition is not None and partition.value is not None:
            yield from batches(partition.value, frozenset(image.start for image in self.images))
            worker.freeze_loaded()
