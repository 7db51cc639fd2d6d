"""What goes in, and how it comes out again."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

import ackwise
from ackwise import Item, errors
from ackwise.clock import ManualClock
from ackwise.wire.timestamps import moment


@dataclass
class Order:
    id: int
    total: float


@pytest.mark.parametrize(
    ("payload", "stored", "content_type"),
    [
        (b"\x00\xff", b"\x00\xff", "application/octet-stream"),
        (bytearray(b"ab"), b"ab", "application/octet-stream"),
        (memoryview(b"ab"), b"ab", "application/octet-stream"),
        ({"id": 1}, b'{"id":1}', "application/json"),
        ([1, 2], b"[1,2]", "application/json"),
        ("text", b'"text"', "application/json"),
        (1.5, b"1.5", "application/json"),
        (2**70, b"1180591620717411303424", "application/json"),
        (None, b"null", "application/json"),
        (Order(1, 2.5), b'{"id":1,"total":2.5}', "application/json"),
    ],
)
def test_payloads_are_bytes_or_json(queue: ackwise.Connection, payload: Any, stored: bytes, content_type: str) -> None:
    queue.push("q", payload)
    (delivery,) = queue.claim("q")
    assert (delivery.payload, delivery.content_type) == (stored, content_type)


def test_content_type_goes_with_bytes_and_makes_text_plain(queue: ackwise.Connection) -> None:
    queue.push_many("q", [Item(payload=b"<a/>", content_type="text/xml"), Item(payload="é", content_type="text/plain")])
    assert [(d.payload, d.content_type) for d in queue.claim("q", max=2)] == [
        (b"<a/>", "text/xml"),
        ("é".encode(), "text/plain"),
    ]


@pytest.mark.parametrize(
    "payload", [object(), {"a": float("nan")}, [[float("inf")]], float("nan"), "\ud800", {("a",): 1}]
)
def test_push_of_a_value_that_is_no_json_is_refused(queue: ackwise.Connection, payload: Any) -> None:
    with pytest.raises(errors.BadInput, match="JSON"):
        queue.push("q", payload)
    assert queue.queues() == []


def test_delivery_tells_all_about_its_message(queue: ackwise.Connection, clock: ManualClock) -> None:
    receipt = queue.push("shop.orders", {"id": 7}, partition="eu", priority=2, transaction_id="t-7", headers={"a": "b"})
    (delivery,) = queue.claim("shop.orders", group="billing", lease=10)
    assert delivery.json() == {"id": 7}
    assert delivery.json(dict[str, int]) == {"id": 7}
    assert (delivery.queue, delivery.partition, delivery.priority) == ("shop.orders", "eu", 2)
    assert (delivery.group, delivery.seq, delivery.headers) == ("billing", 0, {"a": "b"})
    assert (delivery.message_id, delivery.transaction_id) == (receipt.message_id, "t-7")
    assert delivery.partition_id == receipt.partition_id
    assert (delivery.attempt, delivery.failures, delivery.verdict) == (1, 0, None)
    assert delivery.created_at == moment(clock.now())
    assert delivery.deadline == moment(clock.now()) + timedelta(seconds=10)
    assert delivery.id.startswith(delivery.lease_id)


def test_repeated_transaction_id_is_duplicate_of_first_id(queue: ackwise.Connection) -> None:
    first = queue.push("q", 1, transaction_id="t")
    again = queue.push("q", 2, transaction_id="t")
    assert (first.status, again.status, again.message_id) == ("queued", "duplicate", first.message_id)


def test_delayed_message_waits(queue: ackwise.Connection, clock: ManualClock) -> None:
    assert queue.push("q", 1, delay=timedelta(seconds=5)).status == "scheduled"
    assert queue.push("q", 2, delay=0.5).status == "scheduled"
    assert not queue.claim("q", max=5)
    clock.advance(5)
    assert {d.json() for d in queue.claim("q", max=5)} == {1, 2}


def test_push_many_takes_payloads_and_items_alike(queue: ackwise.Connection) -> None:
    receipts = queue.push_many("q", [1, Item(payload=2, partition="b", priority=3), {"c": 3}], partition="a")
    assert [(r.partition, r.seq) for r in receipts] == [("a", 0), ("b", 0), ("a", 1)]
    assert sorted(d.priority for d in queue.claim("q", max=3)) == [0, 0, 3]


@pytest.mark.parametrize(
    "arguments",
    [
        {"delay": -1},
        {"delay": float("nan")},
        {"delay": 10**30},
        {"delay": "5"},
        {"partition": ""},
        {"partition": "a\0b"},
        {"partition": "x" * 256},
        {"partition": "\ud800"},
        {"partition": 5},
        {"partition": object()},
        {"priority": -1},
        {"priority": 2**40},
        {"priority": 2**70},
        {"transaction_id": ""},
        {"transaction_id": "\ud800"},
        {"headers": {"a": 1}},
        {"headers": {"a": "\ud800"}},
    ],
)
def test_bad_input_changes_nothing(queue: ackwise.Connection, arguments: dict[str, Any]) -> None:
    with pytest.raises(errors.BadInput):
        queue.push("q", 1, **arguments)
    assert queue.queues() == []


def test_payload_over_the_limit_is_refused(queue: ackwise.Connection) -> None:
    queue.create_queue("q", max_payload_bytes=10)
    with pytest.raises(errors.PayloadTooLarge):
        queue.push("q", b"x" * 11)
    assert queue.stats("q").messages == 0


def test_instants_need_a_timezone(queue: ackwise.Connection) -> None:
    queue.push("q", 1)
    with pytest.raises(errors.BadInput, match="timezone"):
        queue.claim("q", group="g", start=datetime(2030, 1, 1))
    assert queue.claim("q", group="g", start=datetime(2000, 1, 1, tzinfo=UTC))
