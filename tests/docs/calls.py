"""HTTP calls as a page shows them: each is made, and its answer compared with what the page says.

A block holds requests, each followed by an empty line, the status, and the answer. Ids and times stand for whatever
comes in their place, the same each time; `"…"` stands for anything.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any, NamedTuple

import httpx2

BLOCK = re.compile(r"^```http\n(.*?)^```$", re.MULTILINE | re.DOTALL)
MADE_UP = re.compile(
    r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}|L[0-9a-z]+-[0-9a-f]{8}(\.\w+)*|\d{4}-\d\d-\d\dT[\d:.]+Z"
)
ANYTHING = "…"


class Call(NamedTuple):
    method: str
    path: str
    body: str
    status: int
    answer: Any


def calls(page: str) -> Iterator[Call]:
    for block in BLOCK.finditer(page):
        parts = block[1].strip().split("\n\n")
        for asked, answered in zip(parts[::2], parts[1::2], strict=True):
            head, _, body = asked.partition("\n")
            status, _, answer = answered.partition("\n")
            method, path = head.split()
            yield Call(method, path, body, int(status), json.loads(answer))


class Reader:
    """Makes the calls of one page, in order."""

    def __init__(self, http: httpx2.Client) -> None:
        self._http = http
        self._real: dict[str, str] = {}

    def make(self, call: Call) -> None:
        body = MADE_UP.sub(lambda found: self._real.get(found[0], found[0]), call.body)
        answer = self._http.request(call.method, call.path, content=body.encode())
        assert answer.status_code == call.status, answer.text
        self._compare(call.answer, answer.json(), f"{call.method} {call.path}")

    def _compare(self, shown: Any, real: Any, where: str) -> None:
        if shown == ANYTHING:
            return
        if isinstance(shown, str) and MADE_UP.fullmatch(shown):
            assert MADE_UP.fullmatch(real), f"{where}: {real}"
            assert self._real.setdefault(shown, real) == real, f"{where}: {shown} was {self._real[shown]} before"
        elif isinstance(shown, dict):
            assert list(shown) == list(real), f"{where}: {list(real)}"
            for key, value in shown.items():
                self._compare(value, real[key], f"{where} {key}")
        elif isinstance(shown, list):
            assert len(shown) == len(real), f"{where}: {real}"
            for number, value in enumerate(shown):
                self._compare(value, real[number], f"{where} {number}")
        else:
            assert shown == real, where
