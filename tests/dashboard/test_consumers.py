"""The page of consumers, and the names that complete a field."""

from __future__ import annotations

import ackwise
from tests.dashboard.hostile import HOSTILE
from tests.dashboard.site import Site


def test_consumers_page_shows_what_each_holds(site: Site, queue: ackwise.Connection) -> None:
    for number in range(4):
        queue.push("orders", number)
    queue.claim("orders", group="billing", max=3, owner="worker-1", lease=3600)
    queue.claim("orders", group="mail", max=1, owner=HOSTILE, lease=3600).ack()
    shown = site.get("/consumers")
    assert "worker-1 orders billing working" in shown.text
    assert "idle" in shown.text
    assert "<img" not in shown.source
    assert "#leases" in shown.source
    assert "worker-1" not in site.get("/consumers?group=mail").text
    assert site.get("/consumers?queue=nope").status == 200
    assert site.get("/consumers?after=nonsense").status == 400


def test_consumers_page_of_an_empty_store_says_what_to_do(site: Site) -> None:
    assert "No consumer holds a lease" in site.get("/consumers").text


def test_names_complete_the_begin_of_a_queue(site: Site, queue: ackwise.Connection) -> None:
    for name in ("orders", "orders-eu", "mail", HOSTILE):
        queue.create_queue(name)
    assert site.get("/names/queues?queue=ord").source.count("<option") == 2
    assert "orders-eu" in site.get("/names/queues?queue=orders").source
    assert "<img" not in site.get("/names/queues").source
    assert site.get("/names/queues?queue=" + "x" * 300).status == 400


def test_names_complete_the_begin_of_a_group(site: Site, queue: ackwise.Connection) -> None:
    queue.create_queue("orders")
    for name in ("billing", "books", "mail"):
        queue.create_group("orders", name)
    assert site.get("/names/groups?group=b").source.count("<option") == 2
