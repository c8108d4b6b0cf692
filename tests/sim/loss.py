"""Loss: what a crash does to the things that were not yet synced. Pure choices; the disk carries them out.

An unsynced sector is found new, old, as any version between, zeroed or as noise; sizes and names are lost apart
from the data. `sectors` names the picture that one file shows:

    new  old         all of it, none of it
    zero noise       every unsynced sector destroyed
    prefix suffix    the first (last) sectors new, the others old: a write that was cut off
    hole             new but for a run of old ones in the middle
    each             every sector for itself, among all its versions
    wild             every sector for itself: any version, zero or noise
    mixed            each file draws one of the above
"""

import random

import attrs

ATOMIC = ("new", "old", "prefix", "suffix", "hole", "each", "each")
TORN = (*ATOMIC, "wild", "wild", "wild", "zero", "noise")


@attrs.frozen(kw_only=True)
class Loss:
    """One way to lose what was not synced; the same seed loses the same."""

    seed: int = 0
    sectors: str = "mixed"
    sizes: str = "mixed"  # new, old, mixed: any size the file had since its last sync
    names: str = "mixed"  # new, old, mixed: each name change for itself
    atomic: bool = False  # a sector is old or new, never zero or noise: what SingleWrite asks of the storage
    alive: bool = False  # the machine: what was not synced is in its memory still, and another crash may take it
    cut: int | None = None  # with prefix, suffix, hole: where in the file's unsynced sectors the cut lies

    def picture(self, rng: random.Random) -> str:
        """The picture that the next file shows."""
        if self.sectors != "mixed":
            return self.sectors
        return rng.choice(ATOMIC if self.atomic else TORN)

    def choose(self, rng: random.Random, versions: dict[int, list[bytes]], written: set[int]) -> dict[int, bytes]:
        """What the unsynced sectors of one file hold; those that are not named hold what they held at the last sync.

        `versions`: what each sector held after each write, oldest first. `written`: those that carried data, which
        alone can be destroyed.
        """
        picture = self.picture(rng)
        if picture in ("zero", "noise", "wild") and self.atomic:
            picture = "each"
        order = sorted(versions)
        found: dict[int, bytes] = {}
        if picture == "old":
            return found
        low, high = 0, len(order)
        if picture in ("prefix", "hole"):
            high = rng.randint(0, len(order)) if self.cut is None else min(self.cut, len(order))
        elif picture == "suffix":
            low = rng.randint(0, len(order)) if self.cut is None else min(self.cut, len(order))
        if picture == "hole":
            low = rng.randint(high, len(order))
        for position, sector in enumerate(order):
            has = versions[sector]
            if picture == "hole":
                value: bytes | None = None if high <= position < low else has[-1]
            elif picture in ("prefix", "suffix", "new"):
                value = has[-1] if low <= position < high else None
            elif picture == "each":
                value = rng.choice([None, *has])
            else:
                fate = picture if picture != "wild" else rng.choice(("kept", "kept", "kept", "zero", "noise"))
                if fate == "kept" or sector not in written:
                    value = rng.choice([None, *has])
                elif fate == "zero":
                    value = bytes(512)
                else:
                    value = rng.randbytes(512)
            if value is not None:
                found[sector] = value
        return found

    def size(self, rng: random.Random, sizes: list[int]) -> int:
        """One of the sizes that the file had, from the last sync's to the newest."""
        if self.sizes == "new":
            return sizes[-1]
        if self.sizes == "old":
            return sizes[0]
        return rng.choice(sizes)

    def keeps_name(self, rng: random.Random, chance: float) -> bool:
        """Whether one name change is kept; `chance` was drawn once for this crash."""
        if self.names == "new":
            return True
        if self.names == "old":
            return False
        return rng.random() < chance


KEEP_ALL = Loss(sectors="new", sizes="new", names="new", alive=True)  # the process died, the machine did not
ALL_WRITTEN = Loss(sectors="new", sizes="new", names="new")  # it died too, and had written everything by then
LOSE_ALL = Loss(sectors="old", sizes="old", names="old")
NAMES_ONLY = Loss(sectors="old", sizes="old", names="new")  # names durable, content not
SIZES_ONLY = Loss(sectors="old", sizes="new", names="new")  # length durable, data not: a tail of zeros
DATA_ONLY = Loss(sectors="new", sizes="new", names="old")
ZEROED = Loss(sectors="zero", sizes="new", names="new")
NOISED = Loss(sectors="noise", sizes="new", names="new")


def mixed(seed: int, *, atomic: bool = False) -> Loss:
    """Any state that the fault model allows, drawn by `seed`."""
    return Loss(seed=seed, atomic=atomic)
