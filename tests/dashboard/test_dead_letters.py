"""Pages of dead letters: kinds, list, one letter, and what the pages ask before a change."""

from __future__ import annotations

from urllib.parse import urlencode

import ackwise
from ackwise.dashboard.dead_selection import MOST_IDS
from tests.dashboard.hostile import HOSTILE, LONG_LINE
from tests.dashboard.letters import kill
from tests.dashboard.site import Site
from tests.server.running import Running


def test_letters_are_grouped_by_kind_of_error(site: Site, queue: ackwise.Connection) -> None:
    kill(queue, "orders", "billing", "order 1 not found", "order 22 not found", "timeout after 3 s")
    text = site.get("/dead-letters").text
    assert "order <n> not found" in text
    assert "timeout after <n> s" in text
    assert "3 dead letters" in text
    only = site.get("/dead-letters?" + urlencode({"queue": "orders", "kind": "order <n> not found"})).text
    assert "2 dead letters" in only
    assert "order 22 not found" in only
    assert "timeout after 3" not in only


def test_letters_of_an_empty_store_say_what_to_do(site: Site) -> None:
    assert "No dead letters." in site.get("/dead-letters").text
    assert "matches this filter" in site.get("/dead-letters?reason=rejected").text


FILTERS = [
    ("queue=orders", 2),
    ("queue=mail", 1),
    ("group=billing", 2),
    ("group=%28default%29", 1),
    ("partition=p2", 1),
    ("reason=rejected", 3),
    ("reason=retry_limit", 0),
    ("since=1h", 3),
    ("until=1h", 0),
    ("errorless=1", 0),
]


def test_filters_of_letters_select(site: Site, queue: ackwise.Connection) -> None:
    kill(queue, "orders", "billing", "bad 1", "bad 2")
    kill(queue, "mail", None, "bad 3", partition="p2")
    for filters, count in FILTERS:
        text = site.get(f"/dead-letters?{filters}").text
        assert (f"{count} dead letter" in text) == bool(count), filters
        assert ("No dead letter matches this filter" in text) == (not count), filters


WRONG = [
    "since=bad",
    "until=99999999999d",
    "since=1h&until=2h",
    "kind=" + "x" * 301,
    "queue=nope",
    "after=zzz",
    "queue=" + "x" * 256,
    "since=" + "1" * 65,
    "kinds_after=W10",
]


def test_wrong_filter_shows_the_error_and_keeps_the_form(site: Site) -> None:
    for filters in WRONG:
        shown = site.get(f"/dead-letters?{filters}")
        assert shown.status in (400, 404), filters
        assert 'role="alert"' in shown.source, filters
        assert 'name="since"' in shown.source, filters


def test_list_of_letters_has_pages(site: Site, queue: ackwise.Connection) -> None:
    kill(queue, "orders", "billing", *(f"bad {number}" for number in range(51)))
    first = site.get("/dead-letters?queue=orders")
    assert first.source.count('name="id"') == 50
    following = first.source.split('rel="next" href="')[1].split('"')[0].removeprefix("/dashboard")
    assert site.get(following.replace("&amp;", "&")).source.count('name="id"') == 1


def test_letter_page_shows_error_history_and_payload(site: Site, queue: ackwise.Connection) -> None:
    kill(queue, "orders", "billing", HOSTILE, payload={"id": 17})
    (letter,) = queue.dead_letters()
    shown = site.get(f"/dead-letters/{letter.id}")
    assert "rejected" in shown.text
    assert "worker-1" in shown.text
    assert "&#34;id&#34;: 17" in shown.source
    assert "<img" not in shown.source
    raw = site.get(f"/dead-letters/{letter.id}/payload")
    assert raw.source == '{"id":17}'
    assert raw.headers["content-disposition"].startswith("attachment")
    assert raw.headers["content-type"] == "application/octet-stream"
    assert site.get("/dead-letters/nope").status == 404


def test_hostile_and_long_errors_show_as_text(site: Site, queue: ackwise.Connection) -> None:
    kill(queue, HOSTILE, HOSTILE, HOSTILE, LONG_LINE, partition=HOSTILE)
    shown = site.get("/dead-letters")
    assert shown.status == 200
    assert "<img" not in shown.source
    assert "<script>alert" not in shown.source
    assert "x" * 8000 in shown.source
    kind = site.get("/dead-letters?" + urlencode({"queue": HOSTILE}))
    assert "2 dead letters" in kind.text
    for letter in queue.dead_letters():
        assert "<img" not in site.get(f"/dead-letters/{letter.id}").source


def test_confirmation_counts_the_filter_and_changes_nothing(site: Site, queue: ackwise.Connection) -> None:
    kill(queue, "orders", "billing", "bad 1", "bad 2", "worse")
    query = urlencode({"queue": "orders", "kind": "bad <n>"})
    for action, button in (("redrive", "Redrive"), ("replay", "Replay"), ("purge", "Purge")):
        text = site.get(f"/dead-letters/actions/{action}?{query}").text
        assert f"{button} 2 dead letters?" in text
        assert "queue: orders" in text
        assert "kind of error: bad <n>" in text
    assert queue.dead_letters().total == 3


def test_confirmation_of_a_selection_counts_what_is_left(site: Site, queue: ackwise.Connection) -> None:
    kill(queue, "orders", "billing", "bad 1", "bad 2")
    ids = [letter.id for letter in queue.dead_letters()]
    query = urlencode([("selection", "1"), *(("id", id) for id in ids)])
    assert "Redrive 2 dead letters?" in site.get(f"/dead-letters/actions/redrive?{query}").text
    queue.purge_dead([ids[0]])
    text = site.get(f"/dead-letters/actions/redrive?{query}").text
    assert "Redrive 1 dead letter?" in text
    assert "1 of them are gone" in text
    queue.purge_dead([ids[1]])
    assert "No dead letter matches any more" in site.get(f"/dead-letters/actions/redrive?{query}").text


def test_selection_beyond_the_bound_is_refused_with_its_number(site: Site, queue: ackwise.Connection) -> None:
    kill(queue, "orders", "billing", "bad 1")
    ids = " ".join(f"{number:036x}" for number in range(MOST_IDS + 1))
    shown = site.post("/dead-letters/actions/redrive", {"ids": ids})
    assert shown.status == 400
    assert f"{MOST_IDS + 1} dead letters are selected" in shown.text
    assert "no dead letter is selected" in site.get("/dead-letters/actions/redrive?selection=1").text
    assert site.get("/dead-letters/actions/redrive?id=%3Cb%3E").status == 400
    assert site.get("/dead-letters/actions/explode?queue=orders").status == 400
    assert queue.dead_letters().total == 1


def test_purge_of_a_filter_asks_for_the_name(site: Site, queue: ackwise.Connection) -> None:
    kill(queue, "orders", "billing", "bad 1")
    for fields, typed in (({"queue": "orders"}, "orders"), ({}, "all dead letters")):
        asked = site.get(f"/dead-letters/actions/purge?{urlencode(fields)}")
        assert typed in asked.text
        refused = site.post("/dead-letters/actions/purge", {**fields, "typed": "wrong"})
        assert refused.status == 400
        assert "Nothing was purged" in refused.text
    assert queue.dead_letters().total == 1


def test_read_only_dashboard_refuses_changes_of_letters(store_url: str) -> None:
    with Running(store_url, read_only_dashboard=True) as server, ackwise.connect(server.url) as queue:
        kill(queue, "orders", "billing", "bad 1")
        site = Site(server.url)
        shown = site.get("/dead-letters")
        assert "Redrive" not in shown.text
        assert 'name="id"' not in shown.source
        assert site.get("/dead-letters/actions/redrive?queue=orders").status == 403
        answer = site.client.post("/dashboard/dead-letters/actions/redrive", data={"queue": "orders"})
        assert (answer.status_code, queue.dead_letters().total) == (403, 1)
        site.close()
