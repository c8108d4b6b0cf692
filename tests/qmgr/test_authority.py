"""Rights: which profile decides, what the words stand for, that changes last and count at once; the commands."""

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import qmgr
from logger.posix_disk import PosixDisk
from qmgr import locations
from qmgr.authority import Grant, UserRights, allowed, changed, without
from qmgr.cli.main import qm
from qmgr.errors import IniError, Mistake, NameError_, NotAuthorized, Reason
from qmgr.infos import Peer
from qmgr.users import Users
from tests.commands import Commands
from tests.qmgr.world import World
from tests.sim.loss import LOSE_ALL


def grants(*said: tuple[str, str]) -> tuple[Grant, ...]:
    made: tuple[Grant, ...] = ()
    for profile, rights in said:
        made = changed(made, "mia", "queue" if profile else "qmgr", profile, rights.split(), [])
    return made


@pytest.mark.parametrize(
    ("profile", "fits", "not_"),
    [
        ("A", "A", "AB"),
        ("A?", "AB", "A."),
        ("A*", "ABC", "A.B"),
        ("A.*", "A.B", "A.B.C"),
        ("A.**", "A.B.C", "B.A"),
        ("A.**", "A", "AB"),
        ("A.**", "A.B", "AB.C"),
        ("**.C", "C", "AC"),
        ("**.C", "A.B.C", "A.BC"),
        ("A.**.C", "A.C", "AC"),
        ("A.**.C", "A.B.B.C", "A.BC"),
        ("A.**.**", "A", "AB"),
        ("A**", "AB.C", "B"),
        ("A.B**", "A.B.C", "A"),
        ("**", "ANY.THING/AT%ALL", None),
        ("A.*.C", "A.B.C", "A.B.B.C"),
        ("A(", None, None),
    ],
)
def test_profiles(profile: str, fits: str | None, not_: str | None) -> None:
    if fits is None:
        with pytest.raises(Mistake):
            grants((profile, "put"))
        return
    made = grants((profile, "put"))
    assert allowed(made, "mia", "put", fits)
    assert not allowed(made, "mia", "get", fits)
    assert not allowed(made, "tom", "put", fits)
    assert not_ is None or not allowed(made, "mia", "put", not_)


def test_the_most_specific_profile_decides_also_where_it_allows_less() -> None:
    made = grants(("**", "put get"), ("A.**", "put"), ("A.B", "browse"))
    assert [allowed(made, "mia", "get", name) for name in ("X", "A.X", "A.B")] == [True, False, False]
    assert [allowed(made, "mia", "put", name) for name in ("X", "A.X", "A.B")] == [True, True, False]
    assert allowed(made, "mia", "browse", "A.B")


@pytest.mark.parametrize(
    "name, narrow, wide",
    [
        ("AB", "AB", "AB*"),
        ("AB", "AB", "AB**"),
        ("AB", "AB", "A?"),
        ("A.C", "A.*", "A.**"),
        ("A.C", "A.?", "A.*"),
        ("A.C", "?.C", "*.C"),
        ("A.C", "*.C", "**"),
        ("A.C", "A.C", "**.C"),
        ("A.CD", "A.C*", "A.*"),
    ],
)
def test_the_narrower_of_two_profiles_decides(name: str, narrow: str, wide: str) -> None:
    for made in (grants((narrow, "put"), (wide, "get")), grants((wide, "get"), (narrow, "put"))):
        assert [allowed(made, "mia", verb, name) for verb in ("put", "get")] == [True, False]


def test_words_and_administrators() -> None:
    made = grants(("A", "allmqi"), ("B", "ALL"))
    assert not allowed(made, "mia", "admin", "A")
    assert allowed(made, "mia", "browse", "A")
    assert allowed(made, "mia", "admin", "B")
    assert not allowed(made, "mia", "connect", "")
    assert made[0].rights == ("inquire", "put", "get", "browse")  # a word for several means those that there are
    assert grants(("", "allmqi"), ("A", "none")) == (
        Grant(user="mia", kind="qmgr", rights=("connect", "inquire")),
        Grant(user="mia", profile="A"),
    )
    for profile, right in (("A", "connect"), ("", "put"), ("", "GET")):
        with pytest.raises(Mistake, match=f"there is no right '{right}' on"):
            grants((profile, right))
    of_old = Grant(user="mia", profile="A", rights=("connect", "put"))
    assert changed([of_old], "mia", "queue", "A", ["get"], [])[0].rights == ("put", "get")
    made = grants(("", "connect alladm"))
    assert all(allowed(made, "mia", verb, name) for verb in ("put", "get", "admin") for name in ("", "ANY"))
    with pytest.raises(Mistake, match="there is no right 'fly'"):
        grants(("A", "fly"))
    for wrong in ({"user": "a b"}, {"user": "mia", "kind": "topic"}, {"user": "mia", "kind": "qmgr", "profile": "A"}):
        with pytest.raises(Mistake):
            Grant(**wrong)


def test_what_was_given_can_be_taken_away_and_forgotten() -> None:
    made = grants(("A", "put get"))
    made = changed(made, "mia", "queue", "A", ["browse"], ["get"])
    assert made == (Grant(user="mia", profile="A", rights=("put", "browse")),)
    made = changed(made, "mia", "queue", "A", [], ["all"])
    assert made == (Grant(user="mia", profile="A"),)
    assert without(made, "mia", "queue", "A") == ()
    with pytest.raises(Mistake, match="no rights of their own"):
        without((), "mia", "queue", "A")


def test_rights_last_count_at_once_and_refusals_are_heard_of() -> None:
    made = World()
    made.qm.define_queue("A")
    refused: list[tuple[str, str, str]] = []
    rights = UserRights(made.qm, "mia", lambda user, verb, name: refused.append((user, verb, name)))
    with pytest.raises(NotAuthorized) as caught:
        made.qm.sessions.open(Peer(user="mia", channel="TCP"), rights)
    assert caught.value.reason is Reason.NOT_AUTHORIZED
    made.qm.authorize("mia", add=["connect"])
    made.qm.authorize("mia", "A", add=["put"])
    session = made.qm.sessions.open(Peer(user="mia", channel="TCP"), rights)
    session.put(None, "A", b"x", {})
    for wrong in (
        lambda: session.get(None, "A"),
        lambda: session.browse("A"),
        lambda: session.deliver("A", 1),
        lambda: session.put_later(None, "B", b"", {}),
        lambda: session.call("define_queue", "B"),
        lambda: session.call("queue", "A"),
        lambda: session.call("alter", description="x"),
    ):
        with pytest.raises(NotAuthorized):
            wrong()
    assert refused[0] == ("mia", "connect", "")
    assert refused[1] == ("mia", "get", "A")
    assert len(refused) == 8
    made.crash(LOSE_ALL)
    assert made.qm.attributes.authorities == (
        Grant(user="mia", kind="qmgr", rights=("connect",)),
        Grant(user="mia", profile="A", rights=("put",)),
    )
    made.qm.unauthorize("mia")
    made.qm.checkpoint()
    made.crash(LOSE_ALL)
    assert [one.kind for one in made.qm.attributes.authorities] == ["queue"]


def test_the_commands(tmp_path: Path, commands: Commands, capsys: pytest.CaptureFixture[str]) -> None:
    """Most in this process; in one of its own what reads standard input, and each command once."""
    qmgr.create("QM1", data_path=tmp_path)
    with qmgr.start("QM1", data_path=tmp_path) as manager:
        manager.define_queue("ORDERS.EU")

    def run(*words: str, given: str = "", alone: bool = False) -> tuple[int, str]:
        words = *words, "--data-path", str(tmp_path)
        if given:
            started = [sys.executable, "-m", "qmgr.cli.main", *words]
            done = subprocess.run(started, input=given, capture_output=True, text=True, timeout=60)
        elif alone:
            done = commands.run([*words], os.environ)
        else:
            code = qm(words)
            said = capsys.readouterr()
            return code, said.out + said.err
        return done.returncode, done.stdout + done.stderr

    aimed: tuple[str, ...] = ("-m", "QM1", "-t", "queue", "-n", "ORDERS.*", "-p", "mia")
    for command in (("setmqaut", *aimed, "+put"), ("dspmqaut", *aimed)):
        code, text = run(*command)
        assert (code, text.partition(";")[0]) == (40, "AMQ8146E: queue manager 'QM1' is not running")
    aimed = "--offline", "-m", "QM1", "-t", "queue", "-n", "ORDERS.*", "-p", "mia"
    assert run("setmqaut", *aimed, "+put", "+browse", alone=True)[0] == 0
    code, text = run("dspmqaut", "--offline", "-m", "QM1", "-t", "queue", "-n", "ORDERS.EU", "-p", "mia", alone=True)
    assert (code, text.split()[-2:]) == (0, ["put", "browse"])
    on_manager = "--offline", "-m", "QM1", "-t", "qmgr", "-p", "root"
    assert run("setmqaut", *on_manager, "+admin")[0] == 0
    assert run("dspmqaut", *on_manager)[1].split(":")[1].split() == ["connect", "inq", "admin"]
    text = run("dspmqaut", "--offline", "-m", "QM1", "-t", "queue", "-n", "ORDERS.EU", "-p", "root")[1]
    assert text.split(":")[1].split() == ["inq", "put", "get", "browse", "admin"]  # nobody connects to a queue
    for said, left in (
        (("-all", "+put"), "put"),
        (("+get", "-all"), "get"),
        (("+allmqi", "-alladm", "-get"), "put browse"),
        (("+put", "-browse", "+get"), "put get"),
        (("-all",), ""),
    ):
        assert run("setmqaut", *aimed, *said)[0] == 0
        assert run("dspmqaut", *aimed)[1].split(":")[1].split() == left.split()
    several = *aimed, "-p", "tom", "-p", "ann", "-p", "tom"

    def put_by() -> list[str]:
        shown = {user: run("dspmqaut", *aimed[:-1], user)[1] for user in ("mia", "tom", "ann")}
        return [user for user, text in shown.items() if text.split()[-1] == "put"]

    assert run("setmqaut", *several, "+put")[0] == 0
    assert put_by() == ["mia", "tom", "ann"]
    assert run("setmqaut", *several, "-p", "a b", "-put")[0] == 36
    assert put_by() == ["mia", "tom", "ann"]  # for none, where one is refused
    assert run("setmqaut", *several, "-put")[0] == 0
    assert put_by() == []
    text = "AMQ7076E: user 'eve' has no rights of their own on 'ORDERS.*' (2046 MQRC_OPTIONS_ERROR)\n"
    assert run("setmqaut", *several, "-p", "eve", "-remove") == (36, text)
    assert run("setmqaut", *several, "-remove")[0] == 0
    code, text = run("setmqaut", *aimed, "-remove")
    assert (code, "user 'mia' has no rights of their own" in text) == (36, True)
    text = "AMQ7076E: -p takes one value, and is given more than once; see dspmqaut --help.\n"
    assert run("dspmqaut", *several) == (36, text)
    nowhere = "--offline", "-m", "QM1", "-t", "queue", "-n", "ORDER.EU", "-p", "mia"  # as written by mistake
    code, text = run("setmqaut", *nowhere, "+put")
    assert (code, text) == (133, "AMQ7085E: there is no queue 'ORDER.EU' to give rights on; define it first.\n")
    text = "AMQ7085E: there is no queue, and no profile, 'ORDER.EU'.\n"
    assert run("dspmqaut", *nowhere) == (133, text)
    generic = *aimed[:-3], "O?", *aimed[-2:]
    assert run("dspmqaut", *generic) == (133, "AMQ7085E: there is no profile 'O?'.\n")
    assert run("setmqaut", *generic, "-put")[0] == 0
    assert run("dspmqaut", *generic)[0] == 0
    assert run("setmqaut", *nowhere, "-put")[0] == 0  # of what was deleted, too
    assert run("dspmqaut", *nowhere)[0] == 0
    code, text = run("setmqaut", *aimed, "+all", "-put", "+put")
    assert (code, text) == (36, "AMQ7006E: right put is to be given and taken away; say one of the two.\n")
    for words, there in (
        ((*aimed, "+get", "+connect"), "'connect' on a queue; there are inquire, put, get, browse, admin"),
        ((*on_manager, "-put"), "'put' on the queue manager; there are connect, inquire, admin"),
    ):
        assert run("setmqaut", *words) == (36, f"AMQ7076E: there is no right {there} (2046 MQRC_OPTIONS_ERROR)\n")
    assert run("setmqaut", *on_manager, "+none", "+allmqi")[0] == 0
    for theirs in ("+setid", "-setid", "+chg", "-dlt", "-passall", "+CRT"):
        code, text = run("setmqaut", *aimed, "+put", theirs)
        known = "admin, all, alladm, allmqi, browse, connect, dsp, get, inq, inquire, none, put"
        why = f"there is no right {theirs[1:]!r} here; there are {known} (2046 MQRC_OPTIONS_ERROR)"
        assert (code, text) == (36, f"AMQ7076E: {why}\n")
    for wrong in (("+fly",), (), ("-remove", "+put"), ("put",)):
        code, text = run("setmqaut", *aimed, *wrong)
        assert code == 36, text
        assert len(text.splitlines()) == 1
    for command in ("setmqaut", "dspmqaut"):
        code, text = run(command, "-m", "QM1", "-t", "qmgr", "-g", "mqm")
        assert (code, text.startswith("AMQ7076E: -g was given 'mqm'; rights are those of users here")) == (36, True)
    assert run("setuser", "-m", "QM1", "mia", given="secret\n") == (0, "User mia set.\n")
    assert run("setuser", "-m", "QM1", "--list", alone=True) == (0, "mia\n")
    code, text = run("setuser", "-m", "QM1", "tom", given="\n")
    assert (code, text) == (36, "AMQ7076E: no password for tom: it is the first line of standard input.\n")
    code, text = run("setuser", "-m", "QM1", "tom smith", given="")
    assert (code, len(text.splitlines()), "'tom smith'" in text) == (36, 1, True)
    assert "secret" not in (tmp_path / "qmgrs" / "QM1" / "users.json").read_text()
    assert (tmp_path / "qmgrs" / "QM1" / "users.json").stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize(
    "content, why",
    [
        (b"", "it is no JSON from line 1, column 1 on"),
        (b'{\n"format": 1,', "it is no JSON from line 2, column 13 on"),
        (b"[" * 100_000, "it is not as qm setuser writes it"),
        (b"[]", "it is not as qm setuser writes it"),
        (b'{"format": 2, "users": {}}', "it is not as qm setuser writes it"),
        (b'{"format": 1, "users": {"mia": {}}}', "it is not as qm setuser writes it"),
        (b"\xff", "it is not as qm setuser writes it"),
    ],
)
def test_users_that_can_not_be_read_are_told_in_one_sentence(tmp_path: Path, content: bytes, why: str) -> None:
    location = locations.find("QM1", tmp_path)
    Path(location.data_dir).mkdir(parents=True)
    Path(location.users).write_bytes(content)
    with pytest.raises(IniError) as caught:
        Users(PosixDisk(), location).names()
    assert str(caught.value).startswith(f"AMQ6162E: {location.users} is damaged: {why}; bring it back, or delete it")


def test_rights_on_some_queues_reach_no_others() -> None:
    """By an alias, a backout queue, an argument given by keyword, or the number of a queue."""
    made = World(log_type="linear", log_primary_files=4)
    made.qm.define_queue("PAYROLL")
    made.qm.define_queue("DEV.Q")
    made.qm.put("PAYROLL", b"secret")
    rights = UserRights(made.qm, "dev", lambda user, verb, name: None)
    made.qm.authorize("dev", add=["connect"])
    made.qm.authorize("dev", "DEV.**", add=["all"])
    session = made.qm.sessions.open(Peer(user="dev", channel="TCP"), rights)
    session.call("define_alias", "DEV.X", "DEV.Q")
    session.call("alter_queue", "DEV.Q", backout_threshold=1)
    for wrong in (
        lambda: session.call("define_alias", "DEV.Y", "PAYROLL"),
        lambda: session.call("define_alias", "DEV.Y", target="PAYROLL"),
        lambda: session.call("alter_alias", "DEV.X", target="PAYROLL"),
        lambda: session.call("define_queue", "DEV.Z", backout_queue="PAYROLL"),
        lambda: session.call("queue", "PAYROLL"),
        lambda: session.require_browse("PAYROLL"),
        lambda: session.require_browse(1),
        lambda: session.require_browse(99),
    ):
        with pytest.raises(NotAuthorized):
            wrong()
    with pytest.raises(Mistake, match="first argument"):
        session.call("queue", name="PAYROLL")
    with pytest.raises(Mistake, match="is an alias"):
        session.call("clear_queue", "DEV.X")
    session.require_browse(2)


def test_what_is_no_name_is_refused_before_rights_are_looked_at() -> None:
    """A long name, and a profile with wildcards, would take for ever to compare."""
    made = World()
    made.qm.define_queue("A")
    made.qm.authorize("dev", add=["connect"])
    made.qm.authorize("dev", "**.IN.**.OUT", add=["all"])
    refused: list[str] = []
    rights = UserRights(made.qm, "dev", lambda user, verb, name: refused.append(name))
    session = made.qm.sessions.open(Peer(user="dev", channel="TCP"), rights)
    name = ".IN." * 10_000
    for wrong in (
        lambda: session.put(None, name, b"", {}),
        lambda: session.get(None, name),
        lambda: session.browse(name),
        lambda: session.deliver(name, 1),
        lambda: session.call("queue", name),
        lambda: session.require_browse(name),
    ):
        with pytest.raises(NameError_):
            wrong()
    assert refused == []
    assert not rights.permits("put", name)  # as who may not wait asks first
    assert not any(name in known for known in rights._known), "it was compared"


def test_profiles_have_few_wildcards_and_clients_names_that_fit_a_line() -> None:
    with pytest.raises(Mistake, match="wildcards"):
        grants(("*A*B*C*D*", "put"))
    assert Peer(user="", application="a\n\udcffb").application == "a??b"


@pytest.mark.parametrize(
    "given",
    [
        None,
        "mia",
        ["mia"],
        [{"usr": "mia"}],
        [{1: 2}],
        [{"user": "mia", "profile": "A", "rights": "put"}],
        [{"user": "mia", "profile": "A", "rights": [[]]}],
        [{"user": "mia", "kind": "qmgr", "profile": None}],
    ],
    ids=repr,
)
def test_what_are_no_grants_is_refused(qm: qmgr.QueueManager, given: Any) -> None:
    with pytest.raises(Mistake):
        qm.alter(authorities=given)
    assert qm.attributes.authorities == ()


@pytest.mark.parametrize("wrong", [{"profile": None}, {"profile": []}, {"add": None}, {"add": "put"}, {"remove": 5}])
def test_what_is_no_right_or_profile_is_refused(qm: qmgr.QueueManager, wrong: dict[str, Any]) -> None:
    with pytest.raises(Mistake):
        qm.authorize("mia", **{"profile": "A", "add": ["put"], **wrong})
    assert qm.attributes.authorities == ()
