"""Writes whose end is looked for: what they write, what an error, an interrupt or a slow disk makes of them."""

import errno
import itertools
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

import qmgr
from logger import disk as disks
from logger import polled
from logger.disk import PAGE, PosixDisk, PosixFile

try:
    polled.Poller().close()
except (AttributeError, OSError):
    pytest.skip("this system has no such writes", allow_module_level=True)


@pytest.fixture
def poller() -> Iterator[polled.Poller]:
    made = polled.Poller()
    yield made
    made.close()


@pytest.fixture
def file(tmp_path: Path) -> Iterator[PosixFile]:
    made = PosixDisk().open(f"{tmp_path}/f", create=True, direct=True)
    made.write(0, PosixDisk().buffer(8 * PAGE))
    yield made
    made.close()


def filled(number: int) -> memoryview:
    page = PosixDisk().buffer(PAGE)
    page[:] = bytes([number]) * PAGE
    return page


def page_of(file: PosixFile, number: int) -> bytes:
    return Path(file.path).read_bytes()[number * PAGE :][:PAGE]


def test_it_writes_what_it_is_given_where_it_is_told(poller: polled.Poller, file: PosixFile) -> None:
    page = PosixDisk().buffer(PAGE)
    for number in range(1, 200):  # from the same memory
        page[:] = bytes([number]) * PAGE
        done = poller.write(file.fd, page, number % 8 * PAGE)
        assert done in (PAGE, -1), "the usual call is to be made now and then"
        if done == PAGE:
            assert page_of(file, number % 8) == bytes([number]) * PAGE


def test_errors_are_those_of_the_usual_call(poller: polled.Poller, file: PosixFile) -> None:
    with pytest.raises(OSError, match="Invalid argument") as caught:
        poller.write(file.fd, filled(1), 1)
    assert caught.value.errno == errno.EINVAL
    assert poller.write(-1, filled(1), 0) == -1, "the usual call says what is wrong"
    assert poller.write(file.fd, filled(2), 0) == PAGE, "it goes on after errors"


def stop_at(count: int) -> Callable[[FrameType, str, Any], Any]:
    """A trace function that interrupts before the n-th line of this module that is run."""
    left = itertools.count(count, -1)

    def trace(frame: FrameType, event: str, arg: Any) -> Any:
        if frame.f_code.co_filename != polled.__file__:
            return None
        if event == "line" and next(left) == 0:
            raise KeyboardInterrupt
        return trace

    return trace


def test_after_an_interrupt_nothing_is_under_way(file: PosixFile) -> None:
    """Whoever leads next uses the same memory and writes to the same place."""
    interrupted = 0
    for count in range(200):
        poller = polled.Poller()
        page = filled(count)
        before = sys.gettrace()
        try:
            sys.settrace(stop_at(count))
            done = poller.write(file.fd, page, 0)
        except KeyboardInterrupt:
            interrupted += 1
        else:
            assert done == PAGE
            break
        finally:
            sys.settrace(before)
        page[:] = bytes([200]) * PAGE
        found = page_of(file, 0)
        assert found in (bytes([count]) * PAGE, bytes([max(0, count - 1)]) * PAGE)
        os.pwrite(file.fd, filled(count), 0)
        assert page_of(file, 0) == bytes([count]) * PAGE
        poller.close()
    assert interrupted > 20


def test_an_interrupt_while_it_looks_leaves_the_next_write_to_the_usual_call(
    file: PosixFile, monkeypatch: pytest.MonkeyPatch
) -> None:
    poller = polled.Poller()
    monkeypatch.setattr(disks, "_pollers", [poller])

    def interrupt() -> None:
        raise KeyboardInterrupt

    poller._give_way = interrupt
    with pytest.raises(KeyboardInterrupt):
        file.write_durably(0, filled(1), alone=True)
    assert page_of(file, 0) == bytes([1]) * PAGE, "it was under way, and waited for"
    assert poller.write(file.fd, filled(2), 0) == -1
    file.write_durably(0, filled(2), alone=True)
    assert page_of(file, 0) == bytes([2]) * PAGE


def test_where_the_disk_takes_long_it_is_tried_ever_less_often(
    poller: polled.Poller, file: PosixFile, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(polled, "LONGEST", 0)
    pauses = []
    for number in range(1, 2000):
        if poller.write(file.fd, filled(number % 251), 0) == PAGE:
            assert page_of(file, 0) == bytes([number % 251]) * PAGE, "what was begun is ended"
            pauses.append(number)
    assert [after - before - 1 for before, after in itertools.pairwise(pauses)] == [16, 32, 64, 128, 256, 512]
    poller._pause, poller._left_out = polled.MOST, 0
    poller.write(file.fd, filled(1), 0)
    assert (poller._pause, poller._left_out) == (polled.MOST, polled.MOST)
    monkeypatch.undo()
    poller._pause, poller._left_out = 64, 0
    monkeypatch.setattr(polled, "LONGEST", 60_000_000_000)
    monkeypatch.setattr(polled, "TAKEN", 60_000_000_000)
    poller.write(file.fd, filled(1), 0)
    assert (poller._pause, poller._left_out) == (32, 0)


def test_a_call_that_somebody_has_put_in_the_place_of_the_systems_is_made(
    file: PosixFile, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen = []
    pwritev = os.pwritev

    def see(fd: int, data: list[memoryview], at: int, flags: int) -> int:
        seen.append(at)
        return pwritev(fd, data, at, flags)

    monkeypatch.setattr(os, "pwritev", see)
    file.durably = True
    file.write_durably(PAGE, filled(3), alone=True)
    assert seen == [PAGE]


def test_a_force_looks_for_its_end_unless_others_have_waited_lately(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[bool] = []
    write_durably = PosixFile.write_durably

    def note(self: PosixFile, offset: int, data: disks.Buffer, *, alone: bool = False) -> None:
        if len(data) == PAGE:
            asked.append(alone)
        write_durably(self, offset, data, alone=alone)

    qmgr.create("LONE", data_path=tmp_path)
    with qmgr.start("LONE", data_path=tmp_path, background=False) as qm:
        qm.define_queue("A")
        monkeypatch.setattr(PosixFile, "write_durably", note)
        qm.put("A", b"one")
        assert asked == [True]
        log = qm._engine.log
        with log.lock:
            log._company = 5  # as forces leave it after one that others waited for
        asked.clear()
        for _ in range(7):
            qm.put("A", b"more")
        assert asked == [False] * 5 + [True] * 2
        monkeypatch.undo()


FORKED = """
import os, sys
from logger.disk import PAGE, PosixDisk, _pollers
file = PosixDisk().open(sys.argv[1], create=True, direct=True)
page = PosixDisk().buffer(PAGE)
file.write_durably(0, page, alone=True)
first = _pollers[:]
child = os.fork()
page[:3] = b"two" if child else b"one"
if not child:
    assert not _pollers
file.write_durably(PAGE if child else 0, page, alone=True)
if child:
    assert _pollers == first
    assert os.waitpid(child, 0)[1] == 0
    found = open(sys.argv[1], 'rb').read()
    print(found[:3], found[PAGE:PAGE + 3])
"""


def test_a_forked_child_has_its_own(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", FORKED, f"{tmp_path}/f"], capture_output=True, text=True, check=False, timeout=60
    )
    assert (done.stdout, done.stderr) == ("b'one' b'two'\n", "")
