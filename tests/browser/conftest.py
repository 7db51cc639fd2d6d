"""A real Chromium, and a page of another origin that attacks the server."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, sync_playwright

from tests.server.running import Running
from tools import browser as chromium

FLAGS = (
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--host-resolver-rules=MAP evil.example 127.0.0.1",
)


@pytest.fixture(scope="module")
def chrome() -> Iterator[Browser]:
    """Not for the session: while Playwright runs, this thread has an event loop that stands in the way of others."""
    path = chromium.find()
    if path is None:
        if chromium.required():
            pytest.fail("BROWSER=1 is set, but there is no Chromium on the PATH")
        pytest.skip(chromium.NOT_RUN)
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, args=list(FLAGS))
        yield browser
        browser.close()


@pytest.fixture
def page(chrome: Browser) -> Iterator[Page]:
    context = chrome.new_context()
    context.set_default_timeout(20_000)
    yield context.new_page()
    context.close()


class _Blank(BaseHTTPRequestHandler):
    """A web site of an attacker: an empty page at every path."""

    def do_GET(self) -> None:
        body = b"<!doctype html><title>evil</title><body></body>"
        self.send_response(200)
        self.send_header("content-type", "text/html")
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        """Nothing is logged."""


@pytest.fixture(scope="session")
def other_site() -> Iterator[str]:
    """The origin of another web site on this machine."""
    with ThreadingHTTPServer(("127.0.0.1", 0), _Blank) as server:
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        yield f"http://127.0.0.1:{server.server_address[1]}"
        server.shutdown()
        thread.join()


@pytest.fixture
def store_url(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path}/browser.db?durability=normal"


@pytest.fixture
def server(store_url: str) -> Iterator[Running]:
    with Running(store_url) as made:
        yield made
