"""Many concurrent claims: no claim gets a message that another lease holds."""

from __future__ import annotations

from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from ackwise.core.messages import NewMessage
from tests.engine.store_harness import Delivery, StoreHarness, counts


def everybody(harness: StoreHarness, **how: Any) -> list[Delivery]:
    """Sixteen threads claim until there is nothing left; what each got."""

    def work(_: int) -> list[Delivery]:
        mine: list[Delivery] = []
        while got := harness.claim(3, **how).deliveries:
            mine += got
        return mine

    with ThreadPoolExecutor(16) as pool:
        return [d for batch in pool.map(work, range(16)) for d in batch]


@pytest.mark.parametrize("lanes", [1, 100])
def test_pool_shares_without_overlap(harness: StoreHarness, lanes: int) -> None:
    harness.send([NewMessage(str(i).encode(), partition=f"p{i % lanes}") for i in range(300)])
    got = everybody(harness)
    assert Counter(d.body for d in got) == {str(i): 1 for i in range(300)}
    assert counts(harness.group()) == {"held": 300}


@pytest.mark.parametrize("lanes", [1, 40])
def test_exclusive_claims_hold_a_partition_each(harness: StoreHarness, lanes: int) -> None:
    harness.send([NewMessage(str(i).encode(), partition=f"p{i % lanes}") for i in range(4 * lanes)])
    got = everybody(harness, exclusivity="partition")
    holders: dict[str, set[str]] = {}
    for delivery in got:
        holders.setdefault(delivery.partition, set()).add(delivery.lease_id)
    assert len(holders) == lanes
    assert all(len(leases) == 1 for leases in holders.values())


def test_concurrent_settlements_have_one_winner(harness: StoreHarness) -> None:
    harness.number(20)
    held = harness.claim(20).deliveries

    def settle(number: int) -> list[str]:
        verb = (harness.ack, harness.release, harness.retry, harness.reject)[number % 4]
        return [verb(delivery)[0] for delivery in held]

    with ThreadPoolExecutor(8) as pool:
        verdicts = list(pool.map(settle, range(8)))
    for answers in zip(*verdicts, strict=True):
        settled = [v for v in answers if v != "already"]
        assert len(settled) == 1, answers
    stats = harness.group()
    assert stats.acked + stats.dead + stats.held == 20
