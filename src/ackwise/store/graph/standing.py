"""The watches that stand, found by what they look at: a commit asks only those that its changes may concern."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import lru_cache
from typing import TypeVar
from weakref import WeakKeyDictionary

import msgspec

from ackwise.core.graph.ontology import Ontology
from ackwise.core.graph.patterns import Plan, beside, bounds, exists_in, plan
from ackwise.core.graph.values import Entity
from ackwise.core.graph.watching import WatchSpec
from ackwise.store.graph.reading import Reader
from ackwise.store.session import Session

_SPEC: msgspec.json.Decoder[WatchSpec] = msgspec.json.Decoder(WatchSpec)
T = TypeVar("T")
Key = tuple[object, ...]
Name = tuple[int, bool]
"""A watch, or a pool, and its number."""


@lru_cache(maxsize=10_000)
def spec_from(text: str) -> WatchSpec:
    """What a watch is, from its stored text; read with every fetch."""
    return _SPEC.decode(text)


class Standing(msgspec.Struct, eq=False):
    """A pattern somebody waits for: a watch of mode watch, or the pool of a group of consumers."""

    no: int
    spec: WatchSpec
    plan: Plan
    pool: bool = False
    alone: bool = False
    """One node and nothing else: a change is judged without asking the database for the match."""
    simple: bool = False
    """One node, and no exists(): a change means one match at most."""

    @property
    def name(self) -> Name:
        return self.no, self.pool


def standing(no: int, spec: WatchSpec, ontology: Ontology, *, pool: bool = False) -> Standing:
    found = plan(spec.pattern, ontology)
    alone = len(found.nodes) == 1 and not found.edges
    return Standing(no, spec, found, pool, alone, alone and next(exists_in(spec.condition), None) is None)


class Look(msgspec.Struct, frozen=True, eq=False):
    """A watch that has to be asked about an entity, which may be one of these variables of a pattern: the watch's own,
    or that joined with one of its exists()."""

    watch: Standing
    plan: Plan
    variables: set[str]


Looks = dict[tuple[Name, int], Look]


class Bucket:
    """The watches that look at one type: those that want a certain value or neighbour by that, the others plainly."""

    def __init__(self) -> None:
        self.plain: Looks = {}
        self.keyed: dict[Key, Looks] = {}
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


class Places:
    """Watches by what stands at certain variables of theirs."""

    def __init__(self) -> None:
        self._buckets: dict[int, Bucket] = {}
        self._places: dict[Name, list[tuple[int, int, Key | None]]] = {}

    def add(self, watch: Standing, looked: Plan, variables: Iterable[str], number: int = 0) -> None:
        """`number` tells the patterns of one watch apart."""
        places = self._places.setdefault(watch.name, [])
        for variable in variables:
            key = _key(watch, looked, variable)
            for kind in looked.types(variable):
                bucket = self._buckets.setdefault(kind, Bucket())
                where = bucket.plain if key is None else bucket.keyed.setdefault(key, {})
                where.setdefault((watch.name, number), Look(watch, looked, set())).variables.add(variable)
                if key is not None:
                    bucket.count(key, 1)
                places.append((kind, number, key))

    def remove(self, name: Name) -> None:
        for kind, number, key in self._places.pop(name, ()):
            bucket = self._buckets[kind]
            if key is None:
                bucket.plain.pop((name, number), None)
            else:
                bucket.count(key, -1)
                if key in bucket.keyed:
                    bucket.keyed[key].pop((name, number), None)
                    if not bucket.keyed[key]:
                        del bucket.keyed[key]

    def concerned(self, entity: Entity, neighbours: Neighbours) -> Iterator[Look]:
        bucket = self._buckets.get(entity.type.id)
        if bucket is None:
            return
        yield from list(bucket.plain.values())
        for key in self._keys(bucket, entity, neighbours):
            yield from list(bucket.keyed.get(key, {}).values())

    def _keys(self, bucket: Bucket, entity: Entity, neighbours: Neighbours) -> Iterator[Key]:
        for name in bucket.attributes:
            yield "attr", name, entity.attrs.get(name)
        for slot in bucket.slots:
            if slot < len(entity.target_ids):
                yield "end", slot, entity.target_ids[slot]
        for slot, name in bucket.far:
            yield "far", slot, name, neighbours.value(entity, slot, name)
        if bucket.via:
            yield from neighbours(entity)


class Index:
    """Who has to be asked about a change of an entity."""

    def __init__(self) -> None:
        self.members: dict[Name, Standing] = {}
        self.within = Places()
        """By what their matches contain."""
        self.beside = Places()
        """By what only an exists() of theirs looks at."""

    def __len__(self) -> int:
        return len(self.members)

    def add(self, watch: Standing, ontology: Ontology) -> None:
        self.remove(watch.no, pool=watch.pool)
        self.members[watch.name] = watch
        self.within.add(watch, watch.plan, watch.plan.names)
        joined = (one for expr in watch.spec.looked_at for one in beside(expr, watch.plan, ontology))
        for number, one in enumerate(joined):
            self.beside.add(watch, one.plan, one.own, number)

    def remove(self, no: int, *, pool: bool) -> None:
        if self.members.pop((no, pool), None) is not None:
            self.within.remove((no, pool))
            self.beside.remove((no, pool))


class Neighbours:
    """The edges of a node as keys: ("via", edge type, own slot, other slot, other id)."""

    def __init__(self, reader: Reader) -> None:
        self._reader, self._session = reader, reader.session

    def value(self, edge: Entity, slot: int, name: str) -> object:
        """An attribute of what an edge has at an end."""
        node = self._reader.by_no(edge.targets[slot]) if slot < len(edge.targets) else None
        return node.attrs.get(name) if node is not None else None

    def __call__(self, entity: Entity) -> list[Key]:
        found: set[Key] = set()
        for edge, slot, kind in self._session.rows("mew_edges_of_node", {"node": entity.no}):
            ends = self._session.rows("mew_ends_of_edge", {"edge": edge})
            found |= {("via", kind, slot, other, end[1]) for other, end in enumerate(ends) if other != slot}
        return list(found)


def _key(watch: Standing, looked: Plan, variable: str) -> Key | None:
    """What makes a match with this variable unlikely enough to look for; None when nothing does."""
    wanted: dict[str, tuple[str, object]] = {}
    for bound in bounds(watch.spec.where):
        if bound.op == "=" and bound.attribute not in ("id", "_id", "_type"):
            value = int(bound.value) if isinstance(bound.value, int) else bound.value
            wanted.setdefault(bound.variable, (bound.attribute, value))
    if variable in wanted:
        return "attr", *wanted[variable]
    for edge in looked.edges:
        if "symmetric" in edge.type.flags:
            continue
        fixed = [(slot, end.id) for slot, end in enumerate(edge.ends) if not isinstance(end, str) and end is not None]
        if fixed and edge.name == variable:
            return "end", *fixed[0]
        own = next((slot for slot, end in enumerate(edge.ends) if end == variable), None)
        if fixed and own is not None:
            return "via", edge.type.id, own, *fixed[0]
        far = [(slot, *wanted[end]) for slot, end in enumerate(edge.ends) if isinstance(end, str) and end in wanted]
        if far and edge.name == variable:
            return "far", *far[0]
    return None


class Watches:
    """What stands, as this connection last read it."""

    def __init__(self) -> None:
        self.version = -1
        self.committed = Index()
        self.immediate = Index()

    def add(self, no: int, spec: WatchSpec, pool: int | None, ontology: Ontology) -> None:
        """A watch; for a consumer its pool is what is looked at."""
        if pool is None:
            index = self.immediate if spec.visibility == "immediate" else self.committed
            index.add(standing(no, spec, ontology), ontology)

    def add_pool(self, no: int, spec: WatchSpec, ontology: Ontology) -> None:
        self.committed.add(standing(no, msgspec.structs.replace(spec, filter=None), ontology, pool=True), ontology)

    def renew(self, ontology: Ontology) -> None:
        """New types may be subtypes of what is looked at."""
        for index in (self.committed, self.immediate):
            for watch in list(index.members.values()):
                index.add(standing(watch.no, watch.spec, ontology, pool=watch.pool), ontology)

    def remove(self, no: int) -> None:
        self.committed.remove(no, pool=False)
        self.immediate.remove(no, pool=False)

    def remove_pool(self, no: int) -> None:
        self.committed.remove(no, pool=True)


_known: WeakKeyDictionary[Session, Watches] = WeakKeyDictionary()


def watches_of(session: Session, version: int, ontology: Ontology) -> Watches:
    """Read again only when somebody else, or a turn that was rolled back, changed them."""
    known = _known.get(session)
    if known is None or known.version != version:
        known = _known[session] = Watches()
        known.version = version
        for row in session.rows("mew_watches_standing"):
            known.add(row[0], spec_from(row[5]), row[3], ontology)
        for row in session.rows("mew_pools"):
            known.add_pool(row[0], spec_from(row[2]), ontology)
    return known


def forget(session: Session) -> None:
    """What was remembered may be half of a change that was taken back."""
    _known.pop(session, None)
