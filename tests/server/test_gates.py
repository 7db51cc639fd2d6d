"""The gate in front of every route: Hosts, Origins, malformed heads."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from ackwise.core.errors import BadInput
from ackwise.server.settings import Settings
from tests.server.running import Running
from tests.server.wire import Reply, Wire

PUSH = b'{"items":[{"queue":"q","payload":1}]}'
FACES = (
    ("GET", "/api/v1/pop/queue/q?autoAck=true"),
    ("DELETE", "/api/v1/resources/queues/q"),
    ("GET", "/api/v1/resources/queues"),
    ("POST", "/v1/claim"),
    ("GET", "/v1/tables/messages?queue=q"),
    ("GET", "/queue/q/pop"),
    ("POST", "/mew"),
    ("GET", "/"),
    ("GET", "/nowhere"),
)
OPEN = ("/health", "/livez", "/readyz")


@pytest.fixture
def store_url(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path}/gates.db?durability=normal"


@pytest.fixture
def server(store_url: str) -> Iterator[Running]:
    with Running(store_url, cors=("https://app.example.org",), allowed_hosts=("queue.lan", "*.example.org")) as made:
        push(made)
        yield made


def ask(server: Running, method: str, path: str, *headers: str, host: str | None = None, body: bytes = b"") -> Reply:
    named = f"host: {host or '{}:{}'.format(*server.address)}"
    lines = [f"{method} {path} HTTP/1.1", *([named] if host != "" else []), *headers, f"content-length: {len(body)}"]
    with Wire(server.address) as wire:
        wire.send("\r\n".join([*lines, "", ""]).encode("latin-1") + body)
        answer = wire.reply()
    assert answer is not None
    return answer


def push(server: Running, *headers: str, host: str | None = None) -> Reply:
    return ask(server, "POST", "/api/v1/push", *headers, host=host, body=PUSH)


def depth(server: Running) -> int:
    return len(ask(server, "GET", "/v1/tables/messages?queue=q").json["rows"])


# hosts


@pytest.mark.parametrize(("method", "path"), FACES)
def test_foreign_host_is_refused_on_every_face(server: Running, method: str, path: str) -> None:
    answer = ask(server, method, path, host="evil.example")
    assert answer.status == 403
    assert "--allowed-host evil.example" in answer.body.decode()
    assert depth(server) == 1


@pytest.mark.parametrize(
    "host",
    [
        "localhost",
        "LOCALHOST:1",
        "x.localhost",
        "127.0.0.1",
        "10.1.2.3:80",
        "[::1]:6632",
        "queue.lan",
        "a.b.example.org.",
    ],
)
def test_known_host_is_answered(server: Running, host: str) -> None:
    assert push(server, host=host).status == 201


@pytest.mark.parametrize(
    "host", ["example.org", "queue.lan.evil", "a@localhost", "localhost:x", "127.0.0.1.evil", "[x]"]
)
def test_odd_host_is_refused(server: Running, host: str) -> None:
    assert push(server, host=host).json["code"] == "forbidden_host"
    assert depth(server) == 1


@pytest.mark.parametrize("path", OPEN)
def test_health_answers_under_any_host_and_origin(server: Running, path: str) -> None:
    headers = ("origin: https://evil.example", "sec-fetch-site: cross-site")
    assert ask(server, "GET", path, *headers, host="evil.example").status == 200
    assert ask(server, "GET", path, host="").status == 200


def test_missing_host_is_refused(server: Running) -> None:
    assert push(server, host="").status == 400
    assert depth(server) == 1


def test_repeated_host_is_refused_and_closes(server: Running) -> None:
    with Wire(server.address) as wire:
        wire.send(b"GET /livez HTTP/1.1\r\nhost: localhost\r\nhost: localhost\r\n\r\n")
        answer = wire.reply()
        assert answer is not None
        assert (answer.status, answer.json["code"]) == (400, "bad_request")
        assert wire.closed()


@pytest.mark.parametrize("line", [b"GET /livez\r\n\r\n", b"GET /livez HTTP/0.9\r\n\r\n"])
def test_http_0_9_is_refused_and_closes(server: Running, line: bytes) -> None:
    with Wire(server.address) as wire:
        wire.send(line)
        answer = wire.reply()
        assert answer is not None
        assert answer.status == 400
        assert wire.closed()


# targets that name a host


@pytest.mark.parametrize("path", [*OPEN, "/api/v1/resources/queues", "/api/v1/pop/queue/q?autoAck=true", "/nowhere"])
def test_target_of_another_host_is_refused(server: Running, path: str) -> None:
    for target in ("http://evil.example", "http://localhost:81", "http://localhost@evil.example", "ftp://localhost"):
        answer = ask(server, "GET", target + path, host="localhost")
        assert (answer.status, answer.json["code"]) == (400, "bad_request")
    assert ask(server, "GET", f"http://localhost{path}", host="").status == 400
    assert depth(server) == 1


@pytest.mark.parametrize("target", ["http://localhost", "HTTP://LOCALHOST:80", "http://localhost."])
def test_target_of_the_same_host_is_answered(server: Running, target: str) -> None:
    for path in ("/livez", "/api/v1/resources/queues"):
        assert ask(server, "GET", target + path, host="localhost").status == 200
    assert ask(server, "GET", "http://evil.example/v1/tables/queues", host="evil.example").status == 403


def test_target_of_another_host_closes(server: Running) -> None:
    with Wire(server.address) as wire:
        wire.send(b"GET http://evil.example/livez HTTP/1.1\r\nhost: localhost\r\n\r\n")
        answer = wire.reply()
        assert answer is not None
        assert answer.status == 400
        assert wire.closed()


def test_websocket_target_with_a_host_is_refused(server: Running) -> None:
    upgrade = (
        "connection: Upgrade",
        "upgrade: websocket",
        "sec-websocket-version: 13",
        "sec-websocket-key: dGhlIHNhbXBsZSBub25jZQ==",
    )
    target = "http://evil.example/mew/events?session=s"
    assert ask(server, "GET", target, *upgrade, host="localhost").status == 400


# origins


@pytest.mark.parametrize(("method", "path"), FACES)
@pytest.mark.parametrize(
    "header",
    ["sec-fetch-site: cross-site", "sec-fetch-site: same-site", "origin: https://evil.example", "origin: null"],
)
def test_foreign_page_is_refused_on_every_face(server: Running, method: str, path: str, header: str) -> None:
    assert ask(server, method, path, header).status == 403
    assert depth(server) == 1


@pytest.mark.parametrize("site", ["none", "same-origin"])
def test_own_page_is_answered(server: Running, site: str) -> None:
    own = "http://{}:{}".format(*server.address)
    assert push(server, f"sec-fetch-site: {site}").status == 201
    assert push(server, f"sec-fetch-site: {site}", f"origin: {own}").status == 201


def test_origin_behind_a_tls_proxy_is_own(server: Running) -> None:
    assert push(server, "origin: https://queue.lan", host="queue.lan").status == 201
    assert push(server, "origin: https://queue.lan:444", host="queue.lan").json["code"] == "forbidden_origin"


def test_cors_origin_is_answered_with_its_headers(server: Running) -> None:
    origin = "https://app.example.org"
    answer = push(server, f"origin: {origin}", "sec-fetch-site: cross-site")
    assert answer.status == 201
    assert answer.headers["access-control-allow-origin"] == origin
    assert answer.headers["vary"] == "Origin"
    preflight = ask(server, "OPTIONS", "/api/v1/push", f"origin: {origin}", "access-control-request-method: POST")
    assert preflight.status == 204
    assert preflight.headers["access-control-allow-origin"] == origin
    assert "Content-Type" in preflight.headers["access-control-allow-headers"]
    assert "access-control-allow-origin" not in push(server).headers


def test_preflight_of_a_foreign_origin_is_refused(server: Running) -> None:
    answer = ask(server, "OPTIONS", "/api/v1/push", "origin: https://evil.example")
    assert answer.status == 403
    assert "access-control-allow-origin" not in answer.headers


def test_two_origins_are_foreign(server: Running) -> None:
    assert push(server, "origin: https://app.example.org", "origin: https://app.example.org").status == 403


def test_navigation_reaches_pages_and_never_a_pop(server: Running) -> None:
    navigation = ("sec-fetch-site: cross-site", "sec-fetch-mode: navigate", "sec-fetch-dest: document")
    page = ask(server, "GET", "/", *navigation, "accept: text/html")
    assert page.status == 200
    assert page.headers["content-type"].startswith("text/html")
    assert ask(server, "GET", "/api/v1/pop/queue/q?autoAck=true", *navigation).status == 403
    assert ask(server, "GET", "/api/v1/resources/queues", *navigation).status == 403
    for origin in ("http://evil.example", "null"):
        assert ask(server, "GET", "/", *navigation, f"origin: {origin}").status == 403
    framed = ("sec-fetch-site: cross-site", "sec-fetch-mode: navigate", "sec-fetch-dest: iframe")
    assert ask(server, "GET", "/", *framed).status == 403
    assert depth(server) == 1


def test_websocket_of_a_foreign_origin_is_refused(server: Running) -> None:
    upgrade = (
        "connection: Upgrade",
        "upgrade: websocket",
        "sec-websocket-version: 13",
        "sec-websocket-key: dGhlIHNhbXBsZSBub25jZQ==",
    )
    assert ask(server, "GET", "/mew/events?session=s", *upgrade, "origin: https://evil.example").status == 403
    assert ask(server, "GET", "/mew/events?session=s", *upgrade, host="evil.example").status == 403
    assert ask(server, "GET", "/mew/events?session=s", *upgrade).status == 101


def test_origin_null_gets_no_useless_advice(server: Running) -> None:
    assert "--cors" not in push(server, "origin: null").json["error"]
    assert "--allowed-host" not in push(server, host="a@localhost").json["error"]


def test_very_long_host_is_refused(server: Running) -> None:
    assert push(server, host="x." * 10_000 + "localhost").json["code"] == "forbidden_host"


def test_cors_origin_with_its_default_port_is_known(store_url: str) -> None:
    with Running(store_url, cors=("https://app.example.org:443",)) as server:
        assert push(server, "origin: https://app.example.org", "sec-fetch-site: cross-site").status == 201


def test_websocket_message_that_inflates_is_refused(server: Running) -> None:
    """The server offers no compression, and closes a socket that sends more than a little."""
    with Wire(server.address) as wire:
        lines = ["GET /mew/events?session=s HTTP/1.1", "host: localhost", "connection: Upgrade", "upgrade: websocket"]
        lines += ["sec-websocket-version: 13", "sec-websocket-key: dGhlIHNhbXBsZSBub25jZQ=="]
        lines += ["sec-websocket-extensions: permessage-deflate", "", ""]
        wire.send("\r\n".join(lines).encode())
        answer = wire.reply()
        assert answer is not None
        assert answer.status == 101
        assert "sec-websocket-extensions" not in answer.headers
        wire.send(b"\x82\xfe" + (60_000).to_bytes(2, "big") + b"\0" * 4 + b"x" * 60_000)
        assert wire.socket.recv(2)[0] == 0x88  # a close frame


# settings


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"cors": ("*",)}, "--insecure"),
        ({"cors": ("app.example.org",)}, "is not an origin"),
        ({"cors": ("https://app.example.org/path",)}, "is not an origin"),
        ({"allowed_hosts": ("*",)}, "--insecure"),
        ({"allowed_hosts": ("queue.lan:80",)}, "is not a host name"),
        ({"peer_share": 0.0}, "--peer-share"),
        ({"peer_share": 1.5}, "--peer-share"),
    ],
)
def test_bad_settings_are_refused_with_advice(settings: dict[str, object], said: str) -> None:
    with pytest.raises(BadInput, match=said):
        Settings(**settings).check()  # type: ignore[arg-type]


def test_any_origin_with_insecure_is_answered(store_url: str) -> None:
    with Running(store_url, cors=("*",), insecure=True) as server:
        answer = push(server, "origin: https://any.example", "sec-fetch-site: cross-site")
        assert answer.status == 201
        assert answer.headers["access-control-allow-origin"] == "*"
