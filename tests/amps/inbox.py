"""Handlers for tests: they keep what they are given, and let the test wait for it."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

from ackwise.amps import Message
from tests.patience import PATIENCE


class Inbox:
    """Call it with messages. It fails on those in `fails`, and stays inside the handler while `hold` is clear."""

    def __init__(self, *fails: bytes) -> None:
        self._news = threading.Condition()
        self.messages: list[Message] = []
        self.fails = set(fails)
        self.hold = threading.Event()
        self.hold.set()

    def __call__(self, message: Any) -> None:
        with self._news:
            self.messages.append(message)
            self._news.notify_all()
        assert self.hold.wait(PATIENCE)
        if isinstance(message, Message) and message.data in self.fails:
            raise ValueError("this one fails")

    @property
    def bodies(self) -> list[bytes]:
        with self._news:
            return [message.data for message in self.messages]

    def until(self, count: int) -> list[Message]:
        return self.until_so(lambda: len(self.messages) >= count)

    def until_so(self, true: Callable[[], bool]) -> list[Message]:
        with self._news:
            assert self._news.wait_for(true, PATIENCE), self.messages
            return list(self.messages)
