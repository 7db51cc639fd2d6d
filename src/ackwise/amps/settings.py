"""The three settings of auto-ack; they outlive every reconnect."""

from __future__ import annotations

import math
from datetime import timedelta
from typing import TypeVar

from ackwise.core import limits
from ackwise.core.errors import BadInput
from ackwise.core.limits import Seconds

Self = TypeVar("Self", bound="AckSettings")


class AckSettings:
    """Setters that can be chained, and what they set."""

    def __init__(self) -> None:
        self._auto_ack = False
        self._ack_batch_size = 1
        self._ack_timeout = 1.0

    @property
    def auto_ack(self) -> bool:
        """Whether messages are acked when their handler is done with them. Off unless it was turned on."""
        return self._auto_ack

    @property
    def ack_batch_size(self) -> int:
        """How many bookmarks of one topic and subscription are gathered before they are sent; 1 unless set."""
        return self._ack_batch_size

    @property
    def ack_timeout(self) -> float:
        """Seconds that the oldest of them waits at most; 1 unless set, 0 when nothing is sent by time."""
        return self._ack_timeout

    def set_auto_ack(self: Self, on: bool) -> Self:
        self._auto_ack = bool(on)
        self._changed()
        return self

    def set_ack_batch_size(self: Self, size: int) -> Self:
        """0 means 1."""
        self._ack_batch_size = max(1, limits.count(size, "ack_batch_size", least=0))
        self._changed()
        return self

    def set_ack_timeout(self: Self, seconds: Seconds) -> Self:
        """0 or less turns the timer off."""
        value: object = seconds.total_seconds() if isinstance(seconds, timedelta) else seconds
        if isinstance(value, bool) or not isinstance(value, int | float) or math.isnan(value):
            raise BadInput("ack_timeout must be a number of seconds or a timedelta")
        if value > limits.MAX_DELAY_SECONDS:
            raise BadInput(f"ack_timeout is at most {limits.MAX_DELAY_SECONDS:.0f} seconds; 0 turns the timer off")
        self._ack_timeout = max(0.0, float(value))
        self._changed()
        return self

    def _changed(self) -> None:
        """For whoever acts on them."""
