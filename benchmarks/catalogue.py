"""A large catalogue: time to open a store, to start a list, and to remove a deleted queue."""

from __future__ import annotations

import json
import statistics
import threading
import time
import urllib.request
from contextlib import closing
from http.client import HTTPResponse
from pathlib import Path

import apsw

from ackwise.connect import open_store
from ackwise.core.commands import ByLease, Claim, ConfigureGroup, Push, Settle, Settlement
from ackwise.core.messages import NewMessage
from ackwise.core.settlement import Outcome
from ackwise.store.sqlite import SQLiteStore
from benchmarks import servers
from benchmarks.process import most_resident_mb
from benchmarks.report import Report

STEP = 1000
ROUNDS = 5
PURGE_PATIENCE = 300.0


def everything(report: Report, folder: Path, queues: int, messages: int) -> None:
    """Measures `queues` queues of two partitions, then a queue of `messages` and a tenth as many dead letters."""
    path = folder / "catalogue.db"
    fill(f"sqlite:///{path}?durability=normal", queues)
    _open_and_list(report, folder, path, queues)
    _purge(report, folder, messages)


def fill(url: str, queues: int) -> None:
    """Creates queues in turns of a thousand commands. Every second queue has a group."""
    store = open_store(url)
    batch = [NewMessage(b'{"n":1}', "a"), NewMessage(b'{"n":2}', "b")]
    for at in range(0, queues, STEP):
        names = [f"queue-{number:06d}" for number in range(at, min(queues, at + STEP))]
        store.transact([Push(queue=name, messages=batch) for name in names])
        store.transact([ConfigureGroup(queue=name, group="workers") for name in names[::2]])
        store.maintain()
    store.close()


def _open_and_list(report: Report, folder: Path, path: Path, queues: int) -> None:
    table = f"catalogue: {queues:,} queues, {2 * queues:,} partitions"
    report.add(table, "open the store and push", _open_seconds(path), "s", metric="open", aim="< 2")
    started = time.perf_counter()
    with servers.ackwise(folder, f"sqlite:///{path}", "catalogue") as server:
        report.add(table, "start the server", time.perf_counter() - started, "s", metric="start", aim="< 5")
        with _Pings(server.address) as pings:
            for name, page in (
                ("first page of /v1/queues", "/v1/queues?limit=100"),
                ("first page of /v1/groups", "/v1/groups?limit=100"),
                ("first bytes of Queen's queues", "/api/v1/resources/queues"),
                ("first bytes of Queen's partitions", "/api/v1/resources/partitions"),
            ):
                took = [_first_bytes(server.address + page) for _ in range(ROUNDS)]
                report.add(table, name, 1000 * statistics.median(took), "ms", metric="first page", aim="< 250")
            took = [_whole(server.address + "/api/v1/resources/queues")]
            report.add(table, "all of Queen's queues", took[0], "s", metric="whole list")
        report.add(table, "longest wait for /livez meanwhile", 1000 * pings.worst, "ms", metric="stall", aim="< 250")
        report.add(table, "most resident", most_resident_mb(server.pid), "MB", metric="memory", aim="< 300")


def _open_seconds(path: Path) -> float:
    started = time.perf_counter()
    store = SQLiteStore(f"sqlite:///{path}")
    store.transact([Push(queue="queue-000000", messages=[NewMessage(b"1")])])
    took = time.perf_counter() - started
    store.close()
    return took


def _answer(url: str, method: str = "GET", body: bytes | None = None) -> HTTPResponse:
    answer: HTTPResponse = urllib.request.urlopen(urllib.request.Request(url, body, method=method))  # noqa: S310
    return answer


def _first_bytes(url: str) -> float:
    started = time.perf_counter()
    with _answer(url) as answer:
        answer.read(1)
        return time.perf_counter() - started


def _whole(url: str) -> float:
    started = time.perf_counter()
    with _answer(url) as answer:
        while answer.read(1 << 20):
            pass
    return time.perf_counter() - started


class _Pings:
    """Asks `/livez` again and again. `worst` is the longest answer."""

    def __init__(self, address: str) -> None:
        self._url = f"{address}/livez"
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self.worst = 0.0

    def _run(self) -> None:
        while not self._over.wait(0.01):
            self.worst = max(self.worst, _first_bytes(self._url))

    def __enter__(self) -> _Pings:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()


# purge


def _purge(report: Report, folder: Path, messages: int) -> None:
    path, letters = folder / "purge.db", messages // 10
    fill_queue(path, messages, letters)
    table = f"purge: a deleted queue with {messages:,} messages, each in a row, and {letters:,} dead letters"
    with servers.ackwise(folder, f"sqlite:///{path}", "purge") as server:
        idle = _push_times(server.address, 200)
        _answer(f"{server.address}/api/v1/resources/queues/big", "DELETE").close()
        started = time.perf_counter()
        busy: list[float] = []
        with closing(apsw.Connection(str(path), flags=apsw.SQLITE_OPEN_READONLY)) as look:
            while look.execute("SELECT 1 FROM queue WHERE deleted_at IS NOT NULL").fetchall():
                busy += _push_times(server.address, 20)
                if time.perf_counter() - started > PURGE_PATIENCE:
                    raise RuntimeError("the purge does not end")
        took = time.perf_counter() - started
    report.add(table, "rows removed beside a pusher", (messages + letters) / took, "rows/s", aim=">= 20000")
    report.add(table, "push, no purge, p50", 1000 * statistics.median(idle), "ms", metric="p50")
    report.add(table, "push beside the purge, p50", 1000 * statistics.median(busy), "ms", metric="p50")
    report.add(table, "push beside the purge, p99", 1000 * statistics.quantiles(busy, n=100)[98], "ms", metric="p99",
               aim="< 100")  # fmt: skip


def _push_times(address: str, count: int) -> list[float]:
    body = json.dumps({"queue": "other", "messages": [{"payload": 1}]}).encode()
    took = []
    for _ in range(count):
        started = time.perf_counter()
        _answer(f"{address}/v1/push", "POST", body).close()
        took.append(time.perf_counter() - started)
    return took


def fill_queue(path: Path, messages: int, letters: int) -> None:
    """One message and one dead letter through the store, their copies by SQL: a million commits would take minutes."""
    store = SQLiteStore(f"sqlite:///{path}?durability=normal")
    store.transact([Push(queue="big", messages=[NewMessage(b'"' + b"x" * 100 + b'"')])])
    (claimed,) = store.transact([Claim(queue="big", most=1)])
    store.transact([Settle(entries=[Settlement(selector=ByLease(claimed.lease_id), outcome=Outcome.REJECT)])])
    store.close()
    with closing(apsw.Connection(str(path))) as connection:
        numbers = "WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < {} - 1)"
        for statement in (
            "BEGIN",
            f"{numbers.format(messages)} INSERT INTO segment SELECT pos + i, i, created_at, body FROM segment, n",
            f"{numbers.format(letters)} INSERT INTO dead (uuid, queue, part, lane, seq, epoch, grp, grp_name, txid,"
            " reason, error, etype, fails, delivs, history, snapshot, born_at, dead_at)"
            " SELECT lower(hex(randomblob(16))), queue, part, lane, i, epoch, grp, grp_name, txid || i, reason, error,"
            " etype, fails, delivs, history, snapshot, born_at, dead_at + i FROM dead, n",
            f"UPDATE lane SET head = {messages}",
            f"UPDATE cursor SET next = {letters}, dead = {letters}",
            "COMMIT",
        ):
            connection.execute(statement).fetchall()
