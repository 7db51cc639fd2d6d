"""The dashboard over HTTP, as a browser without a script uses it."""

from __future__ import annotations

import html
import re
from html.parser import HTMLParser
from typing import Any

import httpx2

from ackwise.dashboard.guard import TOKEN_FIELD
from tests.patience import PATIENCE

_TOKEN = re.compile(rf'name="{TOKEN_FIELD}" value="([0-9a-f]+)"')
_VOID = frozenset({"area", "base", "br", "col", "hr", "img", "input", "link", "meta", "source"})


class _Words(HTMLParser):
    """The text of a page, and the tags that are not closed."""

    def __init__(self) -> None:
        super().__init__()
        self.words: list[str] = []
        self.open: list[str] = []
        self.wrong: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag not in _VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        if not self.open or self.open.pop() != tag:
            self.wrong.append(tag)

    def handle_data(self, data: str) -> None:
        self.words += data.split()


class Shown:
    """An answer of the dashboard."""

    def __init__(self, reply: httpx2.Response) -> None:
        self.status = reply.status_code
        self.headers = reply.headers
        self.source = reply.text
        self.url = str(reply.url)

    @property
    def text(self) -> str:
        """The words of the page, one space between two. Fails if the page has a tag that is not closed."""
        words = _Words()
        words.feed(self.source)
        assert (words.open, words.wrong) == ([], []), self.url
        return " ".join(words.words)

    def values(self, field: str) -> list[str]:
        """The values of the inputs with a name."""
        found = re.findall(rf'<input[^>]*name="{re.escape(field)}"[^>]*value="([^"]*)"', self.source)
        return [html.unescape(value) for value in found]


class Site:
    """A browser session on the dashboard of a server."""

    def __init__(self, base: str, root: str = "/dashboard", client: httpx2.Client | None = None) -> None:
        headers = {"accept": "text/html"}
        self.client = client or httpx2.Client(
            base_url=base, headers=headers, timeout=PATIENCE, follow_redirects=True, trust_env=False
        )
        self._root = root

    def get(self, path: str = "/", **headers: str) -> Shown:
        return Shown(self.client.get(self._root + path, headers=headers))

    def token(self, path: str = "/new-queue") -> str:
        """A token from a form of the page."""
        found = _TOKEN.search(self.get(path).source)
        assert found is not None, f"{path} has no form"
        return found[1]

    def post(self, path: str, fields: dict[str, Any] | None = None, **headers: str) -> Shown:
        """Send a form with a valid token, and follow the redirect."""
        data = {TOKEN_FIELD: self.token(), **(fields or {})}
        return Shown(self.client.post(self._root + path, data=data, headers=headers))

    def close(self) -> None:
        self.client.close()
