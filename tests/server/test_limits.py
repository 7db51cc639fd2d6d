"""What the server takes from a connection: how much, how slowly, and in which pieces."""

from __future__ import annotations

import json
import select
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from uvicorn.protocols.websockets import websockets_sansio_impl

from ackwise.protocols import http_request
from ackwise.server import app, http_protocol
from tests.server.running import Running
from tests.server.wire import UPGRADE, Reply, Wire, request

SHORT = 0.3


@pytest.fixture
def store_url(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path}/limits.db?durability=normal"


@pytest.fixture
def server(store_url: str) -> Iterator[Running]:
    with Running(store_url, max_body=1 << 20, max_connections=20, peer_share=1) as made:
        yield made


def body(*payloads: Any) -> bytes:
    return json.dumps({"items": [{"queue": "q", "payload": payload} for payload in payloads]}).encode()


def told(answer: Reply | None, status: int, code: str) -> bool:
    """Whether it is a refusal of that kind, with a text."""
    assert answer is not None
    return (answer.status, answer.json["code"], bool(answer.json["error"])) == (status, code, True)


def pushed(server: Running) -> list[Any]:
    with Wire(server.address) as wire:
        wire.ask("GET", "/api/v1/pop/queue/q?batch=1000&autoAck=true")
        answer = wire.reply()
        assert answer is not None
        return [message["data"] for message in answer.json["messages"]] if answer.status == 200 else []


def nobody_left(server: Running) -> None:
    """Wait until the server has let go of every connection."""
    deadline = time.monotonic() + 20
    while server.server.server_state.connections:
        assert time.monotonic() < deadline, "a connection was kept"
        time.sleep(0.01)


# size


def test_body_that_is_announced_too_large_is_not_waited_for(server: Running) -> None:
    with Wire(server.address) as wire:
        wire.send(request("POST", "/api/v1/push", None, f"content-length: {100 << 20}"))
        assert told(wire.reply(), 413, "body_too_large")


def test_hundred_megabytes_are_refused_and_the_server_goes_on(server: Running) -> None:
    with Wire(server.address) as wire:
        piece = b" " * (1 << 20)
        wire.send(request("POST", "/api/v1/push", None, f"content-length: {100 << 20}"))
        for _ in range(100):
            wire.send(piece)
        assert told(wire.reply(), 413, "body_too_large")
        wire.ask("POST", "/api/v1/push", body(1))
        answer = wire.reply()
        assert answer is not None
        assert answer.status == 201
    assert pushed(server) == [1]


def test_body_in_chunks_is_counted_as_it_comes(server: Running) -> None:
    with Wire(server.address) as wire:
        wire.send(request("POST", "/api/v1/push", None, "transfer-encoding: chunked"))
        piece = b"%x\r\n%b\r\n" % (1 << 16, b" " * (1 << 16))
        for _ in range(17):
            wire.send(piece)
        assert told(wire.reply(), 413, "body_too_large")


def test_body_of_the_largest_size_is_taken(server: Running) -> None:
    whole = body("x")
    whole = body("x" * ((1 << 20) - len(whole) + 1))
    assert len(whole) == 1 << 20
    with Wire(server.address) as wire:
        wire.ask("POST", "/api/v1/push", whole)
        answer = wire.reply()
        assert answer is not None
        assert answer.status == 201
        wire.ask("POST", "/api/v1/push", whole + b" ")
        assert told(wire.reply(), 413, "body_too_large")


@pytest.mark.parametrize("head", [b"x-large: " + b"x" * (1 << 17), b"x: y\r\n" * (1 << 15)], ids=["one", "many"])
def test_large_head_is_refused(server: Running, head: bytes) -> None:
    with Wire(server.address) as wire:
        wire.send(b"GET /health HTTP/1.1\r\n" + head)
        assert told(wire.reply(), 431, "headers_too_large")
        assert wire.closed()


def test_long_path_is_refused(server: Running) -> None:
    with Wire(server.address) as wire:
        wire.send(b"GET /" + b"x" * (1 << 17))
        assert told(wire.reply(), 431, "headers_too_large")


def test_connections_beyond_the_limit_are_told_to_come_again(server: Running) -> None:
    wires = [Wire(server.address) for _ in range(20)]
    for wire in wires:
        wire.ask("GET", "/livez")
        assert wire.reply() is not None
    with Wire(server.address) as late:
        assert told(late.reply(), 503, "too_many_connections")
        assert late.closed()
    wires.pop().close()
    deadline = time.monotonic() + 20
    while True:
        with Wire(server.address) as again:
            again.ask("GET", "/livez")
            answer = again.reply()
            if answer is not None and answer.status == 200:
                break
        assert time.monotonic() < deadline
    for wire in wires:
        wire.close()


def test_address_cannot_take_every_connection(store_url: str) -> None:
    with Running(store_url, max_connections=10) as server:
        wires = [Wire(server.address) for _ in range(5)]
        for wire in wires:
            wire.ask("GET", "/livez")
            assert wire.reply() is not None
        with Wire(server.address) as late:
            assert told(late.reply(), 503, "too_many_connections")
            assert late.closed()
        with Wire(server.address, source="127.0.0.2") as other:
            other.ask("GET", "/livez")
            answer = other.reply()
            assert answer is not None
            assert answer.status == 200
        for wire in wires:
            wire.close()
        nobody_left(server)
        with Wire(server.address) as again:
            again.ask("GET", "/livez")
            answer = again.reply()
            assert answer is not None
            assert answer.status == 200


@pytest.mark.parametrize("known", [True, False])
def test_closed_websocket_frees_its_place(store_url: str, monkeypatch: pytest.MonkeyPatch, known: bool) -> None:
    """A socket that its client resets meanwhile does not know its peer any more."""
    if not known:
        monkeypatch.setattr(websockets_sansio_impl, "get_remote_addr", lambda transport: None)
    with Running(store_url, max_connections=2) as server:
        for _ in range(3):
            with Wire(server.address) as wire:
                wire.send(UPGRADE)
                answer = wire.reply()
                assert answer is not None
                assert answer.status == 101
                with Wire(server.address) as second:
                    assert told(second.reply(), 503, "too_many_connections")
            nobody_left(server)


# patience


def trickle(server: Running, wires: list[Wire]) -> set[int]:
    """Send each connection a byte of its body repeatedly until each has an answer. Returns the statuses."""
    statuses: set[int] = set()
    deadline = time.monotonic() + 20
    waiting = list(wires)
    while waiting:
        assert time.monotonic() < deadline, f"{len(waiting)} trickling bodies keep their connections"
        for wire in list(waiting):
            wire.socket.settimeout(0.02)
            try:
                wire.send(b" ")
                if (data := wire.socket.recv(1000)) == b"":
                    raise ConnectionError
                elif data.startswith(b"HTTP/1.1 "):
                    statuses.add(int(data.split()[1]))
            except TimeoutError:
                continue
            except ConnectionError:
                waiting.remove(wire)
                wire.close()
    return statuses


def test_trickling_bodies_lose_their_connections(store_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_request, "BODY_PATIENCE", SHORT)
    with Running(store_url, max_connections=20, peer_share=1) as server:
        wires = [Wire(server.address) for _ in range(20)]
        for wire in wires:
            wire.send(request("POST", "/api/v1/push", None, "content-length: 100000"))
        assert trickle(server, wires) == {408}
        nobody_left(server)
        assert pushed(server) == []


BODIES = ("/api/v1/push", "/v1/push", "/v1/claim", "/v1/settle", "/v1/ask", "/v1/admin", "/mew", "/queue/q/push")


def test_connection_is_closed_after_408(store_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_request, "BODY_PATIENCE", SHORT)
    with Running(store_url) as server:
        for path in BODIES:
            with Wire(server.address) as wire:
                wire.send(request("POST", path, None, "content-length: 100") + b"[")
                answer = wire.reply()
                assert answer is not None
                assert (path, answer.status, answer.headers.get("connection")) == (path, 408, "close")
                assert wire.closed()


def test_body_that_trickles_after_its_answer_is_cut(store_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_protocol, "REST_PATIENCE", SHORT)
    with Running(store_url, max_body=1000) as server:
        wire = Wire(server.address)
        wire.send(request("POST", "/api/v1/push", None, "content-length: 100000"))
        assert trickle(server, [wire]) == {413}
        nobody_left(server)


def test_half_a_head_is_given_up(store_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_protocol, "HEADER_PATIENCE", SHORT)
    with Running(store_url) as server, Wire(server.address) as wire:
        wire.send(b"POST /api/v1/push HTTP/1.1\r\nhost: localhost\r\nconte")
        assert told(wire.reply(), 408, "request_timeout")
        assert wire.closed()


def test_connection_that_says_nothing_is_closed(store_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_protocol, "HEADER_PATIENCE", SHORT)
    with Running(store_url) as server, Wire(server.address) as wire:
        assert told(wire.reply(), 408, "request_timeout")
        assert wire.closed()


def test_head_that_comes_in_drops_has_one_patience_for_all(store_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_protocol, "HEADER_PATIENCE", SHORT)
    with Running(store_url) as server, Wire(server.address) as wire:
        wire.socket.settimeout(0.01)
        wire.send(b"GET /health HTTP/1.1\r\n")
        deadline = time.monotonic() + 20
        while True:
            assert time.monotonic() < deadline, "it would have gone on for ever"
            try:
                wire.send(b"x: y\r\n")
                if b"408" in wire.socket.recv(1000):
                    break
            except TimeoutError:
                continue
            except ConnectionError:
                break


def test_half_a_second_head_is_given_up(store_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_protocol, "HEADER_PATIENCE", SHORT)
    with Running(store_url) as server, Wire(server.address) as wire:
        wire.ask("GET", "/livez")
        assert wire.reply() is not None
        wire.send(b"GET /livez HT")
        assert told(wire.reply(), 408, "request_timeout")


def test_half_a_body_is_given_up_and_nothing_taken(store_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_request, "BODY_PATIENCE", SHORT)
    with Running(store_url) as server:
        with Wire(server.address) as wire:
            whole = request("POST", "/api/v1/push", body(1))
            wire.send(whole[:-1])
            assert told(wire.reply(), 408, "body_too_slow")
        assert pushed(server) == []


def test_client_that_never_reads_is_cut_off(store_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_protocol, "WRITE_PATIENCE", SHORT)
    with Running(store_url) as server:
        with Wire(server.address) as wire:
            for _ in range(8):
                wire.ask("POST", "/api/v1/push", body("x" * (4 << 20)))
                assert wire.reply() is not None
        with Wire(server.address) as deaf:
            deaf.ask("GET", "/api/v1/pop/queue/q?batch=8&autoAck=true")
            with Wire(server.address) as wire:
                wire.ask("GET", "/livez")
                assert wire.reply() is not None
            nobody_left(server)


def test_websocket_whose_client_never_reads_is_cut_off(store_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_protocol, "WRITE_PATIENCE", SHORT)
    texts = ["node B { n: String } w = WATCH b: B RETURN b.n", *["SPAWN b: B { n = $n }"] * 4]
    with Running(store_url) as server:
        with Wire(server.address) as wire:
            for text in texts:
                call = {"session": "s", "text": text, "events": 0, "params": {"n": "x" * (4 << 20)}}
                wire.ask("POST", "/mew", json.dumps(call).encode())
                answer = wire.reply()
                assert answer is not None
                assert answer.json["fine"]
        with Wire(server.address) as deaf:
            deaf.send(UPGRADE)
            answer = deaf.reply()
            assert answer is not None
            assert answer.status == 101
            nobody_left(server)


def test_connection_without_work_is_closed_after_a_while(store_url: str) -> None:
    with Running(store_url, keep_alive=1) as server, Wire(server.address) as wire:
        wire.ask("GET", "/livez")
        assert wire.reply() is not None
        assert wire.closed()


# pieces


def test_requests_may_follow_without_waiting_for_answers(server: Running) -> None:
    """And each is answered in its turn, whatever it is."""
    with Wire(server.address) as wire:
        wire.send(
            request("POST", "/api/v1/push", body(1, 2))
            + request("GET", "/api/v1/pop/queue/q?batch=1")
            + request("GET", "/nowhere")
            + request("GET", "/livez")
            + request("POST", "/api/v1/push", b"{")
            + request("GET", "/api/v1/pop/queue/empty?wait=true&timeout=50")
            + request("GET", "/api/v1/pop/queue/empty")
            + request("POST", "/api/v1/push", body(3))
        )
        answers = [wire.reply() for _ in range(8)]
        assert [answer.status for answer in answers if answer] == [201, 200, 404, 200, 400, 204, 204, 201]


def test_thousand_requests_in_a_row_are_a_thousand_answers(server: Running) -> None:
    with Wire(server.address) as wire:
        wire.send(request("GET", "/api/v1/pop/queue/empty", None, "x-filling: " + "x" * 100) * 1000)
        answers = [wire.reply() for _ in range(1000)]
    assert [answer.status if answer else None for answer in answers] == [204] * 1000


def test_request_may_come_byte_by_byte(server: Running) -> None:
    with Wire(server.address) as wire:
        for at in request("POST", "/api/v1/push", body("slow but steady")):
            wire.send(bytes([at]))
        answer = wire.reply()
        assert answer is not None
        assert answer.status == 201
    assert pushed(server) == ["slow but steady"]


def test_body_may_come_in_chunks(server: Running) -> None:
    whole = body("chunked")
    with Wire(server.address) as wire:
        wire.send(request("POST", "/api/v1/push", None, "transfer-encoding: chunked"))
        for at in range(0, len(whole), 7):
            piece = whole[at : at + 7]
            wire.send(b"%x\r\n%b\r\n" % (len(piece), piece))
        wire.send(b"0\r\n\r\n")
        answer = wire.reply()
        assert answer is not None
        assert answer.status == 201
    assert pushed(server) == ["chunked"]


def test_body_may_wait_until_it_is_asked_for(server: Running) -> None:
    whole = body("expected")
    with Wire(server.address) as wire:
        wire.send(request("POST", "/api/v1/push", None, f"content-length: {len(whole)}", "expect: 100-continue"))
        answer = wire.reply()
        assert answer is not None
        assert answer.status == 100
        wire.send(whole)
        answer = wire.reply()
        assert answer is not None
        assert answer.status == 201


def test_client_may_ask_to_close(server: Running) -> None:
    with Wire(server.address) as wire:
        wire.send(request("POST", "/api/v1/push", body(1), "connection: close"))
        answer = wire.reply()
        assert answer is not None
        assert answer.status == 201
        assert wire.closed()


@pytest.mark.parametrize(
    "data",
    [
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
        b"\x00" * 100,
        b"GET\r\n\r\n",
        b"BREW /pot HTTP/1.1\r\nhost: localhost\r\n\r\n",
        b"GET /health HTTP/9.9\r\nhost: localhost\r\n\r\n",
        b"GET /health HTTP/1.1\r\nno colon\r\n\r\n",
        b"POST /api/v1/push HTTP/1.1\r\ncontent-length: -1\r\n\r\n",
        b"POST /api/v1/push HTTP/1.1\r\ncontent-length: 5\r\ncontent-length: 6\r\n\r\n",
        b"POST /api/v1/push HTTP/1.1\r\ntransfer-encoding: chunked\r\n\r\nzz\r\n",
    ],
    ids=["tls", "zeros", "no path", "method", "version", "header", "negative", "twice", "chunk"],
)
def test_bytes_that_are_no_http_get_400(server: Running, data: bytes) -> None:
    with Wire(server.address) as wire:
        wire.send(data)
        assert told(wire.reply(), 400, "bad_request")
        assert wire.closed()


def test_disconnect_in_mid_body_changes_nothing(server: Running) -> None:
    with Wire(server.address) as wire:
        wire.send(request("POST", "/api/v1/push", body(1))[:-3])
    assert pushed(server) == []


def test_poll_whose_client_hung_up_takes_nothing(server: Running) -> None:
    for _ in range(3):
        with Wire(server.address) as wire:
            wire.ask("GET", "/api/v1/pop/queue/q?wait=true&timeout=60000")
            with Wire(server.address) as other:
                other.ask("GET", "/livez")
                assert other.reply() is not None
    nobody_left(server)
    with Wire(server.address) as wire:
        wire.ask("POST", "/api/v1/push", body(1))
        assert wire.reply() is not None
        wire.ask("GET", "/api/v1/pop/queue/q?wait=true&timeout=20000")
        answer = wire.reply()
        assert answer is not None
        assert [message["deliveryAttempt"] for message in answer.json["messages"]] == [1]


def test_disconnect_after_pipelining_claims_nothing(server: Running) -> None:
    with Wire(server.address) as wire:
        wire.send(request("GET", "/api/v1/pop/queue/q?wait=true&timeout=60000", None) + request("GET", "/health", None))
        server.until_waiting()
    server.until_waiting(0)
    with Wire(server.address) as wire:
        wire.send(request("POST", "/api/v1/push", body("for somebody else")))
        assert wire.reply() is not None
    assert pushed(server) == ["for somebody else"]


def test_bodies_on_their_way_in_are_bounded_together(store_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(app, "IncomingBytes", lambda share, each: http_request.IncomingBytes(100_000, share))
    with Running(store_url) as server, Wire(server.address) as wire:
        wire.send(request("POST", "/api/v1/push", None, "content-length: 200000") + b"[" * 150_000)
        assert told(wire.reply(), 429, "overloaded")
        with Wire(server.address) as other:
            other.send(request("POST", "/api/v1/push", body("small")))
            answer = other.reply()
            assert answer is not None
            assert answer.status == 201


def test_bodies_of_one_address_leave_room_for_others(store_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(app, "IncomingBytes", lambda share, each: http_request.IncomingBytes(100_000, share))
    large = request("POST", "/api/v1/push", body("x" * 40_000))
    with (
        Running(store_url) as server,
        Wire(server.address) as first,
        Wire(server.address) as second,
        Wire(server.address, source="127.0.0.2") as other,
    ):
        first.send(large[:-1000])
        second.send(large[:-1000])
        refused = first if select.select([first.socket, second.socket], [], [], 20)[0] == [first.socket] else second
        assert told(refused.reply(), 429, "overloaded")
        other.send(large[:-1000])
        other.send(large[-1000:])
        answer = other.reply()
        assert answer is not None
        assert answer.status == 201


def test_large_body_has_to_keep_up(store_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_request, "BODY_PATIENCE", SHORT)
    with Running(store_url) as server, Wire(server.address) as wire:
        wire.send(request("POST", "/api/v1/push", None, "content-length: 200000") + b"[" * 1000)
        assert told(wire.reply(), 408, "body_too_slow")
