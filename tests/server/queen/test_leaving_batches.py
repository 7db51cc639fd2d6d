"""What becomes of a batch in which a message failed: older clients go on with it, newer ones leave it and pop again."""

from __future__ import annotations

from tests.server.queen.desk import Desk, Message, bodies, named


def ack(queen: Desk, message: Message, status: str, error: str | None = None) -> str:
    """As an SDK does: with every key."""
    sent = named(message, status=status, error=error, consumerGroup=None)
    _, (answer,) = queen.call("POST", "/api/v1/ack", sent)
    word: str = answer["message"]
    return word


def test_a_pop_that_finds_other_work_leaves_the_batch_to_its_holder(queen: Desk) -> None:
    queen.push("q", 0, 1, 2, partition="a")
    first = queen.pop("q", batch=3)
    queen.push("q", "other", partition="b")
    assert ack(queen, first[0], "failed", "no") == "failed_retry"
    assert bodies(queen.pop("q", batch=3)) == ["other"]
    assert [ack(queen, message, "completed") for message in first[1:]] == ["acknowledged"] * 2
    assert bodies(queen.pop("q", batch=3)) == [0]


def test_a_pop_that_finds_nothing_else_takes_up_what_was_left(queen: Desk) -> None:
    queen.push("q", 0, 1, 2)
    first = queen.pop("q", batch=3)
    assert ack(queen, first[0], "failed", "no") == "failed_retry"
    again = queen.pop("q", batch=3)
    assert [(message["data"], message["retryCount"]) for message in again] == [(0, 1), (1, 0), (2, 0)]
    assert ack(queen, first[1], "completed") == "invalid_lease"


def test_whoever_goes_on_keeps_the_batch(queen: Desk) -> None:
    queen.push("q", 0, 1, 2)
    first = queen.pop("q", batch=3)
    ack(queen, first[0], "failed", "no")
    assert ack(queen, first[1], "completed") == "acknowledged"
    assert queen.pop("q", batch=3) == []
    assert ack(queen, first[2], "completed") == "acknowledged"


def test_a_call_written_by_hand_keeps_the_batch(queen: Desk) -> None:
    queen.push("q", 0, 1)
    first = queen.pop("q", batch=2)
    queen.ack(first[0], "failed")
    assert queen.pop("q", batch=2) == []
    assert queen.ack(first[1])["message"] == "acknowledged"


def test_a_failure_without_a_text_is_an_older_clients_own_who_goes_on(queen: Desk) -> None:
    queen.push("q", 0, 1)
    first = queen.pop("q", batch=2)
    ack(queen, first[0], "failed")
    assert queen.pop("q", batch=2) == []
    assert ack(queen, first[1], "completed") == "acknowledged"


def test_another_group_is_not_meant(queen: Desk) -> None:
    queen.push("q", 0, 1)
    first = queen.pop("q", batch=2)
    ack(queen, first[0], "failed", "no")
    assert bodies(queen.pop("q", "others", batch=2)) == [0, 1]
    assert ack(queen, first[1], "completed") == "acknowledged"


def test_a_failure_that_is_said_again_keeps_nothing_from_the_next_pop(queen: Desk) -> None:
    """Its answer was lost, for example: the client goes on just as if it had not been."""
    queen.push("q", 0, 1)
    first = queen.pop("q", batch=2)
    assert ack(queen, first[0], "failed", "no") == "failed_retry"
    assert ack(queen, first[0], "failed", "no") == "invalid_lease"
    again = queen.pop("q", batch=2)
    assert [(message["data"], message["retryCount"]) for message in again] == [(0, 1), (1, 0)]


def test_so_does_one_that_was_the_last_of_its_message(queen: Desk) -> None:
    queen.configure("q", retryLimit=1)
    queen.push("q", 0, 1)
    first = queen.pop("q", batch=2)
    assert ack(queen, first[0], "failed", "no") == "failed_dlq"
    assert ack(queen, first[0], "failed", "no") == "not_found"
    assert bodies(queen.pop("q", batch=2)) == [1]


def test_whoever_goes_on_after_a_failure_said_twice_keeps_the_batch(queen: Desk) -> None:
    queen.push("q", 0, 1, 2)
    first = queen.pop("q", batch=3)
    ack(queen, first[0], "failed", "no")
    ack(queen, first[0], "failed", "no")
    assert ack(queen, first[1], "completed", "a text with it says nothing") == "acknowledged"
    assert ack(queen, first[1], "completed", "a text with it says nothing") == "not_found"
    assert queen.pop("q", batch=3) == []
