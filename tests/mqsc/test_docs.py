"""docs/mqsc.md speaks of every attribute, command and option that there is."""

import re
from pathlib import Path

from qmgr.cli import runmqsc
from qmgr.mqsc import grammar
from qmgr.objects import ALIAS_ATTRIBUTES, ATTRIBUTES, QMGR_ATTRIBUTES

TEXT = (Path(__file__).parents[2] / "docs" / "mqsc.md").read_text()


def test_every_word_of_the_language_is_in_its_description() -> None:
    words = set(re.findall(r"[A-Z0-9]+", TEXT))
    for table in (grammar.QLOCAL, grammar.QALIAS, grammar.QMGR):
        assert set(table) <= words
    for row in grammar.COMMANDS.values():
        assert {row.verb, row.object, *row.options} <= words, row.words
    assert set(grammar.SYNONYMS) <= words


def test_every_attribute_that_has_an_effect_is_named_as_python_names_it() -> None:
    for table in (grammar.QLOCAL, grammar.QALIAS):
        for row in table.values():
            assert not row.python or f"`{row.python}`" in TEXT, row.word


def test_every_option_is_described() -> None:
    for option in re.findall(r"^  (-\w)", runmqsc.COMMAND.parser().format_help(), re.MULTILINE):
        assert f"`{option}" in TEXT, option


def test_every_attribute_that_python_has_can_be_set() -> None:
    """But for those that IBM MQ has no name for, or another command."""
    for table, known, ours in (
        (grammar.QLOCAL, ATTRIBUTES, {"buffer_size"}),
        (grammar.QALIAS, ALIAS_ATTRIBUTES, set[str]()),
        (grammar.QMGR, QMGR_ATTRIBUTES, {"authorities"}),
    ):
        assert {row.python for row in table.values() if row.python} == known - ours
