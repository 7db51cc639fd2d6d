"""The form that pushes one message."""

from __future__ import annotations

import ackwise
from tests.dashboard.hostile import HOSTILE
from tests.dashboard.site import Site


def test_push_form_stores_a_message_with_all_options(site: Site, queue: ackwise.Connection) -> None:
    queue.create_queue("orders")
    shown = site.post("/messages/push", {
        "queue": "orders", "payload": '{"id": 1}', "kind": "json", "headers": f"trace: abc\nname: {HOSTILE}",
        "partition": "p/1", "priority": "3", "delay": "", "transaction_id": "tx-1",
    })  # fmt: skip
    assert "Message stored." in shown.text
    (message,) = queue.browse("orders")
    assert (message.payload, message.partition, message.priority) == (b'{"id": 1}', "p/1", 3)
    assert (message.transaction_id, message.headers) == ("tx-1", {"trace": "abc", "name": HOSTILE})


def test_push_of_text_creates_the_queue_if_asked(site: Site, queue: ackwise.Connection) -> None:
    fields = {"queue": "new", "payload": "plain & text", "kind": "text"}
    refused = site.post("/messages/push", fields)
    assert refused.status == 404
    assert "plain &amp; text" in refused.source
    site.post("/messages/push", {**fields, "create": "1"})
    (message,) = queue.browse("new")
    assert (message.payload, message.content_type) == (b"plain & text", "text/plain")


def test_repeated_push_says_that_nothing_was_pushed(site: Site, queue: ackwise.Connection) -> None:
    queue.create_queue("orders")
    fields = {"queue": "orders", "payload": "1", "kind": "json", "transaction_id": "t"}
    site.post("/messages/push", fields)
    assert "Nothing was pushed" in site.post("/messages/push", fields).text
    assert len(queue.browse("orders")) == 1


def test_delayed_push_shows_when_the_message_is_due(site: Site, queue: ackwise.Connection) -> None:
    queue.create_queue("orders")
    shown = site.post("/messages/push", {"queue": "orders", "payload": "1", "kind": "json", "delay": "3600"})
    assert "scheduled" in shown.text
    assert "in 1 h" in shown.text or "in 60 min" in shown.text


WRONG = [
    ({"payload": "{"}, "not JSON"),
    ({"payload": ""}, "empty"),
    ({"queue": "x" * 256}, "longer than 255"),
    ({"queue": ""}, "must not be empty"),
    ({"queue": "nope"}, "nope"),
    ({"kind": "xml"}, "json or text"),
    ({"headers": "no colon"}, "name: value"),
    ({"headers": "a: 1\na: 2"}, "twice"),
    ({"headers": "\n".join(f"h{n}: 1" for n in range(101))}, "101"),
    ({"headers": "a: " + "x" * 70_000}, "headers"),
    ({"priority": "1.5"}, "priority"),
    ({"priority": "99999999999"}, "priority"),
    ({"delay": "nan"}, "delay"),
    ({"delay": "soon"}, "delay"),
    ({"transaction_id": "x" * 513}, "transaction_id"),
    ({"partition": "x" * 256}, "partition"),
]


def test_wrong_push_keeps_the_input_and_changes_nothing(site: Site, queue: ackwise.Connection) -> None:
    queue.create_queue("orders")
    kept = {"queue": "orders", "payload": '{"kept": "input"}', "kind": "json", "partition": "kept-part"}
    for change, told in WRONG:
        shown = site.post("/messages/push", kept | change)
        assert shown.status in (400, 404), change
        assert told in shown.text, change
        assert "payload" in change or "kept&#34;: &#34;input" in shown.source, change
        assert "partition" in change or shown.values("partition") == ["kept-part"], change
    assert queue.browse("orders") == []
    assert [info.name for info in queue.queues()] == ["orders"]
