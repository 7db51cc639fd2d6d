"""Claims that stop at a number of bytes: a prefix, at least one message, and the rest stays claimable."""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest

from ackwise.core import commands as c
from ackwise.core.validation import DEFAULT_CLAIM_BYTES
from ackwise.store.port import Store
from ackwise.store.postgres.session import PostgresSession
from ackwise.store.sqlite.session import SQLiteSession
from tests.engine.store_harness import Hand, StoreHarness, counts

MIB = 1 << 20


def payload(number: int, size: int) -> str:
    return f"{number}:".ljust(size, "x")


def numbers(hand: Hand) -> list[int]:
    return [int(body.partition(":")[0]) for body in hand.bodies]


def test_claim_without_bound_stops_at_16_mib(harness: StoreHarness) -> None:
    harness.push(*(payload(n, 7 * MIB) for n in range(5)))
    assert [numbers(harness.claim(1000, exclusivity="none")) for _ in range(4)] == [[0, 1], [2, 3], [4], []]


def test_claim_bound_leaves_the_rest_untouched(harness: StoreHarness) -> None:
    harness.push(*(payload(n, 300_000) for n in range(4)))
    first = harness.claim(4, most_bytes=700_000, exclusivity="none")
    assert numbers(first) == [0, 1]
    assert counts(harness.group()) == {"held": 2, "unread": 2}
    second = harness.claim(4, exclusivity="none")
    assert [(d.seq, d.attempt, d.failures) for d in second.deliveries] == [(2, 1, 0), (3, 1, 0)]


def test_claim_larger_than_bound_gets_one_message(harness: StoreHarness) -> None:
    harness.push(*(payload(n, 200) for n in range(10)), payload(10, 200_000))
    assert numbers(harness.claim(20, most_bytes=1, exclusivity="none")) == [0]
    assert numbers(harness.claim(20, most_bytes=1000, exclusivity="none")) == [1]
    assert numbers(harness.claim(20, most_bytes=10_000, exclusivity="none")) == list(range(2, 10))
    assert numbers(harness.claim(20, most_bytes=10_000, exclusivity="none")) == [10]


def test_claim_of_heavy_and_light_lanes_is_filled(harness: StoreHarness) -> None:
    """A lane that once held a large message does not make claims smaller than their bound."""
    harness.push(payload(0, 2 * MIB))
    harness.ack(*harness.claim(1).deliveries)
    harness.push(*(payload(n, 100) for n in range(1, 41)))
    harness.push(*(payload(n, 100) for n in range(41, 81)), priority=1)
    assert numbers(harness.claim(100, most_bytes=3 * MIB)) == list(range(1, 81))


def test_claim_of_redriven_messages_keeps_the_bound(harness: StoreHarness) -> None:
    harness.configure(retry_limit=1)
    harness.push(*(payload(n, 60_000) for n in range(4)), txid=None)
    harness.retry(*harness.claim(4).deliveries)
    harness.advance(1)
    assert harness.redrive(*harness.dead()).count == 4
    got = [numbers(harness.claim(4, most_bytes=130_000)) for _ in range(1)]
    assert got == [[0, 1]]


def test_claims_together_share_their_bytes(harness: StoreHarness) -> None:
    harness.push(*(payload(n, 300_000) for n in range(4)))
    claims = c.share_bytes([c.Claim(queue="q", most=1, most_bytes=700_000, exclusivity="none")] * 4, 7)
    assert [batch.count for batch in harness.together(*claims)] == [1, 1, 0, 0]
    lone = [c.Claim(queue="q", most=1, most_bytes=1, exclusivity="none")] * 2
    assert [batch.count for batch in harness.together(*lone)] == [1, 1]


def test_claims_with_auto_ack_share_the_turns_memory(harness: StoreHarness) -> None:
    for partition in "abcdef":
        harness.push(*(payload(n, 7 * MIB) for n in range(2)), partition=partition)
    pops = [c.Claim(queue="q", most=2, partitions=(name,), auto_ack=True) for name in "abcdef"]
    found = [one.count for one in harness.together(*pops)]
    assert found[:4] == [2, 2, 2, 2]
    assert found[5] == 1


def test_claim_repeated_with_its_key_is_the_same(harness: StoreHarness) -> None:
    harness.push(*(payload(n, 300_000) for n in range(4)))
    first = harness.claim(4, most_bytes=700_000, key="k")
    again = harness.claim(4, most_bytes=700_000, key="k")
    assert numbers(first) == numbers(again) == [0, 1]
    assert again.claimed.size >= 600_000


@pytest.fixture
def statements(store: Store, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The names of statements that the store runs."""
    seen: list[str] = []

    def watched(original: Callable[..., object]) -> Callable[..., object]:
        def call(session: object, name: str, *rest: object) -> object:
            seen.append(name)
            return original(session, name, *rest)

        return call

    for kind in (SQLiteSession, PostgresSession):
        for method in ("rows", "row"):
            monkeypatch.setattr(kind, method, watched(getattr(kind, method)))
    return seen


def test_claim_of_small_messages_asks_for_no_lengths(harness: StoreHarness, statements: list[str]) -> None:
    harness.push(*(payload(n, 200) for n in range(2000)))
    statements.clear()
    assert harness.do(c.Claim(queue="q", most=2000)).count == 2000
    assert not {name for name in statements if name.startswith("segment")}


def test_claim_of_large_messages_reads_no_bodies(harness: StoreHarness, statements: list[str]) -> None:
    harness.push(*(payload(n, 2 * MIB) for n in range(10)))
    statements.clear()
    assert harness.do(c.Claim(queue="q", most=1000)).count == 7
    assert {name for name in statements if name.startswith("segment")} == {"segment_sizes"}


@pytest.mark.parametrize("seed", range(4))
def test_claims_take_prefixes_within_their_bounds(harness: StoreHarness, seed: int) -> None:
    """Random sizes in several lanes, bounds, releases and retries: nothing is skipped, doubled or charged."""
    dice = random.Random(seed)
    sizes: dict[int, int] = {}
    where: dict[int, tuple[str, int]] = {}
    for number in range(60):
        sizes[number] = dice.choice([20, 300, 5_000, 60_000, 90_000, 400_000])
        where[number] = dice.choice("abc"), dice.randrange(2)
    for start in range(0, 60, 12):
        for lane in sorted(set(where.values())):
            mine = [n for n in range(start, start + 12) if where[n] == lane]
            if mine:
                harness.push(*(payload(n, sizes[n]) for n in mine), partition=lane[0], priority=lane[1])
    done: list[int] = []
    for _ in range(400):
        bound = dice.choice([1, 50_000, 500_000, 1_000_000, DEFAULT_CLAIM_BYTES])
        parts = None if dice.random() < 0.7 else (dice.choice("abc"),)
        hand = harness.claim(dice.choice([2, 7, 100]), most_bytes=bound, partitions=parts, exclusivity="partition")
        if not hand.deliveries:
            if len(done) == len(sizes):
                break
            continue
        total = sum(len(delivery.body) for delivery in hand.deliveries)
        assert len(hand) == 1 or total <= bound
        assert total <= hand.claimed.size
        assert all(delivery.failures == 0 for delivery in hand.deliveries)
        keep = dice.randrange(len(hand) + 1)
        harness.ack(*hand.deliveries[:keep])
        harness.release(*hand.deliveries[keep:])
        done += numbers(hand)[:keep]
    assert sorted(done) == sorted(sizes)
    for lane in set(where.values()):
        assert [n for n in done if where[n] == lane] == [n for n in sorted(sizes) if where[n] == lane]
