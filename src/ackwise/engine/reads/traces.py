"""Traces of messages, and Queen's maintenance."""

from __future__ import annotations

from typing import Any

import msgspec

from ackwise.core import queen_queries as q
from ackwise.core.rows import MaintenanceState, Page, TraceName, TraceNames, TraceRow
from ackwise.engine import spool
from ackwise.engine.ports import Row, Session
from ackwise.engine.reads.queues import page
from ackwise.engine.reads.registry import Snapshot, answers

_LAST = 1 << 62
STATS_SECONDS = 2.0
"""Seconds after which the database stops a query for its own statistics."""


@answers(q.ListTraces)
def list_traces(snapshot: Snapshot, query: q.ListTraces) -> Page[TraceRow]:
    where = {"part_uuid": query.partition_id, "txid": query.transaction_id, "after": query.after, "limit": query.limit}
    return traces_from(snapshot.session, snapshot.session.rows("traces_of_message", where), query.limit)


@answers(q.ListNamedTraces)
def list_named_traces(snapshot: Snapshot, query: q.ListNamedTraces) -> Page[TraceRow]:
    below = _LAST if query.after is None else query.after
    where = {"name": query.name, "below": below, "limit": query.limit, "offset": query.offset}
    return traces_from(snapshot.session, snapshot.session.rows("traces_of_name", where), query.limit)


def traces_from(session: Session, rows: list[Row], limit: int) -> Page[TraceRow]:
    """The traces of rows, with their names."""
    traces = {row[0]: TraceRow(*row) for row in rows}
    if traces:
        for number, name in session.rows("trace_names_of", {"ids": msgspec.json.encode(list(traces)).decode()}):
            traces[number].names.append(name)
    return page(traces.values(), limit, lambda trace: trace.number)


@answers(q.CountNamedTraces)
def count_named_traces(snapshot: Snapshot, query: q.CountNamedTraces) -> int:
    row = snapshot.session.row("trace_name_count", {"name": query.name})
    return int(row[0]) if row is not None else 0


@answers(q.ListTraceNames)
def list_trace_names(snapshot: Snapshot, query: q.ListTraceNames) -> TraceNames:
    rows = snapshot.session.rows("trace_names_page", {"limit": query.limit, "offset": query.offset})
    total = snapshot.session.row("trace_names_count")
    return TraceNames([TraceName(*row) for row in rows], int(total[0]) if total is not None else 0)


@answers(q.GetMaintenance)
def get_maintenance(snapshot: Snapshot, query: q.GetMaintenance) -> MaintenanceState:
    session = snapshot.session
    switches = spool.switches(session)
    state = MaintenanceState(switches.push, switches.pop, spool.is_waiting(session))
    if query.counted:
        row = session.row("spool_counts")
        assert row is not None
        state.messages, state.failed, state.failed_bytes = map(int, row)
    return state


@answers(q.DatabaseStats)
def database_stats(snapshot: Snapshot, _: q.DatabaseStats) -> dict[str, Any]:
    session = snapshot.session
    session.savepoint(STATS_SECONDS)
    try:
        row = session.row("database_stats")
    except Exception as problem:
        if not session.stopped(problem):
            raise
        session.undo()
        return {}
    session.keep()
    stats: dict[str, Any] = msgspec.json.decode(row[0]) if row is not None else {}
    return stats
