"""Formats output lines as text for a terminal."""

from __future__ import annotations

from typing import Any, assert_never

import msgspec

from ackwise.protocols.mew.output_records import EventRecord, Line, Note, Result, StepLine, TextLine

_COUNTS = ("created", "linked", "modified", "deleted", "unlinked")


def format_line(line: Line) -> str:
    match line:
        case Result():
            return _result(line)
        case EventRecord():
            return _event(line)
        case Note():
            return _note(line)
        case StepLine(name=name):
            return f"-- {name}"
        case TextLine(text=text):
            return text
        case _:
            assert_never(line)


def _result(line: Result) -> str:
    done = line.done
    if line.statement in ("MATCH", "INSPECT") and not any(getattr(done, name) for name in _COUNTS):
        return "not found" if done.found is False else table(done.columns, done.rows)
    words = [f"{count} {word}" for word, count in done.declared.items()]
    words += [f"{name} {getattr(done, name)}" for name in _COUNTS if getattr(done, name)]
    words += [f"{name} = #{entity_id}" for name, entity_id in done.bindings.items()]
    if line.handle is not None:
        words.append(f"watching as {line.handle}")
    if done.outcome is not None:
        words.insert(0, done.outcome.replace("_", "-"))
        words += [done.reason] if done.reason else []
        words.append(_attempt(done.attempts, done.failures, done.limit))
    text = f"ok {line.statement}" + (f": {', '.join(words)}" if words else "")
    return f"{text}\n{table(done.columns, done.rows)}" if done.columns else text


def _event(line: EventRecord) -> str:
    head = f"* {line.watch} {line.type}"
    match line.type:
        case "initial":
            return "\n".join([f"{head}: {len(line.matches or [])}", *(f"    {cell(m)}" for m in line.matches or [])])
        case "changed":
            return f"{head} {cell(line.match)}, before {cell(line.prev)}"
        case "consumed":
            attempt = _attempt(line.attempt, line.failures, line.limit)
            return f"{head} {cell(line.match)}\n    delivery {line.delivery_id}, {attempt}"
        case _:
            return f"{head} {cell(line.match)}"


def _attempt(deliveries: int | None, failures: int | None, limit: int | None) -> str:
    """The attempt and the limit of failures. Released deliveries do not count."""
    if failures is None or limit is None:
        return f"attempt {deliveries}"
    return f"attempt {failures + 1} of {limit}"


def _note(line: Note) -> str:
    numbered = line.code[:1] == "E" and line.code[1:].isdigit()
    named = line.message.startswith(line.name + ":")
    head = f"{line.code} {line.name}:" if numbered and not named else line.code + ("" if numbered else ":")
    where = f" (line {line.line}, column {line.column})" if line.line else ""
    watch = f"{line.watch} " if line.watch else ""
    text = f"{'error' if line.kind == 'error' else 'notice'} {watch}{head} {line.message}{where}"
    if line.source:
        text += f"\n    {line.source}\n    {' ' * (line.column - 1)}^"
    return f"{text}\n    {line.hint}" if line.hint else text


def cell(value: Any) -> str:
    """A value on one line."""
    if isinstance(value, str):
        return value
    return msgspec.json.encode(value).decode()


def table(columns: list[str], rows: list[list[Any]]) -> str:
    cells = [[cell(value) for value in row] for row in rows]
    widths = [max(map(len, column)) for column in zip(columns, *cells, strict=True)]
    lines = ["  ".join(text.ljust(width) for text, width in zip(row, widths, strict=True)) for row in (columns, *cells)]
    lines.insert(1, "  ".join("-" * width for width in widths))
    return "\n".join([line.rstrip() for line in lines] + [f"({len(rows)} row{'' if len(rows) == 1 else 's'})"])
