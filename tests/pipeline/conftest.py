"""What all tests of the pipeline have: a Spark session and logs that are made once, and nothing learned by others."""

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import qmgr
from pipeline import naming, opened, session
from tests.commands import Commands
from tests.daemon.daemons import Daemons
from tests.pipeline import reference
from tests.pipeline.many_extents import a_day, a_log
from tests.pipeline.queues import serving
from tests.pipeline.reference import Row
from tests.pipeline.works import Works

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

QUICK = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -Xverify:none -Xlog:disable"
# Else garbage is collected again and again for the code and the classes of so many queries, 48 MB of code at most.
ROOM = "-XX:ReservedCodeCacheSize=240m -XX:MetaspaceSize=200m -Xms800m -Xmn300m"
# To compile the expressions of a query costs more than so few rows gain; sessions of other processes compile them.
INTERPRETED = {"spark.sql.codegen.wholeStage": "false", "spark.sql.codegen.factoryMode": "NO_CODEGEN"}


@pytest.fixture(autouse=True)
def _forgotten() -> None:
    """What one test has learned of a log is none of the next one's: all logs on simulated disks have one identity."""
    opened._indexes.clear()
    naming._known.clear()


@pytest.fixture
def qm(tmp_path: Path) -> Iterator[qmgr.QueueManager]:
    """With the queues A and B, shared with the processes of Spark."""
    with serving(tmp_path, "A", "B") as manager:
        yield manager


@pytest.fixture(scope="session", params=["spark"])  # which is in the names of tests: see `tests/scheduling.py`
def spark() -> "Iterator[SparkSession]":
    """Two cores; what makes a start and the first queries quick, at the price of speed later."""
    made = session.spark(
        "tests",
        **{
            "spark.master": "local[2]",
            "spark.driver.extraJavaOptions": f"{QUICK} {ROOM}",
            "spark.sql.shuffle.partitions": "2",
            **INTERPRETED,
            "spark.sql.streaming.noDataMicroBatches.enabled": "false",
        },
    )
    yield made
    made.stop()


@pytest.fixture
def daemons(tmp_path: Path) -> Iterator[Daemons]:
    commands = Commands()
    made = Daemons(commands, tmp_path / "data")
    yield made
    made.close()
    commands.close()


@pytest.fixture(scope="session")
def plain() -> tuple[Works, list[Row]]:
    works = a_log(indexed=False)
    return works, reference.rows(works.log(), works.disk)


@pytest.fixture(scope="session")
def indexed() -> tuple[Works, list[Row]]:
    works = a_log()
    assert sum(path.endswith(".IDX") for path in works.world.disk.files()) > 3
    return works, reference.rows(works.log(), works.disk)


@pytest.fixture(scope="session", params=["day"])
def day() -> tuple[Works, list[Row]]:
    works = a_day()
    return works, reference.rows(works.log(), works.disk)
