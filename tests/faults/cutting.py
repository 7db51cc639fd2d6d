"""Connections to PostgreSQL that break in the middle of a turn, and callers that simply try again."""

from __future__ import annotations

import random
import tempfile
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar
from urllib.parse import quote, urlsplit

import psycopg

from ackwise.broker import Broker
from ackwise.core.commands import ByLease, Claim, Push, Settlement, Transaction
from ackwise.core.errors import OutcomeUnknown, StoreUnavailable
from ackwise.core.messages import NewMessage
from ackwise.core.queries import Browse
from ackwise.core.settlement import Outcome
from ackwise.store.database_store import DatabaseStore
from ackwise.store.postgres import PostgresStore
from tests.faults.proxy import CuttingProxy

T = TypeVar("T")
_TRIES = 20
_DATABASE = "ackwise_cuts"


def cut_connections(admin_url: str, socket_folder: Path, seed: int, count: int) -> list[str]:
    """Cut so many times on an own database of that server; what went wrong."""
    with psycopg.connect(admin_url, autocommit=True) as connection:
        connection.execute(f"DROP DATABASE IF EXISTS {_DATABASE} WITH (FORCE)".encode())
        connection.execute(f"CREATE DATABASE {_DATABASE} TEMPLATE template0".encode())
    port = urlsplit(admin_url).port or 5432
    with tempfile.TemporaryDirectory(prefix="ackwise-proxy-") as folder:
        proxy = CuttingProxy(Path(folder), socket_folder, port)
        url = f"postgresql://postgres@/{_DATABASE}?host={quote(folder, safe='')}&port={port}&shards=1"
        broker = Broker(PostgresStore(url), background=False)
        try:
            return _Cutter(broker, proxy, random.Random(seed)).run(count)
        finally:
            broker.close()
            proxy.close()
            with psycopg.connect(admin_url, autocommit=True) as connection:
                connection.execute(f"DROP DATABASE {_DATABASE} WITH (FORCE)".encode())


class _Cutter:
    def __init__(self, broker: Broker, proxy: CuttingProxy, dice: random.Random) -> None:
        self._broker, self._proxy, self._dice = broker, proxy, dice
        self._pushed: list[str] = []
        self._moved: list[str] = []
        self._moves = 0
        self._problems: list[str] = []
        self.failures: Counter[str] = Counter()

    def run(self, count: int) -> list[str]:
        self._push()
        for _ in range(count):
            cuts = self._proxy.cuts
            self._proxy.cut_after(self._dice.randrange(1, 4000), only_from_server=self._dice.random() < 0.5)
            while self._proxy.cuts == cuts:
                self._dice.choice((self._push, self._move))()
        self._proxy.relax()
        self._check()
        return self._problems

    def _push(self) -> None:
        """Repeated with its transaction ids until it is answered."""
        txids = [f"t{len(self._pushed) + i}" for i in range(self._dice.choice((1, 5, 30)))]
        self._pushed += txids
        command = Push(queue="in", messages=[NewMessage(t.encode(), f"p{len(t) % 3}", 0, t) for t in txids])
        self._until_answered(lambda: self._broker.send(command))

    def _move(self) -> None:
        """Claim, then ack and push in one step; a step of unknown outcome is repeated by claiming again."""
        self._moves += 1
        handed = self._until_answered(
            lambda: self._broker.claim(Claim(queue="in", most=5, lease=1_000_000 * 3600, key=f"k{self._moves}"))
        )
        if not handed.claimed.grants:
            return
        txids = [m.transaction_id for m in handed.messages]
        step = Transaction(
            settlements=[Settlement(selector=ByLease(handed.claimed.lease_id), outcome=Outcome.ACK)],
            pushes=[Push(queue="out", messages=[NewMessage(b"x", "p", 0, f"{t}>") for t in txids])],
        )
        self._until_answered(lambda: self._broker.send(step))
        self._moved += txids

    def _until_answered(self, call: Callable[[], T]) -> T:
        for _ in range(_TRIES):
            try:
                return call()
            except (StoreUnavailable, OutcomeUnknown) as problem:
                self.failures[problem.code] += 1
        raise AssertionError("the store does not go on by itself")

    def _check(self) -> None:
        store = self._broker.store
        assert isinstance(store, DatabaseStore)
        for queue, expected in (("in", self._pushed), ("out", [f"{t}>" for t in self._moved])):
            page = store.ask(Browse(queue=queue, limit=100_000)) if expected else []
            there = Counter(b.message.transaction_id for b in page)
            if there != Counter(expected):
                missing, extra = Counter(expected) - there, there - Counter(expected)
                self._problems.append(f"{queue}: missing {list(missing)[:5]}, too many {list(extra)[:5]}")
        self._problems += store.audit()
        if not self.failures:
            self._problems.append("no call noticed that its connection was cut")
