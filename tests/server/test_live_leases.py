"""Random pops, acks, nacks, extends and expiries through Queen's routes and our own: a message under a live lease of a
group is handed to no other consumer of that group."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from functools import partial
from typing import Any

import httpx2
import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, rule, run_state_machine_as_test

from ackwise.clock import ManualClock
from tests.patience import PATIENCE
from tests.server.running import Running

ADDRESSES = ("127.0.0.1", "127.0.0.2")
MICROS = 1_000_000
QUEUES = itertools.count()
LEASE = 10
groups = st.sampled_from(["a", "a", "a", "__QUEUE_MODE__"])
peers = st.integers(0, len(ADDRESSES) - 1)
picks = st.integers(0, 10**6)


class Held:
    """A live lease as its holder knows it: message ids with the names that settle them."""

    def __init__(self, lease_id: str, group: str, deadline: int, messages: dict[str, dict[str, Any]]) -> None:
        self.lease_id, self.group, self.deadline, self.messages = lease_id, group, deadline, messages


class Machine(RuleBasedStateMachine):
    def __init__(self, clients: list[httpx2.Client], clock: ManualClock, mode: str) -> None:
        super().__init__()
        self.clients, self.clock, self.upstream = clients, clock, mode == "upstream"
        self.queue = f"q{next(QUEUES)}"
        self.held: dict[str, Held] = {}
        self.pushed = 0
        self.post(0, "/api/v1/configure", {"queue": self.queue, "options": {"leaseTime": LEASE, "retryLimit": 50}})

    def post(self, peer: int, path: str, body: Any) -> Any:
        answer = self.clients[peer].post(path, json=body)
        assert answer.status_code in (200, 201), answer.text
        return answer.json()

    def live(self, group: str) -> Iterator[Held]:
        for lease in list(self.held.values()):
            if lease.deadline <= self.clock.now():
                del self.held[lease.lease_id]
            elif lease.group == group:
                yield lease

    def receive(self, lease_id: str, group: str, messages: dict[str, dict[str, Any]], seconds: float) -> None:
        for other in self.live(group):
            assert not other.messages.keys() & messages.keys(), (other.lease_id, lease_id, group)
        deadline = self.clock.now() + round(seconds * MICROS)
        self.held[lease_id] = Held(lease_id, group, deadline, messages)

    @rule(count=st.integers(1, 5), partition=st.sampled_from("xxxy"))
    def push(self, count: int, partition: str) -> None:
        items = [{"queue": self.queue, "partition": partition, "payload": self.pushed + n} for n in range(count)]
        self.pushed += count
        self.post(0, "/api/v1/push", {"items": items})

    @rule(peer=peers, group=groups, batch=st.integers(2, 9), autopilot=st.booleans(), several=st.booleans())
    def pop(self, peer: int, group: str, batch: int, autopilot: bool, several: bool) -> None:
        query: dict[str, Any] = {"batch": batch, "consumerGroup": group, "partitions": 2 if several else 1}
        query |= {"autopilot": "true"} if autopilot else {}
        answer = self.clients[peer].get(f"/api/v1/pop/queue/{self.queue}", params=query)
        if answer.status_code == 200:
            found = answer.json()
            self.receive(found["leaseId"], group, {message["id"]: message for message in found["messages"]}, LEASE)

    @rule(peer=peers, group=groups, most=st.integers(1, 6), seconds=st.sampled_from([1, 4, 30]), free=st.booleans())
    def claim(self, peer: int, group: str, most: int, seconds: int, free: bool) -> None:
        asked = {"queue": self.queue, "group": group, "max": most, "lease_seconds": seconds}
        found = self.post(peer, "/v1/claim", asked | ({"exclusivity": "none"} if free else {}))
        if found["messages"]:
            messages = {
                message["message_id"]: {
                    "transactionId": message["transaction_id"],
                    "partitionId": message["partition_id"],
                    "leaseId": found["lease_id"],
                    "delivery_id": message["delivery_id"],
                }
                for message in found["messages"]
            }
            self.receive(found["lease_id"], group, messages, seconds)

    def chosen(self, pick: int) -> tuple[Held, str] | None:
        every = [(lease, message) for lease in self.held.values() for message in lease.messages]
        return every[pick % len(every)] if every else None

    def settled(self, lease: Held, message: str, *, released: bool) -> None:
        """The messages that this call took from the lease. Upstream lets an ack or a failure take several."""
        if released or self.upstream:
            self.held.pop(lease.lease_id, None)
        else:
            lease.messages.pop(message, None)

    @rule(peer=peers, pick=picks, status=st.sampled_from(["completed", "completed", "failed", "failed", "retry"]))
    def ack(self, peer: int, pick: int, status: str) -> None:
        """As the SDKs do, with a text, from any address."""
        chosen = self.chosen(pick)
        if chosen is None:
            return
        lease, message = chosen
        named = {key: lease.messages[message][key] for key in ("transactionId", "partitionId", "leaseId")}
        body = named | {"status": status, "error": "no" if status == "failed" else None, "consumerGroup": lease.group}
        (answer,) = self.post(peer, "/api/v1/ack", body)
        assert answer["success"] is (lease.deadline > self.clock.now()), answer
        if answer["success"]:
            self.settled(lease, message, released=answer["leaseReleased"])

    @rule(peer=peers, pick=picks)
    def nack_and_pop(self, peer: int, pick: int) -> None:
        """As client 2.6 does: it leaves the batch in which a message failed and pops again."""
        chosen = self.chosen(pick)
        if chosen is not None:
            self.ack(peer, pick, "failed")
            self.pop(peer, chosen[0].group, 9, False, True)

    @rule(peer=peers, pick=picks, outcome=st.sampled_from(["ack", "retry", "release"]))
    def settle(self, peer: int, pick: int, outcome: str) -> None:
        chosen = self.chosen(pick)
        if chosen is None or "delivery_id" not in chosen[0].messages[chosen[1]]:
            return
        lease, message = chosen
        entry = {"delivery_id": lease.messages[message]["delivery_id"], "outcome": outcome}
        (verdict,) = self.post(peer, "/v1/settle", {"entries": [entry]})["verdicts"]
        live = lease.deadline > self.clock.now()
        assert (verdict["verdict"] in ("acked", "retried", "released")) is live, verdict
        if live:
            self.settled(lease, message, released=False)

    @rule(peer=peers, pick=picks, seconds=st.sampled_from([1, 5, 40]))
    def extend(self, peer: int, pick: int, seconds: int) -> None:
        chosen = self.chosen(pick)
        if chosen is None:
            return
        lease = chosen[0]
        answer = self.post(peer, f"/api/v1/lease/{lease.lease_id}/extend", {"seconds": seconds})
        assert answer["success"] is (lease.deadline > self.clock.now()), answer
        if answer["success"]:
            lease.deadline = max(lease.deadline, self.clock.now() + seconds * MICROS)

    @rule(seconds=st.sampled_from([0.5, 1, 1, 3, 11]))
    def time_passes(self, seconds: float) -> None:
        self.clock.advance(seconds)

    @rule()
    def time_stops_at_a_deadline(self) -> None:
        if self.held:
            self.clock.set(max(self.clock.now(), min(lease.deadline for lease in self.held.values())))


@pytest.mark.slow
@pytest.mark.timeout(0)
@pytest.mark.parametrize("mode", ["seed", "upstream"])
def test_live_lease_shares_no_message(any_store: str, mode: str) -> None:
    clock = ManualClock()
    how = settings(
        max_examples=40 if any_store.startswith("sqlite") else 12,
        stateful_step_count=30,
        derandomize=True,
        database=None,
        deadline=None,
        suppress_health_check=list(HealthCheck),
    )
    with Running(any_store, clock, queen_defaults=mode) as server:
        wires = [httpx2.HTTPTransport(local_address=address) for address in ADDRESSES]
        clients = [httpx2.Client(base_url=server.url, timeout=PATIENCE, transport=wire) for wire in wires]
        make: Any = partial(Machine, clients, clock, mode)
        try:
            run_state_machine_as_test(make, settings=how)
        finally:
            for client in clients:
                client.close()
