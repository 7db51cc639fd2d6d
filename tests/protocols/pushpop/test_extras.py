"""What came after the document: options in headers, counts, competing consumers, extending, dead letters."""

from __future__ import annotations

import httpx2
import pytest

from ackwise.clock import ManualClock
from tests.protocols.pushpop.pushpop_api import PushPopApi, taken
from tests.server.running import Running


def test_options_may_come_as_headers(pushpop: PushPopApi) -> None:
    pushpop.push(1, 2, 3)
    status, body = pushpop.post("pop", headers={"require_ack": "TRUE", "ttl_seconds": "60", "count": "2"})
    assert (status, taken(body), body["lock_expires_at"]) == (200, [1, 2], pushpop.now + 60)


def test_query_wins_over_a_header(pushpop: PushPopApi) -> None:
    pushpop.push(1, 2, 3)
    assert pushpop.post("pop", headers={"require_ack": "true", "count": "abc"}, require_ack="0", count=2).body == {
        "items": [{"n": 1}, {"n": 2}], "count": 2,
    }  # fmt: skip


@pytest.mark.parametrize("yes", ["true", "True", "1", "yes", "on"])
@pytest.mark.parametrize("no", ["false", "FALSE", "0", "no", "off"])
def test_spellings_of_true_and_false(pushpop: PushPopApi, yes: str, no: str) -> None:
    pushpop.push(1, 2)
    assert "lock_id" not in pushpop.post("pop", require_ack=no).body
    assert "lock_id" in pushpop.post("pop", require_ack=yes).body


def test_count_takes_what_is_there(pushpop: PushPopApi) -> None:
    pushpop.push(*range(3))
    assert pushpop.post("pop", count=100).body["count"] == 3
    pushpop.push(*range(120))
    assert len(pushpop.pop(count=100)) == 100
    held = pushpop.lock(count=100)
    assert held["count"] == 20
    assert pushpop.ack(held["lock_id"]).body["items_acknowledged"] == 20


# competing consumers


def test_competing_consumers_hold_locks_side_by_side(pushpop: PushPopApi) -> None:
    pushpop.push(1, 2, 3)
    locks = [pushpop.lock(allow_competing_consumers="true") for _ in range(3)]
    assert [taken(one) for one in locks] == [[1], [2], [3]]
    assert [pushpop.ack(one["lock_id"]).body["items_acknowledged"] for one in locks] == [1, 1, 1]


def test_any_competing_lock_blocks_exclusive_pops(pushpop: PushPopApi) -> None:
    pushpop.push(1, 2, 3)
    first = pushpop.lock(allow_competing_consumers="true", ttl_seconds=10)
    second = pushpop.lock(allow_competing_consumers="true", ttl_seconds=20)
    for query in ({}, {"require_ack": "true"}):
        assert pushpop.post("pop", **query).status == 423
    pushpop.ack(first["lock_id"])
    assert pushpop.post("pop").body["lock_expires_at"] == second["lock_expires_at"]
    pushpop.ack(second["lock_id"])
    assert pushpop.pop() == [3]


def test_competing_consumers_are_shut_out_by_the_one_lock(pushpop: PushPopApi) -> None:
    pushpop.push(1, 2)
    held = pushpop.lock()
    for query in ({}, {"require_ack": "true"}):
        assert pushpop.post("pop", allow_competing_consumers="true", **query).status == 423
    pushpop.ack(held["lock_id"])
    assert taken(pushpop.lock(allow_competing_consumers="true")) == [2]


def test_expired_lock_returns_its_items_and_spares_others(pushpop: PushPopApi) -> None:
    pushpop.push(1, 2, 3)
    short = pushpop.lock(allow_competing_consumers="true", ttl_seconds=5)
    long = pushpop.lock(allow_competing_consumers="true", ttl_seconds=50)
    pushpop.clock.advance(5)
    assert pushpop.ack(short["lock_id"]).status == 410
    assert taken(pushpop.lock(allow_competing_consumers="true", count=9)) == [1, 3]
    assert pushpop.ack(long["lock_id"]).status == 200


def test_metadata_lists_all_locks_when_there_are_several(pushpop: PushPopApi) -> None:
    pushpop.push(1, 2)
    locks = [pushpop.lock(allow_competing_consumers="true")["lock_id"] for _ in range(2)]
    shown = pushpop.metadata()
    assert shown["_active_lock"]["lock_id"] == locks[0]
    assert [one["lock_id"] for one in shown["_active_locks"]] == locks
    assert pushpop.ack("x").status == 400


# extending


def test_extensions_add_up_and_have_no_ceiling_of_300(pushpop: PushPopApi) -> None:
    pushpop.push(1)
    held = pushpop.lock(ttl_seconds=10)
    pushpop.clock.advance(9)
    for number in range(1, 4):
        body = pushpop.post("extend-lock", {"lock_id": held["lock_id"], "additional_ttl_seconds": 500}).body
        assert body["new_expires_at"] == held["lock_expires_at"] + 500 * number
    assert pushpop.look()["lock"]["seconds_left"] == 1501.0
    pushpop.clock.advance(1500)
    assert pushpop.ack(held["lock_id"]).status == 200


def test_thirty_seconds_unless_said(pushpop: PushPopApi) -> None:
    pushpop.push(1)
    held = pushpop.lock()
    body = pushpop.post("extend-lock", {"lock_id": held["lock_id"]}).body
    assert body == {"lock_id": held["lock_id"], "new_expires_at": held["lock_expires_at"] + 30}


def test_day_from_now_is_the_most(pushpop: PushPopApi) -> None:
    pushpop.push(1)
    held = pushpop.lock(ttl_seconds=10)
    answer = pushpop.post("extend-lock", {"lock_id": held["lock_id"], "additional_ttl_seconds": 86400})
    assert (answer.status, answer.body["error_code"]) == (400, "INVALID_TTL")
    assert pushpop.look()["lock"]["expires_at"] == held["lock_expires_at"]


def test_exclusive_pop_is_told_of_last_ending_lock(pushpop: PushPopApi) -> None:
    pushpop.push(1, 2, 3)
    for ttl in (20, 300, 60):
        pushpop.lock(ttl_seconds=ttl, allow_competing_consumers="true")
    for held in ("true", "false"):
        status, body = pushpop.post("pop", require_ack=held)
        assert (status, body["lock_expires_at"]) == (423, pushpop.now + 300)


def test_pop_of_large_items_stops_at_sixteen_mebibytes(pushpop: PushPopApi) -> None:
    large = {"x": "x" * (6 << 20)}
    for _ in range(4):
        pushpop.push(large)
    held = pushpop.lock(count=100)
    assert held["count"] == 2
    assert pushpop.ack(held["lock_id"]).body["items_acknowledged"] == 2
    assert pushpop.post("pop", count=100).body["count"] == 2


# dead letters


def test_dead_letter_is_one_like_any_other(pushpop: PushPopApi) -> None:
    pushpop.push(1, priority=3)
    pushpop.push(2, priority=3)
    held = pushpop.lock()
    dead = pushpop.post("deadletter", {"lock_id": held["lock_id"]}).body
    (letter,) = pushpop.http.get("/api/v1/dlq", params={"queue": pushpop.queue}).json()["messages"]
    assert (letter["data"], letter["errorMessage"]) == ({"n": 1}, "dead-lettered by request")
    assert pushpop.drained() == [2]
    pushpop.push(3, priority=3)
    redriven = pushpop.http.post("/v1/admin", json={"type": "redrive", "ids": [dead["dlq_id"]]})
    assert redriven.status_code == 200, redriven.text
    assert pushpop.drained() == [1, 3]


def test_deadletter_on_a_rewinding_queue_buries_the_first_item(pushpop: PushPopApi) -> None:
    pushpop.push(1, 2, 3)
    policy = {"type": "configure_queue", "queue": pushpop.queue, "policy": {"on_failure": "rewind"}}
    assert pushpop.http.post("/v1/admin", json=policy).status_code == 200
    status, body = pushpop.post("deadletter", {"lock_id": pushpop.lock(count=3)["lock_id"]})
    assert (status, body["message"]) == (200, "1 items dead-lettered, 2 returned")
    (letter,) = pushpop.http.get("/api/v1/dlq", params={"queue": pushpop.queue}).json()["messages"]
    assert (body["dlq_id"], letter["data"]) == (letter["id"], {"n": 1})
    assert pushpop.drained() == [2, 3]


def test_every_item_of_a_lock_becomes_a_dead_letter(pushpop: PushPopApi) -> None:
    pushpop.push(1, 2, 3)
    held = pushpop.lock(count=3)
    status, body = pushpop.post("deadletter", {"lock_id": held["lock_id"]})
    assert (status, body["message"], len(set(body["dlq_ids"]))) == (200, "3 items dead-lettered", 3)
    assert body["dlq_id"] == body["dlq_ids"][0]
    assert pushpop.look() == {"queue_id": pushpop.queue, "depth": {}, "lock": None, "expired_locks": 0}
    assert pushpop.post("deadletter", {"lock_id": held["lock_id"]}).status == 404


# looking


def test_queue_without_push_is_empty_and_not_created(pushpop: PushPopApi) -> None:
    assert pushpop.look() == {"queue_id": pushpop.queue, "depth": {}, "lock": None, "expired_locks": 0}
    assert pushpop.metadata() == {}
    pushpop.post("pop")
    pushpop.ack("x")
    assert pushpop.queue not in [one["queue_id"] for one in pushpop.http.get("/queue").json()["queues"]]


def test_queue_list_has_depth_and_lock_of_every_queue(pushpop: PushPopApi) -> None:
    others = sorted((pushpop.another() for _ in range(3)), key=lambda one: one.queue)
    for one in others:
        one.push(1, priority=2)
    held = others[0].lock(ttl_seconds=9)
    found = {one["queue_id"]: one for one in pushpop.http.get("/queue").json()["queues"]}
    assert list(found) == sorted(found)
    assert found[others[0].queue] == {
        "queue_id": others[0].queue,
        "depth": {},
        "lock": {"lock_id": held["lock_id"], "expires_at": held["lock_expires_at"], "seconds_left": 9.0},
        "expired_locks": 0,
    }
    assert found[others[1].queue]["depth"] == {"2": 1}
    page = pushpop.http.get("/queue", params={"after": others[0].queue, "limit": 1}).json()["queues"]
    assert len(page) == 1
    assert page[0]["queue_id"] > others[0].queue


def test_foreign_protocol_queue_with_own_name_is_not_listed(pushpop: PushPopApi) -> None:
    pushpop.http.post("/api/v1/push", json={"items": [{"queue": "billing.eu", "payload": 1}]})
    assert "billing.eu" not in [one["queue_id"] for one in pushpop.http.get("/queue").json()["queues"]]


# settings


def test_default_priority_is_a_setting(shared_store: str, clock: ManualClock) -> None:
    with (
        Running(shared_store, clock, pushpop_default_priority=4) as server,
        httpx2.Client(base_url=server.url) as client,
    ):
        pushpop = PushPopApi(client, clock)
        pushpop.push(1)
        pushpop.post("push", {"items": [{"item": {"n": 2}}, {"item": {"n": 3}, "priority": 0}]})
        assert pushpop.depth == {"0": 1, "4": 2}


def test_queue_made_here_never_gives_up_an_item(pushpop: PushPopApi) -> None:
    pushpop.push(1)
    policy = pushpop.http.get(f"/api/v1/resources/queues/{pushpop.queue}").json()["options"]
    assert policy["retryLimit"] is None
