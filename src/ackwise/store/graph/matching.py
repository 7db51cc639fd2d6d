"""A pattern as one SQL statement: joins by the ends of edges, and the attribute indexes for what WHERE compares with a
constant. What SQL cannot say as the language means it is decided afterwards, row by row."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import msgspec

from ackwise.core.graph import syntax as s
from ackwise.core.graph import system
from ackwise.core.graph.evaluating import Scope, holds, surely_holds
from ackwise.core.graph.patterns import Bound, EdgePart, Plan, bounds, conjuncts, declared, plan
from ackwise.core.graph.values import Entity
from ackwise.store.graph.reading import Reader

PREFIX = 128
"""So many characters of a text are indexed."""
_EVENTS = frozenset({system.EVENT, system.WATCH_EVENT})
MOST_BOUNDS = 8
"""Bounds beyond so many narrow the search no further and are judged row by row: SQLite joins 64 tables at most."""
CHECK_EVERY = 16
"""Rows between two looks at the clock."""
_EXACT = 1 << 53
_OPS = {"=": "=", "<": "<=", "<=": "<=", ">": ">=", ">=": ">="}


def _same(row: tuple[Any, ...]) -> tuple[Any, ...]:
    return row


class Row(msgspec.Struct, eq=False):
    """One match: entities by variable, and the numbers that tell it from every other."""

    names: dict[str, Entity]
    key: tuple[int, ...]


class Compiled(msgspec.Struct):
    """A statement, its constants, and where each variable's columns begin."""

    text: str
    params: dict[str, Any]
    columns: dict[str, int]
    whole: list[tuple[str, int]]
    """Variables whose entities were read, not only their numbers."""
    never: bool = False

    def rows(self, reader: Reader) -> Iterator[Row]:
        """Matches of the statement. Rows that share an entity share the values read for the entity."""
        if self.never:
            return
        if len(self.columns) == len(self.whole) == 1:
            yield from self._single(reader)
            return
        whole, columns = [at for _, at in self.whole], list(self.columns.values())
        names = [name for name, _ in self.whole]
        read: dict[tuple[int, int], tuple[Any, ...]] = {}
        entities: dict[int, Entity] = {}

        def shape(row: tuple[Any, ...]) -> tuple[list[tuple[Any, ...]], tuple[int, ...]]:
            parts = [read.setdefault((row[at], row[at + 2]), row[at : at + 5]) for at in whole]
            return parts, tuple([row[at] for at in columns])

        def entity(part: tuple[Any, ...]) -> Entity:
            known = entities.get(id(part))
            if known is None:
                known = entities[id(part)] = reader.entity(part)
            return known

        for number, (parts, key) in enumerate(reader.session.look(self.text, self.params, shape, reader.meter)):
            if not number % CHECK_EVERY:
                reader.check()
            yield Row(dict(zip(names, map(entity, parts), strict=True)), key)

    def _single(self, reader: Reader) -> Iterator[Row]:
        """Matches of a pattern of one element: each row is an entity."""
        name = self.whole[0][0]
        for number, row in enumerate(reader.session.look(self.text, self.params, _same, reader.meter)):
            if not number % CHECK_EVERY:
                reader.check()
            yield Row({name: reader.entity(row)}, (row[0],))


class Wanted(msgspec.Struct, frozen=True):
    """What of a pattern's matches is asked for."""

    fixed: Mapping[str, int] = {}
    """Variables that are to be these entities; also those of an enclosing pattern."""
    after: int | None = None
    """Only matches whose first element came after this one, in the order of arrival."""
    limit: int | None = None
    since: int | None = None
    """Only matches in which something changed after this tick."""
    without: int | None = None
    """An edge that is taken not to be there."""


class _Query:
    def __init__(self, reader: Reader, plan_: Plan, where: s.Expr | None, wanted: Wanted) -> None:
        self.reader, self.plan, self.wanted = reader, plan_, wanted
        self.tables: list[str] = []
        self.conditions: list[str] = []
        self.params: dict[str, Any] = {}
        self.place: dict[str, str] = {}
        self.number: dict[str, str] = {}
        self.never = False
        self._add_nodes()
        for edge in plan_.edges:
            self._add_edge(edge)
        said = [number < MOST_BOUNDS and self._add_bound(bound) for number, bound in enumerate(bounds(where))]
        self.exact = all(said) and len(said) == len(list(conjuncts(where)))
        """Whether the statement alone says what matches: nothing is left to be decided row by row."""

    def value(self, value: Any) -> str:
        name = f"p{len(self.params)}"
        # Names of parameters are letters only.
        name = "p" + "".join(chr(ord("a") + int(digit)) for digit in name[1:])
        self.params[name] = value
        return ":" + name

    def _add_nodes(self) -> None:
        for index, (name, kinds) in enumerate(self.plan.nodes.items()):
            alias = f"n{index}"
            table = "mew_event_entity" if kinds == {system.EVENT} else "mew_entity"
            self.tables.append(f"{table} AS {alias}")
            self._of_types(alias, kinds)
            self.place[name], self.number[name] = alias, f"{alias}.no"
            if name in self.wanted.fixed:
                self.conditions.append(f"{alias}.no = {self.value(self.wanted.fixed[name])}")

    def _of_types(self, alias: str, kinds: frozenset[int]) -> None:
        if not kinds:
            self.never = True
        elif len(kinds) == 1:
            self.conditions.append(f"{alias}.type = {self.value(next(iter(kinds)))}")
        else:
            self.conditions.append(f"{alias}.type IN ({', '.join(self.value(kind) for kind in sorted(kinds))})")

    def _add_edge(self, edge: EdgePart) -> None:
        index = len(self.tables)
        stored = edge.type.id != system.WATCH_EVENT
        ends_table, entity_table = ("mew_end", "mew_entity") if stored else ("mew_event_end", "mew_event_edge")
        either_way = "symmetric" in edge.type.flags and len(edge.type.slots) == 2
        base = ""
        aliases: list[str] = []
        for slot, end in enumerate(edge.ends):
            if end is None:
                continue
            alias = f"e{index}s{slot}"
            self.tables.append(f"{ends_table} AS {alias}")
            if not either_way:
                self.conditions.append(f"{alias}.slot = {slot}")
            elif aliases:
                self.conditions.append(f"{alias}.slot <> {aliases[0]}.slot")
            self.conditions.append(f"{alias}.type = {self.value(edge.type.id)}")
            if base:
                self.conditions.append(f"{alias}.edge = {base}.edge")
            base = base or alias
            aliases.append(alias)
            self._join_end(alias, end)
        if either_way and base:
            # An edge that joins a node with itself is the same from both sides.
            far = f"SELECT 1 FROM {ends_table} AS far WHERE far.edge = {base}.edge AND far.slot = 0"  # noqa: S608
            self.conditions.append(f"({base}.slot = 0 OR EXISTS ({far} AND far.node <> {base}.node))")
        if not base or not edge.name.startswith("~") or self.wanted.since is not None:
            alias = f"e{index}"
            self.tables.append(f"{entity_table} AS {alias}")
            self._of_types(alias, frozenset({edge.type.id}))
            if base:
                self.conditions.append(f"{alias}.no = {base}.edge")
            self.place[edge.name] = alias
        self.number[edge.name] = f"{base}.edge" if base else f"{self.place[edge.name]}.no"
        if edge.name in self.wanted.fixed:
            self.conditions.append(f"{self.number[edge.name]} = {self.value(self.wanted.fixed[edge.name])}")
        if self.wanted.without is not None:
            self.conditions.append(f"{self.number[edge.name]} <> {self.value(self.wanted.without)}")

    def _join_end(self, alias: str, end: str | s.IdRef) -> None:
        if isinstance(end, s.IdRef):
            row = self.reader.session.row("mew_entity_by_id", {"id": end.id})
            self.never = self.never or row is None
            self.conditions.append(f"{alias}.node = {self.value(row[0] if row else 0)}")
        elif end in self.number:
            self.conditions.append(f"{alias}.node = {self.number[end]}")
        else:
            self.conditions.append(f"{alias}.node = {self.value(self.wanted.fixed[end])}")

    def _add_bound(self, bound: Bound) -> bool:
        """Narrow the search; whether that says all that the bound says."""
        alias = self.place.get(bound.variable)
        if alias is None:
            return False
        if bound.attribute in ("id", "_id") and bound.op == "=":
            if isinstance(bound.value, str):
                self.conditions.append(f"{alias}.id = {self.value(bound.value)}")
            return isinstance(bound.value, str)
        attribute = declared(bound, self.plan, self.reader.ontology)
        if attribute is None:
            return False
        table, value = indexed(bound.value)
        found = f"v{len(self.tables)}"
        self.tables.append(f"{table} AS {found}")
        self.conditions.append(f"{found}.attr = {self.value(attribute.no)}")
        self.conditions.append(f"{found}.value {_OPS[bound.op]} {self.value(value)}")
        self.conditions.append(f"{found}.entity = {alias}.no")
        if bound.variable == self.plan.first and bound.op == "=":
            self.number[bound.variable] = f"{found}.entity"
        return _exact(bound)

    def count(self) -> int:
        """How many matches there are, where the statement says it all."""
        # Made of names from this file and numbers; whatever a user wrote is a parameter.
        text = f"SELECT count(*) FROM {', '.join(self.tables)}"  # noqa: S608
        if self.conditions:
            text += f" WHERE {' AND '.join(self.conditions)}"
        if self.never:
            return 0
        return int(self.reader.session.look(text, self.params, _same, self.reader.meter)[0][0])

    def finish(self, only: list[str] | None = None) -> Compiled:
        """The whole statement; with `only` these variables, each combination of them once and in no order."""
        columns: dict[str, int] = {}
        chosen: list[str] = []
        for name in only or self.plan.names:
            columns[name] = len(chosen)
            if name in self.place:
                alias = self.place[name]
                chosen += [f"{alias}.no", f"{alias}.id", f"{alias}.type", f"{alias}.attrs", f"{alias}.tick"]
            else:
                chosen.append(self.number[name])
        first = self.number[self.plan.first]
        if self.wanted.after is not None:
            self.conditions.append(f"{first} > {self.value(self.wanted.after)}")
        if self.wanted.since is not None:
            since = self.value(self.wanted.since)
            self.conditions.append("(" + " OR ".join(f"{a}.tick > {since}" for a in self.place.values()) + ")")
        # Made of names from this file and numbers; whatever a user wrote is a parameter.
        text = f"SELECT {'DISTINCT ' if only else ''}{', '.join(chosen)} FROM {', '.join(self.tables)}"  # noqa: S608
        if self.conditions:
            text += f" WHERE {' AND '.join(self.conditions)}"
        if not only:
            # Events count downwards, to be told from entities.
            text += f" ORDER BY {first}{' DESC' if self.plan.types(self.plan.first) <= _EVENTS else ''}"
        if self.wanted.limit is not None:
            text += f" LIMIT {self.value(self.wanted.limit)}"
        whole = [(name, at) for name, at in columns.items() if name in self.place]
        return Compiled(text, self.params, columns, whole, self.never)


def _exact(bound: Bound) -> bool:
    """Texts are indexed by their beginning, numbers as floats, and bounds of ranges are included."""
    if isinstance(bound.value, str):
        return bound.op == "=" and len(bound.value) < PREFIX
    return bound.op in ("=", "<=", ">=") and abs(bound.value) < _EXACT


def indexed(value: str | int | float | bool) -> tuple[str, str | float]:
    """Where a value is indexed and as what."""
    if isinstance(value, str):
        return "mew_txt", value[:PREFIX]
    return "mew_num", float(value)


def count(reader: Reader, plan_: Plan, where: s.Expr | None) -> int | None:
    """How many matches there are, counted by the database; None when it cannot know."""
    query = _Query(reader, plan_, where, Wanted())
    return query.count() if query.exact else None


def is_exact(reader: Reader, plan_: Plan, where: s.Expr | None) -> bool:
    """Whether the database alone can tell which are the first matches."""
    return where is None or _Query(reader, plan_, where, Wanted()).exact


class Page(msgspec.Struct):
    """Matches among `looked` candidates; `last` is the first element of the last candidate."""

    rows: list[Row] = []
    looked: int = 0
    last: int = 0


def standing_match(reader: Reader, plan_: Plan, where: s.Expr | None, wanted: Wanted = Wanted()) -> Iterator[Row]:  # noqa: B008
    """Matches of a standing query: a candidate that cannot be judged is none."""
    return (row for row, kept in _candidates(reader, plan_, where, wanted, surely_holds) if kept)


def page(reader: Reader, plan_: Plan, where: s.Expr | None, wanted: Wanted) -> Page:
    """Some candidates of a standing query, and which of them match: what WHERE drops still counts as looked at."""
    found = Page()
    first = plan_.names.index(plan_.first)
    for candidate, kept in _candidates(reader, plan_, where, wanted, surely_holds):
        found.looked += 1
        found.last = candidate.key[first]
        if kept:
            found.rows.append(candidate)
    return found


def match(reader: Reader, plan_: Plan, where: s.Expr | None, wanted: Wanted = Wanted()) -> Iterator[Row]:  # noqa: B008
    """Matches in the order in which their first element arrived."""
    return (row for row, kept in _candidates(reader, plan_, where, wanted) if kept)


def _candidates(
    reader: Reader,
    plan_: Plan,
    where: s.Expr | None,
    wanted: Wanted,
    judge: Callable[[s.Expr | None, Scope], bool] = holds,
) -> Iterator[tuple[Row, bool]]:
    scope = scope_of(reader, {})
    for row in _Query(reader, plan_, where, wanted).finish().rows(reader):
        yield row, judge(where, scope.with_names(row.names))


def around(reader: Reader, joined: Plan, where: s.Expr | None, names: list[str], wanted: Wanted) -> Iterator[Row]:
    """What a pattern's exists() is joined with: matches, by the pattern's own names, of which WHERE is not judged."""
    return _Query(reader, joined, where, wanted).finish(names).rows(reader)


def scope_of(reader: Reader, names: Mapping[str, Entity], without: int | None = None) -> Scope:
    """`without` is an edge that no exists() finds."""
    return Scope(
        names,
        reader.now,
        reader.tick,
        lambda exists, here: _exists(reader, exists, here, without),
        reader.by_id,
        None if reader.meter is None else reader.meter.check,
    )


def _exists(reader: Reader, exists: s.Exists, names: Mapping[str, Entity], without: int | None) -> bool:
    """Whether the inner pattern has a match in which the names of the outer one stay what they are."""
    outer = {name: entity for name, entity in names.items() if not name.startswith("~")}
    inner = plan(exists.pattern, reader.ontology, frozenset(outer))
    if any(entity.type.id not in inner.nodes.get(name, {entity.type.id}) for name, entity in outer.items()):
        return False
    nodes = {name: kinds for name, kinds in inner.nodes.items() if name not in outer}
    first = inner.first if inner.first not in outer else next(iter([*nodes, *(edge.name for edge in inner.edges)]), "")
    if not first:
        return True
    inner = Plan(nodes, inner.edges, inner.variables, first)
    wanted = Wanted({name: entity.no for name, entity in outer.items()}, without=without)
    for found in _Query(reader, inner, exists.where, wanted).finish().rows(reader):
        if holds(exists.where, scope_of(reader, {**outer, **found.names}, without)):
            return True
    return False
