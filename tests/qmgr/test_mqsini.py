"""mqs.ini: adding and removing queue managers keeps everything else that people wrote there."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from logger.whole_files import make_dirs, read_whole, write_whole
from qmgr import mqsini
from qmgr.errors import IniError, InUse
from qmgr.mqsini import Entry, MqsIni
from tests.sim.clock import SimClock
from tests.sim.disk import SimDisk

PATH = "/data/mqs.ini"
QM1 = Entry(name="QM1", prefix="/data", directory="QM1")
QM2 = Entry(name="sat.urn", prefix="/data", directory="sat!urn")

FOREIGN = """\
#* Machine-wide file
AllQueueManagers:
   DefaultPrefix=/var/mqm   # kept
LogDefaults:
   LogDefaultPath=/var/mqm/log

# before
QueueManager:
   Name=old
   # inside
   Prefix=/var/mqm
   Directory=old
   InstallationName=Installation1
# after
DefaultQueueManager:
   Name=old
ClientExitPath:
   ExitsDefaultPath=/var/mqm/exits
"""


def test_a_missing_file_lists_nothing():
    assert mqsini.read(SimDisk(), PATH) == MqsIni()


def test_add_and_remove():
    disk = SimDisk()
    mqsini.add(disk, PATH, QM1)
    mqsini.add(disk, PATH, QM2, default=True)
    assert mqsini.read(disk, PATH) == MqsIni(entries=(QM1, QM2), default="sat.urn")
    assert mqsini.read(disk, PATH).find("QM1") == QM1
    mqsini.remove(disk, PATH, "sat.urn")
    assert mqsini.read(disk, PATH) == MqsIni(entries=(QM1,))
    mqsini.remove(disk, PATH, "QM1")
    mqsini.remove(disk, PATH, "QM1")
    assert mqsini.read(disk, PATH) == MqsIni()
    assert read_whole(disk, PATH) == b""


def test_the_file_looks_like_one_of_ibm_mq():
    text = mqsini.with_default(mqsini.with_entry("", QM2, PATH), "sat.urn", PATH)
    assert text == (
        "QueueManager:\n   Name=sat.urn\n   Prefix=/data\n   Directory=sat!urn\n"
        "DefaultQueueManager:\n   Name=sat.urn\n"
    )  # fmt: skip


def test_foreign_lines_and_comments_stay():
    added = mqsini.with_entry(FOREIGN, QM1, PATH)
    assert added.startswith(FOREIGN)
    assert mqsini.without_entry(added, "QM1", PATH) == FOREIGN
    removed = mqsini.without_entry(FOREIGN, "old", PATH)
    assert "# before\n# after\nClientExitPath:\n   ExitsDefaultPath=/var/mqm/exits\n" in removed
    assert mqsini.parse(removed, PATH) == MqsIni()


def test_removing_the_default_leaves_no_default():
    assert mqsini.parse(mqsini.without_entry(FOREIGN, "old", PATH), PATH).default is None
    assert mqsini.parse(mqsini.without_entry(FOREIGN, "other", PATH), PATH).default == "old"


def test_adding_again_changes_nothing_or_replaces():
    once = mqsini.with_entry(FOREIGN, QM1, PATH)
    assert mqsini.with_entry(once, QM1, PATH) == once
    moved = Entry(name="QM1", prefix="/elsewhere", directory="QM1")
    assert mqsini.parse(mqsini.with_entry(once, moved, PATH), PATH).find("QM1") == moved
    assert mqsini.with_default(FOREIGN, "old", PATH) == FOREIGN


def test_text_without_a_last_line_end_is_kept_whole():
    assert mqsini.with_entry("# note", QM1, PATH).startswith("# note\nQueueManager:\n")


@given(st.text(st.characters(codec="utf-8", exclude_categories=["Cc"])))
def test_any_comment_survives_every_edit(comment: str):
    text = f"# {comment}\n"
    added = mqsini.with_default(mqsini.with_entry(text, QM1, PATH), "QM1", PATH)
    assert mqsini.without_entry(added, "QM1", PATH) == text


@pytest.mark.parametrize(
    "text, amq, words",
    [
        ("QueueManager:\n   Name=A\n   Prefix=/x\n", "AMQ7006E", "no Directory"),
        ("\nDefaultQueueManager:\n", "AMQ7006E", "line 2: the stanza that begins here has no Name"),
        ("Name=A\n", "AMQ6162E", "before the first stanza"),
        ("QueueManager:\n Name=A\n Name=B\n", "AMQ7076E", "line 3: attribute Name was given"),
        (FOREIGN + "QueueManager:\n Name=old\n Prefix=/x\n Directory=old\n", "AMQ7076E", "'old' is listed twice"),
        (b"\xff", "AMQ6162E", "UTF-8"),
    ],
)
def test_a_file_that_is_not_understood_is_refused_and_kept(text: str | bytes, amq: str, words: str):
    disk = SimDisk()
    data = text.encode() if isinstance(text, str) else text
    make_dirs(disk, "/data")
    write_whole(disk, PATH, data)
    for call in (lambda: mqsini.read(disk, PATH), lambda: mqsini.add(disk, PATH, QM1)):
        with pytest.raises(IniError) as caught:
            call()
        assert str(caught.value).startswith(f"{amq}: {PATH}")
        assert words in str(caught.value)
    assert read_whole(disk, PATH) == data


def test_an_entry_that_no_file_can_say_is_not_written():
    disk = SimDisk()
    with pytest.raises(IniError, match="can't hold the prefix"):
        mqsini.add(disk, PATH, Entry(name="A", prefix="/a#b", directory="A"))
    assert not disk.exists(PATH)


def test_an_edit_waits_for_another_and_then_says_who_has_the_file():
    disk, clock = SimDisk(), SimClock()
    make_dirs(disk, "/data")
    held = disk.lock(PATH + ".lock", "pid 4711")
    with pytest.raises(InUse, match="pid 4711") as caught:
        mqsini.add(disk, PATH, QM1, clock=clock)
    assert caught.value.holder == "pid 4711"
    assert sum(clock.waited) > 1
    held.release()
    mqsini.add(disk, PATH, QM1, clock=clock)
    assert mqsini.read(disk, PATH).entries == (QM1,)


def test_log_defaults_are_what_new_logs_have():
    assert mqsini.log_defaults("", PATH) == {}
    assert mqsini.log_defaults("LogDefaults:\nQueueManager:\n  Name=a\n  Prefix=/d\n  Directory=a\n", PATH) == {}
    assert mqsini.log_defaults(FOREIGN, PATH)["log_path"] == "/var/mqm/log"
    said = mqsini.log_defaults(
        "# mine\nLogDefaults:\n  LogPrimaryFiles=5\n  LogType=LINEAR\n  LogFilePages=256\n", PATH
    )
    assert said == mqsini.log_defaults("LogDefaults:\nLogType=LINEAR LogFilePages=256 LogPrimaryFiles=5", PATH)
    assert (said["log_primary_files"], said["log_file_pages"], said["log_type"]) == (5, 256, "LINEAR")
    assert said["log_secondary_files"] == 2
    assert "log_path" not in said


def test_what_is_wrong_with_log_defaults_is_told_with_its_line():
    for line, what in (("LogPrimaryFiles=1", "2 to 510"), ("LogPath=/x", "LogPath"), ("Foo=1", "Foo")):
        with pytest.raises(IniError, match=f"{PATH}, line 3.*{what}"):
            mqsini.log_defaults(f"# a\nLogDefaults:\n{line}\n", PATH)
