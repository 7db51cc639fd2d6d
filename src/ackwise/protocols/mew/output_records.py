"""Output lines of a session: results, events, errors, notices, steps and texts.

`as_object` is the line as JSON. With `full` it has the further fields that a remote prompt shows.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

from ackwise.graph.commands import Done, WatchEvent
from ackwise.graph.errors import GraphError

Object = dict[str, Any]


class Result(msgspec.Struct):
    """Line of a statement that succeeded."""

    n: int
    line: int
    statement: str
    done: Done
    handle: str | None = None

    def as_object(self, *, full: bool = False) -> Object:
        done = self.done
        record: Object = {
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
            record["declared"] = done.declared
        if full and done.handle is not None:
            record["id"] = done.handle
        if done.found is not None:
            record["found"] = done.found
        if done.delivery_id is not None:
            record |= {
                "delivery_id": done.delivery_id,
                "outcome": done.outcome,
                "attempts": done.attempts,
                "reason": done.reason,
            }
            if full:
                record |= {"failures": done.failures, "limit": done.limit}
        return record

    @property
    def records(self) -> list[Object]:
        """The rows as dictionaries by column."""
        return [dict(zip(self.done.columns, row, strict=True)) for row in self.done.rows]


class EventRecord(msgspec.Struct):
    """Line of an event. `watch` is the handle of its watch."""

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
        record: Object = {"kind": "event", "watch": self.watch, "type": self.type}
        if self.type == "initial":
            return record | {"matches": self.matches or [], "tick": self.tick}
        record["match"] = self.match
        if self.type == "changed":
            record["prev"] = self.prev
        if self.type == "consumed":
            record["delivery_id"] = self.delivery_id
        record["tick"] = self.tick
        if self.type == "consumed":
            record["attempt"] = self.attempt
            if full:
                record |= {"failures": self.failures, "limit": self.limit}
        return record


class Note(msgspec.Struct):
    """Line of an error or of a notice."""

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
        record: Object = {
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
            record["hint"] = self.hint
        if full and self.source:
            record["source"] = self.source
        return record


class StepLine(msgspec.Struct):
    """Line at the beginning of a step in a file."""

    name: str

    def as_object(self, *, full: bool = False) -> Object:
        return {"kind": "step", "name": self.name}


class TextLine(msgspec.Struct):
    """Line of plain text: the answer of a meta command."""

    text: str

    def as_object(self, *, full: bool = False) -> Object:
        return {"kind": "text", "text": self.text}


Line = Result | EventRecord | Note | StepLine | TextLine
Emit = Callable[[Line], object]


def drop(line: Line) -> None:
    """Ignore a line."""


def event_line(event: WatchEvent, handle: str) -> EventRecord | Note:
    """The line of an event or notice. `handle` is the handle of its watch."""
    if event.kind == "notice":
        code, name, message = event.code or "", event.name or "", event.message or ""
        return Note("notice", code, name, message, watch=handle, delivery_id=event.delivery_id)
    return EventRecord(
        handle,
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
    """The line of an error. `above` is the number of lines before the text that was parsed."""
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
    """The error of an error line."""
    error = GraphError(line.code, line.message, name=line.name, at=(line.line, line.column))
    error.hint = line.hint
    if line.delivery_id is not None:
        error.details["delivery_id"] = line.delivery_id
    return error


def line_from(record: Object) -> Line:
    """Decode a line that came over the wire."""
    match record["kind"]:
        case "result":
            fields = {name: record[name] for name in Done.__struct_fields__ if name in record}
            fields["handle"] = record.get("id")
            return Result(record["n"], record["line"], record["statement"], Done(**fields), record["handle"])
        case "event":
            return EventRecord(**{name: value for name, value in record.items() if name != "kind"})
        case "step":
            return StepLine(record["name"])
        case "text":
            return TextLine(record["text"])
        case _:
            return Note(**record)
