"""Watch index: finds the watches and pools that a change of an entity may concern."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import lru_cache
from typing import TypeVar
from weakref import WeakKeyDictionary

import msgspec

from ackwise.engine.ports import Session
from ackwise.graph.engine.entity_reads import Reader
from ackwise.graph.ontology import Ontology
from ackwise.graph.patterns import EdgePart, PatternPlan, bounds, exists_in, joined_exists, plan_pattern
from ackwise.graph.values import Entity
from ackwise.graph.watch_options import WatchSpec

_SPEC: msgspec.json.Decoder[WatchSpec] = msgspec.json.Decoder(WatchSpec)
T = TypeVar("T")
Key = tuple[object, ...]
"""A value or neighbour that an entity must have to concern a watch: `("attr", name, value)` and the like."""
StandingId = tuple[int, bool]
"""The number of a watch or of a pool, and whether it is a pool."""


@lru_cache(maxsize=10_000)
def spec_from(text: str) -> WatchSpec:
    """Decode a stored watch. Cached, because every fetch reads the watches of its session."""
    return _SPEC.decode(text)


class StandingQuery(msgspec.Struct, eq=False):
    """A pattern that the store evaluates at each change: a watch of mode watch, or the pool of a consumer group."""

    no: int
    spec: WatchSpec
    plan: PatternPlan
    pool: bool = False
    alone: bool = False
    """The pattern is one node: the tracker judges a change without a query."""
    simple: bool = False
    """The pattern is one node without exists(): a change concerns at most one match."""

    @property
    def id(self) -> StandingId:
        return self.no, self.pool


def standing_query(no: int, spec: WatchSpec, ontology: Ontology, *, pool: bool = False) -> StandingQuery:
    plan = plan_pattern(spec.pattern, ontology)
    alone = len(plan.nodes) == 1 and not plan.edges
    return StandingQuery(no, spec, plan, pool, alone, alone and next(exists_in(spec.condition), None) is None)


class ConcernedWatch(msgspec.Struct, frozen=True, eq=False):
    """A watch that a changed entity may concern, and the variables that the entity may be bound to.

    The plan is the watch's own, or its pattern joined with one of its exists().
    """

    watch: StandingQuery
    plan: PatternPlan
    variables: set[str]


Entries = dict[tuple[StandingId, int], ConcernedWatch]


class TypeBucket:
    """Watches that concern one type: by key when they need a certain value or neighbour, otherwise in `plain`."""

    def __init__(self) -> None:
        self.plain: Entries = {}
        self.keyed: dict[Key, Entries] = {}
        self.attributes: dict[str, int] = {}
        self.slots: dict[int, int] = {}
        self.far: dict[tuple[int, str], int] = {}
        self.via = 0

    def count(self, key: Key, by: int) -> None:
        match key:
            case ("attr", str(name), _):
                _count(self.attributes, name, by)
            case ("end", int(slot), _):
                _count(self.slots, slot, by)
            case ("far", int(slot), str(name), _):
                _count(self.far, (slot, name), by)
            case _:
                self.via += by


def _count(counts: dict[T, int], key: T, by: int) -> None:
    counts[key] = counts.get(key, 0) + by
    if not counts[key]:
        del counts[key]


class WatchLookup:
    """Finds watches by the entities that may be bound to certain variables of them."""

    def __init__(self) -> None:
        self._buckets: dict[int, TypeBucket] = {}
        self._entries: dict[StandingId, list[tuple[int, int, Key | None]]] = {}

    def add(self, watch: StandingQuery, plan: PatternPlan, variables: Iterable[str], number: int = 0) -> None:
        """Add a watch to the lookup. `number` distinguishes the plans of one watch."""
        entries = self._entries.setdefault(watch.id, [])
        for variable in variables:
            key = _key(watch, plan, variable)
            for kind in plan.types(variable):
                bucket = self._buckets.setdefault(kind, TypeBucket())
                by_id = bucket.plain if key is None else bucket.keyed.setdefault(key, {})
                by_id.setdefault((watch.id, number), ConcernedWatch(watch, plan, set())).variables.add(variable)
                if key is not None:
                    bucket.count(key, 1)
                entries.append((kind, number, key))

    def remove(self, standing_id: StandingId) -> None:
        for kind, number, key in self._entries.pop(standing_id, ()):
            bucket = self._buckets[kind]
            if key is None:
                bucket.plain.pop((standing_id, number), None)
            else:
                bucket.count(key, -1)
                if key in bucket.keyed:
                    bucket.keyed[key].pop((standing_id, number), None)
                    if not bucket.keyed[key]:
                        del bucket.keyed[key]

    def concerned(self, entity: Entity, neighbours: Neighbours) -> Iterator[ConcernedWatch]:
        bucket = self._buckets.get(entity.type.id)
        if bucket is None:
            return
        yield from list(bucket.plain.values())
        for key in self._keys(bucket, entity, neighbours):
            yield from list(bucket.keyed.get(key, {}).values())

    def _keys(self, bucket: TypeBucket, entity: Entity, neighbours: Neighbours) -> Iterator[Key]:
        for name in bucket.attributes:
            yield "attr", name, entity.attrs.get(name)
        for slot in bucket.slots:
            if slot < len(entity.target_ids):
                yield "end", slot, entity.target_ids[slot]
        for slot, name in bucket.far:
            yield "far", slot, name, neighbours.value(entity, slot, name)
        if bucket.via:
            yield from neighbours(entity)


class WatchIndex:
    """Standing queries, and the two lookups that find them for a changed entity."""

    def __init__(self) -> None:
        self.members: dict[StandingId, StandingQuery] = {}
        self.within = WatchLookup()
        """Finds watches whose matches may contain the entity."""
        self.beside = WatchLookup()
        """Finds watches for which only an exists() reads the entity."""

    def __len__(self) -> int:
        return len(self.members)

    def add(self, watch: StandingQuery, ontology: Ontology) -> None:
        self.remove(watch.no, pool=watch.pool)
        self.members[watch.id] = watch
        self.within.add(watch, watch.plan, watch.plan.names)
        every = (joined for expr in watch.spec.read_exprs for joined in joined_exists(expr, watch.plan, ontology))
        for number, joined in enumerate(every):
            self.beside.add(watch, joined.plan, joined.own, number)

    def remove(self, no: int, *, pool: bool) -> None:
        if self.members.pop((no, pool), None) is not None:
            self.within.remove((no, pool))
            self.beside.remove((no, pool))


class Neighbours:
    """Reads the neighbours of an entity for keys of the index."""

    def __init__(self, reader: Reader) -> None:
        self._reader, self._session = reader, reader.session

    def value(self, edge: Entity, slot: int, name: str) -> object:
        """An attribute of the node in a slot of the edge."""
        node = self._reader.by_no(edge.targets[slot]) if slot < len(edge.targets) else None
        return node.attrs.get(name) if node is not None else None

    def __call__(self, entity: Entity) -> list[Key]:
        """The edges of a node as keys: ("via", edge type, own slot, other slot, other id)."""
        keys: set[Key] = set()
        for edge, slot, kind in self._session.rows("mew_edges_of_node", {"node": entity.no}):
            ends = self._session.rows("mew_ends_of_edge", {"edge": edge})
            keys |= {("via", kind, slot, other, end[1]) for other, end in enumerate(ends) if other != slot}
        return list(keys)


def _key(watch: StandingQuery, plan: PatternPlan, variable: str) -> Key | None:
    """The most selective key that an entity must have to be bound to the variable. None: any entity may be."""
    wanted = _wanted_values(watch.spec)
    if variable in wanted:
        return "attr", *wanted[variable]
    keys = (_edge_key(edge, variable, wanted) for edge in plan.edges if "symmetric" not in edge.type.flags)
    return next((key for key in keys if key is not None), None)


def _wanted_values(spec: WatchSpec) -> dict[str, tuple[str, object]]:
    """For each variable, the first attribute that WHERE compares with `=`, and the value."""
    wanted: dict[str, tuple[str, object]] = {}
    for bound in bounds(spec.where):
        if bound.op == "=" and bound.attribute not in ("id", "_id", "_type"):
            value = int(bound.value) if isinstance(bound.value, int) else bound.value
            wanted.setdefault(bound.variable, (bound.attribute, value))
    return wanted


def _edge_key(edge: EdgePart, variable: str, wanted: dict[str, tuple[str, object]]) -> Key | None:
    """The key that one edge of the pattern gives to the variable: of the edge itself, or of a node at its end."""
    ids = ((slot, end.id) for slot, end in enumerate(edge.ends) if not isinstance(end, str | None))
    fixed = next(ids, None)
    if edge.name == variable:
        if fixed is not None:
            return "end", *fixed
        far = ((slot, *wanted[end]) for slot, end in enumerate(edge.ends) if isinstance(end, str) and end in wanted)
        return next((("far", *place) for place in far), None)
    own = next((slot for slot, end in enumerate(edge.ends) if end == variable), None)
    return ("via", edge.type.id, own, *fixed) if fixed is not None and own is not None else None


class Watches:
    """Standing queries as this connection last read them."""

    def __init__(self) -> None:
        self.version = -1
        self.committed = WatchIndex()
        self.immediate = WatchIndex()

    def add(self, no: int, spec: WatchSpec, pool: int | None, ontology: Ontology) -> None:
        """Add a watch of mode watch. A consumer is not added: its pool is."""
        if pool is None:
            index = self.immediate if spec.visibility == "immediate" else self.committed
            index.add(standing_query(no, spec, ontology), ontology)

    def add_pool(self, no: int, spec: WatchSpec, ontology: Ontology) -> None:
        unfiltered = msgspec.structs.replace(spec, filter=None)
        self.committed.add(standing_query(no, unfiltered, ontology, pool=True), ontology)

    def renew(self, ontology: Ontology) -> None:
        """Plan every pattern again: it may accept subtypes that were declared since."""
        for index in (self.committed, self.immediate):
            for watch in list(index.members.values()):
                index.add(standing_query(watch.no, watch.spec, ontology, pool=watch.pool), ontology)

    def remove(self, no: int) -> None:
        self.committed.remove(no, pool=False)
        self.immediate.remove(no, pool=False)

    def remove_pool(self, no: int) -> None:
        self.committed.remove(no, pool=True)


_cached: WeakKeyDictionary[Session, Watches] = WeakKeyDictionary()


def watches_of(session: Session, version: int, ontology: Ontology) -> Watches:
    """The watches of that version. Reads them again after another connection changed them, or after a rollback."""
    watches = _cached.get(session)
    if watches is None or watches.version != version:
        watches = _cached[session] = Watches()
        watches.version = version
        for row in session.rows("mew_watches_standing"):
            watches.add(row[0], spec_from(row[5]), row[3], ontology)
        for row in session.rows("mew_pools"):
            watches.add_pool(row[0], spec_from(row[2]), ontology)
    return watches


def forget(session: Session) -> None:
    """Drop the cached watches after a rollback: they may contain changes that were undone."""
    _cached.pop(session, None)
