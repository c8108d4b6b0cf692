"""Fingerprint: the rows of a part of a batch as two numbers, by which a batch that is run again is recognised.

Spark does not promise an order within a partition, so the order does not count: the hashes of the rows are added up.
"""

import hashlib
from collections.abc import Iterable

import attrs

BITS = 64


@attrs.define
class Fingerprint:
    """Of rows that are added one after the other; none of them is held."""

    rows: int = 0
    _sum: int = 0

    def add(self, alike: object, bodies: Iterable[bytes] = (b"",)) -> None:
        """Add a row for each body. `alike`: what else they have, the same in all; its `repr` has to tell all of it."""
        begun = hashlib.blake2b(repr(alike).encode() + b"\n", digest_size=BITS // 8)
        for body in bodies:
            whole = begun.copy()
            whole.update(body)
            self._sum += int.from_bytes(whole.digest())
            self.rows += 1

    @property
    def digest(self) -> str:
        return f"{self._sum % (1 << BITS):016x}"
