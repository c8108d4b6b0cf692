"""The tree of errors, sorted by what the caller should do."""

import copy
import pickle
import queue
from collections.abc import Callable

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
    qmgr.NotAuthorized: (qmgr.Mistake, 2035),
    qmgr.UnitOfWorkEnded: (qmgr.Mistake, 2255),
    errors.NameError_: (qmgr.Mistake, 2152),
    qmgr.IniError: (qmgr.Mistake, 2046),
    qmgr.BookmarkTooOld: (qmgr.Mistake, 2046),
    qmgr.AliasOfAlias: (qmgr.Mistake, 2001),
    qmgr.Damaged: (qmgr.MQError, 2101),
    qmgr.MediaNotSupported: (qmgr.Mistake, 2298),
    qmgr.NotImageRecoverable: (qmgr.Mistake, 2298),
    qmgr.MediaImageMissing: (qmgr.Damaged, 2101),
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


NUMBERS = {
    "BACKED_OUT": 2003,
    "GET_INHIBITED": 2016,
    "SYNCPOINT_LIMIT_REACHED": 2024,
    "MSG_TOO_BIG_FOR_Q": 2030,
    "MSG_TOO_BIG_FOR_Q_MGR": 2031,
    "NO_MSG_AVAILABLE": 2033,
    "OBJECT_IN_USE": 2042,
    "PUT_INHIBITED": 2051,
    "Q_DELETED": 2052,
    "Q_FULL": 2053,
    "Q_NOT_EMPTY": 2055,
    "Q_MGR_NAME_ERROR": 2058,
    "OBJECT_ALREADY_EXISTS": 2100,
    "RESOURCE_PROBLEM": 2102,
    "Q_MGR_QUIESCING": 2161,
    "Q_MGR_STOPPING": 2162,
    "STORAGE_MEDIUM_FULL": 2192,
    "UOW_NOT_AVAILABLE": 2255,
}


@pytest.mark.parametrize("name", NUMBERS)
def test_reason_codes_are_those_of_mq(name: str) -> None:
    assert Reason[name].value == NUMBERS[name]


def test_every_error_of_the_interface_is_in_the_tree() -> None:
    public = {value for value in vars(qmgr).values() if isinstance(value, type) and issubclass(value, qmgr.MQError)}
    assert public - {qmgr.MQError, qmgr.TryAgain, qmgr.Mistake} <= set(TREE)
    assert all(name in qmgr.__all__ for name in vars(qmgr) if isinstance(getattr(qmgr, name), type))


def test_queues_of_the_standard_library_feel_at_home() -> None:
    assert issubclass(qmgr.NoMessageAvailable, queue.Empty)
    assert issubclass(qmgr.QueueFull, queue.Full)


@pytest.mark.parametrize("copied", [copy.copy, copy.deepcopy, lambda one: pickle.loads(pickle.dumps(one))])
def test_it_can_be_copied_and_sent_to_another_process(copied: Callable[[qmgr.MQError], qmgr.MQError]) -> None:
    for one in (qmgr.Unavailable("gone", reason=Reason.CONNECTION_BROKEN, name="QM1"), qmgr.InUse("so", holder="me")):
        again = copied(one)
        assert (type(again), str(again), vars(again)) == (type(one), str(one), vars(one))
