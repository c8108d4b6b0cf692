"""A queue manager that an application has started, shared with other processes."""

import multiprocessing
import os
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import qmgr
from qmgr.daemon.shared import shared
from qmgr.errors import InUse, Mistake, Unavailable
from tests.daemon.serving import LONG, SPAWN, until
from tests.qmgr.world import NAME, SMALL, bodies


@pytest.fixture
def qm(tmp_path: Path) -> Iterator[qmgr.QueueManager]:
    qmgr.create(NAME, data_path=tmp_path, **SMALL)
    with qmgr.start(NAME, data_path=tmp_path) as manager:
        manager.define_queue("A")
        yield manager


def put_and_leave(path: Path) -> None:
    """What another process does: one message for good, and one in a unit of work that it takes with it."""
    connection = qmgr.connect(NAME, data_path=path)
    connection.put("A", b"from another process")
    connection.begin().put("A", b"not committed")
    os._exit(0)


def test_other_processes_use_it_by_its_name(qm: qmgr.QueueManager, tmp_path: Path) -> None:
    with shared(qm):
        other: multiprocessing.process.BaseProcess = SPAWN.Process(target=put_and_leave, args=(tmp_path,))
        other.start()
        other.join(LONG)
        assert other.exitcode == 0
        until(lambda: not qm.transactions())  # what the dead had begun is backed out
        assert bodies(qm, "A") == [b"from another process"]


def test_only_this_user_can_connect_and_nothing_is_left_behind(qm: qmgr.QueueManager) -> None:
    path = qm._location.socket
    with shared(qm):
        assert stat.S_IMODE(os.stat(path).st_mode) == 0o600
    assert not os.path.exists(path)
    assert not os.path.exists(f"{qm._location.data_dir}/daemon.json")  # so nobody takes this process for a daemon


def test_sessions_end_with_it_and_the_queue_manager_goes_on(qm: qmgr.QueueManager, tmp_path: Path) -> None:
    with shared(qm):
        client = qmgr.connect(NAME, data_path=tmp_path)
        unit = client.begin()
        unit.put("A", b"not committed")
        assert len(qm.sessions) == 1
    assert (len(qm.sessions), qm.transactions()) == (0, [])
    with pytest.raises(Unavailable, match="was lost"):
        unit.put("A", b"more")
    with pytest.raises(qmgr.BackedOut):
        unit.put("A", b"more")
    with pytest.raises(Unavailable, match="which serves no clients"):
        client.put("A", b"more")
    qm.put("A", b"here")
    with shared(qm):  # again
        assert client.get("A").body == b"here"
    client.close()


def test_it_is_shared_once_at_a_time(qm: qmgr.QueueManager) -> None:
    with shared(qm):
        with pytest.raises(InUse, match=r"is served already, at .*qm\.sock"), shared(qm):
            raise AssertionError
        with qmgr.connect(NAME, data_path=qm._location.data_root) as client:  # the first one still serves
            assert client.queue("A").depth == 0


def test_no_client_ends_it(qm: qmgr.QueueManager, tmp_path: Path) -> None:
    with shared(qm), qmgr.connect(NAME, data_path=tmp_path) as client:
        for mode in ("quiesce", "immediate"):
            with pytest.raises(Mistake, match="is an application's, which shares it; end it there"):
                client.end(mode)
        client.put("A", b"x")
        assert bodies(qm, "A") == [b"x"]


def test_a_queue_manager_that_has_ended_is_not_shared(qm: qmgr.QueueManager) -> None:
    qm.end()
    with pytest.raises(Unavailable), shared(qm):
        raise AssertionError
    assert not os.path.exists(qm._location.socket)


def test_it_may_end_while_it_is_shared(qm: qmgr.QueueManager, tmp_path: Path) -> None:
    with shared(qm), qmgr.connect(NAME, data_path=tmp_path) as client:
        qm.end()
        with pytest.raises(Unavailable):
            client.put("A", b"x")
    assert not os.path.exists(qm._location.socket)


@pytest.mark.parametrize("wrong", [None, 5, "QM1"], ids=repr)
def test_only_a_queue_manager_is_shared(wrong: Any) -> None:
    with pytest.raises(qmgr.Mistake, match="only a queue manager that this process has started"), shared(wrong):
        pass
