"""Commands of MEW sessions besides their statements: open, end, release, fetch events; and the duties of the sweep."""

from __future__ import annotations

import time

from ackwise.core import validation
from ackwise.core.validation import MICROS
from ackwise.engine.statement_meter import WRITER_SECONDS, Meter, free_values
from ackwise.engine.turn import Turn
from ackwise.graph import errors
from ackwise.graph.commands import (
    Done,
    EndGraphSession,
    FetchedEvents,
    FetchGraph,
    OpenedSession,
    OpenGraphSession,
    ReleaseGraph,
    RestartClocks,
)
from ackwise.graph.engine import consumer_pools, settlements, watches
from ackwise.graph.engine.change_publication import finish
from ackwise.graph.engine.delivery_expiry import expire_due
from ackwise.graph.engine.entities import Graph
from ackwise.graph.engine.event_fetch import EventFetch
from ackwise.graph.engine.events import WatchRow, watch_from
from ackwise.graph.engine.step_runs import limit_error

ORPHANED_AFTER = 60 * MICROS
EVENTS_KEPT_FOR = WATCHES_KEPT_FOR = 7 * 24 * 3600 * MICROS
"""How long the events and the node of a cancelled watch stay."""
MOST_REMOVED = 200
"""Entities of old watches that one sweep removes."""
REMOVAL_SECONDS = 0.02
"""Seconds that one sweep removes them."""


def open_session(turn: Turn, command: OpenGraphSession) -> OpenedSession:
    validation.name(command.session, "session")
    return watches.opened(Graph(turn), command.session)


def end_session(turn: Turn, command: EndGraphSession) -> Done:
    expire_due(turn)
    graph = Graph(turn, background=True)
    ended = watches.end_session(graph, command.session, lost=command.lost, here=command.here)
    finish(graph)
    return Done(found=ended)


def release(turn: Turn, command: ReleaseGraph) -> Done:
    expire_due(turn)
    graph = Graph(turn, background=True)
    for delivery_id in command.deliveries:
        settlements.release_delivery(graph, delivery_id)
    finish(graph)
    return Done()


def restart_clocks(turn: Turn, command: RestartClocks) -> Done:
    expire_due(turn)
    graph = Graph(turn, background=True)
    for delivery_id in command.deliveries:
        settlements.restart_clock(graph, delivery_id)
    return Done()


def fetch(turn: Turn, command: FetchGraph) -> FetchedEvents:
    """Fetch events of a session's watches. A search for items that may take long runs under the writer's limits."""
    expire_due(turn)
    graph = Graph(turn, background=True)
    graph.tick = graph.state.tick
    rows = _watches_to_fetch(graph, command)
    if not any(row.pool is not None and row.status == "active" and _may_take_long(graph, row.pool) for row in rows):
        return _fetch(graph, command, rows)
    turn.savepoint(WRITER_SECONDS)
    graph.meter = Meter(seconds=WRITER_SECONDS, name="writer")
    try:
        fetched = _fetch(graph, command, rows)
    except BaseException as problem:
        turn.undo()
        refusal = limit_error(turn.session, problem)
        free_values(problem)
        if refusal is None:
            raise
        raise refusal from None
    turn.keep()
    return fetched


def _watches_to_fetch(graph: Graph, command: FetchGraph) -> list[WatchRow]:
    owner = graph.session.row("mew_session_by_id", {"id": command.session})
    stored = graph.session.rows("mew_watches_of_session", {"session": owner[0]}) if owner else []
    rows = [watch_from(row) for row in stored]
    if command.watch is None:
        return rows
    rows = [row for row in rows if row.id == command.watch.id]
    if not rows:
        watches.owned(graph, command.session, command.watch)
        raise errors.watch_not_found(command.watch.shown, command.watch.at, cannot="fetch from")
    return rows


def _may_take_long(graph: Graph, pool: int) -> bool:
    """Whether the pattern of a pool is more than one node."""
    query = consumer_pools.pool_of(graph, pool)
    return query is not None and not query.simple


def _fetch(graph: Graph, command: FetchGraph, rows: list[WatchRow]) -> FetchedEvents:
    fetched = EventFetch(graph, command).run(rows)
    finish(graph)
    return fetched


def sweep(turn: Turn, limit: int) -> int:
    """Time-driven duties of the graph.

    Expire deliveries, end sessions of dead brokers, remove old events and watches.
    """
    done = expire_due(turn, limit)
    where = {"own": turn.instance, "before": turn.now - ORPHANED_AFTER, "limit": limit}
    for no, _ in turn.session.rows("mew_sessions_orphaned", where):
        graph = Graph(turn, background=True)
        watches.abandon_session(graph, no)
        finish(graph)
        done += 1
    for (no,) in turn.session.rows("mew_watches_over", {"before": turn.wall - EVENTS_KEPT_FOR, "limit": limit}):
        done += turn.session.run("mew_events_expire", {"watch": no})
        turn.session.run("mew_watch_quiet", {"no": no})
    return done + _remove_old_watches(turn, min(limit, MOST_REMOVED))


def _remove_old_watches(turn: Turn, limit: int) -> int:
    """Remove about `limit` entities of watches that were cancelled long ago, for a few milliseconds."""
    turn.session.run("mew_watches_dated", {"now": turn.now, "limit": limit})
    left, end = limit, time.monotonic() + REMOVAL_SECONDS
    for no, session in turn.session.rows("mew_watches_old", {"before": turn.now - WATCHES_KEPT_FOR, "limit": limit}):
        if left <= 0 or time.monotonic() > end:
            break
        graph = Graph(turn, background=True)
        left -= watches.remove_cancelled(graph, no, session, left)
        finish(graph)
    return limit - left
