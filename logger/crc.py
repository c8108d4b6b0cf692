"""CRC-32 of all that is written: the one of zlib, computed by zlib-ng where that package is there (the extra `fast`).

Both give the same numbers. zlib-ng takes a twentieth of the time for 64 KiB and a third for a small record. ISA-L is as
fast, and not used: on processors with AVX-512 it leaves the upper halves of the vector registers in use, and from then
on the interpreter takes two to three times as long for each object that it makes in that thread.
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from zlib import crc32
else:
    try:
        from zlib_ng.zlib_ng import crc32
    except ImportError:
        from zlib import crc32

__all__ = ["crc32"]
