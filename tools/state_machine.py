"""Write docs/state_machine.md from the table in ackwise.core.lifecycle. Usage: tools/state_machine.py [--check]"""

import sys
from pathlib import Path

from ackwise.core.lifecycle import LifecycleEvent, State, mermaid

PAGE = Path(__file__).resolve().parent.parent / "docs" / "state_machine.md"

STATES = {
    State.SCHEDULED: "pushed with a delay. It waits outside its lane and has no seq yet",
    State.READY: "in its lane and claimable. It was never delivered to this group, or it was returned and is due",
    State.WAITING: "returned and not due yet. When it is due, it is delivered again at the front of its lane",
    State.LEASED: "held by one lease until it is settled or the lease expires",
    State.ACKED: "done. Only a seek delivers it to this group again",
    State.DEAD: (
        "failed, and not delivered again. Its dead letter has the reason. Only a redrive, a replay or a seek brings it "
        "back"
    ),
    State.EXPIRED: "dropped without a dead letter: it was too old, or dead letters are off",
    State.SKIPPED: "a seek or a purge of the queue moved the group past it",
}

EVENTS = {
    LifecycleEvent.DUE: "the delay of the message, or the wait before its retry, is over",
    LifecycleEvent.CLAIM: (
        "a consumer takes the message under a lease. This counts a delivery, except for a settlement without a lease"
    ),
    LifecycleEvent.AUTO_ACK: "a consumer takes the message without a lease",
    LifecycleEvent.ADVANCE: "the group reads the message without a claim",
    LifecycleEvent.ACK: "the consumer reports success",
    LifecycleEvent.RETRY: "the consumer reports a failure, and the engine counts it",
    LifecycleEvent.LEASE_EXPIRY: (
        "the deadline of the lease passes, and the engine counts a failure. The failure is final only for a message "
        "that was alone in its lease"
    ),
    LifecycleEvent.RELEASE: "the consumer returns the message without a result. A release costs no failure",
    LifecycleEvent.REJECT: "the consumer reports that the message can never succeed",
    LifecycleEvent.MAX_WAIT: "the message waits longer than the queue allows",
    LifecycleEvent.RETENTION: "retention removes the message from the log",
    LifecycleEvent.SEEK: (
        "an operator moves the group to another position. A purge of the queue moves it behind the purged messages"
    ),
    LifecycleEvent.REDRIVE: "an operator puts the dead letter back at its old place",
}


def page() -> str:
    """The whole document."""
    states = [f"- **{state.value}**: {STATES[state]}." for state in State]
    events = [f"- `{event.value}`: {EVENTS[event]}." for event in LifecycleEvent]
    parts = [
        "# The states of a message",
        "For readers who want to know what can happen to a message. The diagram shows one message for one group. "
        "`tools/state_machine.py` generates this page from `ackwise.core.lifecycle`.",
        f"```mermaid\n{mermaid()}\n```",
        "## States",
        "\n".join(states),
        "## Events",
        "\n".join(events),
        "Next: [the glossary](glossary.md).",
    ]
    return "\n\n".join(parts) + "\n"


def main() -> int:
    if "--check" in sys.argv[1:]:
        return int(not PAGE.exists() or PAGE.read_text() != page())
    PAGE.parent.mkdir(exist_ok=True)
    PAGE.write_text(page())
    return 0


if __name__ == "__main__":
    sys.exit(main())
