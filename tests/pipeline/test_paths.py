"""Paths may be URIs of files, as users of Spark write them."""

import pytest

import pipeline
from pipeline.consuming import Consuming
from pipeline.log_options import asked
from pipeline.paths import local
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


@pytest.mark.parametrize("path", ["/data", "data", "./file:/data", "~/data", "a:b", ""])
def test_a_path_stays_as_it_is(path: str) -> None:
    assert local(path) == path


@pytest.mark.parametrize("uri", ["hdfs://one/data", "s3a://bucket", "file://data/log", "file:data", "file:"])
def test_what_is_no_file_here_is_refused_by_name(uri: str) -> None:
    with pytest.raises(Mistake, match=f"'{uri}' is no path on this machine"):
        asked({"path": uri})
    with pytest.raises(Mistake, match=f"'{uri}' is no path on this machine"):
        reach({"qmgr": "QM1", "dataPath": uri, "queue": "A"})
