"""A server that speaks AMPS and HTTP, on each store, on a clock that the test moves."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import ackwise
from ackwise.clock import ManualClock
from tests.fresh_stores import sqlite_url
from tests.protocols.amps.peer import Peer
from tests.server.running import Running

Meet = Callable[..., Peer]


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def store_url(tmp_path: Path) -> str:
    return sqlite_url(tmp_path / "amps.db")


@pytest.fixture
def server(store_url: str, clock: ManualClock) -> Iterator[Running]:
    with Running(store_url, clock, amps_port=0, amps_queues=("declared",), amps_max_backlog=50, grace=0.05) as running:
        yield running


@pytest.fixture
def meet(server: Running) -> Iterator[Meet]:
    """Makes clients and closes them."""
    made: list[Peer] = []

    def one(**how: object) -> Peer:
        made.append(Peer(server.amps, **how))  # type: ignore[arg-type]
        return made[-1]

    yield one
    for peer in made:
        peer.close()


@pytest.fixture
def http(server: Running, clock: ManualClock) -> Iterator[ackwise.Connection]:
    """The same queues from the other side. New ones retry at once, as queues of AMPS do."""
    with ackwise.connect(server.url) as connection:
        connection.new_queue_policy = ackwise.QueuePolicy()
        yield connection
