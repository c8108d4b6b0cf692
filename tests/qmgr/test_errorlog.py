"""The error log: text or JSON, three files in turn, and nobody's problem when it can't be written."""

import errno
import json
import string

import pytest

from qmgr.errorlog import MESSAGES, open_error_log
from qmgr.ini import ErrorLogConfig, ErrorLogFormat
from tests.qmgr.world import World, bodies
from tests.sim.clock import SimClock
from tests.sim.disk import SimDisk

INSERTS = {field: 1 for _, text in MESSAGES.values() for _, field, _, _ in string.Formatter().parse(text) if field}
OWN = ("qmgr", "process")  # of every message


def test_every_message_can_be_said_in_both_forms() -> None:
    for form in ErrorLogFormat:
        disk = SimDisk()
        log = open_error_log(disk, SimClock(), "/errors", ErrorLogConfig(format=form), "QM1")
        for amq in MESSAGES:
            log.say(amq, **{name: value for name, value in INSERTS.items() if name not in OWN})
        log.close()
        written = disk.peek("/errors/AMQERR01.LOG").decode()
        assert all(amq + severity in written for amq, (severity, _) in MESSAGES.items())
        if form is ErrorLogFormat.JSON:
            lines = [json.loads(line) for line in written.splitlines()]
            assert len(lines) == len(MESSAGES)
            assert all(line["ibm_datetime"].endswith("Z") and line["ibm_serverName"] == "QM1" for line in lines)


def test_json_has_the_number_of_the_process_alone_as_others_look_for_it(monkeypatch: pytest.MonkeyPatch) -> None:
    disk = SimDisk()
    monkeypatch.setattr(disk, "process", lambda: "pid 4711")
    log = open_error_log(disk, SimClock(), "/errors", ErrorLogConfig(format=ErrorLogFormat.JSON), "QM1")
    log.say("AMQ8004")
    log.close()
    assert json.loads(disk.peek("/errors/AMQERR01.LOG"))["ibm_processId"] == "4711"


@pytest.mark.parametrize("again", [False, True], ids=["the same process", "the next one"])
def test_what_a_full_disk_took_half_of_leaves_no_half_line(again: bool) -> None:
    """Whoever reads JSON line by line would lose the whole message that came behind it as well."""
    disk, config = SimDisk(), ErrorLogConfig(format=ErrorLogFormat.JSON)
    log = open_error_log(disk, SimClock(), "/errors", config, "QM1")
    log.say("AMQ8003")
    disk.fail(("write",), errno.ENOSPC, part=0.9)
    log.say("AMQ7467", name="S0000000.LOG" * 20)
    if again:
        log.close()
        log = open_error_log(disk, SimClock(), "/errors", config, "QM1")
    log.say("AMQ8004")
    log.close()
    lines = [json.loads(line) for line in disk.peek("/errors/AMQERR01.LOG").decode().splitlines()]
    assert [line["ibm_messageId"] for line in lines] == ["AMQ8003I", "AMQ8004I"]


def test_three_files_in_turn() -> None:
    disk = SimDisk()
    log = open_error_log(disk, SimClock(), "/errors", ErrorLogConfig(size=32_768), "QM1")
    for n in range(1000):
        log.say("AMQ6709", text=f"number {n} " + "x" * 100)
    log.close()
    assert disk.files("/errors") == [f"/errors/AMQERR0{n}.LOG" for n in (1, 2, 3)]
    assert all(len(disk.peek(path)) <= 32_768 for path in disk.files("/errors"))
    newest = disk.peek("/errors/AMQERR01.LOG").decode()
    assert "number 999" in newest
    assert "number 0 " not in "".join(disk.peek(path).decode() for path in disk.files("/errors"))


def test_a_restart_goes_on_in_the_same_file() -> None:
    disk = SimDisk()
    for n in range(3):
        log = open_error_log(disk, SimClock(), "/errors", ErrorLogConfig(), "QM1")
        log.say("AMQ6709", text=f"start {n}")
        log.close()
    written = disk.peek("/errors/AMQERR01.LOG").decode()
    assert all(f"start {n}" in written for n in range(3))


def test_what_is_said_after_the_end_is_written_and_keeps_no_file_open() -> None:
    disk = SimDisk()
    log = open_error_log(disk, SimClock(), "/errors", ErrorLogConfig(), "QM1")
    for amq in ("AMQ8003", "AMQ8004"):
        log.say(amq)
        assert amq in disk.peek("/errors/AMQERR01.LOG").decode()
        log.close()
        assert disk.open_files == 0
        log.say("AMQ9021", text=amq)
        assert disk.open_files == 0
    assert disk.peek("/errors/AMQERR01.LOG").count(b"AMQ9021") == 2


def test_one_that_was_taken_away_is_begun_anew() -> None:
    disk = SimDisk()
    log = open_error_log(disk, SimClock(), "/errors", ErrorLogConfig(), "QM1")
    log.say("AMQ6709", text="before")
    disk.rename("/errors/AMQERR01.LOG", "/errors/OLD.LOG")
    disk.fail(("create",), errno.EACCES)
    log.say("AMQ6709", text="while no other can be made")
    log.say("AMQ6709", text="after")
    log.close()
    taken = disk.peek("/errors/OLD.LOG").decode()
    assert "before" in taken and "while no other can be made" in taken
    written = disk.peek("/errors/AMQERR01.LOG").decode()
    assert "after" in written and "before" not in written


def test_one_that_may_not_be_written_is_put_aside() -> None:
    """As where its owner is another, or has made it read-only."""
    disk = SimDisk()
    for text in ("before", "after", "and on"):
        log = open_error_log(disk, SimClock(), "/errors", ErrorLogConfig(), "QM1")
        log.say("AMQ6709", text=text)
        log.close()
        if text == "before":
            disk.fail(("open",), errno.EACCES, where=lambda path: path.endswith("AMQERR01.LOG"))
    assert "before" in disk.peek("/errors/AMQERR02.LOG").decode()
    written = disk.peek("/errors/AMQERR01.LOG").decode()
    assert "after" in written and "and on" in written


def test_row_60_an_error_log_that_can_not_be_written_stops_nothing() -> None:
    world = World()
    world.qm.define_queue("A")
    world.qm.end()
    world.disk.fail(("create", "write"), errno.EIO, once=False, where=lambda path: "/errors/" in path)
    world.start()
    world.qm.put("A", b"x")
    world.restart()
    assert bodies(world.qm, "A") == [b"x"]
