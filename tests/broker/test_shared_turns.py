"""Turns: what many callers ask for at once is one commit, and nobody pays for another's mistake."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import apsw
import pytest

from ackwise.broker import Broker, pending
from ackwise.core.commands import ByDelivery as Delivery
from ackwise.core.commands import Claim, Command, Push, Settle, Settlement
from ackwise.core.errors import AckwiseError, BadInput, StoreError, UnknownQueue
from ackwise.core.messages import NewMessage
from ackwise.core.queries import Browse
from ackwise.core.settlement import Outcome
from ackwise.store.turn import engine
from tests.broker.watched import Errand, WatchedStore, bodies, claim, push, settle, until

HANDLERS: dict[Any, Any] = engine._HANDLERS


def waiting(desk: Broker) -> int:
    return sum(len(lane._pending) for lane in desk._lanes)


def merged(desk: Broker, watched: WatchedStore, calls: Sequence[Callable[[], Any]]) -> list[Errand]:
    """Make these calls share one turn: the one before it is held up until all of them wait."""
    watched.hold()
    first = Errand(lambda: desk.send(push("first")))
    assert watched.waiting.wait(20)
    errands = [Errand(call) for call in calls]
    until(lambda: waiting(desk) == len(calls))
    turns = len(watched.turns)
    watched.gate.set()
    first.result()
    for errand in errands:
        errand.join(20)
    assert watched.turns[turns + 1] == len(calls), "they were to share one turn"
    return errands


def test_answers_go_to_those_who_asked(desk: Broker, watched: WatchedStore) -> None:
    calls = [partial(desk.send, push(f"m{i}", transaction_id=f"t{i}")) for i in range(50)]
    errands = merged(desk, watched, calls)
    assert [e.result()[0].transaction_id for e in errands] == [f"t{i}" for i in range(50)]


def test_one_callers_bad_command_fails_alone(desk: Broker, watched: WatchedStore) -> None:
    bad: list[Command] = [
        Push(queue="", messages=[NewMessage(b"x")]),
        Push(queue="q", messages=[NewMessage(b"x", delay=-1)]),
        Push(queue="q", messages=[NewMessage(b"x", "a\0b")]),
        Claim(queue="nowhere"),
        Claim(queue="q", most=0),
        Settle(entries=[Settlement(selector=Delivery("nonsense"), outcome=Outcome.ACK, delay=-5)]),
    ]
    good = [push(f"good{i}") for i in range(6)]
    calls = [partial(desk.send, c) for pair in zip(bad, good, strict=True) for c in pair]
    errands = merged(desk, watched, calls)
    for errand in errands[::2]:
        with pytest.raises((BadInput, UnknownQueue)):
            errand.result()
    assert [errand.result()[0].status for errand in errands[1::2]] == ["queued"] * 6


@pytest.mark.parametrize("fault", [apsw.SQLError("no such thing"), RuntimeError("a bug")])
def test_an_unexpected_error_is_the_answer_of_one_caller(
    desk: Broker, watched: WatchedStore, monkeypatch: pytest.MonkeyPatch, fault: Exception
) -> None:
    """The turn is rolled back and its commands are run one by one."""
    handler = HANDLERS[Claim]

    def explode(turn: Any, command: Claim) -> Any:
        if command.group == "cursed":
            turn.session.run("instance_beat", {"id": "half done", "now": 1})
            raise fault
        return handler(turn, command)

    desk.send(push("zero"))
    monkeypatch.setitem(HANDLERS, Claim, explode)
    calls: list[Callable[[], Any]] = [
        lambda: desk.send(push("a")),
        lambda: desk.claim(claim(group="cursed")),
        lambda: desk.send(push("b")),
        lambda: desk.claim(claim(100)),
    ]
    pushed, cursed, also_pushed, claimed = merged(desk, watched, calls)
    with pytest.raises(AckwiseError):
        cursed.result()
    assert pushed.result()[0].status == also_pushed.result()[0].status == "queued"
    assert "zero" in bodies(claimed.result())
    assert {b.message.payload for b in desk.ask(Browse(queue="q"))} == {b"zero", b"first", b"a", b"b"}


def test_a_lone_unexpected_error_is_raised_and_forgotten(desk: Broker, monkeypatch: pytest.MonkeyPatch) -> None:
    def explode(turn: Any, command: Claim) -> Any:
        raise apsw.SQLError("no such thing")

    with monkeypatch.context() as patch:
        patch.setitem(HANDLERS, Claim, explode)
        with pytest.raises(StoreError):
            desk.claim(claim())
    desk.send(push("a"))
    assert bodies(desk.claim(claim())) == ["a"]


def test_one_payload_larger_than_the_bound_goes_through_alone(desk: Broker, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pending, "WAITING_BYTES", 1000)
    assert desk.send(push("x" * 5000))[0].status == "queued"


def test_settlements_are_never_left_behind(
    desk: Broker, watched: WatchedStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    desk.send(push("a"))
    held = desk.claim(claim()).claimed
    monkeypatch.setattr(pending, "TURN_COMMANDS", 3)
    monkeypatch.setattr(pending, "LEAST_COMMANDS", 3)
    watched.hold()
    first = Errand(lambda: desk.send(push("first")))
    assert watched.waiting.wait(20)
    errands: list[Errand] = []
    for i in range(10):
        errands.append(Errand(partial(desk.send, push(f"m{i}"))))
        until(lambda: waiting(desk) == len(errands))
    errands.append(Errand(lambda: desk.send(settle(held))))
    until(lambda: waiting(desk) == 11)
    turns = len(watched.turns)
    watched.gate.set()
    assert first.result()
    for errand in errands:
        errand.result()
    assert watched.turns[turns + 1] == 4, "three pushes and the settlement that came last"


def test_a_refused_settlement_gives_the_claim_behind_it_back(desk: Broker) -> None:
    desk.send(push("a"))
    bad = Settle(entries=[Settlement(selector=Delivery("x"), outcome=Outcome.RETRY, delay=-1)])
    with pytest.raises(BadInput):
        desk.settle_and_claim(bad, claim())
    assert bodies(desk.claim(claim())) == ["a"]


def test_a_refused_claim_says_what_was_settled_before_it(desk: Broker) -> None:
    desk.send(push("a"))
    held = desk.claim(claim()).claimed
    with pytest.raises(UnknownQueue) as refusal:
        desk.settle_and_claim(settle(held), Claim(queue="nowhere"))
    assert [s.verdict.value for s in refusal.value.details["settled"]] == ["acked"]
