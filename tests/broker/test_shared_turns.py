"""Turns: concurrent commands share one commit, and a bad command fails alone."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import apsw
import pytest

from ackwise.broker import turn_queue
from ackwise.core.commands import ByDelivery as Delivery
from ackwise.core.commands import Claim, Command, Push, Settle, Settlement
from ackwise.core.errors import AckwiseError, BadInput, StoreError, UnknownQueue
from ackwise.core.messages import NewMessage
from ackwise.core.queries import Browse
from ackwise.core.settlement import Outcome
from ackwise.engine import runner
from tests.broker.both_brokers import AnyBroker, waiting
from tests.broker.watched import Errand, WatchedStore, bodies, claim, push, settle, until
from tests.patience import PATIENCE

HANDLERS: dict[Any, Any] = runner._HANDLERS


def merged(watched_broker: AnyBroker, watched: WatchedStore, calls: Sequence[Callable[[], Any]]) -> list[Errand]:
    """Make these calls share one turn: the one before it is held up until all of them wait."""
    watched.hold()
    first = Errand(lambda: watched_broker.send(push("first")))
    assert watched.waiting.wait(PATIENCE)
    errands = [Errand(call) for call in calls]
    until(lambda: waiting(watched_broker) == len(calls))
    turns = len(watched.turns)
    watched.gate.set()
    first.result()
    for errand in errands:
        errand.join(PATIENCE)
    assert watched.turns[turns + 1] == len(calls), "they were to share one turn"
    return errands


def test_answers_go_to_those_who_asked(watched_broker: AnyBroker, watched: WatchedStore) -> None:
    calls = [partial(watched_broker.send, push(f"m{i}", transaction_id=f"t{i}")) for i in range(50)]
    errands = merged(watched_broker, watched, calls)
    assert [e.result()[0].transaction_id for e in errands] == [f"t{i}" for i in range(50)]


INVALID: list[Command] = [
    Push(queue="", messages=[NewMessage(b"x")]),
    Push(queue="q", messages=[NewMessage(b"x", delay=-1)]),
    Push(queue="q", messages=[NewMessage(b"x", "a\0b")]),
    Claim(queue="q", most=0),
    Settle(entries=[Settlement(selector=Delivery("nonsense"), outcome=Outcome.ACK, delay=-5)]),
]


def test_command_that_a_turn_refuses_fails_alone(watched_broker: AnyBroker, watched: WatchedStore) -> None:
    refused: list[Command] = [Claim(queue="nowhere"), Push(queue="none", messages=[NewMessage(b"x")], create=None)]
    calls = [partial(watched_broker.send, c) for bad in refused for c in (bad, push("good"))]
    errands = merged(watched_broker, watched, calls)
    for errand in errands[::2]:
        with pytest.raises(UnknownQueue):
            errand.result()
    assert [errand.result()[0].status for errand in errands[1::2]] == ["queued"] * 2


def test_invalid_command_joins_no_turn(watched_broker: AnyBroker, watched: WatchedStore) -> None:
    turns = len(watched.turns)
    for command in INVALID:
        with pytest.raises(BadInput):
            watched_broker.send(command)
    assert len(watched.turns) == turns


def test_invalid_commands_of_a_call_fail_alone(watched_broker: AnyBroker, watched: WatchedStore) -> None:
    answers: list[Any] = [*watched_broker.send_all([c for bad in INVALID for c in (bad, push("good"))])]
    assert all(isinstance(refusal, BadInput) for refusal in answers[::2])
    assert [receipts[0].status for receipts in answers[1::2]] == ["queued"] * len(INVALID)
    assert watched.turns[-1] == len(INVALID)


@pytest.mark.parametrize("fault", [apsw.SQLError("no such thing"), RuntimeError("a bug")])
def test_unexpected_error_is_the_answer_of_one_caller(
    watched_broker: AnyBroker, watched: WatchedStore, monkeypatch: pytest.MonkeyPatch, fault: Exception
) -> None:
    """The turn is rolled back and its commands are run one by one."""
    handler = HANDLERS[Claim]

    def explode(turn: Any, command: Claim) -> Any:
        if command.group == "cursed":
            turn.session.run("instance_beat", {"id": "half done", "now": 1})
            raise fault
        return handler(turn, command)

    watched_broker.send(push("zero"))
    monkeypatch.setitem(HANDLERS, Claim, explode)
    calls: list[Callable[[], Any]] = [
        lambda: watched_broker.send(push("a")),
        lambda: watched_broker.claim(claim(group="cursed")),
        lambda: watched_broker.send(push("b")),
        lambda: watched_broker.claim(claim(100)),
    ]
    pushed, cursed, also_pushed, claimed = merged(watched_broker, watched, calls)
    with pytest.raises(AckwiseError):
        cursed.result()
    assert pushed.result()[0].status == also_pushed.result()[0].status == "queued"
    assert "zero" in bodies(claimed.result())
    assert {b.message.payload for b in watched_broker.ask(Browse(queue="q"))} == {b"zero", b"first", b"a", b"b"}


def test_lone_unexpected_error_is_raised_and_forgotten(
    watched_broker: AnyBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    def explode(turn: Any, command: Claim) -> Any:
        raise apsw.SQLError("no such thing")

    with monkeypatch.context() as patch:
        patch.setitem(HANDLERS, Claim, explode)
        with pytest.raises(StoreError):
            watched_broker.claim(claim())
    watched_broker.send(push("a"))
    assert bodies(watched_broker.claim(claim())) == ["a"]


def test_payload_larger_than_the_bound_passes_alone(watched_broker: AnyBroker, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(turn_queue, "WAITING_BYTES", 1000)
    assert watched_broker.send(push("x" * 5000))[0].status == "queued"


def test_settlements_are_never_left_behind(
    watched_broker: AnyBroker, watched: WatchedStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    watched_broker.send(push("a"))
    held = watched_broker.claim(claim()).claimed
    monkeypatch.setattr(turn_queue, "TURN_COMMANDS", 3)
    monkeypatch.setattr(turn_queue, "LEAST_COMMANDS", 3)
    watched.hold()
    first = Errand(lambda: watched_broker.send(push("first")))
    assert watched.waiting.wait(PATIENCE)
    errands: list[Errand] = []
    for i in range(10):
        errands.append(Errand(partial(watched_broker.send, push(f"m{i}"))))
        until(lambda: waiting(watched_broker) == len(errands))
    errands.append(Errand(lambda: watched_broker.send(settle(held))))
    until(lambda: waiting(watched_broker) == 11)
    turns = len(watched.turns)
    watched.gate.set()
    assert first.result()
    for errand in errands:
        errand.result()
    assert watched.turns[turns + 1] == 4, "three pushes and the settlement that came last"


def test_refused_settlement_gives_the_claim_behind_it_back(watched_broker: AnyBroker) -> None:
    watched_broker.send(push("a"))
    bad = Settle(entries=[Settlement(selector=Delivery("x"), outcome=Outcome.RETRY, delay=-1)])
    with pytest.raises(BadInput):
        watched_broker.settle_and_claim(bad, claim())
    assert bodies(watched_broker.claim(claim())) == ["a"]


def test_refused_claim_says_what_was_settled_before_it(watched_broker: AnyBroker) -> None:
    watched_broker.send(push("a"))
    held = watched_broker.claim(claim()).claimed
    with pytest.raises(UnknownQueue) as refusal:
        watched_broker.settle_and_claim(settle(held), Claim(queue="nowhere"))
    assert [s.verdict.value for s in refusal.value.details["settled"]] == ["acked"]
