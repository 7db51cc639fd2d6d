"""Page Queues: list, filters, pages, and the form that creates a queue."""

from __future__ import annotations

import re

import msgspec

import ackwise
from ackwise.dashboard.pages import queues
from ackwise.dashboard.pages.queues import before_prefix
from tests.dashboard.site import Shown, Site

NASTY = '"><script>alert(1)</script>\u202egnp/a b%2f?#'
FORM = {
    "queue": "orders", "namespace": "shop", "lease_seconds": "45s", "retry_limit": "5", "delivery_limit": "auto",
    "retry_counting": "failures", "on_failure": "skip", "exclusivity": "partition", "order": "", "delay_seconds": "0",
    "window_seconds": "0", "max_payload_bytes": "1MiB", "expiry_counts": "on", "dead_letters": "on",
    "backoff.kind": "exponential", "backoff.seconds": "1s", "backoff.factor": "2", "backoff.cap": "5m",
    "backoff.jitter": "0.5", "backoff.delays": "", "max_wait_seconds": "", "completed_retention_seconds": "7d",
    "retention_seconds": "", "dedupe_seconds": "1h",
}  # fmt: skip


def names(shown: Shown) -> list[str]:
    return re.findall(r'dir="auto" href="[^"]*"><bdi>([^<]*)</bdi>', shown.source)


def test_empty_list_shows_the_command_to_push(site: Site, queue: ackwise.Connection) -> None:
    shown = site.get("/queues")
    assert "no queues yet" in shown.text
    assert f"ackwise message push orders &#39;{{&#34;order&#34;: 1}}&#39; --url {site.client.base_url}" in shown.source


def test_list_shows_depth_by_state(site: Site, queue: ackwise.Connection) -> None:
    queue.push_many("orders", range(1234))
    queue.claim("orders", max=4)
    text = site.get("/queues").text
    assert "orders 1,230 4 0 0 0" in text


def test_hostile_name_is_shown_as_text_with_a_working_link(site: Site, queue: ackwise.Connection) -> None:
    queue.create_queue(NASTY)
    shown = site.get("/queues")
    assert NASTY in shown.text.replace("  ", " ")
    (href,) = re.findall(r'dir="auto" href="/dashboard([^"]*)"', shown.source)
    page = site.get(href)
    assert page.status == 200
    assert "<script>alert" not in page.source
    assert NASTY in page.text


def test_names_of_dots_have_pages(site: Site, queue: ackwise.Connection) -> None:
    for name in (".", "..", "~", "a/..", "~.."):
        queue.create_queue(name)
    shown = site.get("/queues")
    for href in re.findall(r'dir="auto" href="/dashboard([^"]*)"', shown.source):
        assert site.get(href).status == 200, href
    assert len(names(shown)) == 5


def test_filters_select_by_prefix_namespace_and_task(site: Site, queue: ackwise.Connection) -> None:
    for name in ("ord", "order", "orders", "ore", "orc", "a"):
        queue.create_queue(name, namespace="shop" if name != "order" else None)
    assert names(site.get("/queues?prefix=ord")) == ["ord", "order", "orders"]
    assert names(site.get("/queues?prefix=ord&namespace=shop")) == ["ord", "orders"]
    assert "No queue matches" in site.get("/queues?prefix=zzz").text
    assert "No queue matches" in site.get("/queues?task=none").text


def test_pages_of_the_list_have_every_queue_once(site: Site, queue: ackwise.Connection) -> None:
    count = queues.PAGE_ROWS * 2 + 3
    for number in range(count):
        queue.create_queue(f"q{number:03}")
    found, path = [], "/queues?prefix=q"
    while path:
        shown = site.get(path)
        found += names(shown)
        following = re.findall(r'rel="next" href="/dashboard([^"]*)"', shown.source)
        path = following[0].replace("&amp;", "&") if following else ""
    assert found == [f"q{number:03}" for number in range(count)]


def test_form_creates_a_queue_with_its_policy(site: Site, queue: ackwise.Connection) -> None:
    shown = site.post("/new-queue", FORM)
    assert shown.url.endswith("/dashboard/queues/orders")
    assert "Created the queue orders." in shown.text
    info = queue.queue("orders")
    assert info.namespace == "shop"
    policy = info.policy
    assert (policy["lease_seconds"], policy["retry_limit"], policy["exclusivity"]) == (45.0, 5, "partition")
    assert (policy["dedupe_seconds"], policy["max_payload_bytes"], policy["max_wait_seconds"]) == (
        3600.0,
        1 << 20,
        None,
    )
    backoff = msgspec.convert(policy["backoff"], ackwise.Backoff)
    assert backoff == ackwise.Backoff(kind="exponential", seconds=1.0, cap=300.0, jitter=0.5)
    assert "Created the queue" not in site.get("/queues/orders").text


def test_wrong_field_keeps_the_input_and_creates_nothing(site: Site, queue: ackwise.Connection) -> None:
    shown = site.post("/new-queue", {**FORM, "lease_seconds": "soon", "retry_limit": "-1", "namespace": "<kept>"})
    assert shown.status == 400
    assert "Lease must be a duration such as 30s" in shown.text
    assert "Retry limit must be a whole number" in shown.text
    assert shown.values("namespace") == ["<kept>"]
    assert shown.values("lease_seconds") == ["soon"]
    assert queue.queues() == []


def test_range_that_the_engine_refuses_is_shown_at_its_field(site: Site, queue: ackwise.Connection) -> None:
    shown = site.post("/new-queue", {**FORM, "backoff.factor": "1000"})
    assert shown.status == 400
    assert 'id="hint-backoff.factor">backoff factor must be between 1 and 100' in shown.source
    assert queue.queues() == []


def test_name_that_exists_is_refused(site: Site, queue: ackwise.Connection) -> None:
    queue.create_queue("orders", retry_limit=1)
    shown = site.post("/new-queue", FORM)
    assert shown.status == 409
    assert "queue 'orders' exists already" in shown.text
    assert queue.queue("orders").policy["retry_limit"] == 1


def test_text_before_a_prefix_sorts_directly_before_it() -> None:
    for prefix in ("a", "ord", "\ue000", "\u0001", "x\u0001", "\U0001f600"):
        before = before_prefix(prefix)
        assert before < prefix
        assert before.encode() < prefix.encode()
    assert before_prefix("") == ""
