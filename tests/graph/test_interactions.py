"""ACK and NACK beside everything else that may happen to an item."""

from __future__ import annotations

import pytest

from ackwise.clock import ManualClock
from ackwise.mew import Session
from tests.mew.prompt import Prompt

JOBS = """
node Box { name: String }
node Job { title: String, state: String = "pending", size: Int = 1 }
node Note { text: String }
edge waits_in(job: Job, box: Box)
edge about(note: Note, job: Job) [on_kill_target: cascade]
edge guards(box: Box, job: Job) [on_kill_target: prevent]
"""


@pytest.fixture
def jobs(prompt: Prompt) -> Prompt:
    prompt.ok(JOBS)
    prompt.ok('w = WATCH j: Job WHERE j.state = "pending" [mode: consume] RETURN j')
    prompt.ok('SPAWN a: Job { title = "a" }')
    return prompt


def count(prompt: Prompt, kind: str = "Job") -> int:
    found: int = prompt.rows(f"MATCH x: {kind} RETURN COUNT(x)")[0][0]
    return found


@pytest.mark.parametrize("first", ["ACK $id", "NACK $id", "NACK $id [no_retry]"])
@pytest.mark.parametrize("second", ["ACK $id", "NACK $id", "NACK $id [no_retry]"])
def test_id_is_good_for_one_settlement(lite: Prompt, first: str, second: str) -> None:
    lite.ok(JOBS + "w = WATCH j: Job [mode: consume] RETURN j")
    lite.ok('SPAWN a: Job { title = "a" }')
    spent = lite.consumed[0]["delivery_id"]
    lite.ok(first, id=spent)
    before = (count(lite), count(lite, "_DeadLetter"))
    lite.refused(second, "E8004", f"'{spent}'", id=spent)
    assert (count(lite), count(lite, "_DeadLetter")) == before


def test_id_that_is_not_ours_or_is_tampered_with(jobs: Prompt) -> None:
    good = jobs.consumed[0]["delivery_id"]
    for bad in ("", "x" * 500, good + "0", good[:-1], "L1-00000000.0.4", good.replace(".0.", ".1."), "' OR 1=1 --"):
        jobs.refused("ACK $id", "E8004", id=bad)
    jobs.refused("ACK $id", "constraint", "a delivery id is a string", id=7)
    assert jobs.ok("ACK $id", id=good)["deleted"] == 1


def test_item_killed_elsewhere_while_pending(jobs: Prompt) -> None:
    first = jobs.consumed[0]["delivery_id"]
    jobs.ok("KILL #a")
    done = jobs.ok("ACK $id", id=first)
    assert (done["outcome"], done["deleted"]) == ("acked", 0)
    jobs.ok('SPAWN b: Job { title = "b" }')
    jobs.ok("KILL #b")
    assert jobs.ok("NACK $delivery_id")["outcome"] == "deleted"
    assert jobs.events == []
    assert count(jobs, "_DeadLetter") == 0


def test_edited_while_pending_so_that_it_no_longer_matches(jobs: Prompt) -> None:
    jobs.ok('SET #a.state = "running"')
    assert jobs.ok("ACK $delivery_id")["deleted"] == 1
    jobs.ok('SPAWN b: Job { title = "b" }')
    jobs.ok('SET #b.state = "running"')
    assert jobs.ok("NACK $delivery_id")["outcome"] == "requeued"
    assert jobs.consumed == []
    jobs.ok('SET #b.state = "pending"')
    assert [event["attempt"] for event in jobs.consumed] == [2]


def test_kill_that_is_prevented_leaves_the_delivery_pending(jobs: Prompt) -> None:
    jobs.ok('SPAWN guard: Box { name = "guard" } LINK guards(#guard, #a)')
    jobs.refused("ACK $delivery_id", "E3302", "referenced by 'guards' with prevent action")
    jobs.ok("UNLINK guards(#guard, #a)")
    assert jobs.ok("ACK $delivery_id")["deleted"] == 1


def test_ack_kills_along_what_its_edges_say(jobs: Prompt) -> None:
    jobs.ok('SPAWN n: Note { text = "n" } LINK about(#n, #a) SPAWN b: Box { name = "b" } LINK waits_in(#a, #b)')
    done = jobs.ok("ACK $delivery_id")
    assert (done["deleted"], done["unlinked"]) == (2, 2)
    assert count(jobs, "Note") == 0
    assert count(jobs, "Box") == 1


def test_pending_is_hidden_from_consumers_only(jobs: Prompt) -> None:
    other = jobs.another()
    other.ok("o = WATCH j: Job [mode: consume] RETURN j v = WATCH j: Job RETURN j.title")
    assert other.consumed == []
    assert [event["matches"] for event in other.events if event["watch"] == "#v"] == [[{"j.title": "a"}]]
    assert jobs.ok("INSPECT #a")["found"] is True
    jobs.ok("ACK $delivery_id")
    other.fetch()
    assert [(event["watch"], event["type"]) for event in other.events] == [("#v", "removed")]
    other.session.close()


def test_timeout_is_a_failure_and_the_limit_counts_both(jobs: Prompt) -> None:
    jobs.advance(30)
    jobs.ok("NACK $delivery_id")
    jobs.advance(29.999)
    assert jobs.events == []
    jobs.advance(0.001)
    assert [notice["code"] for notice in jobs.notices] == ["E8003"]
    assert jobs.consumed == []
    assert jobs.rows("MATCH l: _DeadLetter RETURN l.failure_reason, l.delivery_attempts") == [
        ["max_redeliveries_exceeded", 3]
    ]
    assert count(jobs) == 0


def test_items_that_die_by_timeout_have_a_dead_letter_each(prompt: Prompt) -> None:
    prompt.ok(JOBS + "w = WATCH j: Job [mode: consume, max_redeliveries: 1] RETURN j")
    prompt.ok('SPAWN a: Job { title = "a" } SPAWN b: Job { title = "b" }')
    prompt.advance(30)
    prompt.ok('SPAWN c: Job { title = "c" }')
    prompt.advance(30)
    assert (count(prompt), count(prompt, "_DeadLetter")) == (0, 3)


def test_backlog_is_looked_through_to_its_end(lite: Prompt) -> None:
    lite.ok(JOBS)
    for begin in range(0, 1201, 400):
        numbers = range(begin, min(begin + 400, 1201))
        spawns = (f'SPAWN s{n}: Job {{ title = "{"odd" if n % 300 else "even"} {n}" }}' for n in numbers)
        lite.ok(", ".join(spawns))
    lite.ok('w = WATCH j: Job WHERE starts_with(j.title, "even") [mode: consume] RETURN j')
    assert [event["match"]["title"] for event in lite.consumed] == [f"even {n}" for n in range(0, 1201, 300)]


def test_id_expires_at_deadline_without_sweep(jobs: Prompt) -> None:
    jobs.clock.advance(30)
    jobs.refused("ACK $delivery_id", "E8004")
    assert count(jobs) == 1


def test_counter_survives_other_member_and_free_release(jobs: Prompt) -> None:
    jobs.ok("NACK $delivery_id")
    jobs.ok("CANCEL WATCH #w")
    other = jobs.another()
    other.ok("o = WATCH j: Job [mode: consume] RETURN j")
    assert [event["attempt"] for event in other.consumed] == [3]
    other.ok("NACK $delivery_id")
    dead = other.ok("NACK $delivery_id")
    assert (dead["outcome"], dead["attempts"]) == ("deleted", 4)
    other.session.close()


def test_cancel_releases_and_its_ids_are_over(jobs: Prompt) -> None:
    held = jobs.consumed[0]["delivery_id"]
    jobs.ok("CANCEL WATCH #w")
    jobs.refused("ACK $id", "E8004", id=held)
    jobs.ok("x = WATCH j: Job [mode: consume, max_redeliveries: 1] RETURN j")
    assert [event["attempt"] for event in jobs.consumed] == [2]


def test_clean_end_releases_and_a_lost_connection_counts(graph_url: str, clock: ManualClock) -> None:
    with Session(graph_url, clock=clock) as owner:
        owner.run(JOBS + 'SPAWN a: Job { title = "a" }')
        for lost in (False, True, True):
            worker = owner.another()
            (event,) = [e for e in worker.watch("WATCH j: Job [mode: consume] RETURN j", wait=0) if e.delivery_id]
            worker.close(lost=lost)
        assert event.attempt == 3
        worker = owner.another()
        (event,) = [e for e in worker.watch("WATCH j: Job [mode: consume] RETURN j", wait=0) if e.delivery_id]
        done = worker.nack(event).done
        assert (done.outcome, done.attempts) == ("deleted", 4)
        worker.close()


def test_restart_leaves_counters_and_deadlines_as_they_were(graph_url: str, clock: ManualClock) -> None:
    first = Session(graph_url, clock=clock)
    first.run(JOBS + 'SPAWN a: Job { title = "a" } SPAWN b: Job { title = "b" }')
    one, two = [e for e in first.watch("WATCH j: Job [mode: consume] RETURN j", wait=0) if e.delivery_id]
    first._backend.broker.close()  # type: ignore[union-attr]
    clock.advance(20)
    with Session(graph_url, clock=clock) as second:
        assert second.ack(one).done.outcome == "acked"
        assert [e for e in second.watch("WATCH j: Job [mode: consume] RETURN j", wait=0) if e.delivery_id] == []
        clock.advance(10)
        (again,) = second.events()
        assert again.match is not None
        assert (again.match["title"], again.attempt) == ("b", 2)
        assert two.delivery_id != again.delivery_id


def test_any_holder_of_the_id_may_settle(jobs: Prompt) -> None:
    held = jobs.consumed[0]["delivery_id"]
    other = jobs.another()
    assert other.ok("ACK $id", id=held)["outcome"] == "acked"
    other.session.close()


def test_pause_keeps_what_was_handed_out_and_hands_out_no_more(jobs: Prompt) -> None:
    held = jobs.consumed[0]["delivery_id"]
    jobs.ok('PAUSE WATCH #w SPAWN b: Job { title = "b" }')
    assert jobs.events == []
    assert jobs.ok("ACK $id", id=held)["outcome"] == "acked"
    jobs.ok("RESUME WATCH #w")
    assert [event["match"]["title"] for event in jobs.consumed] == ["b"]
    jobs.ok("PAUSE WATCH #w")
    jobs.advance(30)
    assert jobs.consumed == []
    assert jobs.rows("MATCH w: _Watch WHERE w.id = #w RETURN w.events_pending") == [[0]]


def test_ack_in_a_transaction_is_atomic_with_the_rest(jobs: Prompt) -> None:
    held = jobs.consumed[0]["delivery_id"]
    jobs.ok('BEGIN SPAWN n: Note { text = "result" } ACK $id', id=held)
    assert (count(jobs), jobs.rows("MATCH n: Note RETURN n.text")) == (0, [["result"]])
    jobs.ok("ROLLBACK")
    assert (count(jobs), count(jobs, "Note")) == (1, 0)
    commit = jobs.ok('BEGIN SPAWN n: Note { text = "result" } ACK $id COMMIT', id=held)
    assert (commit["created"], commit["deleted"]) == (1, 1)
    assert (count(jobs), count(jobs, "Note")) == (0, 1)


def test_expired_delivery_rolls_transaction_back(jobs: Prompt) -> None:
    jobs.ok('BEGIN SPAWN n: Note { text = "result" } ACK $delivery_id')
    jobs.clock.advance(30)
    jobs.refused("COMMIT", "E8004")
    assert (count(jobs), count(jobs, "Note")) == (1, 0)


def test_failing_statement_ends_the_transaction(jobs: Prompt) -> None:
    held = jobs.consumed[0]["delivery_id"]
    jobs.ok('BEGIN SPAWN n: Note { text = "n" }')
    jobs.refused("SPAWN x: Nothing", "constraint")
    jobs.refused('SPAWN m: Note { text = "m" }', "constraint", "rolled back")
    jobs.refused("COMMIT", "constraint", "rolled back")
    assert count(jobs, "Note") == 0
    jobs.ok('BEGIN NACK $id [no_retry] SPAWN n: Note { text = "n" } COMMIT', id=held)
    assert (count(jobs), count(jobs, "Note"), count(jobs, "_DeadLetter")) == (0, 1, 1)


def test_dead_letter_that_fails_in_a_transaction_rolls_it_back(prompt: Prompt) -> None:
    prompt.ok(JOBS + "w = WATCH j: Job [mode: consume, dead_letter: #gone] RETURN j")
    prompt.ok('SPAWN a: Job { title = "a" }')
    held = prompt.consumed[0]["delivery_id"]
    prompt.refused('BEGIN SPAWN n: Note { text = "n" } NACK $id [no_retry]', "E8007", id=held)
    prompt.ok("ROLLBACK")
    assert (count(prompt, "Note"), count(prompt, "_DeadLetter")) == (0, 0)
    assert prompt.ok("ACK $id", id=held)["outcome"] == "acked"


def test_returned_item_keeps_place_and_attributes_are_reread(prompt: Prompt) -> None:
    prompt.ok(JOBS)
    prompt.ok("w = WATCH j: Job [mode: consume, buffer: 1] RETURN j")
    prompt.ok('SPAWN a: Job { title = "a" } SPAWN b: Job { title = "b" }')
    prompt.ok("NACK $delivery_id")
    assert [event["match"]["title"] for event in prompt.consumed] == ["a"]
    prompt.ok("CANCEL WATCH #w")
    prompt.ok("p = WATCH j: Job [mode: consume, buffer: 1, ordering: attribute(j.size DESC, j.title)] RETURN j")
    assert [event["match"]["title"] for event in prompt.consumed] == ["a"]
    prompt.ok("SET #b.size = 5 NACK $delivery_id")
    assert [event["match"]["title"] for event in prompt.consumed] == ["b"]


def test_two_matches_of_one_item_are_one_delivery(prompt: Prompt) -> None:
    prompt.ok(JOBS)
    prompt.ok('SPAWN x: Box { name = "x" } SPAWN y: Box { name = "y" } SPAWN a: Job { title = "a" }')
    prompt.ok("LINK waits_in(#a, #x) LINK waits_in(#a, #y)")
    prompt.ok("w = WATCH j: Job, b: Box, waits_in(j, b) [mode: consume] RETURN j.title, b.name")
    assert len(prompt.consumed) == 1
    prompt.ok("ACK $delivery_id")
    assert prompt.consumed == []


def test_undeletable_dead_item_is_held_and_reported(prompt: Prompt) -> None:
    prompt.ok("node J { n: Int } node K {} node L {}")
    prompt.ok("edge own(j: J, k: K) [on_kill_source: cascade] edge on(k: K, l: L) [on_kill_source: prevent]")
    prompt.ok("SPAWN j: J { n = 1 } SPAWN k: K SPAWN l: L LINK own(#j, #k) LINK on(#k, #l)")
    prompt.ok("w = WATCH j: J [mode: consume, ack_timeout: 10s, max_redeliveries: 1] RETURN j.n")
    prompt.refused("NACK $delivery_id [no_retry]", "E8007", "referenced by 'on' with prevent action")
    (result,) = [line for line in prompt.lines if line["kind"] == "result"]
    assert (result["outcome"], result["deleted"], result["unlinked"]) == ("dead_lettered", 0, 0)
    assert prompt.rows("MATCH j: J, own(j, k) RETURN j.n") == [[1]]
    assert prompt.consumed == []
    prompt.ok("UNLINK _dead_letter_item(_, #j)")
    assert len(prompt.consumed) == 1
    prompt.advance(11)
    assert [note["code"] for note in prompt.notices] == ["E8003", "E8007"]
    assert prompt.consumed == []
    prompt.ok("UNLINK on(#k, #l) UNLINK _dead_letter_item(_, #j)")
    assert prompt.ok("NACK $delivery_id [no_retry]")["outcome"] == "deleted"
    assert prompt.rows("MATCH j: J RETURN j") == []


CARDINAL = """node Box {} node Dock {} node Parcel { label: String } edge at(parcel: Parcel, dock: Dock) [dock -> 1..*]
BEGIN SPAWN d: Dock SPAWN a: Parcel { label = "A" } LINK at(#a, #d) COMMIT"""


@pytest.mark.parametrize("first", ["MATCH p: Parcel RETURN p", "SPAWN z: Box", ""])
def test_timeout_that_breaks_rule_holds_item_and_fails_none(prompt: Prompt, first: str) -> None:
    prompt.ok(CARDINAL)
    prompt.ok(
        'w = WATCH p: Parcel WHERE p.label = "A" [mode: consume, ack_timeout: 10s, max_redeliveries: 1] RETURN p.label'
    )
    other = prompt.another()
    other.ok("v = WATCH p: Parcel RETURN p.label")
    prompt.clock.advance(11)
    assert [line for line in other(first) if line["kind"] == "error"] == []
    prompt.fetch()
    assert [note["code"] for note in prompt.notices] == ["E8003", "E8007"]
    assert "cardinality" in prompt.notices[1]["message"]
    assert prompt.rows("MATCH p: Parcel, at(p, d) RETURN p.label") == [["A"]]
    assert prompt.rows("MATCH l: _DeadLetter RETURN l.failure_reason") == [["max_redeliveries_exceeded"]]
    prompt.ok('SPAWN b: Parcel { label = "B" } LINK at(#b, #d) UNLINK _dead_letter_item(_, #a)')
    prompt.advance(11)
    assert prompt.rows("MATCH p: Parcel WHERE p.label = $label RETURN p", label="A") == []
    other.fetch()
    assert ("removed", {"p.label": "A"}) in [(event["type"], event["match"]) for event in other.events]
    other.session.close()


def test_lost_connection_that_breaks_rule_holds_item(prompt: Prompt) -> None:
    prompt.ok(CARDINAL)
    other = prompt.another()
    other.ok("w = WATCH p: Parcel [mode: consume, max_redeliveries: 1] RETURN p.label")
    other.session.close(lost=True)
    assert prompt.rows("MATCH p: Parcel, at(p, d) RETURN p.label") == [["A"]]
    assert prompt.rows("MATCH l: _DeadLetter RETURN COUNT(l)") == [[1]]
    assert prompt.rows("MATCH w: _Watch RETURN w.status") == [["cancelled"]]


def test_timeout_is_not_held_up_by_a_full_buffer(jobs: Prompt) -> None:
    other = jobs.another()
    other.ok("v = WATCH j: Job [buffer: 1, on_full: block] RETURN j.title PAUSE WATCH #v")
    jobs.ok("CANCEL WATCH #w u = WATCH j: Job [mode: consume, ack_timeout: 10s, max_redeliveries: 1] RETURN j")
    jobs.ok("SET #a.title = $title", title="b")
    jobs.refused("SET #a.title = $title", "constraint", "holds this statement up", title="c")
    jobs.advance(11)
    assert [note["code"] for note in jobs.notices] == ["E8003"]
    assert count(jobs) == 0
    other.ok("RESUME WATCH #v")
    assert [event["type"] for event in other.events] == ["changed", "removed"]
    other.session.close()


@pytest.mark.parametrize("visibility", ["committed", "immediate"])
def test_watch_sees_removal_by_timeout_and_lost_connection(jobs: Prompt, visibility: str) -> None:
    other = jobs.another()
    other.ok(f"v = WATCH j: Job [visibility: {visibility}] RETURN j.title")
    jobs.ok("CANCEL WATCH #w u = WATCH j: Job [mode: consume, ack_timeout: 10s, max_redeliveries: 1] RETURN j")
    jobs.advance(11)
    other.fetch()
    assert [(event["type"], event["match"]) for event in other.events] == [("removed", {"j.title": "a"})]
    jobs.session.run('SPAWN b: Job { title = "b" }')
    lost = jobs.another()
    jobs.ok("CANCEL WATCH #u")
    lost.ok("u = WATCH j: Job [mode: consume, max_redeliveries: 1] RETURN j")
    lost.session.close(lost=True)
    other.fetch()
    assert [(event["type"], event["match"]["j.title"]) for event in other.events] == [("added", "b"), ("removed", "b")]
    other.session.close()
