"""qm.ini: its text becomes a Config, a Config its text; every complaint says where, what, and what is allowed.

Pure: no files, no clock. `STANZAS` lists each attribute that is read, with its field, its values and a line on what it
does; the example file and the manual page are made from it. Stanzas and attributes that IBM MQ knows and this version
does not use are accepted and named in `Config.ignored`, so that a file brought over from IBM MQ still works.
"""

import enum
import operator
from collections.abc import Iterator
from typing import Any, NoReturn, Protocol

import attrs

from logger.archive import ArchivePolicy, age_text, parse_age
from logger.compressed import Compression
from logger.config import LogConfig, LogSync, LogType, WriteIntegrity, within
from qmgr.errors import IniError

MAX_FILE_BYTES = 1 << 20
MAX_LINE_CHARS = 4096
MAX_PATH_CHARS = 4000
INDENT = "   "
BANNER = "#" + "*" * 67 + "#"


# What the file becomes


class LogManagement(enum.Enum):
    """Who removes the extents of a linear log that nothing needs any more."""

    MANUAL = "Manual"
    AUTOMATIC = "Automatic"
    ARCHIVE = "Archive"


class ErrorLogFormat(enum.Enum):
    TEXT = "text"
    JSON = "json"


@attrs.frozen(kw_only=True)
class Tuning:
    """The TuningParameters stanza. Sizes are bytes."""

    checkpoint_log_records_max: int = attrs.field(default=50_000, validator=within(1, 999_999_999))
    checkpoint_log_records_min: int = attrs.field(default=100, validator=within(0, 2000))
    checkpoint_wait_minutes: int = attrs.field(default=30, validator=within(5, 60))
    default_q_buffer_size: int = attrs.field(default=131_072, validator=within(1, 104_857_600))
    default_pq_buffer_size: int = attrs.field(default=262_144, validator=within(1, 104_857_600))
    expiry_interval: int = attrs.field(default=300, validator=within(1, 999_999_999))  # seconds
    implicit_sync_open_output: int = attrs.field(default=2, validator=within(0, 999_999_999))  # 0: OFF
    max_uncommitted_messages: int = attrs.field(default=10_000, validator=within(1, 999_999_999))
    max_handles: int = attrs.field(default=256, validator=within(1, 999_999_999))


@attrs.frozen(kw_only=True)
class ErrorLogConfig:
    """The QMErrorLog stanza."""

    size: int = attrs.field(default=33_554_432, validator=within(32_768, 2_147_483_648))  # bytes of each of three files
    format: ErrorLogFormat = ErrorLogFormat.TEXT


@attrs.frozen(kw_only=True)
class Config:
    """Everything that qm.ini says. A change takes effect when the queue manager is next started."""

    log: LogConfig
    log_management: LogManagement = LogManagement.MANUAL
    log_archive: ArchivePolicy = attrs.field(factory=ArchivePolicy)
    tuning: Tuning = Tuning()
    error_log: ErrorLogConfig = ErrorLogConfig()
    ignored: tuple[str, ...] = attrs.field(default=(), eq=False)  # known to IBM MQ, without effect here: what and where


# What may stand after the `=`


class Values(Protocol):
    """The values of an attribute. `read` raises ValueError for any other."""

    allowed: str

    def read(self, text: str) -> Any: ...

    def write(self, value: Any) -> str: ...


class Whole:
    """A whole number; `words` are words that stand for numbers outside the range."""

    def __init__(self, low: int, high: int, **words: int) -> None:
        self.low, self.high, self.words = low, high, words
        self.allowed = " or ".join([*words, f"a whole number from {low} to {high}"])

    def read(self, text: str) -> int:
        if text.upper() in self.words:
            return self.words[text.upper()]
        if not (text.isascii() and text.isdigit() and self.low <= (number := int(text)) <= self.high):
            raise ValueError(text)
        return number

    def write(self, value: int) -> str:
        return next((word for word, number in self.words.items() if number == value), str(value))


class Choice:
    """A word of an enumeration, in any case."""

    def __init__(self, kind: type[enum.Enum]) -> None:
        self.words = {member.value.upper(): member for member in kind}
        *most, last = (member.value for member in kind)
        self.allowed = f"{', '.join(most)} or {last}"

    def read(self, text: str) -> enum.Enum:
        try:
            return self.words[text.upper()]
        except KeyError:
            raise ValueError(text) from None

    def write(self, value: enum.Enum) -> str:
        return str(value.value)


class Directory:
    """An absolute path. A comment may follow any value, so `#` and `;` can't be part of one."""

    allowed = f"an absolute path of at most {MAX_PATH_CHARS} printable characters without # and ;"

    def read(self, text: str) -> str:
        path = text.rstrip("/") or text[:1]
        plain = path.isprintable() and path == path.strip() and not set("#;") & set(path)
        if not plain or not path.startswith("/") or len(path) > MAX_PATH_CHARS:
            raise ValueError(text)
        return path

    def write(self, value: str) -> str:
        return self.read(value).rstrip("/") + "/"


class Age:
    """A time in seconds, written with its unit."""

    allowed = "a whole number with s, m, h, d or w behind it, such as 36h"

    def read(self, text: str) -> int:
        return parse_age(text)

    def write(self, value: int) -> str:
        return age_text(value)


class Unless:
    """Other values, or a word that stands for None."""

    def __init__(self, word: str, values: Values) -> None:
        self.word, self.values = word, values
        self.allowed = f"{word} or {values.allowed}"

    def read(self, text: str) -> Any:
        return None if text.lower() == self.word else self.values.read(text)

    def write(self, value: Any) -> str:
        return self.word if value is None else self.values.write(value)


# The stanzas and attributes


@attrs.frozen
class Attribute:
    """One attribute: its name in the file, its field in Config, what it may be, and what it does."""

    name: str
    field: str  # dotted, from Config
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
                  "zstd is quicker, and needs the package zstandard (qmgr[zstd]); ours."),
    ),
    "TuningParameters": (
        Attribute("CheckPointLogRecdMax", "tuning.checkpoint_log_records_max", Whole(1, 999_999_999),
                  "A checkpoint is taken after this many log records, or three times as many messages."),
        Attribute("CheckPointLogRecdMin", "tuning.checkpoint_log_records_min", Whole(0, 2000),
                  "The timed checkpoint is left out after fewer log records than this."),
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
                  "Objects that one connection may have open (MAXHANDS); ours, no effect yet."),
    ),
    "QMErrorLog": (
        Attribute("ErrorLogSize", "error_log.size", Whole(32_768, 2_147_483_648),
                  "Bytes of AMQERR01.LOG at which it becomes AMQERR02.LOG."),
        Attribute("ErrorLogFormat", "error_log.format", Choice(ErrorLogFormat),
                  "text for people, json for programs: one object a line; ours."),
    ),
}  # fmt: skip

ATTRIBUTES = {stanza.upper(): {a.name.upper(): a for a in listed} for stanza, listed in STANZAS.items()}

NOT_AUTOMATIC = ("log_archive.archive_after", "log_archive.remove_after")

IGNORED_ATTRIBUTES = {
    "TUNINGPARAMETERS": {"SUPPRESSDSPAUTHFAIL", "UNIFORMCLUSTERNAME", "OAMLDAPCONNECTTIMEOUT"},
    "QMERRORLOG": {"EXCLUDEMESSAGE", "SUPPRESSMESSAGE", "SUPPRESSINTERVAL"},
}
_FOR_IBM_MQ = """
    ACCESSMODE APIEXITCOMMON APIEXITLOCAL APIEXITTEMPLATE AUTOCLUSTER AUTOCONFIG CHANNELS DIAGNOSTICMESSAGES EXITPATH
    EXITPROPERTIESLOCAL FILESYSTEM INSTANCEDATA LU62 NATIVEHAINSTANCE NATIVEHALOCALINSTANCE NETBIOS
    QUEUEMANAGERSTARTUP RESTRICTEDMODE SECURITY SERVICE SERVICECOMPONENT SPX SSL SUBPOOL TCP VARIABLES
    XARESOURCEMANAGER
"""
IGNORED_STANZAS = frozenset(_FOR_IBM_MQ.split())


# Lines


@attrs.frozen
class Line:
    """One line that says something: the name of a stanza (`value` is None), or an attribute and its value."""

    number: int
    name: str
    value: str | None = None


def complaint(amq: str, path: str, line: int | None, text: str) -> IniError:
    where = path if line is None else f"{path}, line {line}"
    return IniError(f"{amq}E: {where}: {text}", name=path)


def decoded(data: bytes, path: str) -> str:
    """The text of an ini file's bytes; raises IniError naming the first byte that is not UTF-8."""
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError as exc:
        number = data.count(b"\n", 0, exc.start) + 1
        raise complaint("AMQ6162", path, number, f"byte 0x{data[exc.start]:02x} is not UTF-8 text.") from None


def lines(text: str | bytes, path: str) -> Iterator[Line]:
    """The stanza names and attributes of an ini file, without blank lines and comments; raises IniError."""
    if len(text) > MAX_FILE_BYTES:
        raise complaint("AMQ6162", path, None, f"the file is longer than {MAX_FILE_BYTES} bytes.")
    if isinstance(text, bytes):
        text = decoded(text, path)
    if text.startswith("\ufeff"):
        raise complaint("AMQ6162", path, 1, "the file begins with a byte order mark; save it as UTF-8 without one.")
    for number, raw in enumerate(text.split("\n"), 1):
        line = raw.removesuffix("\r")
        if len(line) > MAX_LINE_CHARS:
            raise complaint("AMQ6162", path, number, f"the line is longer than {MAX_LINE_CHARS} characters.")
        for char in line:
            if char != "\t" and (char < " " or "\x7f" <= char <= "\x9f" or "\ud800" <= char <= "\udfff"):
                raise complaint("AMQ6162", path, number, f"character U+{ord(char):04X} can't stand in an ini file.")
        said = line.partition("#")[0].partition(";")[0].strip(" \t")
        name, equals, value = (part.strip(" \t") for part in said.partition("="))
        if equals and name:
            yield Line(number, name, value)
        elif said.endswith(":") and said[:-1].strip(" \t"):
            yield Line(number, said[:-1].strip(" \t"))
        elif said:
            raise complaint(
                "AMQ6162", path, number, f"{shown(said)} is neither a stanza, `Name:`, nor an attribute, `Name=value`."
            )


def shown(text: str) -> str:
    """`text` in quotes, shortened for a message."""
    return repr(text if len(text) <= 60 else text[:57] + "...")


# Parsing


def parse(text: str | bytes, path: str) -> Config:
    """The configuration that `text`, the content of the file at `path`, describes; raises IniError."""
    reader = _Reader(path)
    for line in lines(text, path):
        reader.take(line)
    return reader.finish()


@attrs.define
class _Reader:
    """What the lines so far have said."""

    path: str
    stanza: Line | None = None
    starts: dict[str, int] = attrs.field(factory=dict)  # stanza -> the line where it first began
    said: dict[str, tuple[int, Any]] = attrs.field(factory=dict)  # field -> the line that gives it, and its value
    ignored: list[str] = attrs.field(factory=list)

    def take(self, line: Line) -> None:
        if line.value is None:
            self._begin(line)
        elif self.stanza is None:
            self._refuse("AMQ6162", line, f"attribute {shown(line.name)} stands before the first stanza, such as Log:.")
        elif self.stanza.name.upper() in ATTRIBUTES:
            self._attribute(self.stanza.name, line, line.value)

    def finish(self) -> Config:
        self._check_required()
        self._check_sum()
        self._check_management()
        parts: dict[str, dict[str, Any]] = {"": {}, "log": {}, "log_archive": {}, "tuning": {}, "error_log": {}}
        for field, (_, value) in self.said.items():
            part, _, name = field.rpartition(".")
            parts[part][name] = value
        return Config(
            log=LogConfig(**parts["log"]),
            log_archive=ArchivePolicy(**parts["log_archive"]),
            tuning=Tuning(**parts["tuning"]),
            error_log=ErrorLogConfig(**parts["error_log"]),
            ignored=tuple(self.ignored),
            **parts[""],
        )

    def _begin(self, line: Line) -> None:
        name = line.name.upper()
        if name in IGNORED_STANZAS:
            self.ignored.append(f"stanza {line.name} (line {line.number})")
        elif name not in ATTRIBUTES:
            self._refuse("AMQ7075", line, f"unknown stanza {shown(line.name)}; used here are {', '.join(STANZAS)}.")
        self.stanza = line
        self.starts.setdefault(name, line.number)

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
        attribute = known[name]
        if attribute.field in self.said:
            first, _ = self.said[attribute.field]
            what = f"attribute {attribute.name} of stanza {stanza}"
            self._refuse("AMQ7076", line, f"{what} was given on line {first} already; keep one of the two.")
        try:
            self.said[attribute.field] = line.number, attribute.values.read(text)
        except ValueError:
            what = f"value {shown(text)} of attribute {attribute.name} of stanza {stanza}"
            self._refuse("AMQ7076", line, f"{what} is not valid; allowed: {attribute.values.allowed}.")

    def _check_required(self) -> None:
        for stanza, attributes in STANZAS.items():
            start = self.starts.get(stanza.upper())
            for attribute in attributes:
                if attribute.required and attribute.field not in self.said:
                    what = (
                        f"stanza {stanza} is missing" if start is None else f"stanza {stanza} has no {attribute.name}"
                    )
                    raise complaint("AMQ7006", self.path, start, f"{what}; {attribute.name} is required.")

    def _check_sum(self) -> None:
        """LogConfig knows this rule too; here the complaint can name the line."""
        fields = "primary_files", "secondary_files"
        lines_and_values = [
            self.said.get(f"log.{name}", (0, attrs.fields_dict(LogConfig)[name].default)) for name in fields
        ]
        files = sum(value for _, value in lines_and_values)
        if files > 511:
            what = f"LogPrimaryFiles and LogSecondaryFiles of stanza Log add up to {files}"
            raise complaint("AMQ7076", self.path, max(lines_and_values)[0], f"{what}; allowed: 3 to 511.")

    def _check_management(self) -> None:
        """With Automatic an extent is reused as soon as nothing needs it: nothing is left to be kept for some time."""
        line, management = self.said.get("log_management", (0, LogManagement.MANUAL))
        for attribute in STANZAS["LogArchive"] if management is LogManagement.AUTOMATIC else ():
            given, value = self.said.get(attribute.field, (0, None))
            if attribute.field in NOT_AUTOMATIC and value is not None:
                what = f"{attribute.name} of stanza LogArchive does not go with LogManagement=Automatic of stanza Log"
                why = f"which reuses extents by itself; allowed: {attribute.name} with LogManagement=Manual or Archive."
                raise complaint("AMQ7076", self.path, max(line, given), f"{what}, {why}")

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
        said = [
            f"{INDENT}{attribute.name}={_written(attribute, config)}"
            for attribute in attributes
            if stanza == "Log" or attribute_value(attribute, config) != attribute_value(attribute, default)
        ]
        if said:
            text += [f"{stanza}:", *said]
    return "\n".join(text) + "\n"


def attribute_value(attribute: Attribute, config: Config) -> Any:
    return operator.attrgetter(attribute.field)(config)


def _written(attribute: Attribute, config: Config) -> str:
    value = attribute_value(attribute, config)
    try:
        return attribute.values.write(value)
    except ValueError:
        raise IniError(
            f"AMQ7076E: qm.ini can't hold {attribute.name}={shown(str(value))}; allowed: {attribute.values.allowed}."
        ) from None
