"""A service and its listeners in this process: what happens in which order, and what is left when it can't."""

import contextlib
import errno
import gc
import importlib
import itertools
import os
import resource
import signal
import socket
import threading
from collections.abc import Callable
from typing import Any

import attrs
import pytest

import qmgr
from logger.clock import SystemClock
from qmgr import ini, life
from qmgr.daemon import process
from qmgr.daemon.process import Daemon
from qmgr.daemon.service import MIN_DESCRIPTORS, Makers, Service
from qmgr.daemon.starting import PipeReporter, explain
from qmgr.daemon.systemd import Notifier
from qmgr.daemon.wakeups import Wakeups
from qmgr.errors import BackedOut, Mistake, MQError, Reason, Unavailable
from qmgr.life import Note, Stage
from qmgr.session import AllRights, Peer, Session
from tests.alone import alone
from tests.daemon.daemons import PATIENCE, wait_for
from tests.qmgr.world import DATA, NAME, World
from tests.sim.disk import SimDisk


@attrs.define
class Recorded:
    """A listener that notes what it is told; with `error` it can't start, `at_close` is called as it closes."""

    name: str
    told: list[str]
    error: OSError | None = None
    sessions: list[Session] = attrs.field(factory=list)
    at_close: Callable[[], None] = lambda: None
    at_start: Callable[[], None] = lambda: None

    def start(self) -> None:
        self.told.append(f"{self.name} starts")
        self.at_start()
        if self.error is not None:
            raise self.error

    def refuse(self) -> None:
        self.told.append(f"{self.name} refuses")

    def close(self) -> None:
        self.told.append(f"{self.name} closes")
        self.at_close()
        for session in self.sessions:
            session.close()


class Given:
    """A service on a simulated disk, with listeners that note what they are told."""

    def __init__(self, text: str = "", error: OSError | None = None) -> None:
        self.world = World(start=False)
        self.disk: SimDisk = self.world.disk
        path = f"{DATA}/qmgrs/{NAME}/qm.ini"
        self.disk.poke(path, self.disk.peek(path) + text.encode())
        self.told: list[str] = []
        self.listeners: dict[str, Recorded] = {}

        def maker(fails: OSError | None) -> Callable[[Service, ini.ListenerConfig | None], Recorded]:
            def make(service: Service, config: ini.ListenerConfig | None) -> Recorded:
                name = config.name if config is not None else "local"
                listener = self.listeners[name] = Recorded(name, self.told, fails)
                return listener

            return make

        self.makers: Makers = {None: maker(None), ini.Protocol.STOMP: maker(error)}
        self.service = self.another()

    def another(self) -> Service:
        options: dict[str, Any] = {"data_path": DATA, "disk": self.disk, "clock": SystemClock()}
        return Service(NAME, process=os.getpid(), host="here", makers=self.makers, **options)

    def client(self) -> Session:
        """One that came by the local listener."""
        session = self.service.sessions.open(Peer(user="u"), AllRights())
        self.listeners["local"].sessions.append(session)
        return session

    def note(self) -> Note:
        found = life.last(self.disk, self.service.location)
        assert found is not None
        return found

    def owned(self) -> bool:
        return any(self.disk.locked_by(path) for path in (life.path(self.service.location), self.service.location.lock))

    def errors(self) -> str:
        return self.disk.peek(f"{self.service.location.errors}/AMQERR01.LOG").decode()


STOMP = "Listener:\nName=s\nProtocol=STOMP\nPort=61613\nAuthentication=NONE\n"


def refusal(call: Callable[[], Any]) -> Reason:
    with pytest.raises(MQError) as caught:
        call()
    return caught.value.reason


# Start and end


def test_clients_are_let_in_last_and_turned_away_first() -> None:
    given = Given(STOMP)
    service = given.service
    service.start()
    assert given.told == ["local starts", "s starts"]
    assert given.note() == Note(stage=Stage.RUNNING, process=os.getpid(), host="here", epoch=1)
    assert "AMQ5026I: Listener 's' has started: STOMP on 127.0.0.1, port 61613." in given.errors()
    given.told.clear()
    service.quiesce()
    assert given.told == ["local refuses", "s refuses"]
    assert given.note().stage == "Quiescing"
    assert service.manager.status().state == "quiescing"
    assert not service.busy
    service.end(at_once=False)
    assert given.told[2:] == ["s closes", "local closes"]
    assert given.note().stage == "Ended normally"
    assert not given.owned()
    assert "AMQ9020I: The queue manager ends: no more clients are let in" in given.errors()


def test_a_quiesce_waits_for_units_of_work_and_lets_no_new_one_begin() -> None:
    given = Given()
    service = given.service
    service.start()
    service.manager.define_queue("Q")
    client = given.client()
    unit = client.begin()
    client.put(unit, "Q", b"in flight", {})
    doubtful = client.begin(qmgr.Xid(1, b"g", b"b"))
    client.put(doubtful, "Q", b"in doubt", {})
    client.prepare(doubtful)
    service.quiesce()
    assert service.busy
    assert refusal(client.begin) is Reason.Q_MGR_QUIESCING
    assert refusal(lambda: client.get(None, "Q", wait=None)) is Reason.Q_MGR_QUIESCING
    assert refusal(lambda: service.authority.open("s", Peer(user="v"), AllRights())) is Reason.Q_MGR_QUIESCING
    assert "AMQ9513" not in given.errors()  # that there are too many clients
    client.commit(unit)
    assert not service.busy  # what is in doubt waits for its coordinator, over any number of restarts
    service.end(at_once=False)
    again = given.service = given.another()
    again.start()
    assert again.manager.get("Q").body == b"in flight"
    assert again.manager.in_doubt() == [qmgr.Xid(1, b"g", b"b")]
    again.end(at_once=True)


def test_an_end_at_once_backs_out_and_then_refuses() -> None:
    given = Given()
    service = given.service
    service.start()
    service.manager.define_queue("Q")
    service.manager.put("Q", b"stays")
    client = given.client()
    unit = client.begin()
    client.get(unit, "Q")
    said: list[Reason] = []
    given.listeners["local"].at_close = lambda: said.append(refusal(lambda: client.put(unit, "Q", b"late", {})))
    service.end(at_once=True)
    assert said[0] in (Reason.Q_MGR_STOPPING, Reason.BACKED_OUT)
    with pytest.raises((Unavailable, BackedOut)):
        client.commit(unit)
    client.close()
    assert given.note().stage == "Ended immediately"
    again = given.another()
    again.start()
    assert again.manager.get("Q").body == b"stays"
    again.end(at_once=True)


def test_there_is_one_daemon_and_the_second_harms_nothing() -> None:
    given = Given()
    given.service.start()
    with pytest.raises(qmgr.InUse) as caught:
        given.another().start()
    assert explain(caught.value)[0] == 5
    assert f"pid {os.getpid()} holds it; endmqm QM1 ends it" in str(caught.value)
    assert given.note().stage == "Running"
    given.service.end(at_once=True)


def test_an_application_that_has_it_keeps_it() -> None:
    given = Given()
    manager = given.world.start()
    with pytest.raises(qmgr.InUse) as caught:
        given.service.start()
    assert explain(caught.value)[0] == 5
    manager.end("immediate")
    given.service = given.another()
    given.service.start()
    given.service.end(at_once=True)


def test_of_a_host_that_is_not_known_the_resolver_is_quoted() -> None:
    """`socket.create_server` makes an OSError of a gaierror, whose number is none of the system's."""
    bind = " (while attempting to bind on address ('none.invalid', 61613))"
    given = Given(STOMP, OSError(socket.EAI_NONAME, f"Name or service not known{bind}"))
    with pytest.raises(
        Unavailable, match=r"can't use 127.0.0.1, port 61613: Name or service not known; correct Address"
    ):
        given.service.start()


@pytest.mark.parametrize(
    "number, code, way",
    [
        (
            errno.EADDRINUSE,
            71,
            "Address already in use; end the program that has it, or give the listener",
        ),
        (errno.EADDRNOTAVAIL, 71, "Cannot assign requested address; this machine has no such address"),
        (errno.EACCES, 119, "Permission denied; ports below 1024 are for privileged users"),
    ],
)
def test_a_port_that_can_not_be_had_ends_the_start_in_order(number: int, code: int, way: str) -> None:
    given = Given(STOMP, OSError(number, os.strerror(number)))
    with pytest.raises(Unavailable) as caught:
        given.service.start()
    found, text = explain(caught.value)
    assert (found, text.count("\n")) == (code, 0)
    assert text.startswith(f"AMQ9218E: listener 's' can't use 127.0.0.1, port 61613: {way}") and "qm.ini" in text
    assert f"AMQ9218E: Listener 's' can't use 127.0.0.1, port 61613: {way}" in given.errors()
    assert "AMQ8004I" in given.errors()
    assert given.told == ["local starts", "s starts", "s closes", "local closes"]
    assert given.note().stage == "Ended unexpectedly"
    assert not given.owned()
    given.world.start().end("immediate")


def test_a_listener_that_can_not_be_closed_keeps_no_other_open() -> None:
    given = Given(STOMP)
    given.service.start()

    def fails() -> None:
        raise RuntimeError("a mistake of ours")

    given.listeners["s"].at_close = fails
    with pytest.raises(RuntimeError):
        given.service.end(at_once=True)
    assert given.told[-1] == "local closes"
    assert not given.owned()


def test_a_protocol_that_is_not_there_is_said() -> None:
    given = Given(STOMP.replace("STOMP", "HTTP"))
    with pytest.raises(Unavailable, match="no listener of protocol HTTP"):
        given.service.start()
    assert not given.owned()


# Failures


@pytest.mark.parametrize("number, code", [(errno.ENOSPC, 69), (errno.EACCES, 119), (errno.EIO, 71)])
def test_a_disk_that_refuses_gives_one_sentence_and_leaves_nothing_behind(number: int, code: int) -> None:
    """From every call of a start on, until it gets by without the last of them."""
    codes = set()
    for nth in itertools.count(1):
        given = Given()
        fault = given.disk.fail(("create", "write", "sync"), number, nth=nth, once=False)
        try:
            given.service.start()
        except (MQError, OSError) as exc:
            found, text = explain(exc)
            codes.add(found)
            assert text.startswith("AMQ") and "\n" not in text
        else:
            given.disk.heal()
            given.service.end(at_once=True)
        assert not given.owned()
        if not fault.fired:
            break
        given.disk.heal()
        again = given.another()
        again.start()
        again.end(at_once=True)
    assert code in codes and codes <= {code, 23}


def test_a_queue_manager_that_fails_is_given_up() -> None:
    given = Given()
    service = given.service
    failed = threading.Event()
    service.on_failure = failed.set
    service.start()
    service.manager.define_queue("Q")
    given.disk.fail(("write", "sync"), errno.EIO, once=False, where=lambda path: "/log/" in path)
    with pytest.raises(Unavailable):
        service.manager.put("Q", b"x")
    assert failed.wait(PATIENCE)
    service.abandon()
    given.disk.heal()
    assert given.note().stage == "Ended unexpectedly"
    assert not given.owned()
    given.another().start()


def test_row_60_what_can_not_be_said_stops_nothing() -> None:
    given = Given()

    def words(path: str) -> bool:
        return "/errors/" in path or path.endswith("status.json")

    given.disk.fail(("create", "write", "open", "rename"), errno.EIO, once=False, where=words)
    service = given.service
    service.start()
    service.manager.define_queue("Q")
    service.manager.put("Q", b"x")
    service.say("AMQ6118", text="nobody reads this")
    given.disk.fail(("create", "write", "open"), errno.EIO, once=False, where=lambda path: path.endswith("daemon.json"))
    service.quiesce()
    service.end(at_once=False)
    assert not given.owned()


@pytest.mark.parametrize(
    "exc, code",
    [
        (MemoryError(), 69),
        (OSError(errno.ENOMEM, "Cannot allocate memory"), 69),
        (RuntimeError("can't start new thread"), 69),
        (qmgr.InUse("the log in /l of queue manager 'Q' is running already: pid 1 holds it"), 24),
        (Unavailable("LogPath in /q/qm.ini is /l, and there is no such directory"), 100),
        (RuntimeError("a mistake of ours"), 71),
        (IsADirectoryError(errno.EISDIR, "Is a directory", "/q/qm.ini"), 39),
        (qmgr.IniError("AMQ7075E: /q/qm.ini, line 1: unknown stanza 'X'."), 39),
    ],
)
def test_each_failure_has_its_exit_code(exc: BaseException, code: int) -> None:
    found, text = explain(exc)
    assert found == code
    assert text.startswith("AMQ")


# AutoConfig


def test_files_of_autoconfig_are_applied_and_what_is_wrong_is_said() -> None:
    given = Given("AutoConfig:\nIniConfig=/auto\nMQSCConfig=/auto\n")
    given.disk.mkdir("/auto")
    for name, text in {
        "1.ini": "TuningParameters:\nMaxHandles=7\nTCP:\n",
        "2.ini": "TuningParameters:\nMaxHandles=0\nMaxUncommittedMsgs=5\n",
        "3.ini": "Channels:\nMaxChannels=9\n",
        "1.mqsc": "* comment\nDEF QL(ONE)\nDEF QL(TWO) NONSENSE(1)\nDELETE QL(NONE)\nDEF QL(THREE)\n",
        "2.mqsc": "\xff",
        "other": "Lag:\n",
    }.items():
        given.disk.poke(f"/auto/{name}", text.encode("latin-1"))
    service, there = given.service, set[str]()
    given.makers[None] = lambda service, config: Recorded(
        "local", given.told, at_start=lambda: there.update(queue.name for queue in service.manager.queues())
    )
    service.start()
    assert {"ONE", "THREE"} <= there  # before clients come, who may need them
    assert service.manager.config.tuning == ini.Tuning(max_handles=7)
    assert service.channels.limit == service.sessions.limit == 9
    assert [queue.name for queue in service.manager.queues() if not queue.name.startswith("SYSTEM.")] == [
        "ONE",
        "THREE",
    ]
    service.end(at_once=True)
    said = given.errors()
    for words in (
        "AMQ9022W: Automatic configuration: AMQ7076E: /auto/2.ini, line 2: value '0' of attribute MaxHandles",
        "AMQ7075W: qm.ini: stanza TCP (line 3) of /auto/1.ini is known",
        "AMQ9022W: Automatic configuration: /auto/1.mqsc, line 3: AMQ8405I: line 3, column ",
        "AMQ9022W: Automatic configuration: /auto/1.mqsc, line 4: AMQ8147E",
        "AMQ9022W: Automatic configuration: AMQ6162E: /auto/2.mqsc, line 1: byte 0xff",
        "AMQ9023I: Automatic configuration: the commands of /auto/1.mqsc were run.",
    ):
        assert words in said
    assert said.count("AMQ9023I") == 1


def test_files_of_autoconfig_that_are_not_there_are_said() -> None:
    given = Given("AutoConfig:\nIniConfig=/none.ini\nMQSCConfig=/none.mqsc\n")
    given.service.start()
    given.service.end(at_once=True)
    for path in ("/none.ini", "/none.mqsc"):
        assert f"AMQ9022W: Automatic configuration: AMQ6166E: {path}: No such file or directory." in given.errors()


# mqs.ini


def test_a_queue_manager_that_mqs_ini_does_not_know_is_listed() -> None:
    given = Given()
    path = f"{DATA}/mqs.ini"
    given.disk.unlink(path)
    given.service.start()
    given.service.end(at_once=True)
    assert b"   Name=QM1\n   Prefix=/data\n   Directory=QM1\n" in given.disk.peek(path)


def test_a_mqs_ini_that_can_not_be_written_is_said() -> None:
    given = Given()
    given.disk.unlink(f"{DATA}/mqs.ini")
    given.disk.fail(("create", "write", "rename"), errno.EROFS, once=False, where=lambda path: "/mqs.ini" in path)
    given.service.start()
    given.service.end(at_once=True)
    assert "AMQ9024W: mqs.ini does not list the queue manager, and could not be changed: " in given.errors()


def test_a_damaged_mqs_ini_is_said_and_left_alone() -> None:
    given = Given()
    path = f"{DATA}/mqs.ini"
    given.disk.poke(path, b"rubbish")
    given.service.start()
    given.service.end(at_once=True)
    assert given.disk.peek(path) == b"rubbish"
    assert "AMQ9024W: mqs.ini does not list the queue manager, and could not be changed: AMQ6162E" in given.errors()


def test_users_that_can_not_be_read_are_told_of_before_they_come() -> None:
    given = Given(STOMP)
    given.disk.poke(f"{DATA}/qmgrs/{NAME}/users.json", b"\x90rubbish")
    given.service.start()
    given.service.end(at_once=True)
    text = "AMQ9016E: Clients that have to say who they are will be refused: AMQ6162E: /data/qmgrs/QM1/users.json is"
    assert text in given.errors()


@pytest.mark.parametrize(
    ("left", "said"), [(-1, "0"), (0, "0"), (MIN_DESCRIPTORS - 1, f"{MIN_DESCRIPTORS - 1}"), (MIN_DESCRIPTORS, None)]
)
def test_row_76_a_start_with_few_descriptors_says_so(
    left: int, said: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    given = Given()
    gc.collect()  # else one of a test before may be closed meanwhile, and be the lowest
    with socket.socket() as lowest:
        most = lowest.fileno() + left
    monkeypatch.setattr(given.disk, "max_descriptors", lambda: most)
    given.service.start()
    given.service.end(at_once=True)
    text = f"AMQ9035W: Few file descriptors are left for clients and for files, {said}: raise the limit (ulimit -n)."
    assert (text in given.errors()) == (said is not None)
    assert ("AMQ9035" in given.errors()) == (said is not None)


def test_row_76_a_start_with_no_descriptor_at_all_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    given = Given()

    def none_left(*args: object) -> None:
        raise OSError(errno.EMFILE, "Too many open files")

    monkeypatch.setattr(socket, "socket", none_left)
    given.service.start()
    given.service.end(at_once=True)
    assert "AMQ9035W: Few file descriptors are left for clients and for files, 0: " in given.errors()


# Its parts


def test_a_start_goes_on_though_the_command_that_hears_of_it_is_gone() -> None:
    read, write = os.pipe()
    os.close(read)
    reporter = PipeReporter(write)
    reporter.line("Queue manager 'QM1' starting.")
    reporter.ready()
    reporter.failed(71, "ended")
    with pytest.raises(OSError):
        os.fstat(write)


def test_the_command_that_hears_of_a_start_is_let_go_when_clients_may_come() -> None:
    read, write = os.pipe()
    PipeReporter(write).ready()
    with pytest.raises(OSError):
        os.fstat(write)
    os.close(read)


def test_a_note_reads_back_and_rubbish_is_none() -> None:
    note = Note(stage=Stage.QUIESCING, process=7, host="h" * 200, epoch=3)
    assert life.decode(note.encode()) == note
    assert len(note.encode()) == life.LINE_BYTES
    for why in ("the disk is full", "é" * 500, "x" * 500):
        failed = attrs.evolve(note, stage=Stage.FAILED, why=why)
        assert len(failed.encode()) == life.LINE_BYTES
        cut = life.decode(failed.encode())
        assert cut is not None and attrs.evolve(cut, why=why) == failed
        assert cut.why == why or (cut.why.endswith("…") and why.startswith(cut.why[:20]))
    full = attrs.evolve(note, stage=Stage.FAILED, host="é" * 70)  # a line that has no room for a reason at all
    assert life.decode(attrs.evolve(full, why="the disk is full").encode()) == full
    for rubbish in (
        b"",
        b"{}",
        b"[]",
        b"pid 7",
        b'{"stage": "Running"}',
        note.encode().replace(b"7", b"0"),
        b"\xff" * 9,
    ):
        assert life.decode(rubbish) is None


def hears(wakeups: Wakeups, seconds: float | None) -> list[Any]:
    """What came, which is taken out."""
    words = wakeups.wait(seconds)
    return [words.popleft() for _ in range(len(words))]


def test_the_main_thread_is_woken_also_where_the_process_was_given_very_many_files() -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, 4096), hard))
    with contextlib.ExitStack() as given:
        given.callback(resource.setrlimit, resource.RLIMIT_NOFILE, (soft, hard))
        while (one := os.open(os.devnull, os.O_RDONLY)) < 1024:
            given.callback(os.close, one)
        given.callback(os.close, one)
        wakeups = Wakeups([signal.SIGUSR1])
        given.callback(wakeups.close)
        wakeups.say("a word")
        assert hears(wakeups, None) == ["a word"]
        assert hears(wakeups, 0.001) == []


def test_the_main_thread_is_woken_by_signals_and_words() -> None:
    before = signal.getsignal(signal.SIGUSR1)
    wakeups = Wakeups([signal.SIGUSR1])
    try:
        assert hears(wakeups, 0.0) == []
        threading.Thread(target=wakeups.say, args=("word",)).start()
        assert list(wakeups.wait(PATIENCE)) == ["word"]
        assert hears(wakeups, None) == ["word"]  # it is there until it is taken out
        os.kill(os.getpid(), signal.SIGUSR1)
        assert hears(wakeups, PATIENCE) == [signal.SIGUSR1]
        for _ in range(100_000):  # more than a pipe holds
            wakeups.say(None)
        found: list[Any] = []
        while len(found) < 100_000:
            found += hears(wakeups, PATIENCE)
    finally:
        wakeups.close()
    assert signal.getsignal(signal.SIGUSR1) is before


def test_a_notifier_without_an_address_says_nothing_to_nobody() -> None:
    for address in ("", "relative", "vsock:2:1", "@"):
        Notifier(address).say(READY=1)


class Quiet:
    """A StartReporter that notes whether it was told."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.there = threading.Event()

    def line(self, text: str) -> None:
        self.lines.append(text)

    def ready(self) -> None:
        self.there.set()


def in_main(given: Given, then: Callable[[], None], background: bool = True) -> BaseException | None:
    """Run the daemon in this thread, and `then` in another once it is ready."""
    teller = Quiet()
    daemon = Daemon(given.service, teller, background=background)

    def later() -> None:
        assert teller.there.wait(PATIENCE)
        then()

    threading.Thread(target=later).start()
    return daemon.run()


def test_a_start_is_not_searched_for_garbage_and_what_comes_later_is() -> None:
    given, searched = Given(), list[bool]()
    given.makers[None] = lambda service, config: Recorded(
        "local", given.told, at_start=lambda: searched.append(gc.isenabled())
    )

    def serve() -> None:
        searched.append(gc.isenabled())
        given.service.ask_to_end("immediate")

    assert in_main(given, serve) is None
    assert searched == [False, True]


def test_a_failure_of_the_queue_manager_ends_the_daemon_with_its_sentence() -> None:
    given = Given()

    def break_it() -> None:
        given.service.manager.define_queue("Q")
        given.disk.fail(("write", "sync"), errno.EIO, once=False, where=lambda path: "/log/" in path)
        with pytest.raises(Unavailable):
            given.service.manager.put("Q", b"x")

    error = in_main(given, break_it)
    assert error is not None
    code, text = explain(error)
    assert code == 23 and "has stopped" in text  # the log is not available
    assert isinstance(error, MQError) and (given.note().stage, given.note().why) == (Stage.FAILED, error.sentence)
    assert text.count("start it again") == 1
    given.disk.heal()
    assert not given.owned()


def test_a_failure_ends_the_daemon_though_there_is_no_memory_for_another_thread(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Python waits for ever for a thread that had no memory for its first step."""
    given = Given()

    def never(thread: threading.Thread) -> None:
        raise AssertionError("this waits for ever")

    def break_it() -> None:
        given.service.manager.define_queue("Q")
        given.disk.fail(("write", "sync"), errno.EIO, once=False, where=lambda path: "/log/" in path)
        monkeypatch.setattr(threading.Thread, "start", never)
        with pytest.raises(Unavailable):
            given.service.manager.put("Q", b"x")

    error = in_main(given, break_it)
    assert error is not None and explain(error)[0] == 23
    assert given.note().stage == Stage.FAILED
    given.disk.heal()
    assert not given.owned()


def test_a_failure_while_it_quiesces_ends_it_though_a_unit_of_work_is_open() -> None:
    given = Given()

    def break_it() -> None:
        service = given.service
        service.manager.define_queue("Q")
        client = given.client()
        unit = client.begin()
        client.put(unit, "Q", b"x", {})
        service.on_end_asked("quiesce")
        wait_for(lambda: given.note().stage == Stage.QUIESCING and service.manager.status().state == "quiescing")
        given.disk.fail(("write", "sync"), errno.EIO, once=False, where=lambda path: "/log/" in path)
        with pytest.raises(Unavailable):
            service.manager.checkpoint()

    error = in_main(given, break_it)
    assert error is not None and explain(error)[0] == 23
    assert given.note().stage == "Ended unexpectedly"
    given.disk.heal()
    assert not given.owned()


@pytest.mark.parametrize("mode, stage", [("quiesce", "Ended normally"), ("immediate", "Ended immediately")])
def test_a_client_asks_for_the_end(mode: str, stage: str) -> None:
    given = Given()
    assert in_main(given, lambda: given.service.ask_to_end(mode)) is None
    assert given.note().stage == stage
    with pytest.raises(Mistake):
        given.service.ask_to_end("now")


def test_a_signal_that_comes_during_a_long_start_is_heard_when_it_is_over() -> None:
    """Row 69."""
    given = Given(STOMP)
    starts, goes_on = threading.Event(), threading.Event()

    def slow() -> None:
        starts.set()
        assert goes_on.wait(PATIENCE)

    given.makers[None] = lambda service, config: Recorded("slow", given.told, at_start=slow)

    def interrupt() -> None:
        assert starts.wait(PATIENCE)
        os.kill(os.getpid(), signal.SIGTERM)
        goes_on.set()

    threading.Thread(target=interrupt).start()
    assert in_main(given, lambda: None) is None
    assert given.note().stage == "Ended normally"


def test_an_end_that_fails_is_said() -> None:
    given = Given()

    def break_it() -> None:
        given.disk.fail(("create", "write", "sync"), errno.EIO, once=False, where=lambda path: "/errors/" not in path)
        os.kill(os.getpid(), signal.SIGTERM)

    error = in_main(given, break_it)
    assert error is not None and explain(error)[0] == 23
    assert "AMQ9021" in given.errors()
    given.disk.heal()
    assert not given.owned()
    given.another().start()


class Killed(BaseException):
    """The process is gone."""


def test_row_69_who_is_to_end_at_once_while_it_starts_is_killed(monkeypatch: pytest.MonkeyPatch) -> None:
    """The next start recovers what this one has not."""
    given, killed, over = Given(), threading.Event(), threading.Event()
    start = given.service.start

    def whole() -> None:
        start()
        over.set()

    def kill(daemon: Daemon) -> None:
        killed.set()
        assert over.wait(PATIENCE)
        raise Killed

    def slow() -> None:
        given.service.on_end_asked("immediate")
        assert killed.wait(PATIENCE)

    given.makers[None] = lambda service, config: Recorded("slow", given.told, at_start=slow)
    monkeypatch.setattr(given.service, "start", whole)
    monkeypatch.setattr(Daemon, "_kill", kill)
    with pytest.raises(Killed):
        Daemon(given.service, Quiet(), background=False).run()
    given.service.end(at_once=True)


def test_row_69_who_is_to_end_at_once_waits_for_no_quiesce_that_hangs(monkeypatch: pytest.MonkeyPatch) -> None:
    given, ends, is_over = Given(), threading.Event(), threading.Event()
    service, end, waited = given.service, given.service.end, list[tuple[bool, bool]]()

    def hangs() -> None:
        service.on_end_asked("immediate")
        ends.wait(PATIENCE)
        is_over.set()

    def noted(*, at_once: bool) -> None:
        waited.append((at_once, is_over.is_set()))
        ends.set()
        end(at_once=at_once)

    monkeypatch.setattr(service, "quiesce", hangs)
    monkeypatch.setattr(service, "end", noted)
    assert in_main(given, lambda: service.on_end_asked("quiesce")) is None
    assert waited == [(True, False)]


def test_row_57_that_a_task_is_over_is_told_when_there_is_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    """The process stayed for ever, and kept the queue manager from others."""
    given, failing, really = Given(), ["start", "quiesce", "end"], Wakeups.say

    def say(wakeups: Wakeups, word: object) -> None:
        if isinstance(word, process.Done) and word.task in failing:
            failing.remove(word.task)
            raise MemoryError
        really(wakeups, word)

    monkeypatch.setattr(Wakeups, "say", say)
    assert in_main(given, lambda: given.service.on_end_asked("quiesce")) is None
    assert not failing


@pytest.mark.parametrize("first", range(8))
@alone
def test_row_57_whichever_allocation_fails_the_main_thread_hears_of_all_that_came_once(first: int) -> None:
    testcapi, wakeups = importlib.import_module("_testcapi"), Wakeups([signal.SIGUSR1, signal.SIGUSR2])
    for _ in range(32):  # for the next one a deque asks for memory
        wakeups.say("a word")
    for number in (signal.SIGUSR1, signal.SIGUSR2):
        os.kill(os.getpid(), number)
    testcapi.set_nomemory(first, first + 1)
    try:
        wakeups.wait(PATIENCE)
    except MemoryError:
        pass
    finally:
        testcapi.remove_mem_hooks()
    assert sorted(map(str, hears(wakeups, 0.0))) == [
        *map(str, sorted([int(signal.SIGUSR1), int(signal.SIGUSR2)])),
        *["a word"] * 32,
    ]


def test_row_57_a_daemon_whose_main_thread_had_no_memory_to_wait_serves_on(monkeypatch: pytest.MonkeyPatch) -> None:
    """The queue manager ended as in a crash."""
    given = Given()
    for where, name in ((Wakeups, "wait"), (Daemon, "_note")):
        really, failing = getattr(where, name), [1] * 5

        def scarce(*args: Any, really: Callable[..., Any] = really, failing: list[int] = failing) -> Any:
            if failing:
                failing.pop()
                raise MemoryError
            return really(*args)

        monkeypatch.setattr(where, name, scarce)
    assert in_main(given, lambda: given.service.on_end_asked("quiesce")) is None


def test_row_69_a_kill_waits_for_no_disk_that_hangs(monkeypatch: pytest.MonkeyPatch) -> None:
    given, killed, done = Given(), threading.Event(), list[str]()

    def hangs() -> None:
        killed.wait(PATIENCE)
        done.append("said")

    def kill(pid: int, number: int) -> None:
        done.append(f"{pid} {number}")
        killed.set()

    daemon = Daemon(given.service, Quiet(), background=False)
    with monkeypatch.context() as patched:
        patched.setattr(given.service, "say_killed", hangs)
        patched.setattr(process, "SAY_KILLED_TIMEOUT_S", 0.01)
        patched.setattr(os, "kill", kill)
        patched.setattr(os, "_exit", lambda code: None)  # for process 1, which no kill of its own ends
        daemon._kill()
    daemon._wakeups.close()
    assert done[0] == f"{os.getpid()} {signal.SIGKILL}"
