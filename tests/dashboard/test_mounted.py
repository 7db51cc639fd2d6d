"""Dashboard in an application of the user."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable

import httpx2
import pytest
from starlette.applications import Starlette
from starlette.routing import Mount

import ackwise
from ackwise.connect import open_store
from ackwise.core.errors import BadStoreURL, StoreUnavailable
from ackwise.dashboard.guard import TOKEN_FIELD
from ackwise.dashboard.mounted import MountedDashboard

_TOKEN = re.compile(rf'name="{TOKEN_FIELD}" value="([0-9a-f]+)"')
Work = Callable[[httpx2.AsyncClient], Awaitable[None]]


def run(url: str, work: Work, *, path: str = "/queues", read_only: bool = False) -> None:
    """Run a test on an application that has the dashboard below a path."""

    async def inner() -> None:
        dashboard = ackwise.dashboard_app(url, read_only=read_only)
        app = Starlette(routes=[Mount(path, dashboard)])
        transport = httpx2.ASGITransport(app)
        async with httpx2.AsyncClient(transport=transport, base_url="https://shop.example") as client:
            try:
                await work(client)
            finally:
                await dashboard.aclose()

    asyncio.run(inner())


@pytest.fixture
def filled(store_url: str) -> str:
    with ackwise.connect(store_url) as queue:
        queue.push_many("a/b c", range(3))
    return store_url


async def token(client: httpx2.AsyncClient, path: str) -> str:
    found = _TOKEN.search((await client.get(path)).text)
    assert found is not None
    return found[1]


@pytest.mark.parametrize("path", ["/queues", "/tools/my queues", "/dashboard"])
def test_links_begin_with_the_path_of_the_mount(filled: str, path: str) -> None:
    shown = path.replace(" ", "%20")

    async def work(client: httpx2.AsyncClient) -> None:
        page = await client.get(f"{shown}/")
        assert page.status_code == 200
        links = set(re.findall(r'(?:href|src|action|hx-get)="([^"#]+)"', page.text)) - {"data:,"}
        assert all(link.startswith(f"{shown}/") for link in links), links
        for link in links:
            if "/static/" in link or link.endswith(("/", "/queues", "/settings")):
                assert (await client.get(link)).status_code == 200, link
        names = await client.get(f"{shown}/queues")
        assert f'href="{shown}/queues/a%2Fb%20c"' in names.text
        assert (await client.get(f"{shown}/queues/a%2Fb%20c")).status_code == 200

    run(filled, work, path=path)


def test_form_with_a_token_changes_the_store(filled: str) -> None:
    async def work(client: httpx2.AsyncClient) -> None:
        page = "/queues/queues/a%2Fb%20c"
        data = {TOKEN_FIELD: await token(client, page)}
        reply = await client.post(f"{page}/pause", data=data, headers={"origin": "https://shop.example"})
        assert (reply.status_code, reply.headers["location"]) == (303, page)
        assert "Paused" in (await client.get(page)).text

    run(filled, work)
    with ackwise.connect(filled) as queue:
        assert queue.queue("a/b c").paused


def test_form_of_a_foreign_origin_is_refused(filled: str) -> None:
    async def work(client: httpx2.AsyncClient) -> None:
        page = "/queues/queues/a%2Fb%20c"
        data = {TOKEN_FIELD: await token(client, page)}
        for headers in (
            {"origin": "https://evil.example"},
            {"origin": "https://shop.example.evil.example"},
            {"origin": "null"},
            {"sec-fetch-site": "same-site", "origin": "https://shop.example"},
            {"origin": "https://shop.example:8443"},
        ):
            assert (await client.post(f"{page}/pause", data=data, headers=headers)).status_code == 403, headers
        assert (await client.post(f"{page}/pause", data={"other": "x"})).status_code == 403

    run(filled, work)
    with ackwise.connect(filled) as queue:
        assert not queue.queue("a/b c").paused


def test_origin_with_the_default_port_is_the_own_origin(filled: str) -> None:
    async def work(client: httpx2.AsyncClient) -> None:
        page = "/queues/queues/a%2Fb%20c"
        data = {TOKEN_FIELD: await token(client, page)}
        headers = {"origin": "https://shop.example:443"}
        assert (await client.post(f"{page}/pause", data=data, headers=headers)).status_code == 303

    run(filled, work)


def test_read_only_mount_refuses_changes(filled: str) -> None:
    async def work(client: httpx2.AsyncClient) -> None:
        page = await client.get("/queues/queues/a%2Fb%20c")
        assert 'method="post"' not in page.text
        reply = await client.post("/queues/queues/a%2Fb%20c/pause", data={TOKEN_FIELD: "x"})
        assert reply.status_code == 403

    run(filled, work, read_only=True)


def test_cookie_is_limited_to_the_mount(filled: str) -> None:
    async def work(client: httpx2.AsyncClient) -> None:
        cookie = (await client.get("/queues/")).headers["set-cookie"]
        assert "Path=/queues/" in cookie
        assert "Secure" in cookie

    run(filled, work)


def test_first_requests_open_one_store(filled: str) -> None:
    opened = []

    async def inner() -> None:
        def open_once() -> object:
            opened.append(1)
            return open_store(filled)

        dashboard = MountedDashboard(open_once)  # type: ignore[arg-type]
        transport = httpx2.ASGITransport(dashboard)
        async with httpx2.AsyncClient(transport=transport, base_url="http://localhost") as client:
            pages = await asyncio.gather(*(client.get("/settings") for _ in range(10)))
            assert {page.status_code for page in pages} == {200}
        await dashboard.aclose()

    asyncio.run(inner())
    assert opened == [1]


def test_store_that_cannot_be_opened_is_tried_again(store_url: str) -> None:
    async def inner() -> None:
        tries = 0

        def open_second_time() -> object:
            nonlocal tries
            tries += 1
            if tries == 1:
                raise StoreUnavailable("the database is down")
            return open_store(store_url)

        dashboard = MountedDashboard(open_second_time)  # type: ignore[arg-type]
        transport = httpx2.ASGITransport(dashboard)
        async with httpx2.AsyncClient(transport=transport, base_url="http://localhost") as client:
            down = await client.get("/")
            assert down.status_code == 503
            assert "the database is down" in down.text
            assert (await client.get("/")).status_code == 200
        await dashboard.aclose()
        assert tries == 2

    asyncio.run(inner())


def test_lifespan_opens_and_closes_the_store(store_url: str) -> None:
    async def inner() -> None:
        dashboard = ackwise.dashboard_app(store_url)
        sent: list[str] = []
        steps = asyncio.Queue[dict[str, str]]()
        steps.put_nowait({"type": "lifespan.startup"})

        async def send(message: object) -> None:
            sent.append(message["type"])  # type: ignore[index]
            steps.put_nowait({"type": "lifespan.shutdown"})

        await dashboard({"type": "lifespan"}, steps.get, send)
        assert sent == ["lifespan.startup.complete", "lifespan.shutdown.complete"]

    asyncio.run(inner())


def test_url_of_a_server_is_refused() -> None:
    with pytest.raises(BadStoreURL, match="URL of a server"):
        ackwise.dashboard_app("http://localhost:6632")
