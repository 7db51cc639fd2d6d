"""Compiles a pattern to one SQL query and reads its matches."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import msgspec

from ackwise.graph import ast as s
from ackwise.graph import system_types
from ackwise.graph.engine.entity_reads import Reader
from ackwise.graph.expressions import Scope, holds, surely_holds
from ackwise.graph.patterns import PREFIX, Bound, EdgePart, PatternPlan, bounds, conjuncts, declared, plan_pattern
from ackwise.graph.values import Entity

_EVENTS = frozenset({system_types.EVENT, system_types.WATCH_EVENT})
MOST_BOUNDS = 8
"""Bounds that join an index. Further ones are checked row by row: SQLite joins at most 64 tables."""
CHECK_EVERY = 16
"""Rows between two checks of the time limit."""
_EXACT = 1 << 53
_OPS = {"=": "=", "<": "<=", "<=": "<=", ">": ">=", ">=": ">="}


def _same(row: tuple[Any, ...]) -> tuple[Any, ...]:
    return row


class MatchRow(msgspec.Struct, eq=False):
    """One match: its entities by variable, and their numbers as its identity."""

    names: dict[str, Entity]
    key: tuple[int, ...]


class Compiled(msgspec.Struct):
    """SQL text, its parameters, and the first column of each variable."""

    text: str
    params: dict[str, Any]
    columns: dict[str, int]
    whole: list[tuple[str, int]]
    """Variables whose whole entity the SQL reads, not only its number."""
    never: bool = False
    """The pattern cannot match: do not run the SQL."""

    def rows(self, reader: Reader) -> Iterator[MatchRow]:
        """Run the SQL. Rows that share an entity share one `Entity`."""
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
            yield MatchRow(dict(zip(names, map(entity, parts), strict=True)), key)

    def _single(self, reader: Reader) -> Iterator[MatchRow]:
        """Run the SQL of a pattern with one element: each row is an entity."""
        name = self.whole[0][0]
        for number, row in enumerate(reader.session.look(self.text, self.params, _same, reader.meter)):
            if not number % CHECK_EVERY:
                reader.check()
            yield MatchRow({name: reader.entity(row)}, (row[0],))


class Search(msgspec.Struct, frozen=True):
    """Restricts which matches of a pattern are found."""

    fixed: Mapping[str, int] = {}
    """Variables that must be these entities, by number. Includes variables of an enclosing pattern."""
    after: int | None = None
    """Only matches whose first element has a higher number."""
    limit: int | None = None
    since: int | None = None
    """Only matches with an entity that changed after this tick."""
    without: int | None = None
    """Treat this edge as absent."""


class _Query:
    """Builds the SQL of a pattern: one table per node, per end of an edge and per bound."""

    def __init__(self, reader: Reader, plan: PatternPlan, where: s.Expr | None, search: Search) -> None:
        self.reader, self.plan, self.search = reader, plan, search
        self.tables: list[str] = []
        self.conditions: list[str] = []
        self.params: dict[str, Any] = {}
        self.alias: dict[str, str] = {}
        """Table alias of each variable whose whole entity is read."""
        self.number: dict[str, str] = {}
        """SQL expression of each variable's number."""
        self.never = False
        self._add_nodes()
        for edge in plan.edges:
            self._add_edge(edge)
        covered = [number < MOST_BOUNDS and self._add_bound(bound) for number, bound in enumerate(bounds(where))]
        self.exact = all(covered) and len(covered) == len(list(conjuncts(where)))
        """Whether the SQL alone decides what matches, without a check of each row."""

    def value(self, value: Any) -> str:
        name = f"p{len(self.params)}"
        # Sessions accept only letters in parameter names.
        name = "p" + "".join(chr(ord("a") + int(digit)) for digit in name[1:])
        self.params[name] = value
        return ":" + name

    def _add_nodes(self) -> None:
        for index, (name, kinds) in enumerate(self.plan.nodes.items()):
            alias = f"n{index}"
            table = "mew_event_entity" if kinds == {system_types.EVENT} else "mew_entity"
            self.tables.append(f"{table} AS {alias}")
            self._of_types(alias, kinds)
            self.alias[name], self.number[name] = alias, f"{alias}.no"
            if name in self.search.fixed:
                self.conditions.append(f"{alias}.no = {self.value(self.search.fixed[name])}")

    def _of_types(self, alias: str, kinds: frozenset[int]) -> None:
        if not kinds:
            self.never = True
        elif len(kinds) == 1:
            self.conditions.append(f"{alias}.type = {self.value(next(iter(kinds)))}")
        else:
            self.conditions.append(f"{alias}.type IN ({', '.join(self.value(kind) for kind in sorted(kinds))})")

    def _add_edge(self, edge: EdgePart) -> None:
        """Join the tables of an edge: one for each end in the pattern, and the edge itself if the query reads it."""
        index = len(self.tables)
        stored = edge.type.id != system_types.WATCH_EVENT
        ends_table, entity_table = ("mew_end", "mew_entity") if stored else ("mew_event_end", "mew_event_edge")
        base = self._join_ends(edge, index, ends_table)
        if not base or not edge.name.startswith("~") or self.search.since is not None:
            alias = f"e{index}"
            self.tables.append(f"{entity_table} AS {alias}")
            self._of_types(alias, frozenset({edge.type.id}))
            if base:
                self.conditions.append(f"{alias}.no = {base}.edge")
            self.alias[edge.name] = alias
        self.number[edge.name] = f"{base}.edge" if base else f"{self.alias[edge.name]}.no"
        if edge.name in self.search.fixed:
            self.conditions.append(f"{self.number[edge.name]} = {self.value(self.search.fixed[edge.name])}")
        if self.search.without is not None:
            self.conditions.append(f"{self.number[edge.name]} <> {self.value(self.search.without)}")

    def _join_ends(self, edge: EdgePart, index: int, table: str) -> str:
        """Join one row of the ends table for each end. Returns the alias of the first. Empty when all are `_`."""
        either_way = "symmetric" in edge.type.flags and len(edge.type.slots) == 2
        base = ""
        for slot, end in enumerate(edge.ends):
            if end is None:
                continue
            alias = f"e{index}s{slot}"
            self.tables.append(f"{table} AS {alias}")
            if not either_way:
                self.conditions.append(f"{alias}.slot = {slot}")
            elif base:
                self.conditions.append(f"{alias}.slot <> {base}.slot")
            self.conditions.append(f"{alias}.type = {self.value(edge.type.id)}")
            if base:
                self.conditions.append(f"{alias}.edge = {base}.edge")
            base = base or alias
            self._join_end(alias, end)
        if either_way and base:
            # Find an edge between a node and itself once, not from both sides.
            far = f"SELECT 1 FROM {table} AS far WHERE far.edge = {base}.edge AND far.slot = 0"  # noqa: S608
            self.conditions.append(f"({base}.slot = 0 OR EXISTS ({far} AND far.node <> {base}.node))")
        return base

    def _join_end(self, alias: str, end: str | s.IdRef) -> None:
        if isinstance(end, s.IdRef):
            row = self.reader.session.row("mew_entity_by_id", {"id": end.id})
            self.never = self.never or row is None
            self.conditions.append(f"{alias}.node = {self.value(row[0] if row else 0)}")
        elif end in self.number:
            self.conditions.append(f"{alias}.node = {self.number[end]}")
        else:
            self.conditions.append(f"{alias}.node = {self.value(self.search.fixed[end])}")

    def _add_bound(self, bound: Bound) -> bool:
        """Join the index of a bound's attribute. Returns whether the SQL then covers the bound completely."""
        alias = self.alias.get(bound.variable)
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
        index = f"v{len(self.tables)}"
        self.tables.append(f"{table} AS {index}")
        self.conditions.append(f"{index}.attr = {self.value(attribute.no)}")
        self.conditions.append(f"{index}.value {_OPS[bound.op]} {self.value(value)}")
        self.conditions.append(f"{index}.entity = {alias}.no")
        if bound.variable == self.plan.first and bound.op == "=":
            self.number[bound.variable] = f"{index}.entity"
        return _exact(bound)

    def count(self) -> int:
        """The number of matches. Only right when the query is `exact`."""
        # The text contains names from this file and numbers. Values of users are parameters.
        text = f"SELECT count(*) FROM {', '.join(self.tables)}"  # noqa: S608
        if self.conditions:
            text += f" WHERE {' AND '.join(self.conditions)}"
        if self.never:
            return 0
        return int(self.reader.session.look(text, self.params, _same, self.reader.meter)[0][0])

    def finish(self, only: list[str] | None = None) -> Compiled:
        """The finished SQL. With `only` it returns distinct combinations of these variables, in any order."""
        columns: dict[str, int] = {}
        chosen: list[str] = []
        for name in only or self.plan.names:
            columns[name] = len(chosen)
            if name in self.alias:
                alias = self.alias[name]
                chosen += [f"{alias}.no", f"{alias}.id", f"{alias}.type", f"{alias}.attrs", f"{alias}.tick"]
            else:
                chosen.append(self.number[name])
        first = self.number[self.plan.first]
        if self.search.after is not None:
            self.conditions.append(f"{first} > {self.value(self.search.after)}")
        if self.search.since is not None:
            since = self.value(self.search.since)
            self.conditions.append("(" + " OR ".join(f"{a}.tick > {since}" for a in self.alias.values()) + ")")
        # The text contains names from this file and numbers. Values of users are parameters.
        text = f"SELECT {'DISTINCT ' if only else ''}{', '.join(chosen)} FROM {', '.join(self.tables)}"  # noqa: S608
        if self.conditions:
            text += f" WHERE {' AND '.join(self.conditions)}"
        if not only:
            # The numbers of events are negative and descend, unlike those of entities.
            text += f" ORDER BY {first}{' DESC' if self.plan.types(self.plan.first) <= _EVENTS else ''}"
        if self.search.limit is not None:
            text += f" LIMIT {self.value(self.search.limit)}"
        whole = [(name, at) for name, at in columns.items() if name in self.alias]
        return Compiled(text, self.params, columns, whole, self.never)


def _exact(bound: Bound) -> bool:
    """Whether the index alone decides the bound.

    It does not for long strings and ranges of strings (the index truncates strings), for large numbers (it stores
    floats) and for open range ends (it includes range ends).
    """
    if isinstance(bound.value, str):
        return bound.op == "=" and len(bound.value) < PREFIX
    return bound.op in ("=", "<=", ">=") and abs(bound.value) < _EXACT


def indexed(value: str | int | float | bool) -> tuple[str, str | float]:
    """The index table for a value, and the value as stored there."""
    if isinstance(value, str):
        return "mew_txt", value[:PREFIX]
    return "mew_num", float(value)


def count(reader: Reader, plan: PatternPlan, where: s.Expr | None) -> int | None:
    """The number of matches, counted by the database. None if the rows need a check in Python."""
    query = _Query(reader, plan, where, Search())
    return query.count() if query.exact else None


def is_exact(reader: Reader, plan: PatternPlan, where: s.Expr | None) -> bool:
    """Whether the database alone decides what matches, so that it can apply LIMIT."""
    return where is None or _Query(reader, plan, where, Search()).exact


class PatternPage(msgspec.Struct):
    """Matches among some candidates."""

    rows: list[MatchRow] = []
    candidates: int = 0
    """How many rows the SQL returned, including those that WHERE drops."""
    last: int = 0
    """The first element of the last candidate."""


def standing_match(
    reader: Reader,
    plan: PatternPlan,
    where: s.Expr | None,
    search: Search = Search(),  # noqa: B008
) -> Iterator[MatchRow]:
    """Matches of a standing query. A row whose condition raises an error does not match."""
    return (row for row, matches in _candidates(reader, plan, where, search, surely_holds) if matches)


def page(reader: Reader, plan: PatternPlan, where: s.Expr | None, search: Search) -> PatternPage:
    """One page of a standing query's candidates."""
    result = PatternPage()
    first = plan.names.index(plan.first)
    for candidate, matches in _candidates(reader, plan, where, search, surely_holds):
        result.candidates += 1
        result.last = candidate.key[first]
        if matches:
            result.rows.append(candidate)
    return result


def match(reader: Reader, plan: PatternPlan, where: s.Expr | None, search: Search = Search()) -> Iterator[MatchRow]:  # noqa: B008
    """Matches, ordered by the arrival of their first element."""
    return (row for row, matches in _candidates(reader, plan, where, search) if matches)


def _candidates(
    reader: Reader,
    plan: PatternPlan,
    where: s.Expr | None,
    search: Search,
    judge: Callable[[s.Expr | None, Scope], bool] = holds,
) -> Iterator[tuple[MatchRow, bool]]:
    """Rows of the SQL, each with whether it meets the condition."""
    scope = scope_of(reader, {})
    for row in _Query(reader, plan, where, search).finish().rows(reader):
        yield row, judge(where, scope.with_names(row.names))


def around(
    reader: Reader, joined: PatternPlan, where: s.Expr | None, names: list[str], search: Search
) -> Iterator[MatchRow]:
    """Rows of a pattern joined with an exists(), as the pattern's own variables. WHERE is not checked."""
    return _Query(reader, joined, where, search).finish(names).rows(reader)


def scope_of(reader: Reader, names: Mapping[str, Entity], without: int | None = None) -> Scope:
    """The scope for expressions over these entities. With `without`, no exists() finds that edge."""
    return Scope(
        names,
        reader.now,
        reader.tick,
        exists=lambda exists, outer: _exists(reader, exists, outer, without),
        find=reader.by_id,
        check=None if reader.meter is None else reader.meter.check,
    )


def _exists(reader: Reader, exists: s.Exists, names: Mapping[str, Entity], without: int | None) -> bool:
    """Whether the inner pattern has a match that keeps the entities of the outer one."""
    outer = {name: entity for name, entity in names.items() if not name.startswith("~")}
    inner = plan_pattern(exists.pattern, reader.ontology, frozenset(outer))
    if any(entity.type.id not in inner.nodes.get(name, {entity.type.id}) for name, entity in outer.items()):
        return False
    nodes = {name: kinds for name, kinds in inner.nodes.items() if name not in outer}
    first = inner.first if inner.first not in outer else next(iter([*nodes, *(edge.name for edge in inner.edges)]), "")
    if not first:
        return True
    inner = PatternPlan(nodes, inner.edges, inner.variables, first)
    search = Search({name: entity.no for name, entity in outer.items()}, without=without)
    for row in _Query(reader, inner, exists.where, search).finish().rows(reader):
        if holds(exists.where, scope_of(reader, {**outer, **row.names}, without)):
            return True
    return False
