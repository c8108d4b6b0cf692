"""Spark's Python workers end in silence where Spark has hung up on them."""

import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from pipeline import session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

HUNG_UP = """
import socket
from pipeline import forking
ours, sparks = socket.socketpair()
sparks.close()
print("ended with", forking.{which}(ours, True))
"""


@pytest.mark.parametrize(
    ("which", "said", "told"), [("worker", "ended with 1\n", ""), ("serve", "", "BrokenPipeError")]
)
def test_a_worker_on_which_spark_has_hung_up_ends_without_a_traceback(which: str, said: str, told: str) -> None:
    """pyspark's own, `serve`, ends with one."""
    words = [sys.executable, "-c", HUNG_UP.format(which=which), "pyspark.worker"]
    env = os.environ | {"PYTHON_DAEMON_KILL_WORKER_ON_FLUSH_FAILURE": "1"}  # as Spark has it
    done = subprocess.run(words, env=env, capture_output=True, text=True, check=False)
    assert done.stdout == said
    assert (told in done.stderr) if told else done.stderr == ""


def test_workers_are_forked_by_it_in_this_machine_s_session(spark: "SparkSession") -> None:
    assert spark.sparkContext.getConf().get("spark.python.daemon.module") == "pipeline.forking"
    parents = spark.sparkContext.parallelize([0], 1).map(lambda _: parent()).collect()
    assert "pipeline.forking" in parents[0]
    assert spark.sparkContext.pythonExec == str(session.PYTHON)


def parent() -> str:
    """The words of the process that has forked this one."""
    return Path(f"/proc/{os.getppid()}/cmdline").read_text().replace("\0", " ")


def test_the_python_of_spark_s_processes_is_this_one_with_all_its_words() -> None:
    words = ["-c", "import sys; print(sys.executable, sys.argv[1:])", "a b", "", "-m"]
    env = os.environ | {"QMGR_PYTHON": sys.executable}
    done = subprocess.run([str(session.PYTHON), *words], env=env, capture_output=True, text=True, check=True)
    assert done.stdout == f"{sys.executable} ['a b', '', '-m']\n"
    words = [str(session.PYTHON), "-m", "pyspark.daemon", "pyspark.sql.worker.create_data_source"]
    said = subprocess.run(words, env={"QMGR_PYTHON": "/bin/echo"}, capture_output=True, text=True, check=True)
    assert said.stdout == "-m pipeline.forking pyspark.sql.worker.create_data_source\n"
