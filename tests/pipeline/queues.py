"""What the tests of `qmgr.queue` share: a queue manager that Spark's processes can reach, and rows to put."""

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa

import qmgr
from pipeline.sharing import shared
from tests.qmgr.world import NAME

LINEAR: dict[str, Any] = {"log_type": "linear", "log_primary_files": 4, "log_file_pages": 64, "log_buffer_pages": 18}


@contextlib.contextmanager
def serving(path: Path, *queues: str, **options: Any) -> Iterator[qmgr.QueueManager]:
    """A queue manager with linear logging in this process, shared; it is there from the second time on."""
    if not (path / "qmgrs" / NAME).exists():
        qmgr.create(NAME, data_path=path, **(LINEAR | options))
    with qmgr.start(NAME, data_path=path) as manager, shared(manager):
        there = {info.name for info in manager.queues()}
        for queue in queues:
            if queue not in there:
                manager.define_queue(queue)
        yield manager


def said(path: Path | str, queue: str = "A", **more: str) -> dict[str, str]:
    """The options that name it."""
    return {"qmgr": NAME, "dataPath": str(path), "queue": queue, **more}


def rows(bodies: list[str], **columns: pa.Array) -> pa.RecordBatch:
    return pa.RecordBatch.from_pydict({"body": pa.array(bodies), **columns})
