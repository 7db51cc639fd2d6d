"""Events of turns: one per kind, queue and group, after the commit, on every store."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pytest

from ackwise.core import commands as c
from ackwise.core import events as e
from ackwise.core.answers import Result
from ackwise.core.errors import AckwiseError
from ackwise.core.messages import QUEUE_MODE, NewMessage
from ackwise.engine.turn import Turn
from ackwise.engine.turn_events import TurnReport, report_of
from ackwise.store import turn_runner
from tests.engine.store_harness import StoreHarness, entry


@pytest.fixture
def heard(harness: StoreHarness) -> Iterator[list[e.Event]]:
    """Events since the queue was configured, without the commits."""
    harness.configure(retry_limit=1)
    events: list[e.Event] = []

    def listen(event: e.Event) -> None:
        if not isinstance(event, e.TurnCommitted):
            events.append(event)

    stop = harness.store.events.subscribe(listen)
    yield events
    stop()


def test_push_claim_and_ack(harness: StoreHarness, heard: list[e.Event]) -> None:
    harness.number(3)
    harness.number(3)
    hand = harness.claim(10)
    harness.ack(*hand.deliveries)
    harness.ack(*hand.deliveries)
    assert heard == [
        e.MessagesPushed("q", 3),
        e.MessagesPushed("q", 0, duplicates=3),
        e.MessagesClaimed("q", QUEUE_MODE, 3),
        e.MessagesSettled("q", QUEUE_MODE, "acked", 3, {0: 3}),
        e.RequestsRefused("already", 3),
    ]


def test_turn_emits_one_event_for_several_commands(harness: StoreHarness, heard: list[e.Event]) -> None:
    harness.together(*(c.Push(queue="q", messages=[NewMessage(body)]) for body in (b"a", b"b", b"c")))
    assert heard == [e.MessagesPushed("q", 3)]


def test_dead_letters_are_named(harness: StoreHarness, heard: list[e.Event]) -> None:
    harness.push("a", "b")
    hand = harness.claim(2)
    harness.settle(*(entry(d, "reject", error="bad") for d in hand.deliveries))
    letters = sorted(harness.dead(), key=lambda letter: letter.id)
    assert heard[2:] == [
        e.MessagesSettled("q", QUEUE_MODE, "dead", 2, {0: 2}),
        *(e.DeadLetterAdded("q", QUEUE_MODE, letter.id, "rejected", letter.error, 1) for letter in letters),
    ]


def test_expiry_promotion_and_pruning(harness: StoreHarness, heard: list[e.Event]) -> None:
    harness.configure(retry_limit=5, retention_seconds=60)
    harness.push("a")
    harness.push("late", delay=5)
    harness.claim(1, seconds=1)
    heard.clear()
    harness.clock.advance(6)
    harness.sweep()
    assert set(heard) == {e.LeasesExpired("q", QUEUE_MODE, 1, 1), e.MessagesPromoted("q", 1)}
    harness.ack(*harness.claim(2).deliveries)
    heard.clear()
    harness.clock.advance(100)
    harness.sweep()
    assert e.MessagesPruned("q", 2) in heard


def test_refused_commands_are_counted_by_code(harness: StoreHarness, heard: list[e.Event]) -> None:
    with pytest.raises(AckwiseError):
        harness.do(c.PauseQueue(queue="none"))
    assert heard == [e.RequestsRefused("unknown_queue", 1)]


def test_refused_extension_is_counted_by_verdict(harness: StoreHarness, heard: list[e.Event]) -> None:
    harness.do(c.Extend(lease_id="L1-00000001", lease=1000))
    assert heard == [e.RequestsRefused("unknown", 1)]


def test_undone_settlements_are_not_heard(harness: StoreHarness, heard: list[e.Event]) -> None:
    harness.push("a")
    delivery = harness.take()
    heard.clear()
    harness.settle(entry(delivery, "reject"), entry("1.1.1.1", "ack"), atomic=True)
    assert [type(event) for event in heard] == [e.RequestsRefused, e.RequestsRefused]


def test_commit_tells_its_size(harness: StoreHarness) -> None:
    commits: list[e.TurnCommitted] = []
    stop = harness.store.events.subscribe(commits.append, e.TurnCommitted)
    harness.number(5)
    stop()
    assert [(commit.commands, commit.messages) for commit in commits] == [(1, 5)]
    assert commits[0].seconds > 0


def test_turn_without_listener_builds_no_event(harness: StoreHarness, monkeypatch: pytest.MonkeyPatch) -> None:
    built: list[TurnReport] = []

    def note(turn: Turn, results: Sequence[Result], seconds: float) -> TurnReport:
        built.append(report_of(turn, results, seconds))
        return built[-1]

    monkeypatch.setattr(turn_runner, "report_of", note)
    harness.number(3)
    harness.ack(*harness.claim(3).deliveries)
    assert built == []
    harness.store.events.subscribe(lambda event: None)
    harness.number(1)
    assert len(built) == 1


def test_keeper_gets_the_events_of_a_turn_when_it_asks(harness: StoreHarness) -> None:
    kept: list[e.Event | e.EventSource] = []
    heard: list[e.Event] = []
    stop = harness.store.events.keep(kept.append)
    harness.number(3)
    harness.store.events.subscribe(heard.append)
    harness.claim(2)
    stop()
    first, second = [source.events() for source in kept if isinstance(source, TurnReport)]
    assert first[0] == e.MessagesPushed("q", 3)
    assert second == heard
    assert [type(event) for event in second] == [e.MessagesClaimed, e.TurnCommitted]


def test_turn_is_answered_although_its_events_fail(
    harness: StoreHarness, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(*_: object) -> None:
        raise ValueError("no")

    monkeypatch.setattr(turn_runner, "report_of", fail)
    harness.store.events.subscribe(lambda event: None)
    assert [receipt.status for receipt in harness.number(3)] == ["queued"] * 3
    assert "a committed turn could not be announced" in caplog.text
