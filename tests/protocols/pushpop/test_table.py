"""Every row of the contract, in its order."""

from __future__ import annotations

from typing import Any

import pytest

from tests.protocols.pushpop.pushpop_api import EXPIRED, INVALID, LOCKED, NOT_FOUND, REQUIRED, PushPopApi


def test_push_answers_with_queue_and_priority(pushpop: PushPopApi) -> None:
    answer = pushpop.post("push", {"item": {"n": 1}})
    assert answer == (200, {"success": True, "message": f"Item pushed to queue {pushpop.queue} with priority 0"})
    answer = pushpop.post("push", {"item": {"n": 2}, "priority": 5})
    assert answer == (200, {"success": True, "message": f"Item pushed to queue {pushpop.queue} with priority 5"})
    assert pushpop.depth == {"0": 1, "5": 1}


def test_push_of_many(pushpop: PushPopApi) -> None:
    body = {"items": [{"item": {"n": 1}, "priority": 3}, {"item": {"n": 2}}, {"item": {"n": 3}, "priority": 3}]}
    answer = pushpop.post("push", body)
    told = f"3 items pushed to queue {pushpop.queue}"
    assert answer == (200, {"success": True, "message": told, "items_pushed": 3})
    assert pushpop.depth == {"0": 1, "3": 2}
    assert pushpop.drained() == [2, 1, 3]


def test_pop_returns_the_next_item(pushpop: PushPopApi) -> None:
    pushpop.push(1, 2)
    assert pushpop.post("pop") == (200, {"items": [{"n": 1}], "count": 1})
    assert pushpop.look()["lock"] is None
    assert pushpop.post("pop") == (200, {"items": [{"n": 2}], "count": 1})


def test_pop_of_an_empty_queue(pushpop: PushPopApi) -> None:
    assert pushpop.post("pop") == (200, {"items": [], "count": 0})
    pushpop.push(1)
    pushpop.pop()
    assert pushpop.post("pop") == (200, {"items": [], "count": 0})


@pytest.mark.parametrize("query", [{}, {"require_ack": "false"}, {"require_ack": "true"}, {"count": 5}])
def test_pop_while_a_lock_is_live(pushpop: PushPopApi, query: dict[str, Any]) -> None:
    pushpop.push(1, 2)
    held = pushpop.lock(ttl_seconds=20)
    for _ in range(3):
        answer = pushpop.post("pop", **query)
        assert answer == (423, {"message": LOCKED, "lock_expires_at": held["lock_expires_at"]})
    assert pushpop.depth == {"0": 1}


def test_pop_with_ack(pushpop: PushPopApi) -> None:
    pushpop.push(1, 2)
    status, body = pushpop.post("pop", require_ack="true")
    assert status == 200
    assert list(body) == ["items", "count", "locked", "lock_id", "lock_expires_at"]
    assert (body["items"], body["count"], body["locked"]) == ([{"n": 1}], 1, True)
    assert body["lock_expires_at"] == pushpop.now + 30


def test_pop_with_ack_of_an_empty_queue(pushpop: PushPopApi) -> None:
    nothing = {"items": [], "count": 0, "locked": False}
    assert pushpop.post("pop", require_ack="true") == (200, nothing)
    pushpop.push(1)
    pushpop.pop()
    assert pushpop.post("pop", require_ack="true") == (200, nothing)
    assert pushpop.look()["lock"] is None


def test_acknowledge_removes_the_locked_items(pushpop: PushPopApi) -> None:
    pushpop.push(1, 2)
    held = pushpop.lock(count=2)
    told = "Items acknowledged successfully"
    assert pushpop.ack(held["lock_id"]) == (200, {"success": True, "message": told, "items_acknowledged": 2})
    assert pushpop.look() == {"queue_id": pushpop.queue, "depth": {}, "lock": None, "expired_locks": 0}


@pytest.mark.parametrize("body", [{}, {"lock_id": ""}, {"lock_id": None}, {"lock_id": 7}, {"lock_id": ["x"]}, b""])
@pytest.mark.parametrize("verb", ["acknowledge", "extend-lock", "deadletter"])
def test_lock_id_that_is_absent_empty_or_no_string(pushpop: PushPopApi, verb: str, body: Any) -> None:
    pushpop.push(1)
    held = pushpop.lock()
    assert pushpop.post(verb, body) == (400, REQUIRED)
    assert pushpop.ack(held["lock_id"]).status == 200
    assert pushpop.post(verb, body) == (400, REQUIRED)


@pytest.mark.parametrize("verb", ["acknowledge", "extend-lock", "deadletter"])
def test_id_that_is_known_as_expired(pushpop: PushPopApi, verb: str) -> None:
    pushpop.push(1)
    late = {"lock_id": pushpop.lock(ttl_seconds=5)["lock_id"]}
    pushpop.clock.advance(5)
    assert pushpop.post(verb, late) == (410, EXPIRED)
    assert pushpop.post(verb, late) == (410, EXPIRED)
    new = pushpop.lock()
    assert pushpop.post(verb, late) == (410, EXPIRED)
    assert pushpop.look()["lock"]["lock_id"] == new["lock_id"]
    assert pushpop.ack(new["lock_id"]).body["items_acknowledged"] == 1


@pytest.mark.parametrize("verb", ["acknowledge", "extend-lock", "deadletter"])
def test_wrong_lock_id_while_a_lock_is_live_is_400(pushpop: PushPopApi, verb: str) -> None:
    pushpop.push(1)
    held = pushpop.lock()
    assert pushpop.post(verb, {"lock_id": "abc123def456"}) == (400, INVALID)
    assert pushpop.look()["lock"]["lock_id"] == held["lock_id"]
    assert pushpop.look()["lock"]["expires_at"] == held["lock_expires_at"]
    assert pushpop.ack(held["lock_id"]).status == 200


@pytest.mark.parametrize("verb", ["acknowledge", "extend-lock", "deadletter"])
def test_unknown_lock_id_without_a_lock_is_404(pushpop: PushPopApi, verb: str) -> None:
    assert pushpop.post(verb, {"lock_id": "abc123def456"}) == (404, NOT_FOUND)
    pushpop.push(1)
    assert pushpop.post(verb, {"lock_id": "abc123def456"}) == (404, NOT_FOUND)
    held = pushpop.lock()
    pushpop.ack(held["lock_id"])
    assert pushpop.post(verb, {"lock_id": held["lock_id"]}) == (404, NOT_FOUND)


def test_extend_lock_adds_to_the_expiry(pushpop: PushPopApi) -> None:
    pushpop.push(1)
    held = pushpop.lock(ttl_seconds=10)
    asked = {"lock_id": held["lock_id"], "additional_ttl_seconds": 20}
    new = held["lock_expires_at"] + 20
    assert pushpop.post("extend-lock", asked) == (200, {"lock_id": held["lock_id"], "new_expires_at": new})
    pushpop.clock.advance(29.999)
    assert pushpop.ack(held["lock_id"]).status == 200


def test_deadletter_buries_the_locked_items(pushpop: PushPopApi) -> None:
    pushpop.push(1)
    status, body = pushpop.post("deadletter", {"lock_id": pushpop.lock()["lock_id"]})
    assert (status, list(body)) == (200, ["success", "message", "dlq_id"])
    assert (body["success"], body["message"]) == (True, "1 items dead-lettered")
    assert pushpop.drained() == []
