"""The 37 worked examples of the contract, in order, on a fresh graph."""

from __future__ import annotations

from ackwise.clock import ManualClock
from tests.mew.prompt import Prompt

COUNTS = ("created", "linked", "modified", "deleted", "unlinked")


def counts(result: dict[str, object]) -> dict[str, object]:
    return {name: result[name] for name in COUNTS if result[name]}


def test_worked_examples_answer_as_written(prompt: Prompt, clock: ManualClock) -> None:
    # 1-3
    assert prompt.ok("type Lane = Int [1..9]")["declared"] == {"alias": 1}
    assert prompt.ok("node Dock { name: String [required, unique] }")["declared"] == {"node": 1}
    parcel = """node Parcel { label: String [required, length: 1..40], weight: Int [>= 0] = 1,
        state: String [in: ["waiting","moving"]] = "waiting", seen: Timestamp = now() }"""
    assert prompt.ok(parcel)["declared"] == {"node": 1}
    edge = "edge queued(parcel: Parcel, dock: Dock) [parcel -> 0..1] { lane: Lane = 1 }"
    assert prompt.ok(edge)["declared"] == {"edge": 1}
    # 4-5
    lines = prompt('SPAWN north: Dock { name = "north" } SPAWN lost: Dock { name = "lost" }')
    assert [counts(line) for line in lines] == [{"created": 1}, {"created": 1}]
    assert [list(line["bindings"]) for line in lines] == [["north"], ["lost"]]
    prompt.refused(
        'SPAWN d: Dock { name = "north" }', "constraint", "duplicate value 'north' for unique attribute 'name'"
    )
    assert prompt.rows("MATCH d: Dock RETURN COUNT(d)") == [[2]]
    # 6-8
    lines = prompt('SPAWN a: Parcel { label = "A", weight = 5 } LINK queued(#a, #north)')
    assert [counts(line) for line in lines] == [{"created": 1}, {"linked": 1}]
    prompt.refused("SPAWN p: Parcel { weight = 2 }", "constraint", "required attribute 'label'")
    prompt.refused("LINK queued(#a, #lost)", "constraint", "cardinality")
    # 9-10
    found = prompt.ok("MATCH p: Parcel, queued(p, #north) AS q WHERE q.lane = 1 RETURN p.label, p.weight")
    assert (found["columns"], found["rows"]) == (["p.label", "p.weight"], [["A", 5]])
    prompt.refused('SET #a.state = "flying"', "constraint", "not one of the allowed values")
    assert prompt.rows("MATCH p: Parcel RETURN p.state") == [["waiting"]]
    # 11
    watch = prompt.ok(
        "w = WATCH p: Parcel, queued(p, #north) "
        "[mode: consume, ack_timeout: 30s, max_redeliveries: 3, dead_letter: #lost] RETURN p"
    )
    assert watch["handle"] == "#w"
    initial, consumed = prompt.events
    assert (initial["type"], initial["matches"], initial["watch"]) == ("initial", [], "#w")
    assert (consumed["type"], consumed["match"]["label"], consumed["attempt"]) == ("consumed", "A", 1)
    assert isinstance(consumed["tick"], int)
    d1 = consumed["delivery_id"]
    # 12-13
    assert prompt.ok("MATCH p: Parcel RETURN COUNT(p) AS n")["rows"] == [[1]]
    prompt.refused('ACK "nope"', "E8004", "Invalid delivery ID: 'nope' not found or already processed")
    # 14-15
    nacked = prompt.ok(f'NACK "{d1}"')
    assert (nacked["outcome"], nacked["attempts"], nacked["delivery_id"]) == ("requeued", 1, d1)
    (again,) = prompt.consumed
    d2 = again["delivery_id"]
    assert d2 != d1
    assert again["attempt"] == 2
    prompt.refused(f'ACK "{d1}"', "E8004", d1)
    assert prompt.rows("MATCH p: Parcel RETURN p.label") == [["A"]]
    # 16-17
    prompt.advance(31)
    (notice,) = prompt.notices
    assert (notice["code"], notice["name"], notice["watch"]) == ("E8003", "ACK_TIMEOUT", "#w")
    assert notice["message"] == f"Acknowledgment timeout: delivery '{d2}' not acknowledged within 30s"
    (third,) = prompt.consumed
    d3 = third["delivery_id"]
    prompt.refused(f'ACK "{d2}"', "E8004", d2)
    assert prompt.rows("MATCH p: Parcel RETURN p.label") == [["A"]]
    # 18-20
    dead = prompt.ok(f'NACK "{d3}"')
    assert (dead["outcome"], dead["reason"], dead["attempts"]) == ("dead_lettered", "max_redeliveries_exceeded", 3)
    assert prompt.events == []
    letters = "MATCH l: _DeadLetter, _watch_dead_letter(#w, l) RETURN l.failure_reason, l.delivery_attempts"
    assert prompt.rows(letters) == [["max_redeliveries_exceeded", 3]]
    assert prompt.rows("MATCH p: Parcel, queued(p, #lost) RETURN p.label") == [["A"]]
    # 21-23
    commit = prompt.ok('BEGIN SPAWN b: Parcel { label = "B" } LINK queued(#b, #north) SET #b.weight = 9 COMMIT')
    assert (commit["statement"], counts(commit)) == ("COMMIT", {"created": 1, "linked": 1, "modified": 1})
    (event,) = prompt.events
    assert (event["type"], event["match"]["weight"]) == ("consumed", 9)
    assert counts(prompt.ok('SET #b.state = "moving"')) == {"modified": 1}
    acked = prompt.ok("ACK $delivery_id")
    assert (acked["outcome"], acked["deleted"]) == ("acked", 1)
    assert prompt.ok("INSPECT #b")["found"] is False
    # 24-26
    prompt.ok('SPAWN c: Parcel { label = "C" } LINK queued(#c, #north)')
    dead = prompt.ok("nack $delivery_id [NO_RETRY]")
    assert (dead["outcome"], dead["reason"], dead["attempts"]) == ("dead_lettered", "no_retry", 1)
    error = prompt.refused("ACK $delivery_id [no_retry]", "parse_error")
    assert (error["line"], error["column"]) == (1, 18)
    prompt.refused("ACK $absent", "missing_parameter", "Parameter '$absent' not provided")
    # 27
    assert counts(prompt.ok('BEGIN SPAWN e: Parcel { label = "E" } LINK queued(#e, #north) ROLLBACK')) == {}
    assert prompt.events == []
    assert prompt.rows("MATCH p: Parcel RETURN p.label") == [["A"], ["C"]]
    # 28-30
    prompt.ok("v = WATCH p: Parcel RETURN p.label, p.weight")
    (initial,) = prompt.events
    assert [match["p.label"] for match in initial["matches"]] == ["A", "C"]
    prompt.ok("SET #a.weight = 6")
    (changed,) = prompt.events
    assert (changed["type"], changed["match"]["p.weight"], changed["prev"]["p.weight"]) == ("changed", 6, 5)
    prompt.ok('SET #a.state = "moving"')
    assert prompt.events == []
    assert counts(prompt.ok("KILL #a")) == {"deleted": 1, "unlinked": 1}
    (removed,) = prompt.events
    assert (removed["type"], removed["watch"], removed["match"]["p.label"]) == ("removed", "#v", "A")
    # 31
    prompt.ok("PAUSE WATCH #v")
    prompt.ok('SPAWN f: Parcel { label = "F" }')
    assert prompt.events == []
    prompt.ok("RESUME WATCH #v")
    assert [(event["type"], event["match"]["p.label"]) for event in prompt.events] == [("added", "F")]
    # 32-34
    prompt.ok("ALTER WATCH #v SET [buffer: 5]")
    prompt.refused("ALTER WATCH #v SET [mode: consume]", "E8008", "Option 'mode' cannot be changed")
    prompt.refused("ALTER WATCH #v SET [buffer: 0]", "E8009", "Invalid value for option 'buffer'")
    prompt.ok("CANCEL WATCH #v")
    prompt.ok("CANCEL WATCH #v")
    prompt.refused("RESUME WATCH #v", "E8002", "Cannot resume cancelled watch '#v'")
    assert prompt.rows("MATCH s: _Watch WHERE s.id = #v RETURN s.status") == [["cancelled"]]


PARCEL = "node Parcel { label: String, weight: Int = 1 }"


def test_worked_examples_on_fresh_graphs(prompt: Prompt) -> None:
    # 35
    prompt.ok(PARCEL)
    watch = 'WATCH p: Parcel [mode: consume, group: "g", ordering: attribute(p.weight DESC)] RETURN p'
    first, second = prompt.ok(f"one = {watch}"), prompt.ok(f"two = {watch}")
    assert (first["handle"], second["handle"]) == ("#one", "#two")
    spawns = " ".join(f'SPAWN s{n}: Parcel {{ label = "{n}", weight = {n} }}' for n in (1, 2, 3, 4))
    prompt.ok(f"BEGIN {spawns} COMMIT")
    handed = [(event["watch"], event["match"]["weight"]) for event in prompt.consumed]
    assert [weight for _, weight in handed] == [4, 3, 2, 1]
    assert sorted(watch for watch, _ in handed) == ["#one", "#one", "#two", "#two"]
    for event in prompt.consumed:
        prompt.ok("ACK $id", id=event["delivery_id"])
    prompt.ok("CANCEL WATCH #one CANCEL WATCH #two")
    # 36
    prompt.ok("w = WATCH p: Parcel [mode: consume] RETURN p")
    prompt.ok('SPAWN x: Parcel { label = "X" }')
    gone = prompt.ok("NACK $delivery_id [no_retry]")
    assert (gone["outcome"], gone["deleted"], gone["reason"]) == ("deleted", 1, "no_retry")
    assert prompt.rows("MATCH p: Parcel RETURN COUNT(p)") == [[0]]
    assert prompt.rows("MATCH l: _DeadLetter RETURN l.failure_reason") == [["no_retry"]]
    prompt.ok("CANCEL WATCH #w")
    # 37
    prompt.ok("g = WATCH p: Parcel [mode: consume, dead_letter: #gone] RETURN p")
    assert [notice["message"] for notice in prompt.notices] == ["the dead_letter node '#gone' does not exist yet"]
    prompt.ok('SPAWN y: Parcel { label = "Y" }')
    (event,) = prompt.consumed
    prompt.refused(
        "NACK $delivery_id [no_retry]",
        "E8007",
        f"Dead letter failed: could not move delivery '{event['delivery_id']}' to '#gone' - node not found",
    )
    assert prompt.consumed == []
    assert prompt.rows("MATCH p: Parcel RETURN p.label") == [["Y"]]
    prompt.advance(3600)
    assert prompt.consumed == []
