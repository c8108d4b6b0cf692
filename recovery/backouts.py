"""How often the messages of a queue were backed out: a byte for each, in stretches of neighbours of which one was.

As text, for the catalogue of a checkpoint and for media images: base64 of zlib of a u32 that says how many stretches
follow, of these, and then of a sequence u64 and a count u32 for each message that was backed out 255 times or more.

    offset  size  field        meaning                        of a stretch
         0     8  number       sequence of its first message, divided by 256
         8   256  counts       u8 each; 255: the count stands behind the stretches
"""

import base64
import struct
import zlib
from collections.abc import Iterator

COUNT = struct.Struct("<I")
STRETCH = struct.Struct("<Q256s")
LARGE = struct.Struct("<QI")
NO_COUNTS = bytes(256)
ESCAPE, MAX_COUNT = 255, (1 << 32) - 1  # ESCAPE: the count stands behind the stretches


class Backouts:
    """Counts by sequence."""

    __slots__ = ("_large", "_stretches")

    def __init__(self) -> None:
        self._stretches: dict[int, bytes] = {}  # never changed, but replaced, since copies share them
        self._large: dict[int, int] = {}

    def __bool__(self) -> bool:
        return bool(self._stretches)

    def get(self, sequence: int) -> int:
        """How often this message was backed out."""
        count = self._stretches.get(sequence >> 8, NO_COUNTS)[sequence & 255]
        return count if count < ESCAPE else self._large[sequence]

    def note(self, sequence: int, count: int) -> None:
        """Set the count of a message, at most MAX_COUNT; 0 deletes it."""
        number, at, count = sequence >> 8, sequence & 255, min(count, MAX_COUNT)
        before = self._stretches.get(number, NO_COUNTS)
        if count >= ESCAPE:
            self._large[sequence] = count
        elif before[at] == ESCAPE:
            del self._large[sequence]
        counts = bytearray(before)
        counts[at] = min(count, ESCAPE)
        if counts == NO_COUNTS:
            self._stretches.pop(number, None)
        else:
            self._stretches[number] = bytes(counts)

    def items(self) -> Iterator[tuple[int, int]]:
        """Sequence and count of each message that was backed out, in order."""
        for number, counts in sorted(self._stretches.items()):
            for sequence, count in enumerate(counts, number << 8):
                if count:
                    yield sequence, count if count < ESCAPE else self._large[sequence]

    def copy(self) -> "Backouts":
        copy = Backouts()
        copy._stretches = self._stretches.copy()
        copy._large = self._large.copy()
        return copy

    def text(self) -> str:
        """All of them, for `read`; empty when there are none."""
        if not self._stretches:
            return ""
        parts = [COUNT.pack(len(self._stretches))]
        parts += [STRETCH.pack(*stretch) for stretch in self._stretches.items()]
        parts += [LARGE.pack(*large) for large in self._large.items()]
        return base64.b64encode(zlib.compress(b"".join(parts), 1)).decode()


def read(said: str | dict[str, int]) -> Backouts:
    """What `text` said; or what an earlier version did, counts by sequence."""
    found = Backouts()
    if isinstance(said, dict):
        for at, count in said.items():
            found.note(int(at), count)
    elif said:
        data = zlib.decompress(base64.b64decode(said))
        end = COUNT.size + COUNT.unpack_from(data)[0] * STRETCH.size
        found._stretches = dict(STRETCH.iter_unpack(data[COUNT.size : end]))
        found._large = dict(LARGE.iter_unpack(data[end:]))
    return found
