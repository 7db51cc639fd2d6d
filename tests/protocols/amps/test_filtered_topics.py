"""Filters of plain topics: one payload is decoded once, and no filter holds the event loop."""

from __future__ import annotations

import json
import threading

import pytest

from ackwise.core import filters
from ackwise.core.filters import ContentFilter, Document
from ackwise.protocols.amps import filter_counts
from tests.protocols.amps.conftest import Meet
from tests.protocols.amps.peer import share

COSTLY = " OR ".join(["/n = 1", *["/a = 1"] * 120])


def payload(number: int, values: int = 0) -> bytes:
    return json.dumps({"n": number, "a": [2] * values}).encode()


def test_topic_filter_that_is_too_costly_is_logged_once(meet: Meet, caplog: pytest.LogCaptureFixture) -> None:
    costly, other, publisher = meet(), meet(), meet()
    costly.subscribe("topic", None, filter=COSTLY)
    other.subscribe("topic", None, filter="/n >= 0")
    publisher.publish("topic", payload(0, 10_000), payload(2, 10_000), payload(1))
    assert [json.loads(frame.body)["n"] for frame in costly.deliveries(1)] == [1]
    assert [json.loads(frame.body)["n"] for frame in other.deliveries(3)] == [0, 2, 1]
    messages = [record.getMessage() for record in caplog.records if "too many values" in record.getMessage()]
    assert len(messages) == 1
    assert messages[0].startswith("topic topic: ")


def test_topic_filters_visit_little_on_the_event_loop(meet: Meet, monkeypatch: pytest.MonkeyPatch) -> None:
    """Many costly filters of many clients: the loop makes few visits, and a helper thread makes the others."""
    visits: dict[str, int] = {}
    visit = Document.visit

    def count(self: Document, number: int) -> None:
        visit(self, number)
        name = threading.current_thread().name
        visits[name] = visits.get(name, 0) + number

    monkeypatch.setattr(Document, "visit", count)
    peer, publisher = meet(), meet()
    for number in range(20):
        text = " OR ".join([f"/n = {100 + number}", *["/a = 1"] * 30, "/n = 1"])
        peer.subscribe("topic", None, str(number), filter=text)
    for body, matches in ((payload(1, 300), 20), (payload(1, 20_000), 0)):
        visits.clear()
        publisher.publish("topic", body)
        assert len(share(peer)) == matches
        assert visits.pop("server", 0) <= 10_000
        assert sum(visits.values()) > 0


def test_payload_is_decoded_once_for_all_filters(meet: Meet, monkeypatch: pytest.MonkeyPatch) -> None:
    decoded: list[bytes] = []
    decode = filters._decode

    def count(body: bytes) -> object:
        decoded.append(body)
        return decode(body)

    monkeypatch.setattr(filters, "_decode", count)
    peer, publisher = meet(), meet()
    for number in range(5):
        peer.subscribe("topic", None, str(number), filter=f"/n >= {number}")
    publisher.publish("topic", payload(2), payload(9, 40_000))
    assert len(share(peer)) == 3 + 5
    assert len(decoded) == 2


def test_filters_with_the_same_text_share_a_judgement(meet: Meet, monkeypatch: pytest.MonkeyPatch) -> None:
    judged: list[str] = []
    takes = ContentFilter.takes

    def count(self: ContentFilter, *rest: object) -> bool | None:
        judged.append(self.text)
        return takes(self, *rest)  # type: ignore[arg-type]

    monkeypatch.setattr(ContentFilter, "takes", count)
    peers, publisher = [meet() for _ in range(3)], meet()
    for peer in peers:
        peer.subscribe("topic", None, filter="/n > 1")
    publisher.publish("topic", payload(2))
    assert [len(share(peer)) for peer in peers] == [1, 1, 1]
    assert judged == ["/n > 1"]


def test_large_and_small_messages_of_a_publisher_keep_order(meet: Meet) -> None:
    peer, publisher = meet(), meet()
    peer.subscribe("topic", None, filter="/n >= 0")
    publisher.publish("topic", *(payload(number, 20_000 if number % 2 else 0) for number in range(8)))
    assert [json.loads(body)["n"] for body in share(peer)] == list(range(8))


def test_address_with_too_many_filters_is_refused(meet: Meet, monkeypatch: pytest.MonkeyPatch) -> None:
    """Equal filters count once. A subscription that ends makes room, and so does a client that disconnects."""
    monkeypatch.setattr(filter_counts, "MOST_FILTERS", 2)
    one, other = meet(), meet()
    one.subscribe("topic", None, "1", filter="/n = 1")
    one.subscribe("topic", None, "2", filter="/n = 1")
    other.subscribe("queue://q", None, "1", filter="/n = 2")
    asked = {"c": "subscribe", "cid": "3", "a": "processed", "t": "topic", "filter": "/n = 3"}
    (refused,) = one.ask(asked)
    assert refused.outcome == ("processed", "failure")
    assert "at most 2 different filters" in refused["reason"]
    other.goodbye()
    (accepted,) = one.ask(asked)
    assert accepted.outcome == ("processed", "success")
    one.ask({"c": "unsubscribe", "cid": "u", "a": "processed", "sub_id": "all"})
    one.subscribe("topic", None, "4", filter="/n = 4")
