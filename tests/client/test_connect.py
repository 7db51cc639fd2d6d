"""Opening and closing."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path

import pytest

import ackwise
from ackwise import errors
from ackwise.clock import ManualClock
from ackwise.connect import open_store
from ackwise.core.events import MessagesPushed
from tests.event_log import EventLog
from tests.server.running import Running


@pytest.mark.parametrize(
    ("url", "told"),
    [
        ("sqlite:/q.db", "sqlite:///"),
        ("sqlit:///q.db", "unknown scheme"),
        ("sqlite:///", "three slashes"),
        ("http://", "names no host"),
        ("http://:6632", "names no host"),
        ("http://local host", "names no host"),
        ("http://localhost:port", "not a server's URL"),
        ("http://localhost:99999", "not a server's URL"),
        ("http://[::1", "not a server's URL"),
        ("http://me@localhost", "no user"),
        ("https://localhost?durability=full", "no query"),
        ("sqlite:///q.db?durabilty=full", "durabilty"),
        ("sqlite:///q.db?durability=maybe", "full or normal"),
        (None, "not a store URL"),
    ],
)
def test_bad_url_says_what_a_good_one_is(url: str, told: str) -> None:
    with pytest.raises(errors.BadStoreURL, match=told):
        ackwise.connect(url)


def test_durability_can_be_given_beside_the_url(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/q.db"
    with ackwise.connect(url, durability="normal") as queue:
        queue.push("q", 1)
    with pytest.raises(errors.BadStoreURL):
        ackwise.connect(url, durability="some")  # type: ignore[arg-type]


def test_servers_durability_is_its_own() -> None:
    with pytest.raises(errors.BadStoreURL, match="--durability normal"):
        ackwise.connect("http://localhost:6632", durability="normal")


def test_file_that_is_no_database_is_refused(tmp_path: Path) -> None:
    (tmp_path / "q.db").write_bytes(b"not a database, not at all" * 100)
    with pytest.raises(errors.StoreCorrupt):
        ackwise.connect(f"sqlite:///{tmp_path}/q.db")


def test_server_is_not_a_store() -> None:
    with pytest.raises(errors.BadStoreURL, match="the store itself"):
        open_store("http://localhost:6632")


def test_message_is_there_after_the_store_opens_again(url: str) -> None:
    with ackwise.connect(url) as queue:
        queue.push("q", "kept")
    with ackwise.connect(url) as queue:
        assert queue.claim("q")[0].json() == "kept"


def test_closing_gives_back_what_is_held_without_a_failure(url: str, clock: ManualClock) -> None:
    with ackwise.connect(url, clock=clock) as queue:
        queue.push_many("q", range(4))
        queue.claim("q", max=2)[0].ack()
        queue.claim("q", max=1)
    with ackwise.connect(url, clock=clock) as queue:
        found = sorted((d.json(), d.failures) for d in queue.claim("q", max=9))
        assert found == [(1, 0), (2, 0), (3, 0)]


def test_keyed_claim_outlives_its_connection(url: str, clock: ManualClock) -> None:
    with ackwise.connect(url, clock=clock) as queue:
        queue.push_many("q", range(2))
        queue.claim("q", max=2, key="job")
    with ackwise.connect(url, clock=clock) as queue:
        assert not queue.claim("q")
        assert len(queue.claim("q", max=2, key="job")) == 2


def test_closed_connection_says_so(url: str) -> None:
    queue = ackwise.connect(url)
    queue.close()
    queue.close()
    with pytest.raises(errors.Draining):
        queue.push("q", 1)


def test_threads_share_a_connection(queue: ackwise.Connection) -> None:
    def work(number: int) -> None:
        for n in range(20):
            queue.push("q", [number, n], partition=f"p{number}")

    threads = [threading.Thread(target=work, args=(n,)) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(queue.claim("q", max=100)) == 80


def test_async_connections_are_entered_or_awaited(url: str) -> None:
    async def both() -> list[object]:
        async with ackwise.connect_async(url) as queue:
            await queue.push("q", 1)
        queue = await ackwise.connect_async(url)
        try:
            return [d.json() for d in await queue.claim("q")]
        finally:
            await queue.close()

    assert asyncio.run(both()) == [1]


def test_bad_url_is_raised_when_awaited() -> None:
    async def bad() -> None:
        async with ackwise.connect_async("http://"):
            pass

    with pytest.raises(errors.BadStoreURL):
        asyncio.run(bad())


def test_embedded_connection_has_the_events_of_its_store(store_url: str) -> None:
    with ackwise.connect(store_url) as queue, EventLog(queue.events) as log:
        queue.push("q", 1)
        assert log.wait_for(MessagesPushed) == MessagesPushed("q", 1)


def test_async_connection_has_the_events_of_its_store(store_url: str) -> None:
    async def run() -> None:
        async with ackwise.connect_async(store_url) as queue:
            with EventLog(queue.events) as log:
                await queue.push("q", 1)
                assert log.of(MessagesPushed) == [MessagesPushed("q", 1)]

    asyncio.run(run())


def test_connection_to_a_server_refuses_its_events(store_url: str) -> None:
    with (
        Running(store_url) as server,
        ackwise.connect(server.url) as queue,
        pytest.raises(errors.BadInput, match="has no events; listen in the server's process"),
    ):
        _ = queue.events
