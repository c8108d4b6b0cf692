"""Tests in a process of their own, with no thread but their own: for what nobody else can bear beside it.

Where allocations are let fail all threads of the process meet that, and those that other tests, or pytest's workers,
have left running end by it. Python 3.11 bears it otherwise; 3.12 and 3.13 end with a segmentation fault where memory
fails in a comprehension.
"""

import functools
import gc
import os
import sys
import traceback
from collections.abc import Callable
from typing import Any

import pytest


def alone(test: Callable[..., None]) -> Callable[..., None]:
    """Run the test in a child of this process, which is made as the test begins."""

    @functools.wraps(test)
    def run(*args: Any, **kwargs: Any) -> None:
        pytest.importorskip("_testcapi", reason="this Python can't let allocations fail")
        if sys.version_info >= (3, 12):
            pytest.skip("this Python crashes where allocations fail")
        said, says = os.pipe()
        child = os.fork()
        if child == 0:
            text = ""
            gc.disable()  # what other tests have left may not bear to be collected without memory
            try:
                test(*args, **kwargs)
            except BaseException:
                text = traceback.format_exc()
            finally:
                os.write(says, text.encode()[-60_000:])
                os._exit(bool(text))
        os.close(says)
        with os.fdopen(said) as pipe:
            text = pipe.read()
        _, status = os.waitpid(child, 0)
        code = os.waitstatus_to_exitcode(status)
        assert (text, code) == ("", 0), f"it ended with {code}, and said: {text}"

    return run
