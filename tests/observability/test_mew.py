"""Settlements of MEW are counted by the ledger, the events and the metrics."""

from __future__ import annotations

from typing import Any

import httpx2

from ackwise.clock import ManualClock
from ackwise.core.queries import ReadLedger
from tests.observability.scrapes import scrape
from tests.server.running import Running

SHOP = """
node Dock { name: String [unique] }
node Parcel { label: String }
edge queued(parcel: Parcel, dock: Dock)
SPAWN north: Dock { name = "north" }
w = WATCH p: Parcel, queued(p, #north) [mode: consume, max_redeliveries: 2] RETURN p.label
"""


class Shop:
    """A session over HTTP that consumes parcels."""

    def __init__(self, http: httpx2.Client) -> None:
        self._http = http
        self._session: str | None = None
        self.say(SHOP)

    def say(self, text: str) -> list[dict[str, Any]]:
        answer = self._http.post("/mew", json={"text": text, "session": self._session})
        answer.raise_for_status()
        self._session = answer.json()["session"]
        lines: list[dict[str, Any]] = answer.json()["lines"]
        assert [line for line in lines if line["kind"] == "error"] == []
        return lines

    def parcel(self, label: str) -> None:
        """Spawn a parcel. Its delivery follows."""
        lines = self.say(f'SPAWN {label}: Parcel {{ label = "{label}" }}\nLINK queued(#{label}, #north)')
        assert [line["type"] for line in lines if line["kind"] == "event"] == ["consumed"]


def test_settlements_of_mew_are_counted(http: httpx2.Client, server: Running, clock: ManualClock) -> None:
    shop = Shop(http)
    shop.parcel("a")
    clock.advance(2)
    shop.say("ACK $delivery_id")
    shop.parcel("b")
    shop.say("NACK $delivery_id")
    shop.say("NACK $delivery_id")
    shop.parcel("c")
    shop.say("NACK $delivery_id [no_retry]")
    seen = scrape(http)
    settled = {outcome: count for (_, outcome, _), count in seen.of("ackwise_settled_total").items()}
    assert settled == {"acked": 1, "retried": 1, "dead": 2}
    assert {(queue, reason): count for (queue, reason), count in seen.of("ackwise_dead_letters_total").items()} == {
        ("(mew)", "retry_limit"): 1,
        ("(mew)", "rejected"): 1,
    }
    assert seen.value("ackwise_settle_seconds_sum", outcome="acked") == 2
    rows = server.server.runtime.broker().store.ask(ReadLedger(queue="(mew)"))
    assert {row.outcome: row.count for row in rows} == {"acked": 1, "retried": 1, "dead": 2}


def test_expiry_of_a_mew_delivery_is_counted(http: httpx2.Client, server: Running, clock: ManualClock) -> None:
    shop = Shop(http)
    shop.parcel("a")
    clock.advance(31)
    shop.say("")
    shop.say("ACK $delivery_id")
    seen = scrape(http)
    assert list(seen.of("ackwise_lease_expiries_total").values()) == [1]
    assert list(seen.of("ackwise_expired_messages_total").values()) == [1]
