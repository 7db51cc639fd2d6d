"""Queues that tests of the Spark side read and write: in SQLite, in PostgreSQL and behind a server."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest

from ackwise.clock import ManualClock
from ackwise.connect import reach
from ackwise.core import commands as c
from ackwise.core import queries as q
from ackwise.core.answers import Settled
from ackwise.core.messages import DEFAULT_PARTITION, NewMessage
from ackwise.core.rows import BrowsedMessage, DeadLetter, DeadPage, GroupStats, LaneRow, LeaseRow
from ackwise.core.settlement import Outcome
from ackwise.core.validation import MICROS
from ackwise.spark.connections import close_task_connections
from tests.fresh_stores import Tables, sqlite_url
from tests.pg import FACTORIES
from tests.server.running import Running

PATIENCE = 120.0
"""Seconds: the first query of a session takes half a minute where others keep the cores busy."""
Row = dict[str, Any]


class QueueHarness:
    """Pushes, settles and looks, beside whatever Spark does. Everything is in queue `q` unless told otherwise."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.transport = reach(url, duties=False)

    def do(self, command: c.Command) -> Any:
        return self.transport.send(command)

    def ask(self, query: q.Query) -> Any:
        return self.transport.ask(query)

    def configure(self, queue: str = "q", **policy: Any) -> None:
        self.do(c.ConfigureQueue(queue=queue, policy=policy))

    def send(self, messages: list[NewMessage], queue: str = "q") -> None:
        self.do(c.Push(queue=queue, messages=messages))

    def number(
        self, count: int, *, queue: str = "q", partition: str = DEFAULT_PARTITION, first: int = 0, priority: int = 0
    ) -> None:
        """Push {"n": first}, {"n": first + 1}, … with transaction ids."""
        numbers = range(first, first + count)
        self.send([NewMessage(b'{"n":%d}' % n, partition, priority, f"t{n}") for n in numbers], queue)

    def settle(self, rows: Iterable[Row], outcome: str = "ack", *, delay: float | None = None) -> list[str]:
        wait = None if delay is None else round(delay * MICROS)
        entries = [
            c.Settlement(selector=c.ByDelivery(row["delivery_id"]), outcome=Outcome(outcome), delay=wait, error="no")
            for row in rows
        ]
        answers: list[Settled] = self.do(c.Settle(entries=entries))
        return [one.verdict.value for one in answers]

    def group(self, name: str = "g", queue: str = "q") -> GroupStats:
        found: list[GroupStats] = self.ask(q.ListGroups(queue=queue, group=name))
        return found[0]

    def counts(self, name: str = "g", queue: str = "q") -> dict[str, int]:
        """A group's counts that are not zero."""
        stats = self.group(name, queue)
        names = ("acked", "dead", "skipped", "expired", "held", "unread")
        return {one: n for one in names if (n := getattr(stats, one))}

    def leases(self, **filters: Any) -> list[LeaseRow]:
        found: list[LeaseRow] = self.ask(q.ListLeases(queue="q", **filters))
        return found

    def lanes(self, queue: str = "q") -> dict[str, LaneRow]:
        """By partition, of queues with one priority."""
        return {row.partition: row for row in self.ask(q.ListLanes(queue=queue))}

    def dead(self, queue: str | None = "q") -> list[DeadLetter]:
        page: DeadPage = self.ask(q.ListDead(queue=queue, limit=10_000))
        return page.letters

    def payloads(self, queue: str) -> list[bytes]:
        found: list[BrowsedMessage] = self.ask(q.Browse(queue=queue, limit=100_000))
        return [one.message.payload for one in found]

    def expire(self, group: str = "g") -> None:
        """What the group holds it holds no more, as if its leases had run out; it is all unread again."""
        self.do(c.SeekGroup(queue="q", group=group, to="start"))

    def flush(self) -> None:
        """What is only counted so far is written down; a server does so by itself."""
        store = getattr(self.transport, "store", None)
        if store is not None:
            store.flush_ledger()

    def close(self) -> None:
        self.transport.close()


def until(happened: Callable[[], bool]) -> None:
    """Wait for what another thread or process does by itself."""
    end = time.monotonic() + PATIENCE
    while not happened():
        assert time.monotonic() < end, "it did not happen"
        time.sleep(0.005)


KINDS = ("sqlite", *FACTORIES, "http")


def named(kind: str) -> str:
    return kind.replace("pg_url_factory", "postgres")


@pytest.fixture(params=KINDS, ids=named)
def url(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    """An empty store by each way there is to it."""
    sqlite = sqlite_url(tmp_path / "queue.db")
    if request.param == "http":
        with Running(sqlite) as server:
            yield server.url
            close_task_connections()
    else:
        yield sqlite if request.param == "sqlite" else request.getfixturevalue(request.param)(Tables.GRAPH)
        close_task_connections()


@pytest.fixture
def local_url(tmp_path: Path) -> Iterator[str]:
    """An empty store in a file, for what is the same everywhere."""
    yield sqlite_url(tmp_path / "queue.db")
    close_task_connections()


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def timed_url(tmp_path: Path, clock: ManualClock) -> Iterator[str]:
    """A server whose time is the test's."""
    with Running(sqlite_url(tmp_path / "timed.db"), clock) as server:
        yield server.url
        close_task_connections()


def _harness(at: str) -> Iterator[QueueHarness]:
    made = QueueHarness(at)
    yield made
    made.close()


@pytest.fixture
def harness(url: str) -> Iterator[QueueHarness]:
    yield from _harness(url)


@pytest.fixture
def local_harness(local_url: str) -> Iterator[QueueHarness]:
    yield from _harness(local_url)


@pytest.fixture
def timed_harness(timed_url: str) -> Iterator[QueueHarness]:
    yield from _harness(timed_url)
