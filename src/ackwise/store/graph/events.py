"""Events of watches: appended in the commit that causes them, kept within each watch's buffer."""

from __future__ import annotations

from typing import Any

import msgspec

from ackwise.core.graph import faults
from ackwise.core.graph.faults import GraphError
from ackwise.core.graph.watching import WatchSpec
from ackwise.store.graph.standing import spec_from
from ackwise.store.graph.writing import Graph
from ackwise.store.session import Row

_SMALL = 64
"""Buffers up to this size are kept exact; larger ones are pruned now and then."""
_NOW_AND_THEN = 32


class WatchRow(msgspec.Struct):
    """A watch as stored: events up to `head`, delivered up to `sent`; `held` deliveries are not settled."""

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

    @property
    def shown(self) -> str:
        return "#" + self.id

    @property
    def unsent(self) -> int:
        return self.head - max(self.sent, self.head - self.spec.buffer)


def watch_from(row: Row) -> WatchRow:
    no, found, session, pool, status, spec, head, sent, delivered, held, last = row
    return WatchRow(no, found, session, pool, status, spec_from(spec), head, sent, delivered, held, last)


def watch(graph: Graph, no: int) -> WatchRow | None:
    row = graph.session.row("mew_watch_get", {"no": no})
    return watch_from(row) if row else None


def append(
    graph: Graph,
    to: WatchRow,
    kind: str,
    body: dict[str, Any],
    delivery_id: str | None = None,
    lease: int | None = None,
) -> None:
    """One more event; `save` writes the watch's counts."""
    to.head += 1
    graph.session.run(
        "mew_event_insert",
        {
            "watch": to.no,
            "position": to.head,
            "kind": kind,
            "tick": graph.tick,
            "delivery_id": delivery_id,
            "lease": lease,
            "created_at": graph.turn.now,
            "body": msgspec.json.encode(body).decode(),
        },
    )
    to.last_event_at = graph.turn.now
    if to.head > to.spec.buffer and (to.spec.buffer <= _SMALL or to.head % _NOW_AND_THEN == 0):
        upto = to.head - to.spec.buffer
        if to.spec.on_full == "block":
            upto = min(upto, to.sent)
        graph.session.run("mew_events_prune", {"watch": to.no, "upto": upto})


def save(graph: Graph, row: WatchRow) -> None:
    graph.session.run(
        "mew_watch_count",
        {
            "no": row.no,
            "head": row.head,
            "sent": row.sent,
            "delivered": row.delivered,
            "held": row.held,
            "last_event_at": row.last_event_at,
        },
    )


def notice(graph: Graph, to: WatchRow, error: GraphError) -> None:
    """Something that is not an answer to anybody, on the stream of the watch it is about."""
    body = {"code": error.word, "name": error.name, "message": error.message}
    append(graph, to, "notice", body, error.details.get("delivery_id"))
    save(graph, to)
    ring(graph, to)


def ring(graph: Graph, row: WatchRow) -> None:
    """Tell whoever listens that the watch has something to fetch."""
    graph.turn.wake(f"mew:{row.session}", 1)
    graph.turn.announce(f"mew:{row.session}")


def tell(graph: Graph, no: int, events: list[tuple[str, dict[str, Any], dict[str, Any] | None]]) -> bool:
    """Events for a watch of mode watch. False when its buffer is full and it is to be cancelled for that."""
    row = watch(graph, no)
    if row is None or row.status == "cancelled" or not events:
        return True
    # One commit may be larger than the buffer: it passes when nothing waits before it.
    full = row.unsent > 0 and row.unsent + len(events) > row.spec.buffer
    if full and row.spec.on_full == "block" and not graph.unasked:
        raise faults.buffer_blocked(row.shown)
    for kind, match, prev in events:
        if row.spec.on_full == "error" and row.unsent >= row.spec.buffer:
            return False
        graph.check()
        append(graph, row, kind, {"match": match} if prev is None else {"match": match, "prev": prev})
    save(graph, row)
    ring(graph, row)
    return True
