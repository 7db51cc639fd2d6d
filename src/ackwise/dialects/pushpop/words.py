"""PushPop's words: what its queues promise, and the spellings of its ids and instants."""

from __future__ import annotations

import re
import secrets

from ackwise.core.errors import BadInput
from ackwise.core.limits import MICROS
from ackwise.core.policy import QueuePolicy
from ackwise.dialects.http import Call

DEFAULT_TTL = 30
SHORTEST_TTL, LONGEST_TTL = 1, 300
MOST_POPPED = 100
MOST_PUSHED = 1000
LONGEST_LOCK_ID = 128

POLICY = QueuePolicy(lease_seconds=DEFAULT_TTL, retry_limit=None, delivery_limit=None, exclusivity="queue")
"""A lock may run out any number of times: the item always returns."""

BAD_QUEUE_ID = "queue_id has 1 to 64 letters, digits, - and _"
LOCKED = "Queue is locked pending acknowledgement"
REQUIRED = "lock_id is required"
INVALID = "Invalid lock_id"
NOT_FOUND = "No active lock found"
EXPIRED = {"success": False, "message": "Lock has expired", "error_code": "LOCK_EXPIRED"}

_QUEUE_ID = re.compile(r"[A-Za-z0-9_-]{1,64}")


def is_queue_id(text: str) -> bool:
    return _QUEUE_ID.fullmatch(text) is not None


def queue_id(call: Call) -> str:
    """The queue that the path names."""
    text = call.params[0]
    if not is_queue_id(text):
        raise BadInput(BAD_QUEUE_ID)
    return text


def new_lock_id() -> str:
    """Eleven characters that nobody guesses."""
    return secrets.token_urlsafe(8)


def seconds(micros: int) -> float:
    """An instant or a duration as PushPop shows it."""
    return micros / MICROS
