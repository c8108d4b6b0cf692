"""LSN: a position in the endless byte stream of the log, as one int; its text form `<0:0:4615:42406>`.

An LSN is a multiple of 8. 0 stands for "none": the stream begins at the first byte of extent sequence 1. The
*sequence* of an extent is the LSN divided by the bytes that an extent holds; in a linear log extent `S0000000.LOG`
has sequence 1, in a circular log a file takes a new sequence on every lap.
"""

from logger.disk import PAGE
from logger.errors import quoted

NONE = 0
LAST = (1 << 64) - (1 << 40)  # appending stops loudly before the stream runs out of 64 bits


def text(lsn: int) -> str:
    """`<a:b:c:d>`, four decimal groups of 16 bits."""
    return f"<{lsn >> 48 & 0xFFFF}:{lsn >> 32 & 0xFFFF}:{lsn >> 16 & 0xFFFF}:{lsn & 0xFFFF}>"


def parse(word: str) -> int:
    """The LSN in `<a:b:c:d>` or `a:b:c:d`; raises ValueError with a sentence."""
    groups = word.strip().removeprefix("<").removesuffix(">").split(":")
    if len(groups) != 4 or not all(g.isascii() and g.isdigit() and len(g) < 20 and int(g) <= 0xFFFF for g in groups):
        raise ValueError(f"{quoted(word)} is not an LSN; write four numbers from 0 to 65535, such as 0:0:4615:42406")
    lsn = 0
    for group in groups:
        lsn = lsn << 16 | int(group)
    return lsn


def page_of(lsn: int) -> int:
    """The LSN of the first byte of the page that holds `lsn`."""
    return lsn & -PAGE
