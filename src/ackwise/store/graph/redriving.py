"""What becomes of an entity's deliveries when the entity itself, or what holds it, goes away."""

from __future__ import annotations

from ackwise.store.graph.writing import Graph


def gone(graph: Graph, no: int) -> None:
    """The entity is no more: nobody is handed it, but whoever holds it may still say so."""
    graph.session.run("mew_items_gone", {"entity": no})
    row = graph.session.row("mew_delivery_get", {"entity": no})
    if row is not None and row[1] is None:
        graph.session.run("mew_delivery_delete", {"entity": no})


def redrive(graph: Graph, no: int) -> None:
    """A dead letter that was held may be handed out again, as if for the first time."""
    row = graph.session.row("mew_delivery_get", {"entity": no})
    if row is not None and row[6]:
        graph.session.run("mew_delivery_delete", {"entity": no})
        graph.session.run("mew_items_free", {"entity": no})
        for (pool,) in graph.session.rows("mew_pools_of", {"entity": no}):
            ring_pool(graph, pool)
        graph.changed = True


def ring_pool(graph: Graph, pool: int) -> None:
    """Tell the sessions of a group that there may be something to fetch."""
    for row in graph.session.rows("mew_watches_of_pool", {"pool": pool}):
        graph.turn.wake(f"mew:{row[2]}", 1)
        graph.turn.announce(f"mew:{row[2]}")
