"""Handlers that keep their messages, for tests that settle them."""

from __future__ import annotations

from typing import Any

from ackwise.subscriber import App, Message
from ackwise.subscriber.testing import TestApp


def explicit(app: App, seen: list[Message[Any]], **options: Any) -> None:
    """A handler that only keeps the message."""

    @app.subscriber("q", **options)
    async def keep(msg: Message[int]) -> None:
        seen.append(msg)


async def attempts(test: TestApp, seen: list[Message[Any]], *waits: float) -> list[int]:
    for wait in waits:
        await test.advance(wait)
    return [msg.attempt for msg in seen]
