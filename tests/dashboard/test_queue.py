"""Page of one queue: its numbers, its leases and its changes."""

from __future__ import annotations

import re
from typing import Any

import msgspec
import pytest

import ackwise
from ackwise.core.errors import UnknownQueue
from ackwise.core.policy import QueuePolicy
from ackwise.dashboard.policy_form import FIELDS
from tests.dashboard.site import Site


def form_of(site: Site, path: str) -> dict[str, Any]:
    """The fields of the edit form as a browser would send them."""
    source = site.get(path).source
    fields: dict[str, Any] = {"version": re.findall(r'name="version" value="([^"]*)"', source)[0]}
    for name in (*FIELDS, "namespace", "task"):
        found = re.search(rf'<input[^>]*name="{re.escape(name)}"[^>]*>', source)
        if found is None:
            chosen = re.search(rf'name="{re.escape(name)}".*?</select>', source, re.DOTALL)
            assert chosen is not None, name
            fields[name] = re.findall(r'value="([^"]*)" selected', chosen[0])[0]
        elif 'type="checkbox"' in found[0]:
            if "checked" in found[0]:
                fields[name] = "on"
        else:
            fields[name] = re.findall(r'value="([^"]*)"', found[0])[0]
    return fields


def test_page_shows_states_groups_leases_and_partitions(site: Site, queue: ackwise.Connection) -> None:
    queue.push_many("orders", range(10), partition="north")
    queue.claim("orders", group="billing", max=3, owner="worker <1>")
    shown = site.get("/queues/orders")
    text = shown.text
    assert "billing 10 7 3 0 0 0 1" in text
    assert "worker <1>" in text
    assert "<1>" not in shown.source
    assert "north 10 7 3 0 0 0" in text
    assert "Extend 60 s Release" in text


def test_unknown_queue_is_not_found(site: Site) -> None:
    shown = site.get("/queues/nowhere")
    assert shown.status == 404
    assert "nowhere" in shown.text


def test_edit_form_sends_back_the_same_policy(site: Site, queue: ackwise.Connection) -> None:
    queue.create_queue("orders", lease_seconds=1.5, retry_limit=None, max_wait_seconds=90, delivery_limit=7)
    before = queue.queue("orders").policy
    shown = site.post("/queues/orders/edit", form_of(site, "/queues/orders/edit"))
    assert "Saved the policy of orders." in shown.text
    after = queue.queue("orders").policy
    assert msgspec.convert(after, QueuePolicy) == msgspec.convert(before, QueuePolicy)


def test_edit_changes_one_field(site: Site, queue: ackwise.Connection) -> None:
    queue.create_queue("orders")
    site.post("/queues/orders/edit", {**form_of(site, "/queues/orders/edit"), "lease_seconds": "2m"})
    assert queue.queue("orders").policy["lease_seconds"] == 120.0


def test_edit_of_an_old_version_shows_the_stored_values(site: Site, queue: ackwise.Connection) -> None:
    queue.create_queue("orders", retry_limit=3)
    fields = {**form_of(site, "/queues/orders/edit"), "lease_seconds": "2m"}
    queue.configure_queue("orders", retry_limit=9)
    shown = site.post("/queues/orders/edit", fields)
    assert shown.status == 412
    assert "Another change reached this queue first" in shown.text
    assert "Stored now: 9" in shown.text
    assert shown.values("lease_seconds") == ["2m"]
    assert queue.queue("orders").policy["lease_seconds"] != 120.0
    again = {**fields, "version": shown.values("version")[0]}
    assert site.post("/queues/orders/edit", again).status == 200
    assert queue.queue("orders").policy["retry_limit"] == 3


def test_pause_and_resume_change_the_queue(site: Site, queue: ackwise.Connection) -> None:
    queue.create_queue("orders")
    assert "paused" in site.post("/queues/orders/pause").text
    assert queue.queue("orders").paused
    site.post("/queues/orders/resume")
    assert not queue.queue("orders").paused


@pytest.mark.parametrize("typed", ["", "Orders", "orders2"])
def test_delete_with_a_wrong_name_changes_nothing(site: Site, queue: ackwise.Connection, typed: str) -> None:
    queue.push("orders", 1)
    shown = site.post("/queues/orders/delete", {"typed": typed})
    assert shown.status == 400
    assert "not the name of the queue" in shown.text
    assert queue.stats("orders").messages == 1


def test_delete_names_what_is_lost_and_deletes(site: Site, queue: ackwise.Connection) -> None:
    queue.push_many("orders", range(3))
    asked = site.get("/queues/orders/delete").text
    assert "3 stored messages" in asked
    assert "Type orders to confirm" in asked
    assert "Deleted the queue orders." in site.post("/queues/orders/delete", {"typed": "orders"}).text
    with pytest.raises(UnknownQueue):
        queue.queue("orders")


def test_purge_removes_what_the_page_counted(site: Site, queue: ackwise.Connection) -> None:
    queue.push_many("orders", range(5))
    asked = site.get("/queues/orders/purge")
    assert "5 stored messages" in asked.text
    until = asked.values("until")[0]
    assert site.post("/queues/orders/purge", {"typed": "no", "until": until}).status == 400
    assert queue.stats("orders").messages == 5
    shown = site.post("/queues/orders/purge", {"typed": "orders", "until": until})
    assert "Removed 5 stored messages and 0 scheduled messages of orders." in shown.text
    assert queue.stats("orders").messages == 0


def test_purge_without_a_time_is_refused(site: Site, queue: ackwise.Connection) -> None:
    queue.push("orders", 1)
    for until in ("", "now", "-1", "\u0661"):
        assert site.post("/queues/orders/purge", {"typed": "orders", "until": until}).status == 400
    assert queue.stats("orders").messages == 1


def test_lease_is_extended_from_the_page(site: Site, queue: ackwise.Connection) -> None:
    queue.push("orders", 1)
    batch = queue.claim("orders", lease=30)
    before = queue.leases("orders")[0].deadline
    shown = site.post(f"/leases/{batch.lease_id}/extend", {"for": "10m"})
    assert f"Lease {batch.lease_id} ends at" in shown.text
    assert (queue.leases("orders")[0].deadline - before).total_seconds() > 500


def test_extension_never_shortens_a_lease(site: Site, queue: ackwise.Connection) -> None:
    queue.push("orders", 1)
    batch = queue.claim("orders", lease=1800)
    before = queue.leases("orders")[0].deadline
    assert site.post(f"/leases/{batch.lease_id}/extend").status == 200
    assert (queue.leases("orders")[0].deadline - before).total_seconds() == pytest.approx(60, abs=1)


@pytest.mark.parametrize("length", ["0s", "forever", "2d", "-1"])
def test_extension_by_a_wrong_time_is_refused(site: Site, queue: ackwise.Connection, length: str) -> None:
    queue.push("orders", 1)
    batch = queue.claim("orders", lease=30)
    before = queue.leases("orders")[0].deadline
    assert site.post(f"/leases/{batch.lease_id}/extend", {"for": length}).status == 400
    assert queue.leases("orders")[0].deadline == before


def test_lease_is_released_after_a_question(site: Site, queue: ackwise.Connection) -> None:
    queue.push_many("orders", range(2))
    batch = queue.claim("orders", max=2, owner="worker-1")
    asked = site.get(f"/leases/{batch.lease_id}/release").text
    assert "gets back 2 messages" in asked
    assert "worker-1" in asked
    shown = site.post(f"/leases/{batch.lease_id}/release")
    assert "Released 2 messages" in shown.text
    assert queue.leases("orders") == []
    assert site.post(f"/leases/{batch.lease_id}/release").status == 409


def test_unknown_lease_is_not_found(site: Site) -> None:
    assert site.get("/leases/L1-12345678/release").status == 404
    assert site.get("/leases/nonsense/release").status in (400, 404)


def test_wrong_place_of_a_lease_is_bad_input(site: Site, queue: ackwise.Connection) -> None:
    queue.create_queue("orders")
    assert site.get("/queues/orders?lease_after=x").status == 400
