"""WHERE(attribute operator value): which of the objects that a DISPLAY finds are shown.

Values are compared as they are shown: numbers as numbers, else as text. LK and NL take a value with * at its end.
A number and a value that is none (NOLIMIT, or the blank of what is not known) differ, and neither is the greater one.
Of an attribute whose values are any text, digits are text too: a description of 007 is not one of 7.
"""

from collections.abc import Callable, Mapping

import attrs

from qmgr.mqsc.values import order, text_order

Key = Callable[[str], tuple[int, int, str]]

COMPARE: Mapping[str, Callable[[str, str, Key], bool]] = {
    "LT": lambda shown, value, key: alike(shown, value, key) and key(shown) < key(value),
    "GT": lambda shown, value, key: alike(shown, value, key) and key(shown) > key(value),
    "EQ": lambda shown, value, key: key(shown) == key(value),
    "NE": lambda shown, value, key: key(shown) != key(value),
    "LE": lambda shown, value, key: alike(shown, value, key) and key(shown) <= key(value),
    "GE": lambda shown, value, key: alike(shown, value, key) and key(shown) >= key(value),
    "LK": lambda shown, value, key: fits(shown, value),
    "NL": lambda shown, value, key: not fits(shown, value),
}


def alike(shown: str, value: str, key: Key) -> bool:
    """Are both numbers, or neither?"""
    return key(shown)[0] == key(value)[0]


def fits(name: str, generic: str) -> bool:
    """Is the name `generic` or, where that ends with *, does it begin with what stands before the *?"""
    if generic.endswith("*"):
        return name.startswith(generic[:-1])
    return name.strip() == generic.strip()


@attrs.frozen
class Condition:
    """What a WHERE says."""

    attribute: str
    operator: str
    value: str
    text: bool = False  # are digits of this attribute text?

    def holds(self, shown: Mapping[str, str]) -> bool:
        return COMPARE[self.operator](shown[self.attribute], self.value, text_order if self.text else order)
