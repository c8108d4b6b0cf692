"""A query of Spark that test_consume kills: it consumes queue A, with a message to B for each, until then.

python -m tests.pipeline.query_to_kill <data> <checkpoint>
"""

import sys
from typing import TYPE_CHECKING, Any

from pyspark.errors import PySparkException

from pipeline import session
from pipeline.consuming import Effects, consume
from tests.pipeline.queues import said
from tests.qmgr.world import NAME

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.readwriter import DataStreamWriter

QUICK = {
    "spark.master": "local[1]",
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -Xverify:none -Xlog:disable",
}


def copied(batch: "DataFrame", batch_id: int, uow: Effects) -> None:
    """Work: each message goes to B."""
    for row in batch.collect():
        uow.put("B", bytes(row.body), priority=row.priority, properties=row.properties)


def query(spark: "SparkSession", data: str, checkpoint: str) -> "DataStreamWriter":
    """The query, before it is started."""
    stream = spark.readStream.format("qmgr.queue").options(**said(data, maxBytesPerTrigger="2500")).load()
    consuming = consume(copied, qmgr=NAME, queue="A", data_path=data)
    return stream.writeStream.foreachBatch(consuming).option("checkpointLocation", checkpoint)


def run(spark: "SparkSession", data: str, checkpoint: str, **trigger: Any) -> None:
    """Run it to its end. Spark waits ten seconds for a Python process to begin; where that takes longer: again."""
    while True:
        try:
            query(spark, data, checkpoint).trigger(**trigger).start().awaitTermination()
            return
        except PySparkException as exc:
            if "Python worker failed to connect back" not in str(exc):
                raise


if __name__ == "__main__":
    run(session.spark("to be killed", **QUICK), *sys.argv[1:], processingTime="0 seconds")
