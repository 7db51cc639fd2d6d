"""The machine's clock is stepped under running brokers: leases, retry delays and long polls keep their time."""

from __future__ import annotations

import random
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import psycopg
import pytest

from tests.faults.clock.machine import PeerProcess, Timed
from tests.faults.clock.wall_clock import NO_COMPILER, WallClock, compiler
from tests.patience import PATIENCE
from tests.pg import OwnServer

HOUR, DAY, YEAR = 3600.0, 86400.0, 365 * 86400.0
SECONDS = 2.5
"""How long leases and delays of these tests last."""
MOST_CHANGE = 2.0

pytestmark = pytest.mark.skipif(compiler() is None, reason=NO_COMPILER)


@pytest.fixture(scope="module")
def wall_clock() -> Iterator[WallClock]:
    with tempfile.TemporaryDirectory(prefix="ackwise-clock-") as folder:
        Path(folder).chmod(0o755)  # PostgreSQL runs as another user
        yield WallClock(Path(folder))


@pytest.fixture(scope="module")
def stepped_postgres(wall_clock: WallClock) -> Iterator[OwnServer]:
    server = OwnServer(f"clock-{wall_clock.name}")
    with wall_clock.around():
        server.start()
    yield server
    server.cleanup()


def _sqlite_url(request: pytest.FixtureRequest) -> str:
    return f"sqlite:///{request.getfixturevalue('tmp_path')}/queues.db"


def _postgres_url(request: pytest.FixtureRequest) -> str:
    server: OwnServer = request.getfixturevalue("stepped_postgres")
    with psycopg.connect(server.url(), autocommit=True) as connection:
        connection.execute("DROP DATABASE IF EXISTS stepped WITH (FORCE)")
        connection.execute("CREATE DATABASE stepped TEMPLATE template0")
    return server.url("stepped")


@pytest.fixture(params=[_sqlite_url, _postgres_url], ids=["sqlite", "postgres"])
def url(request: pytest.FixtureRequest) -> str:
    make: Callable[[pytest.FixtureRequest], str] = request.param
    return make(request)


def check_step(first: PeerProcess, second: PeerProcess, url: str, clock: WallClock, step: float) -> None:
    """Step the clock while a lease is live, a retry and a push are delayed, and a long poll waits for all three."""
    began = time.monotonic()
    for name in ("leased", "retried"):
        first.ask("push", name)
    assert first.ask("claim", 600.0) == ["leased", "retried"]
    assert first.ask("retry", "retried", SECONDS) == "retried"
    first.ask("push", "delayed", SECONDS)
    first.ask("extend", "leased", SECONDS)
    before = Timed(second, "left")
    second.send("claim", 60.0, PATIENCE)
    clock.step(step)
    with PeerProcess(url, clock) as fresh:
        after = Timed(fresh, "left")
        for lease in before.value.keys() & after.value.keys():  # on a busy machine the lease may be over
            least, most = before.change_until(after, lease)
            assert most >= -MOST_CHANGE, "the lease got longer"
            assert least <= MOST_CHANGE, "the lease got shorter"
    arrived = set(second.answer())
    assert time.monotonic() - began >= SECONDS - MOST_CHANGE
    while len(arrived) < 3:
        arrived.update(second.ask("claim", 60.0, PATIENCE))
    assert arrived == {"leased", "retried", "delayed"}
    check_shown(second, "leased")
    for name in sorted(arrived):
        assert second.ask("ack", name) == "acked"


def check_shown(peer: PeerProcess, name: str) -> None:
    """People read instants of the wall clock: the deadline is up to 60 seconds from now, the creation is not."""
    end = time.monotonic() + PATIENCE
    while not -PATIENCE < peer.ask("shown", name) <= 60.0 + MOST_CHANGE:
        assert time.monotonic() < end, "the deadline is not an instant of the wall clock"


def check_created(peer: PeerProcess) -> None:
    """A message that is pushed after a step is dated by the new wall clock."""
    peer.ask("push", "dated")
    assert peer.ask("claim", 60.0) == ["dated"]
    assert abs(peer.ask("age", "dated")) < PATIENCE
    assert peer.ask("ack", "dated") == "acked"


@pytest.mark.slow
def test_clock_step_changes_no_lease_or_delay(url: str, wall_clock: WallClock) -> None:
    with PeerProcess(url, wall_clock) as first, PeerProcess(url, wall_clock) as second:
        for step in (-HOUR, DAY):
            check_step(first, second, url, wall_clock, step)
            check_created(first)


@pytest.mark.long
def test_many_clock_steps_change_no_lease_or_delay(url: str, wall_clock: WallClock) -> None:
    dice = random.Random(20)
    steps = [-HOUR, DAY, YEAR, -YEAR, *(dice.choice((-1, 1)) * dice.uniform(3, 2 * DAY) for _ in range(8))]
    with ExitStack() as stack:
        first, second = (stack.enter_context(PeerProcess(url, wall_clock)) for _ in range(2))
        for step in steps:
            check_step(first, second, url, wall_clock, step)
            check_created(second)
