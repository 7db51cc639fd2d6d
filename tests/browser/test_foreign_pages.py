"""Web pages in a real Chromium: those of another origin change nothing and read nothing."""

from __future__ import annotations

import json
from typing import Any
from urllib.request import Request, urlopen

import pytest
from playwright.sync_api import Page

from tests.patience import PATIENCE
from tests.server.running import Running

FETCH = """async ([url, options]) => {
    try {
        const answer = await fetch(url, options)
        return [answer.type, answer.status, await answer.text()]
    } catch (problem) {
        return ["error", 0, String(problem)]
    }
}"""
IMAGE = """url => new Promise(done => {
    const image = new Image()
    image.onload = image.onerror = () => done(true)
    image.src = url
})"""
SOCKET = """url => new Promise(done => {
    const socket = new WebSocket(url)
    socket.onopen = () => { socket.close(); done("open") }
    socket.onerror = () => done("refused")
})"""
FORM = """([url, target]) => new Promise(done => {
    const frame = document.createElement("iframe")
    frame.name = target
    const form = document.createElement("form")
    Object.assign(form, {method: "post", action: url, enctype: "text/plain", target})
    const field = document.createElement("input")
    field.name = '{"items":[{"queue":"orders","payload":"form"}],"x":"'
    field.value = '"}'
    form.append(field)
    document.body.append(frame, form)
    frame.onload = () => done(true)
    form.submit()
})"""


def call(server: Running, method: str, path: str, body: object = None) -> Any:
    """The answer to a program outside of the browser."""
    request = Request(server.url + path, json.dumps(body).encode() if body is not None else None, method=method)  # noqa: S310
    with urlopen(request, timeout=PATIENCE) as answer:  # noqa: S310
        return json.loads(answer.read() or b"null")


def push(server: Running, *payloads: object) -> None:
    call(server, "POST", "/api/v1/push", {"items": [{"queue": "orders", "payload": payload} for payload in payloads]})


def stored(server: Running) -> list[Any]:
    """The payloads of `orders` that are there, in order."""
    rows = call(server, "GET", "/v1/tables/messages?queue=orders")["rows"]
    return [row["payload"] for row in rows]


def unread(server: Running) -> list[Any]:
    handed = call(server, "POST", "/v1/claim", {"queue": "orders", "max": 100})
    return [message["payload"] for message in handed["messages"]]


@pytest.fixture
def evil(page: Page, other_site: str) -> Page:
    page.goto(other_site)
    return page


def test_text_push_of_a_foreign_page_stores_nothing(evil: Page, server: Running) -> None:
    push(server, "good")
    body = '{"items":[{"queue":"orders","payload":"evil"}]}'
    for mode in ("no-cors", "cors"):
        options = {"method": "POST", "mode": mode, "body": body, "headers": {"content-type": "text/plain"}}
        kind, _, text = evil.evaluate(FETCH, [server.url + "/api/v1/push", options])
        assert kind in ("opaque", "error"), text
    assert stored(server) == ["good"]


def test_form_of_a_foreign_page_stores_nothing(evil: Page, server: Running) -> None:
    push(server, "good")
    assert evil.evaluate(FORM, [server.url + "/api/v1/push", "hole"])
    assert stored(server) == ["good"]


def test_image_of_a_foreign_page_pops_nothing(evil: Page, server: Running) -> None:
    push(server, 1, 2)
    for path in ("/api/v1/pop/queue/orders?autoAck=true&batch=2", "/queue/orders/pop"):
        assert evil.evaluate(IMAGE, server.url + path)
    assert unread(server) == [1, 2]


def test_mew_of_a_foreign_page_does_nothing(evil: Page, server: Running) -> None:
    call(server, "POST", "/mew", {"text": "node T { n: String }"})
    options = {"method": "POST", "mode": "no-cors", "body": '{"text":"SPAWN t: T { n = \\"evil\\" }"}'}
    evil.evaluate(FETCH, [server.url + "/mew", options])
    lines = call(server, "POST", "/mew", {"text": "MATCH t: T RETURN t.n"})["lines"]
    assert [line["rows"] for line in lines if line["kind"] == "result"] == [[]], lines
    assert evil.evaluate(SOCKET, server.url.replace("http", "ws") + "/mew/events?session=s") == "refused"


def test_link_of_a_foreign_page_opens_pages_only(evil: Page, server: Running, other_site: str) -> None:
    push(server, 1)
    evil.set_content(f"<a id=home href='{server.url}/'>home</a>")
    evil.click("#home")
    evil.wait_for_url(server.url + "/")
    assert evil.inner_text("h1") == "Overview"
    evil.goto(other_site)
    evil.set_content(f"<a id=pop href='{server.url}/api/v1/pop/queue/orders?autoAck=true'>pop</a>")
    with evil.expect_response("**/pop/queue/orders*") as answer:
        evil.click("#pop")
    assert answer.value.status == 403
    assert unread(server) == [1]


def test_rebound_name_reaches_nothing(page: Page, server: Running) -> None:
    push(server, 1)
    port = server.address[1]
    answer = page.goto(f"http://evil.example:{port}/")
    assert answer is not None
    assert (answer.status, answer.json()["code"]) == (403, "forbidden_host")
    options = {"method": "DELETE"}
    url = f"http://evil.example:{port}/api/v1/resources/queues/orders"
    assert page.evaluate(FETCH, [url, options])[1] == 403
    assert stored(server) == [1]


def test_own_page_may_push_and_listen(page: Page, server: Running) -> None:
    page.goto(server.url)
    options = {"method": "POST", "body": '{"items":[{"queue":"orders","payload":"own"}]}'}
    # The page's own policy allows no connections, so a blank page of the same origin runs the scripts.
    page.goto(server.url + "/health")
    assert page.evaluate(FETCH, [server.url + "/api/v1/push", options])[1] == 201
    assert stored(server) == ["own"]
    assert page.evaluate(SOCKET, server.url.replace("http", "ws") + "/mew/events?session=s") == "open"


def test_cors_page_may_push_and_read(evil: Page, store_url: str, other_site: str) -> None:
    with Running(store_url, cors=("https://app.example.org", other_site)) as server:
        options = {
            "method": "POST",
            "body": '{"items":[{"queue":"orders","payload":"friend"}]}',
            "headers": {"content-type": "application/json"},
        }
        kind, status, text = evil.evaluate(FETCH, [server.url + "/api/v1/push", options])
        assert (kind, status) == ("cors", 201), text
        assert stored(server) == ["friend"]
        assert evil.evaluate(SOCKET, server.url.replace("http", "ws") + "/mew/events?session=s") == "open"
