"""Dead letters: a record always; the item is moved to where dead letters go, held there, or deleted."""

from __future__ import annotations

from typing import Any

import msgspec

from ackwise.core.graph import faults, system
from ackwise.core.graph import syntax as s
from ackwise.core.graph.commands import Done
from ackwise.core.graph.faults import NOWHERE, At, GraphError
from ackwise.core.graph.ontology import EdgeType
from ackwise.core.graph.patterns import EdgePart
from ackwise.core.graph.projecting import match_of
from ackwise.core.graph.values import Entity
from ackwise.store.graph import matching, pools, redriving
from ackwise.store.graph.events import WatchRow
from ackwise.store.graph.mutating import Mutator
from ackwise.store.graph.pools import Delivery
from ackwise.store.graph.writing import Graph


def bury(graph: Graph, row: WatchRow, stands: Delivery, delivery_id: str, done: Done, at: At = NOWHERE) -> None:
    """The item will not be handed out again. `done` says what became of it; E8007 when it could be neither moved nor
    deleted."""
    item = graph.by_no(stands.entity)
    assert item is not None
    _record(graph, row, item, stands, done)
    if row.spec.dead_letter is None:
        _delete(graph, item, stands, delivery_id, done, at)
        return
    done.outcome = "dead_lettered"
    try:
        with graph.tentatively():
            _move(graph, row, item, stands, row.spec.dead_letter, done)
            _check_if_unasked(graph)
    except GraphError as problem:
        hold(graph, stands)
        done.refused = faults.dead_letter_failed(delivery_id, row.spec.dead_letter.shown, problem.message, at)


def _record(graph: Graph, row: WatchRow, item: Entity, stands: Delivery, done: Done) -> None:
    ontology = graph.ontology
    values = {
        "original_match": msgspec.json.encode(_match(graph, row, item)).decode(),
        "failure_reason": done.reason,
        "delivery_attempts": stands.delivs,
        "created_at": graph.turn.now // 1000,
    }
    letter = graph.insert(ontology.nodes["_DeadLetter"], values)
    watch = graph.by_no(row.no)
    assert watch is not None
    graph.insert(ontology.edges["_watch_dead_letter"], {}, (watch, letter))


def _match(graph: Graph, row: WatchRow, item: Entity) -> dict[str, Any]:
    """What the watch shows of the item; the item itself when it no longer matches."""
    looked = pools.plan_of(graph, row.spec)
    found = pools.first_match(graph, looked, item.no)
    if found is None:
        return item.shown()
    return match_of(row.spec.returns, looked.plan.variables, found.names, matching.scope_of(graph, found.names))


def _delete(graph: Graph, item: Entity, stands: Delivery, delivery_id: str, done: Done, at: At) -> None:
    killed = Done()
    try:
        with graph.tentatively():
            Mutator(graph, killed).kill(item, at)
            _check_if_unasked(graph)
    except GraphError as problem:
        hold(graph, stands)  # something prevents it; handing it out again would be no better
        done.outcome = "dead_lettered"
        done.refused = faults.delete_failed(delivery_id, problem.message, at)
        return
    done.outcome = "deleted"
    done.deleted += killed.deleted
    done.unlinked += killed.unlinked
    forget(graph, stands)


def _check_if_unasked(graph: Graph) -> None:
    """At the end of a commit it would be too late: there is nobody to refuse it to."""
    if graph.unasked:
        Mutator(graph, Done()).check_cardinality()


def _move(graph: Graph, row: WatchRow, item: Entity, stands: Delivery, ref: s.IdRef, done: Done) -> None:
    """Every edge of the pattern that joins the item to a fixed node leads to the destination instead; an item that
    has none, or would be matched again, is held by an edge of its own."""
    destination = graph.by_id(ref.id)
    if destination is None:
        raise faults.unknown("node not found")
    looked = pools.plan_of(graph, row.spec)
    mutator = Mutator(graph, Done())
    if isinstance(item.type, EdgeType):
        mutator.unlink(item)
        done.unlinked += 1
        forget(graph, stands)
        return
    moved = False
    for part in looked.plan.edges:
        for slot, end in enumerate(part.ends):
            if isinstance(end, s.IdRef) and end.id != destination.id and looked.plan.first in part.ends:
                moved = _relocate(graph, mutator, part, slot, end, item, looked.plan.first, destination) or moved
    if moved and pools.first_match(graph, looked, item.no) is None:
        forget(graph, stands)
        graph.session.run("mew_items_free", {"entity": item.no})
        for (no,) in graph.session.rows("mew_pools_of", {"entity": item.no}):
            redriving.ring_pool(graph, no)
        return
    mutator.link(graph.ontology.edges["_dead_letter_item"], (destination, item), {})
    hold(graph, stands)


def _relocate(
    graph: Graph,
    mutator: Mutator,
    part: EdgePart,
    slot: int,
    end: s.IdRef,
    item: Entity,
    variable: str,
    destination: Entity,
) -> bool:
    if not graph.ontology.accepts(part.type, slot, destination.type):
        return False
    own = part.ends.index(variable)
    moved = False
    for edge in mutator.edges_between(part.type, {own: item.id, slot: end.id}):
        ends = [graph.by_no(no) for no in edge.targets]
        ends[slot] = destination
        values = dict(edge.attrs)
        mutator.unlink(edge)
        mutator.link(part.type, tuple(end for end in ends if end is not None), values)
        moved = True
    return moved


def hold(graph: Graph, stands: Delivery) -> None:
    """Neither deleted nor handed out, until somebody frees it; only patterns that ask for dead letters find it."""
    _hold(graph, stands._replace(lease=None, fails=0, delivs=0, dead=1))


def is_held(graph: Graph, entity: int) -> bool:
    """Whether an edge says that the entity is a dead letter."""
    row = graph.session.row("mew_edges_in_slot", {"node": entity, "type": system.LETTER_ITEM, "slot": 1})
    return row is not None and row[0] > 0


def hold_again(graph: Graph, stands: Delivery) -> None:
    """A dead letter that somebody was handed as such comes back."""
    _hold(graph, stands._replace(lease=None, dead=1))


def _hold(graph: Graph, stands: Delivery) -> None:
    graph.session.run("mew_delivery_put", stands._asdict())
    graph.session.run("mew_items_hold", {"entity": stands.entity})
    for (no,) in graph.session.rows("mew_pools_of", {"entity": stands.entity}):
        pool = pools.pool_of(graph, no)
        if pool is not None and pools.wants_letters(pool):
            graph.session.run("mew_items_free_for_letters", {"entity": stands.entity, "pool": no})
            redriving.ring_pool(graph, no)


def forget(graph: Graph, stands: Delivery) -> None:
    graph.session.run("mew_delivery_delete", {"entity": stands.entity})
