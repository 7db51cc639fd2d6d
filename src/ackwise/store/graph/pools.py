"""Pools: what a group of consumers may be handed, in which order. Kept up to date commit by commit; what was there
before the first consumer came is looked through bit by bit, as it is needed."""

from __future__ import annotations

from typing import Any, NamedTuple

import msgspec

from ackwise.core.graph import system
from ackwise.core.graph.evaluating import evaluate, surely_holds
from ackwise.core.graph.faults import GraphError
from ackwise.core.graph.ordering import sort_text
from ackwise.core.graph.patterns import plan
from ackwise.core.graph.values import Entity
from ackwise.core.graph.watching import WatchSpec
from ackwise.store.graph import matching, redriving
from ackwise.store.graph.matching import Row, Wanted
from ackwise.store.graph.standing import Standing, spec_from, standing
from ackwise.store.graph.tracking import Difference
from ackwise.store.graph.writing import Graph

BEYOND = 1 << 62
"""Everything was looked through, and every change is looked at."""
CHUNK = 500
LAST = "~"
"""Behind every place that can be worked out."""


class Delivery(NamedTuple):
    """How an entity stands with its consumers."""

    entity: int
    lease: int | None
    fails: int
    delivs: int
    watch: int
    due_at: int
    dead: int


def delivery(graph: Graph, entity: int) -> Delivery | None:
    row = graph.session.row("mew_delivery_get", {"entity": entity})
    return Delivery(*row) if row else None


def join(graph: Graph, no: int, spec: WatchSpec) -> int:
    """The pool of a new consumer: its group's, or its own. Who comes first says what of the past is in it."""
    key = _key(no, spec)
    row = graph.session.row("mew_pool_by_key", {"key": key})
    if row is not None:
        return int(row[0])
    last = graph.session.row("mew_entity_last")
    newest = (last[0] or 0) if last else 0
    scanned = newest if spec.initial == "none" else 0
    made = graph.session.row(
        "mew_pool_insert", {"key": key, "spec": msgspec.json.encode(spec).decode(), "scanned": scanned}
    )
    assert made is not None
    pool = int(made[0])
    graph.watches.add_pool(pool, spec, graph.ontology)
    if spec.ordering:
        if spec.initial != "none":
            _look_through(graph, graph.watches.committed.members[pool, True], None, None)
        graph.session.run("mew_pool_scanned", {"id": pool, "scanned": BEYOND})
    return pool


def _key(no: int, spec: WatchSpec) -> str:
    if spec.group is None:
        return f"watch {no}"
    shape = [spec.group, spec.pattern, spec.where, spec.ordering]
    return msgspec.json.encode(_placeless(msgspec.to_builtins(shape))).decode()


def _placeless(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _placeless(one) for key, one in value.items() if key not in ("at", "shown", "text")}
    return [_placeless(one) for one in value] if isinstance(value, list | tuple) else value


def leave(graph: Graph, pool: int) -> None:
    """A member has gone; the last one takes the pool along. What was counted stays with the entities."""
    if graph.session.row("mew_watch_pool_left", {"pool": pool}) is None:
        graph.session.run("mew_items_delete", {"pool": pool})
        graph.session.run("mew_pool_delete", {"id": pool})
        graph.watches.remove_pool(pool)


def reconcile(graph: Graph, found: Difference) -> None:
    """Entities that a commit touched come into the pool, leave it, or change their place in it."""
    pool = found.watch
    row = graph.session.row("mew_pool_get", {"id": pool.no})
    if row is None:
        return
    rung = False
    for entity, before in sorted(found.touched.items()):
        if entity > row[3]:
            rung = True  # it will be found when somebody looks
            continue
        matched = first_match(graph, pool, entity)
        if matched is None:
            graph.session.run("mew_item_delete", {"pool": pool.no, "entity": entity})
            continue
        known = graph.session.row("mew_item_get", {"pool": pool.no, "entity": entity})
        if known is None and before and pool.spec.initial == "none":
            continue  # part of the past that was not wanted, and it has not begun to match
        rung = put(graph, pool, entity, matched) or rung
    if rung:
        redriving.ring_pool(graph, pool.no)


def put(graph: Graph, pool: Standing, entity: int, matched: Row) -> bool:
    """An entity is in the pool from now on; whether it can be handed out."""
    stands = delivery(graph, entity)
    free = stands is None or (stands.lease is None and (not stands.dead or wants_letters(pool)))
    values = {"pool": pool.no, "entity": entity, "held": int(not free), "rank": _rank(graph, pool, matched)}
    graph.session.run("mew_item_put", values)
    return free


def wants_letters(pool: Standing) -> bool:
    """Whether the pattern itself asks for dead letters."""
    return any(edge.type.id == system.LETTER_ITEM for edge in pool.plan.edges)


def _rank(graph: Graph, pool: Standing, matched: Row) -> str:
    if not pool.spec.ordering:
        return ""
    scope = matching.scope_of(graph, matched.names)
    try:
        return sort_text((evaluate(one.by, scope), one.descending) for one in pool.spec.ordering)
    except GraphError:
        return LAST  # it has no place of its own


def first_match(graph: Graph, pool: Standing, entity: int) -> Row | None:
    """A match in which the entity is what is consumed."""
    if pool.alone:
        found = graph.by_no(entity)
        if found is None or found.type.id not in pool.plan.types(pool.plan.first):
            return None
        names: dict[str, Entity] = {pool.plan.first: found}
        return Row(names, (entity,)) if surely_holds(pool.spec.where, matching.scope_of(graph, names)) else None
    wanted = Wanted({pool.plan.first: entity})
    return next(iter(matching.standing_match(graph, pool.plan, pool.spec.where, wanted)), None)


def look_ahead(graph: Graph, pool: Standing) -> bool:
    """Look through some more of what was there before; whether anything may be left."""
    row = graph.session.row("mew_pool_get", {"id": pool.no})
    if row is None or row[3] >= BEYOND:
        return False
    last = graph.session.row("mew_entity_last")
    newest = (last[0] or 0) if last else 0
    if row[3] >= newest:
        return False
    seen = _look_through(graph, pool, row[3], CHUNK)
    scanned = seen if seen is not None else newest
    graph.session.run("mew_pool_scanned", {"id": pool.no, "scanned": scanned})
    return True


def _look_through(graph: Graph, pool: Standing, after: int | None, limit: int | None) -> int | None:
    """Put matches into the pool; the last entity looked at, None when that was all."""
    since = pool.spec.initial if isinstance(pool.spec.initial, int) else None
    found = matching.page(graph, pool.plan, pool.spec.where, Wanted({}, after, limit, since))
    first = pool.plan.names.index(pool.plan.first)
    for row in found.rows:
        put(graph, pool, row.key[first], row)
    if limit is None or found.looked < limit:
        return None
    # The page may end amid the candidates of an entity; the next one begins behind it.
    wanted = Wanted({pool.plan.first: found.last}, since=since)
    for row in matching.standing_match(graph, pool.plan, pool.spec.where, wanted):
        put(graph, pool, found.last, row)
        break
    return found.last


def pool_of(graph: Graph, no: int) -> Standing | None:
    known = graph.watches.committed.members.get((no, True))
    if known is None:
        row = graph.session.row("mew_pool_get", {"id": no})
        known = standing(no, spec_from(row[2]), graph.ontology, pool=True) if row else None
    return known


def plan_of(graph: Graph, spec: WatchSpec) -> Standing:
    return Standing(0, spec, plan(spec.pattern, graph.ontology))
