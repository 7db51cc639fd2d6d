"""Every row of the contract, in its order."""

from __future__ import annotations

from typing import Any

import pytest

from tests.server.pushpop.desk import EXPIRED, INVALID, LOCKED, NOT_FOUND, REQUIRED, Desk


def test_push(desk: Desk) -> None:
    answer = desk.post("push", {"item": {"n": 1}})
    assert answer == (200, {"success": True, "message": f"Item pushed to queue {desk.queue} with priority 0"})
    answer = desk.post("push", {"item": {"n": 2}, "priority": 5})
    assert answer == (200, {"success": True, "message": f"Item pushed to queue {desk.queue} with priority 5"})
    assert desk.depth == {"0": 1, "5": 1}


def test_push_of_many(desk: Desk) -> None:
    body = {"items": [{"item": {"n": 1}, "priority": 3}, {"item": {"n": 2}}, {"item": {"n": 3}, "priority": 3}]}
    answer = desk.post("push", body)
    told = f"3 items pushed to queue {desk.queue}"
    assert answer == (200, {"success": True, "message": told, "items_pushed": 3})
    assert desk.depth == {"0": 1, "3": 2}
    assert desk.drained() == [2, 1, 3]


def test_pop(desk: Desk) -> None:
    desk.push(1, 2)
    assert desk.post("pop") == (200, {"items": [{"n": 1}], "count": 1})
    assert desk.look()["lock"] is None
    assert desk.post("pop") == (200, {"items": [{"n": 2}], "count": 1})


def test_pop_of_an_empty_queue(desk: Desk) -> None:
    assert desk.post("pop") == (200, {"items": [], "count": 0})
    desk.push(1)
    desk.pop()
    assert desk.post("pop") == (200, {"items": [], "count": 0})


@pytest.mark.parametrize("query", [{}, {"require_ack": "false"}, {"require_ack": "true"}, {"count": 5}])
def test_pop_while_a_lock_is_live(desk: Desk, query: dict[str, Any]) -> None:
    desk.push(1, 2)
    held = desk.lock(ttl_seconds=20)
    for _ in range(3):
        answer = desk.post("pop", **query)
        assert answer == (423, {"message": LOCKED, "lock_expires_at": held["lock_expires_at"]})
    assert desk.depth == {"0": 1}


def test_pop_with_ack(desk: Desk) -> None:
    desk.push(1, 2)
    status, body = desk.post("pop", require_ack="true")
    assert status == 200
    assert list(body) == ["items", "count", "locked", "lock_id", "lock_expires_at"]
    assert (body["items"], body["count"], body["locked"]) == ([{"n": 1}], 1, True)
    assert body["lock_expires_at"] == desk.now + 30


def test_pop_with_ack_of_an_empty_queue(desk: Desk) -> None:
    nothing = {"items": [], "count": 0, "locked": False}
    assert desk.post("pop", require_ack="true") == (200, nothing)
    desk.push(1)
    desk.pop()
    assert desk.post("pop", require_ack="true") == (200, nothing)
    assert desk.look()["lock"] is None


def test_acknowledge(desk: Desk) -> None:
    desk.push(1, 2)
    held = desk.lock(count=2)
    told = "Items acknowledged successfully"
    assert desk.ack(held["lock_id"]) == (200, {"success": True, "message": told, "items_acknowledged": 2})
    assert desk.look() == {"queue_id": desk.queue, "depth": {}, "lock": None, "expired_locks": 0}


@pytest.mark.parametrize("body", [{}, {"lock_id": ""}, {"lock_id": None}, {"lock_id": 7}, {"lock_id": ["x"]}, b""])
@pytest.mark.parametrize("verb", ["acknowledge", "extend-lock", "deadletter"])
def test_a_lock_id_that_is_absent_empty_or_no_string(desk: Desk, verb: str, body: Any) -> None:
    desk.push(1)
    held = desk.lock()
    assert desk.post(verb, body) == (400, REQUIRED)
    assert desk.ack(held["lock_id"]).status == 200
    assert desk.post(verb, body) == (400, REQUIRED)


@pytest.mark.parametrize("verb", ["acknowledge", "extend-lock", "deadletter"])
def test_an_id_that_is_known_as_expired(desk: Desk, verb: str) -> None:
    desk.push(1)
    late = {"lock_id": desk.lock(ttl_seconds=5)["lock_id"]}
    desk.clock.advance(5)
    assert desk.post(verb, late) == (410, EXPIRED)
    assert desk.post(verb, late) == (410, EXPIRED)
    new = desk.lock()
    assert desk.post(verb, late) == (410, EXPIRED)
    assert desk.look()["lock"]["lock_id"] == new["lock_id"]
    assert desk.ack(new["lock_id"]).body["items_acknowledged"] == 1


@pytest.mark.parametrize("verb", ["acknowledge", "extend-lock", "deadletter"])
def test_another_id_while_a_lock_is_live(desk: Desk, verb: str) -> None:
    desk.push(1)
    held = desk.lock()
    assert desk.post(verb, {"lock_id": "abc123def456"}) == (400, INVALID)
    assert desk.look()["lock"]["lock_id"] == held["lock_id"]
    assert desk.look()["lock"]["expires_at"] == held["lock_expires_at"]
    assert desk.ack(held["lock_id"]).status == 200


@pytest.mark.parametrize("verb", ["acknowledge", "extend-lock", "deadletter"])
def test_another_id_without_a_lock(desk: Desk, verb: str) -> None:
    assert desk.post(verb, {"lock_id": "abc123def456"}) == (404, NOT_FOUND)
    desk.push(1)
    assert desk.post(verb, {"lock_id": "abc123def456"}) == (404, NOT_FOUND)
    held = desk.lock()
    desk.ack(held["lock_id"])
    assert desk.post(verb, {"lock_id": held["lock_id"]}) == (404, NOT_FOUND)


def test_extend_lock(desk: Desk) -> None:
    desk.push(1)
    held = desk.lock(ttl_seconds=10)
    asked = {"lock_id": held["lock_id"], "additional_ttl_seconds": 20}
    new = held["lock_expires_at"] + 20
    assert desk.post("extend-lock", asked) == (200, {"lock_id": held["lock_id"], "new_expires_at": new})
    desk.clock.advance(29.999)
    assert desk.ack(held["lock_id"]).status == 200


def test_deadletter(desk: Desk) -> None:
    desk.push(1)
    status, body = desk.post("deadletter", {"lock_id": desk.lock()["lock_id"]})
    assert (status, list(body)) == (200, ["success", "message", "dlq_id"])
    assert (body["success"], body["message"]) == (True, "1 items dead-lettered")
    assert desk.drained() == []
