"""Sixteen concurrent claimers of one broker: no message has two holders, and each message is acked once."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from ackwise.broker import Broker
from ackwise.connect import open_store
from ackwise.core.answers import Handed
from ackwise.core.commands import ByLease, Claim, ConfigureQueue, Push, Settle, Settlement
from ackwise.core.messages import NewMessage
from ackwise.core.policy import Exclusivity
from ackwise.core.queries import ListGroups
from ackwise.core.settlement import Outcome

CLAIMERS = 16
LEASE = 600 * 1_000_000


@pytest.fixture(params=["sqlite", "postgres"])
def brokers(
    request: pytest.FixtureRequest, tmp_path: Path, pg_url_factory: Callable[[], str]
) -> Iterator[list[Broker]]:
    """One broker on a file, two that share a database."""
    where = f"sqlite:///{tmp_path}/queues.db?durability=normal"
    if request.param != "sqlite":
        where = pg_url_factory()
        where += "&durability=normal" if "?" in where else "?durability=normal"
    stores = [open_store(where) for _ in range(1 if request.param == "sqlite" else 2)]
    made = [Broker(store, background=False) for store in stores]
    yield made
    try:
        assert stores[0].audit() == []
    finally:
        for broker in made:
            broker.close()


class Holders:
    """Who holds what, as the claimers know it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._messages: dict[str, str] = {}
        self._partitions: dict[str, str] = {}
        self.acked: Counter[str] = Counter()
        self.wrong: list[str] = []

    def take(self, handed: Handed, exclusive: bool) -> None:
        lease = handed.claimed.lease_id
        with self._lock:
            for message in handed.messages:
                other = self._messages.setdefault(message.transaction_id, lease)
                if other != lease:
                    self.wrong.append(f"{message.transaction_id} is held by {other} and {lease}")
            for grant in handed.claimed.grants if exclusive else ():
                other = self._partitions.setdefault(grant.partition, lease)
                if other != lease:
                    self.wrong.append(f"partition {grant.partition} is held by {other} and {lease}")

    def give(self, handed: Handed) -> None:
        """Recorded before the store is told: from then on another claim may get the message."""
        with self._lock:
            for message in handed.messages:
                del self._messages[message.transaction_id]
            for grant in handed.claimed.grants:
                self._partitions.pop(grant.partition, None)

    def ack(self, names: list[str]) -> None:
        with self._lock:
            self.acked.update(names)

    def done(self, total: int) -> bool:
        with self._lock:
            return bool(self.wrong) or self.acked.total() >= total


@pytest.mark.parametrize("exclusivity", ["none", "partition"])
@pytest.mark.parametrize(("lanes", "each"), [(1, 400), (1000, 1)])
def test_message_under_load_has_one_holder(
    brokers: list[Broker], lanes: int, each: int, exclusivity: Exclusivity
) -> None:
    total = lanes * each
    brokers[0].send(ConfigureQueue(queue="q", policy={"exclusivity": exclusivity, "retry_limit": None}))
    messages = [NewMessage(b"x", f"p{i % lanes}", 0, f"t{i}") for i in range(total)]
    brokers[0].send(Push(queue="q", messages=messages))
    holders = Holders()

    def work(number: int) -> None:
        broker = brokers[number % len(brokers)]
        round_ = number
        while not holders.done(total):
            round_ += 1
            command = Claim(queue="q", most=1 + round_ % 7, most_partitions=1 + round_ % 5, lease=LEASE)
            handed = broker.claim(command, 0.05)
            if not handed.claimed.grants:
                continue
            holders.take(handed, exclusivity == "partition")
            outcome = Outcome.RELEASE if round_ % 5 == 0 else Outcome.ACK
            names = [m.transaction_id for m in handed.messages]
            holders.give(handed)
            entry = Settlement(selector=ByLease(handed.claimed.lease_id), outcome=outcome)
            (settled,) = broker.send(Settle(entries=[entry]))
            if settled.count != len(names):
                holders.wrong.append(f"{settled.count} of {len(names)} settled")
            if outcome is Outcome.ACK:
                holders.ack(names)

    with ThreadPoolExecutor(CLAIMERS) as pool:
        for worker in [pool.submit(work, number) for number in range(CLAIMERS)]:
            worker.result(100)
    assert holders.wrong == []
    assert holders.acked == Counter(f"t{i}" for i in range(total))
    (stats,) = brokers[0].ask(ListGroups(queue="q"))
    assert (stats.acked, stats.held, stats.unread, stats.leases) == (total, 0, 0, 0)
