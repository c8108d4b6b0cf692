"""Rows that tasks have written for a job are counted where the job looks for them."""

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from pipeline.jobs.common import Failure
from pipeline.jobs.written import refuse_lost


def test_rows_are_counted_in_files_also_where_a_queue_has_the_name_of_one(tmp_path: Path) -> None:
    for queue, rows in (("ORDERS.parquet", 3), ("PAID", 4)):
        folder = tmp_path / f"queue={queue}"
        folder.mkdir()
        pq.write_table(pa.table({"lsn": range(rows)}), folder / "part-0.parquet")
    refuse_lost(str(tmp_path), 7)
    with pytest.raises(Failure, match=r"tasks have written 8 rows to .*, and 7 are there"):
        refuse_lost(str(tmp_path), 8)
