"""Answers the queries about the graph as a whole. Importing this module registers them."""

from __future__ import annotations

from typing import Any

import msgspec

from ackwise.core.rows import Page
from ackwise.engine.ports import Params, Row
from ackwise.engine.reads.queues import page
from ackwise.engine.reads.registry import Snapshot, answers
from ackwise.graph import declarations, overview, system_types
from ackwise.graph.engine.entity_reads import Reader
from ackwise.graph.engine.events import watch_from
from ackwise.graph.engine.member_turns import WAITS_FOR
from ackwise.graph.engine.watch_index import spec_from
from ackwise.graph.overview import Bounded

_LETTER: msgspec.json.Decoder[dict[str, Any]] = msgspec.json.Decoder(dict[str, Any])


@answers(overview.GraphStats)
def totals(snapshot: Snapshot, query: overview.GraphStats) -> overview.GraphTotals:
    """Counts of the graph, each up to a bound."""
    reader = Reader(snapshot.session, snapshot.wall)

    def counted(statement: str, params: Params | None = None) -> Bounded:
        return _counted(snapshot, statement, params or {}, query.most)

    return overview.GraphTotals(
        tick=reader.tick,
        types=len(_declared(reader)),
        watches=counted("mew_watches_counted"),
        pending=counted("mew_deliveries_counted"),
        dead_letters=counted("mew_entities_counted", {"type": system_types.DEAD_LETTER}),
        held=counted("mew_entities_counted", {"type": system_types.DEAD_LETTER_ITEM}),
    )


def _counted(snapshot: Snapshot, statement: str, params: Params, most: int) -> Bounded:
    row = snapshot.session.row(statement, {**params, "limit": most + 1})
    return _bounded(0 if row is None else row[0], most)


def _bounded(count: int, most: int) -> Bounded:
    """The count of a statement that stops at `most + 1`."""
    return Bounded(min(count, most), count > most)


def _declared(reader: Reader) -> list[str]:
    return sorted(name for name in reader.ontology.declared if not name.startswith("_"))


@answers(overview.ListGraphTypes)
def list_types(snapshot: Snapshot, query: overview.ListGraphTypes) -> Page[overview.GraphTypeRow]:
    """The users' types by name."""
    reader = Reader(snapshot.session, snapshot.wall)
    names = [name for name in _declared(reader) if name > query.after]
    rows = [_type_row(snapshot, reader, name, query.most) for name in names[: query.limit]]
    return page(rows, query.limit, lambda row: row.name)


def _type_row(snapshot: Snapshot, reader: Reader, name: str, most: int) -> overview.GraphTypeRow:
    ontology = reader.ontology
    kind = ontology.nodes.get(name) or ontology.edges.get(name)
    word = "node" if name in ontology.nodes else "edge" if name in ontology.edges else "type"
    entities = Bounded(0) if kind is None else _counted(snapshot, "mew_entities_counted", {"type": kind.id}, most)
    edge = ontology.edges.get(name)
    slots = () if edge is None else tuple(slot for slot, _ in edge.slots)
    return overview.GraphTypeRow(name, word, declarations.declaration(ontology.declared[name]), entities, slots)


@answers(overview.ListWatches)
def list_watches(snapshot: Snapshot, query: overview.ListWatches) -> Page[overview.WatchInfo]:
    """Active and paused watches, newest first."""
    rows = snapshot.session.rows("mew_watches_newest", {"after": query.after, "limit": query.limit})
    return page([_watch_info(row) for row in rows], query.limit, lambda row: row.no)


def _watch_info(row: Row) -> overview.WatchInfo:
    session, *stored = row
    watch = watch_from(tuple(stored))
    spec = watch.spec
    return overview.WatchInfo(
        no=watch.no,
        id=watch.id,
        name=spec.name,
        session=session,
        pattern=spec.text,
        mode=spec.mode,
        group=spec.group,
        status=watch.status,
        waiting=watch.unsent,
        pending=watch.held,
        delivered=watch.delivered,
        last_event_at=watch.last_event_at,
        delivery=spec.delivery,
        ack_timeout=spec.ack_timeout_text,
        max_redeliveries=spec.max_redeliveries,
        dead_letter=None if spec.dead_letter is None else spec.dead_letter.shown,
    )


@answers(overview.ListPools)
def list_pools(snapshot: Snapshot, query: overview.ListPools) -> Page[overview.PoolInfo]:
    """Pools of consumers, oldest first."""
    values = {
        "after": query.after,
        "limit": query.limit,
        "since": snapshot.now - WAITS_FOR,
        "most": query.most + 1,
    }
    pools = []
    for pool, spec_text, members, waiting, pending, ready in snapshot.session.rows("mew_pools_page", values):
        spec = spec_from(spec_text)
        free = _bounded(ready, query.most)
        pools.append(overview.PoolInfo(pool, spec.group, spec.text, members, waiting, pending, free))
    return page(pools, query.limit, lambda row: row.id)


@answers(overview.ListGraphDead)
def list_dead(snapshot: Snapshot, query: overview.ListGraphDead) -> Page[overview.GraphDeadLetter]:
    """Dead letters of the graph, newest first."""
    values = {"after": query.after, "limit": query.limit, "most": overview.LETTER_BYTES}
    letters = [_letter(*row) for row in snapshot.session.rows("mew_letters_newest", values)]
    return page(letters, query.limit, lambda row: row.no)


def _letter(no: int, letter_id: str, attrs: str | None, watch: str | None) -> overview.GraphDeadLetter:
    if attrs is None:
        return overview.GraphDeadLetter(no, letter_id, watch)
    values = _LETTER.decode(attrs)
    return overview.GraphDeadLetter(
        no,
        letter_id,
        watch,
        reason=values.get("failure_reason"),
        deliveries=values.get("delivery_attempts"),
        dead_at=values["created_at"] * 1000,
        match=values.get("original_match"),
    )
