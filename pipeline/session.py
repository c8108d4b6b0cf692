"""The Spark session: the one that is there, or one in this process that needs no set-up."""

import os
import re
import shutil
import sys
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from pipeline import java
from qmgr.errors import Mistake

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

NEEDED = ("pyspark", "pyarrow", "numpy")
INSTALL = "get it with: pip install 'qmgr[pipeline]', or '.[pipeline]' in a checkout"
HERE = re.compile(r"local(\[.*\])?")  # a master that runs all tasks in the process of its Java
PYTHON = Path(__file__).resolve().parent / "python_home" / "python"
QUIET = Path(__file__).resolve().parent / "log4j2.properties"
SETTINGS = {
    "spark.sql.python.filterPushdown.enabled": "true",  # `qmgr.log` passes over extents that hold nothing that is asked
    "spark.sql.session.timeZone": "UTC",
    # As Spark writes them by itself others read no zone, and no years behind 2262, and find no least and greatest.
    "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
}
LOCAL = {
    "spark.python.unix.domain.socket.enabled": "true",  # over TCP each task waits some 40 ms for delayed ACKs
    "spark.python.daemon.module": "pipeline.forking",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.host": "127.0.0.1",
    "spark.ui.enabled": "false",
    "spark.sql.ui.explainMode": "simple",  # of plans, which nobody sees then: else a tenth of an audit
    "spark.ui.showConsoleProgress": "false",
}
# A shuffle has 200 pieces by default: so many files and tasks for a log of a few MB take longer than all else. Large
# logs get as many as they take (`fit`), since a piece is sorted, or grouped, in the memory of one task. Adaptive
# execution stays on: it puts small pieces together, and divides those that a busy queue makes too large.
PIECES = "spark.sql.shuffle.partitions"
MIN_PIECES = "spark.qmgr.leastPieces"  # set where `fit` may choose
PIECE_BYTES = 32 << 20  # of log, for a piece
JAVA_OPTIONS = "spark.driver.extraJavaOptions"
TOLD_TO_JAVA = ("JDK_JAVA_OPTIONS", "JAVA_TOOL_OPTIONS", "_JAVA_OPTIONS", "SPARK_SUBMIT_OPTS")
COLLECTOR = re.compile(r"-XX:\+Use\w+GC\b")  # Java refuses to start with two
CONFIGURED = ("SPARK_HOME", "SPARK_CONF_DIR", "PYSPARK_SUBMIT_ARGS", "PYSPARK_GATEWAY_PORT", "SPARK_REMOTE")


def spark(app: str, **conf: str) -> "SparkSession":
    """The active session as it is; without one, a session for `app` with these settings beside ours.

    Under spark-submit, or where the environment says how Spark is set up (SPARK_HOME, SPARK_CONF_DIR …), master and
    addresses are left to that, and addresses to Spark where `conf` has the master of a cluster, or a server of Spark
    Connect (`spark.remote`); else Spark runs in this machine alone, on all its cores. Raises Mistake and
    ModuleNotFoundError with a sentence that says what is missing.
    """
    check_packages()
    from pyspark.errors import PySparkRuntimeError
    from pyspark.sql import SparkSession

    active = SparkSession.getActiveSession()
    if active is not None:
        return active
    settings = settings_of(conf)
    builder = SparkSession.builder.appName(app)
    if _alone(conf):
        os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    if not ({"PYSPARK_GATEWAY_PORT", "SPARK_REMOTE"} & os.environ.keys() or "spark.remote" in conf):
        _prepare(_version())
        if _alone(conf) and HERE.fullmatch(conf.get("spark.master", "local")):
            _fork_quietly()
        os.environ.setdefault("PYSPARK_PYTHON", sys.executable)  # not whatever `python3` is on the path
    for name, value in settings.items():
        builder = builder.config(name, value)
    try:
        return builder.getOrCreate()
    except PySparkRuntimeError as exc:
        if exc.getCondition() != "JAVA_GATEWAY_EXITED":
            raise
        path = java.chosen(os.environ)
        raise Mistake(
            f"Java ended before Spark had begun; see what {path} says, or name another by JAVA_HOME"
        ) from None


def settings_of(conf: Mapping[str, str]) -> dict[str, str]:
    """These settings and ours beside them: of addresses, workers and Java only where Spark runs in this machine alone.

    Workers on other machines reach no 127.0.0.1, and may have this package from Spark only, once they are there.
    """
    settings = SETTINGS | dict(conf)
    return LOCAL | _in_pieces(_at_full_speed(_quietly(settings))) if _alone(conf) else settings


def _alone(conf: Mapping[str, str]) -> bool:
    """Does Spark run in this machine alone, as far as anybody says where it runs?"""
    if "spark.remote" in conf or not conf.get("spark.master", "local").startswith("local"):
        return False
    return not any(name in os.environ for name in CONFIGURED)


def fit(made: "SparkSession", size: int) -> None:
    """Let shuffles have as many pieces as `size` bytes of log take, unless the user has set how many."""
    least = made.conf.get(MIN_PIECES, None)
    if least is not None:
        made.conf.set(PIECES, str(max(int(least), size // PIECE_BYTES)))


def is_active() -> bool:
    """Is there a session already, which `spark` would give?"""
    from pyspark.sql import SparkSession

    return SparkSession.getActiveSession() is not None


def check_packages(*more: str) -> None:
    """Raise ModuleNotFoundError with a sentence unless the packages of the extra `pipeline` are there, and `more`."""
    for name in (*NEEDED, *more):
        if find_spec(name) is None:
            raise ModuleNotFoundError(f"the pipeline needs {name}, which is not installed; {INSTALL}", name=name)
    if _version() < (4, 1):
        found = ".".join(map(str, _version()))
        raise Mistake(f"the pipeline needs pyspark 4.1 or newer, and {found} is installed; {INSTALL}")


def _version() -> tuple[int, ...]:
    import pyspark

    return tuple(int(part) for part in pyspark.__version__.split(".")[:2])


def _prepare(version: tuple[int, ...]) -> None:
    """Set this process's environment for the Java that it starts, and the Pythons that Java starts. Raises Mistake."""
    os.environ.update(java.environment(os.environ, newest=21 if version == (4, 1) else None))
    if shutil.which("bash") is None:
        raise Mistake("Spark is started by bash, and there is none on the path: install it")


def _fork_quietly() -> None:
    """Let all workers be forked by `pipeline/forking.py`, unless PYSPARK_PYTHON is set."""
    if "PYSPARK_PYTHON" not in os.environ:
        os.environ |= {"PYSPARK_PYTHON": str(PYTHON), "QMGR_PYTHON": sys.executable}


def _in_pieces(settings: dict[str, str]) -> dict[str, str]:
    """These settings, and as many pieces for shuffles as suit small logs best, unless a number is there."""
    if PIECES in settings:
        return settings
    least = str(2 * (os.cpu_count() or 1))
    return settings | {PIECES: least, MIN_PIECES: least}


def _at_full_speed(settings: dict[str, str]) -> dict[str, str]:
    """These settings, and a collector that does no work beside the tasks, unless somebody has chosen one."""
    given = [settings.get(JAVA_OPTIONS, ""), *(os.environ.get(name, "") for name in TOLD_TO_JAVA)]
    if COLLECTOR.search(" ".join(given)):
        return settings
    return settings | {JAVA_OPTIONS: f"{settings.get(JAVA_OPTIONS, '')} -XX:+UseParallelGC".strip()}


def _quietly(settings: dict[str, str]) -> dict[str, str]:
    """These settings, and a log that is silent; `spark.log.level` makes it speak again."""
    quiet = f"-Dlog4j2.configurationFile=file:{QUIET}"
    return settings | {JAVA_OPTIONS: f"{settings.get(JAVA_OPTIONS, '')} {quiet}".strip()}
