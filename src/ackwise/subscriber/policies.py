"""Who settles a message, and when."""

from __future__ import annotations

from enum import StrEnum
from typing import Literal


class AckPolicy(StrEnum):
    """What the app does by itself for a handler that takes the payload alone."""

    ON_SUCCESS = "on_success"
    """Acked when the handler returns, retried when it raises."""
    MANUAL = "manual"
    """Nothing: the message stays with this app until its deadline, then it comes back."""
    FIRST = "first"
    """Acked when it is delivered: at most once."""


Undecodable = Literal["dead_letter", "nak"]
"""What becomes of a payload that nobody can read: trying again cannot help, so by default it is dead at once."""

CloudEvents = Literal["write", "require", "off"]
"""`write`: written by publishers, not asked for; `require`: a message without is undecodable; `off`: neither."""


def chosen(ack: AckPolicy | None, auto_ack: bool | None) -> AckPolicy | None:
    """The two spellings as one; None when neither was used."""
    if auto_ack is None:
        return None if ack is None else AckPolicy(ack)
    spelled = AckPolicy.ON_SUCCESS if auto_ack else AckPolicy.MANUAL
    if ack is not None and AckPolicy(ack) is not spelled:
        raise TypeError(f"ack={AckPolicy(ack)} and auto_ack={auto_ack} contradict each other; use one of them")
    return spelled
