"""`kill -9` of the server with acks in flight: nothing is lost, and every ack that was answered stays."""

from __future__ import annotations

import threading
import time
from collections import Counter
from pathlib import Path
from urllib.parse import urlsplit

import pytest

import ackwise
from ackwise.amps import Client, Message
from ackwise.core.errors import AckwiseError
from tests.amps.inbox import Inbox
from tests.amps.orders import ORDERS
from tests.patience import PATIENCE
from tests.pg import FACTORIES
from tests.server.process import ServerProcess

COUNT = 400


@pytest.fixture(params=["sqlite", *FACTORIES], ids=lambda name: name.replace("pg_url_factory", "postgres"))
def store(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path}/crash.db"
    url: str = request.getfixturevalue(request.param)()
    return url


def port_of(uri: str) -> str:
    return str(urlsplit(uri).port)


def test_killed_server_loses_nothing_that_was_answered(store: str) -> None:
    answered: Counter[str] = Counter()
    handed: list[str] = []
    guard = threading.Lock()
    enough = threading.Event()
    client = Client("survivor")

    def handle(message: Message) -> None:
        with guard:
            handed.append(message.text)
        try:
            done = client.ack_message(message)
        except AckwiseError:
            return
        with guard:
            answered[message.text] += done
            if len(answered) >= COUNT // 4:
                enough.set()

    first = ServerProcess(store, "--amps-port", "0")
    try:
        client.connect(first.amps).logon()
        for number in range(COUNT):
            client.publish(ORDERS, str(number), confirm=False)
        client.flush()
        for _ in range(4):
            client.subscribe(ORDERS, handle, max_backlog=20)
        assert enough.wait(PATIENCE)
        first.kill()
        with guard:
            before, cut = set(+answered), len(handed)
        with (
            ServerProcess(store, "--amps-port", port_of(first.amps)) as second,
            ackwise.connect(second.url) as queue,
        ):
            end = time.monotonic() + 60
            while (group := queue.groups("orders")[0]).lag and time.monotonic() < end:
                time.sleep(0.05)
            assert (group.acked, group.lag, len(queue.dead_letters("orders"))) == (COUNT, 0, 0)
            client.close()
    finally:
        client.close()
        first.kill()
        first.__exit__(None, None, None)
    assert set(map(int, handed)) == set(range(COUNT))
    assert max(answered.values()) == 1, "an answered ack counted once"
    assert not before & set(handed[cut:]), "and is never delivered again"


def test_leases_of_dead_server_are_free_when_next_starts(store: str) -> None:
    """Not when they would have run out; and what HTTP clients hold keeps its deadline."""
    first = ServerProcess(store, "--amps-port", "0")
    client = Client("left behind")
    inbox = Inbox()
    try:
        with ackwise.connect(first.url) as queue:
            queue.create_queue("orders", lease_seconds=3600)
            queue.push_many("orders", ["over http", "over amps"])
            held = queue.claim("orders")
            client.connect(first.amps).logon().subscribe(ORDERS, inbox, max_backlog=5)
            inbox.until(1)
            first.kill()
            with ServerProcess(store) as second, ackwise.connect(second.url) as other:
                (again,) = other.claim("orders", max=5, wait=PATIENCE)
                assert (again.json(), again.failures) == ("over amps", 1)
                assert list(other.claim("orders", max=5)) == []
                assert [one.json() for one in held] == ["over http"]
    finally:
        client.close()
        first.kill()
        first.__exit__(None, None, None)


def test_sigterm_lets_holders_finish_and_gives_the_rest_back(tmp_path: Path) -> None:
    store = f"sqlite:///{tmp_path}/ends.db"
    acked = threading.Event()
    with ServerProcess(store, "--amps-port", "0", "--grace", "1") as server:
        client = Client("holder").connect(server.amps).logon()
        inbox = Inbox()
        client.subscribe(ORDERS, inbox, max_backlog=5)
        for text in ("finished", "not finished"):
            client.publish(ORDERS, text)
        first, _ = inbox.until(2)
        server.terminate()

        def finish() -> None:
            client.ack_message(first)
            acked.set()

        threading.Thread(target=finish).start()
        assert acked.wait(PATIENCE)
        assert server.process.wait(PATIENCE) == 0
    client.close()
    with ackwise.connect(store) as queue:
        (again,) = queue.claim("orders", max=5)
        assert (again.payload, again.failures) == (b"not finished", 0)
