"""Dead letters of the graph: records them, and moves, holds or deletes their items."""

from __future__ import annotations

from typing import Any

import msgspec

from ackwise.core.settlement import Reason
from ackwise.graph import ast as s
from ackwise.graph import errors, system_types
from ackwise.graph.commands import Done
from ackwise.graph.engine import consumer_pools, entity_removal, pattern_sql
from ackwise.graph.engine.consumer_pools import ItemDelivery
from ackwise.graph.engine.entities import Graph
from ackwise.graph.engine.events import WatchRow
from ackwise.graph.engine.mutations import Mutator
from ackwise.graph.errors import NOWHERE, At, GraphError
from ackwise.graph.ontology import EdgeType
from ackwise.graph.patterns import EdgePart
from ackwise.graph.projection import match_of
from ackwise.graph.values import Entity
from ackwise.graph.watch_options import reason_shown

QUEUE = "(mew)"
"""Stands for the queue in counts and events: deliveries of the graph have no queue."""


def bury(
    graph: Graph, row: WatchRow, delivery: ItemDelivery, done: Done, *, delivery_id: str, at: At = NOWHERE
) -> None:
    """Make an item a dead letter: move it to the `dead_letter` node, or delete it if the watch names none.

    `done` gets the outcome. If the item can be neither moved nor deleted, it is held, and `done` gets E8007.
    """
    item = graph.by_no(delivery.entity)
    assert item is not None
    _record(graph, row, item, delivery, done)
    if row.spec.dead_letter is None:
        _delete(graph, item, delivery, done, delivery_id=delivery_id, at=at)
        return
    done.outcome = "dead_lettered"
    try:
        with graph.tentatively():
            _move(graph, row, item, delivery, done)
            _check_in_background(graph)
    except GraphError as problem:
        hold(graph, delivery)
        done.refused = errors.dead_letter_failed(delivery_id, row.spec.dead_letter.shown, problem.message, at)


def _record(graph: Graph, row: WatchRow, item: Entity, delivery: ItemDelivery, done: Done) -> None:
    """Insert the `_DeadLetter` node."""
    ontology = graph.ontology
    values = {
        "original_match": msgspec.json.encode(_match(graph, row, item)).decode(),
        "failure_reason": done.reason,
        "delivery_attempts": delivery.delivs,
        "created_at": graph.turn.wall // 1000,
    }
    letter = graph.insert(ontology.nodes["_DeadLetter"], values)
    watch = graph.by_no(row.no)
    assert watch is not None
    graph.insert(ontology.edges["_watch_dead_letter"], {}, (watch, letter))
    buried = {
        "uuid": letter.id,
        "grp_name": row.spec.group or row.spec.name,
        "reason": Reason.REJECTED if done.reason == reason_shown(Reason.REJECTED) else Reason.RETRY_LIMIT,
        "error": "",
        "delivs": delivery.delivs,
    }
    graph.turn.buried.append((QUEUE, [buried]))


def _match(graph: Graph, row: WatchRow, item: Entity) -> dict[str, Any]:
    """The item's match as its watch returns it, or the whole item if it no longer matches."""
    query = consumer_pools.query_of(graph, row.spec)
    match = consumer_pools.first_match(graph, query, item.no)
    if match is None:
        return item.shown()
    return match_of(row.spec.returns, query.plan.variables, match.names, pattern_sql.scope_of(graph, match.names))


def _delete(graph: Graph, item: Entity, delivery: ItemDelivery, done: Done, *, delivery_id: str, at: At) -> None:
    killed = Done()
    try:
        with graph.tentatively():
            Mutator(graph, killed).kill(item, at)
            _check_in_background(graph)
    except GraphError as problem:
        hold(graph, delivery)  # an edge prevents the deletion, and another delivery would fail again
        done.outcome = "dead_lettered"
        done.refused = errors.delete_failed(delivery_id, problem.message, at)
        return
    done.outcome = "deleted"
    done.deleted += killed.deleted
    done.unlinked += killed.unlinked
    forget(graph, delivery)


def _check_in_background(graph: Graph) -> None:
    """In the background, check cardinality now.

    A background command has no statement that the check at the end of the commit could refuse.
    """
    if graph.background:
        Mutator(graph, Done()).check_cardinality()


def _move(graph: Graph, row: WatchRow, item: Entity, delivery: ItemDelivery, done: Done) -> None:
    """Move an item to the `dead_letter` node.

    Relinks each edge of the pattern that joins the item to a fixed node. If there is none, or the item still matches,
    an edge `_dead_letter_item` holds it at the node.
    """
    assert row.spec.dead_letter is not None
    destination = graph.by_id(row.spec.dead_letter.id)
    if destination is None:
        raise errors.unknown("node not found")
    query = consumer_pools.query_of(graph, row.spec)
    mutator = Mutator(graph, Done())
    if isinstance(item.type, EdgeType):
        mutator.unlink(item)
        done.unlinked += 1
        forget(graph, delivery)
        return
    joining = [part for part in query.plan.edges if query.plan.first in part.ends]
    moved = [_relink_part(mutator, part, part.ends.index(query.plan.first), item, destination) for part in joining]
    if any(moved) and consumer_pools.first_match(graph, query, item.no) is None:
        forget(graph, delivery)
        graph.session.run("mew_items_free", {"entity": item.no})
        for (no,) in graph.session.rows("mew_pools_of", {"entity": item.no}):
            entity_removal.wake_pool(graph, no)
        return
    mutator.link(graph.ontology.edges["_dead_letter_item"], (destination, item), {})
    hold(graph, delivery)


def _relink_part(mutator: Mutator, part: EdgePart, own: int, item: Entity, destination: Entity) -> bool:
    """Relink the item's edges of one part of the pattern. `own` is the item's slot."""
    moved = False
    for slot, end in enumerate(part.ends):
        if isinstance(end, s.IdRef) and end.id != destination.id:
            moved = _relink(mutator, part, {own: item.id, slot: end.id}, slot, destination) or moved
    return moved


def _relink(mutator: Mutator, part: EdgePart, ends_by_slot: dict[int, str], slot: int, destination: Entity) -> bool:
    """Let the edges between these ends lead to the destination in `slot`. Returns whether there were any."""
    graph = mutator.graph
    if not graph.ontology.accepts(part.type, slot, destination.type):
        return False
    edges = mutator.edges_between(part.type, ends_by_slot)
    for edge in edges:
        ends = [graph.by_no(no) for no in edge.targets]
        ends[slot] = destination
        values = dict(edge.attrs)
        mutator.unlink(edge)
        mutator.link(part.type, tuple(end for end in ends if end is not None), values)
    return bool(edges)


def hold(graph: Graph, delivery: ItemDelivery) -> None:
    """Hold an item until UNLINK frees it: the graph neither deletes nor delivers it.

    Only patterns with the dead-letter edge find it.
    """
    _hold(graph, delivery._replace(lease=None, fails=0, delivs=0, dead=1))


def has_dead_letter_edge(graph: Graph, entity: int) -> bool:
    row = graph.session.row("mew_edges_in_slot", {"node": entity, "type": system_types.DEAD_LETTER_ITEM, "slot": 1})
    return row is not None and row[0] > 0


def hold_again(graph: Graph, delivery: ItemDelivery) -> None:
    """Hold a dead letter that a consumer of dead letters returned. Its counts stay."""
    _hold(graph, delivery._replace(lease=None, dead=1))


def _hold(graph: Graph, delivery: ItemDelivery) -> None:
    graph.session.run("mew_delivery_put", delivery._asdict())
    graph.session.run("mew_items_hold", {"entity": delivery.entity})
    for (no,) in graph.session.rows("mew_pools_of", {"entity": delivery.entity}):
        pool = consumer_pools.pool_of(graph, no)
        if pool is not None and consumer_pools.wants_dead_letters(pool):
            graph.session.run("mew_items_free_for_letters", {"entity": delivery.entity, "pool": no})
            entity_removal.wake_pool(graph, no)


def forget(graph: Graph, delivery: ItemDelivery) -> None:
    graph.session.run("mew_delivery_delete", {"entity": delivery.entity})
