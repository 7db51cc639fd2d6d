"""Matches the patterns of a statement that changes the graph: in the turn, or before it by a reader.

A turn first matches the pattern itself, for a few milliseconds. If that is not enough, a reader matches the pattern
outside the turn, and the turn only checks the reader's matches: decision 8 in docs/decisions.
"""

from __future__ import annotations

from collections.abc import Iterator

from ackwise.engine.statement_limits import DEFAULT_LIMITS
from ackwise.engine.statement_meter import Cancelled, Meter, Overrun
from ackwise.graph import ast as s
from ackwise.graph.commands import ReaderMatches, RunGraph
from ackwise.graph.engine import pattern_sql
from ackwise.graph.engine.entities import Graph
from ackwise.graph.engine.entity_reads import Reader
from ackwise.graph.errors import MatchFirst, Outrun
from ackwise.graph.expressions import holds
from ackwise.graph.patterns import PatternPlan, check_names, exists_in, plan_pattern, reads_clock, reads_other_entity
from ackwise.graph.values import Entity

TURN_SECONDS = 0.01
TURN_ROWS = 1000
"""Seconds and rows that a turn may use for a match. Beyond one of them, the statement goes to a reader."""

Names = dict[str, Entity]


def patterns(statement: s.Statement) -> Iterator[s.Match]:
    """Patterns that a reader may match in advance, because the statement itself does not change their matches."""
    match statement:
        case s.Match(mutations=mutations) if mutations:
            yield statement
        case s.Set(target=s.Chosen(match=match)) | s.Kill(target=s.Chosen(match=match)):
            yield match
        case s.Unlink(targets=(s.Chosen(match=match),)):
            yield match
        case s.Link(targets=targets) if not any(isinstance(target, s.SpawnItem) for target in targets):
            yield from (target.match for target in targets if isinstance(target, s.Chosen))


def may_wait(command: RunGraph) -> bool:
    """Whether the turn may refuse the command with `MatchFirst`."""
    if command.found is not None or command.dry or command.tried or len(command.steps) != 1:
        return False
    if isinstance(command.steps[0].statement, s.Spawn | s.SettleStatement):
        return False
    return next(patterns(command.steps[0].statement), None) is not None


def find(reader: Reader, statement: s.Statement) -> tuple[ReaderMatches, ...]:
    """Match the patterns of a statement in a reader."""
    return tuple(_find(reader, match) for match in patterns(statement))


def _find(reader: Reader, match: s.Match) -> ReaderMatches:
    plan = _plan(reader, match)
    rows = [row.key for row in pattern_sql.match(reader, plan, match.where)]
    return ReaderMatches(match, reader.state.tick, reader.state.ontology, tuple(plan.names), rows)


def _plan(reader: Reader, match: s.Match) -> PatternPlan:
    plan = plan_pattern(match.pattern, reader.ontology)
    check_names(match.where, plan, reader.ontology)
    return plan


def matched(graph: Graph, match: s.Match) -> tuple[str, list[Names]]:
    """The matches of a pattern, and the name of its first element."""
    plan = _plan(graph, match)
    ready = next((found for found in graph.found if found.match is match), None)
    if ready is not None:
        return plan.first, list(_checked(graph, ready))
    if not graph.may_wait:
        return plan.first, [dict(row.names) for row in pattern_sql.match(graph, plan, match.where)]
    whole = graph.meter
    graph.meter = Meter(whole.limits if whole else DEFAULT_LIMITS, seconds=TURN_SECONDS, rows=TURN_ROWS)
    try:
        return plan.first, [dict(row.names) for row in pattern_sql.match(graph, plan, match.where)]
    except Cancelled:
        raise
    except Overrun:
        raise MatchFirst from None
    finally:
        graph.meter = whole


def _checked(graph: Graph, ready: ReaderMatches) -> Iterator[Names]:
    """The matched entities as they are now. Raises `Outrun` if an entity changed or a match no longer holds."""
    if graph.state.ontology != ready.ontology:
        raise Outrun
    is_stale = graph.state.tick != ready.tick
    where = ready.match.where
    may_differ = is_stale and _depends_on_more(where)
    scope = pattern_sql.scope_of(graph, {})
    for row in ready.rows:
        if any(no < 0 for no in row):
            continue  # events of watches are not entities and cannot be changed
        names = {name: _unchanged(graph, no, ready.tick) for name, no in zip(ready.names, row, strict=True)}
        if may_differ and not holds(where, scope.with_names(names)):
            raise Outrun
        yield {name: entity for name, entity in names.items() if not name.startswith("~")}


def _depends_on_more(where: s.Expr | None) -> bool:
    """Whether a condition may change though none of the matched entities does."""
    return reads_other_entity(where) or reads_clock(where) or next(exists_in(where), None) is not None


def _unchanged(graph: Graph, no: int, tick: int) -> Entity:
    """An entity that has not changed since the tick."""
    entity = graph.by_no(no)
    if entity is None or (graph.state.tick != tick and entity.tick > tick):
        raise Outrun
    return entity
