"""Reading a log past old damage: what a restart needs is never passed over."""

from types import SimpleNamespace
from typing import Any

import pytest

from logger.errors import LogDamaged
from qmgr.survey import past_damage

SIZE = 1000  # bytes of an extent


@pytest.mark.parametrize(("head", "begins"), [(4 * SIZE, 4 * SIZE), (4 * SIZE - 1, None), (9 * SIZE, 4 * SIZE)])
def test_damage_is_passed_over_in_extents_before_the_one_of_the_head_alone(head: int, begins: int | None) -> None:
    reader: Any = SimpleNamespace(end=0)
    looked = []

    def look(start: int) -> str:
        looked.append(start)
        if start < 4 * SIZE:
            reader.end = 3 * SIZE + 17
            raise LogDamaged("extent 3 is damaged")
        return "what is there"

    if begins is None:
        with pytest.raises(LogDamaged, match="extent 3"):
            past_damage(look, SIZE, reader, extent_bytes=SIZE, head=head)
        assert looked == [SIZE]
    else:
        found, start, damage = past_damage(look, SIZE, reader, extent_bytes=SIZE, head=head)
        assert (found, start, str(damage)) == ("what is there", begins, "extent 3 is damaged")
