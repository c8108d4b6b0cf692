"""qm.ini: what is read, what is refused and how, and that a written file reads back the same."""

import enum
from pathlib import Path
from typing import Any

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from logger.archive_plan import ArchivePolicy
from logger.compressed import Compression
from logger.config import LogConfig, LogSync, LogType, WriteIntegrity
from qmgr import ini
from qmgr.errors import IniError, MQError
from qmgr.ini import (
    AutoConfig,
    ChannelsConfig,
    Config,
    ErrorLogConfig,
    ListenerConfig,
    LogManagement,
    Protocol,
    Tuning,
)
from qmgr.ini_stanzas import ATTRIBUTES, STANZAS, Attribute
from qmgr.ini_values import Address, Age, Choice, Directory, Several, Unless, Whole, Word, YesNo

ROOT = Path(__file__).parents[2]
PATH = "/data/qmgrs/QM1/qm.ini"
LOG = "Log:\n   LogPath=/log/QM1/\n"
LISTEN = "Listener:\nName=a\nPort=1\n"
ONE = LISTEN + "Protocol=QMGR\n"
TLS = "TLSCertificate=/c\nTLSKey=/k\n"
EVERY = [attribute for attributes in STANZAS.values() for attribute in attributes]
LISTENER = ListenerConfig(name="L", protocol=Protocol.QMGR, port=1414)
PARTS: dict[str, Any] = {
    "": Config,
    "log": LogConfig,
    "log_archive": ArchivePolicy,
    "tuning": Tuning,
    "error_log": ErrorLogConfig,
    "listener": ListenerConfig,
    "channels": ChannelsConfig,
    "auto_config": AutoConfig,
}


def refusal(text: str | bytes) -> str:
    """The sentence of the IniError that `text` gets; it always names the file."""
    with pytest.raises(IniError) as caught:
        ini.parse(text, PATH)
    said = str(caught.value)
    assert PATH in said
    assert "\n" not in said
    return said


# Reading


def test_the_smallest_file_gives_the_defaults():
    assert ini.parse(LOG, PATH) == Config(log=LogConfig(path="/log/QM1"))


def test_a_file_in_the_style_of_ibm_mq():
    config = ini.parse(
        """\
#*******************************************************************#
#* Module Name: qm.ini                                             *#
#*******************************************************************#
ExitPath:
   ExitsDefaultPath=/var/mqm/exits
Log:
   LogPrimaryFiles=16
   LogSecondaryFiles = 4
   LogFilePages=16384
   LogType=LINEAR
   LogBufferPages=4096        ; 16 MB
   LogPath=/var/mqm/log/QM1/  # with a comment
   LogWriteIntegrity=TripleWrite
   LogManagement=Automatic
Service:
   Name=AuthorizationService
   EntryPoints=14
Service:
   Name=Other
TuningParameters:
   DefaultPQBufferSize=10485760
   SuppressDspAuthFail=YES
Channels:
   MaxChannels=200
   MQIBindType=FASTPATH
""",
        PATH,
    )
    assert config.log == LogConfig(
        path="/var/mqm/log/QM1",
        log_type=LogType.LINEAR,
        primary_files=16,
        secondary_files=4,
        file_pages=16384,
        buffer_pages=4096,
    )
    assert config.log_management is ini.LogManagement.AUTOMATIC
    assert config.tuning == Tuning(default_pq_buffer_size=10_485_760)
    assert config.ignored == (
        "stanza ExitPath (line 4)",
        "stanza Service (line 15)",
        "stanza Service (line 18)",
        "attribute SuppressDspAuthFail of stanza TuningParameters (line 22)",
        "attribute MQIBindType of stanza Channels (line 25)",
    )
    assert config.channels.limit == 200


def test_names_and_words_are_read_in_any_case_and_crlf_is_a_line_end():
    text = "LOG :\r\n\tlogpath\t=\t/x\r\n\tLOGTYPE=linear\r\n\tlogsync=OS\r\n; end"
    assert ini.parse(text, PATH).log == LogConfig(path="/x", log_type=LogType.LINEAR, sync=LogSync.OS)


def test_bytes_and_text_are_read_alike():
    text = "Log:\n LogPath=/Zürich/日本\n"
    assert ini.parse(text.encode(), PATH) == ini.parse(text, PATH)


def test_several_attributes_may_stand_on_one_line():
    text = """\
Log: LogPath=/a b=c/d e  logtype = linear LogPrimaryFiles=7# LogSecondaryFiles=9
   LogSecondaryFiles=4 LogFilePages=64 ; more
TuningParameters: MaxUncommittedMsgs=5
TCP: Port=1414 KeepAlive=yes
"""
    config = ini.parse(text, "qm.ini")
    assert config.log == LogConfig(
        path="/a b=c/d e", log_type=LogType.LINEAR, primary_files=7, secondary_files=4, file_pages=64
    )
    assert config.tuning.max_uncommitted_messages == 5
    assert ini.line_of(text, "qm.ini", "log", "LOGFILEPAGES") == 2
    with pytest.raises(IniError, match=r"line 2: value 'x' of attribute LogFilePages"):
        ini.parse(text.replace("=64", "=x"), "qm.ini")
    with pytest.raises(IniError, match=r"line 3: 'TuningParameters: Max' is neither a stanza"):
        ini.parse(text.replace("MaxUncommittedMsgs=5", "Max"), "qm.ini")


def test_a_stanza_may_come_in_two_parts():
    assert ini.parse("Log:\nLogPath=/x\nTCP:\nLog:\nLogPrimaryFiles=9", PATH).log.primary_files == 9


def test_small_buffers_are_raised_to_the_minimum():
    assert ini.parse(LOG + "LogBufferPages=1", PATH).log.buffer_pages == 18


def test_the_archive_stanza_gives_a_policy_in_seconds():
    text = (
        "LogArchive:\nArchivePath=/archive/QM1/\nArchiveAfter=36h\nCompressAfter=7D\nRemoveAfter=4w\nCompression=ZSTD"
    )
    config = ini.parse(LOG + text, PATH)
    assert config.log_archive == ArchivePolicy(
        archive_after=36 * 3600,
        compress_after=7 * 86400,
        remove_after=28 * 86400,
        compression=Compression.ZSTD,
    )
    assert config.log.archive_path == config.log.archive_directory == "/archive/QM1"
    assert "   CompressAfter=1w\n" in ini.render(config)
    assert "   ArchiveAfter=36h\n" in ini.render(config)


def test_what_the_archive_stanza_leaves_out_is_never_done():
    config = ini.parse(LOG + "LogArchive:\nArchiveAfter=Never\nArchivePath=Default", PATH)
    assert config.log_archive == ArchivePolicy()
    assert config.log.archive_directory == f"{config.log.path}/archive"


def test_extents_that_are_reused_by_themselves_may_still_be_compressed_before():
    config = ini.parse(LOG + "LogManagement=Automatic\nLogArchive:\nCompressAfter=1d\nRemoveAfter=never", PATH)
    assert config.log_archive == ArchivePolicy(compress_after=86400)


def test_listeners_repeat_and_each_stands_for_itself():
    text = "Listener:\nname=web\nPROTOCOL=http\nPort=0\nMetrics=Yes\nAuthentication=none\n"
    text += (
        f"LISTENER:\nName=app\nProtocol=QMGR\nAddress=::\nPort=1414\n{TLS}TLSClientCA=/a\nAuthentication=External,plain"
    )
    web, app = ini.parse(LOG + text, PATH).listeners
    assert web == ListenerConfig(name="web", protocol=Protocol.HTTP, port=0, metrics=True, authentication=("NONE",))
    assert (app.address, app.tls, app.authentication) == ("::", True, ("EXTERNAL", "PLAIN"))


def test_plain_passwords_are_taken_by_default_where_tls_is():
    plain, secret = ini.parse(LOG + ONE + TLS.join(["Listener:\nName=b\nProtocol=QMGR\nPort=2\n", ""]), PATH).listeners
    assert plain.authentication == ("SCRAM-SHA-256",)
    assert secret.authentication == ("SCRAM-SHA-256", "PLAIN")


@pytest.mark.parametrize("address", ["127.0.0.1", "127.8.9.1", "::1", "localhost", "LocalHost"])
def test_whoever_comes_is_let_in_only_from_this_machine(address: str):
    config = ini.parse(LOG + ONE + f"Authentication=NONE\nAddress={address}", PATH)
    assert config.listeners[0].authentication == ("NONE",)


def test_channels_limit_connections():
    assert ini.parse(LOG, PATH).channels.limit == 100
    assert ini.parse(LOG + "Channels:\nMaxChannels=7", PATH).channels.limit == 7
    assert ini.parse(LOG + "Channels:\nMaxActiveChannels=7", PATH).channels.limit == 7


# Overlays


def test_what_an_overlay_says_counts():
    first = "TuningParameters:\nMaxHandles=5\nListener:\nName=a\nPort=99\nListener:\nName=b\nProtocol=QMGR\nPort=7"
    second = "TuningParameters:\nMaxHandles=6\nTCP:\n"
    config = ini.parse(LOG + ONE + "TuningParameters:\nMaxUncommittedMsgs=3", PATH, [(first, "/1"), (second, "/2")])
    assert config.tuning == Tuning(max_handles=6, max_uncommitted_messages=3)
    assert [(each.name, each.protocol, each.port) for each in config.listeners] == [
        ("a", Protocol.QMGR, 99),
        ("b", Protocol.QMGR, 7),
    ]
    assert config.ignored == ("stanza TCP (line 3) of /2",)


@pytest.mark.parametrize(
    "text, line, words",
    [
        ("Log:\nLogPath=/elsewhere", 2, ["LogPath", "can't stand in an overlay"]),
        ("AutoConfig:\nIniConfig=/x", 2, ["IniConfig", "can't stand in an overlay"]),
        ("Log:\nLogSecondaryFiles=509", 2, ["add up to 512"]),
        ("Listener:\nName=a\nTLSKey=/k", 3, ["TLSKey needs TLSCertificate"]),
        ("Listener:\nName=c\nPort=3", 1, ["has no Protocol"]),
    ],
)
def test_a_refused_overlay_is_named(text: str, line: int, words: list[str]):
    with pytest.raises(IniError) as caught:
        ini.parse(LOG + ONE, PATH, [(text, "/overlay.ini")])
    assert f"/overlay.ini, line {line}: " in str(caught.value)
    assert all(word in str(caught.value) for word in words)


def test_all_complaints_are_heard_of_at_once():
    text = "Log:\nLogPath=here\nLogTyp=LINEAR\nrubbish\nChannel:\nMax=1\nListener:\nPort=x\nListener:\n" + LOG[5:] + ONE
    said = [str(each) for each in ini.complaints(text + "Authentication=PLAIN", PATH)]
    assert [each.partition(": ")[2].partition(":")[0] for each in said] == [
        f"{PATH}, line {line}" for line in (2, 3, 4, 5, 8, 10, 7, 7, 9, 9, 9, 15)
    ]
    assert ini.complaints(LOG, PATH) == []
    assert len(ini.complaints("x" * 10_000_000, PATH)) == 1  # too long; what it has not is not known


def test_impl_sync_open_output_may_be_off():
    tuned = ini.parse(LOG + "TuningParameters:\nImplSyncOpenOutput=Off", PATH)
    assert tuned.tuning.implicit_sync_open_output == 0
    assert "ImplSyncOpenOutput=OFF" in ini.render(tuned)


@pytest.mark.parametrize("attribute", EVERY, ids=lambda a: a.name)
def test_ranges_are_those_of_the_configuration_classes(attribute: Attribute):
    """The table says what is allowed, the classes enforce it: neither may accept what the other refuses."""
    part, _, name = attribute.field.rpartition(".")
    kind = PARTS[part]
    assert name in attrs.fields_dict(kind)
    values = attribute.values.values if isinstance(attribute.values, Unless) else attribute.values
    if isinstance(values, Whole) and name != "buffer_pages":
        needed = {"log": {"path": "/x"}, "listener": {"name": "L", "protocol": Protocol.QMGR}}
        given_ = needed.get(part, {}) | ({"max_channels": 65535} if name == "max_active_channels" else {})
        edges = [*values.words.values(), values.low, values.high]
        for edge in edges:
            other = {"primary_files": "secondary_files", "secondary_files": "primary_files"}.get(name)
            rest = {other: max(1, min(2, 511 - edge))} if other else {}
            if (edge, name) == (509, "secondary_files"):
                rest = {"primary_files": 2}
            kind(**given_, **{name: edge}, **rest)
        for outside in {min(edges) - 1, max(edges) + 1}:
            with pytest.raises(ValueError):
                kind(**given_, **{name: outside})


# Refusing


@pytest.mark.parametrize(
    "text, line, amq, words",
    [
        ("Lag:\n", 1, "AMQ7075E", ["'Lag'", "Log, LogArchive, TuningParameters"]),
        (LOG + "   LogFiles=3\n", 3, "AMQ7075E", ["'LogFiles'", "stanza Log", "LogPrimaryFiles"]),
        (LOG + "LogPrimaryFiles=1", 3, "AMQ7076E", ["'1'", "LogPrimaryFiles", "stanza Log", "from 2 to 510"]),
        (LOG + "LogPrimaryFiles=511", 3, "AMQ7076E", ["from 2 to 510"]),
        (LOG + "LogPrimaryFiles=", 3, "AMQ7076E", ["''"]),
        (LOG + "LogPrimaryFiles=three", 3, "AMQ7076E", ["'three'"]),
        (LOG + "LogPrimaryFiles=-3", 3, "AMQ7076E", ["'-3'"]),
        (LOG + "LogPrimaryFiles=1_0", 3, "AMQ7076E", ["'1_0'"]),
        (LOG + "LogPrimaryFiles=٣", 3, "AMQ7076E", ["from 2 to 510"]),
        (LOG + "LogPrimaryFiles=" + "9" * 4000, 3, "AMQ7076E", ["9..."]),
        (LOG + "LogPrimaryFiles=510\nLogSecondaryFiles=2", 4, "AMQ7076E", ["add up to 512", "3 to 511"]),
        (LOG + "LogPrimaryFiles=510", 3, "AMQ7076E", ["add up to 512"]),
        (LOG + "LogType=REPLICATED", 3, "AMQ7076E", ["'REPLICATED'", "CIRCULAR or LINEAR"]),
        (LOG + "LogSync=never", 3, "AMQ7076E", ["always, interval or os"]),
        (LOG + "LogFilePages=64\n\nlogfilepages=64", 5, "AMQ7076E", ["LogFilePages", "line 3 already"]),
        ("Log:\nLogPath=log/QM1", 2, "AMQ7076E", ["'log/QM1'", "absolute path"]),
        ("Log:\nLogPath=/a\u2028b", 2, "AMQ7076E", ["absolute path"]),
        ("TCP:\nPort=1\n\nLog:\nLogType=LINEAR", 4, "AMQ7006E", ["stanza Log has no LogPath", "required"]),
        ("LogPath=/x\nLog:\n", 1, "AMQ6162E", ["'LogPath'", "before the first stanza"]),
        (LOG + "LogType CIRCULAR", 3, "AMQ6162E", ["'LogType CIRCULAR'", "`Name=value`"]),
        (LOG + "= 3", 3, "AMQ6162E", ["'= 3'"]),
        (LOG + ":", 3, "AMQ6162E", ["':'"]),
        (LOG + "TuningParameters:\nCheckPointWaitLen=4", 4, "AMQ7076E", ["TuningParameters", "from 5 to 60"]),
        (LOG + "QMErrorLog:\nErrorLogFormat=xml", 4, "AMQ7076E", ["text or json"]),
        (LOG + "LogArchive:\nArchiveAfter=7", 4, "AMQ7076E", ["'7'", "stanza LogArchive", "never or", "such as 36h"]),
        (LOG + "LogArchive:\nRemoveAfter=-1d", 4, "AMQ7076E", ["'-1d'", "s, m, h, d or w"]),
        (LOG + "LogArchive:\nCompressAfter=d", 4, "AMQ7076E", ["'d'"]),
        (LOG + "LogArchive:\nCompressAfter=1656w", 4, "AMQ7076E", ["'1656w'"]),
        (LOG + "LogArchive:\nCompressAfter=٣d", 4, "AMQ7076E", ["such as 36h"]),
        (LOG + "LogArchive:\nArchivePath=archive", 4, "AMQ7076E", ["default or an absolute path"]),
        (LOG + "LogArchive:\nCompression=lzma", 4, "AMQ7076E", ["gzip or zstd"]),
        (LOG + "LogManagement=automatic\nLogArchive:\nArchiveAfter=1d", 5, "AMQ7076E", ["ArchiveAfter", "by itself"]),
        ("LogArchive:\nRemoveAfter=1d\n" + LOG + "LogManagement=Automatic", 5, "AMQ7076E", ["Manual or Archive"]),
        (LOG + LISTEN + "Protocol=MQTT", 6, "AMQ7076E", ["'MQTT'", "QMGR, STOMP or HTTP"]),
        (LOG + "Listener:\nPort=1\nProtocol=HTTP", 3, "AMQ7006E", ["stanza Listener has no Name", "required"]),
        (LOG + "Listener:\nName=a b\nPort=1\nProtocol=HTTP", 4, "AMQ7076E", ["'a b'", "1 to 48 characters"]),
        (LOG + LISTEN + "Address=1.2.3", 6, "AMQ7076E", ["'1.2.3'", "an IP address", "name of a host"]),
        (LOG + "Listener:\nName=a\nPort=65536", 5, "AMQ7076E", ["from 0 to 65535"]),
        (LOG + LISTEN + "Authentication=none,none", 6, "AMQ7076E", ["one or more of NONE, PLAIN"]),
        (LOG + ONE + "Authentication=NONE\nAddress=0.0.0.0", 7, "AMQ7076E", ["loopback", "Address is 0.0.0.0"]),
        (LOG + ONE + "Authentication=NONE\nAddress=127.evil.example", 7, "AMQ7076E", ["loopback"]),
        (LOG + ONE + "Authentication=NONE, EXTERNAL", 7, "AMQ7076E", ["stands alone"]),
        (LOG + ONE + "Authentication=PLAIN", 7, "AMQ7076E", ["needs TLS", "TLSCertificate and TLSKey"]),
        (LOG + ONE + TLS + "Authentication=EXTERNAL", 9, "AMQ7076E", ["needs TLSClientCA"]),
        (LOG + LISTEN + "Protocol=STOMP", 3, "AMQ7076E", ["Protocol=STOMP", "no way for SCRAM", "NONE on a loopback"]),
        (LOG + ONE + "TLSCertificate=/c", 7, "AMQ7076E", ["TLSCertificate needs TLSKey"]),
        (LOG + ONE + "TLSKey=/k", 7, "AMQ7076E", ["TLSKey needs TLSCertificate"]),
        (LOG + ONE + "TLSClientCA=/a", 7, "AMQ7076E", ["TLSClientCA needs TLS"]),
        (LOG + ONE + "TLSKey=key.pem", 7, "AMQ7076E", ["none or an absolute path"]),
        (LOG + ONE + "Metrics=yes", 7, "AMQ7076E", ["Protocol=HTTP only"]),
        (LOG + ONE + "Metrics=1", 7, "AMQ7076E", ["YES or NO"]),
        (LOG + ONE + ONE, 8, "AMQ7076E", ["listener 'a' was given on line 3 already"]),
        (LOG + ONE + ONE.replace("=a", "=b"), 9, "AMQ7076E", ["Port=1 of 127.0.0.1", "'a' already"]),
        (LOG + ONE + "Name=b", 7, "AMQ7076E", ["attribute Name of stanza Listener was given on line 4 already"]),
        (LOG + "Channels:\nMaxActiveChannels=200", 4, "AMQ7076E", ["MaxActiveChannels=200", "MaxChannels=100"]),
        (LOG + "Channels:\nMaxFrameLength=1", 4, "AMQ7076E", ["from 65536 to"]),
        (LOG + "AutoConfig:\nMQSCConfig=x.mqsc", 4, "AMQ7076E", ["none or an absolute path"]),
        (LOG.encode() + b"# caf\xe9\n", 3, "AMQ6162E", ["0xe9", "UTF-8"]),
        (LOG + "# \0", 3, "AMQ6162E", ["U+0000"]),
        (LOG + "# \ud800", 3, "AMQ6162E", ["U+D800"]),
        ("\ufeff" + LOG, 1, "AMQ6162E", ["byte order mark"]),
        (("\ufeff" + LOG).encode(), 1, "AMQ6162E", ["byte order mark"]),
        (LOG.encode("utf-16"), 1, "AMQ6162E", ["0xff"]),
        (LOG + "#" * 5000, 3, "AMQ6162E", ["longer than 4096 characters"]),
    ],
)  # fmt: skip
def test_a_refusal_says_line_name_value_and_what_is_allowed(text: str | bytes, line: int, amq: str, words: list[str]):
    said = refusal(text)
    assert said.startswith(f"{amq}: {PATH}, line {line}: ")
    for word in words:
        assert word in said


def test_an_empty_file_lacks_its_log_stanza():
    assert refusal("").startswith(f"AMQ7006E: {PATH}: stanza Log is missing; LogPath is required. Write it; or move ")
    assert "qm repair" not in refusal("Log:\n   LogPrimaryFiles=3\n")


def test_a_huge_file_is_refused_unread():
    assert "longer than 1048576 bytes" in refusal("x" * 10_000_000)
    assert "longer than 1048576 bytes" in refusal(b"\n" * 10_000_000)


@given(st.one_of(st.binary(), st.text(), st.text("Log:Path=/LogType#;\n\r\t 1\0\ufeff")))
def test_any_text_gives_a_configuration_or_an_ini_error(text: str | bytes):
    try:
        ini.parse(text, PATH)
    except IniError as exc:
        assert PATH in str(exc)  # and nothing but an IniError ever comes


def test_an_ini_error_is_an_mq_error_and_a_value_error():
    assert issubclass(IniError, MQError)
    assert issubclass(IniError, ValueError)


# Writing

PATHS = st.text(st.characters(min_codepoint=32, exclude_categories=["C", "Z"], exclude_characters="#;"), max_size=30)


def values_of(attribute: Attribute) -> st.SearchStrategy[Any]:
    values = attribute.values
    if isinstance(values, Whole):
        return st.sampled_from([*values.words.values(), values.low, values.high]) | st.integers(values.low, values.high)
    if isinstance(values, Choice):
        members: list[enum.Enum] = list(values.words.values())
        return st.sampled_from(members)
    if isinstance(values, Unless):
        inner = attrs.evolve(attribute, values=values.values)
        return st.none() | values_of(inner)
    if isinstance(values, Age):
        return st.integers(0, 999_999_999)
    if isinstance(values, YesNo):
        return st.booleans()
    if isinstance(values, Word):
        return st.from_regex(r"[A-Za-z0-9][A-Za-z0-9._-]{0,20}", fullmatch=True)
    if isinstance(values, Several):
        return st.lists(st.sampled_from(values.words), min_size=1, unique=True).map(tuple)
    if isinstance(values, Address):
        return st.ip_addresses().map(str) | st.sampled_from(["localhost", "a.example", "x"])
    assert isinstance(values, Directory)
    return PATHS.map(lambda text: ("/" + text).rstrip("/") or "/")


def drawn(draw: st.DrawFn, part: str) -> dict[str, Any]:
    """A value for each attribute of a part of the configuration."""
    here = [attribute for attribute in EVERY if attribute.field.rpartition(".")[0] == part]
    return {attribute.field.rpartition(".")[2]: draw(values_of(attribute)) for attribute in here}


@st.composite
def listeners(draw: st.DrawFn) -> ListenerConfig:
    given_ = drawn(draw, "listener")
    try:
        return ListenerConfig(**given_)
    except ValueError:  # most of what is drawn at random does not go together
        plain = {name: given_[name] for name in ("name", "protocol", "port", "address")}
        return ListenerConfig(**plain, tls_certificate="/c", tls_key="/k", tls_client_ca=given_["tls_client_ca"])


@st.composite
def configs(draw: st.DrawFn) -> Config:
    parts = {part: drawn(draw, part) for part in PARTS if part != "listener"}
    log, channels = parts["log"], parts["channels"]
    log["secondary_files"] = min(log["secondary_files"], 511 - log["primary_files"])
    if channels["max_active_channels"] is not None:
        channels["max_active_channels"] = min(channels["max_active_channels"], channels["max_channels"])
    if parts[""]["log_management"] is LogManagement.AUTOMATIC:
        parts["log_archive"] |= {"archive_after": None, "remove_after": None}
    several = st.lists(listeners(), max_size=3, unique_by=(lambda each: each.name, lambda each: each.port))
    return Config(
        **{part: PARTS[part](**given_) for part, given_ in parts.items() if part},
        **parts[""],
        listeners=tuple(draw(several)),
    )


@given(configs())
def test_a_rendered_configuration_parses_to_itself(config: Config):
    assert ini.parse(ini.render(config), PATH) == config
    assert ini.parse(ini.render(config).encode(), PATH) == config


def test_the_rendered_file_looks_like_one_of_ibm_mq():
    text = ini.render(Config(log=LogConfig(path="/log/QM1"), tuning=Tuning(max_uncommitted_messages=5)))
    assert text.splitlines()[3:] == [
        "Log:",
        "   LogPrimaryFiles=3",
        "   LogSecondaryFiles=2",
        "   LogFilePages=4096",
        "   LogType=CIRCULAR",
        "   LogBufferPages=0",
        "   LogPath=/log/QM1/",
        "   LogWriteIntegrity=TripleWrite",
        "   LogManagement=Manual",
        "   LogSync=always",
        "   LogSyncInterval=1000",
        "TuningParameters:",
        "   MaxUncommittedMsgs=5",
    ]


@pytest.mark.parametrize(
    "path", ["/a#b", "/a;b", "/a\nLogType=LINEAR", "/a logtype =b", "relative", "/a ", "", "/" + "x" * 5000]
)
def test_a_path_that_no_file_can_say_is_not_written(path: str):
    with pytest.raises(IniError, match=r"qm\.ini can't hold LogPath="):
        ini.render(Config(log=LogConfig(path=path)))


def test_write_integrity_is_written_as_ibm_mq_spells_it():
    config = Config(log=LogConfig(path="/x", write_integrity=WriteIntegrity.DOUBLE))
    assert "LogWriteIntegrity=DoubleWrite" in ini.render(config)


# The example


def example_text() -> str:
    """The example file with its Listener stanza, which is a comment there: an example opens no port."""
    lines = (ROOT / "qm.ini.example").read_text(encoding="utf-8").splitlines()
    start = lines.index("#Listener:")
    end = lines.index("", start)
    return "\n".join([*lines[:start], *(line[1:] for line in lines[start:end]), *lines[end:]])


def test_the_example_names_every_attribute_with_its_default():
    text = example_text()
    config = ini.parse(text, "qm.ini.example")
    (listener,) = config.listeners
    assert attrs.evolve(config, listeners=()) == Config(log=LogConfig(path=config.log.path))
    assert listener == ListenerConfig(name=listener.name, protocol=listener.protocol, port=listener.port)
    assert config.ignored == ()
    named = [line.name for line in ini.lines(text, "qm.ini.example") if line.value is not None]
    assert named == [attribute.name for attribute in EVERY]
    for line in text.splitlines():
        if "=" in line and not line.startswith("#"):
            assert "#" in line, f"{line!r} does not say what it does"
    plain = ini.parse((ROOT / "qm.ini.example").read_text(encoding="utf-8"), "qm.ini.example")
    assert plain == attrs.evolve(config, listeners=())


def test_every_field_of_the_configuration_has_an_attribute():
    fields = {f"{part}.{field}" for part, kind in PARTS.items() if part for field in attrs.fields_dict(kind)}
    assert {attribute.field for attribute in EVERY} == fields | {"log_management"}
    assert sum(len(known) for known in ATTRIBUTES.values()) == len(EVERY)
    for attribute in EVERY:
        assert usual(attribute) is not None or isinstance(attribute.values, Unless)


def usual(attribute: Attribute) -> Any:
    """The attribute's default, or what an example has if it is required."""
    held = LISTENER if attribute.field.startswith("listener.") else Config(log=LogConfig(path="/x"))
    return ini.attribute_value(attribute, held)


def test_the_manual_page_has_a_row_for_every_attribute():
    page = (ROOT / "docs" / "qm-ini.md").read_text(encoding="utf-8")
    for attribute in EVERY:
        default = f"`{attribute.values.write(usual(attribute))}`"
        row = [f"`{attribute.name}`", "required" if attribute.required else default, attribute.values.allowed]
        assert f"| {' | '.join([*row, attribute.about])} |" in page
