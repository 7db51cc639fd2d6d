"""What JetStream is told about a delivery, in its own words."""

from __future__ import annotations

import msgspec

from ackwise.core import limits
from ackwise.core.outcomes import Reject, Retry
from ackwise.core.settlement import Outcome
from ackwise.subscriber.handover import Ask, Undecodable

IN_PROGRESS = b"+WPI"
LONGEST_REASON = 1000


def answer(ask: Ask) -> bytes:
    """Made where it is asked for: what makes no sense is refused there, and whatever is sent later is sound."""
    match ask:
        case Outcome.ACK:
            return b"+ACK"
        case Undecodable():
            return _terminated(f"undecodable: {ask}")
        case Reject():
            return _terminated(str(ask.reason))
        case Retry() if ask.delay is not None and (micros := limits.micros(ask.delay, "delay")):
            return b"-NAK " + msgspec.json.encode({"delay": micros * 1000})
        case _:
            return b"-NAK"


def _terminated(reason: str) -> bytes:
    """With the text, which the advisory repeats."""
    text = " ".join(reason.split())[:LONGEST_REASON]
    return f"+TERM {text}".encode("utf-8", "replace")
