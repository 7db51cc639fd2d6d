"""Sinks: items are posted, under locks, to a URL; what it answers settles them."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Sequence
from itertools import count
from typing import Any

import httpx2
import pytest

from ackwise.broker import AsyncBroker
from ackwise.clock import ManualClock
from ackwise.connect import open_store
from ackwise.core import queries as q
from ackwise.core.answers import Handed
from ackwise.core.commands import Claim
from ackwise.core.errors import StoreUnavailable
from ackwise.protocols.pushpop.push import push_of
from ackwise.protocols.pushpop.sinks import supervisor, worker
from ackwise.protocols.pushpop.sinks.supervisor import Sinks
from ackwise.protocols.pushpop.sinks.targets import SinkTarget
from tests.protocols.pushpop.pushpop_api import PushPopApi
from tests.protocols.pushpop.receiving import Receiver
from tests.protocols.queen.queen_api import eventually
from tests.server.running import Running


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("FLOWING", "LONGEST_EMPTY", "LONGEST_FULL"):
        monkeypatch.setattr(worker, name, 0.05)


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    with Receiver() as one:
        yield one


@pytest.fixture
def sunk(pushpop: PushPopApi) -> Iterator[PushPopApi]:
    """A queue whose sink is removed in the end: servers are shared here."""
    yield pushpop
    pushpop.post("sink/http/unregister")


def register(pushpop: PushPopApi, url: str, **more: Any) -> None:
    status, body = pushpop.post("sink/http/register", {"url": url, **more})
    assert (status, body["success"], body["sink_id"]) == (200, True, f"{pushpop.queue}-sink"), body


def numbers(post: Any) -> list[int]:
    return [one["item"]["n"] for one in post]


def test_200_acknowledges_everything(sunk: PushPopApi, receiver: Receiver) -> None:
    register(sunk, receiver.url, lock_ttl_seconds=60)
    sunk.push(1, priority=4)
    (posted,) = receiver.next()
    assert list(posted) == ["item", "priority", "lock_id", "lock_expires_at"]
    assert (posted["item"], posted["priority"], posted["lock_expires_at"]) == ({"n": 1}, 4, sunk.now + 60)
    eventually(lambda: sunk.metadata() == {})
    sunk.push(2, 3)
    got: list[int] = []
    while len(got) < 2:
        got += numbers(receiver.next())
    assert got == [2, 3]
    eventually(lambda: sunk.metadata() == {})
    assert sunk.look()["expired_locks"] == 0


def test_items_of_one_post_have_a_lock_each(sunk: PushPopApi, receiver: Receiver) -> None:
    sunk.push(1, 2, 3)
    register(sunk, receiver.url, max_concurrency=10)
    posted = receiver.next()
    assert numbers(posted) == [1, 2, 3]
    assert len({one["lock_id"] for one in posted}) == 3


def test_status_202_leaves_ack_to_receiver_up_to_the_cap(sunk: PushPopApi, receiver: Receiver) -> None:
    receiver.status = 202
    sunk.push(*range(5))
    register(sunk, receiver.url, max_concurrency=2, lock_ttl_seconds=300)
    first = receiver.next()
    assert numbers(first) == [0, 1]
    assert sunk.post("pop").status == 423
    assert sunk.depth == {"0": 3}
    assert sunk.ack(first[0]["lock_id"]).body["items_acknowledged"] == 1
    second = receiver.next()
    assert numbers(second) == [2]
    assert sunk.depth == {"0": 2}
    assert len(sunk.metadata()["_active_locks"]) == 2
    assert receiver.posts.empty()


@pytest.mark.parametrize("status", [500, 404, 204, 201, 302, 307])
def test_sink_status_other_than_200_lets_the_lock_expire(sunk: PushPopApi, receiver: Receiver, status: int) -> None:
    receiver.status, receiver.headers = status, {"location": receiver.url + "/elsewhere"}
    sunk.push(1)
    register(sunk, receiver.url, lock_ttl_seconds=10)
    (late,) = receiver.next()
    assert sunk.look()["lock"]["lock_id"] == late["lock_id"]
    receiver.status = 200
    sunk.clock.advance(10)
    (again,) = receiver.next()
    assert (again["item"], again["lock_id"] != late["lock_id"]) == ({"n": 1}, True)
    eventually(lambda: sunk.metadata() == {})
    assert set(receiver.paths) == {"/in"}
    assert sunk.look()["expired_locks"] == 1


def test_receiver_that_is_not_there(sunk: PushPopApi, receiver: Receiver) -> None:
    url = receiver.url
    receiver.close()
    sunk.push(1)
    register(sunk, url, lock_ttl_seconds=10)
    eventually(lambda: sunk.look()["lock"] is not None)
    assert sunk.post("sink/http/unregister").status == 200
    sunk.clock.advance(10)
    assert sunk.pop() == [1]


def test_post_under_way_still_counts_after_unregistering(sunk: PushPopApi, receiver: Receiver) -> None:
    receiver.gate.clear()
    sunk.push(1)
    register(sunk, receiver.url, lock_ttl_seconds=60)
    receiver.next()
    assert sunk.post("sink/http/unregister").body["message"] == f"The sink of queue {sunk.queue} is removed"
    sunk.push(2)
    receiver.gate.set()
    eventually(lambda: sunk.look()["lock"] is None)
    assert sunk.drained() == [2]


def test_post_that_outlives_its_lock_still_takes_room(
    sunk: PushPopApi, receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    looks: list[worker.PostPace] = []
    monkeypatch.setattr(worker.PostPace, "full", lambda self: looks.append(self))
    receiver.gate.clear()
    sunk.push(1, 2)
    register(sunk, receiver.url, max_concurrency=1, lock_ttl_seconds=5)
    assert numbers(receiver.next()) == [1]
    sunk.clock.advance(5)
    looks.clear()
    eventually(lambda: len(looks) > 2)
    assert sunk.depth == {"0": 2}
    receiver.gate.set()
    assert numbers(receiver.next()) == [1]
    assert numbers(receiver.next()) == [2]
    eventually(lambda: sunk.metadata() == {})
    assert receiver.most_at_once == 1


def test_unregistering_what_is_not_there(pushpop: PushPopApi) -> None:
    told = {"success": True, "message": f"Queue {pushpop.queue} has no sink", "sink_id": f"{pushpop.queue}-sink"}
    assert pushpop.post("sink/http/unregister") == (200, told)
    pushpop.push(1)
    assert pushpop.post("sink/http/unregister") == (200, told)


def test_sink_registered_again_replaces_the_first(sunk: PushPopApi, receiver: Receiver) -> None:
    with Receiver() as other:
        register(sunk, receiver.url)
        register(sunk, other.url)
        sunk.push(1)
        assert numbers(other.next()) == [1]
        eventually(lambda: sunk.metadata() == {})
        assert receiver.posts.empty()


def test_sink_outlives_the_server(any_store: str, clock: ManualClock, receiver: Receiver) -> None:
    with Running(any_store, clock) as server, httpx2.Client(base_url=server.url) as http:
        pushpop = PushPopApi(http, clock, "sunk")
        register(pushpop, receiver.url)
        pushpop.push(1)
        assert numbers(receiver.next()) == [1]
        eventually(lambda: pushpop.metadata() == {})
    with Running(any_store, clock) as server, httpx2.Client(base_url=server.url) as http:
        pushpop = PushPopApi(http, clock, "sunk")
        pushpop.push(2)
        assert numbers(receiver.next()) == [2]
        eventually(lambda: pushpop.metadata() == {})


def test_servers_on_one_database_share_their_sinks(
    pg_url: str, clock: ManualClock, receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(supervisor, "LOOK_EVERY", 0.02)
    monkeypatch.setattr(worker, "LONGEST_EMPTY", 60.0)
    with Running(pg_url, clock) as one, httpx2.Client(base_url=one.url) as http:
        with Running(pg_url, clock) as other, httpx2.Client(base_url=other.url) as first:
            register(PushPopApi(first, clock, "shared"), receiver.url)
            sinks = one.server.runtime._sinks
            assert sinks is not None
            eventually(lambda: sinks._running)
        pushpop = PushPopApi(http, clock, "shared")
        pushpop.push(1)
        assert numbers(receiver.next()) == [1]
        eventually(lambda: pushpop.metadata() == {})
        one.until_waiting()
        with Running(pg_url, clock) as other, httpx2.Client(base_url=other.url) as second:
            assert PushPopApi(second, clock, "shared").post("sink/http/unregister").status == 200
        pushpop.push(2)
        eventually(lambda: not sinks._running)
        assert pushpop.drained() == [2]
        assert receiver.posts.empty()


def at_work() -> list[Any]:
    return [task for task in asyncio.all_tasks() if getattr(task.get_coro(), "__qualname__", "") == "SinkWorker.run"]


async def on_a_store(any_store: str, work: Callable[[AsyncBroker, Sinks], Awaitable[None]], *allowed: str) -> None:
    broker = await AsyncBroker.start(open_store(any_store))
    sinks = Sinks(broker, allowed)
    await sinks.start()
    try:
        await work(broker, sinks)
    finally:
        await sinks.stop()
        await broker.close()


def test_registrations_at_the_same_time_leave_one_sink(any_store: str) -> None:
    async def work(_: AsyncBroker, sinks: Sinks) -> None:
        for _round in range(3):
            await asyncio.gather(
                *(sinks.register("q", SinkTarget(f"http://127.0.0.1:9/{n}")) for n in range(4)),
                sinks._start_registered(),
            )
        assert [sinks._running["q"][1]] == at_work()
        await asyncio.gather(sinks.register("q", SinkTarget("http://127.0.0.1:9/")), sinks.unregister("q"))
        assert at_work() == []

    asyncio.run(on_a_store(any_store, work))


def test_sink_that_may_not_post_from_here_is_mentioned_once(any_store: str, caplog: pytest.LogCaptureFixture) -> None:
    async def work(broker: AsyncBroker, sinks: Sinks) -> None:
        await sinks.register("q", SinkTarget("http://hooks.example.com/"))
        elsewhere = Sinks(broker)
        for _ in range(3):
            await elsewhere._start_registered()
            await asyncio.sleep(0)
        assert elsewhere._running == {}

    asyncio.run(on_a_store(any_store, work, "hooks.example.com"))
    assert [one.getMessage() for one in caplog.records] == [
        "the sink of q may not post to http://hooks.example.com; see --pushpop-sink-host"
    ]


def test_looking_for_sinks_of_others_goes_on_after_any_error(
    pg_url: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(supervisor, "LOOK_EVERY", 0.01)

    async def work(_: AsyncBroker, sinks: Sinks) -> None:
        looked = asyncio.Event()
        tries = count()

        async def take_up() -> None:
            if next(tries) == 0:
                raise ValueError("something unexpected")
            looked.set()

        monkeypatch.setattr(sinks, "_start_registered", take_up)
        await asyncio.wait_for(looked.wait(), 20)

    asyncio.run(on_a_store(pg_url, work))
    assert "something unexpected" in caplog.text


def test_sink_gives_the_first_item_back_if_the_rest_fails(any_store: str, monkeypatch: pytest.MonkeyPatch) -> None:
    async def work(broker: AsyncBroker, sinks: Sinks) -> None:
        await broker.send(push_of("q", [(b'{"n":%d}' % n, 0) for n in range(4)]))
        asked = asyncio.Event()

        async def gone(claims: Sequence[Claim]) -> list[Handed]:
            asked.set()
            raise StoreUnavailable("gone for a moment")

        monkeypatch.setattr(worker, "LONGEST_EMPTY", 60.0)
        monkeypatch.setattr(worker, "FLOWING", 30.0)
        monkeypatch.setattr(broker, "claim_each", gone)
        await sinks.register("q", SinkTarget("http://127.0.0.1:9/", 4, 300))
        await asyncio.wait_for(asked.wait(), 20)
        await asyncio.sleep(0)
        await asyncio.gather(*sinks._posts)
        (depth,) = await broker.ask(q.ListDepths(queue="q"))
        assert (depth.waiting, depth.leases) == ({0: 4}, [])

    asyncio.run(on_a_store(any_store, work))


@pytest.mark.parametrize(
    "body",
    [
        {},
        {"url": ""},
        {"url": 7},
        {"url": "not a url"},
        {"url": "ftp://127.0.0.1/x"},
        {"url": "http://"},
        {"url": "http://127.0.0.1:99999/"},
        {"url": "http://example.com/in"},
        {"url": "http://10.0.0.1/in"},
        {"url": "http://169.254.169.254/latest"},
        {"url": "http://localhost.example.com/in"},
        {"url": "http://user@127.0.0.1/in"},
        {"url": "http://127.0.0.1@example.com/in"},
        {"url": "http://127.0.0.1/" + "x" * 2000},
        {"url": "http://127.0.0.1/\n"},
        *({"url": "http://127.0.0.1/", "max_concurrency": n} for n in (0, 101, -1, 1.5, "5", True, None)),
        *({"url": "http://127.0.0.1/", "lock_ttl_seconds": n} for n in (0, 301, 1.5, "5", True, None)),
        b"[]",
        b"{",
    ],
    ids=str,
)
def test_registrations_that_are_refused(pushpop: PushPopApi, body: Any) -> None:
    status, answer = pushpop.post("sink/http/register", body)
    assert (status, set(answer), answer["success"]) == (400, {"success", "message"}, False)
    assert pushpop.queue not in [one["queue_id"] for one in pushpop.http.get("/queue").json()["queues"]]


@pytest.mark.parametrize("url", ["http://127.0.0.1:9/", "http://[::1]:9/", "http://localhost:9/x?y=z"])
def test_sink_on_this_machine_is_always_allowed(sunk: PushPopApi, url: str) -> None:
    register(sunk, url)


def test_other_hosts_when_the_server_allows_them(any_store: str, clock: ManualClock) -> None:
    allowed = ("hooks.example.com", "other.example.com:8443")
    with (
        Running(any_store, clock, pushpop_sink_hosts=allowed) as server,
        httpx2.Client(base_url=server.url) as http,
    ):
        pushpop = PushPopApi(http, clock)
        register(pushpop, "https://HOOKS.example.com/in")
        register(pushpop, "https://other.example.com:8443/in")
        for url in ("https://other.example.com/in", "https://x.hooks.example.com/in"):
            assert pushpop.post("sink/http/register", {"url": url}).status == 400
        pushpop.post("sink/http/unregister")


def test_post_pace_doubles_while_empty_and_resets(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in (("FLOWING", 1.0), ("LONGEST_EMPTY", 60.0), ("LONGEST_FULL", 4.0)):
        monkeypatch.setattr(worker, name, value)
    one = worker.PostPace()
    seen = [one.seconds]
    for _ in range(8):
        one.empty()
        seen.append(one.seconds)
    assert seen == [1, 2, 4, 8, 16, 32, 60, 60, 60]
    one.flowing()
    assert one.seconds == 1
    for wanted in (2, 4, 4):
        one.full()
        assert one.seconds == wanted
