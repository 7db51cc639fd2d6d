"""Caller-chosen claim keys: the same claim again gives what is outstanding, never something new."""

from __future__ import annotations

from typing import Any

import pytest

from ackwise.core import commands as c
from ackwise.core.errors import BadInput, ClaimConflict
from tests.contract.support import Desk, counts


def test_the_same_key_is_the_same_claim_under_a_new_lease(desk: Desk) -> None:
    desk.number(6)
    first = desk.claim(3, key="n/1")
    again = desk.claim(3, key="n/1")
    assert again.bodies == first.bodies == ["0", "1", "2"]
    assert again.claimed.lease_no > first.claimed.lease_no
    assert [d.attempt for d in again.deliveries] == [2, 2, 2]
    assert {d.failures for d in again.deliveries} == {0}
    assert counts(desk.group()) == {"held": 3, "unread": 3}


def test_one_that_takes_nothing_over_leaves_what_is_held_alone(desk: Desk) -> None:
    desk.number(2)
    assert desk.claim(1, key="k", takes_over=False).bodies == ["0"]
    assert desk.claim(1, key="k", takes_over=False).claimed.empty == "ended"
    (held,) = desk.claim(1, key="k").deliveries
    assert (desk.ack(held), counts(desk.group())) == (["acked"], {"acked": 1, "unread": 1})


def test_the_old_lease_is_fenced_off(desk: Desk) -> None:
    desk.number(2)
    old = desk.claim(key="k")
    new = desk.claim(key="k")
    assert desk.ack(*old.deliveries, c.ByLease(old.lease_id)) == ["stale"] * 3
    assert desk.do(c.Extend(lease_id=old.lease_id, lease=10_000_000)).verdict == "stale"
    assert desk.ack(*new.deliveries) == ["acked", "acked"]


def test_after_a_partial_ack_the_rest_comes_back(desk: Desk) -> None:
    desk.number(5)
    first = desk.claim(5, key="k")
    desk.ack(first.deliveries[1], first.deliveries[3])
    again = desk.claim(5, key="k")
    assert again.bodies == ["0", "2", "4"]
    assert desk.ack(*first.deliveries) == ["stale", "already", "stale", "already", "stale"]
    assert desk.ack(*again.deliveries) == ["acked"] * 3
    assert counts(desk.group()) == {"acked": 5}


def test_a_finished_claim_gives_nothing(desk: Desk) -> None:
    desk.number(3)
    desk.ack(*desk.claim(2, key="k").deliveries)
    again = desk.claim(2, key="k")
    assert (again.why, again.bodies) == ("ended", [])
    assert desk.claim(2, key="k2").bodies == ["2"]


def test_an_expired_claim_gives_nothing_even_before_the_sweep(desk: Desk) -> None:
    desk.number(1)
    desk.claim(1, key="k", seconds=5)
    desk.advance(5)
    assert desk.claim(1, key="k").why == "ended"
    assert desk.claim(1, key="k2").bodies == ["0"]


def test_an_empty_claim_uses_up_no_key(desk: Desk) -> None:
    desk.configure()
    assert desk.claim(key="k").why == "empty"
    desk.push("a")
    assert desk.claim(key="k").bodies == ["a"]


@pytest.mark.parametrize("other", [{"partitions": ("Default",)}, {"priorities": (0,)}])
def test_another_filter_is_a_conflict(desk: Desk, other: dict[str, Any]) -> None:
    desk.number(3)
    desk.claim(1, key="k")
    before = desk.everything()
    with pytest.raises(ClaimConflict, match="claim key 'k'"):
        desk.claim(1, key="k", **other)
    assert desk.everything() == before


@pytest.mark.parametrize(("first", "second"), [("a", "b"), ("a", None), (None, "b")])
def test_another_owner_is_a_conflict(desk: Desk, first: str | None, second: str | None) -> None:
    desk.number(3)
    held = desk.claim(1, key="k", owner=first)
    before = desk.everything()
    with pytest.raises(ClaimConflict, match="owner"):
        desk.claim(1, key="k", owner=second)
    assert desk.everything() == before
    desk.ack(*held.deliveries)
    with pytest.raises(ClaimConflict, match="owner"):
        desk.claim(1, key="k", owner=second)
    assert desk.claim(1, key="k", owner=first).why == "ended"


def test_groups_have_their_own_keys(desk: Desk) -> None:
    desk.number(1)
    assert desk.claim(key="k", group="a").bodies == desk.claim(key="k", group="b").bodies == ["0"]


def test_what_was_settled_otherwise_stays_out(desk: Desk) -> None:
    desk.number(3)
    first = desk.claim(3, key="k")
    desk.retry(first.deliveries[0])
    desk.reject(first.deliveries[1])
    assert desk.claim(3, key="k").bodies == ["2"]
    assert desk.claim(3).bodies == ["0"]


def test_a_message_lost_to_a_seek_stays_lost_to_the_old_lease(desk: Desk) -> None:
    desk.push("a", partition="p1")
    desk.push("b", partition="p2")
    first = desk.claim(2, key="k")
    desk.seek("start", partition="p1")
    again = desk.claim(2, key="k")
    assert again.bodies == ["b"]
    assert desk.ack(*first.deliveries) == ["stale", "stale"]


def test_a_key_over_several_queues_finds_its_claim_again(desk: Desk) -> None:
    for name in ("one", "two"):
        desk.do(c.ConfigureQueue(queue=name, namespace="shop"))
        desk.number(2, queue=name)
        desk.advance(1)
    where: dict[str, Any] = {"queue": None, "namespace": "shop", "key": "k"}
    first = desk.claim(1, **where)
    desk.advance(1)
    again = desk.claim(1, **where)
    assert again.claimed.grants[0].queue == first.claimed.grants[0].queue == "one"
    desk.ack(*again.deliveries)
    assert desk.claim(1, **where).why == "ended"


def test_a_key_does_not_go_with_auto_ack(desk: Desk) -> None:
    desk.number(1)
    with pytest.raises(BadInput, match="auto-ack"):
        desk.claim(key="k", auto_ack=True)


def test_a_repeated_claim_keeps_its_owner_and_its_exclusivity(desk: Desk) -> None:
    desk.number(4)
    desk.claim(2, key="k", exclusivity="partition", owner="me")
    desk.claim(2, key="k", exclusivity="partition", owner="me")
    assert desk.claim(exclusivity="none").why == "locked"
    assert desk.claim(exclusivity="partition", owner="me").bodies == ["2", "3"]
