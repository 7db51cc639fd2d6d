"""Pools: the items that the consumers of a group share."""

from __future__ import annotations

from typing import Any, NamedTuple

import msgspec

from ackwise.graph import system_types
from ackwise.graph.engine import entity_removal, pattern_sql
from ackwise.graph.engine.change_tracker import Difference
from ackwise.graph.engine.entities import Graph
from ackwise.graph.engine.pattern_sql import MatchRow, Search
from ackwise.graph.engine.watch_index import StandingQuery, spec_from, standing_query
from ackwise.graph.errors import GraphError
from ackwise.graph.expressions import evaluate, surely_holds
from ackwise.graph.patterns import plan_pattern
from ackwise.graph.values import Entity, sort_text
from ackwise.graph.watch_options import WatchSpec

BEYOND = 1 << 62
"""The position of a pool that has scanned all entities. Higher than every tick, too."""
CHUNK = 500
"""Candidates that one scan reads."""
LAST = "~"
"""The rank of an item whose ordering cannot be evaluated: after all others."""


class ItemDelivery(NamedTuple):
    """Delivery state of an item: its lease, failures and deliveries, the last watch, and whether it is dead."""

    entity: int
    lease: int | None
    fails: int
    delivs: int
    watch: int
    due_at: int
    dead: int


def delivery_of(graph: Graph, entity: int) -> ItemDelivery | None:
    row = graph.session.row("mew_delivery_get", {"entity": entity})
    return ItemDelivery(*row) if row else None


def join(graph: Graph, no: int, spec: WatchSpec) -> int:
    """The pool of a new consumer: its group's, or its own. The first member decides whether old items are in it."""
    key = _pool_key(no, spec)
    row = graph.session.row("mew_pool_by_key", {"key": key})
    if row is not None:
        return int(row[0])
    last = graph.session.row("mew_entity_last")
    newest = (last[0] or 0) if last else 0
    scanned = newest if spec.initial == "none" else 0
    inserted = graph.session.row(
        "mew_pool_insert", {"key": key, "spec": msgspec.json.encode(spec).decode(), "scanned": scanned}
    )
    assert inserted is not None
    pool = int(inserted[0])
    graph.watches.add_pool(pool, spec, graph.ontology)
    if spec.ordering:
        if spec.initial != "none":
            _scan_page(graph, graph.watches.committed.members[pool, True], None, None)
        graph.session.run("mew_pool_scanned", {"id": pool, "scanned": BEYOND})
    return pool


def _pool_key(no: int, spec: WatchSpec) -> str:
    """Members share a pool if their group, pattern, WHERE and ordering are equal."""
    if spec.group is None:
        return f"watch {no}"
    shared = [spec.group, spec.pattern, spec.where, spec.ordering]
    return msgspec.json.encode(_without_source(msgspec.to_builtins(shared))).decode()


def _without_source(value: Any) -> Any:
    """A syntax tree without positions and the user's spelling."""
    if isinstance(value, dict):
        return {key: _without_source(part) for key, part in value.items() if key not in ("at", "shown", "text")}
    return [_without_source(part) for part in value] if isinstance(value, list | tuple) else value


def leave(graph: Graph, pool: int) -> None:
    """Remove a pool that its last member has left. The items keep their counts of deliveries and failures."""
    if graph.session.row("mew_watch_pool_left", {"pool": pool}) is None:
        graph.session.run("mew_items_delete", {"pool": pool})
        graph.session.run("mew_pool_delete", {"id": pool})
        graph.watches.remove_pool(pool)


def reconcile(graph: Graph, difference: Difference) -> None:
    """Add, remove or reorder the items that a commit touched."""
    pool = difference.watch
    row = graph.session.row("mew_pool_get", {"id": pool.no})
    if row is None:
        return
    has_news = False
    for entity, matched_before in sorted(difference.touched.items()):
        if entity > row[3]:
            has_news = True  # a later scan finds it
            continue
        match = first_match(graph, pool, entity)
        if match is None:
            graph.session.run("mew_item_delete", {"pool": pool.no, "entity": entity})
            continue
        item = graph.session.row("mew_item_get", {"pool": pool.no, "entity": entity})
        if item is None and matched_before and pool.spec.initial == "none":
            continue  # it matched before the pool existed, and the pool takes no old items
        has_news = put(graph, pool, entity, match) or has_news
    if has_news:
        entity_removal.wake_pool(graph, pool.no)


def put(graph: Graph, pool: StandingQuery, entity: int, match: MatchRow) -> bool:
    """Add an entity to the pool, or update its rank. Returns whether it can be delivered."""
    delivery = delivery_of(graph, entity)
    free = delivery is None or (delivery.lease is None and (not delivery.dead or wants_dead_letters(pool)))
    values = {"pool": pool.no, "entity": entity, "held": int(not free), "rank": _rank(graph, pool, match)}
    graph.session.run("mew_item_put", values)
    return free


def wants_dead_letters(pool: StandingQuery) -> bool:
    """Whether the pattern contains the edge of dead letters."""
    return any(edge.type.id == system_types.DEAD_LETTER_ITEM for edge in pool.plan.edges)


def _rank(graph: Graph, pool: StandingQuery, match: MatchRow) -> str:
    """The sort key of an item. Empty: items are ordered by arrival."""
    if not pool.spec.ordering:
        return ""
    scope = pattern_sql.scope_of(graph, match.names)
    try:
        return sort_text((evaluate(key.by, scope), key.descending) for key in pool.spec.ordering)
    except GraphError:
        return LAST


def first_match(graph: Graph, pool: StandingQuery, entity: int) -> MatchRow | None:
    """A match whose first element is the entity."""
    if pool.alone:
        item = graph.by_no(entity)
        if item is None or item.type.id not in pool.plan.types(pool.plan.first):
            return None
        names: dict[str, Entity] = {pool.plan.first: item}
        return MatchRow(names, (entity,)) if surely_holds(pool.spec.where, pattern_sql.scope_of(graph, names)) else None
    search = Search({pool.plan.first: entity})
    return next(iter(pattern_sql.standing_match(graph, pool.plan, pool.spec.where, search)), None)


def scan(graph: Graph, pool: StandingQuery) -> int | None:
    """Add one chunk of entities that existed before the pool. Returns where it began, or None when none are left."""
    row = graph.session.row("mew_pool_get", {"id": pool.no})
    if row is None or row[3] >= BEYOND:
        return None
    last = graph.session.row("mew_entity_last")
    newest = (last[0] or 0) if last else 0
    if row[3] >= newest:
        return None
    last_scanned = _scan_page(graph, pool, row[3], CHUNK)
    scanned = last_scanned if last_scanned is not None else newest
    graph.session.run("mew_pool_scanned", {"id": pool.no, "scanned": scanned})
    return int(row[3])


def _scan_page(graph: Graph, pool: StandingQuery, after: int | None, limit: int | None) -> int | None:
    """Add the matches of one page. Returns the last entity of the page, or None if the page was the last one."""
    since = pool.spec.initial if isinstance(pool.spec.initial, int) else None
    page = pattern_sql.page(graph, pool.plan, pool.spec.where, Search({}, after, limit, since))
    first = pool.plan.names.index(pool.plan.first)
    for row in page.rows:
        put(graph, pool, row.key[first], row)
    if limit is None or page.candidates < limit:
        return None
    # The page may end amid the candidates of one entity. The next page starts behind that entity.
    search = Search({pool.plan.first: page.last}, since=since)
    for row in pattern_sql.standing_match(graph, pool.plan, pool.spec.where, search):
        put(graph, pool, page.last, row)
        break
    return page.last


def pool_of(graph: Graph, no: int) -> StandingQuery | None:
    pool = graph.watches.committed.members.get((no, True))
    if pool is None:
        row = graph.session.row("mew_pool_get", {"id": no})
        pool = standing_query(no, spec_from(row[2]), graph.ontology, pool=True) if row else None
    return pool


def query_of(graph: Graph, spec: WatchSpec) -> StandingQuery:
    """The query of a watch, for `first_match`."""
    return StandingQuery(0, spec, plan_pattern(spec.pattern, graph.ontology))
