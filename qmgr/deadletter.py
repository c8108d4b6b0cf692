"""The dead-letter header (MQDLH): 172 bytes before the body of a message that could not go where it should.

    offset  size  field                meaning
         0     4  structure            "DLH "
         4     4  version              1
         8     4  reason               why it came here, a reason code
        12    48  queue                where it should have gone, or was
        60    48  queue manager
       108     4  encoding             of the numbers in the body; 546: little-endian
       112     4  character set        of the text in the body; 1208: UTF-8
       116     8  format               of the body
       124     4  application type     who put it here: 7, a queue manager
       128    28  application name
       156     8  date                 when, UTC: YYYYMMDD
       164     8  time                 HHMMSSth

Numbers are little-endian, text is filled up with blanks. The format of the message is "MQDEAD" then; its ids,
properties and all else stay as they were.
"""

import datetime
import struct

import attrs

from qmgr.errors import Mistake, Reason

LAYOUT = struct.Struct("<4sii48s48sii8si28s8s8s")
assert LAYOUT.size == 172
FORMAT = "MQDEAD"
STRUCTURE = b"DLH "
VERSION = 1
LITTLE_ENDIAN, UTF_8 = 546, 1208
QUEUE_MANAGER = 7  # MQAT_QMGR
EPOCH = datetime.datetime(1970, 1, 1)


@attrs.frozen(kw_only=True)
class DeadLetterHeader:
    """Why a message is a dead letter, and where it came from."""

    reason: int
    queue: str
    manager: str
    format: str = ""  # of the body behind the header
    encoding: int = LITTLE_ENDIAN
    character_set: int = UTF_8
    application_type: int = QUEUE_MANAGER
    application: str = "qmgr"
    date: str = ""
    time: str = ""

    def encode(self) -> bytes:
        return LAYOUT.pack(
            STRUCTURE,
            VERSION,
            self.reason,
            _blanked(self.queue, 48),
            _blanked(self.manager, 48),
            self.encoding,
            self.character_set,
            _blanked(self.format, 8),
            self.application_type,
            _blanked(self.application, 28),
            _blanked(self.date, 8),
            _blanked(self.time, 8),
        )


def _blanked(text: str, size: int) -> bytes:
    return text.encode("ascii", "replace")[:size].ljust(size)


def decode(body: bytes) -> tuple[DeadLetterHeader, bytes]:
    """The header of a dead letter, and the body that the message had before. Raises Mistake (2141)."""
    if len(body) < LAYOUT.size or body[:4] != STRUCTURE:
        raise Mistake(
            f"no dead-letter header: it has {LAYOUT.size} bytes and begins with 'DLH ', this begins with "
            f"{bytes(body[:8])!r}",
            reason=Reason.DLH_ERROR,
        )
    _, version, reason, *rest = LAYOUT.unpack_from(body)
    if version != VERSION:
        raise Mistake(f"a dead-letter header of version {version}; known is {VERSION}", reason=Reason.DLH_ERROR)
    queue, manager, encoding, character_set, form, kind, application, date, time = rest
    queue, manager, form, application, date, time = (
        part.decode("ascii", "replace").rstrip(" \0") for part in (queue, manager, form, application, date, time)
    )
    header = DeadLetterHeader(
        reason=reason,
        queue=queue,
        manager=manager,
        format=form,
        encoding=encoding,
        character_set=character_set,
        application_type=kind,
        application=application,
        date=date,
        time=time,
    )
    return header, bytes(body[LAYOUT.size :])


def header_of(reason: int, queue: str, manager: str, form: str, wall_us: int) -> DeadLetterHeader:
    """The header of a message that becomes a dead letter now."""
    at = EPOCH + datetime.timedelta(microseconds=wall_us)
    hundredths = at.microsecond // 10_000
    return DeadLetterHeader(
        reason=int(reason),
        queue=queue,
        manager=manager,
        format=form,
        date=f"{at:%Y%m%d}",
        time=f"{at:%H%M%S}{hundredths:02}",
    )
