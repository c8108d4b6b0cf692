"""What can go wrong with the log, sorted by what the caller should do about it.

LogError
├── LogDamaged   AMQ6767: something that was durable can't be read; an operator decides
│   ├── NotAsConfigured   the log is whole, but not as its configuration says
│   ├── LaterFormat   nothing is wrong with it: a later version of this program wrote it
│   ├── NotInLog   what was asked for is not in the log
│   └── ExtentGone   there is no extent so old any more: it was removed or used again
├── LogFailed    AMQ6708/6709: a write or sync failed; the log is closed for good until a restart
├── LogClosed    the log was ended, by this program
├── LogInUse     another process, or this one, owns the queue manager
└── ArchiveFailed  an extent could not be archived, compressed or removed; it is still where it was
"""

MAX_QUOTED = 100  # characters, or bytes, of a value that a sentence shows


def quoted(value: object) -> str:
    """The repr of a value that a caller gave, for the text of an error: of a long one its beginning. Never raises."""
    if isinstance(value, (str, bytes, bytearray)) and len(value) > MAX_QUOTED:
        return f"{value[:MAX_QUOTED]!r}..."
    try:
        text = repr(value)
    except Exception:  # Python refuses this for an int with thousands of digits, say
        return f"one {type(value).__name__}"
    return text if len(text) <= 4 * MAX_QUOTED else f"{text[: 4 * MAX_QUOTED]}..."


class LogError(Exception):
    """Anything the log refuses or fails at."""

    amq = "AMQ6709"


class LogDamaged(LogError):
    """What was once durable can't be read: names the file, the LSN and the way out."""

    amq = "AMQ6767"

    def __init__(self, text: str, *, path: str = "", lsn: int | None = None, durable: int = 0) -> None:
        super().__init__(text)
        self.path = path
        self.lsn = lsn
        self.durable = durable  # up to where the log is known to have been; 0: it is not known


class NotAsConfigured(LogDamaged):
    """The log is whole, and not as its configuration says: names the attribute, and what to set."""

    def __init__(self, text: str, attribute: str, *, path: str) -> None:
        super().__init__(text, path=path)
        self.attribute = attribute


class LaterFormat(LogDamaged):
    """A file, or a record, of a format that came after this version: only the version that wrote it can read it."""


def later_format(path: str, what: str) -> LaterFormat:
    text = f"{path} {what}, which this version does not read; start the queue manager with the version that wrote it"
    return LaterFormat(text, path=path)


def refuse_later(data: bytes, magic: bytes, path: str) -> None:
    """Raise LaterFormat where `data` begins with `magic` but for a higher version as the last character.

    Ask only where the CRC does not check out: it covers the version in a later format, so else that byte is damaged.
    `path`: of the file; without one nothing is raised.
    """
    version = data[len(magic) - 1 : len(magic)]
    if path and data.startswith(magic[:-1]) and magic[-1:] < version <= b"9":
        raise later_format(path, f"is of format {version.decode()}")


class NotInLog(LogDamaged):
    """What was asked for is not in the log, or not any more; the log itself is not damaged."""


class ExtentGone(LogDamaged):
    """There is no extent so old: it was removed or used again."""


class LogFailed(LogError):
    amq = "AMQ6708"


class LogClosed(LogError):
    amq = "AMQ7017"


class LogInUse(LogError):
    amq = "AMQ7017"

    def __init__(self, text: str, *, holder: str = "") -> None:
        super().__init__(text)
        self.holder = holder


class ArchiveFailed(LogError):
    """Nothing is lost: the same can be asked for again once the cause is gone."""

    amq = "AMQ6708"
