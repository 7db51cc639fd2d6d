"""The specification of ACK and NACK, section by section, with its own texts."""

from __future__ import annotations

import json

import pytest

from ackwise.graph.language import parse
from tests.mew.prompt import Prompt

EXAMPLES = """
-- Acknowledge successful processing
ACK "delivery_abc123"

-- Acknowledge using variable
ACK $deliveryId

-- Reject and request redelivery
NACK "delivery_abc123"

-- Reject without redelivery (move to dead letter)
NACK "delivery_abc123" [no_retry]
"""
BASIC = """
WATCH j: Job WHERE j.status = "pending"
  [mode: consume]
  [ack_timeout: 30s]
  [max_redeliveries: 3]
  [dead_letter: #failed_jobs]
  RETURN j
"""
COMPETING = """
WATCH j: Job WHERE j.status = "pending"
  [mode: consume]
  [group: "workers"]
  [ack_timeout: 60s]
  RETURN j
"""


@pytest.fixture
def jobs(prompt: Prompt) -> Prompt:
    prompt.ok('node Job { payload: String, status: String = "pending" } node Tray { name: String }')
    prompt.ok('SPAWN failed_jobs: Tray { name = "failed" }')
    return prompt


def spawn(jobs: Prompt, payload: str = "...") -> str:
    jobs.ok("SPAWN job: Job { payload = $payload }", payload=payload)
    found: str = jobs.consumed[0]["delivery_id"]
    return found


def letters(jobs: Prompt) -> list[list[object]]:
    return jobs.rows("MATCH l: _DeadLetter RETURN l.failure_reason, l.delivery_attempts")


def count(jobs: Prompt) -> int:
    found: int = jobs.rows("MATCH j: Job RETURN COUNT(j)")[0][0]
    return found


def test_examples_of_the_syntax_are_read() -> None:
    parsed = parse(EXAMPLES)
    assert parsed.error is None
    assert [(s.verb, s.no_retry) for s in parsed.statements] == [  # type: ignore[union-attr]
        ("ACK", False), ("ACK", False), ("NACK", False), ("NACK", True),
    ]  # fmt: skip


def test_ack_deletes_the_item(jobs: Prompt) -> None:
    jobs.ok(BASIC)
    delivery = spawn(jobs)
    event = jobs.consumed[0]
    assert set(event) == {"kind", "watch", "type", "match", "delivery_id", "tick", "attempt"}
    assert event["match"]["payload"] == "..."
    assert event["match"]["id"]
    assert jobs.ok(f'ACK "{delivery}"')["outcome"] == "acked"
    assert jobs.events == []
    assert (count(jobs), letters(jobs)) == (0, [])


def test_nack_requeues_the_item(jobs: Prompt) -> None:
    jobs.ok(BASIC)
    delivery = spawn(jobs)
    assert jobs.ok(f'NACK "{delivery}"')["outcome"] == "requeued"
    assert jobs.consumed[0]["delivery_id"] != delivery
    assert jobs.consumed[0]["attempt"] == 2


def test_nack_with_no_retry(jobs: Prompt) -> None:
    jobs.ok(BASIC)
    delivery = spawn(jobs, "to the tray")
    assert jobs.ok(f'NACK "{delivery}" [no_retry]')["outcome"] == "dead_lettered"
    assert jobs.events == []
    assert jobs.rows("MATCH _dead_letter_item(#failed_jobs, j) RETURN j.payload") == [["to the tray"]]
    jobs.ok("MATCH j: Job KILL j CANCEL WATCH #watch_1")
    jobs.ok('WATCH j: Job WHERE j.status = "pending" [mode: consume] [ack_timeout: 30s] RETURN j')
    assert jobs.ok(f'NACK "{spawn(jobs)}" [no_retry]')["outcome"] == "deleted"
    assert count(jobs) == 0


def test_timeout_requeues_the_item_with_a_notice(jobs: Prompt) -> None:
    jobs.ok(BASIC)
    delivery = spawn(jobs)
    jobs.advance(30)
    assert [notice["message"] for notice in jobs.notices] == [
        f"Acknowledgment timeout: delivery '{delivery}' not acknowledged within 30s"
    ]
    assert jobs.consumed[0]["attempt"] == 2


def test_query_after_a_timeout_sees_the_dead_letter(jobs: Prompt) -> None:
    jobs.ok("WATCH j: Job [mode: consume, max_redeliveries: 1] RETURN j")
    spawn(jobs)
    jobs.clock.advance(30)
    assert jobs.session.query("MATCH l: _DeadLetter RETURN l.failure_reason") == [
        {"l.failure_reason": "max_redeliveries_exceeded"}
    ]


@pytest.mark.parametrize("dead_letter", ["[dead_letter: #failed_jobs]", ""])
def test_redelivery_limit_ends_in_a_dead_letter(jobs: Prompt, dead_letter: str) -> None:
    jobs.ok(f'WATCH j: Job WHERE j.status = "pending" [mode: consume] [max_redeliveries: 3] {dead_letter} RETURN j')
    spawn(jobs)
    jobs.ok("NACK $delivery_id")
    jobs.advance(30)
    jobs.ok("NACK $delivery_id")
    assert jobs.consumed == []
    jobs.advance(3600)
    assert jobs.consumed == []
    assert letters(jobs) == [["max_redeliveries_exceeded", 3]]
    assert count(jobs) == (1 if dead_letter else 0)


def test_delivery_id_is_new_for_each_delivery(jobs: Prompt) -> None:
    jobs.ok(BASIC)
    seen = {spawn(jobs)}
    for _ in range(2):
        jobs.ok("NACK $delivery_id")
        seen |= {event["delivery_id"] for event in jobs.consumed}
    assert len(seen) == 3
    assert all(len(found) <= 128 and not set(found) & set(",\"'\\") for found in seen)


def test_layer_0_shows_events_and_dead_letters(jobs: Prompt) -> None:
    jobs.ok("w = " + BASIC.strip())
    delivery = spawn(jobs, "p")
    rows = jobs.rows(
        "MATCH e: _WatchEvent, _watch_event(#w, e) RETURN e.event_type, e.delivery_id, e.tick, e.created_at"
    )
    assert [row[:2] for row in rows] == [["initial", None], ["consumed", delivery]]
    assert all(isinstance(tick, int) and made == jobs.clock.now() // 1000 for _, _, tick, made in rows)
    jobs.ok("NACK $delivery_id [no_retry]")
    ((match, reason, attempts, made),) = jobs.rows(
        "MATCH l: _DeadLetter, _watch_dead_letter(#w, l) "
        "RETURN l.original_match, l.failure_reason, l.delivery_attempts, l.created_at"
    )
    assert json.loads(match)["payload"] == "p"
    assert (reason, attempts, made) == ("no_retry", 1, jobs.clock.now() // 1000)


def test_competing_consumers_share_the_items(jobs: Prompt) -> None:
    other = jobs.another()
    jobs.ok(COMPETING)
    other.ok(COMPETING)
    jobs.session.run('SPAWN job_1: Job { payload = "1" } SPAWN job_2: Job { payload = "2" }')
    (first,), (second,) = jobs.session.events(1), other.session.events(1)
    assert {event.match["payload"] for event in (first, second) if event.match} == {"1", "2"}
    assert jobs.session.ack(first).done.deleted == 1
    assert other.session.nack(second).done.outcome == "requeued"
    assert [event.match["payload"] for event in jobs.session.events() if event.match] == ["2"]
    other.session.close()


def test_errors_have_the_codes_of_the_specification(jobs: Prompt) -> None:
    jobs.refused('ACK "d123"', "E8004", "Invalid delivery ID: 'd123' not found or already processed")
    jobs.ok("WATCH j: Job [mode: consume] [dead_letter: #dlq_node] RETURN j")
    delivery = spawn(jobs)
    jobs.refused(
        f'NACK "{delivery}" [no_retry]',
        "E8007",
        f"Dead letter failed: could not move delivery '{delivery}' to '#dlq_node' - node not found",
    )
