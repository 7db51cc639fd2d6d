"""Recent pop requests: the routes parse a repeated request once and remember a bounded number."""

from __future__ import annotations

from collections.abc import MutableMapping
from typing import Any, cast

import pytest

from ackwise.broker import AsyncBroker
from ackwise.protocols.http_request import Call
from ackwise.protocols.queen import MaintenanceWatch, pop
from ackwise.protocols.queen.vocabulary import QueenContext


async def _no_message() -> MutableMapping[str, Any]:
    raise AssertionError("a pop has no body")


def call(number: int, query: str = "consumerGroup=g") -> Call:
    queue = f"q{number}"
    scope = {"raw_path": f"/api/v1/pop/queue/{queue}".encode(), "query_string": query.encode(), "headers": []}
    return Call(scope, _no_message, (queue,), 0)


def target(request: Call) -> tuple[bytes, bytes]:
    return request.scope["raw_path"], request.scope["query_string"]


@pytest.fixture
def routes() -> pop.PopRoutes:
    broker = cast(AsyncBroker, None)
    return pop.PopRoutes(broker, QueenContext(MaintenanceWatch(broker)))


def test_request_with_a_known_target_is_remembered(routes: pop.PopRoutes) -> None:
    parsed = routes._read(call(1), target(call(1)))
    assert routes._recent[target(call(1))] is parsed
    assert (parsed.claim.queue, parsed.claim.group) == ("q1", "g")


def test_remembered_requests_are_bounded(routes: pop.PopRoutes, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pop, "MOST_REMEMBERED", 3)
    for number in range(10):
        routes._read(call(number), target(call(number)))
        assert len(routes._recent) <= 3


def test_long_request_is_not_remembered(routes: pop.PopRoutes) -> None:
    long = call(1, "consumerGroup=" + "g" * pop.LONGEST_REMEMBERED)
    assert routes._read(long, target(long)).claim.group.startswith("gg")
    assert not routes._recent
