"""Graph: types, watches, consumer pools and dead letters of MEW, and a box that runs statements."""

from __future__ import annotations

import asyncio
import secrets
import time
from collections import deque
from collections.abc import AsyncIterator, Coroutine
from contextlib import aclosing
from typing import Any, TypeVar

import msgspec
from starlette.responses import Response, StreamingResponse

from ackwise.core.errors import BadInput
from ackwise.core.extras import missing
from ackwise.core.queries import Query
from ackwise.dashboard.request import PageRequest
from ackwise.dashboard.routes import CHANGE, READ, get, post
from ackwise.dashboard.statements import BoxLine, StatementAnswer, Statements, box_line
from ackwise.graph.overview import GraphStats, GraphTypeRow, ListGraphDead, ListGraphTypes, ListPools, ListWatches

A = TypeVar("A")

ROWS = 25
"""Rows of each list."""
MOST_EXAMPLE = 20
"""LIMIT of the statement that a type's link fills in."""
SHOWN_EVENTS = 50
SEND_EVERY = 0.25
"""Seconds between two messages of a stream: a watch may have thousands of events in a second."""
ALIVE_EVERY = 15.0
"""Seconds after which a stream without events sends a comment, so that no proxy closes it."""


async def show(page: PageRequest) -> Response:
    return await _page(page, text=page.query.get("text", ""))


async def run(page: PageRequest) -> Response:
    """Run the text of the box and show its answer below the box."""
    statements = _statements(page)
    text, session = page.form.get("text", ""), page.form.get("session", "")
    # Without a script the page has no stream, so the answer has the first events.
    with_events = not page.is_block
    work = statements.run(
        session, text, client=page.request.scope.get("client"), reads_only=not page.may(CHANGE), events=with_events
    )
    answer = await _unless_gone(page, work)
    return await _page(page, text=text, session=session, answer=answer)


async def events(page: PageRequest) -> Response:
    """Stream the newest events of the page's watches as blocks of HTML. The watches end with the stream."""
    return StreamingResponse(_stream(page, _statements(page)), media_type="text/event-stream")


async def _stream(page: PageRequest, statements: Statements) -> AsyncIterator[bytes]:
    newest: deque[BoxLine] = deque(maxlen=SHOWN_EVENTS)
    number = shown = 0
    sent_at = time.monotonic()
    yield b": open\n\n"
    source = statements.events(page.query.get("session", ""), client=page.request.scope.get("client"))
    async with aclosing(source) as lines:
        async for line in lines:
            if line is not None:
                number += 1
                newest.appendleft(box_line(line, number))
            waited = time.monotonic() - sent_at
            if number > shown and waited >= SEND_EVERY:
                yield _message("events", page.fragment("graph_events.html.j2", lines=newest, number=number))
                shown, sent_at = number, time.monotonic()
            elif waited >= ALIVE_EVERY:
                yield b": alive\n\n"
                sent_at = time.monotonic()
            if line is None and await page.request.is_disconnected():
                return
    yield _message("end", page.fragment("graph_ended.html.j2"))


def _message(event: str, text: str) -> bytes:
    """A message of server-sent events."""
    data = "".join(f"data: {line}\n" for line in text.splitlines() if line.strip())
    return f"event: {event}\n{data}\n".encode()


async def _page(
    page: PageRequest, *, text: str, session: str | None = None, answer: StatementAnswer | None = None
) -> Response:
    if page.dashboard.statements() is None:
        return page.render("graph_missing.html.j2", message=missing("mew", "the graph", "lark").message)
    return page.render(
        "graph.html.j2",
        totals=await _cached(page, GraphStats()),
        types=await _cached(page, ListGraphTypes(after=page.query.get("types", ""), limit=ROWS)),
        watches=await _cached(page, ListWatches(after=_place(page, "watches"), limit=ROWS)),
        pools=await _cached(page, ListPools(after=_place(page, "pools") or 0, limit=ROWS)),
        letters=await _cached(page, ListGraphDead(after=_place(page, "letters"), limit=ROWS)),
        example=example,
        text=text,
        session=session or f"page_{secrets.token_hex(16)}",
        answer=answer,
        lines=[] if answer is None else [box_line(line, number) for number, line in enumerate(answer.lines, 1)],
        streams="streaming" not in page.form and answer is not None and answer.watches and page.is_block,
    )


async def _cached(page: PageRequest, query: Query[A]) -> A:
    return await page.cached(msgspec.json.encode(query), query)


def _place(page: PageRequest, parameter: str) -> int | None:
    """The place of a list in the query string."""
    text = page.query.get(parameter, "")
    if not text:
        return None
    if not text.isascii() or not text.isdigit() or len(text) > 18:
        raise BadInput(f"{parameter} must be a number, not {text[:40]!r}")
    return int(text)


def example(row: GraphTypeRow) -> str:
    """A statement that shows some entities of a type. Empty for an alias."""
    match row.kind:
        case "node":
            return f"MATCH x: {row.name} RETURN x LIMIT {MOST_EXAMPLE}"
        case "edge":
            return f"MATCH {row.name}({', '.join(row.slots)}) AS e RETURN e LIMIT {MOST_EXAMPLE}"
        case _:
            return ""


def _statements(page: PageRequest) -> Statements:
    statements = page.dashboard.statements()
    if statements is None:
        raise missing("mew", "the statement box", "lark")
    return statements


async def _unless_gone(page: PageRequest, work: Coroutine[Any, Any, A]) -> A:
    """Run a statement. Cancels the statement if the browser disconnects."""
    task = asyncio.ensure_future(work)
    try:
        while not task.done():
            await asyncio.wait((task,), timeout=SEND_EVERY)
            if not task.done() and await page.request.is_disconnected():
                task.cancel()
        return await task
    finally:
        task.cancel()


ROUTES = (get("/graph", show), post("/graph", run, right=READ), get("/graph/events", events))
