"""Watches: their options, their events, who may manage them, and how many there may be."""

from __future__ import annotations

from typing import Any

import pytest

from ackwise.clock import ManualClock
from ackwise.mew import Session
from tests.mew.prompt import Prompt, raised

GRAPH = """
node Person { name: String, age: Int = 30 }
node Team { name: String }
edge member(person: Person, team: Team) { since: Int = 2020 }
"""


@pytest.fixture
def people(prompt: Prompt) -> Prompt:
    prompt.ok(GRAPH)
    prompt.ok('SPAWN red: Team { name = "red" } SPAWN ann: Person { name = "ann" } LINK m: member(#ann, #red)')
    return prompt


@pytest.fixture
def few(lite: Prompt) -> Prompt:
    lite.ok(GRAPH)
    return lite


def told(prompt: Prompt) -> list[tuple[Any, ...]]:
    return [(event["watch"], event["type"], event.get("match")) for event in prompt.events]


def test_join_is_watched_through_each_of_its_parts(people: Prompt) -> None:
    people.ok("v = WATCH p: Person, member(p, t) AS m, t: Team WHERE m.since > 2000 RETURN p.name, t.name, m.since")
    assert people.events[0]["matches"] == [{"p.name": "ann", "t.name": "red", "m.since": 2020}]
    people.ok('SET #red.name = "crimson"')
    assert [(e["type"], e["match"]["t.name"], e["prev"]["t.name"]) for e in people.events] == [
        ("changed", "crimson", "red")
    ]
    people.ok("SET #m.since = 1990")
    assert [event["type"] for event in people.events] == ["removed"]
    people.ok("SET #m.since = 2021")
    assert [event["type"] for event in people.events] == ["added"]
    people.ok('SPAWN bob: Person { name = "bob" }')
    assert people.events == []
    people.ok("LINK member(#bob, #red)")
    assert [(event["type"], event["match"]["p.name"]) for event in people.events] == [("added", "bob")]
    people.ok("KILL #red")
    assert sorted(event["match"]["p.name"] for event in people.events) == ["ann", "bob"]
    assert {event["type"] for event in people.events} == {"removed"}


def test_transaction_is_one_change(people: Prompt) -> None:
    people.ok("v = WATCH p: Person RETURN p.name, p.age")
    people.ok('BEGIN SPAWN bob: Person { name = "bob" } SET #bob.age = 7 SET #ann.age = 1 SET #ann.age = 30 COMMIT')
    assert told(people) == [("#v", "added", {"p.name": "bob", "p.age": 7})]
    people.ok('BEGIN SPAWN eve: Person { name = "eve" } KILL #eve COMMIT')
    assert people.events == []


def test_exists_is_watched_through_what_it_looks_at(people: Prompt) -> None:
    people.ok("v = WATCH p: Person WHERE not exists(member(p, t)) RETURN p.name")
    assert people.events[0]["matches"] == []
    people.ok("UNLINK member(#ann, #red)")
    assert told(people) == [("#v", "added", {"p.name": "ann"})]
    people.ok("LINK member(#ann, #red)")
    assert told(people) == [("#v", "removed", {"p.name": "ann"})]


def test_consumer_gets_node_when_its_last_edge_ends(people: Prompt) -> None:
    people.ok("w = WATCH p: Person WHERE not exists(member(p, t)) [mode: consume] RETURN p.name")
    assert people.consumed == []
    people.ok("UNLINK member(#ann, #red)")
    assert [event["match"] for event in people.consumed] == [{"p.name": "ann"}]


def test_filter_is_one_more_condition(people: Prompt) -> None:
    people.ok('v = WATCH p: Person WHERE p.age > 10 [filter: starts_with(p.name, "a")] RETURN p.name')
    assert people.events[0]["matches"] == [{"p.name": "ann"}]
    people.ok(
        'SPAWN b: Person { name = "bob" } SPAWN c: Person { name = "al", age = 5 } SPAWN d: Person { name = "al" }'
    )
    assert told(people) == [("#v", "added", {"p.name": "al"})]
    people.ok("w = WATCH p: Person [mode: consume, filter: p.age < 10] RETURN p.age")
    assert [event["match"] for event in people.consumed] == [{"p.age": 5}]


def test_subtypes_are_watched_too(prompt: Prompt) -> None:
    prompt.ok("abstract node Shape { size: Int = 1 } node Square: Shape {} node Circle: Shape { r: Int = 2 }")
    prompt.ok("v = WATCH s: Shape RETURN s._type, s.size")
    prompt.ok("SPAWN a: Square SPAWN b: Circle { size = 3 }")
    assert [event["match"] for event in prompt.events] == [
        {"s._type": "Square", "s.size": 1},
        {"s._type": "Circle", "s.size": 3},
    ]


def test_deliver_on_tick_waits_for_a_tick(people: Prompt) -> None:
    people.ok("v = WATCH p: Person [deliver_on: tick] RETURN p.name")
    assert [event["type"] for event in people.events] == ["initial"]
    people.ok('SPAWN b: Person { name = "bob" } SPAWN c: Person { name = "cid" }')
    assert people.events == []
    people.ok("TICK")
    assert [event["match"] for event in people.events] == [{"p.name": "bob"}, {"p.name": "cid"}]
    people.ok("w = WATCH t: Team [mode: consume, deliver_on: tick, initial: none] RETURN t.name")
    people.ok('SPAWN blue: Team { name = "blue" }')
    assert people.consumed == []
    people.ok("TICK 3")
    assert [event["match"] for event in people.consumed] == [{"t.name": "blue"}]


def test_tick_advances_logical_time(people: Prompt) -> None:
    before = people.rows("MATCH p: Person RETURN logical_time()")[0][0]
    people.ok('TICK 5 SPAWN b: Person { name = "b" }')
    assert people.rows("MATCH p: Person RETURN logical_time() LIMIT 1") == [[before + 6]]
    assert people.rows("MATCH t: _TickState RETURN t.global_tick, t.last_tick_at") == [
        [before + 6, people.clock.now() // 1000]
    ]
    for amount in ("0", "-3"):
        message = f"INVALID_TICK_AMOUNT: Tick amount must be positive, got {amount}"
        people.refused(f"TICK {amount}", "E9001", message)


def test_tick_leaves_room_for_the_commits_that_follow(people: Prompt) -> None:
    for amount in (2**62, 2**63 - 2, 2**63 - 1):
        people.refused(f"TICK {amount}", "E9001", f"Tick amount is too large: {amount}")
    people.ok(f'TICK {2**62 - 1000} SPAWN b: Person {{ name = "b" }}')
    people.refused("TICK 2000", "E9001", "too large")
    people.ok('TICK SPAWN c: Person { name = "c" }')


def test_initial_since_a_tick(people: Prompt) -> None:
    tick = people.rows("MATCH p: Person RETURN logical_time() LIMIT 1")[0][0]
    people.ok('SPAWN b: Person { name = "bob" }')
    people.ok(
        f"v = WATCH p: Person [initial: since({tick})] RETURN p.name n = WATCH p: Person [initial: none] RETURN p"
    )
    assert [(event["watch"], event["matches"]) for event in people.events] == [("#v", [{"p.name": "bob"}])]


def test_full_buffer_drops_the_oldest(people: Prompt) -> None:
    people.ok("v = WATCH p: Person [buffer: 2] RETURN p.name PAUSE WATCH #v")
    people.ok(" ".join(f'SPAWN s{n}: Person {{ name = "{n}" }}' for n in range(5)))
    people.ok("RESUME WATCH #v")
    assert [event["match"]["p.name"] for event in people.events] == ["3", "4"]


def test_full_buffer_that_blocks_holds_the_producer_up(people: Prompt) -> None:
    people.ok("v = WATCH p: Person [buffer: 2, on_full: block, initial: none] RETURN p.name PAUSE WATCH #v")
    people.ok('SPAWN a: Person { name = "1" } SPAWN b: Person { name = "2" }')
    people.refused('SPAWN c: Person { name = "3" }', "constraint", "holds this statement up")
    assert people.rows('MATCH p: Person WHERE p.name = "3" RETURN p') == []
    people.ok("RESUME WATCH #v")
    assert [event["match"]["p.name"] for event in people.events] == ["1", "2"]
    people.ok('SPAWN c: Person { name = "3" }')
    assert [event["match"]["p.name"] for event in people.events] == ["3"]


def test_full_buffer_that_errs_cancels_the_watch(people: Prompt) -> None:
    people.ok("v = WATCH p: Person [buffer: 1, on_full: error, initial: none] RETURN p.name PAUSE WATCH #v")
    people.ok('SPAWN a: Person { name = "1" } SPAWN b: Person { name = "2" }')
    assert [(note["code"], note["watch"]) for note in people.notices] == [("E8005", "#v")]
    assert people.events == []
    assert people.rows("MATCH w: _Watch WHERE w.id = #v RETURN w.status") == [["cancelled"]]
    people.refused("RESUME WATCH #v", "E8002")
    assert people.notices == []


@pytest.mark.parametrize(
    ("visibility", "text"), [("committed", "{} {}"), ("immediate", "{} {}"), ("immediate", "BEGIN {} {} ROLLBACK")]
)
def test_watch_that_is_cancelled_for_its_full_buffer_is_news(people: Prompt, visibility: str, text: str) -> None:
    cancelled = 'WATCH w: _Watch WHERE w.status = "cancelled"'
    onlooker = people.another()
    onlooker.ok(f"x = {cancelled} [initial: none] RETURN w.id")
    onlooker.ok(f"y = {cancelled} [initial: none, visibility: immediate] RETURN w.id")
    full = f"[buffer: 1, on_full: error, initial: none, visibility: {visibility}]"
    people.ok(f"v = WATCH p: Person {full} RETURN p.name PAUSE WATCH #v")
    people.ok(f"u = WATCH p: Person {full} RETURN p.name PAUSE WATCH #u")
    people.ok(f"t = {cancelled} {full} RETURN w.id PAUSE WATCH #t")  # the end of both is more than it can take
    people(text.format(*[f'SPAWN a: Person {{ name = "{number}" }}' for number in (1, 2)]))
    names = people.session.names
    status = people.rows("MATCH w: _Watch WHERE w.id IN $all RETURN w.status", all=[names[name] for name in "vut"])
    assert status == [["cancelled"]] * 3
    heard = sorted((event["watch"], event["type"], event["match"]["w.id"]) for event in onlooker.fetch())
    assert heard == sorted((watch, "added", names[name]) for watch in ("#x", "#y") for name in "vut")


def test_counts_of_a_watch(people: Prompt) -> None:
    people.ok("v = WATCH p: Person RETURN p.name PAUSE WATCH #v")
    people.ok('SPAWN b: Person { name = "b" }')
    counts = "MATCH w: _Watch WHERE w.id = #v RETURN w.status, w.events_pending, w.events_delivered"
    assert people.rows(counts) == [["paused", 1, 1]]
    people.ok("RESUME WATCH #v")
    assert people.rows(counts) == [["active", 0, 2]]


def test_others_may_not_manage_a_watch(people: Prompt) -> None:
    people.ok("v = WATCH p: Person RETURN p")
    found = people.session.names["v"]
    other = people.another()
    for text in ("PAUSE WATCH", "RESUME WATCH", "CANCEL WATCH"):
        other.refused(f'{text} #"{found}"', "E8010", "is not owned by current session")
    other.refused(f'ALTER WATCH #"{found}" SET [buffer: 2]', "E8010", "WATCH_ACCESS_DENIED")
    other.refused("PAUSE WATCH #red", "E8002")
    other.session.close()


def test_limit_of_watches(graph_url: str, clock: ManualClock) -> None:
    with Session(graph_url, clock=clock, max_watches=2) as session:
        session.run(GRAPH + "a = WATCH p: Person RETURN p b = WATCH p: Person RETURN p")
        error = raised(session, "WATCH p: Person RETURN p")
        assert (error.word, error.name) == ("E8006", "WATCH_LIMIT_EXCEEDED")
        assert session.query("MATCH w: _Watch RETURN COUNT(w) AS n") == [{"n": 2}]
        session.run("CANCEL WATCH #a WATCH p: Person RETURN p")


@pytest.mark.parametrize(
    ("option", "expected"),
    [
        ("mode: sometimes", "watch or consume"),
        ("group: 5", "a string"),
        ('group: ""', "a string"),
        ("ordering: random", "arrival, causal or attribute"),
        ("delivery: never", "best_effort or reliable"),
        ("visibility: half", "committed or immediate"),
        ("buffer: 0", "at least 1"),
        ('buffer: "5"', "whole number"),
        ("on_full: explode", "drop or block or error"),
        ("max_redeliveries: -1", "whole number"),
        ("dead_letter: 5", "a node"),
        ("initial: some", "full, none or since(tick)"),
        ("initial: since(-1)", "full, none or since(tick)"),
        ("filter: 5", "a condition"),
        ("deliver_on: monday", "commit or tick"),
        ("colour: red", "one of the options"),
    ],
)
def test_bad_options_are_refused_and_nothing_is_made(few: Prompt, option: str, expected: str) -> None:
    few.refused(f"WATCH p: Person [{option}] RETURN p", "E8009", expected)
    assert few.rows("MATCH w: _Watch RETURN COUNT(w)") == [[0]]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("WATCH p: Nobody RETURN p", "there is no node type 'Nobody'"),
        ("WATCH p: Person, knows(p, q) RETURN p", "there is no edge type 'knows'"),
        ("WATCH p: Person, member(p) RETURN p", "has 2 ends, not 1"),
        ("WATCH p: Person WHERE p.size = 1 RETURN p", "'Person' has no attribute 'size'"),
        ("WATCH p: Person WHERE q.age = 1 RETURN p", "'q' is not known here"),
        ("WATCH p: Person RETURN p.size", "'Person' has no attribute 'size'"),
        ("WATCH p: Person [filter: p.size = 1] RETURN p", "'Person' has no attribute 'size'"),
        ("WATCH p: Person [ordering: attribute(p.size)] RETURN p", "'Person' has no attribute 'size'"),
    ],
)
def test_bad_patterns_are_refused(few: Prompt, text: str, message: str) -> None:
    few.refused(text, "constraint", message)
    assert few.rows("MATCH w: _Watch RETURN COUNT(w)") == [[0]]


def test_undecidable_watch_fails_no_other(people: Prompt) -> None:
    people.ok("v = WATCH p: Person WHERE 10 / (p.age - 7) > 1 [initial: none] RETURN p.name, 1 / (p.age - 8) AS x")
    people.ok(
        "w = WATCH p: Person WHERE 10 / (p.age - 7) > 1 [mode: consume, ordering: attribute(1 / (p.age - 8))] RETURN p"
    )
    people.ok('SPAWN a: Person { name = "seven", age = 7 } SPAWN b: Person { name = "eight", age = 8 }')
    assert [event["match"]["p.name"] for event in people.events if event["watch"] == "#v"] == ["eight"]
    assert [event["match"]["name"] for event in people.consumed] == ["eight"]
    assert [event["match"]["x"] for event in people.events if event["watch"] == "#v"] == [None]
    # Who makes it is told when it cannot be judged now.
    people.refused("WATCH p: Person [filter: 1 / (p.age - 7) > 0] RETURN p.name", "constraint", "division by zero")
    assert people.rows("MATCH p: Person RETURN COUNT(p)") == [[3]]


def test_watch_looks_at_its_own_pattern_only(people: Prompt) -> None:
    for text in ("WHERE p.age > #ann.age RETURN p", "[filter: p.age > #ann.age] RETURN p", "RETURN p.age + #ann.age"):
        people.refused(f"WATCH p: Person {text}", "not_supported", "put its node into the pattern")


def test_layer_0_is_protected(people: Prompt) -> None:
    people.ok("v = WATCH p: Person RETURN p")
    for kind in ("_Watch", "_WatchEvent", "_DeadLetter", "_Session", "_TickState"):
        people.refused(f"SPAWN x: {kind}", "constraint", f"Cannot create protected type '{kind}'")
    people.refused("LINK _watch_dead_letter(#v, #v)", "constraint", "Cannot create protected type")
    people.refused('SET #v.status = "cancelled"', "constraint", "protected")
    people.refused("KILL #v", "constraint", "protected")
    people.refused("MATCH s: _Session KILL s", "constraint", "protected")
    people.refused("MATCH _session_has_watch(s, w) AS e UNLINK e", "constraint", "protected")
    people.refused("node _Mine { a: Int }", "constraint", "reserved")
    people.refused("edge likes(a: Person, w: _Watch) LINK likes(#ann, #v)", "constraint", "protected")


def test_ended_session_cancels_watches_and_keeps_nodes(people: Prompt) -> None:
    other = people.another()
    other.ok("v = WATCH p: Person RETURN p")
    other.session.close()
    assert people.rows("MATCH w: _Watch RETURN w.status") == [["cancelled"]]


def test_going_through_a_watch_goes_on_behind_a_notice(people: Prompt) -> None:
    events = people.session.watch(
        "WATCH t: Team [mode: consume, ack_timeout: 10s, initial: full] RETURN t.name", wait=0
    )
    assert next(events).type == "initial"
    slow = next(events)
    people.clock.advance(11)
    again = next(events)
    assert [note.code for note in people.session.notices] == ["E8003"]
    assert again.match == slow.match == {"t.name": "red"}
    people.session.ack(again)
    assert list(events) == []


def test_iteration_ends_when_full_buffer_cancels_watch(people: Prompt) -> None:
    events = people.session.watch("v = WATCH p: Person [buffer: 1, on_full: error, initial: none] RETURN p.name")
    events.start()
    people.session.run('SPAWN a: Person { name = "1" } SPAWN b: Person { name = "2" }')
    assert list(events) == []
    assert [note.code for note in people.session.notices] == ["E8005"]


@pytest.mark.parametrize("jobs", [0, 499])
def test_backlog_is_scanned_to_last_match_of_each_entity(few: Prompt, jobs: int) -> None:
    """A page of candidates ends amid those of `last`: the ones that fit come behind it."""
    few.ok('SPAWN red: Team { name = "red" }')
    ones = " ".join(f'SPAWN p{n}: Person {{ name = "{n}" }} LINK member(#p{n}, #red)' for n in range(jobs))
    bad = " ".join("LINK member(#last, #red) { since = 1 }" for _ in range(500 - jobs))
    few.session.run(f'{ones} SPAWN last: Person {{ name = "last" }} {bad} LINK member(#last, #red)')
    found = few.rows("MATCH p: Person, member(p, t) AS m WHERE m.since + 0 > 2000 RETURN COUNT(p)")
    assert found == [[jobs + 1]]
    few.ok("w = WATCH p: Person, member(p, t) AS m WHERE m.since + 0 > 2000 [mode: consume] RETURN p.name")
    assert len(few.consumed) == jobs + 1
    assert few.consumed[-1]["match"] == {"p.name": "last"}


def test_subtype_that_is_declared_later_is_watched_too(prompt: Prompt) -> None:
    prompt.ok("node Shape { size: Int = 1 } node Mark {} edge on(mark: Mark, shape: Shape)")
    prompt.ok("v = WATCH s: Shape RETURN s._type e = WATCH s: Shape WHERE not exists(on(m, s)) RETURN s._type")
    prompt.ok("w = WATCH s: Shape [mode: consume] RETURN s._type i = WATCH s: Shape [visibility: immediate] RETURN s")
    prompt.ok("node Square: Shape {} SPAWN a: Square")
    assert [event["watch"] for event in prompt.events] == ["#v", "#e", "#i", "#w"]
    assert [event["match"] for event in prompt.consumed] == [{"s._type": "Square"}]
    prompt.ok("BEGIN SPAWN b: Square node Circle: Shape {} SPAWN c: Circle COMMIT")
    seen = [(event["watch"], event["match"]["s._type"]) for event in prompt.events if event["watch"] != "#i"]
    assert sorted(seen) == [(watch, kind) for watch in ("#e", "#v", "#w") for kind in ("Circle", "Square")]
    prompt.ok("BEGIN node Dot: Shape {} SPAWN d: Dot ROLLBACK")
    prompt.ok("node Dot: Shape {} SPAWN d: Dot")
    assert [event["watch"] for event in prompt.events] == ["#v", "#e", "#i", "#w"]


def test_commit_larger_than_a_buffer_that_blocks_passes_alone(people: Prompt) -> None:
    people.ok("v = WATCH p: Person [buffer: 2, on_full: block, initial: none] RETURN p.name")
    many = "BEGIN " + " ".join(f'SPAWN s{n}: Person {{ name = "{n}" }}' for n in range(5)) + " COMMIT"
    people.session.run(many)
    people.session.run("PAUSE WATCH #v")
    people.refused('SPAWN x: Person { name = "x" }', "constraint", "holds this statement up")
    people.ok("RESUME WATCH #v")
    assert [event["match"]["p.name"] for event in people.events] == ["0", "1", "2", "3", "4"]
    people.ok('SPAWN x: Person { name = "x" }')
    assert [event["match"]["p.name"] for event in people.events] == ["x"]


def test_impossible_comparison_is_refused_and_fails_no_other(people: Prompt) -> None:
    joined = "WATCH p: Person, member(p, t) AS m"
    for text in (
        f"{joined} WHERE p.age > 1 [initial: none, filter: t.name = 5] RETURN p",
        f'{joined} WHERE p.age = "text" [mode: consume] RETURN p',
        f'{joined} WHERE p.age > 1 and m.since = "x" [initial: none] RETURN p',
        "WATCH p: Person WHERE exists(member(p, t), t: Team WHERE t.name = 5) [initial: none] RETURN p",
    ):
        error = people.refused(text, "constraint", "cannot be compared with")
        assert error["name"] == "TYPE_ERROR"
    people.ok(f"v = {joined} [initial: none] RETURN p.name")
    people.refused("ALTER WATCH #v SET [filter: t.name = 5]", "constraint", "cannot be compared with")
    people.ok('SPAWN b: Person { name = "bob" } LINK member(#b, #red)')
    assert [event["match"] for event in people.events] == [{"p.name": "bob"}]


def test_time_is_no_condition_of_a_watch(people: Prompt) -> None:
    for text in (
        "WHERE p.age < logical_time() [mode: consume] RETURN p",
        "[filter: not (now() > wall_time())] RETURN p",
        "WHERE exists(member(p, t) WHERE t.name = to_string(now())) RETURN p",
    ):
        people.refused(f"WATCH p: Person {text}", "not_supported", "the time in the condition of a WATCH")
    people.ok("v = WATCH p: Person [initial: none] RETURN p.name, now() AS at")
    people.refused("ALTER WATCH #v SET [filter: NOW() > wall_time()]", "not_supported", "the time in the condition")


def test_killing_a_destination_redrives_what_it_held(people: Prompt) -> None:
    people.ok('SPAWN bad: Team { name = "bad" }')
    people.ok("w = WATCH p: Person [mode: consume, dead_letter: #bad] RETURN p.name")
    (first,) = people.consumed
    people.ok("NACK $id [no_retry]", id=first["delivery_id"])
    assert people.consumed == []
    people.ok("KILL #bad")
    assert [(event["match"], event["attempt"]) for event in people.consumed] == [({"p.name": "ann"}, 1)]


def test_exists_that_no_edge_joins_to_the_pattern_is_refused(people: Prompt) -> None:
    for text in (
        'WHERE exists(t: Team WHERE t.name = "red") RETURN p',
        "WHERE exists(member(_, #red)) RETURN p",
        "WHERE exists(member(p, t) WHERE exists(q: Person WHERE q.age > p.age)) RETURN p",
        "[filter: not exists(q: Person WHERE q.name = p.name)] RETURN p",
        "RETURN p.name, exists(t: Team) AS any",
    ):
        people.refused(f"WATCH p: Person {text}", "not_supported", "an exists() in a WATCH that no edge joins")
    assert people.rows("MATCH p: Person WHERE exists(t: Team) RETURN p.name") == [["ann"]]
    far = ", ".join(f"member(p{n}, t{n}), member(p{n}, t{n + 1})" for n in range(1, 8))
    near = ", ".join(f"member(a{n}, t0), member(a{n}, t1)" for n in range(4))
    people.refused(f"WATCH {near} WHERE exists({far}) RETURN t0", "constraint", "the pattern is too large")


def test_status_changes_of_a_watch_can_be_watched(people: Prompt) -> None:
    other = people.another()
    other.ok("s = WATCH w: _Watch WHERE w.mode = $mode RETURN w.status, w.buffer_size", mode="consume")
    worker = people.another()
    worker.ok("w = WATCH p: Person [mode: consume, buffer: 7] RETURN p.name")
    worker.ok("PAUSE WATCH #w RESUME WATCH #w ALTER WATCH #w SET [buffer: 8]")
    worker.session.close()
    other.fetch()
    seen = [(event["type"], event["match"]["w.status"], event["match"]["w.buffer_size"]) for event in other.events]
    assert seen == [
        ("added", "active", 7),
        ("changed", "paused", 7),
        ("changed", "active", 7),
        ("changed", "active", 8),
        ("changed", "cancelled", 8),
    ]
    other.session.close()


def test_new_dead_letter_can_be_watched(people: Prompt) -> None:
    people.ok("d = WATCH l: _DeadLetter, _watch_dead_letter(w, l) RETURN l.failure_reason, w.mode")
    people.ok("w = WATCH p: Person [mode: consume] RETURN p.name")
    people.ok("NACK $delivery_id [no_retry]")
    assert told(people) == [("#d", "added", {"l.failure_reason": "no_retry", "w.mode": "consume"})]


@pytest.mark.parametrize(
    "pattern",
    ["e: _WatchEvent", "t: _TickState", "_watch_event(w, e)", "w: _Watch WHERE exists(_watch_event(w, e))"],
)
def test_watch_of_events_or_of_the_tick_is_refused(few: Prompt, pattern: str) -> None:
    few.refused(f"WATCH {pattern} RETURN *", "not_supported", "a WATCH of events or of the tick")


def test_unwanted_backlog_stays_out_until_it_matches_again(people: Prompt) -> None:
    people.ok(
        "w = WATCH p: Person, member(p, t) AS m WHERE m.since > 2000 [mode: consume, initial: none] RETURN p.name"
    )
    people.ok('SPAWN blue: Team { name = "blue" } LINK n: member(#ann, #blue) SET #ann.age = 5 UNLINK #m')
    assert people.consumed == []
    people.ok("BEGIN UNLINK #n LINK o: member(#ann, #blue) COMMIT")
    assert people.consumed == []
    people.ok("UNLINK #o")
    people.ok("LINK member(#ann, #blue)")
    assert [event["match"] for event in people.consumed] == [{"p.name": "ann"}]
