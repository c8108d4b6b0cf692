"""Sizing: what the Log stanza of qm.ini should say for the rates that were seen. Pure arithmetic, shown in steps."""

import math

import attrs

from logger.config import DEFAULT_BUFFER_PAGES, MIN_BUFFER_PAGES
from logger.disk import PAGE
from logger.space import RESERVE_PERCENT

FILES = 3, 509  # LogPrimaryFiles, with the two secondaries that are left as they are
FILE_PAGES = 64, 65535  # LogFilePages
BUFFER_PAGES = MIN_BUFFER_PAGES, 4096  # LogBufferPages
USUAL_FILE_PAGES = 4096  # LogFilePages where nothing is said
EXTENT_SECONDS = 10  # of the highest rate that one extent should hold
SLOW_FORCE = 0.1  # seconds that one force of the log may take


@attrs.frozen(kw_only=True)
class Seen:
    """What a log shows. Bytes are those of records with all that goes with them."""

    seconds: float  # from the first record to the last
    bytes: int
    peak_bytes: int  # in one second
    peak_extent_bytes: int  # in EXTENT_SECONDS
    peak_force_bytes: int  # in SLOW_FORCE
    largest_record: int
    needed: int  # the most that had to be kept active at once
    longest_unit: float  # seconds, from its first record to its outcome

    @property
    def rate(self) -> float:
        """Bytes a second, over all of the time."""
        return self.bytes / self.seconds if self.seconds > 0 else float(self.bytes)


@attrs.frozen
class Advice:
    """What the Log stanza should say, and how that came about."""

    primary_files: int
    file_pages: int
    buffer_pages: int
    steps: list[str]


def advise(seen: Seen) -> Advice:
    """Sizes for which what was seen fits, with the reserve that the log keeps."""
    steps: list[str] = []
    pages = _file_pages(seen, steps)
    room = math.ceil(seen.needed * 100 / (100 - RESERVE_PERCENT))
    files = math.ceil(room / (pages * PAGE)) + 1
    if files > FILES[1]:
        pages = min(math.ceil(room / (FILES[1] - 1) / PAGE), FILE_PAGES[1])
        files = math.ceil(room / (pages * PAGE)) + 1
        steps.append(f"so much would take more than {FILES[1]} of these; so LogFilePages = {pages:,}")
    steps.append(
        f"LogPrimaryFiles: {seen.needed:,} bytes had to be kept active at the most; {RESERVE_PERCENT} % of the log are "
        f"a reserve: {seen.needed:,} / {(100 - RESERVE_PERCENT) / 100} = {room:,} bytes = "
        f"{room / (pages * PAGE):.2f} extents; and 1, since an extent is given back whole: {files}"
    )
    if files > FILES[1]:
        steps.append(f"no log is as large as that: {FILES[1]} is the most, and units of work must be shorter")
    if files < FILES[0]:
        steps.append(f"at least {FILES[0]}")
    files = min(max(files, FILES[0]), FILES[1])
    rule = 2 * (seen.longest_unit + 1) * seen.peak_bytes
    size = files * pages * PAGE
    steps.append(
        f"for comparison, MQ's rule of thumb: 2 × ({seen.longest_unit:.1f} s of the longest unit of work + 1) × "
        f"{seen.peak_bytes:,} bytes in the busiest second = {rule:,.0f} bytes; this log has {size:,}"
    )
    return Advice(files, pages, _buffer_pages(seen, steps), steps)


def _file_pages(seen: Seen, steps: list[str]) -> int:
    wanted = math.ceil(seen.peak_extent_bytes / PAGE)
    pages = min(max(wanted, USUAL_FILE_PAGES), FILE_PAGES[1])
    steps.append(
        f"LogFilePages: an extent should hold {EXTENT_SECONDS} s of log: {seen.peak_extent_bytes:,} bytes in the "
        f"busiest {EXTENT_SECONDS} s / {PAGE} = {wanted:,} pages; the default is {USUAL_FILE_PAGES:,}, the most "
        f"{FILE_PAGES[1]:,}: {pages:,}"
    )
    return pages


def _buffer_pages(seen: Seen, steps: list[str]) -> int:
    burst, record = (math.ceil(2 * size / PAGE) for size in (seen.peak_force_bytes, seen.largest_record))
    pages = min(max(burst, record, DEFAULT_BUFFER_PAGES), BUFFER_PAGES[1])
    steps.append(
        f"LogBufferPages: while a slow force ({SLOW_FORCE} s) writes one half, the other must take what comes: 2 × "
        f"{seen.peak_force_bytes:,} bytes / {PAGE} = {burst:,} pages; a record in one frame takes half of it at the "
        f"most: 2 × {seen.largest_record:,} / {PAGE} = {record:,} pages; the default is {DEFAULT_BUFFER_PAGES:,}, the "
        f"most {BUFFER_PAGES[1]:,}: {pages:,}"
    )
    return pages
