"""Work in a process of its own, for what must begin in an empty one or end without an end."""

import multiprocessing
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from typing import ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")

SPAWN = multiprocessing.get_context("spawn")


def alone(function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """Return what `function` returns in a new process."""
    with ProcessPoolExecutor(1, mp_context=SPAWN) as pool:
        return pool.submit(function, *args, **kwargs).result()


def crash(function: Callable[P, None], *args: P.args, **kwargs: P.kwargs) -> None:
    """Run `function` in a new process, which is expected to die in it with os._exit(9)."""
    child = SPAWN.Process(target=function, args=args, kwargs=dict(kwargs))
    child.start()
    child.join()
    if child.exitcode != 9:
        raise RuntimeError(f"{function.__name__} ended with exit code {child.exitcode}, not with its crash")
