"""Writes whose end is looked for: what they write, what an error, an interrupt or a slow disk makes of them."""

import ctypes
import errno
import itertools
import os
import platform
import resource
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

import qmgr
from logger import polled, posix_file
from logger.disk import PAGE, Buffer
from logger.posix_disk import PosixDisk
from logger.posix_file import PosixFile

try:
    polled.Poller().close()
except (AttributeError, OSError):
    pytest.skip("this system has no such writes", allow_module_level=True)


def is_new_enough(python: str) -> bool:
    """Does qmgr run on it?"""
    code = "import sys; sys.exit(sys.version_info < (3, 11))"
    return subprocess.run([python, "-c", code], check=False).returncode == 0


# The one that runs the tests, and that of the system, which may be built in another way.
PYTHONS = [sys.executable, *(name for name in ["/usr/bin/python3"] if os.path.exists(name) and is_new_enough(name))]


@pytest.fixture
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """It looks as long as the disk takes, however busy the machine is."""
    monkeypatch.setattr(polled, "POLL_MAX_NS", 600_000_000_000)
    monkeypatch.setattr(polled, "PREEMPTED_NS", 600_000_000_000)
    monkeypatch.setattr(polled, "STARVED_NS", 600_000_000_000)


class Asking(polled.Poller):
    """It hears from a call of the system's what was done, as it does where it can't read that."""

    def _begin(self) -> None:
        super()._begin()
        self._reads_ring = False


KINDS = [polled.Poller, Asking]


@pytest.fixture
def poller(patient: None, request: pytest.FixtureRequest) -> Iterator[polled.Poller]:
    made: polled.Poller = getattr(request, "param", polled.Poller)()
    assert made._request.flags == os.RWF_DSYNC, "it is to be durable when it is done"
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


@pytest.mark.parametrize("poller", KINDS, indirect=True)
def test_it_writes_what_it_is_given_where_it_is_told(poller: polled.Poller, file: PosixFile) -> None:
    page = PosixDisk().buffer(PAGE)
    for number in range(1, 200):  # from the same memory
        page[:] = bytes([number]) * PAGE
        assert poller.write(file.fd, page, number % 8 * PAGE) == PAGE
        assert page_of(file, number % 8) == bytes([number]) * PAGE


@pytest.mark.parametrize(("name", "other"), [("EVENTS", 64), ("IN_ORDER_MACHINE", "another")])
def test_where_what_is_done_can_not_be_read_the_system_is_asked(
    name: str, other: object, patient: None, file: PosixFile, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(polled, name, other)
    poller = polled.Poller()
    assert not poller._reads_ring
    assert poller.write(file.fd, filled(1), 0) == PAGE
    assert page_of(file, 0) == bytes([1]) * PAGE
    poller.close()


@pytest.mark.parametrize("poller", KINDS, indirect=True)
def test_errors_are_those_of_the_usual_call(poller: polled.Poller, file: PosixFile) -> None:
    for number in range(5):
        assert poller.write(file.fd, filled(number), 0) == PAGE
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (8 * PAGE, hard))
    try:
        with pytest.raises(OSError, match="File too large") as caught:
            poller.write(file.fd, filled(1), 8 * PAGE)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert caught.value.errno == errno.EFBIG
    with pytest.raises(OSError, match="Bad file descriptor"):
        poller.write(-1, filled(1), 0)
    assert poller.write(file.fd, filled(2), 0) == PAGE, "it goes on after errors"


@pytest.mark.parametrize("poller", [Asking], indirect=True)
def test_what_is_written_by_half_is_written_again(
    poller: polled.Poller, file: PosixFile, monkeypatch: pytest.MonkeyPatch
) -> None:
    call, written = poller._call, []

    def half(number: int, *rest: Any) -> int:
        answer: int = call(number, *rest)
        if number == poller._get_events:
            poller._io_event.result = PAGE // 2
        return answer

    monkeypatch.setattr(poller, "_call", half)
    monkeypatch.setattr(posix_file, "_pollers", [poller])
    pwrite = os.pwrite
    monkeypatch.setattr(os, "pwrite", lambda fd, data, at: written.append((at, len(data))) or pwrite(fd, data, at))
    file.honours_dsync = True
    file.write_durably(PAGE, filled(5), may_poll=True)
    assert written == [(PAGE, PAGE)]


@pytest.mark.parametrize("poller", [Asking], indirect=True)
def test_a_signal_is_no_answer_and_a_refusal_ends_the_log(
    poller: polled.Poller, file: PosixFile, monkeypatch: pytest.MonkeyPatch
) -> None:
    call, said = poller._call, [errno.EINTR, errno.EINTR]

    def struck(number: int, *rest: Any) -> int:
        if number == poller._get_events and said:
            ctypes.set_errno(said.pop())
            return -1
        answer: int = call(number, *rest)
        return answer

    monkeypatch.setattr(poller, "_call", struck)
    assert poller.write(file.fd, filled(6), 0) == PAGE
    assert said == [] and page_of(file, 0) == bytes([6]) * PAGE
    said.append(errno.EPERM)  # a filter of system calls that was put on later
    with pytest.raises(OSError, match="not known whether"):
        poller.write(file.fd, filled(7), 0)
    assert page_of(file, 0) == bytes([7]) * PAGE, "it was waited for"
    assert poller.write(file.fd, filled(8), 0) == PAGE, "with another context"
    assert page_of(file, 0) == bytes([8]) * PAGE


def test_a_pipe_that_has_got_the_descriptor_is_not_written(poller: polled.Poller) -> None:
    """As `os.pwritev` refuses it: another part of the program has closed the log's, and opened this."""
    out, into = os.pipe()
    try:
        with pytest.raises(OSError, match="Illegal seek"):
            poller.write(into, filled(1), 0)
        os.set_blocking(out, False)
        with pytest.raises(BlockingIOError):
            os.read(out, 1)
    finally:
        os.close(out)
        os.close(into)


class NotYet:
    """What the system shows while a write is under way, and here afterwards too."""

    value = -1


def strike_at(first: int, then: int) -> Callable[[FrameType, str, Any], Any]:
    """A trace function that interrupts before the n-th line of this module that is run, and again so many lines on."""
    left = itertools.count(first, -1)
    again = itertools.count(then, -1)
    struck = False

    def trace(frame: FrameType, event: str, arg: Any) -> Any:
        nonlocal struck
        if frame.f_code.co_filename != polled.__file__:
            return None
        if event == "line" and next(again if struck else left) == 0:
            struck = True
            raise KeyboardInterrupt
        return trace

    return trace


def unlock(poller: polled.Poller) -> None:
    """A trace function may strike where a `with` or a `finally` begins its last step, which no signal does."""
    poller._waiter = None
    if poller._lock.locked():
        poller._lock.release()


@pytest.mark.parametrize(("kind", "then"), [(polled.Poller, 0), (polled.Poller, 2), (polled.Poller, 1000), (Asking, 2)])
def test_after_an_interrupt_nothing_is_under_way(
    kind: type[polled.Poller], then: int, patient: None, file: PosixFile
) -> None:
    """Whoever leads next uses the same memory and writes to the same place. Another interrupt follows it."""
    interrupted = 0
    for count in range(200):
        poller = kind()
        page = filled(count)
        before = sys.gettrace()
        try:
            sys.settrace(strike_at(count, then))
            done = poller.write(file.fd, page, 0)
        except KeyboardInterrupt:
            interrupted += 1
        else:
            assert done == PAGE
            break
        finally:
            sys.settrace(before)
        unlock(poller)
        page[:] = bytes([250]) * PAGE
        assert page_of(file, 0) in (bytes([count]) * PAGE, bytes([max(0, count - 1)]) * PAGE)
        os.pwrite(file.fd, filled(count), 0)
        assert page_of(file, 0) == bytes([count]) * PAGE
        assert poller.write(file.fd, filled(251), 0) == PAGE
        assert page_of(file, 0) == bytes([251]) * PAGE
        os.pwrite(file.fd, filled(count), 0)
        poller.close()
    assert interrupted > 20


class Submitted:
    """The system's calls, of which those that begin a write are counted."""

    def __init__(self, poller: polled.Poller, patch: pytest.MonkeyPatch) -> None:
        self.count = 0
        call = poller._call

        def counting(number: int, *given: Any) -> Any:
            self.count += number == poller._submit
            return call(number, *given)

        patch.setattr(poller, "_call", counting)


@pytest.mark.parametrize("poller", KINDS, indirect=True)
def test_what_was_begun_is_waited_for_and_written_once(
    poller: polled.Poller, file: PosixFile, monkeypatch: pytest.MonkeyPatch
) -> None:
    submitted, page = Submitted(poller, monkeypatch), filled(1)
    assert poller.begin(file.fd, page, PAGE)
    assert not poller.begin(file.fd, filled(2), 2 * PAGE), "one at a time"
    assert poller.write(file.fd, page, PAGE) == PAGE
    assert submitted.count == 1
    assert page_of(file, 1) == page
    page[:] = bytes([3]) * PAGE
    assert poller.write(file.fd, page, PAGE) == PAGE
    assert submitted.count == 2
    assert page_of(file, 1) == page


@pytest.mark.parametrize("poller", KINDS, indirect=True)
def test_errors_of_what_was_begun_are_told_when_it_is_waited_for(poller: polled.Poller, file: PosixFile) -> None:
    with open(file.path, "rb") as read_only:
        page = filled(1)
        assert not poller.begin(read_only.fileno(), page, 0)  # the system says so at once
        assert poller.write(read_only.fileno(), page, 0) == -1
    assert poller.begin(file.fd, page, 0)
    assert poller.write(file.fd, page, 0) == PAGE


def test_while_the_disk_takes_long_nothing_is_begun(poller: polled.Poller, file: PosixFile) -> None:
    page = filled(1)
    poller._skips_left = 1
    assert not poller.begin(file.fd, page, 0)
    assert poller.write(file.fd, page, 0) == -1
    assert poller.begin(file.fd, page, 0)
    poller._skips_left = 5  # another thread's write has taken long, before
    assert poller.write(file.fd, page, 0) == PAGE, "it is under way, and nobody else may write there"
    poller._skips_left = 0


def test_others_leave_what_was_begun_alone_unless_nobody_asks_for_it(
    poller: polled.Poller, file: PosixFile, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = PosixDisk().open(f"{tmp_path}/other", create=True, direct=True)
    other.write(0, PosixDisk().buffer(2 * PAGE))
    page, its = filled(1), filled(2)
    submitted = Submitted(poller, monkeypatch)
    assert poller.begin(file.fd, page, 0)
    for fd, data, offset in ((other.fd, its, 0), (file.fd, page, PAGE), (file.fd, filled(1), 0)):
        assert poller.write(fd, data, offset) == -1
    assert poller.write(file.fd, page, 0) == PAGE
    assert submitted.count == 1
    assert poller.begin(file.fd, page, PAGE)
    for _ in range(polled.ABANDONED_AFTER):
        assert poller.write(other.fd, its, 0) == -1
    assert page_of(file, 1) == page, "it was waited for"
    assert poller.write(other.fd, its, 0) == PAGE
    assert page_of(other, 0) == its
    page[:] = bytes([4]) * PAGE
    assert poller.write(file.fd, page, PAGE) == PAGE, "by whoever asks for it after all it is written anew"
    assert page_of(file, 1) == page
    other.close()


def test_a_file_is_closed_when_what_was_begun_is_over(
    poller: polled.Poller, file: PosixFile, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another process may have the log then."""
    monkeypatch.setattr(posix_file, "_pollers", [poller])
    monkeypatch.setattr(posix_file, "_poller", lambda: poller)
    page = filled(1)
    assert not file.begin_durably(0, page), "it is not known yet whether its file system can do that"
    file.write_durably(0, page, may_poll=True)
    page[:] = bytes([2]) * PAGE
    if not file.honours_dsync:
        pytest.fail(f"the file system of {tmp_path} is none that makes such writes")
    for number in range(3, 40):
        another = PosixDisk().open(f"{tmp_path}/another", create=number == 3, direct=True)
        another.honours_dsync = True
        page[:] = bytes([number]) * PAGE
        assert another.begin_durably(0, page)
        another.close()
        page[:] = bytes([250]) * PAGE
        assert Path(another.path).read_bytes() == bytes([number]) * PAGE


@pytest.mark.parametrize("then", [0, 2, 1000])
def test_what_an_interrupt_leaves_of_a_beginning_is_waited_for_or_over(
    then: int, patient: None, file: PosixFile
) -> None:
    interrupted = begun = 0
    for count in range(200):
        poller = polled.Poller()
        page = filled(count)
        before, struck = sys.gettrace(), True
        try:
            sys.settrace(strike_at(count, then))
            struck = not poller.begin(file.fd, page, 0)
        except KeyboardInterrupt:
            interrupted += 1
        finally:
            sys.settrace(before)
        if not struck:
            assert poller.write(file.fd, page, 0) == PAGE
            poller.close()
            break
        unlock(poller)
        if poller._begun is None:
            page[:] = bytes([250]) * PAGE
            assert page_of(file, 0) in (bytes([count]) * PAGE, bytes([max(0, count - 1)]) * PAGE)
        else:
            begun += 1
            assert poller.write(file.fd, page, 0) == PAGE
            assert page_of(file, 0) == page
        os.pwrite(file.fd, filled(count), 0)
        poller.close()
    assert interrupted > 10
    assert begun > 0


def test_after_an_interrupt_no_page_of_one_log_is_written_into_another(poller: polled.Poller, tmp_path: Path) -> None:
    """Two queue managers of one process have one of these, which remembers whose page it wrote last."""
    files = [PosixDisk().open(f"{tmp_path}/{name}", create=True, direct=True) for name in "ab"]
    pages = [filled(1), filled(2)]
    for file in files:
        file.write(0, PosixDisk().buffer(2 * PAGE))
    for count in range(100):
        assert poller.write(files[0].fd, pages[0], 0) == PAGE
        before = sys.gettrace()
        try:
            sys.settrace(strike_at(count, 10_000))
            poller.write(files[1].fd, pages[1], 0)
        except KeyboardInterrupt:
            struck = True
        else:
            struck = False
        finally:
            sys.settrace(before)
        unlock(poller)
        assert poller.write(files[0].fd, pages[0], PAGE) == PAGE
        assert page_of(files[0], 1) == pages[0], f"struck at line {count}"
        if not struck:
            break
    assert count > 10
    for file in files:
        file.close()


def test_an_interrupt_while_another_context_is_made_is_heard(
    poller: polled.Poller, file: PosixFile, monkeypatch: pytest.MonkeyPatch
) -> None:
    call, left = poller._call, [KeyboardInterrupt()]
    poller.close()

    def struck(number: int, *rest: Any) -> int:
        answer: int = call(number, *rest)
        if number == poller._destroy and left:
            raise left.pop()
        return answer

    monkeypatch.setattr(poller, "_call", struck)
    with pytest.raises(KeyboardInterrupt):
        poller.write(file.fd, filled(1), 0)
    assert poller.write(file.fd, filled(2), 0) == PAGE
    assert page_of(file, 0) == bytes([2]) * PAGE


def test_where_others_have_all_contexts_it_is_tried_again_later(
    patient: None, file: PosixFile, monkeypatch: pytest.MonkeyPatch
) -> None:
    begin, left = polled.Poller._begin, [OSError(errno.EAGAIN, "none left")] * 2

    def none_left(self: polled.Poller) -> None:
        begin(self)
        if left:
            self.close()
            raise left.pop()

    monkeypatch.setattr(polled.Poller, "_begin", none_left)
    poller = polled.Poller()
    for number in range(2):
        for _ in range(polled.MAX_BACKOFF):
            assert poller.write(file.fd, filled(9), 0) == -1
        assert poller.write(file.fd, filled(3), 0) == (-1 if not number else PAGE)
    assert page_of(file, 0) == bytes([3]) * PAGE
    poller.close()
    monkeypatch.setattr(polled, "_is_mapped", lambda libc, address: False)  # of a system that only looks like Linux
    with pytest.raises(OSError, match="does not show"):
        polled.Poller()


def test_it_is_known_whether_there_is_memory_before_it_is_read() -> None:
    poller = polled.Poller()
    assert polled._is_mapped(poller._libc, poller._context.value)
    assert not polled._is_mapped(poller._libc, 0x1000), "where no system has memory of a process"
    assert not polled._is_mapped(poller._libc, 7), "no address at all"
    poller.close()


@pytest.mark.parametrize("poller", [Asking], indirect=True)
@pytest.mark.parametrize("times", [1, 2, 3, 100])
def test_it_is_waited_for_where_memory_is_short(
    times: int, poller: polled.Poller, file: PosixFile, monkeypatch: pytest.MonkeyPatch
) -> None:
    call, left = poller._call, [MemoryError()] * times

    def short(number: int, *rest: Any) -> int:
        if number in (poller._get_events, poller._destroy) and left:
            raise left.pop()
        answer: int = call(number, *rest)
        return answer

    monkeypatch.setattr(poller, "_call", short)
    monkeypatch.setattr(posix_file, "_pollers", [poller])
    file.honours_dsync = True
    with pytest.raises(MemoryError):
        file.write_durably(0, filled(1), may_poll=True)
    assert page_of(file, 0) == bytes([1]) * PAGE
    file.write_durably(0, filled(2), may_poll=True)
    assert page_of(file, 0) == bytes([2]) * PAGE
    left += [MemoryError()] * 1000
    with pytest.raises(OSError, match="not known whether"):  # which ends the log
        file.write_durably(0, filled(3), may_poll=True)
    left.clear()


def test_where_the_disk_takes_long_it_is_tried_ever_less_often(
    poller: polled.Poller, file: PosixFile, monkeypatch: pytest.MonkeyPatch
) -> None:
    shown, not_yet = poller._tail, NotYet()  # some disks have done it before anybody looks
    monkeypatch.setattr(poller, "_tail", not_yet)
    monkeypatch.setattr(polled, "POLL_MAX_NS", 0)
    pauses = []
    for number in range(1, 2000):
        if poller.write(file.fd, filled(number % 251), 0) == PAGE:
            assert page_of(file, 0) == bytes([number % 251]) * PAGE, "what was begun is ended"
            pauses.append(number)
    assert [after - before - 1 for before, after in itertools.pairwise(pauses)] == [16, 32, 64, 128, 256, 512]
    poller._backoff, poller._skips_left = polled.MAX_BACKOFF, 0
    poller.write(file.fd, filled(1), 0)
    assert (poller._backoff, poller._skips_left) == (polled.MAX_BACKOFF, polled.MAX_BACKOFF)
    monkeypatch.setattr(polled, "POLL_MAX_NS", 60_000_000_000)
    monkeypatch.setattr(poller, "_tail", shown)
    poller._backoff, poller._skips_left = 64, 0
    for _ in range(polled.BACKOFF_HALVED_AFTER):
        assert poller._backoff == 64
        poller.write(file.fd, filled(1), 0)
    assert (poller._backoff, poller._skips_left) == (32, 0)
    monkeypatch.setattr(poller, "_tail", not_yet)
    monkeypatch.setattr(polled, "PREEMPTED_NS", 0)
    poller.write(file.fd, filled(1), 0)
    assert (poller._backoff, poller._skips_left, poller._in_time) == (64, 32, 0)
    monkeypatch.setattr(polled, "STARVED_NS", 0)
    poller._skips_left = 0
    poller.write(file.fd, filled(1), 0)
    assert (poller._backoff, poller._skips_left) == (128, polled.MAX_BACKOFF)


def test_a_call_that_somebody_has_put_in_the_place_of_the_systems_is_made(
    file: PosixFile, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen = []
    pwritev = os.pwritev

    def see(fd: int, data: list[memoryview], at: int, flags: int) -> int:
        seen.append(at)
        return pwritev(fd, data, at, flags)

    monkeypatch.setattr(os, "pwritev", see)
    file.honours_dsync = True
    file.write_durably(PAGE, filled(3), may_poll=True)
    assert seen == [PAGE]


def test_what_was_put_there_before_we_came_is_made_too() -> None:
    code = """if True:
        import os
        pwritev = os.pwritev
        os.pwritev = lambda *args: pwritev(*args)
        from logger import posix_file
        print(posix_file._poller())
    """
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "None\n"


@pytest.mark.parametrize(("tracer", "looks"), [("0", True), ("4711", False)])
def test_a_process_that_is_traced_makes_the_usual_calls(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, tracer: str, looks: bool
) -> None:
    (tmp_path / "status").write_text(f"Name:\tpython\nTracerPid:\t{tracer}\nUid:\t0\t0\t0\t0\n")
    monkeypatch.setattr(posix_file, "STATUS", f"{tmp_path}/status")
    monkeypatch.setattr(posix_file, "_pollers", [])
    assert (posix_file._poller() is not None) is looks


@pytest.mark.parametrize(
    ("name", "between"),
    [
        ("fdatasync", False),
        ("Py_IsInitialized", True),
        ("cos", platform.libc_ver()[0] == "glibc"),  # in a library of its own there, and maybe in a stub of Python's
        ("no_such_function", False),
    ],
)
def test_a_library_that_writes_in_the_place_of_the_c_library_is_let_see_it(
    monkeypatch: pytest.MonkeyPatch, name: str, between: bool
) -> None:
    """Python has one of them here, as a library of LD_PRELOAD has the others."""
    monkeypatch.setattr(polled, "LIBC_WRITES", ("pwritev2", name))
    if between:
        with pytest.raises(OSError, match="a library that came before the C library writes for this process"):
            polled.Poller()
    else:
        polled.Poller().close()


@pytest.mark.parametrize("python", PYTHONS)
def test_a_stub_in_the_program_is_no_library_that_came_before(python: str) -> None:
    """A Python that is linked for a fixed address, as Debian's, has one where it takes the address of a function."""
    code = f"""if True:
        import runpy
        polled = runpy.run_path({polled.__file__!r})
        polled["Poller"]().close()
        print(polled["_library_base"](polled["ctypes"].CDLL(None), "Py_IsInitialized") is not None)
    """
    done = subprocess.run([python, "-I", "-c", code], capture_output=True, text=True, check=False)
    assert (done.stdout, done.stderr) == ("True\n", "")


def test_a_force_looks_for_its_end_unless_others_have_waited_lately(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[bool] = []
    write_durably = PosixFile.write_durably

    def note(self: PosixFile, offset: int, data: Buffer, *, may_poll: bool = False) -> None:
        if len(data) == PAGE:
            asked.append(may_poll)
        write_durably(self, offset, data, may_poll=may_poll)

    qmgr.create("LONE", data_path=tmp_path)
    with qmgr.start("LONE", data_path=tmp_path, background=False) as qm:
        qm.define_queue("A")
        monkeypatch.setattr(PosixFile, "write_durably", note)
        qm.put("A", b"one")
        assert asked == [True]
        log = qm._engine.log
        with log.lock:
            log._contended = 5  # as forces leave it after one that others waited for
        asked.clear()
        for _ in range(7):
            qm.put("A", b"more")
        assert asked == [False] * 5 + [True] * 2
        monkeypatch.undo()


def test_what_a_queue_manager_forces_so_is_there_when_it_is_killed(
    tmp_path: Path, patient: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    looked: list[int] = []
    write = polled.Poller.write

    def note(self: polled.Poller, fd: int, data: memoryview, offset: int) -> int:
        looked.append(write(self, fd, data, offset))
        return looked[-1]

    monkeypatch.setattr(posix_file, "_honours_dsync", lambda fd: True)
    monkeypatch.setattr(posix_file, "_pollers", [])
    monkeypatch.setattr(polled.Poller, "write", note)
    qmgr.create("LONE", data_path=tmp_path)
    qm = qmgr.start("LONE", data_path=tmp_path, background=False)
    qm.define_queue("A")
    for number in range(20):
        qm.put("A", b"%d" % number)
    qm.abandon()
    assert looked.count(PAGE) >= 20
    with qmgr.start("LONE", data_path=tmp_path, background=False) as again:
        assert [message.body for message in again.browse("A")] == [b"%d" % number for number in range(20)]


FORKED = """
import os, sys
from logger.disk import PAGE
from logger.posix_disk import PosixDisk
from logger.posix_file import _pollers
file = PosixDisk().open(sys.argv[1], create=True, direct=True)
file.honours_dsync = True
page = PosixDisk().buffer(PAGE)
file.write_durably(0, page, may_poll=True)
first = _pollers[:]
child = os.fork()
page[:3] = b"two" if child else b"one"
if not child:
    assert not _pollers
file.write_durably(PAGE if child else 0, page, may_poll=True)
if child:
    assert _pollers == first and len(first) == 1 and first[0] is not None
    assert os.waitpid(child, 0)[1] == 0
    found = open(sys.argv[1], 'rb').read()
    print(found[:3], found[PAGE:PAGE + 3])
"""


def test_a_forked_child_has_its_own(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", FORKED, f"{tmp_path}/f"],
        cwd=Path(qmgr.__file__).parents[1],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert (done.stdout, done.stderr) == ("b'one' b'two'\n", "")
