"""Parquet files that tasks write for a job, counted: a worker that lacks `--out` would write where nobody looks."""

import pyarrow.parquet as pq
from pyspark.sql import DataFrame, Observation
from pyspark.sql import functions as F

from pipeline.jobs.common import Failure
from pipeline.paths import parquet_files

ROWS = "rows"
# Of large messages Parquet would have a hundred in memory before it checks their size, and readers have a group of
# rows in memory.
GROUPS = {
    "parquet.block.size": str(32 << 20),
    "parquet.block.size.row.check.min": "1",
    "parquet.page.size.row.check.min": "1",
}


def parquet(table: DataFrame, path: str, *by: str) -> None:
    """Write the table into a new folder, divided by these columns. Raises Failure unless all of it is seen here."""
    observed = Observation()
    writer = table.observe(observed, F.count(F.lit(1)).alias(ROWS)).write.options(**GROUPS)
    (writer.partitionBy(*by) if by else writer).parquet(path)
    refuse_lost(path, observed.get[ROWS])


def refuse_lost(path: str, rows: int) -> None:
    """Raise Failure unless the files below the folder have so many rows. Raises OSError."""
    there = sum(pq.read_metadata(file).num_rows for file in parquet_files(path))
    if there != rows:
        raise Failure(
            f"tasks have written {rows} rows to {path}, and {there} are there: it is not the same folder on all "
            f"machines that do work for Spark; have the one that --out names mounted on all of them."
        )
