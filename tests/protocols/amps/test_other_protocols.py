"""One queue serves every protocol: publish over AMPS, consume over another API, and the reverse."""

from __future__ import annotations

import json

import httpx2
import pytest

import ackwise
from tests.protocols.amps.conftest import Meet
from tests.protocols.amps.peer import share
from tests.server.running import Running


@pytest.fixture
def store_url(any_store: str) -> str:
    return any_store


def test_message_published_by_amps_is_claimed_over_http(meet: Meet, http: ackwise.Connection) -> None:
    meet().publish("queue://orders", b'{"i":0}', b"\xff\x00", b"")
    with http.claim("orders", max=3) as batch:
        assert [one.payload for one in batch] == [b'{"i":0}', b"\xff\x00", b""]


def test_message_pushed_over_http_is_delivered_by_amps(meet: Meet, http: ackwise.Connection) -> None:
    peer = meet()
    peer.subscribe("queue://orders", 5)
    http.push("orders", {"i": 1}, partition="eu", headers={"a": "b"})
    http.push("orders", b"\xff", partition="us")
    found = peer.deliveries(2)
    assert [one.body for one in found] == [b'{"i":1}', b"\xff"]
    assert peer.ack("queue://orders", *(one["bm"] for one in found)) == 2
    assert [group.lag for group in http.groups("orders")] == [0]


def test_payload_that_is_not_json_is_shown_as_base64(meet: Meet, server: Running) -> None:
    meet().publish("queue://orders", b'{"i":0}', b"\xff\x00", b"not json")
    answer = httpx2.get(f"{server.url}/api/v1/pop/queue/orders?batch=3")
    shown = [message["data"] for message in json.loads(answer.content)["messages"]]
    assert shown == [{"i": 0}, {"$base64": "/wA="}, {"$base64": "bm90IGpzb24="}]


def test_queue_of_queens_is_exclusive_by_partition_here_too(meet: Meet, server: Running) -> None:
    items = [{"queue": "orders", "payload": number, "partition": "p"} for number in range(4)]
    assert httpx2.post(f"{server.url}/api/v1/push", json={"items": items}).status_code == 201
    one, other = meet(), meet()
    one.subscribe("queue://orders", 2)
    held = one.deliveries(2)
    other.subscribe("queue://orders", 2)
    assert other.nothing_comes()
    assert one.ack("queue://orders", *(d["bm"] for d in held)) == 2
    shares: list[list[str]] = [[], []]
    while sum(map(len, shares)) < 2:
        shares = [mine + share(peer) for mine, peer in zip(shares, (one, other), strict=True)]
    assert sorted(shares) == [[], ["2", "3"]], "one of them has the partition, and nobody else"
