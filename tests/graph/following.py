"""What a watch tells, added up, to be compared with what a MATCH finds."""

from __future__ import annotations

from collections import Counter

from ackwise.mew import Session
from tests.mew.prompt import Object


class Follower:
    """What one watch was told, added up."""

    def __init__(self) -> None:
        self.rows: Counter[str] = Counter()

    def hear(self, event: Object) -> None:
        match event["type"]:
            case "initial":
                self.rows.update(map(repr, event["matches"]))
            case "added":
                self.rows[repr(event["match"])] += 1
            case "removed":
                self.take(event["match"])
            case "changed":
                self.take(event["prev"])
                self.rows[repr(event["match"])] += 1

    def take(self, match: Object) -> None:
        assert self.rows[repr(match)] > 0, "something was removed that was not there"
        self.rows[repr(match)] -= 1
        self.rows += Counter()


def found(session: Session, pattern: str) -> Counter[str]:
    """What a MATCH finds, as a watch would show it."""
    result = session.run(f"MATCH {pattern}")[0]
    whole = len(result.done.columns) == 1 and result.done.columns[0] == "x"
    return Counter(repr(row["x"] if whole else row) for row in result.records)
