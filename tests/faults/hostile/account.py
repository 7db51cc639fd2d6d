"""Honest producers and consumers, and their account of every single message."""

from __future__ import annotations

import random
import threading
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import NamedTuple
from uuid import uuid4

import ackwise
from ackwise.client.resilience import Resilience
from ackwise.client.sync import Connection
from ackwise.client.sync.delivery import Delivery
from ackwise.core import ids
from ackwise.core.errors import AckwiseError, Draining, LeaseLost, Overloaded, StoreFull, StoreLocked
from ackwise.core.lane_selection import EmptyReason
from tests.faults.hostile.store_account import Place

QUEUE, GROUP, LEASE = "work", "honest", 4.0
RESILIENCE = Resilience(pauses=(0.1, 0.3, 1.0, 2.0), failures=50, rest=1.0)


REFUSALS = (Draining, Overloaded, StoreFull, StoreLocked)


class Unexplained(NamedTuple):
    """A delivery with more failures than earlier deliveries that arrived."""

    transaction_id: str
    place: Place
    failures: int
    deliveries: int


class Account:
    """Answers by transaction id. The account knows only what clients know, and reads nothing from the store."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.pushed: set[str] = set()
        self.offered: set[str] = set()
        self.acked: dict[str, float] = {}
        self.uncertain: set[str] = set()
        """Messages whose ack got no answer."""
        self.seen: Counter[str] = Counter()
        self.lost_claims: set[str] = set()
        """Keys of claims whose answer did not arrive, though the client repeated them."""
        self.unexplained: list[Unexplained] = []
        """Failures beyond the deliveries that arrived. Only a lost claim that held the message explains them."""
        self.violations: list[str] = []
        self.answered = 0
        self.in_flight = 0
        """Calls of honest clients that are under way."""

    @contextmanager
    def calling(self) -> Iterator[None]:
        """Count a call while it is under way."""
        with self.lock:
            self.in_flight += 1
        try:
            yield
        finally:
            with self.lock:
                self.in_flight -= 1

    def receive(self, transaction_id: str, place: Place, failures: int, asked_at: float) -> None:
        with self.lock:
            acked_at = self.acked.get(transaction_id)
            if acked_at is not None and acked_at < asked_at:
                self.violations.append(f"{transaction_id} was delivered after its ack was answered")
            if transaction_id not in self.offered:
                self.violations.append(f"{transaction_id} was delivered and never pushed")
            deliveries = self.seen[transaction_id]
            if failures > deliveries:
                self.unexplained.append(Unexplained(transaction_id, place, failures, deliveries))
            self.seen[transaction_id] += 1

    def lose_claim(self, key: str | None) -> None:
        """Note a claim whose answer got lost. None: the claim was answered."""
        if key is not None:
            with self.lock:
                self.lost_claims.add(key)

    def explain_failures(self, lost: Counter[Place]) -> int:
        """Check failures against the messages of lost claims. Returns how many failures these claims explain."""
        explained = 0
        for name, place, failures, deliveries in self.unexplained:
            if failures > deliveries + lost[place]:
                known = f"{deliveries} deliveries and {lost[place]} lost claims"
                self.violations.append(f"{name} has {failures} failures after {known}")
            else:
                explained += failures - deliveries
        return explained

    def ack(self, transaction_id: str, verdict: str | None) -> None:
        with self.lock:
            self.answered += 1
            if verdict is None:
                self.uncertain.add(transaction_id)
            elif verdict == "acked":
                if transaction_id in self.acked:
                    self.violations.append(f"{transaction_id} was acked twice")
                self.acked[transaction_id] = time.monotonic()


class Workers:
    """Threads that push and consume through both servers until they are stopped."""

    def __init__(self, urls: list[str], account: Account, seed: int, *, producers: int = 2, consumers: int = 3) -> None:
        self._urls, self._account = urls, account
        self._over = threading.Event()
        self._crowd = [threading.Thread(target=self._produce, args=(seed + n,), daemon=True) for n in range(producers)]
        self._crowd += [threading.Thread(target=self._consume, args=(seed - n,), daemon=True) for n in range(consumers)]
        for thread in self._crowd:
            thread.start()

    def stop(self) -> None:
        self._over.set()
        for thread in self._crowd:
            thread.join(120)
            if thread.is_alive():
                self._account.violations.append("a client hangs")

    def _connect(self, dice: random.Random) -> Connection | None:
        while not self._over.is_set():
            try:
                return ackwise.connect(dice.sample(self._urls, len(self._urls)), resilience=RESILIENCE)
            except AckwiseError:
                self._over.wait(0.1)
        return None

    def _produce(self, seed: int) -> None:
        dice = random.Random(seed)
        queue = self._connect(dice)
        number = 0
        while queue is not None and not self._over.is_set():
            names = [f"{seed}-{number + n}" for n in range(dice.randrange(1, 30))]
            number += len(names)
            with self._account.lock:
                self._account.offered.update(names)
            items = [
                ackwise.Item(payload={"id": name}, transaction_id=name, partition=dice.choice("abcd")) for name in names
            ]
            try:
                with self._account.calling():
                    queue.push_many(QUEUE, items)
            except AckwiseError:
                self._over.wait(0.05)  # the push may or may not be stored: the account has answered pushes only
            else:
                with self._account.lock:
                    self._account.pushed.update(names)
                    self._account.answered += 1
            self._over.wait(0.01)
        if queue is not None:
            queue.close()

    def _consume(self, seed: int) -> None:
        dice = random.Random(seed)
        queue = self._connect(dice)
        while queue is not None and not self._over.is_set():
            consume_once(queue, self._account, dice)
        if queue is not None:
            queue.close()


def place_of(delivery: Delivery) -> Place:
    key = ids.parse_delivery_id(delivery.id)
    assert key is not None
    return key.lane, key.seq


def consume_once(queue: Connection, account: Account, dice: random.Random, *, acks: bool = False) -> int:
    """Claim a batch and settle it: mostly acks, some failures and releases, some silence. Returns the batch size."""
    batch = _claim(queue, account)
    for delivery in batch:
        _settle(delivery, account, 1.0 if acks else dice.random())
    return len(batch)


def _claim(queue: Connection, account: Account) -> Sequence[Delivery]:
    """Claim a batch under a key of its own, which identifies the claim if its answer gets lost."""
    asked_at, key = time.monotonic(), uuid4().hex
    try:
        with account.calling():
            batch = queue.claim(QUEUE, group=GROUP, max=20, lease=LEASE, wait=0.2, key=key)
    except AckwiseError as problem:
        # A server that says no has claimed nothing. Only an answer that got lost may have been a claim.
        account.lose_claim(None if isinstance(problem, REFUSALS) else key)
        time.sleep(0.02)
        return ()
    # `ended`: an earlier try of this call was granted. Its answer got lost, and its lease has ended.
    account.lose_claim(key if batch.empty is EmptyReason.ENDED else None)
    for delivery in batch:
        account.receive(delivery.transaction_id, place_of(delivery), delivery.failures, asked_at)
    return list(batch)


def _settle(delivery: Delivery, account: Account, roll: float) -> None:
    """Settle a delivery, or leave it to expire. `roll` decides between the outcomes."""
    if roll < 0.01:
        return
    try:
        with account.calling():
            if roll < 0.05:
                delivery.retry(delay=0.05, error="not now")
            elif roll < 0.08:
                delivery.release()
            else:
                account.ack(delivery.transaction_id, delivery.ack().value)
    except LeaseLost:
        return
    except AckwiseError:
        if roll >= 0.08:
            account.ack(delivery.transaction_id, None)
