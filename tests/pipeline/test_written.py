"""Rows that tasks have written for a job are counted where the job looks for them; groups of large ones are small."""

import datetime
import random
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from pipeline.jobs.common import Failure
from pipeline.jobs.written import parquet, refuse_lost

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def test_rows_are_counted_in_files_also_where_a_queue_has_the_name_of_one(tmp_path: Path) -> None:
    for queue, rows in (("ORDERS.parquet", 3), ("PAID", 4)):
        folder = tmp_path / f"queue={queue}"
        folder.mkdir()
        pq.write_table(pa.table({"lsn": range(rows)}), folder / "part-0.parquet")
    refuse_lost(str(tmp_path), 7)
    with pytest.raises(Failure, match=r"tasks have written 8 rows to .*, and 7 are there"):
        refuse_lost(str(tmp_path), 8)


def test_moments_are_utc_for_whoever_reads_the_files(spark: "SparkSession", tmp_path: Path) -> None:
    """Spark's own INT96 is read as a moment of no zone, and says nothing of the least and the greatest."""
    moments = [datetime.datetime(year, 11, 21, tzinfo=datetime.UTC) for year in (1970, 2026, 2300)]
    parquet(spark.createDataFrame(pa.table({"time": moments})).coalesce(1), str(tmp_path / "moments"))
    [file] = (tmp_path / "moments").glob("*.parquet")
    assert pq.read_schema(file).field("time").type == pa.timestamp("us", tz="UTC")
    assert pq.read_table(file)["time"].to_pylist() == moments
    told = pq.read_metadata(file).row_group(0).column(0).statistics
    assert (told.min, told.max) == (moments[0], moments[-1])


def test_large_messages_are_in_groups_of_rows_that_fit_into_memory(spark: "SparkSession", tmp_path: Path) -> None:
    """Unless it is told otherwise Parquet looks at the size of a group when it has a hundred rows."""
    bodies = [random.Random(number).randbytes(4 << 20) for number in range(10)]
    parquet(spark.createDataFrame(pa.table({"body": bodies})).coalesce(1), str(tmp_path / "large"))
    [file] = (tmp_path / "large").glob("*.parquet")
    told = pq.read_metadata(file)
    assert told.num_row_groups > 1
    assert max(told.row_group(group).total_byte_size for group in range(told.num_row_groups)) < 48 << 20
