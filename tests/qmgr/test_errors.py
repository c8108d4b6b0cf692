"""The tree of errors, sorted by what the caller should do."""

import queue

import pytest

import qmgr
from qmgr import Reason, errors

TREE = {
    qmgr.NoMessageAvailable: (qmgr.TryAgain, 2033),
    qmgr.QueueFull: (qmgr.TryAgain, 2053),
    qmgr.ResourceProblem: (qmgr.TryAgain, 2102),
    qmgr.StorageFull: (qmgr.TryAgain, 2192),
    qmgr.BackedOut: (qmgr.MQError, 2003),
    qmgr.UnknownQueue: (qmgr.Mistake, 2085),
    qmgr.AlreadyExists: (qmgr.Mistake, 2100),
    qmgr.ObjectInUse: (qmgr.Mistake, 2042),
    qmgr.MessageTooBig: (qmgr.Mistake, 2030),
    qmgr.SyncpointLimit: (qmgr.Mistake, 2024),
    qmgr.Inhibited: (qmgr.Mistake, 2051),
    qmgr.UnitOfWorkEnded: (qmgr.Mistake, 2255),
    errors.NameError_: (qmgr.Mistake, 2152),
    qmgr.IniError: (qmgr.Mistake, 2046),
    qmgr.Damaged: (qmgr.MQError, 2101),
    qmgr.Unavailable: (qmgr.MQError, 2059),
    qmgr.InUse: (qmgr.Unavailable, 2059),
}


@pytest.mark.parametrize("kind", TREE, ids=lambda kind: kind.__name__)
def test_place_and_default_reason(kind: type[qmgr.MQError]) -> None:
    above, reason = TREE[kind]
    assert issubclass(kind, above)
    error = kind("what happened", name="Q")
    assert (error.reason, error.name) == (reason, "Q")
    assert str(error) == f"what happened ({reason} MQRC_{Reason(reason).name})"


def test_every_error_of_the_interface_is_in_the_tree() -> None:
    public = {value for value in vars(qmgr).values() if isinstance(value, type) and issubclass(value, qmgr.MQError)}
    assert public - {qmgr.MQError, qmgr.TryAgain, qmgr.Mistake} <= set(TREE)
    assert all(name in qmgr.__all__ for name in vars(qmgr) if isinstance(getattr(qmgr, name), type))


def test_queues_of_the_standard_library_feel_at_home() -> None:
    assert issubclass(qmgr.NoMessageAvailable, queue.Empty)
    assert issubclass(qmgr.QueueFull, queue.Full)
