"""Guard: who may change something through the dashboard."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest

import ackwise
from ackwise.dashboard.guard import COOKIE, TOKEN_FIELD, token_of
from tests.dashboard.site import Site
from tests.server.running import Running


@pytest.fixture
def read_only(store_url: str) -> Iterator[tuple[Site, ackwise.Connection]]:
    with Running(store_url, read_only_dashboard=True) as server, ackwise.connect(server.url) as queue:
        site = Site(server.url)
        yield site, queue
        site.close()


def paused(queue: ackwise.Connection) -> bool:
    return queue.queue("orders").paused


def test_form_without_a_token_is_refused(site: Site, queue: ackwise.Connection) -> None:
    queue.create_queue("orders")
    for token in ("", "0" * 64, "é"):
        shown = site.post("/queues/orders/pause", {TOKEN_FIELD: token})
        assert shown.status == 403
        assert "open the page again" in shown.text
    assert not paused(queue)


def test_token_of_another_browser_is_refused(site: Site, server: Running, queue: ackwise.Connection) -> None:
    queue.create_queue("orders")
    other = Site(server.url)
    token = other.token()
    other.close()
    assert site.post("/queues/orders/pause", {TOKEN_FIELD: token}).status == 403
    site.client.cookies.clear()
    reply = site.client.post("/dashboard/queues/orders/pause", data={TOKEN_FIELD: token})
    assert reply.status_code == 403
    assert not paused(queue)


@pytest.mark.parametrize(
    "headers",
    [
        {"origin": "https://evil.example"},
        {"origin": "null"},
        {"origin": "http://127.0.0.1:1"},
        {"sec-fetch-site": "cross-site"},
        {"sec-fetch-site": "same-site"},
    ],
    ids=lambda headers: str(*headers.values()),
)
def test_form_of_a_foreign_page_is_refused(site: Site, queue: ackwise.Connection, headers: dict[str, str]) -> None:
    queue.create_queue("orders")
    assert site.post("/queues/orders/pause", {}, **headers).status == 403
    assert not paused(queue)


def test_form_of_the_own_origin_is_accepted(site: Site, server: Running, queue: ackwise.Connection) -> None:
    queue.create_queue("orders")
    headers = {"origin": server.url, "sec-fetch-site": "same-origin"}
    assert site.post("/queues/orders/pause", {}, **headers).status == 200
    assert paused(queue)


def test_foreign_link_opens_pages_and_nothing_else(site: Site, queue: ackwise.Connection) -> None:
    queue.create_queue("orders")
    link = {"sec-fetch-site": "cross-site", "sec-fetch-mode": "navigate", "sec-fetch-dest": "document"}
    for path in ("/", "/queues", "/queues/orders", "/queues/orders/delete"):
        assert site.get(path, **link).status == 200, path
    for path in ("/live?topics=queues", "/static/dashboard.js", "/nowhere"):
        assert site.get(path, **link).status == 403, path
    assert site.post("/queues/orders/pause", {}, **link).status == 403
    frame = {**link, "sec-fetch-dest": "iframe"}
    assert site.get("/queues", **frame).status == 403


def test_cookie_is_hidden_from_scripts_and_other_sites(site: Site) -> None:
    cookie = site.get("/").headers["set-cookie"]
    assert cookie.startswith(f"{COOKIE}=")
    assert "HttpOnly" in cookie
    assert "SameSite=lax" in cookie
    assert "set-cookie" not in site.get("/queues").headers


def test_cookie_of_the_wrong_form_is_replaced(site: Site) -> None:
    site.client.cookies.set(COOKIE, "short")
    assert COOKIE in site.get("/").headers["set-cookie"]


def test_read_only_dashboard_shows_no_forms(read_only: tuple[Site, ackwise.Connection]) -> None:
    site, queue = read_only
    queue.push("orders", 1)
    queue.claim("orders")
    for path in ("/", "/queues", "/queues/orders", "/settings"):
        shown = site.get(path)
        assert shown.status == 200
        assert 'method="post"' not in shown.source
        assert "read-only" in shown.text
        for word in ("Delete", "Purge", "Pause", "Release", "Create queue"):
            assert word not in shown.text.split("Keyboard shortcuts")[0], path


def test_read_only_dashboard_refuses_every_change(read_only: tuple[Site, ackwise.Connection]) -> None:
    site, queue = read_only
    queue.create_queue("orders")
    forms = ("/new-queue", "/queues/orders/edit", "/queues/orders/purge", "/queues/orders/delete")
    for path in forms:
        assert site.get(path).status == 403, path
    site.client.cookies.set(COOKIE, "a" * 32)
    for path in (*forms, "/queues/orders/pause", "/leases/L1-12345678/release"):
        data = {TOKEN_FIELD: token_of("a" * 32), "typed": "orders", "queue": "new"}
        reply = site.client.post(f"/dashboard{path}", data=data)
        assert reply.status_code == 403, path
        assert "read-only" in reply.text
    assert [info.name for info in queue.queues()] == ["orders"]
    assert not paused(queue)


def test_form_in_another_encoding_is_refused(site: Site, queue: ackwise.Connection) -> None:
    queue.create_queue("orders")
    reply = site.client.post("/dashboard/queues/orders/pause", json={TOKEN_FIELD: site.token()})
    assert reply.status_code == 400
    assert not paused(queue)


def test_large_form_is_refused(site: Site, queue: ackwise.Connection) -> None:
    queue.create_queue("orders")
    assert site.post("/queues/orders/pause", {"more": "x" * (3 << 20)}).status == 400
    many = {f"f{number}": "x" for number in range(2100)}
    assert site.post("/queues/orders/pause", many).status == 400
    assert not paused(queue)


def test_policy_of_the_page_allows_no_inline_code(site: Site, queue: ackwise.Connection) -> None:
    queue.push("orders", 1)
    for path in ("/", "/queues", "/queues/orders", "/new-queue", "/settings", "/nowhere"):
        shown = site.get(path)
        policy = shown.headers["content-security-policy"]
        assert "default-src 'none'" in policy
        assert "unsafe" not in policy
        assert not re.search(r"<style|\sstyle=|<script>|\son\w+=|javascript:", shown.source), path
        assert shown.headers["cache-control"] == "no-store"


def test_answer_at_the_root_has_the_same_headers(site: Site, server: Running) -> None:
    root, page = site.client.get("/"), site.client.get("/dashboard/")
    assert root.headers["content-security-policy"] == page.headers["content-security-policy"]
    assert root.headers["content-type"].startswith("text/html")
    assert "Accept" in root.headers["vary"]
    json = site.client.get("/", headers={"accept": "application/json"})
    assert json.json()["server"] == "ackwise"
