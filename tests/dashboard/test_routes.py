"""Routes of the pages: names in paths, unknown paths, methods, static files."""

from __future__ import annotations

import re

import pytest
from starlette.responses import Response

import ackwise
from ackwise.core.errors import BadInput
from ackwise.core.events import RequestServed
from ackwise.dashboard import static_files
from ackwise.dashboard.app import Dashboard, page_path
from ackwise.dashboard.request import PageRequest
from ackwise.dashboard.routes import PageTable, RouteMatch, decode, encode, get, post
from tests.dashboard.site import Site
from tests.event_log import EventLog
from tests.server.running import Running

NAMES = ["orders", "a/b", "a b", "%2F", "?x=1&y", "#", ".", "..", "~", "~~a", "é\u202e\U0001f600", "\"<&>'", "x" * 255]


async def _page(page: PageRequest) -> Response:
    return Response()


@pytest.mark.parametrize("name", NAMES)
def test_every_name_returns_from_its_segment(name: str) -> None:
    segment = encode(name)
    assert "/" not in segment
    assert segment.isascii()
    assert segment not in (".", "..")
    assert decode(segment) == name


def test_segment_of_invalid_text_is_bad_input() -> None:
    with pytest.raises(BadInput, match="not valid UTF-8"):
        decode("%ff")


def test_route_is_found_by_method_and_path() -> None:
    table = PageTable([get("/", _page), get("/queues/{queue}", _page), post("/queues/{queue}/pause", _page)])
    match = table.find("GET", "/queues/a%2Fpause")
    assert isinstance(match, RouteMatch)
    assert match.params == {"queue": "a/pause"}
    assert isinstance(table.find("GET", ""), RouteMatch)
    assert isinstance(table.find("POST", "/queues/a/pause"), RouteMatch)
    assert table.find("POST", "/queues/a") == frozenset({"GET"})
    assert table.find("GET", "/queues/a/pause") == frozenset({"POST"})
    assert table.find("GET", "/nowhere") == frozenset()


@pytest.mark.parametrize(
    ("root", "path", "below"),
    [
        ("", "/queues/a%2Fb", "/queues/a%2Fb"),
        ("/dashboard", "/dashboard/queues", "/queues"),
        ("/dashboard", "/dashboard", "/"),
        ("/my tools", "/my%20tools/queues/x", "/queues/x"),
        ("/dashboard", "/queues", "/queues"),
    ],
)
def test_path_below_the_mount_stays_encoded(root: str, path: str, below: str) -> None:
    assert page_path({"root_path": root, "raw_path": path.encode(), "path": path}) == below


def test_unknown_page_is_a_page_with_status_404(site: Site) -> None:
    shown = site.get("/nowhere")
    assert shown.status == 404
    assert "The dashboard has no such page." in shown.text


def test_wrong_method_names_the_allowed_ones(site: Site) -> None:
    reply = site.client.delete("/dashboard/queues")
    assert (reply.status_code, reply.headers["allow"]) == (405, "GET")


def test_block_gets_no_navigation(site: Site) -> None:
    shown = site.get("/settings", **{"hx-request": "true"})
    assert "<nav" not in shown.source
    assert "<h1>Settings</h1>" in shown.source
    assert shown.headers["vary"] == "HX-Request"


def test_static_file_of_this_version_is_kept_by_browsers(site: Site) -> None:
    page = site.get("/").source
    for url in re.findall(r'(?:src|href)="(/dashboard/static/[^"]+)"', page):
        reply = site.client.get(url)
        assert reply.status_code == 200, url
        assert "immutable" in reply.headers["cache-control"], url
        assert reply.headers["x-content-type-options"] == "nosniff"
    assert site.client.get("/dashboard/static/dashboard.css").headers["cache-control"] == "no-cache"


@pytest.mark.parametrize("name", ["", "nothing.css", "../app.py", "..%2Fapp.py", "%2e%2e/app.py", "htmx/LICENSE"])
def test_other_files_are_not_served(site: Site, name: str) -> None:
    assert site.client.get(f"/dashboard/static/{name}").status_code == 404


def test_files_of_htmx_are_installed_and_small() -> None:
    files = static_files.StaticFiles()
    assert files.live, "the files of htmx are missing; run make venv"
    assert len(files.contents["dashboard.js"]) + len(files.contents["theme.js"]) < 20_000
    assert sum(map(len, files.contents.values())) < 150_000


def test_page_without_htmx_says_that_it_does_not_update(
    site: Site, server: Running, queue: ackwise.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    queue.push("orders", 1)
    monkeypatch.setattr(server.server.runtime.dashboard.files, "live", False)
    shown = site.get("/queues/orders")
    assert shown.status == 200
    assert "does not update itself" in shown.text
    assert "htmx-2.min.js" not in shown.source
    assert "hx-" not in shown.source


def test_first_load_is_below_200_kilobytes(site: Site, queue: ackwise.Connection) -> None:
    queue.push_many("orders", range(100))
    page = site.get("/queues/orders").source
    files = sum(
        len(site.client.get(url).content) for url in re.findall(r'(?:src|href)="(/dashboard/static/[^"]+)"', page)
    )
    assert files + len(page) < 200_000


def test_event_of_a_page_has_its_route_and_no_name(server: Running, site: Site, queue: ackwise.Connection) -> None:
    queue.create_queue("secret-name")
    with EventLog(server.server.runtime.broker().events) as events:
        site.get("/queues/secret-name")
        site.get("/nowhere/secret-name")
        events.wait_for(RequestServed, 2)
    assert [event.route for event in events.of(RequestServed)] == ["/dashboard/queues/{queue}", "unknown"]


def test_every_template_compiles() -> None:
    templates = Dashboard(lambda: None).templates  # type: ignore[arg-type,return-value]
    names = templates.list_templates()
    assert len(names) > 5
    for name in names:
        templates.get_template(name)
