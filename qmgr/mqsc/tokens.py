"""The tokenizer: the text of one command becomes words, quoted strings, parentheses and commas, each with its place.

    command    = parameter*  [ ";" ]               with blanks or commas between them
    parameter  = WORD [ "(" value* ")" ]           values likewise
    value      = WORD | QUOTED
    WORD       = characters other than blanks, ( ) , ' " and ;          folded to upper case by whoever reads it
    QUOTED     = ' characters '                    as they are; '' stands for one '

What is not so raises `SyntaxFault`, which says where and what was expected. No other exception leaves this module.
"""

import enum
import re

import attrs


class SyntaxFault(Exception):
    """The command can't be understood: `.offset` is where in its text, the sentence why."""

    def __init__(self, offset: int, why: str) -> None:
        super().__init__(why)
        self.offset = offset


class Kind(enum.Enum):
    WORD = "a word"
    QUOTED = "a quoted string"
    OPEN = "("
    CLOSE = ")"
    COMMA = ","


@attrs.frozen
class Token:
    kind: Kind
    text: str  # of a quoted string: what is between the quotes
    start: int
    end: int  # offset behind it

    @property
    def value(self) -> str:
        """What it stands for: words are folded to upper case."""
        return self.text.upper() if self.kind is Kind.WORD else self.text


@attrs.frozen
class Parameter:
    """A keyword with what stands in its parentheses; None where it has none."""

    word: Token
    values: tuple[Token, ...] | None
    end: int

    @property
    def name(self) -> str:
        return self.word.value


BLANKS = re.compile(r"\s*")
WORD = re.compile(r"[^\s(),'\";]+")
QUOTED = re.compile(r"'((?:[^']|'')*)'")
NO_TEXT = re.compile("[\udc80-\udcff]")  # a byte that is no UTF-8, as it comes from a file or from standard input
SIGNS = {"(": Kind.OPEN, ")": Kind.CLOSE, ",": Kind.COMMA}


def tokenize(text: str) -> list[Token]:
    """The tokens of a command. Raises SyntaxFault."""
    if (byte := NO_TEXT.search(text)) is not None:
        raise SyntaxFault(byte.end(), f"byte 0x{ord(byte[0]) - 0xDC00:02x} is not UTF-8 text")
    tokens: list[Token] = []
    at = 0
    while True:
        at = _behind_blanks(text, at)
        if at == len(text):
            return tokens
        char = text[at]
        if char in SIGNS:
            tokens.append(Token(SIGNS[char], char, at, at + 1))
        elif char == "'":
            found = QUOTED.match(text, at)
            if found is None:
                raise SyntaxFault(len(text), "a quoted string has no end: ' is missing")
            tokens.append(Token(Kind.QUOTED, found[1].replace("''", "'"), at, found.end()))
        elif char == ";":
            if _behind_blanks(text, at + 1) != len(text):
                raise SyntaxFault(at + 1, "; ends the command, so nothing can follow it on the line")
            return tokens
        elif char == '"':
            raise SyntaxFault(at + 1, "strings stand in single quotes: '")
        else:
            word = WORD.match(text, at)
            assert word is not None, "every other character begins a word"
            if not word[0].isprintable():
                raise SyntaxFault(word.end(), f"{word[0]!r} has characters that can't be printed")
            tokens.append(Token(Kind.WORD, word[0], at, word.end()))
        at = tokens[-1].end


def _behind_blanks(text: str, at: int) -> int:
    found = BLANKS.match(text, at)
    return found.end() if found else at


def parameters(text: str) -> list[Parameter]:
    """The keywords of a command, with their values. Raises SyntaxFault."""
    tokens = tokenize(text)
    found: list[Parameter] = []
    at = 0
    while at < len(tokens):
        word = tokens[at]
        if word.kind is Kind.COMMA and found:
            at += 1
            continue
        if word.kind is not Kind.WORD:
            raise SyntaxFault(word.end, f"a keyword was expected, not {_said(word)}")
        at += 1
        values: tuple[Token, ...] | None = None
        end = word.end
        if at < len(tokens) and tokens[at].kind is Kind.OPEN:
            values, at = _values(tokens, at + 1, len(text))
            end = tokens[at - 1].end
        found.append(Parameter(word, values, end))
    return found


def _values(tokens: list[Token], at: int, length: int) -> tuple[tuple[Token, ...], int]:
    """The values from this token to the closing parenthesis, and the token behind that."""
    values: list[Token] = []
    comma: Token | None = None
    while at < len(tokens):
        token = tokens[at]
        at += 1
        if token.kind is Kind.CLOSE:
            if comma is not None:
                raise SyntaxFault(token.end, "a value was expected after the comma")
            return tuple(values), at
        if token.kind is Kind.OPEN:
            raise SyntaxFault(token.end, "( can't stand between parentheses; put a value that has one in quotes")
        if token.kind is Kind.COMMA:
            if comma is not None or not values:
                raise SyntaxFault(token.end, "a value was expected before the comma")
            comma = token
        else:
            values.append(token)
            comma = None
    raise SyntaxFault(length, ") is missing")


def _said(token: Token) -> str:
    return f"'{token.text}'" if token.kind is Kind.QUOTED else token.text
