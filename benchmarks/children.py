"""Work in a process of its own, for what must begin in an empty one or end without an end."""

import contextlib
import multiprocessing
import os
import socket
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from functools import partial
from multiprocessing.synchronize import Event
from pathlib import Path
from typing import Any, Concatenate, ParamSpec, TypeVar

import qmgr
from benchmarks.measure import Slice
from benchmarks.put_get import SECONDS

P = ParamSpec("P")
T = TypeVar("T")

SPAWN = multiprocessing.get_context("spawn")


def alone(function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """Return what `function` returns in a new process."""
    with ProcessPoolExecutor(1, mp_context=SPAWN) as pool:
        return pool.submit(function, *args, **kwargs).result()


def free_port() -> int:
    """One for a server in such a process."""
    with socket.create_server(("127.0.0.1", 0)) as one:
        return int(one.getsockname()[1])


def worked_below() -> float:
    """Seconds of processor time of all processes that this one has begun, and of theirs; Linux tells."""
    times: dict[int, list[int]] = {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):  # it has ended
            head, _, tail = path.read_text().rpartition(")")
            times[int(head.split()[0])] = [int(field) for field in tail.split()[1:15]]
    below, ticks = {os.getpid()}, 0
    while more := {number for number, fields in times.items() if fields[0] in below and number not in below}:
        below |= more
        ticks += sum(sum(times[number][10:14]) for number in more)  # with those children of theirs that have ended
    return ticks / os.sysconf("SC_CLK_TCK")


def crash(function: Callable[P, None], *args: P.args, **kwargs: P.kwargs) -> None:
    """Run `function` in a new process, which is expected to die in it with os._exit(9)."""
    child = SPAWN.Process(target=function, args=args, kwargs=dict(kwargs))
    child.start()
    child.join()
    if child.exitcode != 9:
        raise RuntimeError(f"{function.__name__} ended with exit code {child.exitcode}, not with its crash")


def kill(function: Callable[Concatenate[Event, P], None], seconds: float, *args: P.args, **kwargs: P.kwargs) -> None:
    """Run `function` in a new process, and kill that so many seconds after it has set the event."""
    begun = SPAWN.Event()
    child = SPAWN.Process(target=function, args=(begun, *args), kwargs=dict(kwargs))
    child.start()
    while not begun.wait(0.1):
        if not child.is_alive():
            break
    time.sleep(seconds)
    child.kill()
    child.join()
    if child.exitcode != -9:
        raise RuntimeError(f"{function.__name__} ended with exit code {child.exitcode} before it was killed")


class Host:
    """A process that has a queue manager started."""

    def __init__(self, pool: ProcessPoolExecutor) -> None:
        self._pool = pool

    def call(self, function: Callable[Concatenate[qmgr.QueueManager, P], T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Return what `function` returns there."""
        done: Future[T] = self._pool.submit(_with_manager, function, *args, **kwargs)
        return done.result()


class Crowd:
    """Several processes that work at the same time."""

    def __init__(self, count: int, begin: Callable[P, object], *args: P.args, **kwargs: P.kwargs) -> None:
        """Each of them calls `begin` first."""
        self._count = count
        self._pool = ProcessPoolExecutor(count, mp_context=SPAWN, initializer=partial(begin, *args, **kwargs))
        for done in [self._pool.submit(time.sleep, 0.2) for _ in range(count)]:  # so that each gets one
            done.result()

    def together(self, work: Callable[[float], int]) -> Slice:
        """All begin `work` at the same moment, which it is told, and work for one slice; the steps of all together."""
        begin = time.monotonic() + 0.1
        done = [self._pool.submit(work, begin) for _ in range(self._count)]
        steps = sum(each.result() for each in done)
        return Slice(rate=steps / SECONDS, p50=0.0, p99=0.0, steps=steps)

    def close(self) -> None:
        self._pool.shutdown()


def steps_from(begin: float, step: Callable[[], object]) -> int:
    """Call `step` for one slice from the moment `begin` on (time.monotonic); return how often."""
    done = 0
    while time.monotonic() < begin:
        time.sleep(0.001)
    while time.monotonic() < begin + SECONDS:
        step()
        done += 1
    return done


_here: list[qmgr.QueueManager] = []  # in the process of a host: its queue manager


def _begin(path: Path) -> None:
    _here.append(qmgr.start("BENCH", data_path=path))


def _with_manager(function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    return function(_here[0], *args, **kwargs)


@contextlib.contextmanager
def host(path: Path) -> Iterator[Host]:
    """A process with the queue manager below `path`, which is ended in order when the block is left."""
    with ProcessPoolExecutor(1, mp_context=SPAWN, initializer=_begin, initargs=(path,)) as pool:
        one = Host(pool)
        yield one
        one.call(qmgr.QueueManager.end)
