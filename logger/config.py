"""The Log stanza of qm.ini as one frozen class: below it nobody meets text or defaults."""

import enum
from typing import Any, TypeVar

import attrs

from logger.disk import PAGE
from logger.errors import quoted

DEFAULT_BUFFER_PAGES = 512
MIN_BUFFER_PAGES = 18


Choice = TypeVar("Choice", bound=enum.Enum)


def chosen(name: str, choices: type[Choice], value: object) -> Choice:
    """Which one of an enumeration is meant, in whatever case it is written. Raises ValueError."""
    for one in choices:
        if isinstance(value, str) and value.casefold() == str(one.value).casefold():
            return one
    raise ValueError(f"{name} is {quoted(value)}; allowed: {', '.join(str(one.value) for one in choices)}")


class LogType(enum.Enum):
    CIRCULAR = "CIRCULAR"
    LINEAR = "LINEAR"


class WriteIntegrity(enum.Enum):
    """How a partial last page is kept whole; DoubleWrite behaves as TripleWrite."""

    SINGLE = "SingleWrite"
    DOUBLE = "DoubleWrite"
    TRIPLE = "TripleWrite"


class LogSync(enum.Enum):
    """When a force reaches stable storage: before it returns, at an interval, or when the system sees fit."""

    ALWAYS = "always"
    INTERVAL = "interval"
    OS = "os"


def within(low: int, high: int) -> Any:
    """An attrs validator: an int from `low` to `high`."""

    def check(_: object, attribute: "attrs.Attribute[int]", value: int) -> None:
        if not isinstance(value, int) or isinstance(value, bool) or not low <= value <= high:
            raise ValueError(f"{attribute.name} is {quoted(value)}; allowed: a whole number from {low} to {high}")

    return check


def _buffer_pages(value: int) -> int:
    return MIN_BUFFER_PAGES if type(value) is int and 1 <= value < MIN_BUFFER_PAGES else value


@attrs.frozen(kw_only=True)
class LogConfig:
    """How one queue manager logs. Names, defaults and ranges are those of IBM MQ on Linux."""

    path: str  # the log directory of this queue manager, holding amqhlctl.lfh and active/
    log_type: LogType = LogType.CIRCULAR
    primary_files: int = attrs.field(default=3, validator=within(2, 510))
    secondary_files: int = attrs.field(default=2, validator=within(1, 509))
    file_pages: int = attrs.field(default=4096, validator=within(64, 65535))  # 4 KiB pages of records in an extent
    buffer_pages: int = attrs.field(default=0, converter=_buffer_pages)  # 4 KiB pages; 0: 512
    write_integrity: WriteIntegrity = WriteIntegrity.TRIPLE
    sync: LogSync = LogSync.ALWAYS
    sync_interval_ms: int = attrs.field(default=1000, validator=within(1, 3_600_000))
    archive_path: str | None = None  # where extents of a linear log are archived; None: `archive` in `path`

    @buffer_pages.validator
    def _check_buffer(self, attribute: "attrs.Attribute[int]", value: int) -> None:
        within(0, 4096)(self, attribute, value)

    def __attrs_post_init__(self) -> None:
        if not 3 <= self.primary_files + self.secondary_files <= 511:
            raise ValueError(
                f"primary_files + secondary_files is {self.primary_files + self.secondary_files}; allowed: 3 to 511"
            )

    @property
    def extent_bytes(self) -> int:
        """Bytes of the log stream that one extent holds."""
        return self.file_pages * PAGE

    @property
    def archive_directory(self) -> str:
        return self.archive_path or f"{self.path}/archive"

    @property
    def max_files(self) -> int:
        return self.primary_files + self.secondary_files

    @property
    def buffer_bytes(self) -> int:
        return (self.buffer_pages or DEFAULT_BUFFER_PAGES) * PAGE
