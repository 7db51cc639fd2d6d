"""What a client does when connections break and servers are busy."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from datetime import datetime
from typing import Any

import pytest

import ackwise
from ackwise import AsyncConnection, Item, errors
from ackwise.client import settlements
from ackwise.client.sync.http_transport import HTTPTransport
from ackwise.clock import ManualClock
from ackwise.core.commands import Claim, Extend, Settle
from ackwise.core.settlement import Outcome, Verdict
from tests.client.flaky import Fault, Flaky, refusal
from tests.patience import PATIENCE
from tests.server.running import Running

LOST: list[Fault] = ["lose the request", "lose the answer"]
BUSY: list[Fault] = [
    refusal(429, "overloaded", "retry-after: 0"),
    refusal(503, "store_locked"),
    refusal(503, "draining"),
    b"HTTP/1.1 503 Service Unavailable\r\ncontent-length: 4\r\n\r\nbusy",
]


@pytest.fixture
def flaky(store_url: str, clock: ManualClock) -> Iterator[Flaky]:
    with Running(store_url, clock) as server:
        proxy = Flaky(server.address)
        yield proxy
        proxy.down()
        assert proxy.used_up, "a test whose faults never happen shows nothing"


@pytest.fixture
def queue(flaky: Flaky, clock: ManualClock) -> Iterator[ackwise.Connection]:
    with ackwise.connect(flaky.url, clock=clock) as connection:
        connection.new_queue_policy = ackwise.QueuePolicy()  # retries at once
        yield connection


@pytest.fixture
def impatient(queue: ackwise.Connection) -> ackwise.Connection:
    """A connection whose calls give up after their first try."""
    assert isinstance(queue._transport, HTTPTransport)
    queue._transport._patience = 0.0
    return queue


def test_push_arrives_once(queue: ackwise.Connection, flaky: Flaky) -> None:
    flaky.fail("/v1/push", *LOST, *BUSY)
    receipts = queue.push_many("q", range(5))
    assert [(r.status, r.seq) for r in receipts] == [("queued", n) for n in range(5)]
    assert [d.json() for d in queue.claim("q", max=9)] == list(range(5))
    assert flaky.count("/v1/push") == 7


def test_push_of_messages_with_options_arrives_once(queue: ackwise.Connection, flaky: Flaky) -> None:
    queue.push("q", "before", transaction_id="mine")
    flaky.fail("/v1/push", "lose the answer")
    receipts = queue.push_many(
        "q", [Item(payload=1, priority=2), Item(payload=2, delay=5), Item(payload="again", transaction_id="mine")]
    )
    assert [r.status for r in receipts] == ["queued", "scheduled", "duplicate"]
    assert queue.stats("q").messages == 2


def test_settlement_that_was_made_answers_already(queue: ackwise.Connection, flaky: Flaky) -> None:
    queue.push_many("q", range(2))
    first, second = queue.claim("q", max=2)
    flaky.fail("/v1/settle", "lose the request")
    assert first.ack() is Verdict.ACKED
    flaky.fail("/v1/settle", "lose the answer")
    assert second.ack() is Verdict.ALREADY
    assert queue.groups("q")[0].acked == 2


def test_retry_that_arrived_is_not_charged_twice(queue: ackwise.Connection, flaky: Flaky) -> None:
    queue.push("q", 1)
    flaky.fail("/v1/settle", "lose the answer", "lose the answer")
    assert queue.claim("q")[0].retry(error="once") is Verdict.ALREADY
    (again,) = queue.claim("q")
    assert (again.failures, again.attempt) == (1, 2)


def test_transaction_happens_once(queue: ackwise.Connection, flaky: Flaky) -> None:
    queue.push("in", 1)
    (delivery,) = queue.claim("in")
    flaky.fail("/v1/transaction", "lose the answer")
    done = queue.transaction().ack(delivery).push("out", 1).push("out", 2, delay=9).commit()
    assert [s.verdict for s in done.settled] == [Verdict.ALREADY]
    assert [[r.status for r in receipts] for receipts in done.pushed] == [["queued", "scheduled"]]
    assert (queue.stats("out").messages, queue.stats("out").scheduled) == (1, 1)


@pytest.mark.parametrize("kind", ["fail", "require"])
def test_transaction_that_would_find_itself_is_not_repeated(queue: ackwise.Connection, flaky: Flaky, kind: str) -> None:
    queue.push("in", 1)
    batch = queue.claim("in")
    flaky.fail("/v1/transaction", "lose the answer")
    step = queue.transaction().push("out", 1, transaction_id="t")
    with pytest.raises(errors.OutcomeUnknown, match=flaky.url):
        step.require(batch).commit() if kind == "require" else step.commit(on_duplicate="fail")
    assert queue.stats("out").messages == 1


def test_claim_whose_answer_is_lost_is_not_repeated(
    queue: ackwise.Connection, flaky: Flaky, clock: ManualClock
) -> None:
    queue.push("q", 1)
    flaky.fail("/v1/claim", "lose the answer")
    with pytest.raises(errors.OutcomeUnknown, match=flaky.url):
        queue.claim("q", lease=10)
    assert (flaky.count("/v1/claim"), queue.claim("q").empty) == (1, "empty")
    clock.advance(10)
    assert len(queue.claim("q")) == 1


def test_claim_with_a_key_is_repeated(queue: ackwise.Connection, flaky: Flaky) -> None:
    queue.push_many("q", range(4))
    flaky.fail("/v1/claim", *LOST)
    assert [d.json() for d in queue.claim("q", max=2, key="job")] == [0, 1]
    assert queue.groups("q")[0].held == 2


def test_claims_ahead_and_their_settlement_are_repeated(queue: ackwise.Connection, flaky: Flaky) -> None:
    queue.push_many("q", range(5))
    settle = Settle(entries=[settlements.settlement_for(queue.claim("q").selector, Outcome.ACK)])
    flaky.fail("/v1/claim", *LOST)
    settled, handed = queue._transport.claim_ahead(settle, Claim(queue="q", key="job"), 3)
    assert [one.messages[0].payload for one in handed] == [b"1", b"2", b"3"]
    assert ([one.verdict for one in settled], queue.groups("q")[0].acked) == ([Verdict.ALREADY], 1)
    assert queue._transport.repeats == 1
    flaky.fail("/v1/claim", "lose the answer")
    queue._transport._patience = 0.0  # type: ignore[attr-defined]
    with pytest.raises(errors.OutcomeUnknown):
        queue._transport.claim_ahead(settle, Claim(queue="q", key="last"), 3)
    queue._transport._patience = 5.0  # type: ignore[attr-defined]
    _, handed = queue._transport.claim_ahead(None, Claim(queue="q", key="last"), 3)
    assert [one.messages[0].payload for one in handed] == [b"4"]


def test_claim_that_was_refused_is_repeated(queue: ackwise.Connection, flaky: Flaky) -> None:
    queue.push("q", 1)
    flaky.fail("/v1/claim", refusal(429, "overloaded"), refusal(503, "draining"))
    assert len(queue.claim("q")) == 1


def test_claim_refused_by_a_proxy_is_not_retried(queue: ackwise.Connection, flaky: Flaky) -> None:
    flaky.fail("/v1/claim", b"HTTP/1.1 503 Service Unavailable\r\ncontent-length: 4\r\n\r\nbusy")
    with pytest.raises(errors.StoreError, match="not as an Ackwise server does"):
        queue.claim("q")


def test_claim_with_unknown_outcome_is_not_repeated(queue: ackwise.Connection, flaky: Flaky) -> None:
    queue.push("q", 1)
    flaky.fail("/v1/claim", refusal(503, "outcome_unknown"))
    with pytest.raises(errors.OutcomeUnknown):
        queue.claim("q")
    flaky.fail("/v1/push", refusal(503, "outcome_unknown"))
    assert queue.push("q", 2).status == "queued"


def test_troubles_that_time_does_not_heal_are_raised_at_once(queue: ackwise.Connection, flaky: Flaky) -> None:
    for status, code, kind in ((503, "store_read_only", errors.StoreReadOnly), (507, "store_full", errors.StoreFull)):
        flaky.fail("/v1/push", refusal(status, code))
        with pytest.raises(kind):
            queue.push("q", 1)
    flaky.fail("/v1/push", refusal(500, "internal"))
    with pytest.raises(errors.StoreError, match="not now"):
        queue.push("q", 1)
    assert flaky.count("/v1/push") == 3


def test_reads_and_settings_are_repeated_and_the_rest_is_not(queue: ackwise.Connection, flaky: Flaky) -> None:
    queue.push("q", 1)
    flaky.fail("/v1/ask", *LOST)
    assert queue.stats("q").messages == 1
    flaky.fail("/v1/admin", *LOST)
    assert queue.configure_queue("q", retry_limit=9).policy["retry_limit"] == 9
    flaky.fail("/v1/admin", "lose the answer")
    with pytest.raises(errors.OutcomeUnknown):
        queue.create_queue("new")
    assert [info.name for info in queue.queues()] == ["new", "q"]


def test_extension_is_repeated(queue: ackwise.Connection, flaky: Flaky) -> None:
    queue.push("q", 1)
    batch = queue.claim("q", lease=10)
    flaky.fail("/v1/extend-all", *LOST)
    before = batch.deadline
    assert batch.extend(20) > before


def test_invalid_extension_fails_no_other_in_same_request(flaky: Flaky) -> None:
    async def job() -> None:
        async with ackwise.connect_async(flaky.url) as queue:
            await queue.push_many("q", range(3))
            good = [await queue.claim("q", max=1, lease=30) for _ in range(2)]
            acked = await queue.claim("q", max=1, auto_ack=True)
            nothing: Any = None
            before = flaky.count("/v1/extend-all")
            found = await asyncio.gather(
                good[0].extend(3600),
                acked.extend(),
                queue.extend(nothing, 5),
                queue.extend("\ud800", 5),
                queue._transport.send(Extend(lease_id=good[1].lease_id, lease=1 << 60)),
                queue.extend("nonsense", 5),
                good[1].extend(3600),
                return_exceptions=True,
            )
            kinds = [type(one) for one in found]
            bad = errors.BadInput
            assert kinds == [datetime, bad, bad, bad, bad, errors.LeaseLost, datetime]
            assert flaky.count("/v1/extend-all") == before + 1

    asyncio.run(job())


@pytest.mark.parametrize("refused", [refusal(404, "no_such_route"), refusal(400, "bad_input")])
def test_server_without_bulk_extend_is_asked_for_each(flaky: Flaky, refused: bytes) -> None:
    async def job() -> None:
        async with ackwise.connect_async(flaky.url) as queue:
            await queue.push_many("q", range(2))
            one, other = [await queue.claim("q", max=1, lease=30) for _ in range(2)]
            flaky.fail("/v1/extend-all", refused)
            found = await asyncio.gather(
                one.extend(3600), queue.extend("nonsense", 5), other.extend(3600), return_exceptions=True
            )
            assert [type(one) for one in found] == [datetime, errors.LeaseLost, datetime]
            assert "unknown" in str(found[1])
            assert (flaky.count("/v1/extend-all"), flaky.count("/v1/extend")) == (1, 3)
            flaky.fail("/v1/extend-all", refused)
            assert (await one.extend(3600)) >= found[0]  # type: ignore[operator]

    asyncio.run(job())


def test_batches_go_on_when_an_ack_with_its_claims_is_lost(queue: ackwise.Connection, flaky: Flaky) -> None:
    """What was finished is acked in any case; what was claimed with it comes back when its lease runs out."""
    queue.create_queue("q", lease_seconds=3600)
    queue.push_many("q", range(6))
    seen = []
    loop = queue.batches("q", max=2, stop_when_empty=True)
    for batch in loop:
        seen += [d.json() for d in batch]
        if seen == [0, 1]:
            flaky.fail("/v1/claim", "lose the answer")
    assert seen == [0, 1, 4, 5]
    (stats,) = queue.groups("q")
    assert (stats.acked, stats.held) == (4, 2)


def test_batches_unknown_to_the_server_are_reported_lost(queue: ackwise.Connection, flaky: Flaky) -> None:
    queue.push_many("q", range(4))
    flaky.fail("/v1/claim", "lose the answer")
    with pytest.raises(errors.OutcomeUnknown):
        next(queue.batches("q", max=1, prefetch=2))
    assert queue.groups("q")[0].held == 2


def test_messages_that_arrive_during_a_drain_are_released(queue: ackwise.Connection, flaky: Flaky) -> None:
    queue.push("q", 1)
    late = threading.Event()
    flaky.fail("/v1/claim", late)
    found: list[object] = []
    claiming = threading.Thread(target=lambda: found.append(queue.claim("q", wait=30).empty))
    claiming.start()
    while not queue.leases("q"):
        pass
    draining = threading.Thread(target=queue.drain)
    draining.start()
    assert isinstance(queue._transport, HTTPTransport)
    while not queue._transport._draining:
        pass
    late.set()
    claiming.join(PATIENCE)
    draining.join(PATIENCE)
    assert (found, queue.leases("q"), queue.groups("q")[0].lag) == (["draining"], [], 1)


def test_settling_and_claiming_together(queue: ackwise.Connection, flaky: Flaky) -> None:
    queue.push_many("q", range(3))
    claim = Claim(queue="q")
    entries = [settlements.settlement_for(queue.claim("q").selector, Outcome.ACK)]
    settled, handed = queue._transport.settle_and_claim(Settle(entries=entries), claim, 0.0)
    assert ([s.verdict for s in settled], len(handed.messages)) == ([Verdict.ACKED], 1)
    flaky.fail("/v1/claim", "lose the answer")
    settled, handed = queue._transport.settle_and_claim(Settle(entries=entries), claim, 30.0)
    assert ([s.verdict for s in settled], handed.claimed.empty) == ([Verdict.ALREADY], "unavailable")


def test_server_that_comes_back_in_time_is_waited_for(queue: ackwise.Connection, flaky: Flaky) -> None:
    queue.push("q", 1)
    flaky.down()
    pushed = threading.Thread(target=lambda: queue.push("q", 2))
    pushed.start()
    flaky.up()
    pushed.join(PATIENCE)
    assert queue.stats("q").messages == 2


def test_claims_wait_for_it_too_if_it_never_had_them(queue: ackwise.Connection, flaky: Flaky) -> None:
    queue.push("q", 1)
    flaky.down()
    found: list[int] = []
    claims = threading.Thread(target=lambda: found.append(len(queue.claim("q"))))
    claims.start()
    flaky.up()
    claims.join(PATIENCE)
    assert found == [1]


def test_server_that_is_not_there_is_named(flaky: Flaky) -> None:
    flaky.down()
    with pytest.raises(errors.StoreUnavailable, match=flaky.url):
        ackwise.connect(flaky.url)

    async def too() -> None:
        async with ackwise.connect_async(flaky.url):
            pass

    with pytest.raises(errors.StoreUnavailable, match=flaky.url):
        asyncio.run(too())


def test_server_that_went_away_is_named_in_the_error(impatient: ackwise.Connection, flaky: Flaky) -> None:
    impatient.push("q", 1)
    flaky.down()
    for call in (lambda: impatient.push("q", 2), lambda: impatient.claim("q"), lambda: impatient.stats("q")):
        with pytest.raises(errors.StoreUnavailable, match=flaky.url):
            call()


def test_lost_answer_at_the_end_of_patience_is_outcome_unknown(impatient: ackwise.Connection, flaky: Flaky) -> None:
    flaky.fail("/v1/push", "lose the answer")
    with pytest.raises(errors.OutcomeUnknown, match=flaky.url):
        impatient.push("q", 1)
    flaky.fail("/v1/ask", "lose the answer")
    with pytest.raises(errors.StoreUnavailable, match=flaky.url):
        impatient.stats("q")
    flaky.fail("/v1/push", refusal(429, "overloaded", "retry-after: 60"))
    with pytest.raises(errors.Overloaded):
        impatient.push("q", 1)


def test_retry_after_beyond_deadline_is_not_retried(queue: ackwise.Connection, flaky: Flaky) -> None:
    flaky.fail("/v1/push", refusal(429, "overloaded", "retry-after: 3600"))
    with pytest.raises(errors.Overloaded):
        queue.push("q", 1)
    assert flaky.count("/v1/push") == 1


def test_foreign_server_at_the_address(flaky: Flaky) -> None:
    flaky.fail("/v1", b"HTTP/1.1 404 Not Found\r\ncontent-length: 6\r\n\r\n<html>")
    with pytest.raises(errors.StoreError, match="not as an Ackwise server"):
        ackwise.connect(flaky.url)


def test_answer_that_is_not_understood(queue: ackwise.Connection, flaky: Flaky) -> None:
    flaky.fail("/v1/push", b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n[]")
    with pytest.raises(errors.StoreError, match="cannot decode the answer"):
        queue.push("q", 1)


def test_asyncio_does_the_same(flaky: Flaky, clock: ManualClock) -> None:
    async def job(queue: AsyncConnection) -> None:
        flaky.fail("/v1/push", *LOST, *BUSY)
        assert {r.status for r in await queue.push_many("q", range(3))} == {"queued"}
        flaky.fail("/v1/claim", "lose the answer")
        with pytest.raises(errors.OutcomeUnknown):
            await queue.claim("q", group="g")
        (delivery,) = await queue.claim("q")
        flaky.fail("/v1/settle", "lose the answer")
        assert await delivery.ack() is Verdict.ALREADY
        flaky.down()
        push = asyncio.create_task(queue.push("q", 4))
        await asyncio.sleep(0)
        flaky.up()
        assert (await push).status == "queued"

    async def run() -> None:
        async with ackwise.connect_async(flaky.url, clock=clock) as queue:
            await job(queue)

    asyncio.run(run())
