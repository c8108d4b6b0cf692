"""A command's words become a statement, checked against the tables of the grammar. Touches no queue manager."""

import difflib
from collections.abc import Mapping
from typing import Any

import attrs

from qmgr.mqsc import grammar
from qmgr.mqsc.grammar import COMMANDS, Naming, Row
from qmgr.mqsc.source import MAX_LINE_CHARS, Command
from qmgr.mqsc.tokens import Kind, Parameter, SyntaxFault, Token, parameters
from qmgr.mqsc.values import Name, Value, Words, either
from qmgr.mqsc.where import COMPARE, Condition

SIMILARITY = 0.7  # of two words; what is less like is another attribute
MAX_LISTED_WORDS = 24
MAX_COMPARED_CHARS = 40  # of a word, with words that are known


@attrs.frozen(kw_only=True)
class Statement:
    """What a command asks for."""

    row: Row
    name: str = ""
    settings: Mapping[str, Any] = attrs.Factory(dict)  # by MQSC name, the values as Python has them
    options: Mapping[str, Any] = attrs.Factory(dict)  # True where the keyword has no value
    asked: tuple[str, ...] = ()  # attributes that are to be displayed
    everything: bool = False  # ALL
    where: Condition | None = None


def parse(command: Command) -> Statement:
    """What the command asks for. Raises SyntaxFault."""
    if command.fault:
        raise SyntaxFault(len(command.text) if len(command.text) <= MAX_LINE_CHARS else 0, command.fault)
    words = parameters(command.text)
    if not words:
        raise SyntaxFault(len(command.text), "a command was expected")
    row = _row(words, len(command.text))
    statement = _Statement(row)
    statement.take_name(words[1])
    for word in words[2:]:
        statement.take(word)
    return statement.checked(len(command.text))


def _row(words: list[Parameter], length: int) -> Row:
    first = words[0]
    verb = next((verb for verb in grammar.VERBS if _abbreviates(first.name, verb)), None)
    if verb is None:
        there = any(_abbreviates(first.name, other) for other in grammar.VERBS_OF_IBM_MQ)
        what = f"{first.name} exists in IBM MQ and not here" if there else f"there is no command {first.name}"
        raise SyntaxFault(first.word.end, f"{what}; there are {', '.join(grammar.VERBS)}")
    if first.values is not None:
        raise SyntaxFault(first.end, f"{verb} has no parentheses; the object it acts on comes next")
    if len(words) == 1:
        raise SyntaxFault(length, f"{verb} what? {either(_objects(verb))}")
    name = grammar.OBJECTS.get(words[1].name, words[1].name)
    row = COMMANDS.get((verb, name))
    if row is None:
        what = "exists in IBM MQ and not here" if name in grammar.OF_IBM_MQ else f"is nothing for {verb}"
        raise SyntaxFault(words[1].word.end, f"{name} {what}; {verb} acts on {either(_objects(verb))}")
    return row


def _abbreviates(word: str, verb: str) -> bool:
    return verb.startswith(word) and (len(word) >= grammar.MIN_VERB_CHARS or word == verb)


def _objects(verb: str) -> list[str]:
    return [name for each, name in COMMANDS if each == verb and name not in grammar.OF_IBM_MQ]


class _Statement:
    """A statement in the making."""

    def __init__(self, row: Row) -> None:
        self.row = row
        self.name = ""
        self.settings: dict[str, Any] = {}
        self.options: dict[str, Any] = {}
        self.asked: list[str] = []
        self.everything = False
        self.where: Condition | None = None

    def take_name(self, word: Parameter) -> None:
        naming = self.row.naming
        if naming is Naming.ALL:
            if word.values is not None and _one(word).value != "*":
                raise SyntaxFault(word.end, f"{self.row.object} has nothing but * in parentheses here")
            return
        if naming is Naming.NOTHING:
            if word.values is not None:
                raise SyntaxFault(word.end, f"{self.row.object} has no name in parentheses here")
            return
        if word.values is None:
            raise SyntaxFault(word.end, f"{self.row.object} needs {naming.value} in parentheses")
        token = _one(word)
        name = token.value.strip()
        try:
            if not (naming is Naming.GENERIC and name.endswith("*")):
                self.name = Name(blank=False).read(name)
            elif name != "*":
                self.name = Name(blank=False).read(name[:-1]) + "*"
            else:
                self.name = name
        except ValueError as exc:
            raise SyntaxFault(token.end, f"{token.text!r} can't be a name; allowed: {exc}") from None

    def take(self, word: Parameter) -> None:
        row, name = self.row, grammar.SYNONYMS.get(word.name, word.name)
        opposites = {each.opposite: each for each in row.settings.values() if each.opposite}
        if name in row.settings and not row.settings[name].opposite:
            self._once(word, name)
            self.settings[name] = _read(word, row.settings[name].value)
        elif name in opposites or name in row.settings:
            switch = opposites.get(name) or row.settings[name]
            self._once(word, switch.word)
            _alone(word)
            self.settings[switch.word] = name == switch.word
        elif name in row.options and not (word.values is None and name in row.shows):
            self._once(word, name)
            value = row.options[name]
            if value is None:
                _alone(word)
            self.options[name] = True if value is None else _read(word, value)
        elif row.shows and name == "WHERE":
            self._once(word, name)
            self.where = self._condition(word)
        elif row.shows and name == "ALL":
            _alone(word)
            self.everything = True
        elif name in row.shows:
            _alone(word)
            if name not in self.asked:
                self.asked.append(name)
        else:
            raise SyntaxFault(word.end, f"{row.words} has no {name}; {self._instead(name)}")

    def _instead(self, name: str) -> str:
        """What may have been meant, or what there is."""
        row = self.row
        known = list(dict.fromkeys([*row.options, *(["ALL", "WHERE"] if row.shows else []), *row.settings, *row.shows]))
        near = difflib.get_close_matches(
            name[:MAX_COMPARED_CHARS], [word for word in known if word != name], cutoff=SIMILARITY
        )
        if near:
            return f"did you mean {either(near)}?"
        more = f" and {len(known) - MAX_LISTED_WORDS} more" if len(known) > MAX_LISTED_WORDS else ""
        return f"it has {', '.join(known[:MAX_LISTED_WORDS])}{more}" if known else "it has no keywords"

    def _once(self, word: Parameter, name: str) -> None:
        if name in self.settings or name in self.options or (name == "WHERE" and self.where is not None):
            raise SyntaxFault(word.end, f"{name} was said before")

    def _condition(self, word: Parameter) -> Condition:
        if word.values is None or len(word.values) != 3:
            raise SyntaxFault(word.end, f"WHERE needs an attribute, {either(list(COMPARE))}, and a value")
        attribute, operator, value = word.values
        name = grammar.SYNONYMS.get(attribute.value, attribute.value)
        if name not in self.row.shows:
            raise SyntaxFault(attribute.end, f"{self.row.words} has no {name}; {self._instead(name)}")
        if operator.value not in COMPARE or operator.kind is not Kind.WORD:
            raise SyntaxFault(operator.end, f"{operator.value} compares nothing; use {either(list(COMPARE))}")
        kind = grammar.compared(self.row.object, name)
        if kind is not None and value.value.strip() and operator.value not in ("LK", "NL"):
            try:
                kind.read(value.value)
            except ValueError as exc:
                raise SyntaxFault(value.end, f"{name} is {exc}, not {value.value}") from None
        text = grammar.is_text(self.row.object, name)
        return Condition(name, operator.value, value.value, text)

    def checked(self, end: int) -> Statement:
        """The whole of it. Raises SyntaxFault for what does not go together, or is missing."""
        options, row = self.options, self.row
        for one, other in (("REPLACE", "NOREPLACE"), ("PURGE", "NOPURGE")):
            if one in options and other in options:
                raise SyntaxFault(end, f"{one} and {other} exclude each other")
        for word in row.needs:
            if word not in options:
                raise SyntaxFault(end, f"{row.words} needs {word}")
        if row.words == "RESET QMGR":
            self._check_reset(end)
        return Statement(
            row=row,
            name=self.name,
            settings=self.settings,
            options=options,
            asked=tuple(self.asked),
            everything=self.everything,
            where=self.where,
        )

    def _check_reset(self, end: int) -> None:
        options = self.options
        if ("ARCHIVED" in options) != (options["TYPE"] == "ARCHLOG"):
            raise SyntaxFault(end, "ARCHIVED(extent) goes with TYPE(ARCHLOG), and TYPE(ARCHLOG) with it")
        if "REDUCE" in options and options["TYPE"] != "REDUCELOG":
            raise SyntaxFault(end, "REDUCE goes with TYPE(REDUCELOG)")


def _one(word: Parameter) -> Token:
    """The only value of a keyword."""
    if word.values is None:
        raise SyntaxFault(word.end, f"{word.name} needs a value in parentheses")
    if not word.values:
        raise SyntaxFault(word.end, f"{word.name} has no value in its parentheses; ' ' is blank")
    if len(word.values) > 1:
        raise SyntaxFault(word.values[1].end, f"{word.name} has one value; put it in quotes if it has blanks")
    return word.values[0]


def _alone(word: Parameter) -> None:
    if word.values is not None:
        raise SyntaxFault(word.end, f"{word.name} has no value here")


def _read(word: Parameter, value: Value) -> Any:
    several = isinstance(value, Words) and word.values
    read = []
    try:
        for token in word.values or () if several else [_one(word)]:
            read.append(value.read(token.value))
        return tuple(each for some in read for each in some) if several else read[0]
    except ValueError as exc:
        raise SyntaxFault(token.end, f"{word.name} is {token.text!r}; allowed: {exc}") from None
