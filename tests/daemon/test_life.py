"""The life of a daemon: started, asked to end in every way, stopped, killed and started again. Real processes."""

import contextlib
import json
import os
import re
import signal
import socket
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import attrs
import pytest

from logger.posix_disk import PosixDisk
from qmgr import life
from qmgr.cli.endmqm import UNREAD, Ending
from qmgr.client import Connection
from qmgr.errors import MQError, NoMessageAvailable, Reason
from qmgr.life import Stage
from qmgr.ownership import own
from tests.commands import ROOT
from tests.conformance.nursery import halt
from tests.daemon.daemons import PATIENCE, Daemons, wait_for


def reason(call: object, *args: object) -> Reason:
    """Why a call is refused."""
    with pytest.raises(MQError) as caught:
        call(*args)  # type: ignore[operator]
    return caught.value.reason


@pytest.fixture
def client(daemons: Daemons) -> Connection:
    """A client of a daemon with the queue Q."""
    daemons.made()
    made = daemons.connect()
    made.define_queue("Q")
    return made


# Starting


def test_a_daemon_serves_until_it_is_ended_and_keeps_what_it_was_given(daemons: Daemons) -> None:
    protocols = ("QMGR", "STOMP", "HTTP")
    stanza = "Listener:\nName={0}\nProtocol={0}\nPort=0\nAuthentication=NONE\n"
    daemons.make(ini="".join(map(stanza.format, protocols)))
    done = daemons.run("strmqm QM1")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.splitlines() == [
        "Queue manager 'QM1' starting.",
        "0 log records accessed on queue manager 'QM1' during the log replay phase.",
        "Log replay for queue manager 'QM1' complete.",
        "Transaction manager state recovered for queue manager 'QM1'.",
        "Queue manager 'QM1' started.",
    ]
    assert daemons.status() == "Running"
    ports = re.findall(r"AMQ5026I: Listener '(\w+)' has started: \1 on 127.0.0.1, port (\d+)", daemons.errors())
    assert tuple(name for name, _ in ports) == protocols
    for _, port in ports:
        socket.create_connection(("127.0.0.1", int(port)), timeout=PATIENCE).close()
    with daemons.connect() as manager:
        manager.define_queue("Q")
        manager.put("Q", b"kept")
    done = daemons.run("endmqm -w QM1")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.splitlines()[-1] == "Queue manager 'QM1' ended."
    assert daemons.status() == "Ended normally"
    daemons.start()
    with daemons.connect() as manager:
        assert manager.get("Q").body == b"kept"


def test_units_that_a_crash_left_are_told_at_the_start(daemons: Daemons, client: Connection) -> None:
    unit = client.begin()
    unit.put("Q", b"never")
    client.put("Q", b"durable, and with it all before")
    os.kill(daemons.note().process, signal.SIGKILL)
    daemons.ended()
    said = daemons.run("strmqm QM1").stdout
    assert said.splitlines()[1].startswith("Queue manager 'QM1' had not ended in order: its log goes up to <")
    assert "1 out of 1 in-flight transactions resolved for queue manager 'QM1'.\n" in said


def test_the_daemon_keeps_nothing_of_who_started_it(daemons: Daemons) -> None:
    """The command's output would never end if the daemon held it."""
    daemons.make()
    read, write = os.pipe()
    data = os.path.relpath(daemons.data, ROOT)
    command = [sys.executable, "-m", "qmgr.cli.main", "strmqm", "--data-path", data, "QM1"]
    blocked = signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM])
    done = subprocess.run(
        command, cwd=ROOT, env=daemons.environment, capture_output=True, pass_fds=[write], timeout=PATIENCE
    )
    signal.pthread_sigmask(signal.SIG_SETMASK, blocked)
    os.close(write)
    assert done.returncode == 0
    assert os.read(read, 1) == b""
    os.close(read)
    process = daemons.note().process
    assert os.getsid(process) == process != os.getsid(0)
    if Path("/proc/self/cwd").exists():
        assert Path(f"/proc/{process}/cwd").resolve() == Path("/")
        assert {Path(f"/proc/{process}/fd/{fd}").resolve() for fd in (0, 1, 2)} == {Path(os.devnull)}
        assert "\nSigBlk:\t0000000000000000\n" in Path(f"/proc/{process}/status").read_text()


@pytest.mark.parametrize("how", ["", "--foreground"])
def test_closed_streams_harm_nothing(daemons: Daemons, how: str) -> None:
    """Row 69: a file of the log must not become what somebody prints to."""
    daemons.make()
    command = f"exec {sys.executable} -m qmgr.cli.main strmqm {how} QM1 <&- >&- 2>&-"
    process = subprocess.Popen(["sh", "-c", command], cwd=ROOT, env=daemons.environment)
    wait_for(lambda: daemons.status() == "Running")
    with daemons.connect() as manager:
        manager.define_queue("Q")
        manager.put("Q", b"x")
    assert daemons.run("endmqm -w QM1").returncode == 0
    assert process.wait(PATIENCE) == 0
    assert daemons.run("repair --check -m QM1").returncode == 0


@pytest.mark.parametrize("how", ["", "--foreground"])
@pytest.mark.parametrize("full", [True, False] if Path("/dev/full").exists() else [False])
def test_it_starts_where_nothing_can_be_printed(daemons: Daemons, how: str, full: bool) -> None:
    """The disk is full that its output goes to, or who has read it is gone."""
    daemons.make()
    read, write = os.pipe()
    os.close(read)
    with open("/dev/full", "wb") as disk, os.fdopen(write, "wb") as pipe:
        words = [sys.executable, "-m", "qmgr.cli.main", "strmqm", *how.split(), "QM1"]
        stdout, streams = disk if full else pipe, {"stderr": subprocess.PIPE, "cwd": ROOT, "env": daemons.environment}
        process = subprocess.Popen(words, stdout=stdout, **streams)
    wait_for(lambda: process.poll() not in (None, 0) or daemons.status() == "Running")
    ended = daemons.run("endmqm -w QM1")
    assert (process.communicate(timeout=PATIENCE), process.returncode) == ((None, b""), 0)
    assert ended.returncode == 0


def test_a_start_that_takes_too_long_can_be_given_up(daemons: Daemons, tmp_path: Path) -> None:
    """So many commands, each with a force of the log, keep it from being ready for minutes."""
    (tmp_path / "slow.mqsc").write_text("ALTER QMGR DESCR(one)\nALTER QMGR DESCR(other)\n" * 100_000)
    daemons.make(ini=f"AutoConfig:\nMQSCConfig={tmp_path}/slow.mqsc\n")
    with ThreadPoolExecutor(2) as pool:
        start = pool.submit(daemons.run, "strmqm QM1")
        wait_for(lambda: daemons.status() == "Starting")
        assert daemons.run("strmqm QM1").returncode == 5
        end = pool.submit(daemons.run, "endmqm -tp 1 QM1")
        assert end.result(PATIENCE).returncode == 0
        done = start.result(PATIENCE)
    assert done.returncode == 71
    assert "the process of queue manager 'QM1' was ended by signal 9 while it started" in done.stderr
    assert daemons.status() == "Ended pre-emptively"
    (tmp_path / "slow.mqsc").unlink()
    daemons.start()


# One owner


def test_of_many_starters_one_has_it(daemons: Daemons) -> None:
    """Row 62."""
    daemons.make()
    with ThreadPoolExecutor(4) as pool:
        done = list(pool.map(daemons.run, ["strmqm QM1"] * 4))
    assert sorted(each.returncode for each in done) == [0, 5, 5, 5]
    for each in done:
        assert each.returncode == 0 or each.stderr.startswith("AMQ7005E: queue manager 'QM1' is running already: pid ")
    assert daemons.status() == "Running"


def test_a_stopped_owner_is_still_the_owner(daemons: Daemons, client: Connection) -> None:
    """Row 63."""
    process = daemons.note().process
    halt(process)
    try:
        done = daemons.run("strmqm QM1")
        assert (done.returncode, f"pid {process}" in done.stderr) == (5, True)
        assert daemons.run("dltmqm QM1").returncode == 5
        assert daemons.status() == "Running"
    finally:
        os.kill(process, signal.SIGCONT)
    client.put("Q", b"goes on")
    assert client.get("Q").body == b"goes on"


def test_a_stopped_owner_whose_locks_are_gone_is_fenced(daemons: Daemons, client: Connection) -> None:
    """Row 63: another process has the log when it goes on; what it acknowledges nobody would find."""
    location, process = daemons.where(), daemons.note().process
    client.put("Q", b"before")
    halt(process)
    try:
        for path in (location.lock, f"{location.log_dir}/qm.lock", f"{location.data_dir}/daemon.json"):
            os.unlink(path)
        rival = daemons.start()
        other = daemons.connect()
        other.put("Q", b"rival's")
    finally:
        os.kill(process, signal.SIGCONT)
    with pytest.raises(MQError):
        client.put("Q", b"lost")
    wait_for(
        lambda: not Path(f"/proc/{process}").exists() or "Z (zombie)" in Path(f"/proc/{process}/status").read_text()
    )
    other.put("Q", b"goes on")
    assert "another process has started this queue manager (epoch 2" in daemons.errors()
    assert (daemons.note().process, daemons.status()) == (rival, "Running")  # else nobody could end it
    os.kill(rival, signal.SIGKILL)
    daemons.ended()
    daemons.start()
    assert [message.body for message in daemons.connect().browse("Q")] == [b"before", b"rival's", b"goes on"]


def lost_its_locks(daemons: Daemons, process: int) -> int:
    """The process is stopped, its locks are deleted, and another one has the queue manager; the number of that."""
    location = daemons.where()
    halt(process)
    try:
        for path in (location.lock, f"{location.log_dir}/qm.lock", life.path(location)):
            os.unlink(path)
        return daemons.start()
    finally:
        os.kill(process, signal.SIGCONT)


def ends(process: int) -> None:
    status = Path(f"/proc/{process}/status")
    wait_for(lambda: not status.exists() or "Z (zombie)" in status.read_text())


def test_an_owner_that_has_lost_its_locks_ends_though_nobody_asks_anything_of_it(daemons: Daemons) -> None:
    """It would say for ever how the queue manager stands, in the place of the one that has it."""
    process = daemons.made()
    rival = lost_its_locks(daemons, process)
    ends(process)
    assert "another process has started this queue manager (epoch 2" in daemons.errors()
    picture = daemons.where().published
    wait_for(lambda: json.loads(Path(picture).read_bytes())["process"] == f"pid {rival}")
    assert (daemons.note().process, daemons.status()) == (rival, "Running")


def test_a_killed_owner_is_none(daemons: Daemons, client: Connection) -> None:
    """Row 62."""
    client.put("Q", b"kept")
    os.kill(daemons.note().process, signal.SIGKILL)
    daemons.ended()
    assert daemons.status() == "Ended unexpectedly"
    daemons.start()
    assert daemons.connect().get("Q").body == b"kept"


def test_another_process_of_that_number_is_no_owner(daemons: Daemons) -> None:
    """Row 62: the numbers of processes come round; the lock is what counts."""
    location = daemons.make()
    process = daemons.start()
    os.kill(process, signal.SIGKILL)
    daemons.ended()
    for path in (location.lock, f"{location.data_dir}/daemon.json"):
        text = Path(path).read_text()
        assert str(process) in text
        Path(path).write_text(text.replace(str(process), str(os.getpid())))
    assert daemons.run("endmqm -p QM1").returncode == 40  # and we are still here
    assert daemons.start() != process


def test_an_application_that_has_it_is_named_and_left_alone(daemons: Daemons) -> None:
    daemons.make()
    code = "import sys, qmgr\nwith qmgr.start('QM1'):\n  print('up', flush=True); sys.stdin.read()"
    with subprocess.Popen(
        [sys.executable, "-c", code],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        cwd=ROOT,
        env=daemons.environment,
    ) as owner:
        assert owner.stdout is not None and owner.stdout.readline() == "up\n"
        assert daemons.status() == "Running"
        for words, code_ in [("strmqm QM1", 5), ("endmqm QM1", 40), ("endmqm -p QM1", 40), ("dltmqm QM1", 5)]:
            done = daemons.run(words)
            assert (done.returncode, f"pid {owner.pid}" in done.stderr) == (code_, True), words
            assert done.stdout == "", words
        owner.communicate("")
        assert owner.returncode == 0


def test_a_command_that_has_its_files_does_not_run_it(daemons: Daemons) -> None:
    """Whoever hears that it is running would look for it in vain."""
    location = daemons.make()
    held = own(PosixDisk(), location, location.log_dir, command="qm recover-to")
    done = daemons.run("strmqm QM1")
    assert (done.returncode, "is being worked on: pid" in done.stderr) == (24, True)
    assert daemons.status() == "Status not available"
    held.release()
    daemons.start()
    assert daemons.status() == "Running"


# Ending


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGUSR2])
def test_a_quiesce_lets_units_of_work_end(daemons: Daemons, client: Connection, number: int) -> None:
    """Row 69."""
    unit = client.begin()
    unit.put("Q", b"in flight")
    said: list[Reason] = []
    client.define_queue("EMPTY")
    waits = threading.Thread(target=lambda: said.append(_waited(client)), daemon=True)
    waits.start()
    os.kill(daemons.note().process, number)
    daemons.until(Stage.QUIESCING)
    waits.join(PATIENCE)
    assert said == [Reason.Q_MGR_QUIESCING]
    assert daemons.status() == "Quiescing"
    assert reason(lambda: client.begin().put("Q", b"new")) is Reason.Q_MGR_QUIESCING
    again = daemons.run("strmqm QM1")
    assert (again.returncode, again.stderr.partition(";")[0]) == (49, "AMQ8156E: queue manager 'QM1' is ending")
    unit.put("Q", b"more of it")
    unit.commit()
    daemons.ended()
    assert daemons.status() == "Ended normally"
    daemons.start()
    assert [message.body for message in daemons.connect().get_many("Q", 9)] == [b"in flight", b"more of it"]


def _waited(client: Connection) -> Reason:
    return reason(lambda: client.get("EMPTY", wait=None))


def test_a_second_signal_backs_units_of_work_out(daemons: Daemons, client: Connection) -> None:
    """Row 69."""
    unit = client.begin()
    unit.put("Q", b"in flight")
    process = daemons.note().process
    os.kill(process, signal.SIGTERM)
    daemons.until(Stage.QUIESCING)
    os.kill(process, signal.SIGTERM)
    daemons.ended()
    assert daemons.status() == "Ended immediately"
    assert reason(unit.commit) in (Reason.CONNECTION_BROKEN, Reason.Q_MGR_STOPPING, Reason.BACKED_OUT)
    daemons.start()
    with pytest.raises(NoMessageAvailable):
        daemons.connect().get("Q")


def test_a_third_signal_needs_nobody_to_cooperate(daemons: Daemons, client: Connection) -> None:
    """Row 69: signals that come while it can't be heard are heard at once when it can."""
    unit = client.begin()
    unit.put("Q", b"in flight")
    process = daemons.note().process
    for number in (signal.SIGSTOP, signal.SIGTERM, signal.SIGINT, signal.SIGQUIT, signal.SIGCONT):
        os.kill(process, number)
    daemons.ended()
    assert daemons.status() == "Ended pre-emptively"
    daemons.start()
    with pytest.raises(NoMessageAvailable):
        daemons.connect().get("Q")


PROCESS_1 = """
import os, sys, threading
from qmgr.daemon.process import Daemon
from qmgr.daemon.starting import foreground
send, serve = os.kill, Daemon._serve
def failing(daemon):
    threading.Thread(target=lambda: 1 / 0, name="odd").start()
    return serve(daemon)
Daemon._serve = failing
os.kill = lambda process, number: None if process == os.getpid() else send(process, number)
sys.exit(foreground("QM1", sys.argv[1])[0])
"""


def test_process_1_of_a_container_ends_as_by_a_kill_although_the_system_spares_it(daemons: Daemons) -> None:
    """What it sends to itself is dropped; it went on, met an error of ours, and said that it had ended in order."""
    daemons.make()
    process = subprocess.Popen([sys.executable, "-c", PROCESS_1, daemons.data], cwd=ROOT, stdout=subprocess.DEVNULL)
    try:
        wait_for(lambda: daemons.there(Stage.RUNNING))
        wait_for(lambda: "ZeroDivisionError('division by zero') in odd" in daemons.errors())
        os.kill(process.pid, signal.SIGQUIT)
        assert process.wait(PATIENCE) == 128 + signal.SIGKILL
    finally:
        process.kill()
        process.wait()
    assert daemons.status() == "Ended pre-emptively"


def test_a_daemon_that_was_started_again_with_the_same_number_is_another_one(daemons: Daemons) -> None:
    """Process 1 of a container always is, and `endmqm -w` waited for the end of the next one."""
    daemons.made()
    before = daemons.note()
    assert not Ending(daemons.where(), attrs.evolve(before, epoch=0)).over
    assert not Ending(daemons.where(), before).over
    os.kill(before.process, signal.SIGQUIT)
    daemons.ended()
    daemons.start()
    assert Ending(daemons.where(), attrs.evolve(before, process=daemons.note().process)).over


def test_a_hangup_means_nothing_to_a_daemon(daemons: Daemons, client: Connection) -> None:
    """Row 69."""
    os.kill(daemons.note().process, signal.SIGHUP)
    client.put("Q", b"x")
    assert daemons.status() == "Running"


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGHUP])
def test_in_the_foreground_a_signal_ends_it_in_order(daemons: Daemons, number: int) -> None:
    """Row 69."""
    daemons.make()
    process = daemons.foreground()
    os.kill(daemons.note().process, number)
    done = process.result(PATIENCE)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.splitlines()[-1] == "Queue manager 'QM1' started."
    assert daemons.status() == "Ended normally"


def test_a_signal_after_the_end_changes_nothing(daemons: Daemons) -> None:
    """The interpreter takes a moment to end, and a signal would kill it then."""
    daemons.make()
    process = daemons.foreground()
    number = daemons.note().process
    os.kill(number, signal.SIGTERM)
    daemons.ended()
    pause = threading.Event()
    while not process.done():
        pause.wait(0.005)
        with contextlib.suppress(ProcessLookupError):
            os.kill(number, signal.SIGTERM)
    done = process.result(PATIENCE)
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize(
    "option, stage",
    [
        ("-i", "Ended immediately"),
        ("-p", "Ended pre-emptively"),
        ("-t 4", "Ended immediately"),
    ],
)
def test_endmqm_loses_patience(daemons: Daemons, client: Connection, option: str, stage: str) -> None:
    unit = client.begin()
    unit.put("Q", b"in flight")
    done = daemons.run(f"endmqm {option} QM1")
    assert (done.returncode, done.stderr) == (0, "")
    assert daemons.status() == stage
    assert reason(unit.put, "Q", b"late") in (Reason.CONNECTION_BROKEN, Reason.Q_MGR_STOPPING, Reason.BACKED_OUT)
    daemons.start()
    assert daemons.status() == "Running"
    with pytest.raises(NoMessageAvailable):
        daemons.connect().get("Q")


@pytest.mark.parametrize("option", ["-p", "-tp 1"])
def test_a_process_that_hears_nothing_is_killed(daemons: Daemons, option: str) -> None:
    """Row 63."""
    halt(daemons.made())
    done = daemons.run(f"endmqm {option} QM1")
    assert (done.returncode, done.stderr) == (0, "")
    assert daemons.status() == "Ended pre-emptively"
    daemons.start()


@pytest.mark.parametrize(
    ("elsewhere", "told"),
    [
        ({"host": "elsewhere"}, "is on 'elsewhere'; kill it there"),
        ({"numbers": "pid:[1]"}, " container; kill it there"),
    ],
    ids=["host", "container"],
)
def test_a_daemon_elsewhere_is_asked_and_never_signalled(
    daemons: Daemons, elsewhere: dict[str, str], told: str
) -> None:
    """Containers may share a disk, and the name of a host; process numbers are each one's own."""
    process = daemons.made()
    life.write(PosixDisk(), daemons.where(), attrs.evolve(daemons.note(), process=os.getpid(), **elsewhere))
    refused = daemons.run("endmqm -p QM1")
    assert (refused.returncode, told in refused.stderr) == (40, True)
    assert daemons.status() == "Running"
    assert daemons.run("endmqm -c QM1").returncode == 0
    daemons.ended()
    assert daemons.note().process == process
    assert daemons.status() == "Ended normally"


def test_endmqm_asks_for_what_it_was_told_where_it_can_not_read_which_process_that_is(
    daemons: Daemons, client: Connection
) -> None:
    """It waited for the units of work, whatever its options, and could not ask one that quiesces for more."""
    process, note = daemons.note().process, Path(life.path(daemons.where()))
    client.begin().put("Q", b"in flight")
    note.write_text("")
    assert daemons.run("endmqm -c QM1").returncode == 0
    wait_for(lambda: daemons.there(Stage.QUIESCING))
    note.write_text("")
    assert daemons.run("endmqm -c QM1").returncode == 0
    refused = daemons.run("endmqm -i QM1")
    assert refused.returncode == 40
    assert refused.stderr.endswith(
        f"(2161 MQRC_Q_MGR_QUIESCING)); end it with SIGTERM, else SIGKILL, to pid {process}.\n"
    )
    os.kill(process, signal.SIGTERM)
    daemons.ended()
    daemons.start()
    with daemons.connect() as again:
        again.begin().put("Q", b"in flight")
        note.write_text("")
        done = daemons.run("endmqm -t 4 QM1")
    assert (done.returncode, done.stderr) == (0, "")
    assert daemons.status() == "Ended immediately"


def test_endmqm_waits_for_the_answer_of_one_that_it_can_not_signal_as_long_as_it_was_told(daemons: Daemons) -> None:
    process = daemons.made()
    Path(life.path(daemons.where())).write_text("")
    halt(process)
    done = daemons.run("endmqm -t 1 QM1")
    os.kill(process, signal.SIGKILL)  # nobody else will: its daemon.json names no process any more
    assert done.returncode == 40
    assert "(it has said nothing for 0.75 seconds)" in done.stderr


def test_the_next_daemon_is_not_waited_for_where_the_first_was_not_known(daemons: Daemons) -> None:
    process = daemons.made()
    for first, over in (("", False), (f"pid {process}", False), (f"pid {process + 1}", True)):
        ending = Ending(daemons.where(), UNREAD, first)
        assert ending.over is over
        assert (ending.note is UNREAD) is over


def test_one_whose_qm_ini_was_removed_while_it_ran_is_ended_and_repaired(daemons: Daemons, client: Connection) -> None:
    client.put("Q", b"kept")
    Path(daemons.where().ini).unlink()
    assert daemons.status() == "Running"
    assert daemons.run("dspmq").stdout.startswith("QMNAME(QM1)")
    for words in ("amqsgbr Q QM1", "runmqsc QM1", "status -m QM1"):
        assert daemons.run(words).returncode == 0, words
    done = daemons.run("endmqm -w QM1")
    assert (done.returncode, done.stderr) == (0, "")
    daemons.ended()
    assert daemons.run("repair -m QM1").returncode == 0
    assert daemons.run("strmqm QM1").returncode == 0
    assert daemons.connect().get("Q").body == b"kept"


def test_endmqm_returns_at_once_and_may_be_repeated(daemons: Daemons, client: Connection) -> None:
    unit = client.begin()
    unit.put("Q", b"in flight")
    for _ in range(4):
        done = daemons.run("endmqm -c QM1")
        assert (done.returncode, done.stdout.startswith("Quiesce request accepted.")) == (0, True)
    daemons.until(Stage.QUIESCING)
    unit.commit()
    daemons.ended()
    assert daemons.status() == "Ended normally"


def test_a_client_may_end_it(daemons: Daemons, client: Connection) -> None:
    client.end("immediate")
    daemons.ended()
    assert daemons.status() == "Ended immediately"


def test_one_that_was_started_since_by_an_application_ended_as_that_did(daemons: Daemons) -> None:
    daemons.made()
    assert daemons.run("endmqm -i QM1").returncode == 0
    assert daemons.status() == "Ended immediately"
    code = "import os, qmgr\nqm = qmgr.start('QM1')\nos._exit(0)"
    subprocess.run([sys.executable, "-c", code], cwd=ROOT, env=daemons.environment, check=True, timeout=PATIENCE)
    assert daemons.status() == "Ended unexpectedly"


# The service manager


@pytest.mark.parametrize(
    ("abstract", "number", "stages"),
    [(False, signal.SIGTERM, [Stage.QUIESCING]), (True, signal.SIGUSR1, [Stage.QUIESCING, Stage.ENDING])],
)
def test_the_service_manager_is_told(
    daemons: Daemons, tmp_path: Path, abstract: bool, number: int, stages: list[str]
) -> None:
    daemons.make()
    name = f"qmgr-test-{os.getpid()}" if abstract else str(tmp_path / "notify")
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as hears:
        hears.bind("\0" + name if abstract else name)
        hears.settimeout(PATIENCE)
        process = daemons.foreground(NOTIFY_SOCKET="@" + name if abstract else name)
        starts = heard(hears, "READY=1")
        assert starts.startswith("STATUS=Queue manager QM1: starting\n") and "EXTEND_TIMEOUT_USEC=30000000\n" in starts
        os.kill(daemons.note().process, number)
        ends = "STOPPING=1\n" + "".join(f"STATUS=Queue manager QM1: {stage}\n" for stage in stages)
        assert heard(hears, "EXTEND_TIMEOUT_USEC").startswith(ends)
        assert process.result(PATIENCE).returncode == 0


def test_a_service_manager_with_no_room_hears_of_it_later(daemons: Daemons, tmp_path: Path) -> None:
    """It gives up one that is never ready."""
    daemons.make()
    name = str(tmp_path / "notify")
    kind = socket.AF_UNIX, socket.SOCK_DGRAM
    with socket.socket(*kind) as hears, socket.socket(*kind) as others:
        hears.bind(name)
        hears.settimeout(PATIENCE)
        others.setblocking(False)
        with contextlib.suppress(BlockingIOError):
            while True:
                others.sendto(b"X_OTHER=1\n", name)
        process = daemons.foreground(NOTIFY_SOCKET=name)
        assert daemons.status() == "Running"
        assert f"STATUS=Queue manager QM1: {Stage.RUNNING}" in heard(hears, "READY=1")
        os.kill(daemons.note().process, signal.SIGTERM)
        assert process.result(PATIENCE).returncode == 0


def heard(hears: socket.socket, word: str) -> str:
    """What the service manager is told, up to this word."""
    said = ""
    while word not in said:
        said += hears.recv(4096).decode()
    return said


def test_a_service_manager_that_is_gone_harms_nothing(daemons: Daemons, tmp_path: Path) -> None:
    daemons.make()
    process = daemons.foreground(NOTIFY_SOCKET=str(tmp_path / "nobody"))
    assert daemons.status() == "Running"
    os.kill(daemons.note().process, signal.SIGTERM)
    assert process.result(PATIENCE).returncode == 0
