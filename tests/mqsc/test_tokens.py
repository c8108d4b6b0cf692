"""The tokenizer and what stands on it: whatever is typed becomes a statement, or a syntax error that says where."""

import string

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from qmgr import mqsc
from qmgr.mqsc import grammar
from qmgr.mqsc.source import MAX_COMMAND_CHARS, MAX_LINE_CHARS, Command, commands
from qmgr.mqsc.syntax import parse
from qmgr.mqsc.tokens import Kind, SyntaxFault, parameters, tokenize
from tests.qmgr.world import World

SIGNS = "()',;\"*+- \n\t\x00\x1c\ud800é" + string.ascii_letters[:5] + "01"
KEYWORDS = sorted({*grammar.VERBS, *grammar.OBJECTS, *grammar.QLOCAL, *grammar.QMGR, "WHERE", "ALL", "LIKE", "TYPE"})
PIECES = st.sampled_from([*KEYWORDS, *"()',;*+-", "(A)", "(*)", "('x')", "EQ", "LK", "\n", " ", "(5)", "(YES)"])
anything = st.one_of(st.text(), st.text(SIGNS), st.lists(PIECES).map(" ".join), st.lists(PIECES).map("".join))


@given(anything)
@example("define qlocal(a) descr('x")
@example("+\n-\n*\n+")
@example("dis ql(*) where(descr eq \ud800)")
def test_any_text_becomes_a_result_or_a_syntax_error_with_its_place(text: str) -> None:
    lines = text.split("\n")
    for command in commands(text):
        try:
            parse(command)
        except SyntaxFault as fault:
            assert 0 <= fault.offset <= len(command.text)
            line, column = command.place(fault.offset)
            assert 1 <= line <= len(lines)
            assert 1 <= column <= len(lines[line - 1]) + 1
    result = mqsc.check(text)
    assert result.code == (10 if result.errors else 0)
    assert result.text.count("AMQ8405I") == result.errors <= result.commands


@given(anything)
def test_the_tokens_are_the_text(text: str) -> None:
    try:
        tokens = tokenize(text)
    except SyntaxFault:
        return
    ends = [0, *(token.end for token in tokens)]
    for token, before in zip(tokens, ends, strict=False):
        assert text[before : token.start].strip() == ""
        said = text[token.start : token.end]
        assert said == (f"'{token.text.replace(chr(39), chr(39) * 2)}'" if token.kind is Kind.QUOTED else token.text)
    assert text[ends[-1] :].strip().strip(";").strip() == ""


@given(st.text(st.characters(categories=["L", "N", "P", "S", "Zs"]), max_size=64))
def test_a_quoted_string_is_taken_as_it_is(text: str) -> None:
    if not text.isprintable():
        return
    value = text.replace("'", "''")
    [keyword] = parameters(f"DESCR('{value}')")
    assert keyword.values is not None
    assert [token.value for token in keyword.values] == [text]
    statement = parse(Command(f"def ql(A) descr('{value}')", ((0, 1, 1),)))
    assert statement.settings == {"DESCR": text.rstrip()}


@pytest.mark.parametrize(
    ("text", "line", "column"),
    [
        ("ping qmgr all", 1, 13),
        ("  ping +\n    qmgr +\n all", 3, 4),
        ("ping -\nqmgr -\n  all", 3, 5),
        ("* a comment\n\nping qmgr\nping qmgr (", 4, 11),
        ("def ql(A) descr('a+\n   b) put(maybe)", 2, 16),
    ],
)
def test_the_place_is_that_in_the_lines_as_they_were_typed(text: str, line: int, column: int) -> None:
    result = mqsc.check(text)
    assert result.errors == 1
    assert f"line {line}, column {column}: " in result.text


@pytest.mark.parametrize(
    "text", ["PING QMGR\nDIS +", "PING QMGR\nDIS +\n", "PING QMGR\nDIS +\n\n* a comment\n", "PING QMGR\nDIS -\n\n"]
)
def test_a_command_without_its_rest_names_the_line_that_says_it_goes_on(text: str) -> None:
    *_, command = commands(text)
    assert command.fault.startswith("line 2 says that the command goes on")


def test_lines_and_commands_have_a_length() -> None:
    blanks = " " * MAX_LINE_CHARS
    assert f"line 2 is longer than {MAX_LINE_CHARS}" in mqsc.check(f"ping +\n qmgr{blanks}x").text
    many = "ping qmgr +\n" + "x +\n" * (MAX_COMMAND_CHARS // 2) + "x"
    assert "the command is longer than" in mqsc.check(many).text


def test_end_ends_the_text_and_an_error_does_not() -> None:
    qm = World().qm
    result = qm.mqsc("def ql(A)\nnonsense\ndef ql(A)\ndef ql(B)\nend\ndef ql(C)")
    assert (result.commands, result.errors, result.failures, result.code) == (4, 1, 1, 10)
    assert [queue.name for queue in qm.queues() if not queue.name.startswith("SYSTEM.")] == ["A", "B"]
    done = qm.mqsc("ping qmgr")
    assert (done.text, done.code) == ("AMQ8415I: Ping Queue Manager command complete.\n", 0)


def test_a_queue_manager_that_has_ended_answers_that_it_has() -> None:
    world = World(log_type="linear")
    world.qm.end()
    commands = [
        *("def ql(A)", "def qa(B) target(A)", "alt ql(A) descr(x)", "alt qa(A) descr(x)", "alt qmgr descr(x)"),
        *("alt qmgr trigint(5)", "delete ql(A)", "delete qa(A)", "clear ql(A)", "dis q(*)", "dis ql(*)", "dis qa(*)"),
        *("dis qs(*)", "dis qs(*) type(handle)", "dis qmgr", "dis qmstatus", "dis conn(*)", "ping qmgr"),
        *("reset qmgr type(advancelog)", "reset qmgr type(reducelog)", "reset qmgr type(archlog) archived(S)"),
        *("set log archived(S)", "dis authrec", "set authrec objtype(qmgr) principal(A) authadd(connect)"),
        *("delete authrec objtype(qmgr) principal(A)", "dis qremote(*)", "dis qmodel(*)", "dis qcluster(*)"),
    ]
    result = world.qm.mqsc("\n".join(commands))
    assert result.failures == len(commands) >= len(grammar.COMMANDS)
    assert set(result.text.splitlines()) == {
        "AMQ8146E: Queue manager not available: queue manager 'QM1' has ended (2162 MQRC_Q_MGR_STOPPING)"
    }


@given(st.lists(PIECES, max_size=8).map(" ".join))
def test_a_queue_manager_answers_whatever_it_is_told(words: str) -> None:
    result = QM.mqsc(words)
    assert result.commands >= result.errors + result.failures
    assert "AMQ8101E: internal" not in result.text


QM = World().qm
