"""The official server loses or repeats messages in these cases (its 0.15 procedures, by experiment). Ours does not."""

from __future__ import annotations

import pytest

from tests.protocols.queen.queen_api import Message, QueenApi, bodies, named, unleased


@pytest.fixture(params=["seed", "upstream"])
def mode(request: pytest.FixtureRequest) -> str:
    name: str = request.param
    return name


def popped(queen: QueenApi, *payloads: str) -> list[Message]:
    """Pushed and handed out in one batch."""
    queen.push("q", *payloads)
    found = queen.pop("q", batch=len(payloads))
    assert bodies(found) == list(payloads)
    return found


def again(queen: QueenApi) -> list[str]:
    """What comes when the leases have run out."""
    queen.clock.advance(300)
    return bodies(queen.pop("q", batch=100))


def test_acks_out_of_order_move_no_cursor_back(queen: QueenApi) -> None:
    first, second, _ = popped(queen, "1", "2", "3")
    assert queen.ack(second)["success"] is True
    late = queen.ack(first)
    # The second ack may have covered the first already; it is done in any case.
    assert (late["message"], late["noop"]) == ("acknowledged", not queen.seed)
    assert again(queen) == ["3"]


def test_acks_out_of_order_complete_the_batch(queen: QueenApi) -> None:
    messages = popped(queen, "1", "2", "3")
    assert [queen.ack(message)["leaseReleased"] for message in reversed(messages)][-1 if queen.seed else 0] is True
    assert again(queen) == []


def test_ack_repeated_without_its_lease_brings_nothing_back(queen: QueenApi) -> None:
    first, *rest = popped(queen, "1", "2", "3")
    for message in (first, *rest):
        queen.ack(message)
    queen.push("q", "4", "5")
    status, answer = queen.call("POST", "/api/v1/ack", unleased(first, status="completed"))
    assert (status, answer["noop"], answer["success"]) == (200, True, not queen.seed)
    assert bodies(queen.pop("q", batch=10)) == ["4", "5"]


def test_nack_between_acks_in_one_call_is_not_lost(queen: QueenApi) -> None:
    first, second, third = popped(queen, "1", "2", "3")
    answers = queen.ack_batch(
        named(first, status="completed"), named(second, status="failed", error="bad"), named(third, status="completed")
    )
    assert [answer["success"] for answer in answers] == [True, True, True]
    assert answers[1]["message"] == "failed_retry"
    found = queen.pop("q", batch=10)
    assert bodies(found) == (["2"] if queen.seed else ["2", "3"])
    assert found[0]["retryCount"] == 1


def test_batch_that_always_fails_is_dead_lettered_whole(queen: QueenApi) -> None:
    queen.configure("q", retryLimit=3)
    queen.push("q", *"12345")
    calls = 0
    while found := queen.pop("q", batch=5):
        answers = queen.ack_batch(*(named(message, status="failed", error="bad") for message in found))
        assert {answer["success"] for answer in answers} == {True}
        calls += 1
    assert queen.dead("q") == ["1", "2", "3", "4", "5"]
    # All of them are charged by each call; upstream charges only the first, and it dies of failure number four.
    assert calls == (3 if queen.seed else 5 * 4)


def test_message_behind_a_dead_letter_has_its_own_budget(queen: QueenApi) -> None:
    queen.configure("q", retryLimit=1)
    queen.push("q", "poison", "next")
    for _ in range(1 if queen.seed else 2):
        (message,) = queen.pop("q", batch=1)
        answer = queen.nack(message)
    assert (answer["message"], message["data"]) == ("failed_dlq", "poison")
    (following,) = queen.pop("q", batch=1)
    assert (following["data"], following["retryCount"]) == ("next", 0)
    assert queen.nack(following)["dlq"] is queen.seed
    assert [letter["retryCount"] for letter in queen.dlq("q")["messages"] if letter["data"] == "next"] == (
        [1] if queen.seed else []
    )


def test_rest_of_a_batch_is_not_blocked_by_a_dead_letter(queen: QueenApi) -> None:
    queen.configure("q", retryLimit=0)
    queen.push("q", *"12345")
    first, second, *rest = queen.pop("q", batch=5)
    assert queen.ack(first)["success"] is True
    assert queen.nack(second)["message"] == "failed_dlq"
    if queen.seed:
        assert [queen.ack(message)["leaseReleased"] for message in rest] == [False, False, True]
    else:
        assert bodies(queen.pop("q", batch=5)) == ["3", "4", "5"]


def test_release_by_a_dead_letter_is_told(queen: QueenApi) -> None:
    queen.configure("q", retryLimit=0)
    (message,) = popped(queen, "poison")
    answer = queen.nack(message)
    assert (answer["message"], answer["dlq"], answer["leaseReleased"]) == ("failed_dlq", True, True)
    assert queen.dead("q") == ["poison"]


def test_ack_without_a_lease_does_not_end_the_holders_batch(queen: QueenApi) -> None:
    lost, _ = popped(queen, "1", "2")
    queen.clock.advance(300)
    first, second = queen.pop("q", batch=2)
    assert queen.call("POST", "/api/v1/ack", unleased(lost, status="completed")).body["success"] is True
    repeated = queen.ack(first)
    assert (repeated["noop"], repeated["leaseReleased"]) == (True, False)
    assert queen.pop("q") == []
    assert queen.ack(second)["leaseReleased"] is True
    assert again(queen) == []


def test_ack_for_a_group_that_never_popped_is_refused(queen: QueenApi) -> None:
    (message,) = popped(queen, "1")
    answer = queen.call("POST", "/api/v1/ack", unleased(message, consumerGroup="stranger", status="completed")).body
    assert (answer["success"], answer["message"]) == (False, "not_found")
    assert bodies(queen.pop("q", "stranger")) == ["1"]


def test_retry_returns_the_message_without_spending_its_budget(queen: QueenApi) -> None:
    queen.configure("q", retryLimit=1)
    queen.push("q", "1", "2")
    for _ in range(3):
        first, *_ = found = queen.pop("q", batch=2)
        assert (first["data"], first["retryCount"]) == ("1", 0)
        answers = queen.ack_batch(*(named(message, status="retry") for message in found))
        assert {(answer["success"], answer["dlq"]) for answer in answers} == {(True, False)}
    first, second = queen.pop("q", batch=2)
    assert [queen.ack(message)["leaseReleased"] for message in (first, second)] == [False, True]
    assert again(queen) == []
