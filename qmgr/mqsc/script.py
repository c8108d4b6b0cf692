"""Definitions as commands: the MQSC that defines objects and rights again, as dmpmqcfg writes it. Runs none of it.

What an object has comes from the tables of the grammar, which read it back. Attributes without effect are no part of
what is defined, and are not written. What MQSC has no words for is told in a comment in front of the command.
"""

import shlex
from collections.abc import Collection, Iterator
from typing import Any

import attrs

from qmgr.authority import QMGR, RIGHTS_ON, Grant, shown
from qmgr.mqsc import grammar
from qmgr.mqsc.grammar import Attribute
from qmgr.mqsc.values import Name, Tenths, Text, WholeOr
from qmgr.objects import ALIAS_ATTRIBUTES, ATTRIBUTES, AliasDefinition, QmgrDefinition, QueueDefinition

Definition = QueueDefinition | AliasDefinition | QmgrDefinition


@attrs.frozen(kw_only=True)
class Command:
    """One command: the words that begin it, its parameters, and what it can't say."""

    begin: str
    parameters: tuple[str, ...]
    note: str = ""

    def lines(self, *, one_line: bool = False) -> Iterator[str]:
        """A line for each parameter, or one for all of them; none comes near the 2048 characters that a line may have.

        No line begins with a parameter that could be taken for a comment, nor ends with a + that is not meant.
        """
        if self.note:
            yield comment(self.note)
        if one_line:
            yield " ".join([self.begin, *self.parameters])
        else:
            yield from " +\n   ".join([self.begin, *self.parameters]).split("\n")


def comment(text: str) -> str:
    """A line that runmqsc passes over, whatever is in the text."""
    return "* " + "".join(char if char.isprintable() else "?" for char in text)


def quoted(text: str) -> str:
    """As it stands in a command: else it would be folded to upper case."""
    return "'" + text.replace("'", "''") + "'"


# ---- objects


def queue_manager(definition: QmgrDefinition, *, everything: bool = False) -> Command:
    """`everything`: also what is as in a queue manager that was just created."""
    defaults = attrs.asdict(QmgrDefinition(), recurse=False)
    return _command("ALTER QMGR", grammar.QMGR, definition, defaults, everything, last="FORCE")


def queue(definition: QueueDefinition, *, everything: bool = False) -> Command:
    begin = f"DEFINE QLOCAL({quoted(definition.name)})"
    return _command(begin, grammar.QLOCAL, definition, grammar.defaults(grammar.QLOCAL), everything, known=ATTRIBUTES)


def alias(definition: AliasDefinition, *, everything: bool = False) -> Command:
    begin = f"DEFINE QALIAS({quoted(definition.name)})"
    return _command(
        begin, grammar.QALIAS, definition, grammar.defaults(grammar.QALIAS), everything, known=ALIAS_ATTRIBUTES
    )


def _command(
    begin: str,
    table: grammar.Table,
    definition: Definition,
    defaults: dict[str, Any],
    everything: bool,
    *,
    known: Collection[str] = (),
    last: str = "REPLACE",
) -> Command:
    """`known`: the attributes of such an object, those too that MQSC has no words for."""
    rows = {row.python: row for row in table.values() if row.python}
    words = []
    unsaid = [name for name in known if name not in rows and getattr(definition, name) is not None]
    for name, row in rows.items():
        value = getattr(definition, name)
        if value == defaults[name] and not (everything and _has_words(row, value)):
            continue
        text, exact = _text(row, value)
        words += [f"{row.word}({text})"] if text else []
        unsaid += [] if exact else [name]
    told = ", ".join(f"{name}={getattr(definition, name)!r}" for name in unsaid)
    note = f"MQSC can't say of what follows: {told}" if told else ""
    return Command(begin=begin, parameters=(*words, last), note=note)


def _has_words(row: Attribute, value: object) -> bool:
    """Has MQSC words for it? None has some where it stands for a word such as NOLIMIT; else it was never set."""
    return value is not None or isinstance(row.value, WholeOr | Tenths)


def _text(row: Attribute, value: Any) -> tuple[str, bool]:
    """What stands in the parentheses, "" where nothing can, and whether exactly the value is read from it."""
    text = row.value.show(value)
    try:
        exact = row.value.read(text) == value
    except ValueError:  # Python takes a larger one
        return "", False
    return (quoted(text) if isinstance(row.value, Text | Name) else text), exact


# ---- rights


def grant(one: Grant) -> Command:
    """What a user may do. IBM MQ names no profile for the queue manager either."""
    profile = [] if one.kind == QMGR else [f"PROFILE({quoted(one.profile)})"]
    rights = ",".join(_rights(one)).upper()
    words = (*profile, f"PRINCIPAL({quoted(one.user)})", f"OBJTYPE({one.kind.upper()})", f"AUTHADD({rights})")
    return Command(begin="SET AUTHREC", parameters=words)


def setmqaut(manager: str, one: Grant) -> str:
    """The same as a command for the shell."""
    where = [] if one.kind == QMGR else ["-n", one.profile]
    user = [f"-p{one.user}"] if one.user.startswith("-") else ["-p", one.user]  # else it would be an option
    rights = [f"+{right}" for right in _rights(one)]
    return shlex.join(["setmqaut", "-m", manager, "-t", one.kind, *where, *user, *rights])


def _rights(one: Grant) -> list[str]:
    """The words for them; what could be given once and means nothing on that kind of object is left out."""
    return shown(right for right in one.rights if right in RIGHTS_ON[one.kind]) or ["none"]
