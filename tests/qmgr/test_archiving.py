"""Archiving in a queue manager that runs: what is moved stays readable, what is needed stays, whatever crashes."""

import errno
import threading
import time

import pytest

import qmgr
from logger import notices
from logger.disk import Disk
from logger.extent import file_name, linear_number
from logger.whole_files import replace_file
from qmgr.errors import MediaNotSupported, Mistake, Unavailable
from qmgr.pace import MAX_PAUSE_S, PAUSE_FACTOR, Pace
from tests.conftest import SOAK
from tests.qmgr.world import DATA, NAME, World, bodies
from tests.sim.clock import SimClock
from tests.sim.disk import SimCrash
from tests.sim.loss import KEEP_ALL, LOSE_ALL, Loss, mixed

LOG = f"{DATA}/log/{NAME}"
ACTIVE, ARCHIVE = f"{LOG}/active", f"{LOG}/archive"
DAY = 86_400


def world(stanza: str = "", **ini: str) -> World:
    """A linear log of some extents, most of which neither a restart nor media recovery needs."""
    made = World(start=False, log_type="linear", log_primary_files=4, log_secondary_files=2)
    path = f"{DATA}/qmgrs/{NAME}/qm.ini"
    made.disk.poke(path, made.disk.peek(path) + stanza.encode())
    for attribute, value in ini.items():
        made.set_ini(attribute, value)
    made.start()
    made.qm.define_queue("Q")
    made.qm.define_queue("KEPT")
    made.qm.put("KEPT", b"stays")
    for _ in range(12):
        fill(made)
    made.qm.record_image()
    made.qm.checkpoint()
    made.qm.checkpoint()
    return made


def fill(made: World) -> None:
    """Most of an extent, in an hour."""
    made.qm.put("Q", b"x" * 180_000)
    made.qm.get("Q")
    made.qm.checkpoint()
    made.clock.advance(3600)


def sequences(made: World) -> list[int]:
    """Of all extents that are there, in whatever form."""
    return list(made.qm._log.history().places())


def work(qm: qmgr.QueueManager, hours: tuple[int, int, int]) -> None:
    """Archive, compress and remove what is so old."""
    for do, age in zip((qm.archive_log, qm.compress_log, qm.remove_log), hours, strict=True):
        do(older_than=age * 3600)


def check(made: World) -> None:
    """The queue manager is as it was, and the log has no gap."""
    assert bodies(made.qm, "KEPT") == [b"stays"]
    assert bodies(made.qm, "Q") == []
    found = sequences(made)
    assert found == list(range(found[0], found[-1] + 1))
    reader = made.qm._log.live_reader()
    first = found[0] * made.qm._log.state.extent_bytes
    assert sum(1 for _ in reader.records(first, resync=True)) > 0
    reader.close()


def empty(made: World) -> None:
    """No message holds any history."""
    made.qm.get("KEPT")
    made.qm.checkpoint()


def test_extents_are_archived_compressed_and_removed_while_the_queue_manager_runs() -> None:
    made = world()
    before = sequences(made)
    would = made.qm.archive_log(older_than="5h", dry_run=True)
    assert not made.disk.exists(ARCHIVE)
    moved = made.qm.archive_log(older_than="5h").done
    assert moved == would.done
    assert len(moved) > 4
    check(made)
    packed = made.qm.compress_log(older_than="8h").done
    assert [step.sequence for step in packed] == [step.sequence for step in moved][: len(packed)]
    check(made)
    empty(made)
    removed = made.qm.remove_log(older_than="10h").done
    assert sequences(made)[0] == before[len(removed)]
    assert 0 < len(removed) < len(packed) < len(moved) < len(before)
    made.qm.put("KEPT", b"stays")
    check(made)
    fill(made)
    made.restart()
    check(made)
    made.crash(LOSE_ALL)
    check(made)


def test_what_is_needed_stays_and_the_answer_is_by_whom() -> None:
    made = world()
    for _ in range(3):
        fill(made)
    held = made.qm.remove_log(older_than=0).held
    assert held is not None
    assert "an undelivered message" in held.gates
    first = sequences(made)[1]
    empty(made)
    with made.qm._retention.needs.reading_from(first * made.qm._log.state.extent_bytes):
        held = made.qm.remove_log(older_than=0).held
        assert held is not None
        assert held.gates == ("a reader",)
        assert sequences(made)[0] == first
    held = made.qm.remove_log(older_than=0).held
    assert held is not None
    assert held.gates == ("media recovery",)
    assert sequences(made)[0] == made.qm._retention.needs.needed_from()["media recovery"]


@pytest.mark.parametrize("later", [True, False])
def test_an_extent_that_a_restart_needs_is_said_to_have_a_message_only_where_it_has_one(later: bool) -> None:
    made = world()
    empty(made)
    fill(made)
    if not later:
        made.qm.put("KEPT", b"stays")
    unit = made.qm.begin()
    unit.put("Q", b"x")
    made.qm.record_image()
    for _ in range(3):
        fill(made)
    if later:
        made.qm.put("KEPT", b"stays")
    for _ in range(3):
        fill(made)
    made.qm.record_image()
    held = made.qm.remove_log(older_than=0).held
    assert held is not None
    assert held.gates == ("restart", "media recovery") + ("an undelivered message",) * (not later)
    unit.backout()


def test_a_message_that_a_unit_of_work_has_got_is_undelivered_until_that_commits() -> None:
    made = world()
    for _ in range(3):
        fill(made)
    unit = made.qm.begin()
    for queue in ("Q", "KEPT"):
        while unit.get_many(queue, 10):
            pass
    held = made.qm.remove_log(older_than=0).held
    assert held is not None
    assert "an undelivered message" in held.gates
    unit.commit()
    held = made.qm.remove_log(older_than=0).held
    assert held is not None
    assert "an undelivered message" not in held.gates


def undelivered(jump: int) -> World:
    """A message that no image has, put by a clock that has jumped, many extents ago."""
    made = World(log_type="linear", log_primary_files=4, log_secondary_files=2)
    for queue in ("A", "B"):
        made.qm.define_queue(queue, image_recoverable="NO")
    made.clock.jump_wall(jump)
    made.qm.put("A", b"undelivered")
    made.clock.jump_wall(-jump)
    for _ in range(8):
        made.clock.advance(10)
        made.qm.advance_log()
        made.qm.put("B", b"x")
        made.qm.get("B")
        made.qm.checkpoint()
        made.qm.checkpoint()
    made.qm.record_image()
    made.qm.checkpoint()
    made.qm.checkpoint()
    return made


@pytest.mark.parametrize("jump", [0, 1_000_000])
def test_a_message_whose_queue_is_damaged_or_whose_time_is_to_come_holds_what_has_it(jump: int) -> None:
    """The log is then the last place where it can be read; and a clock that was set back tells nothing of its age."""
    made = undelivered(jump)
    for damaged in (False, True):
        if damaged:
            made.qm.end()
            for path in made.disk.files(f"{DATA}/qmgrs/{NAME}/queues/A"):
                made.disk.remove(path)
            made.start()
            assert made.qm.queue("A").damaged
        out = made.qm.remove_log(older_than=0)
        assert out.held is not None
        assert (out.done, "an undelivered message" in out.held.gates) == ((), True)
        assert [each.message.body for each in made.qm.replay("A", "oldest")] == [b"undelivered"]


def test_messages_that_can_not_be_read_just_then_hold_all_and_the_answer_says_so() -> None:
    made = undelivered(0)
    made.qm.get("A")
    made.qm.define_queue("LARGE", buffer_size=1)
    made.qm.put("LARGE", bytes(5000))
    made.qm.checkpoint()
    directory = f"{DATA}/qmgrs/{NAME}/queues/LARGE/"
    made.disk.fail("read", errno.EIO, where=lambda path: path.startswith(directory))
    out = made.qm.remove_log(older_than=0)
    assert out.held is not None and not out.done
    assert any(f"queue 'LARGE', which can't be read ([Errno {errno.EIO}]" in gate for gate in out.held.gates)
    assert made.qm.remove_log(older_than=0).done


def test_a_message_whose_time_was_to_come_and_has_come_holds_the_extent_whose_index_says_that() -> None:
    """The clock was five hours ahead while it was put, and set right before its extent was full."""
    made = undelivered(5 * 3600)
    made.qm._retention.indexing.index_extents()
    made.clock.advance(6 * 3600)
    made.qm.record_image()
    out = made.qm.remove_log(older_than=0)
    assert out.held is not None
    assert (out.done, "an undelivered message" in out.held.gates) == ((), True)
    assert [each.message.body for each in made.qm.replay("A", "oldest")] == [b"undelivered"]


@pytest.mark.parametrize("by_policy", [True, False])
def test_an_extent_in_which_the_clock_was_set_back_is_kept_no_longer_than_its_messages(by_policy: bool) -> None:
    """There is always a message that nobody has got, and never an old one."""
    made = World(start=False, log_type="linear", log_primary_files=4, log_secondary_files=2)
    if by_policy:
        path = f"{DATA}/qmgrs/{NAME}/qm.ini"
        made.disk.poke(path, made.disk.peek(path) + b"LogArchive:\n RemoveAfter=1d\n")
    made.start()
    made.qm.define_queue("A", image_recoverable="NO")

    def go_on(extents: int) -> None:
        for _ in range(extents):
            made.clock.advance(600)
            made.qm.put("A", b"x")
            if made.qm.queue("A").depth > 1:
                made.qm.get("A")
            made.qm.advance_log()
        made.qm.record_image()
        made.qm.checkpoint()
        made.qm.checkpoint()

    go_on(4)
    set_back = sequences(made)[-1]
    made.clock.jump_wall(-7200)
    go_on(4)
    made.clock.advance(2 * DAY)
    go_on(2)
    if by_policy:
        made.qm._retention.keep_policy()
    else:
        made.qm.remove_log(older_than=DAY)
    assert sequences(made)[0] > set_back
    assert [each.message.body for each in made.qm.replay("A", "oldest")][-1:] == [b"x"]


def test_the_policy_leaves_what_a_restart_needs_where_it_is() -> None:
    """However old it is: a unit of work holds it."""
    made = world("LogArchive:\n ArchiveAfter=5h\n")
    unit = made.qm.begin()
    unit.put("Q", b"never")
    for _ in range(3):
        fill(made)
    needed = made.qm._retention.needs.needed_from()["restart"]
    assert needed < made.qm.status().log.tail // made.qm._log.state.extent_bytes - 1
    made.clock.advance(100 * 3600)
    made.qm._retention.keep_policy()
    there = made.disk.list(ACTIVE)
    assert file_name(linear_number(needed)) in there
    assert file_name(linear_number(needed - 1)) not in there
    assert bodies(made.crash(LOSE_ALL), "KEPT") == [b"stays"]


def test_a_damaged_queue_is_built_again_from_archived_and_compressed_extents() -> None:
    made = world()
    for _ in range(3):
        fill(made)
    made.qm.put("Q", b"after the image")
    made.qm.checkpoint()
    for _ in range(2):
        made.qm.put("KEPT", b"y" * 100_000)
        made.qm.get("KEPT", message_id=[m.message_id for m in made.qm.browse("KEPT")][-1])
        made.qm.checkpoint()
    made.qm.archive_log()
    made.qm.compress_log()
    made.qm.end()
    for path in made.disk.files(f"{DATA}/qmgrs/{NAME}/queues"):
        if path.endswith(".seg"):
            made.disk.poke(path, bytes(100))
    made.start()
    assert bodies(made.qm, "KEPT") == [b"stays"]
    assert bodies(made.qm, "Q") == [b"after the image"]


def test_an_archive_that_is_no_more_the_archive_is_named_at_the_start_while_it_has_extents() -> None:
    made = world()
    made.qm.archive_log(older_than="9h")
    path = f"{DATA}/qmgrs/{NAME}/qm.ini"
    before = made.disk.peek(path)
    made.disk.poke(path, before + b"LogArchive:\n ArchivePath=/elsewhere\n")
    made.restart()
    assert f"AMQ9012W: {ARCHIVE} still has " in made.errors()
    made.qm.archive_log(older_than="7h")
    assert len([one for one in made.disk.files("/elsewhere") if one.endswith(".LOG")]) == 2
    made.disk.poke(path, before + b"LogArchive:\n ArchivePath=/third\n")
    made.restart()
    assert "AMQ9012W: /elsewhere still has 2 extents" in made.errors()
    for one in [*made.disk.files(ARCHIVE), *made.disk.files("/elsewhere")]:
        made.disk.poke(f"{ACTIVE}/{one.rpartition('/')[2]}", made.disk.peek(one))
        made.disk.remove(one)
    said = made.errors().count("AMQ9012")
    made.restart()
    assert made.errors().count("AMQ9012") == said
    check(made)


def test_two_queue_managers_with_one_archive_do_not_mix() -> None:
    made = world("LogArchive:\n ArchivePath=/both\n")
    made.qm.archive_log(older_than="9h")
    qmgr.create("QM2", data_path=DATA, disk=made.disk, clock=made.clock, log_type="linear", log_file_pages=64)
    ini = f"{DATA}/qmgrs/QM2/qm.ini"
    made.disk.poke(ini, made.disk.peek(ini) + b"LogArchive:\n ArchivePath=/both\n")
    with qmgr.start("QM2", data_path=DATA, disk=made.disk, clock=made.clock, background=False) as second:
        second.define_queue("Q")
        for _ in range(6):
            second.put("Q", b"x" * 180_000)
            second.get("Q")
            second.checkpoint()
            made.clock.advance(3600)
        before = made.disk.files("/both")
        with pytest.raises(Unavailable, match="/both is the archive of another queue manager's log"):
            second.archive_log()
        assert made.disk.files("/both") == before
        assert len(list(second.replay("Q", "oldest"))) == 6
    made.qm.archive_log()
    check(made)


def test_the_policy_of_qm_ini_is_kept() -> None:
    ages = "ArchiveAfter=5h\n CompressAfter=7h\n RemoveAfter=10h\n"
    made = world(f"LogArchive:\n ArchivePath=/elsewhere/\n {ages}")
    empty(made)
    made.clock.advance(3600)
    made.qm._retention.keep_policy()
    found = [path for path in made.disk.files("/elsewhere") if not path.endswith(".log-id")]
    assert found
    assert all(path.startswith("/elsewhere/S") for path in found)
    assert any(path.endswith(".LOG.gz") for path in found)
    assert any(path.endswith(".LOG") for path in found)
    made.clock.advance(DAY)
    made.qm._retention.keep_policy()
    assert made.disk.files("/elsewhere") != found
    made.qm.put("KEPT", b"stays")
    check(made)


def test_a_look_in_which_the_machine_was_suspended_puts_off_the_next_one_by_an_hour_at_most(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A night was three weeks without any archiving, and the disk filled up."""
    made = world("LogArchive:\n ArchiveAfter=5h\n")
    made.clock.advance(DAY)
    looked = list[int]()

    def suspended(*told: object, **named: object) -> dict[str, object]:
        looked.append(made.clock.elapsed)
        made.clock.advance(10 * 3600)
        return {}

    monkeypatch.setattr(made.qm._retention._archive, "apply_policy", suspended)
    made.qm._retention.keep_policy()
    made.clock.advance(3600)
    made.qm._retention.keep_policy()
    assert len(looked) == 2


@pytest.mark.parametrize("age", ["a week", "7", "-1d"])
def test_an_age_that_is_none_is_refused(age: str) -> None:
    with pytest.raises(Mistake, match="such as 36h"):
        world().qm.archive_log(older_than=age)


def test_a_circular_log_has_nothing_to_archive() -> None:
    made = World()
    for do in (made.qm.archive_log, made.qm.compress_log, made.qm.remove_log):
        with pytest.raises(MediaNotSupported, match="circular logging"):
            do(older_than=0)
    made.qm._retention.keep_policy()


def test_row_54_a_full_disk_costs_nothing_but_the_archive() -> None:
    made = world()
    made.disk.capacity = made.disk.used + 5000
    with pytest.raises(qmgr.StorageFull, match=r"could not be archived .*nothing is lost: free some space"):
        made.qm.archive_log()
    made.qm.put("KEPT", b"more")
    assert made.qm.get("KEPT").body == b"stays"
    made.qm.put("KEPT", b"stays")
    assert made.qm.get("KEPT").body == b"more"
    made.disk.capacity = None
    assert made.qm.archive_log().done
    check(made)


@pytest.mark.parametrize("loss", [KEEP_ALL, LOSE_ALL, mixed(1)], ids=str)
def test_row_23_a_crash_anywhere_in_it_leaves_a_queue_manager_that_starts_and_a_log_without_a_gap(loss: Loss) -> None:
    start = world()
    start.qm.get("KEPT")
    start.qm.put("KEPT", b"stays")
    start.qm.end()
    moment = 0
    while True:
        moment += 1 if SOAK else 11
        made = World.__new__(World)
        made.disk, made.clock = start.disk.snapshot(KEEP_ALL), start.clock
        made.start()
        made.disk.crash_after(moment)
        try:
            work(made.qm, (3, 6, 9))
        except SimCrash:
            made.crash(loss)
            check(made)
            work(made.qm, (3, 6, 9))
            check(made)
        else:
            assert moment > 70
            return


# LogManagement


def test_extents_that_were_reported_as_archived_are_used_again_the_others_wait() -> None:
    made = world(LogManagement="Archive")
    waiting = sequences(made)
    assert waiting[0] == 1
    empty(made)
    made.qm.record_image()
    made.qm.note_archived("S0000002.LOG", all_before=True)
    made.qm.checkpoint()
    made.qm.checkpoint()
    assert sequences(made)[0] == 4
    made.qm.note_archived("S0000004.LOG")
    made.qm.checkpoint()
    assert sequences(made)[0] == 4  # its neighbour is still to be archived
    made.crash(LOSE_ALL)
    made.qm.note_archived("S0000003.LOG")
    made.qm.checkpoint()
    assert sequences(made)[0] == 6
    for name in ("S0000099.LOG", "R0000001.LOG", "x"):
        with pytest.raises(Mistake, match="there is no log extent"):
            made.qm.note_archived(name)


def test_all_that_report_extents_at_once_are_heard(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each writes the file while the others have read it."""

    def slowly(disk: Disk, path: str, data: bytes) -> None:
        time.sleep(0.01)
        replace_file(disk, path, data)

    monkeypatch.setattr(notices, "replace_file", slowly)
    made = world(LogManagement="Archive")
    numbers = [sequence - 1 for sequence in sequences(made)[1:-1:2]]  # so no two of them go together
    assert len(numbers) > 3
    gate = threading.Barrier(len(numbers))

    def report(number: int) -> None:
        gate.wait()
        made.qm.note_archived(f"S{number:07d}.LOG")

    threads = [threading.Thread(target=report, args=(number,)) for number in numbers]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    made.crash(LOSE_ALL)
    assert all(made.qm._retention._notices.covers(number + 1) for number in numbers)


@pytest.mark.parametrize("management", ["Automatic", "Archive"])
def test_what_is_used_again_never_leaves_an_older_one_behind(management: str) -> None:
    """Compressed extents lie in the directory too, and a gap would make all before it worthless."""
    made = world("LogArchive:\n CompressAfter=2h\n", LogManagement="Manual")
    made.qm.compress_log(older_than="8h")
    made.qm.end()
    made.set_ini("LogManagement", management)
    made.start()
    empty(made)
    if management == "Archive":
        made.qm.note_archived("S0000006.LOG", all_before=True)
    made.qm.record_image()
    for _ in range(3):
        made.qm.checkpoint()
    made.qm.put("KEPT", b"stays")
    check(made)
    assert sequences(made)[0] > 1


def test_with_its_queue_manager_the_past_of_a_log_goes_too() -> None:
    made = world(LogManagement="Archive")
    made.qm.note_archived("S0000000.LOG")
    made.qm.archive_log(older_than="8h")
    made.qm.compress_log(older_than="5h")
    made.disk.poke(f"{ACTIVE}/S0000009.IDX", b"index")
    made.disk.poke(f"{ARCHIVE}/S0000099.LOG.gz.new", b"half")
    made.qm.end()
    qmgr.delete(NAME, data_path=DATA, disk=made.disk)
    assert [path for path in made.disk.files(DATA) if not path.startswith(f"{DATA}/mqs.ini")] == []
    assert not made.disk.exists(LOG)


@pytest.mark.parametrize("asked", [False, True])
@pytest.mark.parametrize("how", ["failed", "abandoned", "ended", "ended at once"])
def test_an_end_gives_up_what_is_being_copied(how: str, asked: bool) -> None:
    """The files may be another owner's then; whoever has asked for the work is told."""
    made = world("LogArchive:\n ArchiveAfter=9h\n")
    empty(made)
    made.clock.advance(9 * 3600)
    renamed = []

    def look(kind: str, path: str) -> None:
        if kind == "rename" and path.startswith(ARCHIVE):
            renamed.append(path)
            if how == "failed":
                made.qm._fail(OSError("the disk is gone"))
            elif how == "abandoned":
                made.qm.abandon()
            else:
                made.qm.end("quiesce" if how == "ended" else "immediate")

    made.disk.before_effect = look
    if asked:
        with pytest.raises(Unavailable, match=r"has stopped|is ending|has ended"):
            made.qm.archive_log(older_than="9h")
    else:
        made.qm._retention.keep_policy()
    made.disk.before_effect = None
    assert len(renamed) == 1


def test_a_look_at_the_extents_hides_no_damage_from_a_plan_that_is_just_being_made(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    made = world()
    damaged, usual = f"{ACTIVE}/S0000002.LOG", made.disk.list
    made.disk.poke(damaged, b"cut")
    began, planned, looked = threading.Event(), threading.Event(), list[str]()
    looker = threading.Thread(target=lambda: made.qm._retention.facts())

    def looking(path: str) -> list[str]:
        if threading.current_thread() is looker:
            began.set()
            assert planned.wait(60)
        else:
            looked.append(path)
            if looked.count(ARCHIVE) == 2 and looker.ident is None:  # the plan itself comes behind what is needed
                looker.start()
                assert began.wait(60)
        return usual(path)

    monkeypatch.setattr(made.disk, "list", looking)
    outcome = made.qm.archive_log(dry_run=True)
    planned.set()
    looker.join()
    assert outcome.damaged == (damaged,)


def test_long_work_pauses_only_while_others_write_to_the_log() -> None:
    clock, tail = SimClock(), 0
    pace = Pace(clock, lambda: tail)
    clock.advance(0.01)
    pace.give_way()
    assert clock.waited == []
    tail = 4096
    clock.advance(0.01)
    pace.give_way()
    assert clock.waited == pytest.approx([PAUSE_FACTOR * 0.01])
    clock.advance(0.01)
    pace.give_way()
    assert len(clock.waited) == 1
    tail = 8192
    clock.advance(10)
    pace.give_way()
    assert clock.waited[-1] == MAX_PAUSE_S
