"""Ontology, mutations and queries: what is made, and what is refused and changes nothing."""

from __future__ import annotations

from typing import Any

import pytest

from ackwise.broker import Broker
from ackwise.graph.commands import RunGraph
from ackwise.protocols.mew import session_transaction
from tests.mew.prompt import Prompt

SHOP = """
type Sku = String [length: 3..8, match: "^[A-Z]+[0-9]+$"]
ontology shop {
  abstract node Thing { name: String [required] }
  node Product: Thing { sku: Sku [unique], price: Float [>= 0], stock: Int [0..1000] = 0, made: Timestamp = now(),
    tag: String? [in: ["new", "old"]], serial: Int? [unique], code: String [readonly] = "c" }
  node Service: Thing { hours: Duration = 1.hour }
  node Shelf { name: String }
  edge on(thing: Thing, shelf: Shelf) [unique, thing -> 0..2] { row: Int = 1 }
  edge near(a: Shelf, b: Shelf) [symmetric, no_self]
  edge above(upper: Shelf, lower: Shelf) [acyclic]
  edge owns(shelf: Shelf, thing: Thing) [on_kill_source: cascade]
  edge keeps(shelf: Shelf, thing: Thing) [on_kill_target: prevent]
}
"""


@pytest.fixture
def shop(prompt: Prompt) -> Prompt:
    prompt.ok(SHOP)
    prompt.ok('SPAWN pen: Product { name = "pen", sku = "PEN1", price = 2 }, SPAWN top: Shelf { name = "top" }')
    return prompt


@pytest.fixture
def little_shop(lite: Prompt) -> Prompt:
    lite.ok(SHOP)
    lite.ok('SPAWN pen: Product { name = "pen", sku = "PEN1", price = 2 }, SPAWN top: Shelf { name = "top" }')
    return lite


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("SPAWN x: Nothing", "there is no node type 'Nothing'"),
        ('SPAWN x: Thing { name = "t" }', "'Thing' is abstract"),
        ('SPAWN x: Product { name = "x", sku = "X1", price = 1, colour = "red" }', "has no attribute 'colour'"),
        ('SPAWN x: Product { sku = "X1", price = 1 }', "required attribute 'name'"),
        ('SPAWN x: Product { name = null, sku = "X1", price = 1 }', "required attribute 'name' must not be null"),
        ('SPAWN x: Product { name = "x", sku = "ABC1", price = "1" }', "'price' is Float, not String"),
        ('SPAWN x: Product { name = 5, sku = "X1", price = 1 }', "'name' is String, not Int"),
        ('SPAWN x: Product { name = "x", sku = "ABC1", price = -1 }', "less than 0"),
        ('SPAWN x: Product { name = "x", sku = "ABC123", price = 1, stock = 1001 }', "not within 0..1000"),
        ('SPAWN x: Product { name = "x", sku = "ABC123", price = 1, stock = 1.5 }', "'stock' is Int, not Float"),
        ('SPAWN x: Product { name = "x", sku = "A1", price = 1 }', "its length 2 is not within 3..8"),
        ('SPAWN x: Product { name = "x", sku = "abc", price = 1 }', "does not match"),
        ('SPAWN x: Product { name = "x", sku = "ABC1", price = 1, tag = "odd" }', "not one of the allowed values"),
        ('SPAWN x: Product { name = "x", sku = "PEN1", price = 1 }', "duplicate value 'PEN1'"),
        ('SET #pen.code = "d"', "'code' is readonly"),
        ("SET #pen.price = null", "must not be null"),
        ("SET #nobody.price = 1", "there is nothing with the id '#nobody'"),
        ("LINK on(#pen, #pen)", "'on.shelf' is Shelf, not Product"),
        ("LINK on(#pen)", "has 2 ends, not 1"),
        ("LINK under(#pen, #top)", "there is no edge type 'under'"),
        ("LINK near(#top, #top)", "does not join an entity with itself"),
        ("UNLINK #pen", "is a node: KILL it"),
        ("KILL #nobody", "there is nothing with the id"),
        ("node Product { other: Int }", "declared already, and differently"),
        ("node Bad { a: Strin }", "there is no type 'Strin'"),
        ("node Bad { a: Int, a: Int }", "two attributes 'a'"),
        ("node Bad { a: Int? [required] }", "both nullable and required"),
        ("node Bad { a: Int [length: 1..2] }", "does not fit Int"),
        ("node Bad: Nothing {}", "there is no node type 'Nothing'"),
        ("node Int {}", "is a type of the language"),
        ("edge bad(a: Shelf, a: Shelf)", "two ends of one name"),
        ("edge bad(a: Shelf, b: Shelf) [sticky]", "no modifier 'sticky'"),
        ("edge bad(a: Shelf, b: Shelf) [c -> 1]", "no end 'c'"),
        ("MATCH p: Product WHERE p.colour = 1 RETURN p", "has no attribute 'colour'"),
        ("MATCH p: Product WHERE q.name = 1 RETURN p", "'q' is not known here"),
        ('MATCH p: Product WHERE p.price = "x" RETURN p', "cannot be compared with String"),
        ("MATCH p: Product WHERE p.name RETURN p", "a condition is true or false, not String"),
        ("MATCH p: Product RETURN nothing(p)", "there is no function 'nothing'"),
        ("MATCH p: Product RETURN p.price / 0", "division by zero"),
        ("MATCH p: Product WHERE COUNT(p) > 1 RETURN p", "is an aggregate"),
        ("MATCH p: Product RETURN p LIMIT $n", "whole number"),
        ("COMMIT", "there is no transaction"),
        ("ROLLBACK", "there is no transaction"),
        ("BEGIN BEGIN", "there is a transaction already"),
    ],
)
def test_refused_statement_changes_nothing(little_shop: Prompt, text: str, message: str) -> None:
    before = everything(little_shop)
    little_shop.refused(text, "constraint", message, n="ten")
    if text.startswith("BEGIN"):
        little_shop.ok("ROLLBACK")
    assert everything(little_shop) == before


def everything(prompt: Prompt) -> list[list[Any]]:
    return prompt.rows("MATCH x: any RETURN x")


def test_defaults_and_values(shop: Prompt) -> None:
    (row,) = shop.rows("MATCH p: Product RETURN p")
    assert {key: row[0][key] for key in ("name", "sku", "price", "stock", "tag", "code", "_type")} == {
        "name": "pen", "sku": "PEN1", "price": 2.0, "stock": 0, "tag": None, "code": "c", "_type": "Product",
    }  # fmt: skip
    assert row[0]["made"] == shop.clock.now() // 1000
    shop.ok('SPAWN help: Service { name = "help" }')
    assert shop.rows("MATCH s: Service RETURN s.hours, s.hours + 30.minutes > 1.hour") == [[3_600_000, True]]


def test_null_is_not_a_duplicate_and_unique_spans_subtypes(prompt: Prompt) -> None:
    prompt.ok("node A { code: String? [unique] } node B: A {}")
    prompt.ok('SPAWN a: A SPAWN b: A SPAWN c: B { code = "x" }')
    prompt.refused('SPAWN d: A { code = "x" }', "constraint", "duplicate value 'x'")
    prompt.refused('SET #a.code = "x"', "constraint", "duplicate value 'x'")
    prompt.ok('SET #c.code = "x"')
    long = "y" * 300
    prompt.ok(f'SET #a.code = "{long}" SET #b.code = "{long}z"')
    prompt.refused(f'SET #c.code = "{long}"', "constraint", "duplicate value")


def test_edges_keep_their_rules(shop: Prompt) -> None:
    shop.ok('SPAWN mid: Shelf { name = "mid" } SPAWN low: Shelf { name = "low" }')
    shop.ok("LINK on(#pen, #top) LINK on(#pen, #mid)")
    shop.refused("LINK on(#pen, #low)", "constraint", "cardinality")
    shop.ok("UNLINK on(#pen, #mid)")
    shop.refused("LINK on(#pen, #top)", "constraint", "unique")
    assert shop.ok("LINK IF NOT EXISTS on(#pen, #top)")["linked"] == 0
    shop.ok("LINK near(#top, #mid)")
    assert shop.rows("MATCH near(#mid, x) RETURN x.name") == [["top"]]
    shop.ok("LINK above(#top, #mid) LINK above(#mid, #low)")
    shop.refused("LINK above(#low, #top)", "constraint", "lead back")


def test_least_number_of_edges_is_looked_at_when_all_is_done(prompt: Prompt) -> None:
    prompt.ok("node A {} node B {} edge has(a: A, b: B) [a -> 1..2]")
    prompt.refused("SPAWN a: A", "constraint", "needs at least 1 'has' edge")
    prompt.ok("BEGIN SPAWN b: B COMMIT")
    prompt.ok("LINK has(SPAWN A AS a, #b)")
    prompt.refused("UNLINK has(#a, #b)", "constraint", "needs at least 1")
    prompt.ok("KILL #a")
    # Inside a transaction only the whole has to keep the rule.
    prompt.refused("BEGIN SPAWN c: A COMMIT", "constraint", "needs at least 1")


def test_kill_goes_along_edges(shop: Prompt) -> None:
    shop.ok('SPAWN box: Product { name = "box", sku = "BOX1", price = 1 } LINK owns(#top, #box) LINK on(#box, #top)')
    shop.ok("LINK keeps(#top, #pen)")
    shop.refused("KILL #pen", "E3302", "referenced by 'keeps' with prevent action")
    killed = shop.ok("KILL #top")
    assert (killed["deleted"], killed["unlinked"]) == (2, 3)
    assert shop.rows("MATCH p: Product RETURN p.name") == [["pen"]]
    shop.ok('SPAWN top: Shelf { name = "top" } LINK owns(#top, #pen)')
    assert shop.ok("KILL #top NO CASCADE")["deleted"] == 1
    assert shop.rows("MATCH p: Product RETURN p.name") == [["pen"]]


def test_match_with_mutations(shop: Prompt) -> None:
    shop.ok('SPAWN cup: Product { name = "cup", sku = "CUP1", price = 5, stock = 3 }')
    done = shop.ok("MATCH p: Product WHERE p.price < 10 SET p.stock = p.stock + 1 LINK on(p, #top) { row = p.stock }")
    assert (done["modified"], done["linked"]) == (2, 2)
    assert shop.rows("MATCH on(p, s) AS e RETURN p.name, e.row ORDER BY p.name") == [["cup", 4], ["pen", 1]]
    done = shop.ok('MATCH p: Product SPAWN s: Service { name = p.name ++ "!" }')
    assert done["created"] == 2
    shop.ok("MATCH p: Product, on(p, #top) AS e UNLINK e")
    assert shop.rows("MATCH on(p, s) RETURN p") == []
    assert shop.ok("MATCH t: Thing KILL t")["deleted"] == 4


def test_returning_and_chosen_targets(shop: Prompt) -> None:
    made = shop.ok('SPAWN cup: Product { name = "cup", sku = "CUP1", price = 5 } RETURNING id, name, CREATED AS new')
    assert (made["columns"], made["rows"][0][1:]) == (["id", "name", "new"], ["cup", True])
    shop.ok('SET { MATCH p: Product WHERE p.name = "cup" RETURN p } { stock = 7, price = 6.5 } RETURNING *')
    assert shop.rows("MATCH p: Product WHERE p.stock = 7 RETURN p.price") == [[6.5]]
    shop.ok('LINK e: on({ MATCH p: Product WHERE p.name = "cup" RETURN p }, #top) RETURNING row')
    shop.refused("LINK on({ MATCH p: Product RETURN p }, #top)", "constraint", "found 2 entities")
    assert shop.ok("INSPECT #e RETURN row, _type")["rows"] == [[1, "on"]]
    assert shop.ok("INSPECT #e")["columns"] == ["id", "_type", "_targets", "row"]


def test_query_sorts_limits_and_groups_rows(prompt: Prompt) -> None:
    prompt.ok("node N { k: String, n: Int?, f: Float = 0.5 }")
    prompt.ok(" ".join(f'SPAWN s{i}: N {{ k = "{k}", n = {n} }}' for i, (k, n) in enumerate(
        [("a", "3"), ("b", "1"), ("a", "null"), ("b", "2"), ("c", "-7")])))  # fmt: skip
    assert prompt.rows("MATCH x: N RETURN x.n ORDER BY x.n") == [[-7], [1], [2], [3], [None]]
    assert prompt.rows("MATCH x: N RETURN x.n ORDER BY x.n DESC LIMIT 2") == [[None], [3]]
    assert prompt.rows("MATCH x: N RETURN x.n ORDER BY x.n LIMIT 2 OFFSET 1") == [[1], [2]]
    assert prompt.rows("MATCH x: N RETURN DISTINCT x.k ORDER BY x.k DESC") == [["c"], ["b"], ["a"]]
    grouped = "MATCH x: N RETURN x.k AS k, COUNT(x) AS n, SUM(x.n) AS s, AVG(x.n), MIN(x.n), MAX(x.n) ORDER BY k"
    assert prompt.rows(grouped) == [["a", 2, 3, 3.0, 3, 3], ["b", 2, 3, 1.5, 1, 2], ["c", 1, -7, -7.0, -7, -7]]
    assert prompt.rows("MATCH x: N RETURN COUNT(*), COUNT(x.n), COUNT(distinct x.k), COUNT(x WHERE x.n > 1)") == [
        [5, 4, 3, 2]
    ]
    assert prompt.rows("MATCH x: N, y: N WHERE x.n = y.n + 1 and y.n is not null RETURN x.n, y.n ORDER BY x.n") == [
        [2, 1],
        [3, 2],
    ]
    assert prompt.rows("MATCH x: N WHERE x.n = null RETURN x.k") == [["a"]]
    assert prompt.rows("MATCH x: N WHERE x.n is null RETURN x.k") == [["a"]]
    assert prompt.rows("MATCH x: N WHERE x.n is not null and x.n in [1, 2] RETURN x.n") == [[1], [2]]
    assert prompt.rows("MATCH x: N WHERE x.n >= 2 and 3 > x.n RETURN x.n") == [[2]]
    assert prompt.rows("MATCH x: N WHERE x.n < 0 RETURN x.n / 2, x.n % 4, -x.n, x.n ?? 1, abs(x.n)") == [
        [-3, -3, 7, -7, 7]
    ]
    assert prompt.rows("MATCH x: N WHERE x.k = $k and x.f = 0.5 RETURN COUNT(x)", k="b") == [[2]]


def test_count_in_the_database_equals_the_matched_rows(prompt: Prompt) -> None:
    prompt.ok("node N { t: String, n: Int, b: Bool = true }")
    long = "x" * 200
    for number, text in enumerate(["a", "ab", long, long + "y", "a"]):
        prompt.ok("SPAWN s: N { t = $t, n = $n }", t=text, n=number)
    for where, wanted in (
        ('x.t = "a"', 2), (f'x.t = "{long}"', 1), ("x.n >= 3", 2), ("x.n > 3", 1), ("x.n <= 1", 2), ("x.n < 1", 1),
        ("x.b = true", 5), ('x.t = "a" and x.n = 4', 1), ('x.t = "a" or x.n = 1', 3), ("x.n = 2.0", 1),
        ("x.n = 2.5", 0), ("not x.b", 0), ('starts_with(x.t, "a")', 3),
    ):  # fmt: skip
        assert prompt.rows(f"MATCH x: N WHERE {where} RETURN COUNT(x)") == [[wanted]], where
        assert len(prompt.rows(f"MATCH x: N WHERE {where} RETURN x.n")) == wanted, where
        assert len(prompt.rows(f"MATCH x: N WHERE {where} RETURN x.n LIMIT 1")) == min(1, wanted), where
    assert prompt.rows("MATCH x: N, y: N RETURN COUNT(*) AS pairs") == [[25]]
    prompt.refused('MATCH x: N WHERE x.n = "a" RETURN COUNT(x)', "constraint", "cannot be compared")


def test_text_functions_return_their_values(lite: Prompt) -> None:
    lite.ok('node N { t: String } SPAWN a: N { t = "  Hello  " }')
    text = (
        'MATCH x: N RETURN trim(x.t), lower(trim(x.t)), upper(x.t), length(x.t), contains(x.t, "ell"), '
        'starts_with(x.t, " "), ends_with(x.t, "o"), substring(trim(x.t), 1, 3), replace(trim(x.t), "l", "L"), '
        'coalesce(null, "c"), type_of(x), type_of(1), min(2, 1), max(2, 1.5), round(1.6), floor(1.6), ceil(1.2)'
    )
    assert lite.rows(text) == [
        ["Hello", "hello", "  HELLO  ", 9, True, True, False, "ell", "HeLLo", "c", "N", "Int", 1, 2, 2, 1, 2]
    ]


def test_names_in_strings_are_never_code(prompt: Prompt) -> None:
    prompt.ok("node N { t: String }")
    nasty = "'; DROP TABLE mew_entity; -- \" \\ % :p %s \u2603"
    prompt.ok("SPAWN a: N { t = $t }", t=nasty)
    assert prompt.rows("MATCH x: N WHERE x.t = $t RETURN x.t", t=nasty) == [[nasty]]
    prompt.refused("SPAWN a: N { t = $t }", "constraint", "NUL", t="a\0b")
    prompt.refused("SPAWN a: N { t = $t }", "constraint", "Unicode", t="\ud800")
    prompt.refused("SPAWN a: N { t = $t }", "constraint", "not a value of the language", t={"a": 1})


def test_declaring_the_same_again_is_no_news(prompt: Prompt) -> None:
    prompt.ok("node N { t: String }")
    assert "declared" not in prompt.ok("node  N {\n  t: String\n}")


def test_rules_are_read_over_with_a_notice(prompt: Prompt) -> None:
    prompt.ok("node N { t: Int }\nconstraint c: n: N => n.t > 0\nSPAWN n: N { t = 0 }")
    assert [(n["code"], n["line"]) for n in prompt.notices] == [("not_supported", 2)]


def test_attribute_of_a_named_entity(prompt: Prompt) -> None:
    prompt.ok("node N { n: Int } SPAWN a: N { n = 1 } SPAWN b: N { n = #a.n + 1 } SET #a.n = #b.n * 10")
    assert prompt.rows("MATCH x: N WHERE x.n > #b.n RETURN x.n, #b.n AS b") == [[20, 2]]
    prompt.refused("SET #a.n = #gone.n", "constraint", "there is nothing with the id '#gone'")


def test_transaction_has_one_now(prompt: Prompt) -> None:
    prompt.ok("node N { at: Timestamp = now() }")
    prompt.ok("BEGIN SPAWN a: N")
    prompt.clock.advance(5)
    prompt.ok("SPAWN b: N COMMIT")
    assert prompt.rows("MATCH a: N, b: N WHERE a.id = #a and b.id = #b RETURN b.at - a.at = 0s") == [[True]]


def test_statements_in_a_transaction_see_what_came_before(prompt: Prompt) -> None:
    prompt.ok("node N { t: Int }")
    prompt.ok("BEGIN SPAWN a: N { t = 1 } SET #a.t = 2")
    assert prompt.rows("MATCH n: N RETURN n.t") == [[2]]
    assert prompt.another().rows("MATCH n: N RETURN n.t") == []
    made = prompt.session.names["a"]
    prompt.ok("COMMIT")
    assert prompt.ok("INSPECT #a")["rows"][0][0] == made
    prompt.refused("BEGIN WATCH n: N RETURN n", "not_supported", "WATCH inside a transaction")
    prompt.ok("ROLLBACK")


def test_names_of_rolled_back_transaction_are_forgotten(lite: Prompt) -> None:
    lite.ok("node A { n: Int [unique] } SPAWN a: A { n = 1 }")
    first = lite.session.names["a"]
    lite.ok("BEGIN SPAWN a: A { n = 2 } SPAWN b: A { n = 3 } ROLLBACK")
    assert lite.session.names == {"a": first}
    lite.refused("BEGIN SPAWN a: A { n = 2 } SPAWN b: A { n = 1 }", "constraint", "duplicate")
    lite.ok("ROLLBACK SET #a.n = 5")
    other = lite.another()
    lite.ok("BEGIN SPAWN a: A { n = 7 }")
    other.ok("SPAWN x: A { n = 7 }")
    lite.refused("COMMIT", "constraint", "duplicate")
    lite.ok("SET #a.n = 6")
    assert lite.rows("MATCH a: A WHERE a.n = 6 RETURN a.id") == [[first]]
    lite.ok("BEGIN SPAWN a: A { n = 8 } COMMIT SET #a.n = 9")
    assert lite.session.names["a"] != first
    other.session.close()


def test_parameter_nested_too_deeply_is_an_error_not_a_crash(lite: Prompt) -> None:
    lite.ok("node A { n: Int = 0 }")
    deep: list[object] = []
    for _ in range(3000):
        deep = [deep]
    lite.refused("MATCH a: A WHERE a.n in $list RETURN a", "constraint", "'$list' is nested too deeply", list=deep)
    itself: list[object] = []
    itself.append(itself)
    lite.refused("MATCH a: A WHERE a.n in $list RETURN a", "statement_limit", "values", list=itself)


def test_symmetric_edge_of_a_node_with_itself_is_one_match(prompt: Prompt) -> None:
    prompt.ok("node Q { m: Int } edge twin(a: Q, b: Q) [symmetric] SPAWN q: Q { m = 1 } SPAWN r: Q { m = 2 }")
    prompt.ok("LINK twin(#q, #q) LINK twin(#q, #r)")
    both = "MATCH twin(a, b) RETURN a.m, b.m ORDER BY a.m, b.m"
    assert prompt.rows(both) == [[1, 1], [1, 2], [2, 1]]
    assert prompt.rows("MATCH twin(a, _) RETURN a.m ORDER BY a.m") == [[1], [1], [2]]
    assert prompt.rows("MATCH twin(a, #q) RETURN a.m ORDER BY a.m") == [[1], [2]]
    assert prompt.rows("MATCH twin(a, b) RETURN COUNT(*)") == [[3]]


def test_transaction_in_one_text_runs_and_commits_once(lite: Prompt, monkeypatch: pytest.MonkeyPatch) -> None:
    lite.ok("node N { n: Int } edge e(a: N, b: N) SPAWN n: N { n = -1 }")
    steps = 0
    send = Broker.send

    def counted(self: Broker, command: Any) -> Any:
        nonlocal steps
        steps += len(command.steps) if isinstance(command, RunGraph) else 0
        return send(self, command)

    monkeypatch.setattr(Broker, "send", counted)
    made = " ".join(f"SPAWN n: N {{ n = {n} }} LINK e(#n, #n)" for n in range(200))
    results = lite.session.run(f"BEGIN {made} MATCH x: N RETURN COUNT(x) COMMIT")
    assert steps == 401 + 400
    assert results[401].done.rows == [[201]]
    assert (results[-1].done.created, results[-1].done.linked) == (200, 200)
    assert lite.rows("MATCH e(a, b) WHERE a.n != b.n RETURN a") == []


def test_names_in_a_transaction_stand_for_the_latest(lite: Prompt) -> None:
    lite.ok("node N { n: Int } edge e(a: N, b: N) SPAWN a: N { n = 1 } SPAWN b: N { n = 2 }")
    lite.ok("BEGIN SET #a.n = 10 SPAWN a: N { n = 3 } SET #a.n = 30 LINK l: e(#a, #b) SET a.n = #a.n + 1 COMMIT")
    assert lite.rows("MATCH x: N RETURN x.n ORDER BY x.n") == [[2], [10], [31]]
    assert lite.rows("MATCH e(x, y) WHERE x.id = #a and y.id = #b RETURN x.n") == [[31]]
    lite.ok("BEGIN SPAWN a: N { n = 4 }")
    lite.ok("SET #a.n = 40 SPAWN b: N { n = 5 }")
    lite.ok("LINK e(#a, #b) COMMIT")
    assert lite.rows("MATCH e(x, y) WHERE x.id = #a and y.id = #b RETURN x.n, y.n") == [[40, 5]]


def test_statement_that_fails_in_a_transaction_is_pointed_at(lite: Prompt) -> None:
    lite.ok("node N { n: Int [>= 0] }")
    lines = lite("BEGIN\nSPAWN a: N { n = 1 }\nSPAWN b: N { n = -1 }\nSPAWN c: N { n = 2 }\nCOMMIT")
    assert [(line["kind"], line["line"]) for line in lines] == [("result", 1), ("result", 2), ("error", 3)]
    lite.ok("ROLLBACK")
    lines = lite("BEGIN SPAWN a: N { n = 1 }\nSPAWN b: N { n = $missing }")
    assert [(line["kind"], line["line"]) for line in lines] == [("result", 1), ("result", 1), ("error", 2)]
    lite.ok("ROLLBACK")
    assert lite.rows("MATCH x: N RETURN COUNT(x)") == [[0]]


def test_transaction_has_only_so_many_statements(lite: Prompt, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(session_transaction, "MOST_STEPS", 20)
    lite.ok("node N { n: Int }")
    made = "SPAWN a: N { n = 1 } " * 20
    lite.refused(f"BEGIN {made} SPAWN b: N {{ n = 1 }}", "constraint", "a transaction has at most 20 statements")
    lite.ok("ROLLBACK")
    assert lite.rows("MATCH x: N RETURN COUNT(x)") == [[0]]
    assert lite.ok(f"BEGIN {made} COMMIT")["created"] == 20


def test_inspect_returns_attributes_despite_session_names(lite: Prompt) -> None:
    lite.ok("node N { n: Int } SPAWN n: N { n = 1 } SPAWN id: N { n = 2 }")
    assert lite.rows("INSPECT #n RETURN n, _type, id AS i") == [[1, "N", lite.session.names["n"]]]


def test_edge_is_named_once(lite: Prompt) -> None:
    lite.ok("node N { n: Int } edge e(a: N, b: N) { w: Int = 1 } SPAWN n: N { n = 1 }")
    lite.refused("LINK l: e(#n, #n) AS m", "parse_error", "named twice")
    lite.refused("LINK e(#n, #n) { w = 1 } AS m { w = 2 }", "parse_error", "given attributes twice")
    lite.ok("LINK e(#n, #n) { w = 3 } AS m")


@pytest.mark.parametrize(("value", "rounded"), [("2.5", 3), ("-2.5", -3), ("2.4", 2), ("-0.4", 0), ("7", 7)])
def test_halves_are_rounded_away_from_zero(lite: Prompt, value: str, rounded: int) -> None:
    lite.ok("node N { n: Int = 1 } SPAWN n: N")
    assert lite.rows(f"MATCH n: N RETURN round({value})") == [[rounded]]
