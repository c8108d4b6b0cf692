"""WHERE(attribute operator value): which of the objects that a DISPLAY finds are shown.

Values are compared as they are shown: numbers as numbers, else as text. LK and NL take a value with * at its end.
A number and what is none, such as NOLIMIT or what is not known and therefore blank, differ, and neither is more.
"""

from collections.abc import Callable, Mapping

import attrs

from qmgr.mqsc.values import order

COMPARE: Mapping[str, Callable[[str, str], bool]] = {
    "LT": lambda shown, value: alike(shown, value) and order(shown) < order(value),
    "GT": lambda shown, value: alike(shown, value) and order(shown) > order(value),
    "EQ": lambda shown, value: order(shown) == order(value),
    "NE": lambda shown, value: order(shown) != order(value),
    "LE": lambda shown, value: alike(shown, value) and order(shown) <= order(value),
    "GE": lambda shown, value: alike(shown, value) and order(shown) >= order(value),
    "LK": lambda shown, value: fits(shown, value),
    "NL": lambda shown, value: not fits(shown, value),
}


def alike(shown: str, value: str) -> bool:
    """Are both numbers, or neither?"""
    return order(shown)[0] == order(value)[0]


def fits(name: str, generic: str) -> bool:
    """Is that the name, or does it begin as one says that ends with *?"""
    if generic.endswith("*"):
        return name.startswith(generic[:-1])
    return name.strip() == generic.strip()


@attrs.frozen
class Condition:
    """What a WHERE says."""

    attribute: str
    operator: str
    value: str

    def holds(self, shown: Mapping[str, str]) -> bool:
        return COMPARE[self.operator](shown[self.attribute], self.value)
