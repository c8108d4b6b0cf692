"""qm.ini: its text becomes a Config, a Config its text; every complaint says where, what, and what is allowed.

Pure: no files, no clock. Which stanzas and attributes there are is for `ini_stanzas.py`. Those that IBM MQ knows and
this version does not use are accepted and named in `Config.ignored`, so that a file brought over from IBM MQ still
works.
"""

import operator
import re
from collections.abc import Generator, Iterator, Sequence
from typing import Any, NoReturn

import attrs

from logger.archive_plan import ArchivePolicy
from logger.config import LogConfig, LogType
from qmgr import ini_text
from qmgr.configuration import (
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
from qmgr.ini_stanzas import (
    ATTRIBUTES,
    FOR_LINEAR,
    IGNORED_ATTRIBUTES,
    IGNORED_STANZAS,
    NOT_AUTOMATIC,
    NOT_OVERLAID,
    REPEATED,
    STANZAS,
    Attribute,
)
from qmgr.ini_text import INDENT, Line, complaint, decoded, numbered, shown, understood

__all__ = [
    "INDENT",
    "AutoConfig",
    "ChannelsConfig",
    "Config",
    "ErrorLogConfig",
    "ErrorLogFormat",
    "ListenerConfig",
    "LogManagement",
    "Protocol",
    "Tuning",
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
