"""State of a group: one word that says whether consumers work on its messages."""

from __future__ import annotations

from ackwise.core.rows import GroupStats

STATES = {
    "caught up": ("good", "every message is finished"),
    "working": ("accent", "a consumer holds messages"),
    "waiting": ("neutral", "no message is claimable now, because of retries, delays or a pause"),
    "no consumer": ("warn", "messages are claimable, but no consumer holds any"),
}
"""Kind of the badge, and the meaning of the state."""


def group_state(stats: GroupStats) -> str:
    """The state of a group now."""
    if not stats.lag:
        return "caught up"
    if stats.leases:
        return "working"
    return "waiting" if stats.oldest_claimable_at is None else "no consumer"
