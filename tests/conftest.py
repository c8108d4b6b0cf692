"""How deep the random tests look: `ci`, quick, unless HYPOTHESIS_PROFILE=soak or QMGR_SOAK is set. Small segments."""

import gc
import os
import signal
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import HealthCheck, settings

from tests.commands import Commands
from tests.sim.paging import Counted, make_small

SOAK = bool(os.environ.get("QMGR_SOAK")) or os.environ.get("HYPOTHESIS_PROFILE") == "soak"

settings.register_profile(
    "ci",
    deadline=None,
    max_examples=32,
    print_blob=True,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
settings.register_profile("soak", settings.get_profile("ci"), max_examples=5000)
settings.load_profile("soak" if SOAK else "ci")

# Whoever starts tests in the background may have them ignore it, and what they start would ignore it too.
signal.signal(signal.SIGINT, signal.default_int_handler)


# They last longest, or wait for other processes: at the end, where their names are, workers would wait for them.
LONG = ("test_sigkill.py", "test_work_while_a_checkpoint_writes.py", "test_full_lives.py")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Workers begin with what is long; a run without workers has the order of names."""
    if hasattr(config, "workerinput"):
        items.sort(key=lambda item: item.path.name not in LONG)


@pytest.hookimpl(trylast=True)
def pytest_collection_finish() -> None:
    """What is there now stays, so garbage need not be looked for in it; and lives make much that goes at once."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(10_000, 10, 10)


@pytest.fixture
def small_segments(monkeypatch: pytest.MonkeyPatch) -> Counted:
    """Segments and blocks are small, so that queues of a few messages are deep; what paging does is counted."""
    make_small(monkeypatch)
    return Counted(monkeypatch)


@pytest.fixture(scope="session")
def commands() -> Iterator[Commands]:
    """Runs commands in processes that are there already."""
    made = Commands()
    yield made
    made.close()


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    if config.getoption("dist") != "loadgroup":
        return None
    from tests.scheduling import Scheduling

    return Scheduling(config, log)
