"""The state machine: one table, its picture, and that the decisions stay inside it."""

from __future__ import annotations

import pytest

from ackwise.core.lifecycle import TRANSITIONS, Guard, LifecycleEvent, State, mermaid, target
from tools.state_machine import EVENTS, PAGE, STATES, page

BORN = {State.SCHEDULED, State.READY}


def test_every_state_can_be_reached() -> None:
    reached = set(BORN)
    while more := {t.target for t in TRANSITIONS if t.source in reached} - reached:
        reached |= more
    assert reached == set(State)


def test_every_event_and_guard_is_used() -> None:
    assert {t.event for t in TRANSITIONS} == set(LifecycleEvent)
    assert {t.guard for t in TRANSITIONS} == set(Guard)


def test_transition_table_has_distinct_keys() -> None:
    keys = [(t.source, t.event, t.guard) for t in TRANSITIONS]
    assert len(keys) == len(set(keys))


def test_acked_state_is_left_by_seek_only() -> None:
    """Acked is final until an operator says otherwise."""
    assert {t.event for t in TRANSITIONS if t.source is State.ACKED} == {LifecycleEvent.SEEK}


def test_dead_state_is_left_by_seek_and_redrive_only() -> None:
    assert {t.event for t in TRANSITIONS if t.source is State.DEAD} == {LifecycleEvent.SEEK, LifecycleEvent.REDRIVE}


def test_leased_always_has_a_way_on() -> None:
    ways = {t.event for t in TRANSITIONS if t.source is State.LEASED}
    assert ways == {
        LifecycleEvent.ACK,
        LifecycleEvent.RETRY,
        LifecycleEvent.REJECT,
        LifecycleEvent.RELEASE,
        LifecycleEvent.LEASE_EXPIRY,
        LifecycleEvent.SEEK,
    }


@pytest.mark.parametrize("state", sorted(set(State) - {State.SCHEDULED}))
def test_seek_leaves_every_message_ready_or_skipped(state: State) -> None:
    back, forth = {State.READY: State.READY}, {State.SKIPPED: State.SKIPPED}
    assert back.get(state) or target(state, LifecycleEvent.SEEK, Guard.AHEAD) is State.READY
    assert forth.get(state) or target(state, LifecycleEvent.SEEK, Guard.BEHIND) is State.SKIPPED


def test_transition_missing_in_the_table_raises_key_error() -> None:
    with pytest.raises(KeyError):
        target(State.ACKED, LifecycleEvent.RETRY, Guard.AGAIN)


def test_picture_has_a_line_per_row() -> None:
    lines = mermaid().splitlines()
    assert lines[0] == "stateDiagram-v2"
    assert len(lines) == 3 + len(TRANSITIONS)
    assert "    leased --> acked: ack" in lines


def test_document_explains_every_state_and_event() -> None:
    assert set(STATES) == set(State)
    assert set(EVENTS) == set(LifecycleEvent)


def test_document_is_up_to_date() -> None:
    assert PAGE.read_text() == page(), "run .venv/bin/python tools/state_machine.py"
