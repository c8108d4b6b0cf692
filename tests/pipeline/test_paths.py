"""Paths may be URIs of files, as users of Spark write them."""

import pytest

import pipeline
from pipeline.__main__ import parser_of
from pipeline.consuming import Consuming
from pipeline.jobs import job
from pipeline.jobs.common import Failure
from pipeline.log_options import asked
from pipeline.paths import local, without_scheme
from pipeline.reach import reach
from qmgr.errors import Mistake


@pytest.mark.parametrize("uri", ["file:/data/a b", "file:///data/a b", "file://localhost/data/a b", "FILE:/data/a b"])
def test_a_uri_of_a_file_is_its_path(uri: str) -> None:
    assert asked({"path": uri}).path == "/data/a b"
    assert reach({"qmgr": "QM1", "dataPath": uri, "queue": "A"}).data_path == "/data/a b"
    taking = pipeline.consume(print, qmgr="QM1", queue="A", data_path=uri)
    assert isinstance(taking, Consuming) and taking.data_path == "/data/a b"
    with pytest.raises(Mistake, match="there is no lake in /data/a b"):
        pipeline.lake(None, uri)  # type: ignore[arg-type]


@pytest.mark.parametrize("path", ["/data", "data", "./file:/data", "./~/data", "a:b", "", "~nobody here/data"])
def test_a_path_stays_as_it_is(path: str) -> None:
    assert local(path) == path


def test_a_path_may_be_of_a_home(monkeypatch: pytest.MonkeyPatch) -> None:
    """As those of qm.ini and of every command; to Spark, which has the checkpoint, `~` is a folder like any other."""
    monkeypatch.setenv("HOME", "/home/me")
    assert asked({"path": "~/data"}).path == "/home/me/data"
    assert reach({"qmgr": "QM1", "dataPath": "~/data", "queue": "A"}).data_path == "/home/me/data"
    taking = pipeline.consume(print, qmgr="QM1", queue="A", data_path="~/data")
    assert isinstance(taking, Consuming) and taking.data_path == "/home/me/data"
    with pytest.raises(Mistake, match="there is no lake in /home/me/lake"):
        pipeline.lake(None, "~/lake")  # type: ignore[arg-type]
    words = ["~/data", "--qmgr", "QM1", "--out=~/out", "--into=~/then"]
    args = parser_of(job("rebuild")).parse_args(words)
    assert (args.path, args.out, args.into) == ("/home/me/data", "/home/me/out", "/home/me/then")
    assert without_scheme("~/checkpoint") == "~/checkpoint"


@pytest.mark.parametrize("path", ["a\0b", "file:/a\0b", "\ud800"])
def test_what_can_be_no_path_is_refused_in_a_sentence(path: str) -> None:
    for call in (
        lambda: asked({"path": path}),
        lambda: reach({"qmgr": "QM1", "dataPath": path, "queue": "A"}),
        lambda: pipeline.lake(None, path),  # type: ignore[arg-type]
    ):
        with pytest.raises(Mistake, match="can't be a path"):
            call()
    for words in ([path, "--qmgr", "QM1", "--out=/out"], ["/data", "--qmgr", "QM1", f"--out={path}"]):
        with pytest.raises(Failure, match=r"name a (path|directory)"):
            parser_of(job("history")).parse_args(words)


def test_an_empty_path_is_none() -> None:
    """Of a variable that nobody has set, perhaps; it was the directory in which Spark was started."""
    with pytest.raises(Mistake, match="needs a path"):
        asked({"path": ""})


@pytest.mark.parametrize("uri", ["hdfs://one/data", "s3a://bucket", "file://data/log", "file:data", "file:"])
def test_what_is_no_file_here_is_refused_by_name(uri: str) -> None:
    with pytest.raises(Mistake, match=f"'{uri}' is no path on this machine"):
        asked({"path": uri})
    with pytest.raises(Mistake, match=f"'{uri}' is no path on this machine"):
        reach({"qmgr": "QM1", "dataPath": uri, "queue": "A"})
