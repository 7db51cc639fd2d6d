"""A batch in which a message failed: in seed mode its lease stays until it is settled, released or expires."""

from __future__ import annotations

import pytest

from tests.protocols.queen.queen_api import Message, QueenApi, bodies, named


def ack(queen: QueenApi, message: Message, status: str, error: str | None = None) -> Message:
    """As an SDK does: with every key."""
    sent = named(message, status=status, error=error, consumerGroup=None)
    _, (answer,) = queen.call("POST", "/api/v1/ack", sent)
    found: Message = answer
    return found


@pytest.mark.parametrize("autopilot", [{}, {"autopilot": "true"}], ids=["plain", "autopilot"])
def test_nack_with_text_keeps_the_lease(queen: QueenApi, autopilot: dict[str, str]) -> None:
    queen.push("q", 0, 1, 2, 3, 4)
    held = queen.pop("q", batch=5, **autopilot)
    assert ack(queen, held[0], "completed")["message"] == "acknowledged"
    failed = ack(queen, held[1], "failed", "no")
    assert (failed["message"], failed["leaseReleased"]) == ("failed_retry", False)
    assert queen.pop("q", batch=5, **autopilot) == []
    assert [ack(queen, message, "completed")["message"] for message in held[2:]] == ["acknowledged"] * 3
    assert bodies(queen.pop("q", batch=5)) == [1]


def test_nack_said_twice_keeps_the_lease(queen: QueenApi) -> None:
    queen.push("q", 0, 1)
    held = queen.pop("q", batch=2)
    assert ack(queen, held[0], "failed", "no")["message"] == "failed_retry"
    assert ack(queen, held[0], "failed", "no")["message"] == "invalid_lease"
    assert queen.pop("q", batch=2) == []
    assert ack(queen, held[1], "completed")["message"] == "acknowledged"


def test_expired_lease_gives_the_rest_back(queen: QueenApi) -> None:
    queen.push("q", 0, 1, 2)
    held = queen.pop("q", batch=3)
    ack(queen, held[0], "failed", "no")
    queen.clock.advance(300)
    again = queen.pop("q", batch=3)
    assert [(message["data"], message["retryCount"]) for message in again] == [(0, 1), (1, 1), (2, 1)]
    assert ack(queen, held[1], "completed")["message"] == "invalid_lease"


@pytest.mark.parametrize("mode", ["upstream"])
def test_nack_in_upstream_mode_gives_the_rest_back(queen: QueenApi) -> None:
    queen.push("q", 0, 1, 2)
    held = queen.pop("q", batch=3)
    assert ack(queen, held[0], "failed", "no")["leaseReleased"] is True
    again = queen.pop("q", batch=3)
    assert [(message["data"], message["retryCount"]) for message in again] == [(0, 1), (1, 0), (2, 0)]


@pytest.mark.parametrize("mode", ["upstream"])
def test_autopilot_nack_in_upstream_mode_releases(queen: QueenApi) -> None:
    queen.push("q", 0, 1, 2)
    held = queen.pop("q", batch=3, autopilot="true")
    assert ack(queen, held[1], "failed", "no")["leaseReleased"] is True
    assert bodies(queen.pop("q", batch=3)) == [0, 1, 2]
