"""Answers the graph's queries, and MATCH and INSPECT of a turn. Importing this module registers the queries."""

from __future__ import annotations

from ackwise.engine.reads.registry import Snapshot, answers
from ackwise.graph import ast as s
from ackwise.graph import declarations, errors
from ackwise.graph.commands import AskGraph, DescribeGraph, FindGraph, GraphRows, IsSessionHere, ReaderMatches, TypeRow
from ackwise.graph.engine import early_matches, pattern_sql
from ackwise.graph.engine.entity_reads import Reader
from ackwise.graph.engine.pattern_sql import Search
from ackwise.graph.patterns import PatternPlan, check_names, plan_pattern
from ackwise.graph.projection import Count, count_column, limit_of, plain, project


@answers(AskGraph)
def ask(snapshot: Snapshot, query: AskGraph) -> GraphRows:
    """Answer a MATCH or INSPECT. If a delivery is past its deadline, the answer is `due`: expire it first."""
    if snapshot.session.row("mew_leases_expired", {"now": snapshot.now, "limit": 1}) is not None:
        return GraphRows([], [], due=True)
    if isinstance(query.statement, s.Inspect):
        return inspect(_reader(snapshot), query.statement)
    return ask_match(_reader(snapshot), query.statement)


@answers(FindGraph)
def find(snapshot: Snapshot, query: FindGraph) -> tuple[ReaderMatches, ...]:
    """Match the patterns of a statement that changes the graph, before its turn."""
    return early_matches.find(_reader(snapshot), query.statement)


def _reader(snapshot: Snapshot) -> Reader:
    return Reader(snapshot.session, snapshot.wall, snapshot.meter)


@answers(DescribeGraph)
def describe(snapshot: Snapshot, _: DescribeGraph) -> list[TypeRow]:
    """The users' types, each with its declaration and the number of its entities."""
    ontology = _reader(snapshot).ontology
    counts = {row[0]: row[1] for row in snapshot.session.rows("mew_counts")}
    rows = []
    for name, declared in ontology.declared.items():
        if not name.startswith("_"):
            kind = ontology.nodes.get(name) or ontology.edges.get(name)
            rows.append(TypeRow(name, declarations.declaration(declared), counts.get(kind.id, 0) if kind else 0))
    return rows


@answers(IsSessionHere)
def is_here(snapshot: Snapshot, query: IsSessionHere) -> bool:
    """Whether the session belongs to the broker that asks."""
    row = snapshot.session.row("mew_session_by_id", {"id": query.session})
    return row is not None and row[2] == snapshot.instance


def ask_match(reader: Reader, statement: s.Match) -> GraphRows:
    """Answer a MATCH without mutations. The database counts, and applies LIMIT, if the SQL is exact."""
    if statement.returns is None:
        raise errors.constraint("a MATCH that only looks ends with RETURN", statement.at)
    plan = plan_pattern(statement.pattern, reader.ontology)
    _check_match(reader, statement, statement.returns, plan)
    column = count_column(statement, plan.variables)
    if column is not None and (number := pattern_sql.count(reader, plan, statement.where)) is not None:
        return GraphRows([column], [[number]])
    limit = limit_of(statement)
    if limit is not None and not pattern_sql.is_exact(reader, plan, statement.where):
        limit = None
    rows = (row.names for row in pattern_sql.match(reader, plan, statement.where, Search(limit=limit)))
    columns, values = project(statement, plan.variables, rows, pattern_sql.scope_of(reader, {}), _count(reader))
    return GraphRows(columns, values)


def _check_match(reader: Reader, statement: s.Match, returns: s.Return, plan: PatternPlan) -> None:
    """Refuse unknown names in WHERE, RETURN and ORDER BY. ORDER BY may also use aliases of RETURN."""
    check_names(statement.where, plan, reader.ontology)
    for projection in returns.projections:
        check_names(projection.of, plan, reader.ontology)
    aliases = {projection.alias for projection in returns.projections if projection.alias}
    for key in statement.order:
        if not isinstance(key.by, s.Name) or key.by.name not in aliases:
            check_names(key, plan, reader.ontology)


def _count(reader: Reader) -> Count:
    return _uncounted if reader.meter is None else reader.meter.made


def _uncounted(value: object) -> None:
    pass


def inspect(reader: Reader, statement: s.Inspect) -> GraphRows:
    """Answer an INSPECT: one entity with all its attributes, or with those that RETURN names."""
    entity = reader.by_id(statement.ref.id)
    if entity is None:
        return GraphRows([], [], found=False)
    if statement.returns is None:
        shown = entity.shown()
        return GraphRows(list(shown), [list(shown.values())], found=True)
    columns, row = [], []
    count = _count(reader)
    for projection in statement.returns.projections:
        if projection.of is None:
            shown = entity.shown()
            columns += list(shown)
            row += list(shown.values())
            count(shown)
        elif isinstance(projection.of, s.Name):
            columns.append(projection.name)
            row.append(plain(entity.value(projection.of.name, projection.of.at)))
            count(row[-1])
        else:
            raise errors.constraint("INSPECT returns attributes by their names", statement.at)
    return GraphRows(columns, [row], found=True)
