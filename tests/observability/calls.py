"""Short calls of the native API."""

from __future__ import annotations

import httpx2


def push(http: httpx2.Client, queue: str, count: int) -> None:
    body = {"queue": queue, "messages": [{"payload": number} for number in range(count)]}
    http.post("/v1/push", json=body).raise_for_status()


def claim(http: httpx2.Client, queue: str, most: int, group: str = "workers") -> list[str]:
    """Delivery ids of the claimed messages."""
    body = {"queue": queue, "group": group, "max": most, "lease_seconds": 30}
    answer = http.post("/v1/claim", json=body)
    answer.raise_for_status()
    return [message["delivery_id"] for message in answer.json()["messages"]]


def settle(http: httpx2.Client, outcome: str, *deliveries: str, error: str | None = None) -> list[str]:
    """The verdict of each settlement."""
    entries = [{"delivery_id": delivery, "outcome": outcome, "error": error} for delivery in deliveries]
    answer = http.post("/v1/settle", json={"entries": entries})
    answer.raise_for_status()
    return [verdict["verdict"] for verdict in answer.json()["verdicts"]]
