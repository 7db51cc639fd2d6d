"""What is stored, in pages."""

from __future__ import annotations

import base64
import json

from ackwise.clock import wall_now
from ackwise.wire import timestamps
from tests.protocols.native.native_api import NativeApi


def test_messages_come_in_pages(native_anywhere: NativeApi) -> None:
    native = native_anywhere
    native.ok("/v1/push", {"queue": "q", "messages": [{"payload": n, "partition": f"p{n % 2}"} for n in range(5)]})
    native.claim("q", group="g", partitions=["p0"])
    seen, after = [], None
    while True:
        page = native.table("messages", queue="q", group="g", limit=2, **({"after": after} if after else {}))
        seen += page["rows"]
        after = page["next"]
        if after is None:
            break
    assert [(m["payload"], m["partition"], m["seq"], m["state"]) for m in seen] == [
        (0, "p0", 0, "leased"),
        (2, "p0", 1, "ready"),
        (4, "p0", 2, "ready"),
        (1, "p1", 0, "ready"),
        (3, "p1", 1, "ready"),
    ]
    assert [m["payload"] for m in native.rows("messages", queue="q", partition="p1")] == [1, 3]
    assert seen[0]["created_at"] == "2023-11-14T22:13:20.000000Z"


def test_dead_letters_with_their_filters(native: NativeApi) -> None:
    native.push("q", 1, 2, 3)
    native.push("q", {"$base64": base64.b64encode(b"\xff").decode()}, content_type="image/png")
    claim = native.claim("q", group="g", max=4)
    native.settle({"lease_id": claim["lease_id"], "outcome": "reject", "error": "no", "error_type": "ValueError"})
    page = native.table("dead_letters", queue="q", group="g", reason="rejected", limit=2, offset=1)
    assert (len(page["rows"]), page["total"]) == (2, 4)
    letters = native.rows("dead_letters")
    assert {(row["error"], row["error_type"], row["failures"], row["deliveries"]) for row in letters} == {
        ("no", "ValueError", 0, 1)
    }
    assert {"$base64": "/w=="} in [row["payload"] for row in letters]
    assert native.rows("dead_letters", after="2023-11-14T22:13:21+00:00") == []
    assert len(native.rows("dead_letters", before="2023-11-14T22:13:21Z")) == 4


def test_leases_groups_and_the_ledger(native: NativeApi) -> None:
    native.push("q", 1, 2, 3)
    claim = native.claim("q", group="g", max=2, owner="me", lease_seconds=10)
    native.clock.advance(2)
    native.settle({"delivery_id": claim["messages"][0]["delivery_id"], "outcome": "ack"})
    (lease,) = native.rows("leases", queue="q", group="g")
    assert (lease["lease_id"], lease["owner"], lease["granted"], lease["held"], lease["ended_at"]) == (
        claim["lease_id"], "me", 2, 1, None,
    )  # fmt: skip
    assert lease["deadline"] == claim["deadline"]
    native.ok("/v1/release", {"lease_id": claim["lease_id"]})
    assert native.rows("leases") == []
    assert len(native.rows("leases", live_only="false")) == 1
    (group,) = native.rows("groups")
    assert (group["lag"], group["acked"], group["held"], group["unread"], group["members"]) == (2, 1, 1, 1, [])
    ledger = {row["outcome"]: row for row in native.rows("ledger", queue="q")}
    assert (ledger["pushed"]["count"], ledger["acked"]["count"]) == (3, 1)
    assert ledger["acked"]["minute"] == "2023-11-14T22:13:00.000000Z"
    ((bound, count),) = ledger["acked"]["latency"].items()
    assert (float(bound) >= 2.0, count) == (True, 1)
    assert native.rows("ledger", after="2030-01-01T00:00:00Z") == []


def test_oldest_leases_come_in_pages_oldest_first(native_anywhere: NativeApi) -> None:
    native = native_anywhere
    claimed = []
    for queue in ("b", "a", "b"):
        native.push(queue, 1)
        claimed.append(native.claim(queue, group="g")["lease_id"])
        native.clock.advance(1)
    first = native.http.get("/v1/oldest-leases", params={"limit": 2}).json()
    assert [row["lease_id"] for row in first["oldest_leases"]] == claimed[:2]
    assert first["oldest_leases"][0]["made_at"] == "2023-11-14T22:13:20.000000Z"
    last = native.http.get("/v1/oldest-leases", params={"limit": 2, "cursor": first["next"]}).json()
    assert ([row["lease_id"] for row in last["oldest_leases"]], last["next"]) == (claimed[2:], None)
    of_queue = native.http.get("/v1/oldest-leases", params={"queue": "a"}).json()["oldest_leases"]
    assert [row["lease_id"] for row in of_queue] == [claimed[1]]


def test_oldest_leases_above_a_thousand_are_bad_input(native: NativeApi) -> None:
    assert native.http.get("/v1/oldest-leases", params={"limit": 1000}).status_code == 200
    answer = native.http.get("/v1/oldest-leases", params={"limit": 1001})
    assert (answer.status_code, answer.json()["error"]) == (400, "limit must be between 1 and 1000")
    assert native.ask("list_oldest_leases", limit=1000) == []
    assert native.call("/v1/ask", {"type": "list_oldest_leases", "limit": 1001}).status == 400


def test_queries_and_commands_by_name(native: NativeApi) -> None:
    made = native.admin("configure_queue", queue="q", policy={"retry_limit": 5}, namespace="shop")
    assert (made["created"], made["policy"]["retry_limit"]) == (True, 5)
    assert native.admin("configure_group", queue="q", group="g", policy={"retry_limit": None}) == {"count": 1}
    native.push("q", 1)
    assert native.ask("queue_stats", queue="q")["messages"] == 1
    assert [row["name"] for row in native.ask("list_queues", namespace="shop")] == ["q"]
    assert native.ask("list_cursors", queue="q", group="g")[0]["head"] == 1
    assert native.admin("seek_group", queue="q", group="g", to="end") == {"count": 1}
    assert native.admin("delete_queue", queue="q")["count"] == 1


def test_server_says_who_it_is_and_what_time_it_has(native: NativeApi) -> None:
    answer = native.http.get("/v1")
    assert answer.json()["server"] == "ackwise"
    assert answer.headers["x-ackwise-now"] == str(native.clock.now())
    native.clock.advance(5)
    refused = native.raw("/v1/claim", b"{")
    assert (refused.status_code, refused.headers["x-ackwise-now"]) == (400, str(native.clock.now()))


def test_answers_after_a_step_show_the_wall_clock(native: NativeApi) -> None:
    native.push("q", 1)
    native.clock.step_wall(-3600)
    anchored, wall = native.clock.now(), wall_now(native.clock)
    claimed = native.claim("q", lease_seconds=60)
    assert timestamps.parse(claimed["deadline"], "deadline") == wall + 60_000_000
    answer = native.raw("/v1/extend", json.dumps({"lease_id": claimed["lease_id"], "lease_seconds": 90}).encode())
    assert timestamps.parse(answer.json()["deadline"], "deadline") == wall + 90_000_000
    headers = answer.headers
    assert (headers["x-ackwise-now"], headers["x-ackwise-clock"]) == (str(wall), str(anchored))
    (row,) = native.rows("leases", queue="q")
    assert timestamps.parse(row["deadline"], "deadline") == wall + 90_000_000
    body = {"extensions": [{"lease_id": claimed["lease_id"], "lease_seconds": 120}]}
    (extended,) = native.ok("/v1/extend-all", body)["extensions"]
    assert timestamps.parse(extended["deadline"], "deadline") == wall + 120_000_000
    locked = native.claim("q", exclusivity="queue")
    assert (locked["empty"], timestamps.parse(locked["until"], "until")) == ("locked", wall + 120_000_000)
