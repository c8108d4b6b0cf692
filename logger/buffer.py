"""Log-buffer pages in private memory: append frames, hand over runs of pages to write. No files, no locks.

There are two halves. Frames go into one of them while the other is being written; taking a run swaps them and carries
the partial last page over, so that the next run begins with it. The caller's lock guards every method.
"""

from collections.abc import Callable

from logger import frame, lsn
from logger.crc import crc32
from logger.disk import PAGE, Buffer
from logger.errors import LogClosed
from logger.frame import BACK_MAX, BEGIN, END, FRONT, HEADER, LAST_START, MAGIC, REST, VERSION, WHOLE, Pieces

MIN_PART_BYTES = 512  # a record is not split to put less than this at the end of an extent
MAX_JOINED_BYTES = PAGE  # a frame up to this size is joined before it goes into the pages


class Run:
    """Pages to write: the stream from `base` (a page's first byte) to `tail`."""

    __slots__ = ("base", "pages", "tail")

    def __init__(self, base: int, tail: int, pages: memoryview) -> None:
        self.base = base
        self.tail = tail
        self.pages = pages  # whole ones


class LogBuffer:
    """The part of the log that is not yet written."""

    def __init__(
        self,
        halves: tuple[memoryview, memoryview],
        *,
        extent_bytes: int,
        seed: int,
        epoch: int,
        tail: int,
        partial: Buffer,
        make_room: Callable[[], None],
    ) -> None:
        """`partial` is what the log holds of the page at `tail`; `make_room()` takes and writes the full pages."""
        self._pages, self._other = halves
        self._extent_bytes = extent_bytes
        self._seed = seed
        self._epoch = epoch
        self._make_room = make_room
        self.capacity = len(self._pages)
        self.max_frame = min(extent_bytes // 8, self.capacity // 2) & -8
        self._max_joined = min(self.max_frame, MAX_JOINED_BYTES)
        self.tail = tail  # where the next frame goes
        self.base = lsn.page_of(tail)
        self._pages[: len(partial)] = partial
        self._set_end()

    def _set_end(self) -> None:
        """No frame may end beyond the end of the half or of the extent."""
        extent_end = (self.tail // self._extent_bytes + 1) * self._extent_bytes
        self._end = min(self.base + self.capacity, extent_end)

    @property
    def room(self) -> int:
        """Bytes of frames that can be appended without writing any."""
        return self.base + self.capacity - self.tail

    def append(self, kind: int, uow: int, time: int, durable: int, head: Buffer, data: Buffer | Pieces = b"") -> int:
        """Append a record with the body `head + data`; return its LSN. `self.tail` is then the LSN to force."""
        at = self.tail
        end = at + HEADER.size + len(head) + len(data)
        if end > self._end or end - at > self._max_joined or isinstance(data, Pieces):
            return self._append_large(kind, uow, time, durable, head, data)
        back = at - durable >> 3
        rest = REST.pack(
            end - at, self._epoch, at, uow, time, back if back < BACK_MAX else BACK_MAX, kind, WHOLE, VERSION
        )
        rest += head  # one small copy, and then the CRC needs no views
        rest += data
        start = at - self.base
        page = self._pages
        FRONT.pack_into(page, start, MAGIC, crc32(rest, self._seed))
        page[start + FRONT.size : end - self.base] = rest
        place = end + 7 & -8
        self.tail = place if place & PAGE - 1 <= LAST_START else (place | PAGE - 1) + 1
        return at

    def _append_large(self, kind: int, uow: int, time: int, durable: int, head: Buffer, data: Buffer | Pieces) -> int:
        """The same for a record that is not copied on its way into the pages, or does not fit there in one frame."""
        at = self.tail
        length = HEADER.size + len(head) + len(data)
        if length > self.max_frame or at + length > self._end:
            return self._append_parts(kind, uow, time, durable, head, data)
        back = min(at - durable >> 3, BACK_MAX)
        end = frame.encode_into(
            self._pages, at - self.base, self._seed, self._epoch, at, uow, time, back, kind, WHOLE, head, data
        )
        self.tail = frame.next_start(self.base + end)
        return at

    def _append_parts(self, kind: int, uow: int, time: int, durable: int, head: Buffer, data: Buffer | Pieces) -> int:
        """Append a record that may need several frames, room in the buffer, or the next extent."""
        if self.tail > lsn.LAST:
            raise LogClosed("the log has used up its 64-bit LSNs; move the messages to a new queue manager")
        parts: list[Buffer] = [head, *data.parts] if isinstance(data, Pieces) else [head, data]
        parts.reverse()
        left, first, flags = len(head) + len(data), 0, BEGIN
        while True:
            part = min(left, self.max_frame - HEADER.size, self.extent_room() - HEADER.size)
            if part < min(left, MIN_PART_BYTES):
                self._next_extent(time, durable)
                continue
            if self.room < HEADER.size + part:
                self._make_room()
            left -= part
            if left == 0:
                flags |= END
            at = self._frame(kind, flags, uow, time, durable, Pieces(_taken(parts, part)))
            first = first or at
            if flags & END:
                return first
            flags = 0

    def extent_room(self) -> int:
        """Bytes from the tail to the end of its extent."""
        return self._extent_bytes - self.tail % self._extent_bytes

    def _frame(self, kind: int, flags: int, uow: int, time: int, durable: int, body: Buffer | Pieces) -> int:
        at = self.tail
        back = min(at - durable >> 3, BACK_MAX)
        end = frame.encode_into(
            self._pages, at - self.base, self._seed, self._epoch, at, uow, time, back, kind, flags, b"", body
        )
        self.tail = frame.next_start(self.base + end)
        self._set_end()
        return at

    def skip_extent(self, time: int, durable: int) -> None:
        """Go over to the next extent, wherever this one has got to: a PAD frame says that its rest is empty.

        `make_room()` must have left the partial last page only. Nothing of the rest is written.
        """
        if self.tail % self._extent_bytes == 0:
            return
        end = self.tail + self.extent_room()
        self._frame(frame.PAD, WHOLE, 0, time, durable, b"")
        self.tail = min((self.tail + PAGE - 1) // PAGE * PAGE, end)  # the page of that frame is a full one now
        self._make_room()
        self.base = self.tail = end
        self._set_end()

    def _next_extent(self, time: int, durable: int) -> None:
        """Fill the rest of the extent with a PAD frame, where there is a rest."""
        if self.tail % self._extent_bytes:
            if self.room < HEADER.size:
                self._make_room()
            at = self._frame(frame.PAD, WHOLE, 0, time, durable, b"")
            end = (at // self._extent_bytes + 1) * self._extent_bytes
            while end - self.base > self.capacity:
                self._make_room()
            self.tail = end
        self._set_end()

    def fill_page(self, time: int, durable: int) -> None:
        """End the last page with a record that says nothing, so that all pages are full ones."""
        if self.tail % PAGE:
            self.append(frame.FILL, 0, time, durable, bytes(-self.tail % PAGE - HEADER.size))

    def copy_page(self, image: memoryview, start: int, end: int, crc: int) -> int:
        """Copy these bytes of the page that waits to be written to their places in `image`; go on with their CRC."""
        part = self._pages[start:end]
        image[start:end] = part
        return crc32(part, crc)

    def take(self, *, partial: bool) -> Run:
        """Hand over what there is, without the partial last page unless `partial`, and go on in the other half.

        The pages of the run stay as they are until the next call but one.
        """
        base, tail = self.base, self.tail
        last = lsn.page_of(tail)
        held = tail - last  # bytes of the partial page
        taken = last - base + (PAGE if partial and held else 0)
        run = Run(base, tail if partial else last, self._pages[:taken])
        at = last - base
        self._other[:held] = self._pages[at : at + held]
        self._pages, self._other = self._other, self._pages
        self.base = last
        self._set_end()
        return run


def _taken(parts: list[Buffer], size: int) -> list[Buffer]:
    """Take `size` bytes from what lies in `parts`, the first of them last; nothing is copied."""
    taken: list[Buffer] = []
    while size:
        part = parts.pop()
        if len(part) > size:
            view = memoryview(part)
            parts.append(view[size:])
            part = view[:size]
        taken.append(part)
        size -= len(part)
    return taken
