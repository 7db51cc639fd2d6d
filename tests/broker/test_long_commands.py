"""Commands that need several turns: a broker continues them and answers once."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from ackwise.core.commands import (
    ByLease,
    Claim,
    Command,
    ConfigureQueue,
    PauseQueue,
    PurgeDead,
    Push,
    Settle,
    Settlement,
)
from ackwise.core.messages import NewMessage
from ackwise.core.queries import ListGroups
from ackwise.core.settlement import Outcome
from ackwise.engine import dead_letters, tagged_queues
from tests.broker.both_brokers import AnyBroker
from tests.broker.parked_claims import parked
from tests.broker.support import CountingStore, ack, payloads, push
from tests.broker.watched import WatchedStore, bodies

NAMES = [f"s{number}" for number in range(5)]
SHOP = Claim(namespace="shop", group="g", start="new")


@pytest.fixture
def small_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tagged_queues, "MOST_JOINED", 2)
    monkeypatch.setattr(dead_letters, "MOST_PURGED", 2)


def open_shop(broker: AnyBroker) -> None:
    broker.send_all([ConfigureQueue(queue=name, namespace="shop") for name in NAMES])


@pytest.mark.usefixtures("small_turns")
def test_claim_by_tag_is_answered_after_its_last_turn(broker: AnyBroker, store: CountingStore) -> None:
    open_shop(broker)
    before = store.turns
    assert broker.claim(SHOP).claimed.more is None
    assert store.turns - before == 3
    assert [group.queue for group in broker.ask(ListGroups(group="g"))] == NAMES


@pytest.mark.usefixtures("small_turns")
def test_commands_run_between_the_turns_of_a_claim(broker: AnyBroker, store: CountingStore) -> None:
    """Each turn joins two queues. A push to the last queue comes after the first turn and is new to the group."""
    open_shop(broker)
    turns: list[Sequence[Command]] = []

    def push_after_the_first(commands: Sequence[Command]) -> None:
        turns.append(commands)
        if len(turns) == 2:
            store.clock.advance(1)  # type: ignore[attr-defined]
            store.trouble = None
            store.transact([Push(queue="s4", messages=[NewMessage(b"new")])])

    store.trouble = push_after_the_first
    assert payloads(broker.claim(SHOP)) == [b"new"]
    assert [group.queue for group in broker.ask(ListGroups(group="g"))] == NAMES


@pytest.mark.usefixtures("small_turns")
def test_settle_and_claim_continues_the_claim(broker: AnyBroker) -> None:
    open_shop(broker)
    broker.send(push(b"1"))
    held = broker.claim(Claim(queue="q"))
    settled, handed = broker.settle_and_claim(ack(held), SHOP)
    assert (settled[0].count, handed.claimed.more) == (1, None)
    assert len(broker.ask(ListGroups(group="g"))) == len(NAMES)


@pytest.mark.usefixtures("small_turns")
def test_claim_ahead_continues_its_first_claim(broker: AnyBroker) -> None:
    open_shop(broker)
    assert broker.claim_ahead(None, SHOP, 3) == ([], [])
    assert len(broker.ask(ListGroups(group="g"))) == len(NAMES)


@pytest.mark.usefixtures("small_turns")
def test_sent_claim_continues_in_later_turns(broker: AnyBroker) -> None:
    open_shop(broker)
    assert broker.send(SHOP).more is None
    assert len(broker.ask(ListGroups(group="g"))) == len(NAMES)


def test_rider_with_queues_left_continues(
    watched_broker: AnyBroker, watched: WatchedStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The rider visits paused queues in the turn of the push. Its own message is in a later turn."""
    open_shop(watched_broker)
    monkeypatch.setattr(tagged_queues, "MOST_FRUITLESS", 2)
    monkeypatch.setattr(tagged_queues, "FEW", 1)
    waiting = parked(watched_broker, Claim(namespace="shop", group="g"))
    watched_broker.send_all([PauseQueue(queue=name) for name in NAMES[:4]])
    pushes = [Push(queue=name, messages=[NewMessage(name.encode())]) for name in NAMES]
    watched_broker.send_all(pushes)
    assert bodies(waiting.result()) == ["s4"]


@pytest.mark.usefixtures("small_turns")
def test_purge_of_dead_letters_takes_several_turns(broker: AnyBroker, store: CountingStore) -> None:
    broker.send(push(*(b"%d" % number for number in range(5))))
    held = broker.claim(Claim(queue="q", most=5)).claimed
    broker.send(Settle(entries=[Settlement(selector=ByLease(held.lease_id), outcome=Outcome.REJECT)]))
    before = store.turns
    assert broker.send(PurgeDead(queue="q")).count == 5
    assert store.turns - before == 3
