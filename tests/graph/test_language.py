"""The text: what is understood, and what is said about what is not."""

from __future__ import annotations

import pytest

from ackwise.graph import ast as s
from ackwise.graph.language import parse
from ackwise.graph.language.durations import milliseconds
from tests.mew.prompt import Prompt


def one(text: str) -> s.Statement:
    parsed = parse(text)
    assert parsed.error is None, parsed.error
    (statement,) = parsed.statements
    return statement


def test_keywords_are_case_insensitive_and_names_are_not() -> None:
    spawn = one("spawn A: Job { Title = TRUE }")
    assert isinstance(spawn, s.Spawn)
    assert (spawn.items[0].name, spawn.items[0].values) == ("A", (("Title", s.Literal("bool", True)),))


WORDS = "group mode filter status tick order type watch ack nack pause resume cancel alter limit match set node"


@pytest.mark.parametrize("word", WORDS.split())
def test_words_of_the_language_may_name_attributes(word: str) -> None:
    node = one(f"node T {{ a: Int = 1 {word}: Int }}")
    assert isinstance(node, s.OntologyDecl)
    one(f"SPAWN x: T {{ {word} = 1 }}")
    one(f"SET #x.{word} = 2")
    one(f"MATCH t: T WHERE t.{word} = 1 and t.{word} < 3 RETURN t.{word} AS x ORDER BY t.{word} DESC LIMIT 1")
    one(f"WATCH t: T WHERE t.{word} = 1 [filter: t.{word} > 0] RETURN t.{word}")


@pytest.mark.parametrize("word", [*WORDS.split(), "spawn", "begin", "commit", "ontology", "abstract", "w", "true"])
def test_words_of_the_language_may_name_watches_and_entities(word: str) -> None:
    parsed = parse(f"TICK {word} = WATCH t: T RETURN t {word}\n  =\twatch t: T RETURN t.n SPAWN {word}: T KILL #{word}")
    assert parsed.error is None
    _, first, second, _, _ = parsed.statements
    assert isinstance(first, s.Watch)
    assert isinstance(second, s.Watch)
    assert (first.name, second.name) == (word, word)
    for text in (f"LINK e(#{word}, {word})", f"PAUSE WATCH #{word}", f"MATCH {word}: T, e({word}, x) RETURN {word}"):
        if word not in ("true", "spawn"):
            one(text)


def test_comments_and_terminators() -> None:
    parsed = parse('-- a line\n--- a doc\n/* a\nblock */ TICK; TICK 3;; ACK "x" -- the end')
    assert [s.tag_of(statement) for statement in parsed.statements] == ["Tick", "Tick", "Settle"]


def test_strings_have_escapes() -> None:
    settle = one(r'ACK "a\"b\\c\/d\n\u00e9"')
    assert isinstance(settle, s.SettleStatement)
    assert settle.delivery == s.Literal("string", 'a"b\\c/d\n\u00e9')


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("250ms", 250), ("30s", 30_000), ("5m", 300_000), ("2h", 7_200_000), ("1d", 86_400_000), ("1.5s", 1500),
        ("30.seconds", 30_000), ("1.second", 1000), ("500.ms", 500), ("500.milliseconds", 500), ("5.min", 300_000),
        ("5.minutes", 300_000), ("2.h", 7_200_000), ("2.hours", 7_200_000), ("1.day", 86_400_000),
        ("2.weeks", 1_209_600_000),
    ],
)  # fmt: skip
def test_duration_is_parsed_in_each_spelling(text: str, wanted: int) -> None:
    assert milliseconds(text) == wanted
    watch = one(f"WATCH j: Job [mode: consume, ack_timeout: {text}] RETURN j")
    assert isinstance(watch, s.Watch)
    assert watch.options[1].value == s.Literal("duration", wanted, text)


def test_timestamp_is_milliseconds() -> None:
    match = one("MATCH j: Job WHERE j.at > @2024-01-15T10:30:00Z and j.at < @2024-01-16 RETURN j")
    assert isinstance(match, s.Match)
    assert "1705314600000" in repr(match.where)


def test_every_modifier_spelling_of_a_node() -> None:
    for text in ("abstract sealed node A {}", "[abstract, sealed] node A {}", "node A [abstract, sealed] {}"):
        declared = one(text)
        assert isinstance(declared, s.OntologyDecl)
        assert declared.declarations[0] == s.NodeDecl("A", (), (), ("abstract", "sealed"), (1, 1))


def test_mutation_after_match_belongs_to_it() -> None:
    parsed = parse("MATCH j: Job SET j.size = 2 LINK done(j, #q) ; SPAWN x: Job")
    match = parsed.statements[0]
    assert isinstance(match, s.Match)
    assert [type(mutation).__name__ for mutation in match.mutations] == ["Set", "Link"]
    assert isinstance(parsed.statements[1], s.Spawn)


def test_options_follow_a_where_that_ends_in_a_call() -> None:
    watch = one('WATCH j: Job WHERE starts_with(j.title, "a") [mode: consume] RETURN j')
    assert isinstance(watch, s.Watch)
    assert [option.key for option in watch.options] == ["mode"]


@pytest.mark.parametrize(
    ("text", "at", "message", "hint"),
    [
        ("ACK $d [no_retry]", (1, 8), "unexpected '['", "[no_retry] belongs to NACK only"),
        ("NACK $d [no_retry] [no_retry]", (1, 20), "unexpected '['", "once"),
        ("NACK $d [retry]", (1, 10), "unexpected 'retry'", "NO_RETRY"),
        ("SPAWM a: Job", (1, 7), "unexpected 'a'", "did you mean SPAWN?"),
        ("WATCH j: Job", (1, 13), "the statement ends too early", "a WATCH ends with RETURN"),
        ("SPAWN a: Job {\n  x = 1 y = 2\n}", (2, 9), "unexpected 'y'", "',', '}'"),
        ('ACK "open', (1, 5), "unexpected '\"'", "a string"),
        ("SPAWN a: Job { x = 1, x = 2 }", (1, 14), "attribute 'x' is given twice", ""),
        ('ACK "\\q"', (1, 5), "escape", ""),
        ("TICK 99999999999999999999 MATCH", (1, 32), "the statement ends too early", "a name"),
        ("MATCH j: Job WHERE j.size = 99999999999999999999 RETURN j", (1, 29), "64 bits", ""),
        ("MATCH j: Job WHERE j.at = @2024-13-99 RETURN j", (1, 27), "not a moment", ""),
    ],
)
def test_errors_point_at_the_place(text: str, at: tuple[int, int], message: str, hint: str) -> None:
    error = parse(text).error
    assert error is not None
    assert (error.word, error.at) == ("parse_error", at)
    assert message in error.message
    assert hint in error.hint
    line = text.splitlines()[at[0] - 1]
    assert (error.details["source"], error.details["caret"]) == (line, " " * (at[1] - 1) + "^")


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("WALK FROM #a", "WALK"),
        ("OPTIONAL MATCH a: A RETURN a", "OPTIONAL MATCH"),
        ("EXPLAIN MATCH a: A RETURN a", "EXPLAIN"),
        ("PROFILE MATCH a: A RETURN a", "PROFILE"),
        ("SAVEPOINT x", "SAVEPOINT"),
        ("SNAPSHOT x", "versioning"),
        ("BRANCH x", "versioning"),
        ("MATCH a: A, e(a, b)+ RETURN a", "transitive"),
        ("MATCH a: A, e(a, b)* RETURN a", "transitive"),
        ("MATCH a: A, e(a, b) [depth: 3] RETURN a", "depth"),
        ("ON MATCH a: A DO SPAWN b: B", "trigger"),
    ],
)
def test_unsupported_statement_is_named_in_its_error(text: str, what: str) -> None:
    error = parse(text).error
    assert error is not None
    assert error.word == "not_supported"
    assert what in error.message


def test_statements_before_error_run_and_session_continues() -> None:
    text = "TICK 1;\nSPAWN a Job;\nTICK 2\n"
    parsed = parse(text)
    assert [type(statement).__name__ for statement in parsed.statements] == ["Tick"]
    rest = parse(text[parsed.resume :])
    assert [type(statement).__name__ for statement in rest.statements] == ["Tick"]


def test_rules_are_read_over_with_their_place() -> None:
    text = """node A { x: Int }
constraint positive: a: A => a.x > 0
rule double: a: A WHERE a.x = 1 =>
    SET a.x = 2
policy p {
  allow SPAWN
}
SPAWN a: A { x = 1 }
"""
    parsed = parse(text)
    assert [(skipped.word, skipped.name, skipped.at) for skipped in parsed.skipped] == [
        ("constraint", "positive", (2, 1)),
        ("rule", "double", (3, 1)),
        ("policy", "p", (5, 1)),
    ]
    assert [type(statement).__name__ for statement in parsed.statements] == ["OntologyDecl", "Spawn"]
    assert parsed.statements[1].at == (8, 1)


@pytest.mark.parametrize("count", [200, 400, 900, 5000])
def test_deep_expressions_are_an_error_not_a_crash(lite: Prompt, count: int) -> None:
    lite.ok("node A { n: Int = 1 }")
    for deep, said in (
        ("not " * count + "true", "nested too deeply"),
        ("a" + ".n" * count, "an expression is too deep"),
    ):
        lite.refused(f"MATCH a: A WHERE {deep} RETURN a", "statement_limit", said if count < 5000 else "")
    assert lite.rows("MATCH a: A WHERE " + " and ".join(["a.n = 1"] * 100) + " RETURN COUNT(a)") == [[0]]
    lite.ok("SPAWN a: A")
    assert lite.rows("MATCH a: A WHERE " + " and ".join(["a.n = 1"] * 100) + " RETURN COUNT(a)") == [[1]]
    lite.ok("edge e(a: A, b: A)")
    pattern = ", ".join(f"e(x{n}, x{n + 1})" for n in range(40))
    lite.refused(f"MATCH {pattern} RETURN x0", "constraint", "the pattern is too large")
    lite.refused(f"WATCH {pattern} [mode: consume] RETURN x0", "constraint", "the pattern is too large")


def test_long_texts_are_read() -> None:
    parsed = parse("TICK;\n" * 5_000)
    assert (len(parsed.statements), parsed.error) == (5_000, None)


def test_deep_nesting_is_an_error_not_a_crash() -> None:
    error = parse("MATCH a: A WHERE " + "(" * 5000 + "true" + ")" * 5000 + " RETURN a").error
    assert error is not None
    assert error.word == "statement_limit"
    error = parse("MATCH a: A WHERE " + "not " * 5000 + "true RETURN a").error
    assert error is not None
    assert error.word == "statement_limit"


def test_skipped_declarations_may_stand_anywhere_in_an_ontology() -> None:
    parsed = parse(
        "ontology o { node A {} rule r: x => y\n node B { rule: Int } policy p: all }; constraint c: z\nTICK"
    )
    assert parsed.error is None
    assert [(one.word, one.name) for one in parsed.skipped] == [("rule", "r"), ("policy", "p"), ("constraint", "c")]
    declared, tick = parsed.statements
    assert isinstance(declared, s.OntologyDecl)
    assert [one.name for one in declared.declarations] == ["A", "B"]
    assert isinstance(tick, s.Tick)
