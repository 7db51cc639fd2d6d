"""Undelivered events: released without a failure, and within the answer memory while a socket does not read."""

from __future__ import annotations

import asyncio
import socket
import struct
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import httpx2
import msgspec
import pytest
from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol
from websockets.sync.client import ClientConnection, connect

from ackwise.clock import ManualClock
from ackwise.graph.commands import FetchGraph, RestartClocks
from ackwise.protocols.answer_memory import LARGE
from ackwise.protocols.mew import undelivered_events
from ackwise.protocols.mew.answer_stream import CollectedAnswer
from tests.broker.watched import until
from tests.patience import PATIENCE
from tests.server.running import Running

MIB = 1 << 20
LONG = 4_500_000
"""Characters of a large event: more than the buffers of the kernel hold."""
JOBS = 'node Job { n: Int = 0, s: String = "" }'
CONSUME = 'WATCH j: Job [mode: consume, group: "g", initial: none] RETURN j.n, j.s'
UPGRADE = (
    "GET /mew/events?session={session}&batch={batch} HTTP/1.1\r\nhost: localhost\r\nconnection: Upgrade\r\n"
    "upgrade: websocket\r\nsec-websocket-version: 13\r\nsec-websocket-key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n"
)


@pytest.fixture
def server(graph_url: str, clock: ManualClock) -> Iterator[Running]:
    with Running(graph_url, clock) as running:
        yield running


@pytest.fixture
def http(server: Running) -> Iterator[httpx2.Client]:
    with httpx2.Client(base_url=server.url, timeout=PATIENCE) as client:
        yield client


def post(http: httpx2.Client, text: str = "", **more: Any) -> list[dict[str, Any]]:
    answer = http.post("/mew", json={"text": text, "events": 0, **more}).raise_for_status().json()
    lines: list[dict[str, Any]] = answer["lines"]
    assert [line for line in lines if line["kind"] == "error"] == []
    return lines


def fill(http: httpx2.Client, *sizes: int) -> None:
    """A consumer whose session is `w`, and a job of each size."""
    post(http, JOBS)
    post(http, CONSUME, session="w")
    for number, size in enumerate(sizes):
        post(http, "SPAWN j: Job { n = $n, s = $s }", params={"n": number, "s": "x" * size})


def slow_client(server: Running, data: bytes) -> socket.socket:
    """A client that sends a request and reads no answer."""
    line = socket.socket()
    line.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    line.settimeout(PATIENCE)
    line.connect(server.address)
    line.sendall(data)
    return line


def request(body: dict[str, Any]) -> bytes:
    data = msgspec.json.encode(body)
    return b"POST /mew HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n%s" % (len(data), data)


def reset(line: socket.socket) -> None:
    line.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    line.close()


@contextmanager
def following(server: Running, session: str, source: tuple[str, int] | None = None) -> Iterator[ClientConnection]:
    url = f"ws{server.url.removeprefix('http')}/mew/events?session={session}&batch=10"
    with connect(url, max_size=None, source_address=source) as client:
        yield client


def held(http: httpx2.Client) -> int:
    """How many deliveries the consumers hold."""
    rows = post(http, 'MATCH w: _Watch WHERE w.mode = "consume" RETURN w.events_pending', session="onlooker")[0]["rows"]
    return sum(count for (count,) in rows)


def waiting(http: httpx2.Client) -> list[int]:
    """How many events of each watch are still in the store."""
    rows = post(http, "MATCH w: _Watch RETURN w.events_pending", session="onlooker")[0]["rows"]
    return sorted(count for (count,) in rows)


def consumed(http: httpx2.Client) -> list[tuple[int, int, int]]:
    """Number, attempt and failures of each job that a new consumer gets."""
    post(http, CONSUME.replace(", initial: none", ""), session="next")
    lines = post(http, session="next", events=10, wait=10, full=True)
    return [(one["match"]["j.n"], one["attempt"], one["failures"]) for one in lines if one.get("type") == "consumed"]


@pytest.fixture
def gate(server: Running, monkeypatch: pytest.MonkeyPatch) -> Iterator[threading.Event]:
    """Holds the answer of each fetch back until the event is set. The deliveries are already in the store."""
    broker, opened = server.server.runtime.broker(), threading.Event()
    send = broker.send

    async def held_back(command: Any) -> Any:
        answer = await send(command)
        while isinstance(command, FetchGraph) and not opened.is_set():
            await asyncio.sleep(0.005)
        return answer

    monkeypatch.setattr(broker, "send", held_back)
    yield opened
    opened.set()


POLLS = [{"session": "w", "events": 10}, {"session": "w", "events": 10, "text": "TICK"}]


@pytest.mark.parametrize("body", POLLS, ids=["poll", "statement"])
def test_answer_that_is_not_read_costs_no_failure(server: Running, http: httpx2.Client, body: dict[str, Any]) -> None:
    fill(http, 6_000_000)
    for _ in range(3):
        line = slow_client(server, request(body))
        until(lambda: server.server.memory.used > MIB and held(http) == 1)
        reset(line)
        until(lambda: held(http) == 0)
    assert consumed(http) == [(0, 4, 0)]
    until(lambda: server.server.memory.used == 0)


@pytest.mark.parametrize("body", POLLS, ids=["poll", "statement"])
def test_client_that_leaves_during_the_fetch_costs_no_failure(
    server: Running, http: httpx2.Client, gate: threading.Event, body: dict[str, Any]
) -> None:
    fill(http, 10)
    line = slow_client(server, request(body))
    until(lambda: held(http) == 1)
    reset(line)
    gate.set()
    until(lambda: held(http) == 0)
    assert consumed(http) == [(0, 2, 0)]


def test_answer_that_cannot_be_built_costs_no_failure(
    server: Running, http: httpx2.Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(http, 10)
    with monkeypatch.context() as broken:
        broken.setattr(CollectedAnswer, "whole", lambda *_: 1 // 0)
        assert [http.post("/mew", json=body).status_code for body in POLLS] == [500, 500]
    assert len(server._errors.seen) == 2
    server._errors.seen.clear()
    until(lambda: held(http) == 0)
    assert consumed(http) == [(0, 3, 0)]


def test_answer_that_is_read_keeps_its_delivery(http: httpx2.Client) -> None:
    fill(http, 100_000, 10)
    assert consumed(http) == [(0, 1, 0), (1, 1, 0)]
    assert held(http) == 2
    assert post(http, "ACK $delivery_id", session="next")[0]["outcome"] == "acked"


def upgrade(session: str = "w", batch: int = 1) -> bytes:
    return UPGRADE.format(session=session, batch=batch).encode()


def test_socket_that_does_not_read_costs_no_failure(server: Running, http: httpx2.Client) -> None:
    fill(http, 6_000_000)
    for number in range(3):
        post(http, CONSUME, session=f"s{number}")
        line = slow_client(server, upgrade(f"s{number}"))
        until(lambda: server.server.memory.used > MIB and held(http) == 1)
        reset(line)
        until(lambda: held(http) == 0 and not sockets(server))
    assert consumed(http) == [(0, 4, 0)]
    until(lambda: server.server.memory.used == 0)


@pytest.mark.parametrize("size", [10, 6_000_000])
def test_write_to_a_broken_socket_costs_no_failure(
    server: Running, http: httpx2.Client, monkeypatch: pytest.MonkeyPatch, size: int
) -> None:
    """The client leaves just before the write, so that the write is the first to notice."""
    fill(http, size)
    send, lines = WebSocketsSansIOProtocol.send, list[socket.socket]()

    async def reset_and_send(self: Any, message: Any) -> None:
        if lines and "text" in message:
            reset(lines.pop())
        await send(self, message)

    monkeypatch.setattr(WebSocketsSansIOProtocol, "send", reset_and_send)
    lines.append(slow_client(server, upgrade()))
    until(lambda: not lines and held(http) == 0 and not sockets(server))
    assert consumed(http) == [(0, 2, 0)]


@pytest.fixture
def restarts(server: Running, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Deliveries whose ack timeouts started again."""
    monkeypatch.setattr(undelivered_events, "LOOK_EVERY", 0.05)
    broker, restarted = server.server.runtime.broker(), list[str]()
    send = broker.send

    async def noted(command: Any) -> Any:
        answer = await send(command)
        if isinstance(command, RestartClocks):
            restarted.extend(command.deliveries)
        return answer

    monkeypatch.setattr(broker, "send", noted)
    return restarted


def drain(line: socket.socket, end: bytes) -> bytes:
    data = bytearray()
    while end not in data[-100_000:]:
        data += line.recv(1 << 20)
    return bytes(data)


@pytest.mark.parametrize(
    "sent",
    [*(request(body) for body in POLLS), UPGRADE.format(session="w", batch=1).encode()],
    ids=["poll", "statement", "socket"],
)
def test_ack_timeout_starts_when_the_client_has_the_event(
    server: Running, http: httpx2.Client, clock: ManualClock, restarts: list[str], sent: bytes
) -> None:
    fill(http, 6_000_000)
    line = slow_client(server, sent)
    until(lambda: server.server.memory.used > MIB and held(http) == 1)
    clock.advance(20)
    until(lambda: len(restarts) == 1)
    clock.advance(20)  # together longer than the timeout of 30 s
    until(lambda: len(restarts) == 2)
    clock.advance(9)
    with line:
        drain(line, b"tick")
        until(lambda: len(restarts) == 3)
        assert len(set(restarts)) == 1
        clock.advance(29.999)
        assert post(http, "ACK $id", params={"id": restarts[0]})[0]["outcome"] == "acked"


def test_client_that_never_reads_loses_the_event(
    server: Running, http: httpx2.Client, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(undelivered_events, "KEPT_ALIVE", 0.0)
    fill(http, 6_000_000)
    line = slow_client(server, request(POLLS[0]))
    until(lambda: server.server.memory.used > MIB and held(http) == 1)
    clock.advance(30)
    assert consumed(http) == [(0, 2, 1)]
    reset(line)


def test_prompt_answer_needs_no_restart(http: httpx2.Client, restarts: list[str]) -> None:
    fill(http, 10)
    assert post(http, session="w", events=10)
    assert held(http) == 1
    assert restarts == []


def test_half_sent_batch_is_released_from_there(server: Running, http: httpx2.Client) -> None:
    """The lost connection counts as a failure only for the events that the socket took."""
    fill(http, 10, 10, 6_000_000, 10)
    line = slow_client(server, upgrade(batch=10))
    until(lambda: server.server.memory.used > MIB and held(http) == 4)
    reset(line)
    until(lambda: held(http) == 0 and not sockets(server))
    assert sorted(consumed(http)) == [(0, 2, 1), (1, 2, 1), (2, 2, 0), (3, 2, 0)]


def test_socket_that_breaks_during_the_fetch_costs_no_failure(
    server: Running, http: httpx2.Client, gate: threading.Event
) -> None:
    fill(http, 10)
    line = slow_client(server, upgrade())
    until(lambda: held(http) == 1)
    reset(line)
    until(lambda: not sockets(server))
    gate.set()
    until(lambda: held(http) == 0)
    assert consumed(http) == [(0, 2, 0)]


def sockets(server: Running) -> int:
    return sum(active.sockets for active in server.server.runtime.mew()._sessions.values())


@pytest.fixture
def small(graph_url: str, clock: ManualClock) -> Iterator[Running]:
    """A server with memory for two large events, and half of it for each address."""
    with Running(graph_url, clock, answer_memory=10 * MIB, peer_share=0.5) as running:
        yield running


@pytest.fixture
def wide(graph_url: str, clock: ManualClock) -> Iterator[Running]:
    """A server with memory for two large events, and no share."""
    with Running(graph_url, clock, answer_memory=10 * MIB, peer_share=1.0) as running:
        yield running


@contextmanager
def watched(server: Running, count: int, size: int = LONG) -> Iterator[httpx2.Client]:
    """Sessions `s0`, `s1` …, each with a watch that has one large event."""
    with httpx2.Client(base_url=server.url, timeout=PATIENCE) as http:
        post(http, JOBS)
        post(http, "SPAWN j: Job { s = $s }", params={"s": "x" * size})
        for number in range(count):
            post(http, "w = WATCH j: Job RETURN j.s", session=f"s{number}")
        yield http


def test_unread_sockets_stay_within_the_memory(wide: Running, monkeypatch: pytest.MonkeyPatch) -> None:
    """Reproduction: 100 sockets with an event of 3.9 MB each held 1.24 GB at 64 MiB."""
    memory, used = wide.server.memory, []
    add = memory.add

    def counted(size: int, peer: str = "") -> None:
        add(size, peer)
        used.append(memory.used)

    monkeypatch.setattr(memory, "add", counted)
    with watched(wide, 6) as http, ExitStack() as stack:
        lines = [stack.enter_context(slow_client(wide, upgrade(f"s{number}"))) for number in range(6)]
        until(lambda: sockets(wide) == 6 and memory.used > 2 * LONG)
        until(lambda: waiting(http) == [0, 0, 1, 1, 1, 1])
        assert memory.used > 2 * LONG
        for line in lines:
            reset(line)
        until(lambda: not sockets(wide) and not memory.used)
    assert 2 * LONG < max(used) <= 10 * MIB


def test_sockets_that_read_get_all_events(wide: Running) -> None:
    with watched(wide, 6), ExitStack() as stack:
        clients = [stack.enter_context(following(wide, f"s{number}")) for number in range(6)]
        for client in reversed(clients):
            (match,) = msgspec.json.decode(client.recv(timeout=PATIENCE))["matches"]
            assert len(match["j.s"]) == LONG
        until(lambda: not wide.server.memory.used)


def test_sockets_of_one_address_get_its_share(small: Running) -> None:
    memory = small.server.memory
    with watched(small, 4) as http, ExitStack() as stack:
        for number in range(3):
            stack.enter_context(slow_client(small, upgrade(f"s{number}")))
        until(lambda: sockets(small) == 3 and memory.used > LONG)
        until(lambda: waiting(http) == [0, 1, 1, 1])
        with following(small, "s3", source=("127.0.0.2", 0)) as other:
            assert len(other.recv(timeout=PATIENCE)) > LONG
        assert waiting(http) == [0, 0, 1, 1]
    until(lambda: not memory.used)


def test_socket_takes_no_event_while_the_memory_is_full(wide: Running) -> None:
    memory = wide.server.memory
    with watched(wide, 1, size=10) as http:
        wide.do(lambda: memory.add(10 * MIB, "another"))
        with following(wide, "s0") as client:
            until(lambda: sockets(wide) == 1)
            with pytest.raises(TimeoutError):
                client.recv(timeout=0.2)
            assert waiting(http) == [1]
            wide.do(lambda: memory.free(10 * MIB, "another"))
            assert msgspec.json.decode(client.recv(timeout=PATIENCE))["type"] == "initial"


def test_closed_socket_holds_memory_until_it_is_read(wide: Running) -> None:
    """The client says goodbye without reading. Its event is still in the socket's buffer."""
    memory = wide.server.memory
    with watched(wide, 1) as http:
        line = slow_client(wide, upgrade("s0"))
        until(lambda: memory.used > LONG and waiting(http) == [0])
        line.sendall(b"\x88\x82\0\0\0\0\x03\xe8")  # a close frame with code 1000
        until(lambda: post(http, "MATCH w: _Watch RETURN w.status")[0]["rows"] == [["cancelled"]])
        assert memory.used > LONG
        reset(line)
        until(lambda: not memory.used)


@pytest.mark.parametrize("mode", ["watch", "consume"])
def test_fetch_of_bounded_bytes_says_what_is_next(server: Running, http: httpx2.Client, mode: str) -> None:
    post(http, JOBS)
    post(http, f"c = WATCH j: Job [mode: {mode}, initial: none] RETURN j.n, j.s", session="w")
    for number, size in enumerate([10, 200_000, 10]):
        post(http, "SPAWN j: Job { n = $n, s = $s }", params={"n": number, "s": "x" * size})

    def fetch(most_bytes: int) -> tuple[list[int], int]:
        command = FetchGraph(session="w", most=10, most_bytes=most_bytes)
        work = server.server.runtime.broker().send(command)
        answer = asyncio.run_coroutine_threadsafe(work, server._loop).result(PATIENCE)
        assert answer.bytes <= most_bytes
        return [event.match["j.n"] for event in answer.events if event.match], answer.needs

    assert fetch(5) == ([], len('{"match":{"j.n":0,"j.s":"xxxxxxxxxx"}}'))
    assert fetch(LARGE) == ([0], 200_028)
    assert fetch(LARGE) == ([], 200_028)
    assert fetch(200_028) == ([1], 38)
    assert fetch(LARGE) == ([2], 0)
    assert fetch(LARGE) == ([], 0)
