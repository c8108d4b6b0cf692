"""qm.ini: its text becomes a Config, a Config its text; every complaint says where, what, and what is allowed.

Pure: no files, no clock. `STANZAS` lists each attribute that is read, with its field, its values and a line on what it
does; the example file and the manual page are made from it. Stanzas and attributes that IBM MQ knows and this version
does not use are accepted and named in `Config.ignored`, so that a file brought over from IBM MQ still works.
"""

import operator
import re
from collections.abc import Generator, Iterator, Sequence
from typing import Any, NoReturn

import attrs

from logger.archive_plan import ArchivePolicy
from logger.compressed import Compression
from logger.config import LogConfig, LogSync, LogType, WriteIntegrity
from qmgr import ini_text
from qmgr.configuration import (
    MECHANISMS,
    AutoConfig,
    ChannelsConfig,
    Clash,
    Config,
    ErrorLogConfig,
    ErrorLogFormat,
    ListenerConfig,
    LogManagement,
    Protocol,
    Tuning,
)
from qmgr.errors import IniError
from qmgr.ini_text import INDENT, Line, complaint, decoded, numbered, shown, understood
from qmgr.ini_values import (
    Address,
    Age,
    Choice,
    Directory,
    FileOrDirectory,
    Several,
    Unless,
    Values,
    Whole,
    Word,
    YesNo,
)

__all__ = [
    "ATTRIBUTES",
    "INDENT",
    "STANZAS",
    "Attribute",
    "AutoConfig",
    "ChannelsConfig",
    "Config",
    "Directory",
    "ErrorLogConfig",
    "ErrorLogFormat",
    "ListenerConfig",
    "LogManagement",
    "Protocol",
    "Tuning",
    "Whole",
    "attribute_value",
    "complaint",
    "complaints",
    "decoded",
    "lines",
    "parse",
    "render",
    "shown",
]

BANNER = "#" + "*" * 67 + "#"


@attrs.frozen
class Attribute:
    """One attribute: its name in the file, its field in Config, what it may be, and what it does."""

    name: str
    field: str  # dotted, from Config; `listener` is one of `listeners`
    values: Values
    about: str
    required: bool = False


STANZAS: dict[str, tuple[Attribute, ...]] = {
    "Log": (
        Attribute("LogPrimaryFiles", "log.primary_files", Whole(2, 510),
                  "Extents that are formatted when the queue manager is created."),
        Attribute("LogSecondaryFiles", "log.secondary_files", Whole(1, 509),
                  "Further extents while the primaries are not enough; 3 to 511 together."),
        Attribute("LogFilePages", "log.file_pages", Whole(64, 65_535),
                  "Size of an extent in pages of 4 KiB; never changes after creation."),
        Attribute("LogType", "log.log_type", Choice(LogType),
                  "CIRCULAR reuses extents; LINEAR keeps them for media recovery."),
        Attribute("LogBufferPages", "log.buffer_pages", Whole(0, 4096),
                  "Log buffer in pages of 4 KiB; 0 means 512, and 1 to 17 mean 18."),
        Attribute("LogPath", "log.path", Directory(),
                  "Log directory of this queue manager: the control file and active/.", required=True),
        Attribute("LogWriteIntegrity", "log.write_integrity", Choice(WriteIntegrity),
                  "SingleWrite rewrites a partial page in place; the others never do."),
        Attribute("LogManagement", "log_management", Choice(LogManagement),
                  "Who frees extents of a linear log that nothing needs."),
        Attribute("LogSync", "log.sync", Choice(LogSync),
                  "When a commit is on disk: always (as it returns), interval or os; ours."),
        Attribute("LogSyncInterval", "log.sync_interval_ms", Whole(1, 3_600_000),
                  "LogSync=interval: milliseconds that a crash may lose; ours."),
    ),
    "LogArchive": (
        Attribute("ArchivePath", "log.archive_path", Unless("default", Directory()),
                  "Where archived extents of a linear log go; default: archive/ in LogPath; ours."),
        Attribute("ArchiveAfter", "log_archive.archive_after", Unless("never", Age()),
                  "Age at which an extent that no restart needs goes to the archive; ours."),
        Attribute("CompressAfter", "log_archive.compress_after", Unless("never", Age()),
                  "Age at which it is compressed, wherever it lies; ours."),
        Attribute("RemoveAfter", "log_archive.remove_after", Unless("never", Age()),
                  "Age at which it is removed if nothing needs it, the oldest first; ours."),
        Attribute("Compression", "log_archive.compression", Choice(Compression),
                  "zstd is quicker, and needs the package zstandard (the extra `zstd`); ours."),
    ),
    "TuningParameters": (
        Attribute("CheckPointLogRecdMax", "tuning.checkpoint_log_records_max", Whole(1, 999_999_999),
                  "A checkpoint is taken after this many log records, or three times as many messages."),
        Attribute("CheckPointLogRecdMin", "tuning.checkpoint_log_records_min", Whole(0, 2000),
                  "The timed checkpoint is left out after fewer log records than this; 0: after none."),
        Attribute("CheckPointWaitLen", "tuning.checkpoint_wait_minutes", Whole(5, 60),
                  "Minutes between timed checkpoints."),
        Attribute("DefaultQBufferSize", "tuning.default_q_buffer_size", Whole(1, 104_857_600),
                  "Bytes of a queue's non-persistent messages that stay in memory after a checkpoint."),
        Attribute("DefaultPQBufferSize", "tuning.default_pq_buffer_size", Whole(1, 104_857_600),
                  "Bytes of a queue's persistent messages that stay in memory after a checkpoint."),
        Attribute("ExpiryInterval", "tuning.expiry_interval", Whole(1, 999_999_999),
                  "Seconds between removals of expired messages."),
        Attribute("ImplSyncOpenOutput", "tuning.implicit_sync_open_output", Whole(1, 999_999_999, OFF=0),
                  "No effect: no queue is locked while the log is forced."),
        Attribute("MaxUncommittedMsgs", "tuning.max_uncommitted_messages", Whole(1, 999_999_999),
                  "Puts and gets that one unit of work may have (MAXUMSGS, crtmqm -x); ours."),
        Attribute("MaxHandles", "tuning.max_handles", Whole(1, 999_999_999),
                  "No effect: MAXHANDS of ALTER QMGR counts; ours."),
    ),
    "QMErrorLog": (
        Attribute("ErrorLogSize", "error_log.size", Whole(32_768, 2_147_483_648),
                  "Bytes of AMQERR01.LOG at which it becomes AMQERR02.LOG."),
        Attribute("ErrorLogFormat", "error_log.format", Choice(ErrorLogFormat),
                  "text for people, json for programs: one object a line; ours."),
    ),
    "Listener": (
        Attribute("Name", "listener.name", Word(),
                  "Tells the listeners apart, also in messages.", required=True),
        Attribute("Protocol", "listener.protocol", Choice(Protocol),
                  "QMGR: our own; STOMP: STOMP 1.2; HTTP: messages and metrics.", required=True),
        Attribute("Address", "listener.address", Address(),
                  "Where it listens; 0.0.0.0 or :: is every address of the machine."),
        Attribute("Port", "listener.port", Whole(0, 65_535),
                  "TCP port; 0: any that is free, which the error log names.", required=True),
        Attribute("TLSCertificate", "listener.tls_certificate", Unless("none", FileOrDirectory()),
                  "PEM file with the certificate and those up to its authority; it turns TLS on."),
        Attribute("TLSKey", "listener.tls_key", Unless("none", FileOrDirectory()),
                  "PEM file with the key of the certificate."),
        Attribute("TLSClientCA", "listener.tls_client_ca", Unless("none", FileOrDirectory()),
                  "PEM file with the authorities whose client certificates are good."),
        Attribute("Authentication", "listener.authentication", Several(*MECHANISMS),
                  "How a client says who it is; with TLS the default is SCRAM-SHA-256,PLAIN."),
        Attribute("Metrics", "listener.metrics", YesNo(),
                  "Protocol=HTTP: whether /metrics is served, for Prometheus."),
    ),
    "Channels": (
        Attribute("MaxChannels", "channels.max_channels", Whole(1, 65_535),
                  "The most that MaxActiveChannels may say."),
        Attribute("MaxActiveChannels", "channels.max_active_channels", Unless("MaxChannels", Whole(1, 65_535)),
                  "Connections over TCP at one time; one more is refused with 2025."),
        Attribute("MaxFrameLength", "channels.max_frame_length", Whole(65_536, 1_073_741_824),
                  "Bytes of the longest frame that is read; the largest message and 64 KiB; ours."),
        Attribute("ConnectTimeout", "channels.connect_timeout", Whole(1, 3600),
                  "Seconds from the connection until the client has said who it is; ours."),
        Attribute("IdleTimeout", "channels.idle_timeout", Whole(1, 86_400),
                  "Seconds in which a frame that has begun must be complete; ours."),
    ),
    "AutoConfig": (
        Attribute("MQSCConfig", "auto_config.mqsc_config", Unless("none", FileOrDirectory()),
                  "A file of MQSC commands, or a directory of *.mqsc, that are run at each start."),
        Attribute("IniConfig", "auto_config.ini_config", Unless("none", FileOrDirectory()),
                  "An ini file, or a directory of *.ini, laid over this one at each start."),
    ),
}  # fmt: skip

ATTRIBUTES = {stanza.upper(): {a.name.upper(): a for a in listed} for stanza, listed in STANZAS.items()}

REPEATED = "LISTENER"  # each stanza of this name stands for itself; those of any other name count as one

# What an overlay can't say: the commands look for the log where qm.ini says it is, whatever is laid over it.
NOT_OVERLAID = ("log.path", "log.log_type", "log.file_pages", "log.archive_path")

FOR_LINEAR = (  # stanza, field, and the value that asks for nothing
    ("Log", "log_management", LogManagement.MANUAL),
    ("LogArchive", "log_archive.archive_after", None),
    ("LogArchive", "log_archive.compress_after", None),
    ("LogArchive", "log_archive.remove_after", None),
)
NOT_AUTOMATIC = ("log_archive.archive_after", "log_archive.remove_after")

IGNORED_ATTRIBUTES = {
    "TUNINGPARAMETERS": {"SUPPRESSDSPAUTHFAIL", "UNIFORMCLUSTERNAME", "OAMLDAPCONNECTTIMEOUT"},
    "CHANNELS": {
        "ADOPTNEWMCA",
        "ADOPTNEWMCACHECK",
        "ADOPTNEWMCATIMEOUT",
        "CHLAUTHEARLYADOPT",
        "MAXINITIATORS",
        "MQIBINDTYPE",
        "PIPELINELENGTH",
    },
    "QMERRORLOG": {"EXCLUDEMESSAGE", "SUPPRESSMESSAGE", "SUPPRESSINTERVAL"},
}
_FOR_IBM_MQ = """
    ACCESSMODE APIEXITCOMMON APIEXITLOCAL APIEXITTEMPLATE AUTHTOKEN AUTOCLUSTER BROKER DIAGNOSTICMESSAGES EXITPATH
    EXITPROPERTIESLOCAL FILESYSTEM INSTANCEDATA LU62 NATIVEHAINSTANCE NATIVEHALOCALINSTANCE NETBIOS
    QUEUEMANAGERSTARTUP RESTRICTEDMODE SECURITY SERVICE SERVICECOMPONENT SPX SSL SUBPOOL TCP VARIABLES
    XARESOURCEMANAGER
"""
IGNORED_STANZAS = frozenset(_FOR_IBM_MQ.split())

# Parsing

Text = str | bytes

_NAMES = sorted({name for known in (*ATTRIBUTES.values(), *IGNORED_ATTRIBUTES.values()) for name in known})
# A value ends where a blank, the name of an attribute and `=` follow: a path may have all else in it.
MORE = re.compile(rf"[ \t]+(?=(?:{'|'.join(_NAMES)})[ \t]*=)", re.IGNORECASE)


def lines(text: Text, path: str) -> Iterator[Line]:
    """The stanza names and attributes of a qm.ini, in their order; raises IniError."""
    return ini_text.lines(text, path, MORE)


def line_of(text: Text, path: str, stanza: str, attribute: str) -> int | None:
    """The line that gives an attribute its value; None where it has its default. Raises IniError."""
    within = ""
    for line in lines(text, path):
        if line.value is None:
            within = line.name.upper()
        elif (within, line.name.upper()) == (stanza.upper(), attribute.upper()):
            return line.number
    return None


def parse(text: Text, path: str, overlays: Sequence[tuple[Text, str]] = ()) -> Config:
    """The configuration that `text`, the content of the file at `path`, describes; raises IniError.

    The overlays, texts and their paths, are laid over it in their order: what the last one says counts.
    """
    reader = _Reader()
    for exc in reader.read_all(text, path, overlays):
        raise exc
    return reader.config()


def complaints(text: Text, path: str, overlays: Sequence[tuple[Text, str]] = ()) -> list[IniError]:
    """All that is wrong with a configuration; what follows from a mistake that is named already is left out."""
    return list(_Reader().read_all(text, path, overlays))


def log_path(data: bytes, path: str) -> str:
    """LogPath, also where other lines are wrong. Raises IniError where it can't be told."""
    reader = _Reader()
    text = data.decode("utf-8", "surrogateescape").removeprefix("\ufeff")  # then only the line where it stands is wrong
    wrong = list(reader.read_all(text, path, ()))
    twice = any("attribute LogPath of stanza" in str(exc) for exc in wrong)  # others list it among those that are known
    if "log.path" not in reader.main.said or twice:
        raise next((exc for exc in wrong if "LogPath" in str(exc)), wrong[0])
    found = reader.main.said["log.path"][1]
    assert isinstance(found, str)
    return found


@attrs.frozen
class _Place:
    path: str
    line: int | None

    def __str__(self) -> str:
        return f"line {self.line}" if self.line is not None else "the default"


@attrs.define
class _Part:
    """What one or more stanzas have said: each listener is a part, and all the others are one together."""

    start: _Place
    said: dict[str, tuple[_Place, Any]] = attrs.field(factory=dict)  # by field: where, and the value
    refused: set[str] = attrs.field(factory=set)  # fields whose value was refused, with a complaint of its own

    def values(self, prefix: str) -> dict[str, Any]:
        """The values of the fields below `prefix`."""
        return {field.removeprefix(prefix): v for field, (_, v) in self.said.items() if field.startswith(prefix)}

    def place(self, field: str) -> _Place:
        return self.said[field][0] if field in self.said else self.start

    def overlay_with(self, other: "_Part") -> None:
        self.said |= other.said


@attrs.define
class _Reader:
    """What the lines of one file after the other have said."""

    path: str = ""
    overlay: bool = False
    stanza: Line | None = None
    starts: dict[str, _Place] = attrs.field(factory=dict)  # stanza -> where it first began
    main: _Part = attrs.field(factory=lambda: _Part(_Place("", None)))
    listeners: list[_Part] = attrs.field(factory=list)
    part: _Part = attrs.field(default=attrs.Factory(lambda self: self.main, takes_self=True))
    ignored: list[str] = attrs.field(factory=list)
    channels: ChannelsConfig = attrs.field(factory=ChannelsConfig)
    configured: list[ListenerConfig] = attrs.field(factory=list)

    def read_all(self, text: Text, path: str, overlays: Sequence[tuple[Text, str]]) -> Iterator[IniError]:
        """Read the files; each thing that is wrong, as it is found."""
        self.main.start = _Place(path, None)
        if not (yield from self._read(text, path)):
            return
        for over, its_path in overlays:
            reader = _Reader(overlay=True)
            yield from reader._read(over, its_path)
            self._overlay_with(reader)
        yield from self._check_required("Log", self.main, self.starts.get("LOG", self.main.start))
        yield from self._check_sum()
        yield from self._check_management()
        yield from self._check_channels()
        yield from self._check_listeners()

    def _read(self, text: Text, path: str) -> Generator[IniError, None, bool]:
        """Read one file; False where it is no text as a whole: then nothing is complained of as missing."""
        self.path = path
        try:
            for number, raw in numbered(text, path):
                try:
                    found = understood(number, raw, path, MORE)
                except IniError as exc:
                    yield exc
                    continue
                for line in found:
                    try:
                        self._take(line)
                    except IniError as exc:
                        yield exc
            return True
        except IniError as exc:
            yield exc
            return False

    def _overlay_with(self, other: "_Reader") -> None:
        self.main.overlay_with(other.main)
        by_name = {part.said["listener.name"][1]: part for part in self.listeners if "listener.name" in part.said}
        for part in other.listeners:
            mine = by_name.get(part.said["listener.name"][1]) if "listener.name" in part.said else None
            if mine is not None:
                mine.overlay_with(part)
            else:
                self.listeners.append(part)
        self.ignored += [f"{each} of {other.path}" for each in other.ignored]

    def config(self) -> Config:
        values = self.main.values
        return Config(
            log=LogConfig(**values("log.")),
            log_archive=ArchivePolicy(**values("log_archive.")),
            tuning=Tuning(**values("tuning.")),
            error_log=ErrorLogConfig(**values("error_log.")),
            listeners=tuple(self.configured),
            channels=self.channels,
            auto_config=AutoConfig(**values("auto_config.")),
            ignored=tuple(self.ignored),
            idle=tuple(self._idle()),
            **{field: value for field, (_, value) in self.main.said.items() if "." not in field},
        )

    def _take(self, line: Line) -> None:
        if line.value is None:
            self._begin(line)
        elif self.stanza is None:
            self._refuse("AMQ6162", line, f"attribute {shown(line.name)} stands before the first stanza, such as Log:.")
        elif self.stanza.name.upper() in ATTRIBUTES:
            self._attribute(self.stanza.name, line, line.value)

    def _begin(self, line: Line) -> None:
        name = line.name.upper()
        self.stanza = line
        place = _Place(self.path, line.number)
        self.starts.setdefault(name, place)
        self.part = self.main
        if name == REPEATED:
            self.part = _Part(place)
            self.listeners.append(self.part)
        elif name in IGNORED_STANZAS:
            self.ignored.append(f"stanza {line.name} (line {line.number})")
        elif name not in ATTRIBUTES:
            self._refuse("AMQ7075", line, f"unknown stanza {shown(line.name)}; used here are {', '.join(STANZAS)}.")

    def _attribute(self, stanza: str, line: Line, text: str) -> None:
        known, name = ATTRIBUTES[stanza.upper()], line.name.upper()
        if name in IGNORED_ATTRIBUTES.get(stanza.upper(), ()):
            self.ignored.append(f"attribute {line.name} of stanza {stanza} (line {line.number})")
            return
        if name not in known:
            names = ", ".join(attribute.name for attribute in known.values())
            self._refuse(
                "AMQ7075", line, f"unknown attribute {shown(line.name)} of stanza {stanza}; known are {names}."
            )
        attribute, part = known[name], self.part
        if attribute.field in part.said:
            what = f"attribute {attribute.name} of stanza {stanza}"
            first = part.place(attribute.field)
            self._refuse("AMQ7076", line, f"{what} was given on {first} already; keep one of the two.")
        if self.overlay and (attribute.field in NOT_OVERLAID or stanza.upper() == "AUTOCONFIG"):
            what = f"attribute {attribute.name} of stanza {stanza}"
            self._refuse("AMQ7076", line, f"{what} can't stand in an overlay; allowed: in qm.ini itself.")
        try:
            part.said[attribute.field] = _Place(self.path, line.number), attribute.values.read(text)
        except ValueError:
            part.refused.add(attribute.field)
            what = f"value {shown(text)} of attribute {attribute.name} of stanza {stanza}"
            self._refuse("AMQ7076", line, f"{what} is not valid; allowed: {attribute.values.allowed}.")

    def _later(self, one: _Place, other: _Place) -> _Place:
        """Where the second of two attributes that clash was given; overlays come after the file itself."""
        return max(one, other, key=lambda place: (place.path != self.path, place.line or 0))

    def _check_required(self, stanza: str, part: _Part, start: _Place) -> Iterator[IniError]:
        for attribute in STANZAS[stanza]:
            if attribute.required and attribute.field not in part.said and attribute.field not in part.refused:
                what = f"stanza {stanza} has no {attribute.name}"
                if start.line is None:
                    what = f"stanza {stanza} is missing"
                text = f"{what}; {attribute.name} is required."
                if not part.said:
                    text += " Write it; or move the file away, and have another one made (qm repair)."
                yield complaint("AMQ7006", start.path, start.line, text)

    def _check_sum(self) -> Iterator[IniError]:
        """LogConfig knows this rule too; here the complaint can name the line."""
        files, place = 0, self.main.start
        for name in ("primary_files", "secondary_files"):
            usual = attrs.fields_dict(LogConfig)[name].default
            where, value = self.main.said.get(f"log.{name}", (place, usual))
            files += int(value)
            place = self._later(place, where)
        if files > 511:
            what = f"LogPrimaryFiles and LogSecondaryFiles of stanza Log add up to {files}"
            yield complaint("AMQ7076", place.path, place.line, f"{what}; allowed: 3 to 511.")

    def _check_management(self) -> Iterator[IniError]:
        """With Automatic an extent is reused as soon as nothing needs it: nothing is left to be kept for some time."""
        management, management_value = self.main.said.get("log_management", (self.main.start, LogManagement.MANUAL))
        for attribute in STANZAS["LogArchive"] if management_value is LogManagement.AUTOMATIC else ():
            given, value = self.main.said.get(attribute.field, (self.main.start, None))
            if attribute.field in NOT_AUTOMATIC and value is not None:
                what = f"{attribute.name} of stanza LogArchive does not go with LogManagement=Automatic of stanza Log"
                why = f"which reuses extents by itself; allowed: {attribute.name} with LogManagement=Manual or Archive."
                later = self._later(management, given)
                yield complaint("AMQ7076", later.path, later.line, f"{what}, {why}")

    def _idle(self) -> Iterator[str]:
        """What a circular log has no use for."""
        if self.main.said.get("log.log_type", (None, LogType.CIRCULAR))[1] is not LogType.CIRCULAR:
            return
        for stanza, field, usual in FOR_LINEAR:
            place, value = self.main.said.get(field, (self.main.start, usual))
            if value != usual:
                name = next(attribute.name for attribute in STANZAS[stanza] if attribute.field == field)
                where = f"{place} of {place.path}" if place.path != self.path else str(place)
                what = f"attribute {name} of stanza {stanza} ({where}) has no effect with LogType=CIRCULAR"
                yield f"{what}, which reuses its extents by itself; migmqlog changes a log to LINEAR"

    def _check_channels(self) -> Iterator[IniError]:
        try:
            self.channels = ChannelsConfig(**self.main.values("channels."))
        except Clash as exc:
            place = self.main.place(f"channels.{exc.field}")
            yield complaint("AMQ7076", place.path, place.line, f"{exc} of stanza Channels; allowed: no more than that.")

    def _check_listeners(self) -> Iterator[IniError]:
        names: dict[str, _Part] = {}
        addresses: dict[tuple[str, int], ListenerConfig] = {}
        for part in self.listeners:
            missing = list(self._check_required("Listener", part, part.start))
            yield from missing
            if missing or part.refused:
                continue
            try:
                listener = ListenerConfig(**part.values("listener."))
            except Clash as exc:
                place = part.place(f"listener.{exc.field}")
                yield complaint("AMQ7076", place.path, place.line, f"stanza Listener: {exc}.")
                continue
            place = part.place("listener.name")
            first = names.setdefault(listener.name, part)
            if first is not part:
                what = f"listener {listener.name!r} was given on {first.start} already"
                yield complaint("AMQ7076", place.path, place.line, f"{what}; each needs a Name of its own.")
            there = addresses.setdefault((listener.address, listener.port), listener)
            if there is not listener and listener.port:
                what = f"Port={listener.port} of {listener.address} is that of listener {there.name!r} already"
                place = part.place("listener.port")
                yield complaint("AMQ7076", place.path, place.line, f"{what}; give each listener a port of its own.")
            self.configured.append(listener)

    def _refuse(self, amq: str, line: Line, text: str) -> NoReturn:
        raise complaint(amq, self.path, line.number, text)


# Writing


def render(config: Config) -> str:
    """The text of a new qm.ini: the whole Log stanza, and whatever else differs from its default.

    Raises IniError where no text can say it: a LogPath with a `#` or `;` in it.
    """
    default = Config(log=LogConfig(path=config.log.path))
    text = [BANNER, "#* qm.ini: configuration of a queue manager, read when it is started", BANNER]
    for stanza, attributes in STANZAS.items():
        if stanza.upper() == REPEATED:
            for listener in config.listeners:
                held = [(each, attribute_value(each, listener)) for each in attributes]
                text += [f"{stanza}:", *(_written(each, value) for each, value in held if each.required or value)]
            continue
        said = [
            _written(attribute, attribute_value(attribute, config))
            for attribute in attributes
            if stanza == "Log" or attribute_value(attribute, config) != attribute_value(attribute, default)
        ]
        if said:
            text += [f"{stanza}:", *said]
    return "\n".join(text) + "\n"


def attribute_value(attribute: Attribute, held: Config | ListenerConfig) -> Any:
    """The attribute's value in a Config, or in a ListenerConfig if it is one of a listener."""
    field = attribute.field.removeprefix("listener.") if isinstance(held, ListenerConfig) else attribute.field
    return operator.attrgetter(field)(held)


def _written(attribute: Attribute, value: Any) -> str:
    try:
        text: str = attribute.values.write(value)
        if MORE.search(text):  # it would be read as another attribute
            raise ValueError(text)
        return f"{INDENT}{attribute.name}={text}"
    except (ValueError, TypeError, AttributeError):
        raise IniError(
            f"AMQ7076E: qm.ini can't hold {attribute.name}={shown(str(value))}; allowed: {attribute.values.allowed}."
        ) from None
