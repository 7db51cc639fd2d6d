"""Deliveries of entities that are removed, and of dead letters that are freed."""

from __future__ import annotations

from ackwise.graph.engine.entities import Graph


def forget_entity(graph: Graph, no: int) -> None:
    """Take a removed entity out of all pools. A consumer that holds it may still settle its delivery."""
    graph.session.run("mew_items_gone", {"entity": no})
    graph.session.run("mew_delivery_forget", {"entity": no})


def redrive(graph: Graph, no: int) -> None:
    """Deliver a dead letter again, with its counts reset."""
    row = graph.session.row("mew_delivery_get", {"entity": no})
    if row is not None and row[6]:
        graph.session.run("mew_delivery_delete", {"entity": no})
        graph.session.run("mew_items_free", {"entity": no})
        for (pool,) in graph.session.rows("mew_pools_of", {"entity": no}):
            wake_pool(graph, pool)
        graph.changed = True


def wake_pool(graph: Graph, pool: int) -> None:
    """Wake the sessions of a pool's members: there may be an item to fetch."""
    for row in graph.session.rows("mew_watches_of_pool", {"pool": pool}):
        graph.turn.wake(f"mew:{row[2]}", 1)
        graph.turn.announce(f"mew:{row[2]}")
