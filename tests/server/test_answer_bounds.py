"""Answers to claims are bounded in bytes. Messages that do not reach their client go back without a failure."""

from __future__ import annotations

import json
import socket
import struct
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx2
import pytest

import ackwise
from ackwise.connect import open_store
from ackwise.core import commands as c
from ackwise.core.messages import NewMessage
from ackwise.fluent import Client
from tests.broker.watched import until
from tests.patience import PATIENCE
from tests.protocols.amps.peer import Peer
from tests.server.process import ServerProcess
from tests.server.running import Running
from tests.server.wire import UPGRADE, request

MIB = 1 << 20
ARROW = {"accept": "application/vnd.apache.arrow.stream"}


def fill(url: str, count: int, size: int, queue: str = "big") -> None:
    """Push that many messages, each a JSON text of `size` bytes that begins with its number."""
    store = open_store(url)
    try:
        for number in range(count):
            payload = b'"%03d:%b"' % (number, b"x" * (size - 6))
            (receipts,) = store.transact([c.Push(queue=queue, messages=[NewMessage(payload)])])
            assert len(receipts) == 1
    finally:
        store.close()


def peak(pid: int) -> int:
    """The most memory that a process ever used."""
    status = Path(f"/proc/{pid}/status").read_text()
    return next(int(line.split()[1]) << 10 for line in status.splitlines() if line.startswith("VmHWM"))


@pytest.mark.parametrize("count", [20, pytest.param(60, marks=pytest.mark.long)])
def test_pop_of_many_large_messages_stays_small(tmp_path: Path, count: int) -> None:
    """Reproduction: one pop of 60 peaked at 2.5 GB, and its MemoryError spent their attempts until they were dead."""
    url = f"sqlite:///{tmp_path}/big.db?durability=normal"
    fill(url, count, 7 * MIB)
    seen: list[str] = []
    with ServerProcess(url) as server, httpx2.Client(base_url=server.url, timeout=PATIENCE) as http:
        for _ in range(count):
            answer = http.get("/api/v1/pop/queue/big", params={"batch": 1000})
            if answer.status_code == 204:
                break
            assert len(answer.content) < 17 * MIB
            messages = json.loads(answer.content)["messages"]
            assert [(row["retryCount"], row["deliveryAttempt"]) for row in messages] == [(0, 1)] * len(messages)
            seen += [row["data"][:3] for row in messages]
            acks = [{"transactionId": row["transactionId"], "partitionId": row["partitionId"]} for row in messages]
            assert http.post("/api/v1/ack/batch", json={"acknowledgments": acks}).status_code == 200
        assert peak(server.process.pid) < 400 * MIB
    assert seen == [f"{number:03d}" for number in range(count)]


@pytest.fixture
def store_url(any_store: str) -> str:
    fill(any_store, 6, 300_000)
    return any_store


@pytest.fixture
def server(store_url: str) -> Iterator[Running]:
    with Running(store_url, answer_bytes=700_000, amps_port=0, grace=0.05) as running:
        yield running


@pytest.fixture
def http(server: Running) -> Iterator[httpx2.Client]:
    with httpx2.Client(base_url=server.url, timeout=PATIENCE) as client:
        yield client


def test_faces_stop_at_the_servers_bound(http: httpx2.Client, server: Running) -> None:
    native = {"queue": "big", "max": 100, "exclusivity": "none"}
    assert len(http.post("/v1/claim", json=native).json()["messages"]) == 2
    assert len(http.post("/v1/claim", json={**native, "max_bytes": 1}).json()["messages"]) == 1
    with ackwise.connect(server.url) as connection:
        assert len(connection.claim("big", max=100, exclusivity="none", max_bytes=1 << 40)) == 2
        connection.drain()
    pop = http.get("/api/v1/pop/queue/big", params={"batch": 1000, "consumerGroup": "queen"})
    assert len(pop.json()["messages"]) == 2
    assert http.post("/queue/big/pop", params={"count": 100, "allow_competing_consumers": "true"}).json()["count"] == 2


def test_claim_ahead_answers_within_one_bound(http: httpx2.Client) -> None:
    body = {"queue": "big", "max": 1, "exclusivity": "none", "ahead": 5}
    assert len(http.post("/v1/claim", json=body).json()["claims"]) == 2


def test_claim_of_grants_has_no_bound_of_its_answer(http: httpx2.Client) -> None:
    body = {"queue": "big", "max": 100, "grants_only": True, "max_bytes": 1 << 40}
    (grant,) = http.post("/v1/claim", json=body).json()["grants"]
    assert (grant["lo"], grant["hi"]) == (0, 6)


def test_python_clients_lower_the_bound(server: Running) -> None:
    with ackwise.connect(server.url) as connection:
        assert [len(batch) for batch in connection.batches("big", group="b", max_bytes=1, stop_when_empty=True)] == [
            1
        ] * 6
        consumed = connection.consume("big", group="c", max_bytes=400_000, stop_when_empty=True)
        for delivery in consumed:
            delivery.ack()
    with Client(server.url) as client:
        assert len(client.queue("big").group("f").batch(10).max_bytes(400_000).pop()) == 1


def test_amps_hands_out_within_the_servers_bound(server: Running, http: httpx2.Client) -> None:
    subscriber = Peer(server.amps)
    try:
        subscriber.subscribe("queue://big", opts="max_backlog=6")
        bodies = [subscriber.read().body for _ in range(6)]
        assert [body[1:4] for body in bodies if body] == [b"%03d" % number for number in range(6)]
        rows = http.get("/v1/tables/leases", params={"queue": "big"}).json()["rows"]
        assert max(row["held"] for row in rows) <= 2
    finally:
        subscriber.close()


@pytest.mark.parametrize("given", ["0", "-1", "1.5", "many"])
def test_queen_max_bytes_wrong_is_refused(http: httpx2.Client, given: str) -> None:
    answer = http.get("/api/v1/pop/queue/new", params={"maxBytes": given})
    assert (answer.status_code, "maxBytes" in answer.json()["error"]) == (400, True)
    assert http.get("/api/v1/resources/queues/new").status_code == 404


def test_queen_max_bytes_lowers_the_bound(http: httpx2.Client) -> None:
    assert len(http.get("/api/v1/pop/queue/big?batch=9&maxBytes=400000").json()["messages"]) == 1


def test_queen_max_bytes_wrong_is_absent_upstream(store_url: str) -> None:
    with Running(store_url, queen_defaults="upstream") as server:
        answer = httpx2.get(f"{server.url}/api/v1/pop/queue/big?batch=9&maxBytes=-3")
    assert len(answer.json()["messages"]) == 6


def slow_reader(server: Running, *headers: str) -> socket.socket:
    """A client that asks and reads nothing."""
    line = socket.socket()
    line.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    line.settimeout(PATIENCE)
    line.connect(server.address)
    line.sendall(request("GET", "/api/v1/pop/queue/big?batch=100", None, *headers))
    return line


@pytest.fixture
def tight(any_store: str) -> Iterator[Running]:
    """A server with memory for one large answer."""
    fill(any_store, 6, 7 * MIB)
    with Running(any_store, answer_memory=10 * MIB) as running:
        yield running


def test_full_answer_memory_refuses_and_claims_nothing(tight: Running) -> None:
    memory = tight.server.memory
    line = slow_reader(tight)
    until(lambda: memory.full)
    with httpx2.Client(base_url=tight.url, timeout=PATIENCE) as http:
        refused = [
            http.get("/api/v1/pop/queue/big?consumerGroup=g&batch=9"),
            http.get("/api/v1/pop/queue/big?consumerGroup=g&autoAck=true"),
            http.get("/api/v1/pop/queue/never"),
            http.post("/v1/claim", json={"queue": "big", "group": "g"}),
            http.post("/queue/big/pop"),
        ]
        assert [(answer.status_code, answer.headers["retry-after"]) for answer in refused] == [(503, "1")] * 5
        assert http.get("/api/v1/resources/queues/never").status_code == 404
        assert http.get("/livez").status_code == 200
        line.close()
        until(lambda: not memory.used)
        (group,) = http.get("/v1/tables/groups", params={"queue": "big"}).json()["rows"]
        assert (group["group"], group["acked"]) == ("__QUEUE_MODE__", 0)
        assert len(http.get("/api/v1/pop/queue/big?consumerGroup=g&batch=9").json()["messages"]) == 2


def test_auto_ack_does_not_wait_for_memory(any_store: str) -> None:
    """What is acked cannot be released: refusing the answer would lose the messages."""
    fill(any_store, 6, 7 * MIB)
    with Running(any_store, answer_memory=20 * MIB) as server:
        line = slow_reader(server)
        until(lambda: server.server.memory.used > 14 * MIB)
        wire = httpx2.HTTPTransport(local_address="127.0.0.2")
        with httpx2.Client(base_url=server.url, timeout=PATIENCE, transport=wire) as http:
            answer = http.get("/api/v1/pop/queue/big?autoAck=true&batch=9&consumerGroup=g")
            assert (answer.status_code, len(answer.json()["messages"])) == (200, 2)
        line.close()
        until(lambda: not server.server.memory.used)


def test_full_answer_memory_refuses_lists(tight: Running) -> None:
    line = slow_reader(tight)
    until(lambda: tight.server.memory.full)
    with httpx2.Client(base_url=tight.url, timeout=PATIENCE) as http:
        for path in ("/v1/tables/messages?queue=big", "/v1/messages?queue=big", "/api/v1/dlq", "/queue"):
            answer = http.get(path)
            assert (answer.status_code, answer.headers["retry-after"]) == (503, "1"), path
        assert http.post("/v1/push", json={"queue": "small", "messages": [{"payload": 1}]}).status_code == 200
        line.close()
        until(lambda: not tight.server.memory.used)
        assert http.get("/v1/tables/messages?queue=big&limit=1").status_code == 200
        until(lambda: not tight.server.memory.used)


def test_slow_reader_of_a_list_leaves_memory_to_others(any_store: str) -> None:
    fill(any_store, 6, 7 * MIB)
    with Running(any_store, answer_memory=64 * MIB) as server:
        lines = []
        for _ in range(4):
            line = socket.socket()
            line.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            line.connect(server.address)
            line.sendall(request("GET", "/v1/tables/messages?queue=big"))
            lines.append(line)
        until(lambda: server.server.memory.used >= 28 * MIB)
        with httpx2.Client(base_url=server.url, transport=httpx2.HTTPTransport(local_address="127.0.0.2")) as other:
            assert len(other.get("/api/v1/pop/queue/big?batch=9", timeout=PATIENCE).json()["messages"]) == 2
        assert server.server.memory.used <= 64 * MIB
        for line in lines:
            line.close()
        until(lambda: not server.server.memory.used)


def test_client_that_leaves_a_large_answer_loses_nothing(tight: Running) -> None:
    tries = 3
    for _ in range(tries):
        line = slow_reader(tight)
        until(lambda: tight.server.memory.full)
        line.close()
        until(lambda: not tight.server.memory.used)
        with httpx2.Client(base_url=tight.url, timeout=PATIENCE) as http:
            until(lambda: not http.get("/v1/tables/leases", params={"queue": "big"}).json()["rows"])
    with httpx2.Client(base_url=tight.url, timeout=PATIENCE) as http:
        found = http.get("/api/v1/pop/queue/big?batch=9").json()["messages"]
    assert [(one["data"][:3], one["retryCount"], one["deliveryAttempt"]) for one in found] == [
        ("000", 0, tries + 1),
        ("001", 0, tries + 1),
    ]


def test_upgrade_behind_an_unread_answer_leaks_nothing(tight: Running) -> None:
    """A WebSocket takes the connection over, and nothing told the answer before it that the client had left."""
    line = slow_reader(tight)
    assert line.recv(1) == b"H"
    line.sendall(UPGRADE)
    until(lambda: not tight.server.memory.used)
    line.close()
    with httpx2.Client(base_url=tight.url, timeout=PATIENCE) as http:
        until(lambda: not http.get("/v1/tables/leases", params={"queue": "big"}).json()["rows"])


def test_answer_behind_an_unread_answer_goes_back(any_store: str) -> None:
    """The client sends three requests at once, and leaves before it reads the first answer."""
    fill(any_store, 2, 7 * MIB)
    with Running(any_store) as server, httpx2.Client(base_url=server.url, timeout=PATIENCE) as http:
        http.post("/v1/push", json={"queue": "small", "messages": [{"payload": 1}]}).raise_for_status()
        line = socket.socket()
        line.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        line.settimeout(PATIENCE)
        line.connect(server.address)
        ahead = ("/api/v1/pop/queue/big?batch=1", "/api/v1/pop/queue/small", "/livez")
        line.sendall(b"".join(request("GET", path) for path in ahead))
        until(lambda: len(http.get("/v1/tables/leases", params={"queue": "small"}).json()["rows"]) == 1)
        line.close()
        until(lambda: not http.get("/v1/tables/leases", params={"queue": "small"}).json()["rows"])


def test_client_that_resets_at_the_first_byte_loses_nothing(tmp_path: Path) -> None:
    """The write that follows the head fails at once, before the socket is full. It takes two processes to see this."""
    store = f"sqlite:///{tmp_path}/q.db"
    fill(store, 24, MIB)
    with ServerProcess(store) as server, ackwise.connect(server.url) as queue:
        for _ in range(20):
            with socket.create_connection(server.address, PATIENCE) as thief:
                thief.sendall(request("GET", "/api/v1/pop/queue/big?batch=100"))
                thief.recv(1)
                thief.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        until(lambda: not queue.leases())
        assert {delivery.failures for delivery in queue.claim("big", max=100)} == {0}


@pytest.mark.parametrize("headers", [(), ("connection: close",)], ids=["keep-alive", "close"])
def test_slow_reader_that_reads_on_keeps_its_messages(tight: Running, headers: tuple[str, ...]) -> None:
    line = slow_reader(tight, *headers)
    until(lambda: tight.server.memory.full)
    file = line.makefile("rb")
    head = dict(row.strip().split(b": ") for row in list(iter(file.readline, b"\r\n"))[1:])
    assert len(json.loads(file.read(int(head[b"content-length"])))["messages"]) == 2
    until(lambda: not tight.server.memory.used)
    with httpx2.Client(base_url=tight.url, timeout=PATIENCE) as http:
        assert len(http.get("/v1/tables/leases", params={"queue": "big"}).json()["rows"]) == 1
    line.close()


def test_many_large_answers_at_once_wait_for_memory(any_store: str) -> None:
    """Each claim waits until its messages may be read. No claim is refused or charged."""
    fill(any_store, 12, MIB)
    found: list[str] = []
    with Running(any_store, answer_bytes=2 * MIB, answer_memory=3 * MIB) as server:
        body = {"queue": "big", "max": 100, "exclusivity": "none"}

        def claim() -> None:
            answer = httpx2.post(f"{server.url}/v1/claim", json=body, timeout=PATIENCE)
            if answer.status_code == 200:
                found.extend(one["payload"][:3] for one in answer.json()["messages"])

        threads = [threading.Thread(target=claim) for _ in range(12)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert server.server.memory.used == 0
        while len(found) < 12:
            claim()
    assert sorted(found) == [f"{number:03d}" for number in range(12)]


def out_of_memory(*_: object) -> bytes:
    raise MemoryError


Ask = Callable[[httpx2.Client], httpx2.Response]
ENCODERS: dict[str, tuple[str, Ask]] = {
    "queen": ("ackwise.protocols.queen.pop.write_claim", lambda http: http.get("/api/v1/pop/queue/big?batch=9")),
    "pushpop": (
        "ackwise.protocols.pushpop.pop._write_items",
        lambda http: http.post("/queue/big/pop?require_ack=true&count=9"),
    ),
    "native": (
        "ackwise.protocols.native.claim_json.write_claim",
        lambda http: http.post("/v1/claim", json={"queue": "big", "max": 9}),
    ),
    "arrow": (
        "ackwise.protocols.native.arrow.write_claim",
        lambda http: http.post("/v1/claim", json={"queue": "big", "max": 9}, headers=ARROW),
    ),
    "ahead": (
        "ackwise.protocols.native.claim_json.write_batches",
        lambda http: http.post("/v1/claim", json={"queue": "big", "ahead": 9}),
    ),
}


@pytest.mark.parametrize("face", ENCODERS)
def test_answer_that_cannot_be_built_releases(
    http: httpx2.Client, server: Running, monkeypatch: pytest.MonkeyPatch, face: str
) -> None:
    where, ask = ENCODERS[face]
    with monkeypatch.context() as broken:
        broken.setattr(where, out_of_memory)
        for _ in range(5):
            assert ask(http).status_code == 500
            until(lambda: not http.get("/v1/tables/leases", params={"queue": "big"}).json()["rows"])
    server._errors.seen.clear()
    found: list[dict[str, Any]] = http.post("/v1/claim", json={"queue": "big", "max": 9}).json()["messages"]
    assert [(one["payload"][:3], one["failures"], one["attempt"]) for one in found] == [("000", 0, 6), ("001", 0, 6)]
