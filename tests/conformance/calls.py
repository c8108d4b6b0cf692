"""What the tests of all faces share: refusals with their reason and name, waiting for what happens elsewhere."""

import contextlib
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

import qmgr
from qmgr import Reason
from tests.qmgr.world import bodies as bodies
from tests.qmgr.world import drain as drain

DEADLINE = 30  # seconds: for what happens at once, on a machine that does much else


def until(condition: Callable[[], bool]) -> None:
    """Wait for something that another thread or process is about to do."""
    deadline = time.monotonic() + DEADLINE
    while not condition():
        assert time.monotonic() < deadline, "it does not happen"
        time.sleep(0.002)


@contextlib.contextmanager
def refused(
    kind: type[qmgr.MQError], reason: Reason, name: str | None = None, match: str | None = None
) -> Iterator[None]:
    """What is called inside raises exactly this: class, reason, the name of the object, and a sentence that ends so."""
    with pytest.raises(qmgr.MQError, match=match) as caught:
        yield
    error = caught.value
    assert type(error) is kind, f"{error!r} is not a {kind.__name__}"
    assert type(error.reason) is Reason
    assert error.reason == reason
    assert str(error).endswith(f"({reason.value} MQRC_{reason.name})")
    assert str(error).count("MQRC_") == 1
    if name is not None:
        assert error.name == name


def facts(message: qmgr.Message) -> dict[str, Any]:
    """All that a message says but the seconds it has left."""
    assert type(message) is qmgr.Message
    names = (
        *("body", "message_id", "correlation_id", "priority", "persistent", "backout_count", "queue"),
        *("reply_to", "format", "put_time"),
    )
    return {name: getattr(message, name) for name in names} | {"properties": dict(message.properties)}
