"""What a plain pop raises while somebody holds the queue's lock."""

from __future__ import annotations

from ackwise.core.errors import Conflict


class QueueLocked(Conflict):
    """Queue is locked pending acknowledgement"""

    code = "queue_locked"

    def __init__(self, lock_expires_at: float) -> None:
        super().__init__(lock_expires_at=lock_expires_at)
        self.lock_expires_at = lock_expires_at
