"""Claims whose messages are read elsewhere, and groups that are moved on without claiming: embedded and over HTTP."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest

import ackwise
from ackwise import errors
from ackwise.clock import ManualClock
from ackwise.core.answers import Claimed
from ackwise.core.commands import AdvanceGroup, ByLease, ByRange, Claim, Settle, Settlement
from ackwise.core.lane_selection import EmptyReason
from ackwise.core.queries import ListHeld, ListLanes, ListLeases
from ackwise.core.rows import HeldRow
from ackwise.core.settlement import Outcome
from tests.client.flaky import Flaky
from tests.server.running import Running

JOB = Claim(queue="q", group="g", most=3, lease=10_000_000, key="job/1", owner="me")


def granted(connection: ackwise.Connection, claim: Claim = JOB) -> Claimed:
    claimed = connection._transport.send(claim)
    assert isinstance(claimed, Claimed)
    return claimed


def test_claim_that_is_sent_answers_its_grants(queue: ackwise.Connection, clock: ManualClock) -> None:
    queue.push_many("q", range(5), partition="p")
    send, ask = queue._transport.send, queue._transport.ask
    (lane,) = ask(ListLanes(queue="q"))
    claimed = granted(queue)
    assert (claimed.group, claimed.deadline, claimed.empty) == ("g", clock.now() + 10_000_000, None)
    assert claimed.ranges == [(lane.lane, 0, 3)]
    assert [(g.queue, g.partition, g.partition_id) for g in claimed.grants] == [("q", "p", lane.partition_id)]
    (lease,) = ask(ListLeases(key_prefix="job/"))
    assert (lease.lease_id, lease.owner, lease.held) == (claimed.lease_id, "me", 3)
    done = Settlement(selector=ByRange(claimed.lease_id, lane.lane, 1, 2), outcome=Outcome.ACK)
    assert [one.verdict for one in send(Settle(entries=[done]))] == ["acked"]
    again = granted(queue)
    assert [(g.lo, g.hi, g.failures, g.attempt) for g in again.grants] == [(0, 1, 0, 2), (2, 3, 0, 2)]
    assert ask(ListHeld(lease_id=again.lease_id)) == [HeldRow(lane.lane, 0, 1, 0, 2), HeldRow(lane.lane, 2, 3, 0, 2)]
    assert ask(ListHeld(lease_id=claimed.lease_id)) == []


def test_empty_one_says_why(queue: ackwise.Connection) -> None:
    queue.push("q", 1)
    first = granted(queue)
    rest = Settlement(selector=ByLease(first.lease_id), outcome=Outcome.ACK)
    queue._transport.send(Settle(entries=[rest]))
    ended = granted(queue)
    assert (ended.grants, ended.empty, ended.lease_id) == ([], EmptyReason.ENDED, "")
    with pytest.raises(errors.ClaimConflict, match="owner"):
        granted(queue, Claim(queue="q", group="g", key="job/1", owner="you"))
    with pytest.raises(errors.UnknownQueue):
        granted(queue, Claim(queue="nowhere"))


def test_read_without_claim_advances_the_group(queue: ackwise.Connection) -> None:
    queue.push_many("q", range(5))
    (lane,) = queue._transport.ask(ListLanes(queue="q"))
    moved = queue._transport.send(AdvanceGroup(queue="q", group="g", lanes={lane.lane: 3}))
    assert (moved.count, queue.groups("q")[0].acked) == (3, 3)
    assert [d.json() for d in queue.claim("q", group="g", max=9)] == [3, 4]
    with pytest.raises(errors.BadInput, match="ends at 5"):
        queue._transport.send(AdvanceGroup(queue="q", group="g", lanes={lane.lane: 6}))


# over HTTP


@pytest.fixture
def flaky(store_url: str, clock: ManualClock) -> Iterator[Flaky]:
    with Running(store_url, clock) as server:
        proxy = Flaky(server.address)
        yield proxy
        proxy.down()
        assert proxy.used_up, "a test whose faults never happen shows nothing"


@pytest.fixture
def remote(flaky: Flaky, clock: ManualClock) -> Iterator[ackwise.Connection]:
    with ackwise.connect(flaky.url, clock=clock) as connection:
        yield connection


def test_closed_client_leaves_grants_to_holder_of_key(flaky: Flaky, clock: ManualClock) -> None:
    with ackwise.connect(flaky.url, clock=clock) as first:
        first.push_many("q", range(2))
        granted(first)
        assert first.drain() == 0
        assert granted(first).empty is EmptyReason.DRAINING
    with pytest.raises(errors.Draining):
        granted(first)
    with ackwise.connect(flaky.url, clock=clock) as second:
        assert [(g.attempt, g.failures) for g in granted(second).grants] == [(2, 0)]


def test_grants_whose_answer_is_lost_are_asked_for_again(remote: ackwise.Connection, flaky: Flaky) -> None:
    remote.push_many("q", range(2))
    flaky.fail("/v1/claim", "lose the request", "lose the answer")
    assert [(g.lo, g.hi, g.attempt) for g in granted(remote).grants] == [(0, 2, 2)]
    assert flaky.count("/v1/claim") == 3


def test_claim_without_a_key_is_not_repeated(remote: ackwise.Connection, flaky: Flaky) -> None:
    remote.push("q", 1)
    flaky.fail("/v1/claim", "lose the answer")
    with pytest.raises(errors.OutcomeUnknown):
        granted(remote, Claim(queue="q", group="g"))
    assert flaky.count("/v1/claim") == 1


def test_server_that_leaves_is_unavailable(store_url: str, clock: ManualClock) -> None:
    with Running(store_url, clock) as server, ackwise.connect(server.url, clock=clock) as queue:
        queue.push("q", 1)
        server.server.runtime.broker().stop_claims()
        assert granted(queue).empty is EmptyReason.UNAVAILABLE


def test_group_that_was_moved_on_is_not_moved_twice(remote: ackwise.Connection, flaky: Flaky) -> None:
    remote.push_many("q", range(3))
    (lane,) = remote._transport.ask(ListLanes(queue="q"))
    flaky.fail("/v1/admin", "lose the answer")
    assert remote._transport.send(AdvanceGroup(queue="q", group="g", lanes={lane.lane: 2})).count == 0
    assert (remote.groups("q")[0].acked, remote.groups("q")[0].unread) == (2, 1)


def test_grants_with_auto_ack_are_refused_over_http(remote: ackwise.Connection) -> None:
    """No call could read it later: embedded, the answer contains it; over HTTP it would not."""
    remote.push("q", 1)
    with pytest.raises(errors.BadInput, match="auto_ack"):
        granted(remote, Claim(queue="q", auto_ack=True))
    assert len(remote.claim("q")) == 1


def test_asyncio_does_the_same(flaky: Flaky, clock: ManualClock) -> None:
    async def job() -> None:
        async with ackwise.connect_async(flaky.url, clock=clock) as queue:
            await queue.push_many("q", range(2))
            claimed = await queue._transport.send(JOB)
            assert (claimed.count, len(queue._transport._held)) == (2, 0)  # type: ignore[attr-defined]

    asyncio.run(job())
