"""dmpmqcfg: what it writes defines the same again, is read by runmqsc, and says what it can't say."""

import contextlib
import io
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import attrs
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import qmgr
from qmgr.authority import QMGR, RIGHTS_ON, Grant
from qmgr.cli import access
from qmgr.cli.main import qm
from qmgr.mqsc import script
from qmgr.mqsc.source import MAX_LINE_CHARS, commands
from qmgr.mqsc.syntax import parse
from qmgr.objects import ALIAS_ATTRIBUTES, ATTRIBUTES, QMGR_ATTRIBUTES
from tests.conftest import SOAK
from tests.qmgr.world import World

GOLDEN = Path(__file__).parent / "golden" / "written.mqsc"
Run = Callable[..., tuple[int, str, str]]


def written(manager: qmgr.QueueManager, *words: str) -> str:
    """What dmpmqcfg writes of it, without the lines that say when and how."""

    @contextlib.contextmanager
    def running(*_: object, **__: object) -> Iterator[qmgr.QueueManager]:
        yield manager

    with pytest.MonkeyPatch.context() as patch, contextlib.redirect_stdout(io.StringIO()) as out:
        patch.setattr(access, "running", running)
        assert qm(["dmpmqcfg", "-m", "QM1", *words]) == 0
    lines = out.getvalue().splitlines(keepends=True)
    assert lines[0] == lines[4] == lines[-1] == lines[-3]
    return "".join(lines[5:-3])


def taken(manager: qmgr.QueueManager, text: str) -> None:
    result = manager.mqsc(text)
    assert result.code == 0, result.text
    assert "AMQ9052" not in result.text


def defined(manager: qmgr.QueueManager) -> dict[str, Any]:
    """All that is defined, by the API."""
    return {
        "queues": {each.name: {name: getattr(each, name) for name in ATTRIBUTES} for each in manager.queues()},
        "aliases": {each.name: {name: getattr(each, name) for name in ALIAS_ATTRIBUTES} for each in manager.aliases()},
        "manager": attrs.asdict(manager.attributes),
    }


# ---- any definitions

names = st.from_regex(r"[A-Za-z0-9._/%]{1,48}", fullmatch=True)
awkward = st.text(st.sampled_from("aZ '\"+-*;(),é😀"), max_size=64)
text = (awkward | st.text(max_size=64).filter(str.isprintable)).map(str.rstrip)
count = st.integers(0, 999_999_999)
flag = st.booleans()
maybe = {"default_priority": st.integers(0, 9), "default_persistence": flag}
both = {"description": text, "put_enabled": flag, "get_enabled": flag}
queues = st.fixed_dictionaries(
    {},
    optional={
        **both,
        **maybe,
        "max_depth": count,
        "max_message_length": st.integers(0, 104_857_600),
        "delivery_sequence": st.sampled_from(["PRIORITY", "FIFO"]),
        "non_persistent_class": st.sampled_from(["NORMAL", "HIGH"]),
        "backout_threshold": count,
        "backout_queue": st.just("") | names,
        "image_recoverable": st.sampled_from(["QMGR", "YES", "NO"]),
        "depth_high": st.integers(0, 100),
        "depth_low": st.integers(0, 100),
        **dict.fromkeys(("depth_max_event", "depth_high_event", "depth_low_event"), flag),
        "expiry_cap": st.none() | st.integers(1, 999_999_999).map(lambda tenths: tenths / 10),
    },
)
aliases = st.fixed_dictionaries(
    {"target": st.just("") | names},
    optional={**both, **{name: st.none() | value for name, value in maybe.items()}},
)
positive = st.none() | st.integers(1, 999_999_999)
managers = st.fixed_dictionaries(
    {
        "description": text,
        "dead_letter_queue": st.just("") | names,
        "max_uncommitted": positive,
        "max_handles": count,
        "max_message_length": st.integers(32_768, 104_857_600),
        **dict.fromkeys(("performance_events", "inhibit_events", "start_stop_events", "authority_events"), flag),
        "logger_events": flag,
        "image_schedule": st.sampled_from(["MANUAL", "AUTO"]),
        "image_interval": positive,
        "image_log_length": positive,
        "image_recover_objects": flag,
        "image_recover_queues": flag,
    }
)
users = st.from_regex(r"[A-Za-z0-9._@-]{1,64}", fullmatch=True)


@st.composite
def definitions(draw: st.DrawFn) -> dict[str, Any]:
    there = draw(st.lists(names, unique=True, max_size=6))
    profiles = [*there, "**", "Orders.*", "a?.**", "%/*"]
    rights = st.tuples(users, st.sampled_from(["", *profiles]), st.sets(st.sampled_from(RIGHTS_ON["queue"])))
    cut = draw(st.integers(0, len(there)))
    return {
        "queues": [(name, draw(queues)) for name in there[:cut]],
        "aliases": [(name, draw(aliases)) for name in there[cut:]],
        "manager": draw(managers),
        "rights": draw(st.lists(rights, max_size=5)),
    }


def define(manager: qmgr.QueueManager, said: dict[str, Any], *, linear: bool) -> None:
    manager.alter(**{**said["manager"], "logger_events": linear and said["manager"]["logger_events"]})
    for name, attributes in said["queues"]:
        manager.define_queue(name, **attributes)
    for name, attributes in said["aliases"]:
        manager.define_alias(name, **attributes)
    for user, profile, rights in said["rights"]:
        manager.authorize(user, profile, add=rights if profile else rights & {*RIGHTS_ON[QMGR]})


def test_the_strategies_know_every_attribute() -> None:
    def keys(strategy: Any) -> set[str]:
        return {*strategy.wrapped_strategy.mapping, *(strategy.wrapped_strategy.optional or ())}

    assert keys(queues) == ATTRIBUTES - {"buffer_size"}
    assert keys(aliases) == ALIAS_ATTRIBUTES
    assert keys(managers) == QMGR_ATTRIBUTES - {"authorities"}


@settings(max_examples=2000 if SOAK else 30, deadline=None)
@given(definitions(), flag, st.sampled_from([(), ("-a",), ("-o", "1line"), ("-a", "-o", "1line")]))
def test_what_is_written_defines_the_same_in_a_new_queue_manager(
    said: dict[str, Any], linear: bool, words: tuple[str, ...]
) -> None:
    source, target = (World(log_type="linear" if linear else "circular").qm for _ in range(2))
    define(source, said, linear=linear)
    first = written(source, *words)
    assert max(map(len, first.splitlines())) < MAX_LINE_CHARS
    assert "can't say" not in first
    taken(target, first)
    assert written(target, *words) == first
    assert defined(target) == defined(source)
    taken(target, first)  # it can be taken back where all is there already
    assert defined(target) == defined(source)


@settings(max_examples=20, deadline=None)
@given(definitions(), managers, queues)
def test_all_attributes_change_what_was_defined_otherwise(
    said: dict[str, Any], other: dict[str, Any], attributes: dict[str, Any]
) -> None:
    source, target = World(log_type="linear").qm, World(log_type="linear").qm
    said["manager"]["max_uncommitted"] = said["manager"]["max_uncommitted"] or 7  # one that was never said changes none
    define(source, said, linear=True)
    target.alter(**other)
    for name, _ in said["queues"]:
        target.define_queue(name, **attributes)
    taken(target, written(source, "-a"))
    there, wanted = defined(target), defined(source)
    assert there["manager"] == wanted["manager"]
    assert there["aliases"] == wanted["aliases"]
    assert {name: there["queues"][name] for name in wanted["queues"]} == wanted["queues"]


# ---- to the letter


def test_golden() -> None:
    manager = World(log_type="linear").qm
    manager.alter(description="the shop's", dead_letter_queue="Lost", logger_events=True, max_uncommitted=500)
    manager.define_queue("Lost")
    manager.define_queue(
        "ORDERS", description="it's + 'x' -", max_depth=5000, default_persistence=False, expiry_cap=1.5, depth_high=90
    )
    manager.define_queue("exact", expiry_cap=0.25, buffer_size=65536, description="blank at its end ")
    manager.define_alias("shop", "ORDERS", get_enabled=False, default_priority=4)
    manager.authorize("mia", add=["connect", "inquire"])
    manager.authorize("mia", "ORDERS", add=["put", "browse"])
    manager.authorize("Tom@shop", "shop.**", add=["all"])
    manager.authorize("eve", "ORDERS", remove=["put"])
    manager.authorize("eve", "GONE", add=["put"])
    output = f"{written(manager)}{'-' * 80}\n{written(manager, '-a')}"
    output += f"{'-' * 80}\n{written(manager, '-x', 'authrec', '-o', 'setmqaut')}"
    if os.environ.get("QMGR_GOLDEN"):
        GOLDEN.write_text(output)
        return
    assert output == GOLDEN.read_text()


def test_a_cap_that_mqsc_has_no_number_for_is_told() -> None:
    manager = World().qm
    manager.define_queue("A", expiry_cap=5e8)
    text = written(manager, "-n", "A")
    assert text.startswith("* MQSC can't say of what follows: expiry_cap=500000000.0\nDEFINE QLOCAL('A') +\n")
    assert "CAPEXPRY" not in text
    taken(World().qm, text)


def test_logger_events_of_a_log_that_has_become_circular_are_left_out() -> None:
    world = World(log_type="linear")
    manager = world.qm
    manager.alter(logger_events=True)
    assert "LOGGEREV(ENABLED)" in written(manager)
    circular = World().qm
    circular._engine.alter_qmgr({"logger_events": True})  # as migmqlog leaves it
    assert "LOGGEREV" not in written(circular)
    assert "LOGGEREV(DISABLED)" in written(circular, "-a")


def test_rights_that_mean_nothing_there_are_left_out() -> None:
    assert "AUTHADD(PUT)" in "".join(script.grant(Grant(user="a", profile="A", rights=["connect", "put"])).lines())
    assert script.setmqaut("QM1", Grant(user="a", profile="A*", rights=[])) == (
        "setmqaut -m QM1 -t queue -n 'A*' -p a +none"
    )


def test_a_comment_is_one_line_whatever_it_says() -> None:
    assert script.comment("a\nDELETE QLOCAL(A) PURGE\r\u2028") == "* a?DELETE QLOCAL(A) PURGE??"


# ---- the command


@pytest.fixture
def data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("QMGR_DATA_PATH", str(tmp_path))
    for name in ("QM1", "QM2"):
        qmgr.create(
            name,
            data_path=tmp_path,
            log_primary_files=2,
            log_secondary_files=1,
            log_file_pages=64,
            log_buffer_pages=18,
        )
    with qmgr.start("QM1", data_path=tmp_path, background=False) as manager:
        for name in ("ORDERS", "ORDERS.EU", "OTHER"):
            manager.define_queue(name, description="Größe 'x'")
        manager.define_alias("ORDERS.IN", "ORDERS")
        manager.authorize("mia", add=["connect"])
        manager.authorize("mia", "ORDERS.*", add=["put", "get"])
        manager.authorize("mia", "OTHER")
        manager.authorize("-put", "OTHER", add=["put"])
    return tmp_path


@pytest.fixture
def run(data: Path, capsys: pytest.CaptureFixture[str]) -> Run:
    """Run `qm WORDS` in this process."""

    def run(words: str) -> tuple[int, str, str]:
        code = qm(shlex.split(words))
        said = capsys.readouterr()
        return code, said.out, said.err

    return run


def objects(text: str) -> list[str]:
    """What is defined, and whose rights are given."""
    found = [parse(one) for one in commands(text)]
    return [one.name or one.options.get("PROFILE", one.row.object) for one in found]


QUEUES = ["ORDERS", "ORDERS.EU", "OTHER"]


@pytest.mark.parametrize(
    "words, found",
    [
        ("", ["QMGR", *QUEUES, "ORDERS.IN", "OTHER", "AUTHREC", "ORDERS.*", "OTHER"]),
        ("-x object", ["QMGR", *QUEUES, "ORDERS.IN"]),
        ("-x authrec", ["OTHER", "AUTHREC", "ORDERS.*", "OTHER"]),
        ("-t authrec", ["OTHER", "AUTHREC", "ORDERS.*", "OTHER"]),
        ("-t ALL -x Object", ["QMGR", *QUEUES, "ORDERS.IN"]),
        ("-t qmgr", ["QMGR", "AUTHREC"]),
        ("-t qmgr -n QM1 -x object", ["QMGR"]),
        ("-t queue -x object", [*QUEUES, "ORDERS.IN"]),
        ("-t ql -x object", QUEUES),
        ("-t qalias -x object", ["ORDERS.IN"]),
        ("-n 'ORDERS*'", ["ORDERS", "ORDERS.EU", "ORDERS.IN", "ORDERS.*"]),
        ("-n 'ORDERS.*' -t qlocal", ["ORDERS.EU", "ORDERS.*"]),
        ("-n ORDERS", ["ORDERS"]),
        ("-n OTHER -x authrec", ["OTHER", "OTHER"]),
        ("-n '*' -t qmgr -x object", ["QMGR"]),
        ("-z -n 'Q*' -x object -a", ["QMGR"]),
    ],
)
def test_what_is_meant(run: Run, words: str, found: list[str]) -> None:
    code, out, err = run(f"dmpmqcfg -m QM1 --offline {words}")
    assert (code, err) == (0, "")
    assert objects(out) == found
    assert objects(run(f"dmpmqcfg -m QM1 --offline -o 1line {words}")[1]) == found


@pytest.mark.parametrize(
    "words, code, why",
    [
        (
            "-t channel",
            36,
            "AMQ7076E: -t was given 'channel', which IBM MQ has and is not provided here; allowed: all,",
        ),
        (
            "-t fish",
            36,
            "AMQ7076E: -t was given 'fish'; allowed: all, qmgr, queue, q, qlocal, ql, qalias, qa, authrec.",
        ),
        (
            "-x chlauth",
            36,
            "AMQ7076E: -x was given 'chlauth', which IBM MQ has and is not provided here; allowed: all,",
        ),
        (
            "-o 2line",
            36,
            "AMQ7076E: -o was given '2line', which IBM MQ has and is not provided here; allowed: mqsc, 1line,",
        ),
        ("-o 3line", 36, "AMQ7076E: -o was given '3line'; allowed: mqsc, 1line, setmqaut."),
        ("-o setmqaut", 36, "AMQ7076E: -o setmqaut writes rights only; say -x authrec with it."),
        ("-t authrec -x object", 36, "AMQ7076E: -t authrec leaves nothing for -x object; say one of the two."),
        ("-r QM9", 36, "AMQ7075E: unrecognized arguments: -r (IBM MQ's, and not provided here)"),
        ("-c default", 36, "AMQ7075E: unrecognized arguments: -c (IBM MQ's, and not provided here)"),
        ("-n ORDER", 133, "AMQ7085E: queue manager 'QM1' has nothing of the name 'ORDER' for -t all -x all."),
        ("-n ORDERS -t qmgr", 133, "AMQ7085E: queue manager 'QM1' has nothing of the name 'ORDERS' for -t qmgr"),
        ("-n ''", 133, "AMQ7085E: queue manager 'QM1' has nothing of the name '' for"),
    ],
)
def test_what_is_refused(run: Run, words: str, code: int, why: str) -> None:
    found, out, err = run(f"dmpmqcfg -m QM1 --offline {words}")
    assert (found, out, len(err.splitlines())) == (code, "", 1)
    assert err.startswith(why)


def test_one_that_does_not_run_or_that_another_has_is_not_available(run: Run, data: Path) -> None:
    code, out, err = run("dmpmqcfg -m QM1")
    assert (code, out, err.partition(";")[0]) == (40, "", "AMQ8146E: queue manager 'QM1' is not running")
    assert run("dmpmqcfg -m QM1 -z") == (40, "", "")
    assert run("dmpmqcfg -m QM9 --offline")[0] == 72
    with qmgr.start("QM1", data_path=data):
        code, out, err = run("dmpmqcfg -m QM1")
    assert (code, out, f"pid {os.getpid()}" in err) == (40, "", True)


def test_the_head_says_where_it_comes_from(run: Run) -> None:
    out = run("dmpmqcfg -m QM1 --offline -n 'ORDERS*'")[1].splitlines()
    moment = r"\d{4}-\d\d-\d\d at \d\d\.\d\d\.\d\d UTC"
    assert out[0] == out[4] == out[-1] == out[-3] == "*" * 79
    assert re.fullmatch(rf"\* Script generated on {moment} by qmgr \S.*", out[1])
    assert out[2] == "* Queue manager name: QM1"
    assert out[3] == "* Command issued: dmpmqcfg -m QM1 --offline -n 'ORDERS*'"
    assert re.fullmatch(rf"\* Script ended on {moment}", out[-2])


def test_rights_for_a_shell(run: Run, tmp_path: Path) -> None:
    out = run("dmpmqcfg -m QM1 --offline -x authrec -o setmqaut")[1]
    lines = [line for line in out.splitlines() if not line.startswith("#")]
    assert lines == [
        "setmqaut -m QM1 -t queue -n OTHER -p-put +put",
        "setmqaut -m QM1 -t qmgr -p mia +connect",
        "setmqaut -m QM1 -t queue -n 'ORDERS.*' -p mia +put +get",
        "setmqaut -m QM1 -t queue -n OTHER -p mia +none",
    ]
    before = run("dmpmqcfg -m QM1 --offline -x authrec -o 1line")[1]
    with qmgr.start("QM1", data_path=tmp_path, background=False) as manager:
        for one in manager.attributes.authorities:
            manager.unauthorize(one.user, one.profile)
    for line in lines:
        assert run(f"{line} --offline")[0] == 0
    assert run("dmpmqcfg -m QM1 --offline -x authrec -o 1line")[1].splitlines()[5:-3] == before.splitlines()[5:-3]


def test_a_daemon_is_asked_and_a_file_in_utf_8_comes_of_it(run: Run, data: Path) -> None:
    assert run("strmqm QM1")[0] == 0
    try:
        said = subprocess.run(
            [sys.executable, "-m", "qmgr", "dmpmqcfg", "-m", "QM1"],
            capture_output=True,
            timeout=60,
            check=True,
            env={**os.environ, "PYTHONIOENCODING": "latin-1"},
        ).stdout
    finally:
        assert run("endmqm -w QM1")[0] == 0
    assert "DESCR('Größe ''x''')".encode() in said
    (data / "QM1.mqsc").write_bytes(said)
    code, out, _ = run(f"runmqsc --offline -e -f {data / 'QM1.mqsc'} QM2")
    assert (code, "No commands have a syntax error." in out) == (0, True)

    def body(name: str) -> list[str]:
        return run(f"dmpmqcfg --offline -m {name}")[1].splitlines()[5:-3]

    assert body("QM2") == body("QM1") == said.decode().splitlines()[5:-3]
