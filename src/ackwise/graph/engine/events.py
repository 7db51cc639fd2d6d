"""Event buffers of watches: a commit appends the events that it causes."""

from __future__ import annotations

from typing import Any

import msgspec

from ackwise.engine.ports import Row
from ackwise.graph import errors
from ackwise.graph.engine.entities import Graph
from ackwise.graph.engine.watch_index import spec_from
from ackwise.graph.errors import GraphError
from ackwise.graph.watch_options import WatchSpec

_SMALL = 64
"""Buffers up to this size are pruned at every event, larger ones at every `_PRUNE_EVERY`th."""
_PRUNE_EVERY = 32


class WatchRow(msgspec.Struct):
    """A watch as stored: it has events up to `head`, sent up to `sent`, and `held` unsettled deliveries."""

    no: int
    id: str
    session: int
    pool: int | None
    status: str
    spec: WatchSpec
    head: int
    sent: int
    delivered: int
    held: int
    last_event_at: int | None
    served: int = 0
    """The number of its latest turn among the members of its group."""
    waits_from: int | None = None
    """When it last asked for an item and got none. None: it does not wait."""

    @property
    def handle(self) -> str:
        return "#" + self.id

    @property
    def unsent(self) -> int:
        return self.head - max(self.sent, self.head - self.spec.buffer)


def watch_from(row: Row) -> WatchRow:
    no, watch_id, session, pool, status, spec, *counts = row
    return WatchRow(no, watch_id, session, pool, status, spec_from(spec), *counts)


def watch_of(graph: Graph, no: int) -> WatchRow | None:
    row = graph.session.row("mew_watch_get", {"no": no})
    return watch_from(row) if row else None


def size_of(body: dict[str, Any]) -> int:
    """Bytes of an event with this body."""
    return len(msgspec.json.encode(body))


def append(
    graph: Graph,
    row: WatchRow,
    kind: str,
    body: dict[str, Any],
    *,
    delivery_id: str | None = None,
    lease: int | None = None,
) -> int:
    """Append an event and return its size in bytes. Changes the counts of `row`. `save` writes them."""
    row.head += 1
    text = msgspec.json.encode(body)
    graph.session.run(
        "mew_event_insert",
        {
            "watch": row.no,
            "position": row.head,
            "kind": kind,
            "tick": graph.tick,
            "delivery_id": delivery_id,
            "lease": lease,
            "created_at": graph.turn.wall,
            "body": text.decode(),
        },
    )
    row.last_event_at = graph.turn.wall
    if row.head > row.spec.buffer and (row.spec.buffer <= _SMALL or row.head % _PRUNE_EVERY == 0):
        upto = row.head - row.spec.buffer
        if row.spec.on_full == "block":
            upto = min(upto, row.sent)
        graph.session.run("mew_events_prune", {"watch": row.no, "upto": upto})
    return len(text)


def save(graph: Graph, row: WatchRow) -> None:
    """Write the counts of a watch."""
    graph.session.run(
        "mew_watch_count",
        {
            "no": row.no,
            "head": row.head,
            "sent": row.sent,
            "delivered": row.delivered,
            "held": row.held,
            "last_event_at": row.last_event_at,
            "served": row.served,
            "waits_from": row.waits_from,
        },
    )


def notice(graph: Graph, row: WatchRow, error: GraphError) -> None:
    """Append an error that is not the answer of a statement to the stream of the watch that it concerns."""
    body = {"code": error.word, "name": error.name, "message": error.message}
    append(graph, row, "notice", body, delivery_id=error.details.get("delivery_id"))
    save(graph, row)
    wake(graph, row)


def wake(graph: Graph, row: WatchRow) -> None:
    """Wake the session of a watch: there may be something to fetch."""
    graph.turn.wake(f"mew:{row.session}", 1)
    graph.turn.announce(f"mew:{row.session}")


def append_changes(graph: Graph, no: int, events: list[tuple[str, dict[str, Any], dict[str, Any] | None]]) -> bool:
    """Append (kind, match, previous match) to a watch. Returns False if the buffer is full and `on_full` is error."""
    row = watch_of(graph, no)
    if row is None or row.status == "cancelled" or not events:
        return True
    # An empty buffer accepts a commit that is larger than the buffer.
    full = row.unsent > 0 and row.unsent + len(events) > row.spec.buffer
    if full and row.spec.on_full == "block" and not graph.background:
        raise errors.buffer_blocked(row.handle)
    for kind, match, prev in events:
        if row.spec.on_full == "error" and row.unsent >= row.spec.buffer:
            return False
        graph.check()
        append(graph, row, kind, {"match": match} if prev is None else {"match": match, "prev": prev})
    save(graph, row)
    wake(graph, row)
    return True
