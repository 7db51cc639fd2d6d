"""Pages of groups: lag, partitions, seek with a preview, delete."""

from __future__ import annotations

from urllib.parse import quote

import pytest

import ackwise
from ackwise.core.errors import LeaseLost
from ackwise.core.queries import ListGroups
from tests.dashboard.hostile import HOSTILE
from tests.dashboard.site import Site
from tests.server.running import Running


def claimed(queue: ackwise.Connection, name: str, count: int, group: str | None = None) -> ackwise.Batch:
    return queue.claim(name, group=group, max=count, owner="worker-1", lease=3600)


def lag(queue: ackwise.Connection, name: str, group: str) -> tuple[int, int]:
    (row,) = queue.transport.ask(ListGroups(queue=name, group=group))
    return row.lag, row.held


def test_groups_page_lists_lag_state_and_members(site: Site, queue: ackwise.Connection) -> None:
    for number in range(5):
        queue.push("orders", number)
    batch = claimed(queue, "orders", 2, "billing")
    claimed(queue, "orders", 5, "mail").ack()
    text = site.get("/groups").text
    assert "billing orders working 5 2 3" in text
    assert "worker-1" in text
    assert "mail orders caught up 0 0 0" in text
    assert "/groups/orders/billing" not in site.get("/groups?group=mail").source
    assert site.get("/groups?queue=nope").status == 404
    batch.release()


def test_groups_page_of_an_empty_store_says_what_to_do(site: Site) -> None:
    assert "No queue has a group" in site.get("/groups").text


def test_group_with_claimable_messages_and_no_consumer_says_so(site: Site, queue: ackwise.Connection) -> None:
    queue.push("orders", 1)
    claimed(queue, "orders", 1, "billing").release()
    assert "no consumer" in site.get("/groups").text


def test_groups_page_shows_own_policy(site: Site, queue: ackwise.Connection) -> None:
    queue.create_queue("orders")
    queue.create_group("orders", "billing", retry_limit=7)
    assert "retry_limit 7" in site.get("/groups").text
    assert "retry_limit 7" in site.get("/groups/orders/billing").text


def test_groups_page_has_a_bounded_page_and_a_next_one(site: Site, queue: ackwise.Connection) -> None:
    queue.create_queue("orders")
    for number in range(51):
        queue.create_group("orders", f"g{number:02}")
    first = site.get("/groups")
    assert "g49" in first.text
    assert "/groups/orders/g50" not in first.source
    following = first.source.split('rel="next" href="')[1].split('"')[0].removeprefix("/dashboard")
    assert "/groups/orders/g50" in site.get(following.replace("&amp;", "&")).source
    assert site.get("/groups?after=nonsense").status == 400


def test_groups_sorted_by_lag_begin_with_the_largest(site: Site, queue: ackwise.Connection) -> None:
    for number in range(3):
        queue.push("orders", number)
    claimed(queue, "orders", 3, "a").ack()
    claimed(queue, "orders", 1, "b").ack()
    source = site.get("/groups?sort=lag").source
    assert source.index("/groups/orders/b") < source.index("/groups/orders/a")


def test_group_page_shows_progress_of_each_partition(site: Site, queue: ackwise.Connection) -> None:
    for number in range(4):
        queue.push("orders", number, partition=f"p{number % 2}")
    claimed(queue, "orders", 4, "billing").ack()
    queue.push("orders", 9, partition="p0")
    assert "p0" in site.get("/groups/orders/billing").text
    behind = site.get("/groups/orders/billing?behind=1")
    assert "partition=p0" in behind.source
    assert "partition=p1" not in behind.source
    assert site.get("/groups/orders/nope").status == 404


@pytest.mark.parametrize(
    ("target", "again", "skipped"),
    [("to=start", 2, 0), ("to=end", 0, 3), ("to=time&at=1h", 2, 0), ("to=seq&seq=1&partition=Default", 1, 0)],
)
def test_seek_preview_counts_and_changes_nothing(
    site: Site, queue: ackwise.Connection, target: str, again: int, skipped: int
) -> None:
    for number in range(5):
        queue.push("orders", number)
    claimed(queue, "orders", 2, "billing").ack()
    shown = site.get(f"/groups/orders/billing/seek?{target}")
    assert f"Move the group: {again} again, {skipped} skipped" in shown.text
    assert lag(queue, "orders", "billing") == (3, 0)


def test_confirmed_seek_moves_the_group_once(site: Site, queue: ackwise.Connection) -> None:
    for number in range(5):
        queue.push("orders", number)
    batch = claimed(queue, "orders", 2, "billing")
    shown = site.get("/groups/orders/billing/seek?to=end")
    assert "1, with 2 messages" in shown.text
    fields = {"to": "end", "version": shown.values("version")[0]}
    assert "moved to the end of every partition" in site.post("/groups/orders/billing/seek", fields).text
    assert lag(queue, "orders", "billing") == (0, 0)
    with pytest.raises(LeaseLost):
        batch.ack()
    # The version has changed with the seek, so a second click on the same form changes nothing.
    assert site.post("/groups/orders/billing/seek", fields | {"to": "start"}).status == 412
    assert lag(queue, "orders", "billing") == (0, 0)


def test_seek_to_the_end_skips_nothing_later(site: Site, queue: ackwise.Connection) -> None:
    queue.push("orders", "old")
    claimed(queue, "orders", 1, "billing").release()
    shown = site.get("/groups/orders/billing/seek?to=end")
    fields = {name: shown.values(name)[-1] for name in ("to", "at", "version") if shown.values(name)}
    queue.push("orders", "new")
    assert site.post("/groups/orders/billing/seek", fields).status == 200
    assert [delivery.json() for delivery in claimed(queue, "orders", 2, "billing")] == ["new"]


@pytest.mark.parametrize(
    ("target", "told"),
    [
        ("to=time", "write the time"),
        ("to=time&at=yesterday", "not a time"),
        ("to=seq&seq=1", "needs the seq and the partition"),
        ("to=seq&seq=x&partition=Default", "whole number"),
        ("to=middle", "choose"),
        ("to=start&partition=nope", "nope"),
    ],
)
def test_wrong_seek_is_refused_and_moves_nothing(site: Site, queue: ackwise.Connection, target: str, told: str) -> None:
    queue.push("orders", 1)
    claimed(queue, "orders", 1, "billing").ack()
    shown = site.get(f"/groups/orders/billing/seek?{target}")
    assert shown.status in (400, 404)
    assert told in shown.text
    form = dict(pair.split("=") for pair in target.split("&"))
    assert site.post("/groups/orders/billing/seek", form).status in (400, 404)
    assert lag(queue, "orders", "billing") == (0, 0)


def test_group_is_deleted_after_its_name_is_typed(site: Site, queue: ackwise.Connection) -> None:
    queue.push("orders", 1)
    claimed(queue, "orders", 1, "billing")
    asked = site.get("/groups/orders/billing/delete")
    assert "1 leases" in asked.text
    path = "/groups/orders/billing/delete"
    refused = site.post(path, {"typed": "biling", "version": asked.values("version")[0]})
    assert (refused.status, len(queue.groups("orders"))) == (400, 1)
    shown = site.post(path, {"typed": "billing", "version": asked.values("version")[0]})
    assert "Group billing deleted." in shown.text
    assert queue.groups("orders") == []


def test_default_group_is_called_default(site: Site, queue: ackwise.Connection) -> None:
    queue.push("orders", 1)
    claimed(queue, "orders", 1).ack()
    assert "(default)" in site.get("/groups?group=%28default%29").text
    assert "(default)" in site.get("/groups/orders/__QUEUE_MODE__").text


def test_hostile_group_names_show_as_text_and_their_links_work(site: Site, queue: ackwise.Connection) -> None:
    queue.push(HOSTILE, 1)
    claimed(queue, HOSTILE, 1, HOSTILE).release()
    source = site.get("/groups").source
    assert "<img" not in source
    path = f"/groups/{quote(HOSTILE, safe='~')}/{quote(HOSTILE, safe='~')}"
    assert f'href="/dashboard{path}"' in source
    for page in (path, f"{path}/seek?to=start", f"{path}/delete"):
        shown = site.get(page)
        assert shown.status == 200
        assert "<img" not in shown.source


def test_read_only_dashboard_refuses_seek_and_delete(store_url: str) -> None:
    with Running(store_url, read_only_dashboard=True) as server, ackwise.connect(server.url) as queue:
        queue.push("orders", 1)
        claimed(queue, "orders", 1, "billing").ack()
        site = Site(server.url)
        shown = site.get("/groups/orders/billing")
        assert "Seek" not in shown.text
        assert "Delete" not in shown.text
        for page in ("seek", "delete"):
            assert site.get(f"/groups/orders/billing/{page}").status == 403
            assert site.client.post(f"/dashboard/groups/orders/billing/{page}", data={"to": "start"}).status_code == 403
        assert lag(queue, "orders", "billing") == (0, 0)
        site.close()
