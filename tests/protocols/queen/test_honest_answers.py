"""What an answer says is what happened, also where the server takes a short cut."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.protocols.queen.queen_api import Message, QueenApi, bodies, named, unleased


@pytest.mark.parametrize("spell", [named, unleased])
def test_ack_batch_marks_only_earlier_settlements_as_noop(queen: QueenApi, spell: Callable[..., Message]) -> None:
    queen.push("q", 1, 2, 3, 4, 5)
    held = queen.pop("q", batch=5)
    queen.ack(held[0])
    answers = queen.ack_batch(*(spell(held[at], status="completed") for at in (0, 2)))
    assert [(one["message"], one["noop"]) for one in answers] == [("not_found", True), ("acknowledged", False)]
    answers = queen.ack_batch(*(spell(held[3], status="completed") for _ in range(2)))
    assert [(one["message"], one["noop"]) for one in answers] == [("acknowledged", False), ("not_found", True)]


def test_each_lease_of_a_batch_is_told_for_itself(queen: QueenApi) -> None:
    queen.push("q", 1, 2, partition="a")
    one = queen.pop("q", batch=2)
    queen.push("q", 3, 4, partition="b")
    other = queen.pop("q", batch=2)
    acks = [named(message, status="completed") for message in (*one, other[0])]
    assert [answer["leaseReleased"] for answer in queen.ack_batch(*acks)] == [True, True, False]
    status, extended = queen.call("POST", f"/api/v1/lease/{other[0]['leaseId']}/extend")
    assert (status, extended["success"]) == (200, True)


@pytest.mark.parametrize("mode", ["seed", "upstream"])
def test_ack_after_a_seek_is_invalid_lease(queen: QueenApi) -> None:
    queen.push("q", 1)
    (held,) = queen.pop("q", "g")
    assert queen.call("POST", "/api/v1/consumer-groups/g/queues/q/seek", {"toEnd": True}).status == 200
    assert queen.ack(held, consumerGroup="g")["message"] == "invalid_lease"


@pytest.mark.parametrize("mode", ["upstream"])
def test_failure_that_ends_the_lease_says_so(queen: QueenApi) -> None:
    queen.push("q", 1, 2, 3)
    held = queen.pop("q", batch=3)
    answer = queen.nack(held[0])
    assert (answer["message"], answer["leaseReleased"]) == ("failed_retry", True)


@pytest.mark.parametrize("mode", ["seed", "upstream"])
@pytest.mark.parametrize("status", ["failed", "retry"])
def test_repeated_failure_without_lease_settles_nothing(queen: QueenApi, status: str) -> None:
    """The message comes again: `already committed`, or the seed's `not_found`, would say that it does not."""
    queen.push("q", 1)
    (held,) = queen.pop("q")
    sdk = {**named(held), "status": status, "error": "no", "consumerGroup": None}
    assert queen.ack(held, status)["success"] is True
    again: list[Message] = []
    for _ in range(2):
        answer = queen.ack(held, status)
        assert [answer[key] for key in ("success", "message", "noop", "leaseReleased")] == [
            False,
            "invalid_lease",
            False,
            False,
        ]
        (answer,) = queen.call("POST", "/api/v1/ack", sdk).body
        assert (answer["message"], "invalid or expired lease" in answer["error"]) == ("invalid_lease", True)
        operations = [{"type": "ack", **named(held), "status": status}, {"type": "push", "queue": "next", "payload": 1}]
        body = queen.call("POST", "/api/v1/transaction", {"operations": operations}).body
        assert (body["success"], "invalid_lease" in body["error"]) == (False, True)
        (one,) = queen.ack_batch(named(held, status=status))
        assert one["message"] == "invalid_lease"
        # And again while another lease holds it, which keeps it.
        again = again or queen.pop("q")
    assert queen.ack(again[0])["message"] == "acknowledged"
    assert queen.pop("next") == []


@pytest.mark.parametrize("mode", ["upstream"])
def test_transaction_does_not_fail_what_was_acked(queen: QueenApi) -> None:
    queen.push("q", 1)
    (held,) = queen.pop("q")
    queen.ack(held)
    operations = [
        {"type": "push", "items": [{"queue": "next", "payload": 1}]},
        {"type": "ack", **named(held), "status": "failed"},
    ]
    status, body = queen.call("POST", "/api/v1/transaction", {"operations": operations})
    assert (status, body["success"], body["failedIndex"]) == (200, False, 1)
    assert queen.pop("next") == []


@pytest.mark.parametrize("rider", ["kv", "timers", "positions"])
def test_unsupported_transaction_part_is_refused_up_front(queen: QueenApi, rider: str) -> None:
    push = {"type": "push", "queue": "q", "payload": 1}
    status, body = queen.call("POST", "/api/v1/transaction", {"operations": [push], rider: [{"op": "check"}]})
    assert (status, body["code"]) == (400, "not_supported")
    assert queen.pop("q") == []


def test_unknown_ids_are_searched_once(queen: QueenApi) -> None:
    queen.push("q", *range(300))
    held = queen.pop("q", batch=300)
    unknown = [{**named(held[0]), "transactionId": f"no-{n}", "status": "completed"} for n in range(2000)]
    answers = queen.ack_batch(*unknown, atomic=False)
    assert {answer["message"] for answer in answers} == {"not_found"}
    status, _ = queen.call("POST", "/api/v1/ack/batch", {"acknowledgments": unknown * 6})
    assert status == 400


def test_new_group_of_a_namespace_gets_queues_made_later(queen: QueenApi) -> None:
    query = {"namespace": "shop", "consumerGroup": "w", "subscriptionMode": "new"}
    assert queen.call("GET", "/api/v1/pop", **query).status == 204
    queen.clock.advance(1)
    queen.push("shop.orders.eu", "first")
    assert bodies(queen.get("/api/v1/pop", **query)["messages"]) == ["first"]


def test_refused_pop_leaves_no_member(queen: QueenApi) -> None:
    assert queen.call("GET", f"/api/v1/pop/queue/{'x' * 300}").status == 400
    assert queen.get("/api/v1/consumer-groups") == {"groups": []}


def test_dropped_message_is_no_dead_letter(queen: QueenApi) -> None:
    queen.configure("q", retryLimit=0, deadLetterQueue=False, dlqAfterMaxRetries=False)
    queen.push("q", 1)
    (held,) = queen.pop("q")
    answer = queen.nack(held)
    assert (answer["success"], answer["dlq"]) == (True, False)
    assert queen.dlq("q")["total"] == 0
