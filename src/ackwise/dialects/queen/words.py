"""Queen's words for ours: policies, instants, and who is a member of a group."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from typing import Literal

import msgspec

from ackwise.core.commands import Claim
from ackwise.core.errors import BadInput
from ackwise.core.limits import MICROS
from ackwise.core.native import instants
from ackwise.core.policy import QueuePolicy
from ackwise.dialects.http import with_plus
from ackwise.dialects.queen.delivered import Delivered
from ackwise.dialects.queen.members import Members

_SEED = QueuePolicy(lease_seconds=300.0, exclusivity="partition", completed_retention_seconds=None)
_UPSTREAM = msgspec.structs.replace(
    _SEED, retry_counting="retries", expiry_counts=False, on_failure="rewind", delivery_limit=None
)
_UPSTREAM_PUSHED = msgspec.structs.replace(_UPSTREAM, lease_seconds=60.0)
MOST_SEEN = 10_000
TRACE = "traceId"
"""The header that keeps a message's trace id."""
_DATE = re.compile(r"\d{4}-\d\d-\d\d")
_EPOCH = instants.EPOCH


class Words:
    """How this server understands Queen's words."""

    def __init__(self, *, upstream: bool = False, start: Literal["all", "new"] = "all") -> None:
        self.upstream = upstream
        """Answers and counts of the official server, where they differ from the seed's."""
        self.start = start
        """Where a new group begins that does not say."""
        self.members = Members()
        self.delivered = Delivered()
        self._first_seen: dict[tuple[str | None, str | None, str], int] = {}

    def first_seen(self, claim: Claim, now: int) -> int:
        """When a group first asked for what is new in a namespace or task."""
        if len(self._first_seen) >= MOST_SEEN:
            self._first_seen.clear()
        return self._first_seen.setdefault((claim.namespace, claim.task, claim.group), now)

    def policy(self, *, pushed: bool = False) -> QueuePolicy:
        """The policy of a queue that this face makes. Upstream gives a queue that a push makes a shorter lease."""
        if not self.upstream:
            return _SEED
        return _UPSTREAM_PUSHED if pushed else _UPSTREAM


# instants


show_time = instants.text_or_none
"""`2026-11-15T18:47:13.668185Z`."""


def parse_time(text: object, what: str, *, end_of_day: bool = False) -> int:
    """Microseconds since 1970 of an ISO instant, UTC where no zone is given. `end_of_day`: a date means all of it."""
    if not isinstance(text, str):
        raise BadInput(f"{what} must be an ISO timestamp, not {type(text).__name__}")
    try:
        moment = datetime.fromisoformat(with_plus(text.strip()) if "T" in text else text.strip())
    except ValueError:
        raise BadInput(f"{what} is not an ISO timestamp: {text!r:.60}") from None
    moment = moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)
    micros = (moment - _EPOCH) // timedelta(microseconds=1)
    if end_of_day and _DATE.fullmatch(text.strip()):
        micros += 24 * 3600 * MICROS - 1
    return instants.within(micros, what)
