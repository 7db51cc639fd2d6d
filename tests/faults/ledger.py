"""What the killed broker had answered, and so what its store must still know."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import msgspec

NOTHING_CHANGED = frozenset(
    {"store_unavailable", "store_locked", "store_full", "rolled_back", "lease_lost", "overloaded"}
)


@dataclass
class Life:
    """One run of a broker from its start to its end, told by its lines."""

    pushed: dict[tuple[str, str], str] = field(default_factory=dict)
    """(queue, transaction id) to the message id that was answered."""
    acked: defaultdict[str, dict[str, int]] = field(default_factory=lambda: defaultdict(dict))
    """Per group: transaction id to the line that answered it."""
    dead: defaultdict[str, dict[str, int]] = field(default_factory=lambda: defaultdict(dict))
    open: dict[int, tuple[int, str, Any]] = field(default_factory=dict)
    """Operations that were asked and not answered: their line, kind and what they were about."""
    unknown: list[tuple[str, Any]] = field(default_factory=list)
    """Operations whose outcome is unknown."""
    refused: list[tuple[str, str, Any, str]] = field(default_factory=list)
    """Operations that failed and said that nothing was changed, with why."""
    answered: int = 0
    failed: Counter[str] = field(default_factory=Counter)
    problems: list[str] = field(default_factory=list)
    _lines: int = 0
    _rest: bytes = b""

    def hear(self, data: bytes) -> None:
        """Take what came down the pipe; a line that was cut off by the kill says nothing."""
        *lines, self._rest = (self._rest + data).split(b"\n")
        for line in lines:
            self._lines += 1
            self._line(msgspec.json.decode(line))

    def _line(self, line: list[Any]) -> None:
        match line:
            case ["ready"]:
                pass
            case ["s", int(number), str(kind), about]:
                self.open[number] = (self._lines, kind, about)
            case ["e", int(number), list(events)]:
                started, _, _ = self.open.pop(number)
                self.answered += 1
                for event in events:
                    self._event(started, event)
            case ["x", int(number), str(code), why]:
                _, kind, about = self.open.pop(number)
                self.failed[code] += 1
                if code == "outcome_unknown":
                    self.unknown.append((kind, about))
                elif code in NOTHING_CHANGED:
                    self.refused.append((code, kind, about, why))
                else:
                    self.problems.append(f"{kind} failed with {code}: {why}")
            case _:
                self.problems.append(f"the worker says {line}")

    def _event(self, started: int, event: list[Any]) -> None:
        match event:
            case ["pushed", str(queue), list(pairs)]:
                for txid, message_id in pairs:
                    if self.pushed.setdefault((queue, txid), message_id) != message_id:
                        self.problems.append(f"{queue}: {txid} was answered with two message ids")
            case ["handed", str(key), list(txids)]:
                for txid in txids:
                    for what in (self.acked, self.dead):
                        if what[key].get(txid, started) < started:
                            self.problems.append(f"{key}: {txid} was handed out after it was settled for good")
            case ["acked", str(key), list(txids)]:
                self.acked[key].update(dict.fromkeys(txids, self._lines))
            case ["dead", str(key), list(txids)]:
                self.dead[key].update(dict.fromkeys(txids, self._lines))

    @property
    def in_flight(self) -> int:
        return len(self.open)

    def end(self) -> None:
        """The process is gone: whatever was open may or may not have happened."""
        self.unknown += [(kind, about) for _, kind, about in self.open.values()]
        self.open.clear()

    def maybe_pushed(self) -> set[tuple[str, str]]:
        found = set()
        for kind, about in self.unknown:
            if kind == "push":
                found |= {(about[0], txid) for txid in about[1]}
            elif kind == "move":
                found |= {("jobs", txid) for txid in about[2]}
        return found - self.pushed.keys()

    def maybe_settled(self, key: str) -> set[str]:
        """Messages that an unanswered call may have settled."""
        found: set[str] = set()
        for kind, about in self.unknown:
            if kind.startswith("settle") and about[0] == key:
                found.update(txid for _, txids in about[1] for txid in txids)
            elif kind == "move" and about[0] == key:
                found.update(about[1])
        return found

    def maybe_taken(self, key: str) -> int:
        """How many messages unanswered auto-ack claims may have taken for good."""
        return sum(about[1] for kind, about in self.unknown if kind == "auto" and about[0] == key)

    def unanswered_moves(self) -> list[tuple[list[str], list[str]]]:
        return [(about[1], about[2]) for kind, about in self.unknown if kind == "move"]

    def explain(self, txids: set[str]) -> list[str]:
        """Refused operations that were about these messages."""
        return [f"{code} for {kind}: {why}" for code, kind, about, why in self.refused if txids & set(_strings(about))]


def _strings(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, list):
        for one in value:
            yield from _strings(one)
