"""A server with both faces, a tapped line to it, and a client on that line."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

import ackwise
from ackwise.amps import Client
from ackwise.clock import ManualClock
from tests.amps.tap import Tap
from tests.fresh_stores import sqlite_url
from tests.server.running import Running


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def server(tmp_path: Path, clock: ManualClock) -> Iterator[Running]:
    url = sqlite_url(tmp_path / "amps.db")
    with Running(url, clock, amps_port=0, amps_max_backlog=100_000, grace=0.05) as running:
        yield running


@pytest.fixture
def uri(server: Running) -> str:
    return uri_of(server)


@pytest.fixture
def tap(server: Running) -> Iterator[Tap]:
    with Tap(server.amps) as made:
        yield made


@pytest.fixture
def client(tap: Tap) -> Iterator[Client]:
    with Client("tested").connect(tap.uri).logon() as made:
        yield made


@pytest.fixture
def orders(server: Running) -> Iterator[ackwise.Connection]:
    """The same queues from the other side. New ones retry at once, as queues of AMPS do."""
    with ackwise.connect(server.url) as connection:
        connection.new_queue_policy = ackwise.QueuePolicy()
        yield connection


def uri_of(server: Running) -> str:
    return f"tcp://{server.amps[0]}:{server.amps[1]}/amps/json"
