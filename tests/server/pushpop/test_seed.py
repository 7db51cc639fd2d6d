"""The acknowledgement document, sentence by sentence, over HTTP."""

from __future__ import annotations

import re
from typing import Any

import pytest

from tests.server.pushpop.desk import EXPIRED, INVALID, LOCKED, NOT_FOUND, REQUIRED, Desk, taken

# overview


def test_a_popped_message_is_held_until_it_is_acknowledged(desk: Desk) -> None:
    desk.push(1)
    held = desk.lock()
    assert desk.look()["lock"]["lock_id"] == held["lock_id"]
    assert desk.depth == {}
    desk.ack(held["lock_id"])
    desk.clock.advance(1000)
    assert desk.drained() == []


def test_or_until_the_ttl_expires(desk: Desk) -> None:
    desk.push(1)
    desk.lock(ttl_seconds=10)
    desk.clock.advance(10)
    assert desk.pop() == [1]


def test_acknowledgement_is_optional(desk: Desk) -> None:
    desk.push(1)
    assert desk.pop() == [1]
    assert desk.look()["lock"] is None
    desk.clock.advance(1000)
    assert desk.drained() == []


def test_only_one_lock_at_a_time(desk: Desk) -> None:
    desk.push(1, 2, 3)
    first = desk.lock()
    assert desk.post("pop", require_ack="true").status == 423
    desk.ack(first["lock_id"])
    second = desk.lock()
    assert taken(second) == [2]
    assert second["lock_id"] != first["lock_id"]


def test_locks_of_different_queues_do_not_meet(desk: Desk) -> None:
    other = desk.another()
    desk.push(1)
    other.push(2)
    mine, theirs = desk.lock(), other.lock()
    assert other.ack(mine["lock_id"]) == (400, INVALID)
    assert desk.ack(theirs["lock_id"]) == (400, INVALID)
    assert desk.ack(mine["lock_id"]).status == other.ack(theirs["lock_id"]).status == 200


# architecture


def test_the_state_schema(desk: Desk) -> None:
    desk.push(10, 11, 12, 13)
    desk.push(20, 21, 22, 23, 24, priority=1)
    before = desk.now
    held = desk.lock(ttl_seconds=30)
    assert desk.metadata() == {
        "0": 3,
        "1": 5,
        "_active_lock": {
            "lock_id": held["lock_id"],
            "items_with_priority": [{"item": {"n": 10}, "priority": 0}],
            "expires_at": before + 30,
            "created_at": before,
        },
    }


def test_the_lock_keeps_the_priority_of_each_item_and_the_answer_hides_it(desk: Desk) -> None:
    desk.push(1)
    desk.push(2, priority=1)
    held = desk.lock(count=2)
    assert held["items"] == [{"n": 1}, {"n": 2}]
    assert desk.metadata()["_active_lock"]["items_with_priority"] == [
        {"item": {"n": 1}, "priority": 0},
        {"item": {"n": 2}, "priority": 1},
    ]


def test_lock_ids_have_eleven_url_safe_characters_and_never_repeat(desk: Desk) -> None:
    desk.push(*range(20))
    seen = set()
    for _ in range(20):
        lock_id = desk.lock()["lock_id"]
        assert re.fullmatch(r"[A-Za-z0-9_-]{11}", lock_id)
        desk.ack(lock_id)
        seen.add(lock_id)
    assert len(seen) == 20


@pytest.mark.parametrize(
    ("given", "effective"),
    [(None, 30), (1, 1), (60, 60), (300, 300), (0, 1), (-5, 1), (301, 300), (9999, 300), ("9" * 400, 300),
     ("-" + "9" * 400, 1), ("+7", 7), ("007", 7), ("0" * 30 + "7", 7)],
)  # fmt: skip
def test_the_ttl_is_clamped(desk: Desk, given: Any, effective: int) -> None:
    desk.push(1)
    held = desk.lock() if given is None else desk.lock(ttl_seconds=given)
    assert held["lock_expires_at"] == desk.now + effective
    desk.clock.advance(effective - 0.001)
    assert desk.post("pop").status == 423
    desk.clock.advance(0.001)
    assert desk.pop() == [1]


def test_a_ttl_without_require_ack_is_ignored(desk: Desk) -> None:
    desk.push(1)
    assert desk.post("pop", ttl_seconds=5) == (200, {"items": [{"n": 1}], "count": 1})
    assert desk.look()["lock"] is None


# pop with ack: behaviour 1 to 8


def test_an_expired_lock_is_removed_and_popping_goes_on(desk: Desk) -> None:
    desk.push(1, 2)
    old = desk.lock(ttl_seconds=5)
    desk.clock.advance(5)
    new = desk.lock(count=5)
    assert taken(new) == [1, 2]
    assert new["lock_id"] != old["lock_id"]
    assert desk.metadata()["_active_lock"]["lock_id"] == new["lock_id"]


def test_without_items_there_is_no_lock(desk: Desk) -> None:
    assert desk.post("pop", require_ack="true") == (200, {"items": [], "count": 0, "locked": False})
    assert desk.metadata() == {}


# acknowledge: behaviour 1 to 6


def test_acknowledge_step_by_step(desk: Desk) -> None:
    assert desk.post("acknowledge", {}) == (400, REQUIRED)
    assert desk.ack("nothing-here") == (404, NOT_FOUND)
    desk.push(1)
    held = desk.lock(ttl_seconds=5)
    assert desk.ack("another-one") == (400, INVALID)
    desk.clock.advance(5)
    assert desk.ack(held["lock_id"]) == (410, EXPIRED)
    assert "_active_lock" not in desk.metadata()
    again = desk.lock()
    done = {"success": True, "message": "Items acknowledged successfully", "items_acknowledged": 1}
    assert desk.ack(again["lock_id"]) == (200, done)
    assert "_active_lock" not in desk.metadata()
    assert desk.ack(again["lock_id"]) == (404, NOT_FOUND)


# the four examples


def test_example_1_the_basic_flow(desk: Desk) -> None:
    assert desk.post("push", {"item": {"task_id": 123, "action": "send_email"}}).status == 200
    held = desk.lock()
    assert held["items"] == [{"task_id": 123, "action": "send_email"}]
    assert desk.ack(held["lock_id"]).body["items_acknowledged"] == 1


def test_example_2_the_lock_prevents_concurrent_pops(desk: Desk) -> None:
    desk.push(1, 2)
    held = desk.lock()
    assert desk.post("pop") == (423, {"message": LOCKED, "lock_expires_at": held["lock_expires_at"]})


def test_example_3_automatic_expiration(desk: Desk) -> None:
    desk.push(1)
    held = desk.lock(ttl_seconds=5)
    desk.clock.advance(6)
    assert desk.ack(held["lock_id"]) == (410, EXPIRED)
    assert taken(desk.lock()) == [1]


def test_example_4_backwards_compatibility(desk: Desk) -> None:
    desk.push(1, 2, 3, 4, 5)
    assert desk.post("pop", count=5).body == {"items": [{"n": n} for n in range(1, 6)], "count": 5}
    assert desk.look() == {"queue_id": desk.queue, "depth": {}, "lock": None, "expired_locks": 0}


# the seven edge cases


def test_edge_1_pop_while_locked(desk: Desk) -> None:
    desk.push(1, 2)
    held = desk.lock()
    assert desk.post("pop", require_ack="true") == (
        423, {"message": LOCKED, "lock_expires_at": held["lock_expires_at"]},
    )  # fmt: skip
    assert desk.depth == {"0": 1}


def test_edge_2_acknowledge_after_expiry(desk: Desk) -> None:
    desk.push(1)
    desk.push(2, priority=3)
    held = desk.lock(count=2, ttl_seconds=5)
    desk.clock.advance(5)
    assert desk.ack(held["lock_id"]) == (410, EXPIRED)
    assert desk.depth == {"0": 1, "3": 1}


def test_edge_3_a_wrong_id_leaves_the_lock(desk: Desk) -> None:
    desk.push(1)
    held = desk.lock()
    assert desk.ack("wrong") == (400, INVALID)
    assert desk.look()["lock"]["lock_id"] == held["lock_id"]
    assert desk.ack(held["lock_id"]).status == 200


def test_edge_4_an_empty_queue(desk: Desk) -> None:
    desk.push(1)
    desk.pop()
    assert desk.post("pop", require_ack="true") == (200, {"items": [], "count": 0, "locked": False})
    assert desk.look()["lock"] is None


def test_edge_5_expiry_while_the_consumer_works(desk: Desk) -> None:
    desk.push(5, priority=1)
    desk.push(6, priority=4)
    held = desk.lock(count=2, ttl_seconds=5)
    desk.push(1)
    desk.push(7, priority=4)
    desk.clock.advance(5)
    assert taken(desk.lock(count=9)) == [1, 5, 6, 7]
    assert desk.ack(held["lock_id"]) == (410, EXPIRED)


def test_edge_7_everything_in_one_lock_is_acknowledged_together(desk: Desk) -> None:
    desk.push(1, 2, 3)
    desk.push(4, 5, priority=1)
    held = desk.lock(count=5)
    assert desk.ack(held["lock_id"]).body["items_acknowledged"] == 5
    assert desk.drained() == []


# priorities


def test_zero_is_served_first_and_each_priority_is_first_in_first_out(desk: Desk) -> None:
    for item, priority in ((50, 5), (20, 2), (0, 0), (51, 5), (1, 0), (21, 2), (90, 2**31 - 1)):
        desk.push(item, priority=priority)
    assert desk.depth == {"0": 2, "2": 2, "5": 2, "2147483647": 1}
    assert desk.drained() == [0, 1, 20, 21, 50, 51, 90]


def test_a_lower_number_is_drained_completely_before_the_next(desk: Desk) -> None:
    desk.push(10, 11, priority=1)
    assert desk.pop() == [10]
    desk.push(1, 2)
    assert [desk.pop() for _ in range(3)] == [[1], [2], [11]]


def test_a_thousand_priorities(desk: Desk) -> None:
    body = {"items": [{"item": {"n": n}, "priority": n} for n in reversed(range(1000))]}
    assert desk.post("push", body).status == 200
    assert desk.pop(count=100) == list(range(100))
    held = desk.lock(count=100)
    assert taken(held) == list(range(100, 200))
    assert desk.ack(held["lock_id"]).body["items_acknowledged"] == 100
    assert len(desk.depth) == 800


def test_pushing_goes_on_while_the_queue_is_locked(desk: Desk) -> None:
    desk.push(1)
    held = desk.lock()
    desk.push(2)
    desk.push(0, priority=0)
    assert desk.depth == {"0": 2}
    desk.ack(held["lock_id"])
    assert desk.drained() == [2, 0]


def test_an_items_text_is_kept_exactly(desk: Desk) -> None:
    text = b'{"b" : 1.50,"a":[1,  2],"big":12345678901234567890123,"u":"\\u00e9\xc3\xa9","a":null, "e":1E+2}'
    assert desk.post("push", b'{"priority":0,"item":' + text + b"}").status == 200
    answer = desk.http.post(f"/queue/{desk.queue}/pop")
    assert answer.content == b'{"items":[' + text + b'],"count":1}'
