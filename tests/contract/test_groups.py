"""Groups: where they start, how far behind they are, how they are moved and deleted."""

from __future__ import annotations

import pytest

from ackwise.core import commands as c
from ackwise.core import queries as q
from ackwise.core.errors import UnknownGroup, UnknownPartition
from ackwise.core.messages import QUEUE_MODE
from tests.contract.support import Desk, counts


def make(desk: Desk, name: str, start: object) -> None:
    desk.do(c.ConfigureGroup(queue="q", group=name, start=start))  # type: ignore[arg-type]


def at_three_times(desk: Desk) -> list[int]:
    """Three messages a minute apart; when each was made."""
    times = []
    for body in "abc":
        times.append(desk.clock.now())
        desk.push(body)
        desk.advance(60)
    return times


def test_a_new_group_starts_at_everything(desk: Desk) -> None:
    desk.number(3)
    make(desk, "g", "all")
    assert desk.group("g").lag == 3
    assert desk.claim(group="g").bodies == ["0", "1", "2"]


def test_or_at_what_comes(desk: Desk) -> None:
    desk.number(3)
    make(desk, "g", "new")
    assert desk.group("g").lag == 0
    desk.push("new")
    desk.push("new partition", partition="p")
    assert desk.claim(group="g").bodies == ["new", "new partition"]


def test_or_at_an_instant(desk: Desk) -> None:
    times = at_three_times(desk)
    for offset, bodies in ((-1, ["b", "c"]), (0, ["b", "c"]), (1, ["c"])):
        make(desk, f"g{offset}", times[1] + offset)
        assert desk.claim(group=f"g{offset}").bodies == bodies
    make(desk, "future", desk.clock.now() + 1)
    assert desk.claim(group="future").why == "empty"


def test_a_claim_may_say_where_its_group_starts(desk: Desk) -> None:
    desk.number(3)
    assert desk.claim(group="g", start="new").why == "empty"
    assert desk.claim(group="g", start="all").why == "empty"


def test_configuring_again_changes_nothing_but_the_policy(desk: Desk) -> None:
    desk.number(3)
    make(desk, "g", "all")
    make(desk, "g", "new")
    assert desk.group("g").lag == 3


def test_lag_is_unread_and_held(desk: Desk) -> None:
    desk.number(5)
    hand = desk.claim(3)
    desk.ack(hand.deliveries[0])
    desk.retry(hand.deliveries[1])
    stats = desk.group()
    assert (stats.unread, stats.held, stats.lag) == (2, 2, 4)
    assert (stats.leases, len(stats.members)) == (1, 1)


def test_the_oldest_unfinished_message_dates_the_lag(desk: Desk) -> None:
    times = at_three_times(desk)
    hand = desk.claim()
    assert desk.group().oldest_unfinished_at == times[0]
    desk.ack(hand.deliveries[0])
    assert desk.group().oldest_unfinished_at == times[1]
    desk.ack(*hand.deliveries)
    assert desk.group().oldest_unfinished_at is None


@pytest.mark.parametrize(("to", "bodies"), [("start", ["a", "b", "c"]), ("end", []), (1, ["b", "c"]), (2, ["c"])])
def test_seek(desk: Desk, to: str | int, bodies: list[str]) -> None:
    times = at_three_times(desk)
    desk.ack(*desk.claim(2).deliveries)
    desk.seek(times[to] if isinstance(to, int) else to)
    assert desk.claim().bodies == bodies
    (cursor,) = desk.store.list_cursors(q.ListCursors(queue="q", group=QUEUE_MODE))
    assert (cursor.epoch, cursor.acked) == (1, 0)


def test_seek_to_a_seq_of_one_partition(desk: Desk) -> None:
    for name in ("p1", "p2"):
        desk.push(f"{name}a", f"{name}b", f"{name}c", partition=name)
    desk.ack(*desk.claim().deliveries)
    desk.seek(1, partition="p2", by="seq")
    assert desk.claim().bodies == ["p2b", "p2c"]
    desk.seek(99, partition="p2", by="seq")
    assert desk.claim().why == "empty"


def test_seek_makes_old_settlements_stale_and_does_not_touch_the_new_holder(desk: Desk) -> None:
    desk.number(3)
    old = desk.claim(seconds=100)
    desk.ack(old.deliveries[0])
    desk.seek("start")
    assert desk.group().leases == 0
    new = desk.claim()
    assert new.bodies == ["0", "1", "2"]
    assert desk.ack(*old.deliveries) == ["already", "stale", "stale"]
    assert desk.ack(c.ByLease(old.lease_id)) == ["stale"]
    assert desk.do(c.Extend(lease_id=old.lease_id, lease=1_000_000)).verdict == "stale"
    assert counts(desk.group()) == {"held": 3}


def test_seek_of_one_partition_leaves_the_rest_of_a_lease(desk: Desk) -> None:
    desk.push("a", partition="p1")
    desk.push("b", partition="p2")
    old = desk.claim(exclusivity="partition")
    desk.seek("start", partition="p1")
    assert desk.ack(*old.deliveries) == ["stale", "acked"]
    assert desk.claim(exclusivity="partition").bodies == ["a"]


def test_seek_moves_one_group(desk: Desk) -> None:
    desk.number(2)
    for name in ("a", "b"):
        desk.ack(*desk.claim(group=name).deliveries)
    desk.seek("start", group="a")
    assert (desk.group("a").lag, desk.group("b").lag) == (2, 0)


def test_seek_of_something_unknown(desk: Desk) -> None:
    desk.number(1)
    desk.claim()
    with pytest.raises(UnknownGroup):
        desk.seek("start", group="nobody")
    with pytest.raises(UnknownPartition):
        desk.seek("start", partition="nowhere")


def test_a_deleted_group_voids_its_leases_and_may_start_anew(desk: Desk) -> None:
    desk.number(2)
    hand = desk.claim(group="g")
    desk.ack(hand.deliveries[0])
    desk.do(c.DeleteGroup(queue="q", group="g"))
    assert desk.store.list_groups(q.ListGroups(queue="q")) == []
    assert desk.ack(*hand.deliveries) == ["stale", "stale"]
    with pytest.raises(UnknownGroup):
        desk.do(c.DeleteGroup(queue="q", group="g"))
    new = desk.claim(group="g")
    assert new.bodies == ["0", "1"]
    assert desk.ack(*hand.deliveries) == ["stale", "stale"]
    assert desk.ack(*new.deliveries) == ["acked", "acked"]


def test_leases_are_listed_by_group_living_or_not(desk: Desk) -> None:
    desk.number(2)
    first = desk.claim(1, group="g", owner="me", key="k")
    desk.ack(*first.deliveries)
    second = desk.claim(1, group="g", owner="me")
    desk.claim(1, group="other")
    living = desk.store.list_leases(q.ListLeases(queue="q", group="g"))
    every = desk.store.list_leases(q.ListLeases(queue="q", group="g", live_only=False))
    assert [row.lease_id for row in living] == [second.lease_id]
    assert [(row.lease_id, row.owner, row.key, row.end_kind) for row in every] == [
        (second.lease_id, "me", None, None),
        (first.lease_id, "me", "k", "settled"),
    ]
    assert [row.lease_id for row in desk.store.list_leases(q.ListLeases(limit=1, queue="q", group="g"))] == [
        second.lease_id
    ]
