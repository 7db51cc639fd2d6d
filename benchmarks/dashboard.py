"""The dashboard on a large store: first byte of every page, and the cost of one open page for pushes.

Most pages keep their reads for two seconds, so the rounds are further apart: each request makes its reads again. Pages
that keep costly reads for longer make them again in some rounds, which the p99 shows.
"""

from __future__ import annotations

import random
import re
import statistics
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from html import unescape
from pathlib import Path
from urllib.parse import quote

import httpx2

from ackwise.clock import ManualClock
from ackwise.connect import open_store
from ackwise.core.commands import ByLease, Claim, Push, Settle, Settlement
from ackwise.core.messages import NewMessage
from ackwise.core.settlement import Outcome
from ackwise.store.database_store import DatabaseStore
from benchmarks import servers
from benchmarks.load import jobs
from benchmarks.loader import Loader, loader
from benchmarks.process import cpu_seconds
from benchmarks.report import Report
from benchmarks.servers import Server

QUEUES = 20
WEEK = 7 * 86_400
PARTITIONS_AT_ONCE = 25
LETTERS_AT_ONCE = 500
ERRORS = (
    "ValueError: order {} has no amount",
    "TimeoutError: the bank did not answer within {} s",
    "KeyError: 'sku'",
    "ConnectionError: host 10.0.0.{} closed the connection",
    "UnicodeDecodeError: byte {} is not UTF-8",
    "PaymentDeclined: card {} was declined",
)
ROUNDS = 30
ROUND_SECONDS = 2.4
P50, P99 = 100, 200
"""Aims of the first byte, in milliseconds."""
PAIRS = 5
PUSH_SECONDS = 4.0
CONNECTIONS, BATCH = 16, 100
ALONE, BESIDE = "without a page", "with the overview open"
_BLOCK = re.compile(r'data-topics="([^"]*)" hx-get="([^"]*)"')
_IDS = re.compile(r'href="(/dashboard/messages/[^"?/]+/[^"?/]+(?:[?][^"]*)?)"')


def everything(report: Report, folder: Path, messages: int) -> None:
    partitions, letters = messages // 100, messages // 10
    path = folder / "dashboard.db"
    started = time.perf_counter()
    fill(f"sqlite:///{path}?durability=normal", messages, partitions, letters)
    table = f"dashboard: {messages:,} messages, {partitions:,} partitions, {letters:,} dead letters"
    report.add(table, "filling the store", time.perf_counter() - started, "s", metric="fill")
    with servers.ackwise(folder, f"sqlite:///{path}", "dashboard") as server:
        _first_bytes(report, table, server)
        with loader() as load:
            _open_page(report, load, server)


def fill(url: str, messages: int, partitions: int, letters: int) -> None:
    """Push, claim and reject over a week, on a clock that moves."""
    clock = ManualClock((int(time.time()) - WEEK) * 1_000_000)
    store = open_store(url, clock=clock)
    each, own = messages // partitions, partitions // QUEUES
    steps = QUEUES * own // PARTITIONS_AT_ONCE + letters // LETTERS_AT_ONCE
    for number in range(QUEUES):
        for at in range(0, own, PARTITIONS_AT_ONCE):
            names = [f"partition-{part:04}" for part in range(at, at + PARTITIONS_AT_ONCE)]
            batch = [NewMessage(b'{"order":1,"amount":995,"city":"Graz"}', name) for name in names for _ in range(each)]
            store.transact([Push(queue=_queue(number), messages=batch)])
            clock.advance(WEEK / steps)
    dice = random.Random(1)
    for at in range(letters // LETTERS_AT_ONCE):
        _bury(store, _queue(at % QUEUES), dice)
        clock.advance(WEEK / steps)
    store.close()


def _queue(number: int) -> str:
    return f"shop/queue-{number:02}"


def _bury(store: DatabaseStore, queue: str, dice: random.Random) -> None:
    """Claim some messages and reject each of them with an error of its own."""
    error = dice.choice(ERRORS).format(dice.randrange(10_000))
    (claimed,) = store.transact([Claim(queue=queue, most=LETTERS_AT_ONCE, owner=f"worker-{dice.randrange(8)}")])
    settlement = Settlement(
        selector=ByLease(claimed.lease_id), outcome=Outcome.REJECT, error=error, error_type=error.partition(":")[0]
    )
    store.transact([Settle(entries=[settlement])])


# first bytes


def _first_bytes(report: Report, table: str, server: Server) -> None:
    with httpx2.Client(base_url=server.address, headers={"accept": "text/html"}, timeout=60) as http:
        pages = _pages(http)
        took: dict[str, list[float]] = {name: [] for name in pages}
        for name, path in pages.items():
            _first_byte(http, name, path)  # modules and templates are loaded once
        for _ in range(ROUNDS):
            end = time.perf_counter() + ROUND_SECONDS
            for name, path in pages.items():
                took[name].append(_first_byte(http, name, path))
            time.sleep(max(0.0, end - time.perf_counter()))
    for name, seconds in took.items():
        ordered = sorted(1000 * second for second in seconds)
        report.add(table, f"{name}, first byte p50", statistics.median(ordered), "ms", metric="p50", aim=f"<= {P50}")
        report.add(table, f"{name}, first byte p99", ordered[-1], "ms", metric="p99", aim=f"<= {P99}")


def _pages(http: httpx2.Client) -> dict[str, str]:
    """Path of each page, by name."""
    queue = quote(_queue(3), safe="")
    listed = f"/dashboard/messages?queue={queue}"
    pages = {
        "overview": "/",
        "queues": "/dashboard/queues",
        "queue": f"/dashboard/queues/{queue}",
        "messages": listed,
        "dead letters": "/dashboard/dead-letters",
        "dead letters of a queue": f"/dashboard/dead-letters?queue={queue}",
        "groups": "/dashboard/groups",
        "consumers": "/dashboard/consumers",
        "graph": "/dashboard/graph",
        "pipelines": "/dashboard/pipelines",
        "settings": "/dashboard/settings",
    }
    message = _IDS.search(http.get(listed).text)
    if message is not None:
        pages["message"] = unescape(message[1])
    return {name: path for name, path in pages.items() if http.get(path).status_code != 404}


def _first_byte(http: httpx2.Client, name: str, path: str) -> float:
    started = time.perf_counter()
    with http.stream("GET", path) as answer:
        pieces = answer.iter_raw()
        next(pieces, b"")
        took = time.perf_counter() - started
        if answer.status_code != 200:
            raise RuntimeError(f"page {name} answers {answer.status_code}")
        for _ in pieces:
            pass
    return took


# cost of an open page


def _open_page(report: Report, load: Loader, server: Server) -> None:
    """Pushes without and with an open page, in turns."""
    size = _size(load, server)
    rates: dict[str, list[float]] = {ALONE: [], BESIDE: []}
    micros: dict[str, list[float]] = {ALONE: [], BESIDE: []}
    fetched = 0
    for number in range(PAIRS):
        # In both orders: the second of a pair finds the store larger.
        order = (ALONE, BESIDE) if number % 2 == 0 else (BESIDE, ALONE)
        for side in order:
            job = jobs.Push(_load(server, f"{side.split()[0]}-{number}", size))
            with _page(server.address, opened=side == BESIDE) as page:
                before = cpu_seconds(server.pid)
                done = load.run(job)
                rates[side].append(done.rate)
                micros[side].append((cpu_seconds(server.pid) - before) / size * 1e6)
            fetched += page.fetched
    if not fetched:
        raise RuntimeError("the open page fetched no block")
    table = f"dashboard: push, batches of {BATCH}, {PAIRS} pairs in turns"
    alone, beside = statistics.median(rates[ALONE]), statistics.median(rates[BESIDE])
    report.add(table, ALONE, alone)
    report.add(table, BESIDE, beside, versus=ALONE, base=alone, aim=">= 0.97")
    base, cost = statistics.median(micros[ALONE]), statistics.median(micros[BESIDE])
    report.add(table, f"{ALONE}, CPU", base, "us/msg", metric="cpu")
    report.add(table, f"{BESIDE}, CPU", cost, "us/msg", metric="cpu", versus=ALONE, base=base, aim="<= 1.03")
    report.add(table, "blocks fetched by the open page", fetched / PAIRS, "in each run", metric="blocks")


def _size(load: Loader, server: Server) -> int:
    """Number of messages that take about `PUSH_SECONDS`."""
    first = load.run(jobs.Push(_load(server, "first", 200 * BATCH)))
    each = CONNECTIONS * BATCH
    return each * max(1, round(first.rate * PUSH_SECONDS / each))


def _load(server: Server, queue: str, messages: int) -> jobs.Load:
    return jobs.Load(
        peer="http", address=server.address, queue=queue, connections=CONNECTIONS, batch=BATCH, messages=messages
    )


class _Page:
    """A browser with the overview open: it follows the live events, and fetches the blocks of each changed topic."""

    def __init__(self, address: str) -> None:
        self._http = httpx2.Client(base_url=address, headers={"accept": "text/html"}, timeout=60)
        self._blocks = [
            (set(topics.split()), unescape(path)) for topics, path in _BLOCK.findall(self._http.get("/").text)
        ]
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._follow, daemon=True)
        self.fetched = 0

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._over.set()
        # One more change, so that the stream has a message and its reader sees the end.
        self._http.post("/v1/push", json={"queue": "end-of-stream", "messages": [{"payload": 1}]}).raise_for_status()
        self._thread.join()
        self._http.close()

    def _follow(self) -> None:
        topics = sorted(set[str]().union(*(topics for topics, _ in self._blocks)))
        with self._http.stream("GET", "/dashboard/live", params={"topics": " ".join(topics)}) as stream:
            for line in stream.iter_lines():
                if self._over.is_set():
                    return
                if line.startswith("data: "):
                    self._fetch(set(line.removeprefix("data: ").split()))

    def _fetch(self, changed: set[str]) -> None:
        for topics, path in self._blocks:
            if topics & changed:
                self._http.get(path, headers={"hx-request": "true"}).raise_for_status()
                self.fetched += 1


class _NoPage:
    fetched = 0


@contextmanager
def _page(address: str, *, opened: bool) -> Iterator[_Page | _NoPage]:
    if not opened:
        yield _NoPage()
        return
    page = _Page(address)
    page.start()
    try:
        yield page
    finally:
        page.stop()
