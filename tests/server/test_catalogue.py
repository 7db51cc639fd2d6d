"""A large catalogue over HTTP: lists are streamed or paged, and the event loop encodes none of them."""

from __future__ import annotations

import socket
import threading
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import apsw
import httpx2
import pyarrow as pa
import pytest

from ackwise import connect
from ackwise.core import queries as q
from ackwise.core import validation
from ackwise.core.commands import Claim
from ackwise.core.errors import StoreUnavailable
from ackwise.core.events import EventPort
from ackwise.protocols import streamed_lists
from ackwise.protocols.http_response import encode
from ackwise.protocols.native import lists
from ackwise.store.sqlite import SQLiteStore
from ackwise.store.sqlite import connection as opening
from ackwise.store.sqlite import writer as sqlite_writer
from ackwise.store.sqlite.session import SQLiteSession
from ackwise.wire.store_url import StoreURL
from benchmarks.catalogue import fill
from tests.patience import PATIENCE
from tests.server.process import ServerProcess
from tests.server.running import Running

QUEUES = 2000
NAMES = [f"queue-{number:06d}" for number in range(QUEUES)]
ARROW = "application/vnd.apache.arrow.stream"


@pytest.fixture(scope="module")
def filled(tmp_path_factory: pytest.TempPathFactory) -> str:
    url = f"sqlite:///{tmp_path_factory.mktemp('catalogue')}/queues.db?durability=normal"
    fill(url, QUEUES)
    return url


@pytest.fixture
def server(filled: str) -> Iterator[Running]:
    with Running(filled) as made:
        yield made


@pytest.fixture
def http(server: Running) -> Iterator[httpx2.Client]:
    with httpx2.Client(base_url=server.url, timeout=PATIENCE) as client:
        yield client


def store_of(server: Running) -> SQLiteStore:
    store = server.server.runtime.broker().store
    assert isinstance(store, SQLiteStore)
    return store


def test_queen_list_without_limit_is_streamed_whole(http: httpx2.Client) -> None:
    reply = http.get("/api/v1/resources/queues")
    assert reply.headers["transfer-encoding"] == "chunked"
    body = reply.json()
    assert list(body) == ["queues"]
    assert [row["name"] for row in body["queues"]] == NAMES
    assert body["queues"][0]["messages"]["total"] == 2
    partitions = http.get("/api/v1/resources/partitions").json()["partitions"]
    assert len(partitions) == 2 * QUEUES
    overview = http.get("/api/v1/resources/overview").json()
    assert (overview["queues"], overview["partitions"]) == (QUEUES, 2 * QUEUES)
    (group,) = http.get("/api/v1/consumer-groups").json()["groups"]
    assert (group["name"], len(group["queues"]), len(group["topics"])) == ("workers", QUEUES // 2, QUEUES // 2)
    assert list(http.get("/api/v1/consumer-groups/workers").json()) == NAMES[::2]


def test_queen_admin_routes_serve_a_large_catalogue(http: httpx2.Client) -> None:
    status = http.get("/api/v1/status").json()
    assert ([row["name"] for row in status["queues"]], status["messages"]["total"]) == (NAMES, 2 * QUEUES)
    page = http.get("/api/v1/status/queues?limit=3&offset=1500").json()
    assert [row["name"] for row in page["queues"]] == NAMES[1500:1503]
    load = http.get("/api/v1/analytics/workload?groupBy=queue").json()
    assert (len(load["rows"]), load["tenant"]["queues"]) == (200, QUEUES)
    assert len(http.get("/api/v1/analytics/partition-liveness").json()["rows"]) == 20
    listed = http.get("/api/v1/messages?limit=1000").json()
    assert (len(listed["messages"]), listed["truncated"]) == (1000, False)


@pytest.mark.parametrize("path", ["queues", "partitions"])
def test_queen_list_with_limit_is_a_page(http: httpx2.Client, path: str) -> None:
    rows: list[dict[str, Any]] = []
    options: dict[str, str | int] = {"limit": 900}
    while True:
        body = http.get(f"/api/v1/resources/{path}", params=options).json()
        assert len(body[path]) <= 900
        rows += body[path]
        if body["nextAfter"] is None:
            break
        options["after"] = body["nextAfter"]
    assert len({row["id"] for row in rows}) == len(rows) == QUEUES * (2 if path == "partitions" else 1)
    assert http.get(f"/api/v1/resources/{path}?after=nonsense").status_code == 400


def test_pushpop_list_is_whole_unless_limited(http: httpx2.Client) -> None:
    assert [row["queue_id"] for row in http.get("/queue").json()["queues"]] == NAMES
    page = http.get(f"/queue?limit=3&after={NAMES[4]}").json()["queues"]
    assert [row["queue_id"] for row in page] == NAMES[5:8]


@pytest.mark.parametrize(("path", "count"), [("queues", QUEUES), ("groups", QUEUES // 2)])
def test_native_list_is_followed_by_its_cursor(http: httpx2.Client, path: str, count: int) -> None:
    first = http.get(f"/v1/{path}").json()
    assert (list(first), len(first[path])) == ([path, "next"], 100)
    rows, cursor = first[path], first["next"]
    while cursor is not None:
        page = http.get(f"/v1/{path}", params={"cursor": cursor, "limit": 1000}).json()
        rows, cursor = rows + page[path], page["next"]
    assert [row["queue"] for row in rows] == NAMES[:: QUEUES // count]


@pytest.mark.parametrize(
    ("path", "key", "count"), [("queues", "queues", QUEUES), ("tables/groups", "rows", QUEUES // 2)]
)
def test_native_page_ends_at_its_bytes(
    http: httpx2.Client, path: str, key: str, count: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lists, "PAGE_BYTES", 60_000)
    rows: list[dict[str, Any]] = []
    cursor: str | None = ""
    while cursor is not None:
        reply = http.get(f"/v1/{path}", params={"limit": 10_000} | ({"cursor": cursor} if cursor else {}))
        assert len(reply.content) < 60_000 + 100 * 1000  # one more read of a hundred rows
        page = reply.json()
        rows, cursor = rows + page[key], page["next"]
    assert [row["queue"] for row in rows] == NAMES[:: QUEUES // count]
    assert len(http.get(f"/v1/{path}?limit=7").json()[key]) == 7


def test_arrow_page_ends_at_its_bytes(http: httpx2.Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lists, "PAGE_BYTES", 60_000)
    reply = http.get("/v1/tables/groups?limit=10000", headers={"accept": ARROW})
    first = pa.ipc.open_stream(reply.content).read_all().column("queue").to_pylist()
    assert first == NAMES[::2][: len(first)]
    assert len(first) < QUEUES // 2
    options = {"limit": "10000", "cursor": reply.headers["x-ackwise-next"]}
    assert http.get("/v1/tables/groups", params=options).json()["rows"][0]["queue"] == NAMES[2 * len(first)]


def test_native_cursor_that_is_none_is_refused(http: httpx2.Client) -> None:
    for cursor in ("nonsense", "AAAA", "WzFd", "x" * 5000):
        reply = http.get("/v1/groups", params={"cursor": cursor})
        assert (reply.status_code, reply.json()["code"]) == (400, "bad_input")


def test_arrow_table_in_batches_has_every_row(http: httpx2.Client) -> None:
    reply = http.get("/v1/tables/groups", headers={"accept": ARROW})
    table = pa.ipc.open_stream(reply.content).read_all()
    assert table.column("queue").to_pylist() == NAMES[::2]
    rows = http.get("/v1/tables/groups").json()
    assert ([row["queue"] for row in rows["rows"]], rows["next"]) == (NAMES[::2], None)


def test_client_lists_over_http_are_whole(server: Running, filled: str) -> None:
    with connect(server.url) as remote, connect(filled) as embedded:
        assert [info.name for info in remote.queues()] == NAMES
        assert [info.name for info in embedded.queues()] == NAMES
        assert remote.groups() == embedded.groups()


def test_lists_are_encoded_in_helper_threads(
    server: Running, http: httpx2.Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    threads: set[str] = set()
    store = store_of(server)
    ask = store.ask
    asked: list[int] = []

    def noted(value: object) -> bytes:
        threads.add(threading.current_thread().name)
        return encode(value)

    def counted(query: Any) -> Any:
        asked.append(getattr(query, "limit", 0))
        return ask(query)

    monkeypatch.setattr(streamed_lists, "encode", noted)
    monkeypatch.setattr(lists, "encode", noted)
    monkeypatch.setattr(store, "ask", counted)
    assert len(http.get("/api/v1/resources/queues").json()["queues"]) == QUEUES
    assert len(http.get("/v1/tables/groups").json()["rows"]) == QUEUES // 2
    assert threads
    assert all(name.startswith("ackwise_") for name in threads), threads
    assert max(asked) <= streamed_lists.ROWS


@pytest.mark.parametrize("limit", [1 << 31, 501, 1000])
def test_ask_with_a_large_limit_reads_pages(
    server: Running, http: httpx2.Client, monkeypatch: pytest.MonkeyPatch, limit: int
) -> None:
    store = store_of(server)
    ask = store.ask
    asked: list[int] = []

    def counted(query: Any) -> Any:
        asked.append(getattr(query, "limit", 0))
        return ask(query)

    monkeypatch.setattr(store, "ask", counted)
    rows = http.post("/v1/ask", json={"type": "list_queues", "limit": limit}).json()
    assert [row["name"] for row in rows] == sorted(NAMES)[:limit]
    assert http.post("/v1/ask", json={"type": "list_leases", "limit": limit}).status_code == 200
    assert http.post("/v1/ask", json={"type": "list_group_names", "limit": limit}).json() == ["workers"]
    assert max(asked) <= streamed_lists.ROWS


def steps_to_open(url: str, monkeypatch: pytest.MonkeyPatch) -> int:
    """Steps of SQLite's machine from opening a store to the end of its first turn."""
    steps = [0]

    def step() -> bool:
        steps[0] += 1
        return False

    def counted(where: StoreURL, vfs: str | None = None, events: EventPort | None = None) -> apsw.Connection:
        connection = opening.open_writer(where, vfs, events)
        connection.set_progress_handler(step, 1)
        return connection

    with monkeypatch.context() as patch:
        patch.setattr(sqlite_writer, "open_writer", counted)
        store = SQLiteStore(url)
        (claimed,) = store.transact([Claim(queue=NAMES[0], group="workers")])
        assert claimed.count == 1
        store.close()
    return steps[0]


def test_store_opens_without_reading_the_catalogue(
    filled: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(f"sqlite:///{tmp_path}/small.db", 20)
    few = steps_to_open(f"sqlite:///{tmp_path}/small.db", monkeypatch)
    assert few > 100
    assert steps_to_open(filled, monkeypatch) < 2 * few


# slow and absent readers


@pytest.fixture
def letters(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Running]:
    """Twenty dead letters of a megabyte, each a page of its own."""
    monkeypatch.setattr(validation, "ANSWER_BYTES", 1 << 20)
    url = f"sqlite:///{tmp_path}/letters.db?durability=normal"
    with connect(url) as queue:
        queue.push_many("q", ["x" * (1 << 20) for _ in range(20)])
        for _ in range(20):
            queue.claim("q")[0].reject("no")
    with Running(url) as server:
        yield server


def asked_pages(server: Running, monkeypatch: pytest.MonkeyPatch) -> list[q.ListDead]:
    store = store_of(server)
    asked: list[q.ListDead] = []
    ask = store.ask

    def noted(query: q.Query) -> object:
        if isinstance(query, q.ListDead):
            asked.append(query)
        return ask(query)

    monkeypatch.setattr(store, "ask", noted)
    return asked


def settled(asked: list[q.ListDead]) -> int:
    """How many pages were read when no more are."""
    count, since = -1, time.monotonic()
    while time.monotonic() < since + 0.5:
        if len(asked) != count:
            count, since = len(asked), time.monotonic()
        time.sleep(0.01)
    return count


def open_list(server: Running) -> socket.socket:
    wire = socket.socket()
    wire.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    wire.connect(server.address)
    wire.sendall(b"GET /api/v1/dlq?limit=20 HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n")
    return wire


def test_slow_reader_holds_a_few_pages_only(letters: Running, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = asked_pages(letters, monkeypatch)
    with open_list(letters) as wire:
        assert settled(asked) < 12
        received = 0
        while piece := wire.recv(1 << 20):
            received += len(piece)
    assert received > 20 << 20
    assert len(asked) == 20


def test_reader_that_left_ends_the_reading(letters: Running, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = asked_pages(letters, monkeypatch)
    with open_list(letters):
        before = settled(asked)
    assert settled(asked) <= before + 2


def test_store_that_fails_half_way_cuts_the_answer(letters: Running, monkeypatch: pytest.MonkeyPatch) -> None:
    store = store_of(letters)
    ask = store.ask

    def fails(query: q.Query) -> object:
        if isinstance(query, q.ListDead) and query.after is not None:
            raise StoreUnavailable("gone")
        return ask(query)

    monkeypatch.setattr(store, "ask", fails)
    with pytest.raises(httpx2.RemoteProtocolError):
        httpx2.get(f"{letters.url}/api/v1/dlq?limit=20", timeout=PATIENCE)
    assert any("half-way" in seen for seen in letters._errors.seen)
    letters._errors.seen.clear()


def test_client_follows_pages_that_end_at_their_bytes(letters: Running) -> None:
    with connect(letters.url) as queue:
        found = queue.dead_letters(limit=7)
        assert (len(found), found.total) == (7, 20)
        assert len(queue.browse("q", limit=30)) == 20
    page = httpx2.get(f"{letters.url}/v1/dead-letters", timeout=PATIENCE).json()
    assert (len(page["dead_letters"]), page["total"]) == (1, 20)
    following = httpx2.get(f"{letters.url}/v1/dead-letters", params={"cursor": page["next"]}, timeout=PATIENCE).json()
    assert following["dead_letters"][0]["id"] != page["dead_letters"][0]["id"]
    messages = httpx2.get(f"{letters.url}/v1/messages?queue=q", timeout=PATIENCE).json()
    assert (len(messages["messages"]), messages["next"]) == (1, "1.0")


# statements for a page


def test_places_of_groups_without_lag_are_not_read(filled: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A search for lagging groups counts many groups at once. It reads the partitions of lagging groups only."""
    asked: Counter[str] = Counter()
    rows = SQLiteSession.rows

    def counted(session: SQLiteSession, name: str, params: Any = None) -> Any:
        asked[name] += 1
        return rows(session, name, params or {})

    monkeypatch.setattr(SQLiteSession, "rows", counted)
    store = SQLiteStore(filled)
    try:
        assert store.ask(q.ListPlaces(unfinished_since=1, limit=100)) == []
        assert sum(asked.values()) < 100
        asked.clear()
        assert len(store.ask(q.ListPlaces(unfinished_since=10**17, limit=100))) == 100
        assert asked["places_of_group"] == 50
        asked.clear()
        assert len(store.ask(q.ListPartitions(limit=100))) == 100
        assert asked["partition_lanes"] == 50
        assert asked["spans_leased"] < 5  # other tests hold a lease of few queues
    finally:
        store.close()


# the whole size


@pytest.mark.long
def test_catalogue_of_fifty_thousand_queues_is_served(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/large.db"
    fill(f"{url}?durability=normal", 50_000)
    started = time.monotonic()
    with ServerProcess(url) as server:
        assert time.monotonic() - started < 50
        with httpx2.Client(base_url=server.url, timeout=120) as http:
            started = time.monotonic()
            assert len(http.get("/v1/queues?limit=100").json()["queues"]) == 100
            assert time.monotonic() - started < 2.5
            assert len(http.get("/api/v1/resources/queues").json()["queues"]) == 50_000
            assert len(http.get("/api/v1/resources/partitions").json()["partitions"]) == 100_000
            assert http.get("/readyz").status_code == 200
