"""Notices: which extents others have reported as archived (LogManagement=Archive), durable in `amqharch.fil`.

JSON: `log_id` in hexadecimal, `archived`, a list of [first, last] sequences, and `crc`, the CRC-32 of the two as text.
A file that can't be read counts as empty: extents are kept too long then, never too short.
"""

import json
from typing import Any

from logger.crc import crc32
from logger.disk import Disk
from logger.whole_files import read_whole, replace_file

NAME = "amqharch.fil"  # beside the control file


class ArchivedNotices:
    """What the file of one log says."""

    def __init__(self, disk: Disk, directory: str, log_id: bytes) -> None:
        """`directory` is that of the log. Raises OSError."""
        self._disk = disk
        self._path = f"{directory}/{NAME}"
        self._log_id = log_id.hex()
        self._ranges = self._read() if disk.exists(self._path) else []

    def covers(self, sequence: int) -> bool:
        """Was this extent reported as archived?"""
        return any(first <= sequence <= last for first, last in self._ranges)

    def add(self, sequence: int, last: int | None = None) -> None:
        """Note durably that the extents from `sequence` to `last`, or that one, are archived. Raises OSError."""
        ranges: list[tuple[int, int]] = []
        for low, high in sorted([*self._ranges, (sequence, sequence if last is None else last)]):
            if ranges and low <= ranges[-1][1] + 1:
                ranges[-1] = (ranges[-1][0], max(high, ranges[-1][1]))
            else:
                ranges.append((low, high))
        if ranges != self._ranges:
            replace_file(self._disk, self._path, json.dumps(self._content(ranges)).encode())
            self._ranges = ranges
        else:
            self._disk.sync_dir(self._path.rpartition("/")[0])  # a crash may have come before its sync

    def forget_from(self, sequence: int) -> None:
        """Extents from this sequence on are still to be written: what was noted of them is of a past that was cut off.

        Raises OSError.
        """
        ranges = [(first, min(last, sequence - 1)) for first, last in self._ranges if first < sequence]
        if ranges != self._ranges:
            replace_file(self._disk, self._path, json.dumps(self._content(ranges)).encode())
            self._ranges = ranges

    def _content(self, ranges: list[tuple[int, int]]) -> dict[str, Any]:
        said = {"log_id": self._log_id, "archived": [list(one) for one in ranges]}
        return said | {"crc": crc32(json.dumps(said).encode())}

    def _read(self) -> list[tuple[int, int]]:
        try:
            said = json.loads(read_whole(self._disk, self._path))
            ranges = [(int(first), int(last)) for first, last in said["archived"]]
        except (ValueError, KeyError, TypeError, RecursionError):
            return []
        return ranges if said == self._content(ranges) else []
