"""What a session says: one object per line, the same in a file's output, over HTTP and in a stream of events.

In full a line has all that is needed to show it to somebody at the other end.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

from ackwise.core.graph.commands import Done, WatchEvent
from ackwise.core.graph.faults import GraphError

Object = dict[str, Any]


class Result(msgspec.Struct):
    """A statement that worked."""

    n: int
    line: int
    statement: str
    done: Done
    handle: str | None = None

    def as_object(self, *, full: bool = False) -> Object:
        done = self.done
        found: Object = {
            "kind": "result",
            "n": self.n,
            "line": self.line,
            "statement": self.statement,
            "created": done.created,
            "linked": done.linked,
            "modified": done.modified,
            "deleted": done.deleted,
            "unlinked": done.unlinked,
            "bindings": done.bindings,
            "columns": done.columns,
            "rows": done.rows,
            "handle": self.handle,
        }
        if done.declared:
            found["declared"] = done.declared
        if full and done.handle is not None:
            found["id"] = done.handle
        if done.found is not None:
            found["found"] = done.found
        if done.delivery_id is not None:
            found |= {
                "delivery_id": done.delivery_id,
                "outcome": done.outcome,
                "attempts": done.attempts,
                "reason": done.reason,
            }
            if full:
                found |= {"failures": done.failures, "limit": done.limit}
        return found

    @property
    def records(self) -> list[Object]:
        """Rows by column."""
        return [dict(zip(self.done.columns, row, strict=True)) for row in self.done.rows]


class Event(msgspec.Struct):
    """Something happened to what a watch looks at. `watch` is its handle."""

    watch: str
    type: str
    tick: int
    match: Object | None = None
    matches: list[Object] | None = None
    prev: Object | None = None
    delivery_id: str | None = None
    attempt: int | None = None
    failures: int | None = None
    limit: int | None = None

    def as_object(self, *, full: bool = False) -> Object:
        found: Object = {"kind": "event", "watch": self.watch, "type": self.type}
        if self.type == "initial":
            return found | {"matches": self.matches or [], "tick": self.tick}
        found["match"] = self.match
        if self.type == "changed":
            found["prev"] = self.prev
        if self.type == "consumed":
            found["delivery_id"] = self.delivery_id
        found["tick"] = self.tick
        if self.type == "consumed":
            found["attempt"] = self.attempt
            if full:
                found |= {"failures": self.failures, "limit": self.limit}
        return found


class Note(msgspec.Struct):
    """An error, or a notice that nobody asked for."""

    kind: str
    code: str
    name: str
    message: str
    line: int = 0
    column: int = 0
    watch: str | None = None
    delivery_id: str | None = None
    hint: str = ""
    source: str = ""

    def as_object(self, *, full: bool = False) -> Object:
        found: Object = {
            "kind": self.kind,
            "code": self.code,
            "name": self.name,
            "message": self.message,
            "line": self.line,
            "column": self.column,
            "watch": self.watch,
            "delivery_id": self.delivery_id,
        }
        if self.hint:
            found["hint"] = self.hint
        if full and self.source:
            found["source"] = self.source
        return found


class Mark(msgspec.Struct):
    """A step of a file begins."""

    name: str

    def as_object(self, *, full: bool = False) -> Object:
        return {"kind": "step", "name": self.name}


class Said(msgspec.Struct):
    """Plain text for whoever reads along: the answer of a meta command."""

    text: str

    def as_object(self, *, full: bool = False) -> Object:
        return {"kind": "text", "text": self.text}


Line = Result | Event | Note | Mark | Said
Emit = Callable[[Line], object]


def drop(line: Line) -> None:
    """For talks that say nothing of interest."""


def event_line(event: WatchEvent, shown: str) -> Event | Note:
    if event.kind == "notice":
        code, name, message = event.code or "", event.name or "", event.message or ""
        return Note("notice", code, name, message, watch=shown, delivery_id=event.delivery_id)
    return Event(
        shown,
        event.kind,
        event.tick,
        event.match,
        event.matches,
        event.prev,
        event.delivery_id,
        event.attempt,
        event.failures,
        event.limit,
    )


def error_line(error: GraphError, above: int = 0) -> Note:
    """`above` lines stand before the text the error counts from."""
    line, column = error.at
    return Note(
        "error",
        error.word,
        error.name,
        error.message,
        line + above if line else 0,
        column,
        delivery_id=error.details.get("delivery_id"),
        hint=error.hint,
        source=error.details.get("source", ""),
    )


def error_from(line: Note) -> GraphError:
    """The error that a line tells of."""
    error = GraphError(line.code, line.message, name=line.name, at=(line.line, line.column))
    error.hint = line.hint
    if line.delivery_id is not None:
        error.details["delivery_id"] = line.delivery_id
    return error


def line_from(found: Object) -> Line:
    """A line as it came over the wire."""
    match found["kind"]:
        case "result":
            fields = {name: found[name] for name in Done.__struct_fields__ if name in found}
            fields["handle"] = found.get("id")
            return Result(found["n"], found["line"], found["statement"], Done(**fields), found["handle"])
        case "event":
            return Event(**{name: value for name, value in found.items() if name != "kind"})
        case "step":
            return Mark(found["name"])
        case "text":
            return Said(found["text"])
        case _:
            return Note(**found)
