"""The acknowledgement document, sentence by sentence, over HTTP."""

from __future__ import annotations

import re
from typing import Any

import pytest

from tests.protocols.pushpop.pushpop_api import EXPIRED, INVALID, LOCKED, NOT_FOUND, REQUIRED, PushPopApi, taken

# overview


def test_popped_message_is_held_until_it_is_acknowledged(pushpop: PushPopApi) -> None:
    pushpop.push(1)
    held = pushpop.lock()
    assert pushpop.look()["lock"]["lock_id"] == held["lock_id"]
    assert pushpop.depth == {}
    pushpop.ack(held["lock_id"])
    pushpop.clock.advance(1000)
    assert pushpop.drained() == []


def test_locked_item_is_poppable_after_its_ttl(pushpop: PushPopApi) -> None:
    pushpop.push(1)
    pushpop.lock(ttl_seconds=10)
    pushpop.clock.advance(10)
    assert pushpop.pop() == [1]


def test_acknowledgement_is_optional(pushpop: PushPopApi) -> None:
    pushpop.push(1)
    assert pushpop.pop() == [1]
    assert pushpop.look()["lock"] is None
    pushpop.clock.advance(1000)
    assert pushpop.drained() == []


def test_pop_while_a_lock_is_live_is_423(pushpop: PushPopApi) -> None:
    pushpop.push(1, 2, 3)
    first = pushpop.lock()
    assert pushpop.post("pop", require_ack="true").status == 423
    pushpop.ack(first["lock_id"])
    second = pushpop.lock()
    assert taken(second) == [2]
    assert second["lock_id"] != first["lock_id"]


def test_locks_of_different_queues_do_not_meet(pushpop: PushPopApi) -> None:
    other = pushpop.another()
    pushpop.push(1)
    other.push(2)
    mine, theirs = pushpop.lock(), other.lock()
    assert other.ack(mine["lock_id"]) == (400, INVALID)
    assert pushpop.ack(theirs["lock_id"]) == (400, INVALID)
    assert pushpop.ack(mine["lock_id"]).status == other.ack(theirs["lock_id"]).status == 200


# architecture


def test_metadata_has_depths_and_the_active_lock(pushpop: PushPopApi) -> None:
    pushpop.push(10, 11, 12, 13)
    pushpop.push(20, 21, 22, 23, 24, priority=1)
    before = pushpop.now
    held = pushpop.lock(ttl_seconds=30)
    assert pushpop.metadata() == {
        "0": 3,
        "1": 5,
        "_active_lock": {
            "lock_id": held["lock_id"],
            "items_with_priority": [{"item": {"n": 10}, "priority": 0}],
            "expires_at": before + 30,
            "created_at": before,
        },
    }


def test_lock_keeps_item_priority_and_answer_hides_it(pushpop: PushPopApi) -> None:
    pushpop.push(1)
    pushpop.push(2, priority=1)
    held = pushpop.lock(count=2)
    assert held["items"] == [{"n": 1}, {"n": 2}]
    assert pushpop.metadata()["_active_lock"]["items_with_priority"] == [
        {"item": {"n": 1}, "priority": 0},
        {"item": {"n": 2}, "priority": 1},
    ]


def test_lock_ids_are_eleven_url_safe_chars_and_unique(pushpop: PushPopApi) -> None:
    pushpop.push(*range(20))
    seen = set()
    for _ in range(20):
        lock_id = pushpop.lock()["lock_id"]
        assert re.fullmatch(r"[A-Za-z0-9_-]{11}", lock_id)
        pushpop.ack(lock_id)
        seen.add(lock_id)
    assert len(seen) == 20


@pytest.mark.parametrize(
    ("given", "effective"),
    [(None, 30), (1, 1), (60, 60), (300, 300), (0, 1), (-5, 1), (301, 300), (9999, 300), ("9" * 400, 300),
     ("-" + "9" * 400, 1), ("+7", 7), ("007", 7), ("0" * 30 + "7", 7)],
)  # fmt: skip
def test_ttl_is_clamped(pushpop: PushPopApi, given: Any, effective: int) -> None:
    pushpop.push(1)
    held = pushpop.lock() if given is None else pushpop.lock(ttl_seconds=given)
    assert held["lock_expires_at"] == pushpop.now + effective
    pushpop.clock.advance(effective - 0.001)
    assert pushpop.post("pop").status == 423
    pushpop.clock.advance(0.001)
    assert pushpop.pop() == [1]


def test_ttl_without_require_ack_is_ignored(pushpop: PushPopApi) -> None:
    pushpop.push(1)
    assert pushpop.post("pop", ttl_seconds=5) == (200, {"items": [{"n": 1}], "count": 1})
    assert pushpop.look()["lock"] is None


# pop with ack: behaviour 1 to 8


def test_expired_lock_is_removed_and_popping_goes_on(pushpop: PushPopApi) -> None:
    pushpop.push(1, 2)
    old = pushpop.lock(ttl_seconds=5)
    pushpop.clock.advance(5)
    new = pushpop.lock(count=5)
    assert taken(new) == [1, 2]
    assert new["lock_id"] != old["lock_id"]
    assert pushpop.metadata()["_active_lock"]["lock_id"] == new["lock_id"]


def test_pop_without_items_makes_no_lock(pushpop: PushPopApi) -> None:
    assert pushpop.post("pop", require_ack="true") == (200, {"items": [], "count": 0, "locked": False})
    assert pushpop.metadata() == {}


# acknowledge: behaviour 1 to 6


def test_acknowledge_step_by_step(pushpop: PushPopApi) -> None:
    assert pushpop.post("acknowledge", {}) == (400, REQUIRED)
    assert pushpop.ack("nothing-here") == (404, NOT_FOUND)
    pushpop.push(1)
    held = pushpop.lock(ttl_seconds=5)
    assert pushpop.ack("another-one") == (400, INVALID)
    pushpop.clock.advance(5)
    assert pushpop.ack(held["lock_id"]) == (410, EXPIRED)
    assert "_active_lock" not in pushpop.metadata()
    again = pushpop.lock()
    done = {"success": True, "message": "Items acknowledged successfully", "items_acknowledged": 1}
    assert pushpop.ack(again["lock_id"]) == (200, done)
    assert "_active_lock" not in pushpop.metadata()
    assert pushpop.ack(again["lock_id"]) == (404, NOT_FOUND)


# the four examples


def test_example_1_the_basic_flow(pushpop: PushPopApi) -> None:
    assert pushpop.post("push", {"item": {"task_id": 123, "action": "send_email"}}).status == 200
    held = pushpop.lock()
    assert held["items"] == [{"task_id": 123, "action": "send_email"}]
    assert pushpop.ack(held["lock_id"]).body["items_acknowledged"] == 1


def test_example_2_the_lock_prevents_concurrent_pops(pushpop: PushPopApi) -> None:
    pushpop.push(1, 2)
    held = pushpop.lock()
    assert pushpop.post("pop") == (423, {"message": LOCKED, "lock_expires_at": held["lock_expires_at"]})


def test_example_3_automatic_expiration(pushpop: PushPopApi) -> None:
    pushpop.push(1)
    held = pushpop.lock(ttl_seconds=5)
    pushpop.clock.advance(6)
    assert pushpop.ack(held["lock_id"]) == (410, EXPIRED)
    assert taken(pushpop.lock()) == [1]


def test_example_4_backwards_compatibility(pushpop: PushPopApi) -> None:
    pushpop.push(1, 2, 3, 4, 5)
    assert pushpop.post("pop", count=5).body == {"items": [{"n": n} for n in range(1, 6)], "count": 5}
    assert pushpop.look() == {"queue_id": pushpop.queue, "depth": {}, "lock": None, "expired_locks": 0}


# the seven edge cases


def test_edge_1_pop_while_locked(pushpop: PushPopApi) -> None:
    pushpop.push(1, 2)
    held = pushpop.lock()
    assert pushpop.post("pop", require_ack="true") == (
        423, {"message": LOCKED, "lock_expires_at": held["lock_expires_at"]},
    )  # fmt: skip
    assert pushpop.depth == {"0": 1}


def test_edge_2_acknowledge_after_expiry(pushpop: PushPopApi) -> None:
    pushpop.push(1)
    pushpop.push(2, priority=3)
    held = pushpop.lock(count=2, ttl_seconds=5)
    pushpop.clock.advance(5)
    assert pushpop.ack(held["lock_id"]) == (410, EXPIRED)
    assert pushpop.depth == {"0": 1, "3": 1}


def test_edge_3_a_wrong_id_leaves_the_lock(pushpop: PushPopApi) -> None:
    pushpop.push(1)
    held = pushpop.lock()
    assert pushpop.ack("wrong") == (400, INVALID)
    assert pushpop.look()["lock"]["lock_id"] == held["lock_id"]
    assert pushpop.ack(held["lock_id"]).status == 200


def test_edge_4_an_empty_queue(pushpop: PushPopApi) -> None:
    pushpop.push(1)
    pushpop.pop()
    assert pushpop.post("pop", require_ack="true") == (200, {"items": [], "count": 0, "locked": False})
    assert pushpop.look()["lock"] is None


def test_edge_5_expiry_while_the_consumer_works(pushpop: PushPopApi) -> None:
    pushpop.push(5, priority=1)
    pushpop.push(6, priority=4)
    held = pushpop.lock(count=2, ttl_seconds=5)
    pushpop.push(1)
    pushpop.push(7, priority=4)
    pushpop.clock.advance(5)
    assert taken(pushpop.lock(count=9)) == [1, 5, 6, 7]
    assert pushpop.ack(held["lock_id"]) == (410, EXPIRED)


def test_edge_7_everything_in_one_lock_is_acknowledged_together(pushpop: PushPopApi) -> None:
    pushpop.push(1, 2, 3)
    pushpop.push(4, 5, priority=1)
    held = pushpop.lock(count=5)
    assert pushpop.ack(held["lock_id"]).body["items_acknowledged"] == 5
    assert pushpop.drained() == []


# priorities


def test_priority_zero_is_first_and_each_priority_is_fifo(pushpop: PushPopApi) -> None:
    for item, priority in ((50, 5), (20, 2), (0, 0), (51, 5), (1, 0), (21, 2), (90, 2**31 - 1)):
        pushpop.push(item, priority=priority)
    assert pushpop.depth == {"0": 2, "2": 2, "5": 2, "2147483647": 1}
    assert pushpop.drained() == [0, 1, 20, 21, 50, 51, 90]


def test_lower_number_is_drained_completely_before_the_next(pushpop: PushPopApi) -> None:
    pushpop.push(10, 11, priority=1)
    assert pushpop.pop() == [10]
    pushpop.push(1, 2)
    assert [pushpop.pop() for _ in range(3)] == [[1], [2], [11]]


def test_thousand_priorities_pop_in_order(pushpop: PushPopApi) -> None:
    body = {"items": [{"item": {"n": n}, "priority": n} for n in reversed(range(1000))]}
    assert pushpop.post("push", body).status == 200
    assert pushpop.pop(count=100) == list(range(100))
    held = pushpop.lock(count=100)
    assert taken(held) == list(range(100, 200))
    assert pushpop.ack(held["lock_id"]).body["items_acknowledged"] == 100
    assert len(pushpop.depth) == 800


def test_pushing_goes_on_while_the_queue_is_locked(pushpop: PushPopApi) -> None:
    pushpop.push(1)
    held = pushpop.lock()
    pushpop.push(2)
    pushpop.push(0, priority=0)
    assert pushpop.depth == {"0": 2}
    pushpop.ack(held["lock_id"])
    assert pushpop.drained() == [2, 0]


def test_items_text_is_kept_exactly(pushpop: PushPopApi) -> None:
    text = b'{"b" : 1.50,"a":[1,  2],"big":12345678901234567890123,"u":"\\u00e9\xc3\xa9","a":null, "e":1E+2}'
    assert pushpop.post("push", b'{"priority":0,"item":' + text + b"}").status == 200
    answer = pushpop.http.post(f"/queue/{pushpop.queue}/pop")
    assert answer.content == b'{"items":[' + text + b'],"count":1}'
