"""Daemons and clients that are killed under load: what was committed is there once, and nothing else; faults 35, 64."""

import re
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

import qmgr
from tests.conformance.calls import DEADLINE, until
from tests.conformance.faces import FACES
from tests.conformance.nursery import Daemon, Nursery, halt
from tests.conftest import SOAK
from tests.qmgr.world import NAME, SMALL, Call

SEED = 5  # messages that are there before anybody works, so that each finds one
CLIENTS = (0, 0, 4)  # how many tasks each of them has; 0: it is not asynchronous


class Client:
    """A client in a process of its own, and what it has told."""

    def __init__(self, data: Path, number: int, tasks: int) -> None:
        self.done: set[str] = set()
        self.trying: set[str] = set()  # the units of work of which it has not said how they ended
        self.lost = 0
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.daemon.kill_client", str(data), str(number), str(tasks)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self._reader = threading.Thread(target=self._listen, daemon=True)
        self._reader.start()

    def _listen(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            match line.split():
                case ["try", body]:
                    self.trying.add(body)
                case ["done", body]:
                    self.done.add(body)
                    self.trying.discard(body)
                case ["not", body]:
                    self.trying.discard(body)
                case ["lost"]:
                    self.lost += 1

    def say(self, word: str) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(word + "\n")
        self._process.stdin.flush()

    def work(self, units: int) -> None:
        """Wait until it has done so many more units of work."""
        wanted = len(self.done) + units
        until(lambda: len(self.done) >= wanted or self._process.poll() is not None)
        assert self._process.poll() is None, "the client has ended"

    def kill(self) -> None:
        self._process.send_signal(signal.SIGKILL)
        self.wait()

    def wait(self) -> int:
        """Its exit code, when all that it has told was heard."""
        code = self._process.wait(DEADLINE)
        self._reader.join(DEADLINE)
        return code

    def close(self) -> None:
        self._process.kill()
        self.wait()
        for stream in (self._process.stdin, self._process.stdout):
            assert stream is not None
            stream.close()


class Scene:
    """A queue manager, its daemon, and clients at work."""

    def __init__(self, nursery: Nursery, data: Path) -> None:
        self._nursery = nursery
        self._data = data
        self.daemon: Daemon
        self.start()
        with self.connect() as qm:
            for name in ("IN", "OUT"):
                qm.define_queue(name)
            qm.put_many("IN", [b"0.%d" % n for n in range(SEED)])
        self.clients = [Client(data, number, tasks) for number, tasks in enumerate(CLIENTS, 1)]

    def start(self) -> None:
        self.daemon = self._nursery.start(self._data)

    def connect(self) -> qmgr.Connection:
        return qmgr.connect(NAME, data_path=self._data, application="audit")

    def crash(self, word: str = "go") -> None:
        """Kill the daemon while they work, start it again, and let them go on, or stop."""
        before = [client.lost for client in self.clients]
        assert self.daemon.kill() == -signal.SIGKILL
        until(lambda: all(client.lost > n for client, n in zip(self.clients, before, strict=True)))
        self.start()
        for client in self.clients:
            client.say(word)

    def audit(self, uncertain: set[str]) -> None:
        """IN and OUT hold what was committed, each message once, and OUT what every unit has moved."""
        with self.connect() as qm:
            until(lambda: qm.transactions() == [])
            there = {name: [body_of(message) for message in qm.browse(name)] for name in ("IN", "OUT")}
            depths = {name: qm.queue(name).depth for name in there}
        found = there["IN"] + there["OUT"]
        assert len(found) == len(set(found)), "a message is there twice"
        committed = {f"0.{n}" for n in range(SEED)}.union(*[client.done for client in self.clients])
        assert committed <= set(found), "a message that was committed is lost"
        assert set(found) - committed <= uncertain, "a message of a unit of work that was not committed is there"
        assert depths == {name: len(messages) for name, messages in there.items()}
        assert len(there["IN"]) == SEED  # each unit puts one and takes one

    def close(self) -> None:
        for client in self.clients:
            client.close()
        self.daemon.kill()


def body_of(message: qmgr.Message) -> str:
    return re.sub(r"\.+$", "", message.body.decode())


@pytest.fixture(scope="module")
def nursery() -> Iterator[Nursery]:
    with Nursery() as made:
        yield made


@pytest.fixture(params=["circular", "linear"])
def scene(request: pytest.FixtureRequest, tmp_path: Path, nursery: Nursery) -> Iterator[Scene]:
    linear = {"log_type": "linear", "log_secondary_files": 20} if request.param == "linear" else {}
    roomy = {"log_file_pages": 8192 if SOAK else 512}  # so that the log reaches back to whatever is asked for
    qmgr.create(NAME, data_path=tmp_path, **(SMALL | linear | roomy))
    made = Scene(nursery, tmp_path)
    yield made
    made.close()


def test_rows_35_and_64_what_was_committed_is_there_once_whoever_is_killed(scene: Scene) -> None:
    """The daemon, and a client: whose answer was lost asks for the outcome, so only the dead one's is uncertain."""
    for turn in range(20 if SOAK else 2):
        for client in scene.clients:
            client.work(3 + 3 * turn)
        scene.crash()
    first, killed, last = scene.clients
    killed.work(3)
    killed.kill()
    for client in (first, last):  # also with the messages that it had
        client.work(8)
    with scene.connect() as qm:
        until(lambda: len([one for one in qm.connections() if one.number]) == 3)  # with this one
    scene.clients = [first, last]
    scene.crash("stop")
    for client in scene.clients:
        assert client.wait() == 0
        assert client.trying == set()
    scene.clients.append(killed)
    scene.audit(killed.trying)


@pytest.mark.parametrize("face", ["client", "awaited client"])
def test_nobody_says_what_became_of_a_unit_whose_prepare_was_not_answered(
    face: str, tmp_path: Path, nursery: Nursery
) -> None:
    """It may be in doubt, so it was not backed out: only the queue manager can tell."""
    place, others = FACES[face](tmp_path, {}, nursery), nursery.running
    place.open()
    queue, xid = place.queue(), qmgr.Xid(1, b"global", b"branch")
    unit = place.qm.begin(xid)
    unit.put(queue, b"x")
    [daemon] = [one for one in nursery.running if one not in others]
    halt(daemon.pid)
    preparing = Call(unit.prepare)
    place.crash()
    for call in (lambda: preparing.outcome(DEADLINE), unit.commit, unit.backout, lambda: unit.put(queue, b"y")):
        with pytest.raises(qmgr.Unavailable, match=r"if in_doubt\(\) names its Xid") as caught:
            call()
        assert caught.value.reason == qmgr.Reason.CONNECTION_BROKEN
    for found in place.qm.in_doubt():
        place.qm.resolve(found, commit=False)
    assert place.qm.queue(queue).depth == 0
    place.close()
    place.stop()


@pytest.mark.parametrize("face", ["client", "awaited client"])
@pytest.mark.parametrize("end", ["commit", "backout"])
def test_the_end_of_a_prepared_unit_that_was_not_answered_says_how_to_find_out(
    face: str, end: str, tmp_path: Path, nursery: Nursery
) -> None:
    place, others = FACES[face](tmp_path, {}, nursery), nursery.running
    place.open()
    queue, xid = place.queue(), qmgr.Xid(1, b"global", b"branch")
    unit = place.qm.begin(xid)
    unit.put(queue, b"x")
    unit.prepare()
    number = unit.id
    [daemon] = [one for one in nursery.running if one not in others]
    halt(daemon.pid)
    ending = Call(getattr(unit, end))
    place.crash()
    for call in (lambda: ending.outcome(DEADLINE), getattr(unit, end)):
        with pytest.raises(qmgr.Unavailable, match=rf"if in_doubt\(\) names its Xid.*outcome\({number}\)") as caught:
            call()
        assert caught.value.reason == qmgr.Reason.CONNECTION_BROKEN
    for found in place.qm.in_doubt():
        place.qm.resolve(found, commit=end == "commit")
    assert place.qm.queue(queue).depth == (1 if end == "commit" else 0)
    place.close()
    place.stop()
