"""Expires deliveries past their deadline, before the first graph command of a turn."""

from __future__ import annotations

from ackwise.engine.turn import Turn, lease_from
from ackwise.graph.engine import settlements
from ackwise.graph.engine.change_publication import finish
from ackwise.graph.engine.entities import Graph

AT_ONCE = 200
"""Deliveries that one turn expires."""


class _Expired:
    """Whether a turn has expired all deliveries that are due."""

    def __init__(self) -> None:
        self.all = False


def expire_due(turn: Turn, limit: int = AT_ONCE) -> int:
    """Expire deliveries past their deadline. Each turn does this before its first graph command."""
    expired = turn.state(_Expired)
    if expired.all:
        return 0
    rows = turn.session.rows("mew_leases_expired", {"now": turn.now, "limit": limit})
    expired.all = len(rows) < limit
    for row in rows:
        graph = Graph(turn, background=True)
        settlements.expire(graph, turn.lease(row[0]) or lease_from(row))
        finish(graph)
    return len(rows)
