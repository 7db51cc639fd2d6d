"""State machine of a message for a group, as one table."""

from __future__ import annotations

from enum import StrEnum
from typing import NamedTuple


class State(StrEnum):
    """State of a message for a group."""

    SCHEDULED = "scheduled"
    READY = "ready"
    WAITING = "waiting"
    LEASED = "leased"
    ACKED = "acked"
    DEAD = "dead"
    EXPIRED = "expired"
    SKIPPED = "skipped"


class LifecycleEvent(StrEnum):
    """Event in the life of a message."""

    DUE = "due"
    CLAIM = "claim"
    AUTO_ACK = "auto_ack"
    ADVANCE = "advance"
    ACK = "ack"
    RETRY = "retry"
    LEASE_EXPIRY = "lease_expiry"
    RELEASE = "release"
    REJECT = "reject"
    MAX_WAIT = "max_wait"
    RETENTION = "retention"
    SEEK = "seek"
    REDRIVE = "redrive"


class Guard(StrEnum):
    """Condition that selects the transition of an event."""

    ALWAYS = "always"
    AGAIN = "attempts left"
    FINAL = "limit reached"
    FINAL_DROPPED = "limit reached, dead letters off"
    KEPT = "dead letters on"
    DROPPED = "dead letters off"
    AHEAD = "target is at or before it"
    BEHIND = "target is after it"
    UNREAD = "never delivered"
    UNHELD = "settled without a lease"


class Transition(NamedTuple):
    source: State
    event: LifecycleEvent
    guard: Guard
    target: State


_STORED = tuple(state for state in State if state is not State.SCHEDULED)

TRANSITIONS: tuple[Transition, ...] = (
    Transition(State.SCHEDULED, LifecycleEvent.DUE, Guard.ALWAYS, State.READY),
    Transition(State.WAITING, LifecycleEvent.DUE, Guard.ALWAYS, State.READY),
    Transition(State.READY, LifecycleEvent.CLAIM, Guard.ALWAYS, State.LEASED),
    Transition(State.WAITING, LifecycleEvent.CLAIM, Guard.UNHELD, State.LEASED),
    Transition(State.READY, LifecycleEvent.AUTO_ACK, Guard.ALWAYS, State.ACKED),
    Transition(State.READY, LifecycleEvent.ADVANCE, Guard.UNREAD, State.ACKED),
    Transition(State.LEASED, LifecycleEvent.ACK, Guard.ALWAYS, State.ACKED),
    Transition(State.LEASED, LifecycleEvent.RETRY, Guard.AGAIN, State.WAITING),
    Transition(State.LEASED, LifecycleEvent.RETRY, Guard.FINAL, State.DEAD),
    Transition(State.LEASED, LifecycleEvent.RETRY, Guard.FINAL_DROPPED, State.EXPIRED),
    Transition(State.LEASED, LifecycleEvent.LEASE_EXPIRY, Guard.AGAIN, State.WAITING),
    Transition(State.LEASED, LifecycleEvent.LEASE_EXPIRY, Guard.FINAL, State.DEAD),
    Transition(State.LEASED, LifecycleEvent.LEASE_EXPIRY, Guard.FINAL_DROPPED, State.EXPIRED),
    Transition(State.LEASED, LifecycleEvent.RELEASE, Guard.ALWAYS, State.WAITING),
    Transition(State.LEASED, LifecycleEvent.REJECT, Guard.KEPT, State.DEAD),
    Transition(State.LEASED, LifecycleEvent.REJECT, Guard.DROPPED, State.EXPIRED),
    Transition(State.READY, LifecycleEvent.MAX_WAIT, Guard.KEPT, State.DEAD),
    Transition(State.READY, LifecycleEvent.MAX_WAIT, Guard.DROPPED, State.EXPIRED),
    Transition(State.WAITING, LifecycleEvent.MAX_WAIT, Guard.KEPT, State.DEAD),
    Transition(State.WAITING, LifecycleEvent.MAX_WAIT, Guard.DROPPED, State.EXPIRED),
    Transition(State.READY, LifecycleEvent.RETENTION, Guard.UNREAD, State.EXPIRED),
    Transition(State.DEAD, LifecycleEvent.REDRIVE, Guard.ALWAYS, State.READY),
    Transition(State.SKIPPED, LifecycleEvent.REDRIVE, Guard.ALWAYS, State.READY),
    *(
        Transition(state, LifecycleEvent.SEEK, Guard.AHEAD, State.READY)
        for state in _STORED
        if state is not State.READY
    ),
    *(
        Transition(state, LifecycleEvent.SEEK, Guard.BEHIND, State.SKIPPED)
        for state in _STORED
        if state is not State.SKIPPED
    ),
)

_TARGETS = {(source, event, guard): target for source, event, guard, target in TRANSITIONS}


def target(source: State, event: LifecycleEvent, guard: Guard = Guard.ALWAYS) -> State:
    """The next state. KeyError if the table has no such transition: a bug in the caller."""
    return _TARGETS[source, event, guard]


def allows(source: State, event: LifecycleEvent, guard: Guard = Guard.ALWAYS) -> bool:
    """Whether the table has this transition."""
    return (source, event, guard) in _TARGETS


def targets(event: LifecycleEvent, guard: Guard = Guard.ALWAYS) -> set[State]:
    """All states that an event leads to, for code that moves messages without looking at their states."""
    return {row.target for row in TRANSITIONS if (row.event, row.guard) == (event, guard)}


def mermaid() -> str:
    """The table as a Mermaid state diagram."""
    lines = ["stateDiagram-v2", "    [*] --> scheduled: push with delay", "    [*] --> ready: push"]
    for source, event, guard, end in TRANSITIONS:
        label = event.value if guard is Guard.ALWAYS else f"{event.value} ({guard.value})"
        lines.append(f"    {source.value} --> {end.value}: {label}")
    return "\n".join(lines)
