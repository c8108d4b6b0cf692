"""Clients at once on queues that fill and empty: each keeps a ledger of what it was told, and that is what there is."""

import contextlib
import random
from collections import Counter
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

import qmgr
from qmgr import UowState
from qmgr.daemon import calls
from qmgr.errors import NoMessageAvailable, QueueFull
from tests.conftest import SOAK
from tests.daemon.serving import LONG, Served, serving
from tests.qmgr.world import Call

CLIENTS = 4
UNITS = 100  # of each client
DEPTH = 100  # where a queue is full: for much of the time, and others make room in the midst of a client's calls
MANY = 60  # messages of one call, at most: a third of them are no quick calls here
QUEUES = ("A", "B")


@contextlib.contextmanager
def refused(unit: qmgr.UnitOfWork) -> Iterator[None]:
    """The call may be refused: then it has done nothing, and the unit of work goes on."""
    try:
        yield
    except QueueFull:
        if unit.state is UowState.BACKED_OUT:  # no call of this block, but one before: a `send`
            raise


class Ledger:
    """The messages that one client has put and got in units of work that were committed."""

    def __init__(self, name: str, seed: int) -> None:
        self.put: Counter[bytes] = Counter()
        self.got: Counter[bytes] = Counter()
        self._choose = random.Random(f"{name} {seed}")
        self._bodies = (b"%s-%d" % (name.encode(), number) for number in range(1 << 30))

    def work(self, qm: qmgr.Connection) -> None:
        for _ in range(UNITS):
            self._put: list[bytes] = []
            self._got: list[bytes] = []
            unit = qm.begin()
            try:
                for _ in range(self._choose.randint(1, 4)):
                    self._call(unit)
                if self._choose.random() < 0.2:
                    unit.backout()
                    continue
                unit.commit()
            except QueueFull:  # of what was sent
                assert unit.state is UowState.BACKED_OUT
                continue
            self.put.update(self._put)
            self.got.update(self._got)

    def _call(self, unit: qmgr.UnitOfWork) -> None:
        queue, number = self._choose.choice(QUEUES), self._choose.randint(1, MANY)
        match self._choose.choice(["put", "send", "send", "put_many", "get", "get_many", "get_many"]):
            case "put":
                body = next(self._bodies)
                with refused(unit):
                    unit.put(queue, body)
                    self._put.append(body)
            case "send":
                for body in self._some(number):
                    unit.send(queue if self._choose.random() < 0.9 else self._choose.choice(QUEUES), body)
                    self._put.append(body)
            case "put_many":
                bodies = self._some(number)
                with refused(unit):
                    unit.put_many(queue, bodies)
                    self._put += bodies
            case "get":
                with contextlib.suppress(NoMessageAvailable):
                    self._got.append(unit.get(queue, wait=self._choose.choice([0, 0.01])).body)
            case _:
                self._got += [message.body for message in unit.get_many(queue, number)]

    def _some(self, number: int) -> list[bytes]:
        return [next(self._bodies) for _ in range(number)]


@pytest.fixture
def served(tmp_path: Path) -> Iterator[Served]:
    with serving(tmp_path) as one:
        for queue in QUEUES:
            one.manager.alter_queue(queue, max_depth=DEPTH)
        yield one


@pytest.mark.parametrize("seed", range(200 if SOAK else 2))
def test_what_clients_were_told_is_what_there_is(served: Served, monkeypatch: pytest.MonkeyPatch, seed: int) -> None:
    monkeypatch.setattr(calls, "MAX_QUICK", MANY * 2 // 3)
    ledgers = [Ledger(f"client {number}", seed) for number in range(CLIENTS)]
    with contextlib.ExitStack() as stack:
        working = [Call(partial(ledger.work, stack.enter_context(served.connect()))) for ledger in ledgers]
        for one in working:
            one.outcome(LONG)
    put = sum((ledger.put for ledger in ledgers), Counter[bytes]())
    got = sum((ledger.got for ledger in ledgers), Counter[bytes]())
    left = Counter(message.body for queue in QUEUES for message in served.manager.browse(queue))
    assert got.total() > 0
    assert got + left == put
