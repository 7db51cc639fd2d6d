"""Groups: where they start, how far behind they are, how they are moved and deleted."""

from __future__ import annotations

from typing import Any

import pytest

from ackwise.core import commands as c
from ackwise.core import queries as q
from ackwise.core.errors import UnknownGroup, UnknownPartition
from ackwise.core.messages import QUEUE_MODE
from ackwise.store.postgres.session import PostgresSession
from ackwise.store.sqlite.session import WriterSession
from tests.engine.store_harness import StoreHarness, counts


def make(harness: StoreHarness, name: str, start: object) -> None:
    harness.do(c.ConfigureGroup(queue="q", group=name, start=start))  # type: ignore[arg-type]


def at_three_times(harness: StoreHarness) -> list[int]:
    """Three messages a minute apart; when each was made."""
    times = []
    for body in "abc":
        times.append(harness.clock.now())
        harness.push(body)
        harness.advance(60)
    return times


def test_new_group_starts_at_everything(harness: StoreHarness) -> None:
    harness.number(3)
    make(harness, "g", "all")
    assert harness.group("g").lag == 3
    assert harness.claim(group="g").bodies == ["0", "1", "2"]


def test_group_that_starts_new_skips_older_messages(harness: StoreHarness) -> None:
    harness.number(3)
    make(harness, "g", "new")
    assert harness.group("g").lag == 0
    harness.push("new")
    harness.push("new partition", partition="p")
    assert harness.claim(group="g").bodies == ["new", "new partition"]


def test_group_that_starts_at_an_instant_skips_older_messages(harness: StoreHarness) -> None:
    times = at_three_times(harness)
    for offset, bodies in ((-1, ["b", "c"]), (0, ["b", "c"]), (1, ["c"])):
        make(harness, f"g{offset}", times[1] + offset)
        assert harness.claim(group=f"g{offset}").bodies == bodies
    make(harness, "future", harness.clock.now() + 1)
    assert harness.claim(group="future").why == "empty"


def test_claim_may_say_where_its_group_starts(harness: StoreHarness) -> None:
    harness.number(3)
    assert harness.claim(group="g", start="new").why == "empty"
    assert harness.claim(group="g", start="all").why == "empty"


def test_configuring_again_changes_nothing_but_the_policy(harness: StoreHarness) -> None:
    harness.number(3)
    make(harness, "g", "all")
    make(harness, "g", "new")
    assert harness.group("g").lag == 3


def test_lag_is_unread_and_held(harness: StoreHarness) -> None:
    harness.number(5)
    hand = harness.claim(3)
    harness.ack(hand.deliveries[0])
    harness.retry(hand.deliveries[1])
    stats = harness.group()
    assert (stats.unread, stats.held, stats.lag) == (2, 2, 4)
    assert (stats.leases, len(stats.members)) == (1, 1)


def test_oldest_unfinished_message_dates_the_lag(harness: StoreHarness) -> None:
    times = at_three_times(harness)
    hand = harness.claim()
    assert harness.group().oldest_unfinished_at == times[0]
    harness.ack(hand.deliveries[0])
    assert harness.group().oldest_unfinished_at == times[1]
    harness.ack(*hand.deliveries)
    assert harness.group().oldest_unfinished_at is None


@pytest.mark.parametrize(("to", "bodies"), [("start", ["a", "b", "c"]), ("end", []), (1, ["b", "c"]), (2, ["c"])])
def test_seek_sets_the_next_message_of_a_group(harness: StoreHarness, to: str | int, bodies: list[str]) -> None:
    times = at_three_times(harness)
    harness.ack(*harness.claim(2).deliveries)
    harness.seek(times[to] if isinstance(to, int) else to)
    assert harness.claim().bodies == bodies
    (cursor,) = harness.store.ask(q.ListCursors(queue="q", group=QUEUE_MODE))
    assert (cursor.epoch, cursor.acked) == (1, 0)


def test_seek_to_a_seq_of_one_partition(harness: StoreHarness) -> None:
    for name in ("p1", "p2"):
        harness.push(f"{name}a", f"{name}b", f"{name}c", partition=name)
    harness.ack(*harness.claim().deliveries)
    harness.seek(1, partition="p2", by="seq")
    assert harness.claim().bodies == ["p2b", "p2c"]
    harness.seek(99, partition="p2", by="seq")
    assert harness.claim().why == "empty"


def test_seek_makes_old_settlements_stale_for_new_holder(harness: StoreHarness) -> None:
    harness.number(3)
    old = harness.claim(seconds=100)
    harness.ack(old.deliveries[0])
    harness.seek("start")
    assert harness.group().leases == 0
    new = harness.claim()
    assert new.bodies == ["0", "1", "2"]
    assert harness.ack(*old.deliveries) == ["already", "stale", "stale"]
    assert harness.ack(c.ByLease(old.lease_id)) == ["stale"]
    assert harness.do(c.Extend(lease_id=old.lease_id, lease=1_000_000)).verdict == "stale"
    assert counts(harness.group()) == {"held": 3}


def test_seek_of_one_partition_leaves_the_rest_of_a_lease(harness: StoreHarness) -> None:
    harness.push("a", partition="p1")
    harness.push("b", partition="p2")
    old = harness.claim(exclusivity="partition")
    harness.seek("start", partition="p1")
    assert harness.ack(*old.deliveries) == ["stale", "acked"]
    assert harness.claim(exclusivity="partition").bodies == ["a"]


def test_seek_moves_one_group(harness: StoreHarness) -> None:
    harness.number(2)
    for name in ("a", "b"):
        harness.ack(*harness.claim(group=name).deliveries)
    harness.seek("start", group="a")
    assert (harness.group("a").lag, harness.group("b").lag) == (2, 0)


def test_seek_of_something_unknown(harness: StoreHarness) -> None:
    harness.number(1)
    harness.claim()
    with pytest.raises(UnknownGroup):
        harness.seek("start", group="missing")
    with pytest.raises(UnknownPartition):
        harness.seek("start", partition="nowhere")


def test_deleted_group_voids_its_leases_and_may_start_anew(harness: StoreHarness) -> None:
    harness.number(2)
    hand = harness.claim(group="g")
    harness.ack(hand.deliveries[0])
    harness.do(c.DeleteGroup(queue="q", group="g"))
    assert harness.store.ask(q.ListGroups(queue="q")) == []
    assert harness.ack(*hand.deliveries) == ["stale", "stale"]
    with pytest.raises(UnknownGroup):
        harness.do(c.DeleteGroup(queue="q", group="g"))
    new = harness.claim(group="g")
    assert new.bodies == ["0", "1"]
    assert harness.ack(*hand.deliveries) == ["stale", "stale"]
    assert harness.ack(*new.deliveries) == ["acked", "acked"]


def test_leases_are_listed_by_group_living_or_not(harness: StoreHarness) -> None:
    harness.number(2)
    first = harness.claim(1, group="g", owner="me", key="k")
    harness.ack(*first.deliveries)
    second = harness.claim(1, group="g", owner="me")
    harness.claim(1, group="other")
    living = harness.store.ask(q.ListLeases(queue="q", group="g"))
    every = harness.store.ask(q.ListLeases(queue="q", group="g", live_only=False))
    assert [row.lease_id for row in living] == [second.lease_id]
    assert [(row.lease_id, row.owner, row.key, row.end_kind) for row in every] == [
        (second.lease_id, "me", None, None),
        (first.lease_id, "me", "k", "settled"),
    ]
    assert [row.lease_id for row in harness.store.ask(q.ListLeases(limit=1, queue="q", group="g"))] == [second.lease_id]


def test_deleted_group_costs_no_statement_per_lane(harness: StoreHarness, monkeypatch: pytest.MonkeyPatch) -> None:
    def statements(lanes: int) -> int:
        for number in range(lanes):
            harness.push("1", partition=f"p{number}")
        harness.retry(*harness.claim(5, group="g").deliveries, delay=60)
        count = 0
        with monkeypatch.context() as patch:
            for kind in (WriterSession, PostgresSession):

                def run(self: Any, name: str, *params: Any, original: Any = kind.run) -> Any:
                    nonlocal count
                    count += 1
                    return original(self, name, *params)

                patch.setattr(kind, "run", run)
            assert harness.do(c.DeleteGroup(queue="q", group="g")).count == lanes
        return count

    assert statements(2) == statements(20)
    assert harness.claim(1, group="g").deliveries[0].attempt == 1
    assert harness.store.audit() == []
