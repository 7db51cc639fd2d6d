"""What only a connection over HTTP has: a server's time, polls that are called back, servers that die."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import ackwise
from ackwise import Item, errors
from ackwise.client.aio import http_transport as aio_http
from ackwise.client.sync import http_transport as sync_http
from ackwise.clock import ManualClock
from ackwise.core.answers import Settled
from ackwise.core.commands import ByTransaction, Claim, Settle, Settlement, Sweep
from ackwise.core.lane_selection import EmptyReason
from ackwise.core.queries import FindMessage, ListPartitions, ListPlaces, ListStats
from ackwise.core.settlement import Outcome
from tests.patience import PATIENCE
from tests.server.process import ServerProcess
from tests.server.running import Running


@pytest.fixture
def server(store_url: str, clock: ManualClock) -> Iterator[Running]:
    with Running(store_url, clock) as running:
        yield running


@pytest.fixture
def queue(server: Running, clock: ManualClock) -> Iterator[ackwise.Connection]:
    with ackwise.connect(server.url, clock=clock) as connection:
        yield connection


def test_transport_now_is_the_time_of_the_server(server: Running, clock: ManualClock) -> None:
    """The client's own clock only says how long ago the server told the time."""
    own = ManualClock(5)
    with ackwise.connect(server.url + "/", clock=own) as queue:
        assert queue._transport.now() == clock.now()
        own.advance(7)
        assert queue._transport.now() == clock.now() + 7_000_000
        clock.advance(100)
        queue.queues()
        assert queue._transport.now() == clock.now()


def test_errors_have_their_details(queue: ackwise.Connection, clock: ManualClock) -> None:
    queue.push_many("q", range(2))
    batch = queue.claim("q", lease=10)
    with pytest.raises(errors.UnknownQueue) as unknown:
        queue._transport.settle_and_claim(
            Settle(entries=[Settlement(selector=batch.selector, outcome=Outcome.ACK)]), Claim(queue="nowhere"), 0
        )
    assert unknown.value.details["queue"] == "nowhere"
    assert [type(one) for one in unknown.value.details["settled"]] == [Settled]
    late = queue.claim("q", lease=10)
    clock.advance(10)
    with pytest.raises(errors.RolledBack) as rolled_back:
        queue.transaction().ack(late).commit()
    assert rolled_back.value.details == {"index": 0, "verdict": "stale"}
    with pytest.raises(errors.LeaseLost) as lost:
        late.extend(5)
    assert lost.value.details == {"verdict": "stale"}


def test_every_message_has_a_transaction_id(queue: ackwise.Connection) -> None:
    receipts = [*queue.push_many("q", range(3)), queue.push("q", 3), *queue.push_many("q", [Item(payload=4)])]
    assert len({receipt.transaction_id for receipt in receipts}) == 5
    assert [d.transaction_id for d in queue.claim("q", max=9)] == [receipt.transaction_id for receipt in receipts]


def test_bytes_that_say_json_must_be(queue: ackwise.Connection) -> None:
    """They would stand in a request as they are, so they could say anything there."""
    for payload in (b"{", b'1],"queue":"other","x":[1', b'"\xff"', b""):
        with pytest.raises(errors.BadInput, match="not JSON"):
            queue.push("q", payload, content_type="application/json")
    assert queue.queues() == []
    queue.push("q", b'{"a": 1.0,  "b":[ ]}', content_type="application/json")
    assert queue.claim("q")[0].payload == b'{"a": 1.0,  "b":[ ]}'


def test_command_that_is_not_for_clients_is_refused(queue: ackwise.Connection) -> None:
    with pytest.raises(errors.BadInput, match="Sweep"):
        queue._transport.send(Sweep())


def test_queries_and_selectors_work_over_http(queue: ackwise.Connection) -> None:
    receipt = queue.push("q", {"a": 1}, headers={"k": "v"}, transaction_id="t")
    ask = queue._transport.ask
    found = ask(FindMessage(partition_id=receipt.partition_id, transaction_id="t"))
    assert (found.message.payload, found.message.headers, found.queue.name) == (b'{"a":1}', {"k": "v"}, "q")
    assert found.message.id == receipt.message_id
    queue.claim("q", group="g")
    assert ask(ListPlaces(group="g"))[0].held == 1
    assert ask(ListPartitions(queue="q"))[0].messages == 1
    assert ask(ListStats())[0].stats.messages == 1
    by_transaction = ByTransaction(receipt.partition_id, "t", group="g")
    (answer,) = queue.settle([(by_transaction, "ack")])
    assert answer.verdict == "acked"


@pytest.mark.parametrize("module", [aio_http, sync_http])
def test_claim_waits_longer_than_a_poll(
    queue: ackwise.Connection, server: Running, module: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "LONGEST_POLL", 0.02)
    queue.create_queue("q")
    found: list[object] = []

    async def wait() -> None:
        async with ackwise.connect_async(server.url) as other:
            found.extend([d.json() for d in await other.claim("q", wait=60)])

    def work() -> None:
        if module is aio_http:
            asyncio.run(wait())
        else:
            found.extend(d.json() for d in queue.claim("q", wait=60))

    thread = threading.Thread(target=work)
    thread.start()
    assert not queue.claim("q", group="other", wait=0.1)
    queue.push("q", "late")
    thread.join(PATIENCE)
    assert found == ["late"]


def test_draining_one_client_leaves_the_others_alone(queue: ackwise.Connection, server: Running) -> None:
    queue.push_many("q", range(4))
    queue.claim("q", max=1, key="kept")
    with ackwise.connect(server.url) as other:
        held = other.claim("q", max=2)
        assert queue.drain() == 1
        assert queue.claim("q").empty is EmptyReason.DRAINING
        assert next(queue.batches("q"), None) is None
        assert len(other.claim("q", max=9)) == 2
        assert held.ack() == "acked"
        queue.push("q", "more")
        assert [d.json() for d in other.claim("q")] == ["more"]


def test_drain_lets_holders_finish(queue: ackwise.Connection) -> None:
    queue.push_many("q", range(2))
    first, second = queue.claim("q", max=2)
    finishing = threading.Thread(target=lambda: (first.ack(), second.ack()))
    finishing.start()
    assert queue.drain(grace=60) == 0
    finishing.join(PATIENCE)
    assert queue.groups("q")[0].acked == 2


def test_lease_that_ran_out_is_not_waited_for(queue: ackwise.Connection, clock: ManualClock) -> None:
    queue.push("q", 1)
    queue.claim("q", lease=5)
    clock.advance(5)
    assert queue.drain(grace=3600) == 0


def test_closing_calls_back_polls_that_wait(server: Running, clock: ManualClock) -> None:
    queue = ackwise.connect(server.url, clock=clock)
    queue.create_queue("q")
    answers: list[Any] = []
    threads = [threading.Thread(target=lambda: answers.append(queue.claim("q", wait=3600).empty)) for _ in range(3)]
    for thread in threads:
        thread.start()
    server.until_waiting(3)
    queue.close()
    for thread in threads:
        thread.join(PATIENCE)
    assert answers == ["draining"] * 3
    with pytest.raises(errors.Draining, match="closed"):
        queue.claim("q")


def test_cancelled_claim_takes_nothing(server: Running) -> None:
    async def job() -> None:
        async with ackwise.connect_async(server.url) as queue:
            await queue.create_queue("q")
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(queue.claim("q", wait=60), 0.1)
            await queue.push("q", 1)
            (delivery,) = await queue.claim("q", wait=30)
            assert delivery.failures == 0

    asyncio.run(job())


def test_server_that_shuts_down_does_not_end_its_clients(store_url: str, clock: ManualClock) -> None:
    """A consumer goes on with the next server at the same address."""
    with Running(store_url, clock) as first:
        queue = ackwise.connect(first.url, clock=clock)
        queue.create_queue("q")
        claimed: list[Any] = []
        consumer = threading.Thread(target=lambda: claimed.extend(next(queue.batches("q", wait=60))))
        consumer.start()
        first.until_waiting(1)
    with Running(store_url, clock, port=first.address[1]) as second:
        queue.push("q", "hello")
        consumer.join(PATIENCE)
        assert [d.json() for d in claimed] == ["hello"]
        assert second.url == first.url
        queue.close()


def test_claim_without_patience_says_that_the_server_leaves(store_url: str, clock: ManualClock) -> None:
    with Running(store_url, clock) as server, ackwise.connect(server.url, clock=clock) as queue:
        queue.push("q", 1)
        server.server.runtime.broker().stop_claims()
        assert queue.claim("q").empty is EmptyReason.UNAVAILABLE
        assert queue.push("q", 2).status == "queued"


def test_client_continues_after_server_kill_and_restart(tmp_path: Path) -> None:
    """Pushes and acks in flight at the kill are made good by their next try; what was answered is there."""
    store = f"sqlite:///{tmp_path}/q.db"
    stop, answered = threading.Event(), [0]

    with contextlib.ExitStack() as stack:
        process = stack.enter_context(ServerProcess(store))
        queue = stack.enter_context(ackwise.connect(process.url))

        def push() -> None:
            while not stop.is_set():
                answered.append(queue.push("q", len(answered)).seq or 0)

        queue.push("q", 0)
        (delivery,) = queue.claim("q", group="g", lease=300)
        pusher = threading.Thread(target=push)
        pusher.start()
        for _ in range(2):
            seen = len(answered)
            while len(answered) < seen + 20:
                stop.wait(0.001)
            process.kill()
            process = stack.enter_context(ServerProcess(store, "--port", str(process.port)))
        assert delivery.ack() == "acked"
        stop.set()
        pusher.join(PATIENCE)
        assert answered == list(range(len(answered))), "each has its place"
        assert [d.json() for d in queue.claim("q", max=100_000)] == answered, "each once, in order"
        queue.close()
