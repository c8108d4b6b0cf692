"""The errors that callers see: one tree, sorted by what the caller should do, each with its MQ reason code.

MQError                        .reason: Reason, .name: object name
├── TryAgain                   NoMessageAvailable 2033 · QueueFull 2053 · ResourceProblem 2102 · StorageFull 2192
├── BackedOut                  2003: the unit of work is gone; back it out and start it again
├── Mistake                    the call is wrong: UnknownQueue 2085 · MessageTooBig 2030 · Inhibited 2051 …
├── Damaged                    2101: an operator restores from a backup
└── Unavailable                the queue manager is not there: 2059, ending 2161/2162
"""

import copyreg
import enum
import queue
from typing import Any

from logger.errors import quoted as quoted

# What to do about a file that the system does not let this user have:
OWNER_ADVICE = "be the user whose it is, or correct its mode or its directory's"


class Reason(enum.IntEnum):
    """MQRC reason codes, by their MQ names."""

    NONE = 0
    ALIAS_BASE_Q_TYPE_ERROR = 2001
    ALREADY_CONNECTED = 2002
    BACKED_OUT = 2003
    CONNECTION_BROKEN = 2009
    EXPIRY_ERROR = 2013
    GET_INHIBITED = 2016
    HANDLE_NOT_AVAILABLE = 2017
    HCONN_ERROR = 2018
    INHIBIT_VALUE_ERROR = 2020
    SYNCPOINT_LIMIT_REACHED = 2024
    MAX_CONNS_LIMIT_REACHED = 2025
    MD_ERROR = 2026
    MSG_TOO_BIG_FOR_Q = 2030
    MSG_TOO_BIG_FOR_Q_MGR = 2031
    NO_MSG_AVAILABLE = 2033
    NOT_AUTHORIZED = 2035
    OBJECT_IN_USE = 2042
    OPTIONS_ERROR = 2046
    PERSISTENCE_ERROR = 2047
    PRIORITY_EXCEEDS_MAXIMUM = 2049
    PRIORITY_ERROR = 2050
    PUT_INHIBITED = 2051
    Q_DELETED = 2052
    Q_FULL = 2053
    Q_NOT_EMPTY = 2055
    Q_SPACE_NOT_AVAILABLE = 2056
    Q_TYPE_ERROR = 2057
    Q_MGR_NAME_ERROR = 2058
    Q_MGR_NOT_AVAILABLE = 2059
    SELECTOR_ERROR = 2067
    STORAGE_NOT_AVAILABLE = 2071
    SYNCPOINT_NOT_AVAILABLE = 2072
    UNKNOWN_ALIAS_BASE_Q = 2082
    UNKNOWN_OBJECT_NAME = 2085
    WAIT_INTERVAL_ERROR = 2090
    OBJECT_ALREADY_EXISTS = 2100
    OBJECT_DAMAGED = 2101
    RESOURCE_PROBLEM = 2102
    UOW_IN_PROGRESS = 2128
    OBJECT_NAME_ERROR = 2152
    Q_MGR_QUIESCING = 2161
    Q_MGR_STOPPING = 2162
    GMO_ERROR = 2186
    STORAGE_MEDIUM_FULL = 2192
    UNEXPECTED_ERROR = 2195
    CONNECTION_QUIESCING = 2202
    CONNECTION_STOPPING = 2203
    FILE_SYSTEM_ERROR = 2208
    NO_MSG_LOCKED = 2209
    CALL_IN_PROGRESS = 2219
    Q_MGR_ACTIVE = 2222
    Q_MGR_NOT_ACTIVE = 2223
    Q_DEPTH_HIGH = 2224
    Q_DEPTH_LOW = 2225
    UNIT_OF_WORK_NOT_STARTED = 2232
    INCONSISTENT_UOW = 2245
    MSG_FLAGS_ERROR = 2249
    MSG_SEQ_NUMBER_ERROR = 2250
    DLH_ERROR = 2141
    FUNCTION_NOT_SUPPORTED = 2298
    UOW_NOT_AVAILABLE = 2255
    GROUP_ID_ERROR = 2258
    BACKOUT_THRESHOLD_REACHED = 2362
    LOGGER_STATUS = 2411
    PROPERTY_NAME_ERROR = 2442
    PROPERTY_TYPE_ERROR = 2473
    LOG_TYPE_ERROR = 3175
    CURRENT_LOG_EXTENT = 3378
    LOG_EXTENT_NOT_FOUND = 3379

    @property
    def symbol(self) -> str:
        """The name as IBM MQ writes it: commands have reasons of their own, from 3000 on."""
        return f"{'MQRCCF' if self >= 3000 else 'MQRC'}_{self.name}"


class MQError(Exception):
    """Anything that is refused or fails: `.reason` says which, the text what, where and what to do."""

    default_reason: Reason = Reason.UNEXPECTED_ERROR

    def __init__(self, text: str, *, reason: Reason | None = None, name: str = "") -> None:
        self.reason: Reason = self.default_reason if reason is None else reason
        self.name = name
        super().__init__(f"{text} ({self.reason.value} {self.reason.symbol})")

    @property
    def sentence(self) -> str:
        """The text without the reason code at its end."""
        return str(self).removesuffix(f" ({self.reason.value} {self.reason.symbol})")

    def __reduce__(self) -> tuple[Any, ...]:
        """Copies and pickles are made without `__init__`, which would append the reason code once more."""
        return copyreg.__newobj__, (type(self), *self.args), vars(self)  # type: ignore[attr-defined]


class TryAgain(MQError):
    """Nothing was done; the same call may work later."""


class NoMessageAvailable(TryAgain, queue.Empty):
    """No message that the get asks for is there, nor came while it waited (2033); also a `queue.Empty`."""

    default_reason = Reason.NO_MSG_AVAILABLE


class QueueFull(TryAgain, queue.Full):
    """The queue holds `max_depth` messages (2053); also a `queue.Full`."""

    default_reason = Reason.Q_FULL


class ResourceProblem(TryAgain):
    """The log has no room for this call."""

    default_reason = Reason.RESOURCE_PROBLEM


class StorageFull(TryAgain):
    """A disk has no room for what the call needs there (2192)."""

    default_reason = Reason.STORAGE_MEDIUM_FULL


class BackedOut(MQError):
    """The queue manager rolled the unit of work back: nothing of it remains."""

    default_reason = Reason.BACKED_OUT


class Mistake(MQError):
    """The call itself is wrong, and would be wrong again; nothing was done."""

    default_reason = Reason.OPTIONS_ERROR


class NameError_(Mistake):
    """A name that is too long, empty, or has characters that are not allowed."""

    default_reason = Reason.OBJECT_NAME_ERROR


class UnknownQueue(Mistake):
    """No queue or alias has that name (2085), an alias stands for none (2082), or it was deleted meanwhile (2052)."""

    default_reason = Reason.UNKNOWN_OBJECT_NAME


class AliasOfAlias(Mistake):
    """An alias stands for a queue, not for another alias."""

    default_reason = Reason.ALIAS_BASE_Q_TYPE_ERROR


class AlreadyExists(Mistake):
    """There is a queue, an alias or a queue manager of that name (2100)."""

    default_reason = Reason.OBJECT_ALREADY_EXISTS


class ObjectInUse(Mistake):
    """Units of work, clients, messages or other work hold what the call would change (2042, 2055)."""

    default_reason = Reason.OBJECT_IN_USE


class MessageTooBig(Mistake):
    """The message is longer than the queue (2030), or the queue manager or its log (2031), takes."""

    default_reason = Reason.MSG_TOO_BIG_FOR_Q


class SyncpointLimit(Mistake):
    """The unit of work has as many messages as MAXUMSGS allows; commit it or back it out."""

    default_reason = Reason.SYNCPOINT_LIMIT_REACHED


class NotAuthorized(Mistake):
    """The user may not do that; an operator can allow it (setmqaut)."""

    default_reason = Reason.NOT_AUTHORIZED


class Inhibited(Mistake):
    """Puts or gets are disabled on the queue."""

    default_reason = Reason.PUT_INHIBITED


class UnitOfWorkEnded(Mistake):
    """The unit of work was already committed, backed out or prepared."""

    default_reason = Reason.UOW_NOT_AVAILABLE


class IniError(Mistake, ValueError):
    """A line of an ini file that can't be accepted: says file, line, attribute, value and what is allowed."""

    default_reason = Reason.OPTIONS_ERROR


class MediaNotSupported(Mistake):
    """Circular logging keeps nothing to recover an object from."""

    default_reason = Reason.FUNCTION_NOT_SUPPORTED


class BookmarkTooOld(Mistake):
    """The log reaches back no more to where a replay should begin."""


class NotImageRecoverable(Mistake):
    """The object was defined so that no media images of it are kept."""

    default_reason = Reason.FUNCTION_NOT_SUPPORTED


class Damaged(MQError):
    """What was durable can't be read any more (2101): an operator is needed, and the text says for what."""

    default_reason = Reason.OBJECT_DAMAGED


class MediaImageMissing(Damaged):
    """There is no media image, or a part of the log is missing that it needs."""


class Unavailable(MQError):
    """The queue manager is not there to serve the call."""

    default_reason = Reason.Q_MGR_NOT_AVAILABLE


def command_in(holder: str) -> str:
    """The command that holds a lock: `qm repair` of `pid 4711 (qm repair)`; "" of one that runs the queue manager."""
    return holder.partition(" (")[2].removesuffix(")")


class InUse(Unavailable):
    """Somebody owns the queue manager already: `.holder` says who."""

    def __init__(self, text: str, *, holder: str = "", name: str = "") -> None:
        super().__init__(text, name=name)
        self.holder = holder
