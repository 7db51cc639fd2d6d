"""Caller-chosen claim keys: the same claim again gives what is outstanding, never something new."""

from __future__ import annotations

from typing import Any

import pytest

from ackwise.core import commands as c
from ackwise.core.errors import BadInput, ClaimConflict
from tests.engine.store_harness import StoreHarness, counts


def test_same_key_is_the_same_claim_under_a_new_lease(harness: StoreHarness) -> None:
    harness.number(6)
    first = harness.claim(3, key="n/1")
    again = harness.claim(3, key="n/1")
    assert again.bodies == first.bodies == ["0", "1", "2"]
    assert again.claimed.lease_no > first.claimed.lease_no
    assert [d.attempt for d in again.deliveries] == [2, 2, 2]
    assert {d.failures for d in again.deliveries} == {0}
    assert counts(harness.group()) == {"held": 3, "unread": 3}


def test_claim_without_takeover_leaves_held_messages_alone(harness: StoreHarness) -> None:
    harness.number(2)
    assert harness.claim(1, key="k", takes_over=False).bodies == ["0"]
    assert harness.claim(1, key="k", takes_over=False).claimed.empty == "ended"
    (held,) = harness.claim(1, key="k").deliveries
    assert (harness.ack(held), counts(harness.group())) == (["acked"], {"acked": 1, "unread": 1})


def test_old_lease_is_fenced_off(harness: StoreHarness) -> None:
    harness.number(2)
    old = harness.claim(key="k")
    new = harness.claim(key="k")
    assert harness.ack(*old.deliveries, c.ByLease(old.lease_id)) == ["stale"] * 3
    assert harness.do(c.Extend(lease_id=old.lease_id, lease=10_000_000)).verdict == "stale"
    assert harness.ack(*new.deliveries) == ["acked", "acked"]


def test_claim_key_after_a_partial_ack_returns_the_rest(harness: StoreHarness) -> None:
    harness.number(5)
    first = harness.claim(5, key="k")
    harness.ack(first.deliveries[1], first.deliveries[3])
    again = harness.claim(5, key="k")
    assert again.bodies == ["0", "2", "4"]
    assert harness.ack(*first.deliveries) == ["stale", "already", "stale", "already", "stale"]
    assert harness.ack(*again.deliveries) == ["acked"] * 3
    assert counts(harness.group()) == {"acked": 5}


def test_finished_claim_gives_nothing(harness: StoreHarness) -> None:
    harness.number(3)
    harness.ack(*harness.claim(2, key="k").deliveries)
    again = harness.claim(2, key="k")
    assert (again.why, again.bodies) == ("ended", [])
    assert harness.claim(2, key="k2").bodies == ["2"]


def test_expired_claim_gives_nothing_even_before_the_sweep(harness: StoreHarness) -> None:
    harness.number(1)
    harness.claim(1, key="k", seconds=5)
    harness.advance(5)
    assert harness.claim(1, key="k").why == "ended"
    assert harness.claim(1, key="k2").bodies == ["0"]


def test_empty_claim_uses_up_no_key(harness: StoreHarness) -> None:
    harness.configure()
    assert harness.claim(key="k").why == "empty"
    harness.push("a")
    assert harness.claim(key="k").bodies == ["a"]


@pytest.mark.parametrize("other", [{"partitions": ("Default",)}, {"priorities": (0,)}])
def test_another_filter_is_a_conflict(harness: StoreHarness, other: dict[str, Any]) -> None:
    harness.number(3)
    harness.claim(1, key="k")
    before = harness.everything()
    with pytest.raises(ClaimConflict, match="claim key 'k'"):
        harness.claim(1, key="k", **other)
    assert harness.everything() == before


@pytest.mark.parametrize(("first", "second"), [("a", "b"), ("a", None), (None, "b")])
def test_another_owner_is_a_conflict(harness: StoreHarness, first: str | None, second: str | None) -> None:
    harness.number(3)
    held = harness.claim(1, key="k", owner=first)
    before = harness.everything()
    with pytest.raises(ClaimConflict, match="owner"):
        harness.claim(1, key="k", owner=second)
    assert harness.everything() == before
    harness.ack(*held.deliveries)
    with pytest.raises(ClaimConflict, match="owner"):
        harness.claim(1, key="k", owner=second)
    assert harness.claim(1, key="k", owner=first).why == "ended"


def test_groups_have_their_own_keys(harness: StoreHarness) -> None:
    harness.number(1)
    assert harness.claim(key="k", group="a").bodies == harness.claim(key="k", group="b").bodies == ["0"]


def test_repeated_claim_leaves_out_retried_and_rejected(harness: StoreHarness) -> None:
    harness.number(3)
    first = harness.claim(3, key="k")
    harness.retry(first.deliveries[0])
    harness.reject(first.deliveries[1])
    assert harness.claim(3, key="k").bodies == ["2"]
    assert harness.claim(3).bodies == ["0"]


def test_message_lost_to_a_seek_stays_lost_to_the_old_lease(harness: StoreHarness) -> None:
    harness.push("a", partition="p1")
    harness.push("b", partition="p2")
    first = harness.claim(2, key="k")
    harness.seek("start", partition="p1")
    again = harness.claim(2, key="k")
    assert again.bodies == ["b"]
    assert harness.ack(*first.deliveries) == ["stale", "stale"]


def test_key_over_several_queues_finds_its_claim_again(harness: StoreHarness) -> None:
    for name in ("one", "two"):
        harness.do(c.ConfigureQueue(queue=name, namespace="shop"))
        harness.number(2, queue=name)
        harness.advance(1)
    where: dict[str, Any] = {"queue": None, "namespace": "shop", "key": "k"}
    first = harness.claim(1, **where)
    harness.advance(1)
    again = harness.claim(1, **where)
    assert again.claimed.grants[0].queue == first.claimed.grants[0].queue == "one"
    harness.ack(*again.deliveries)
    assert harness.claim(1, **where).why == "ended"


def test_key_does_not_go_with_auto_ack(harness: StoreHarness) -> None:
    harness.number(1)
    with pytest.raises(BadInput, match="auto-ack"):
        harness.claim(key="k", auto_ack=True)


def test_repeated_claim_keeps_its_owner_and_its_exclusivity(harness: StoreHarness) -> None:
    harness.number(4)
    harness.claim(2, key="k", exclusivity="partition", owner="me")
    harness.claim(2, key="k", exclusivity="partition", owner="me")
    assert harness.claim(exclusivity="none").why == "locked"
    assert harness.claim(exclusivity="partition", owner="me").bodies == ["2", "3"]
