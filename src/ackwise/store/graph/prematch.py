"""The matching part of a statement that changes the graph.

A turn first matches the pattern itself, within milliseconds. A reader beside the writer matches patterns that take
longer, and the turn only checks the reader's matches: decision 8 in docs/decisions.
"""

from __future__ import annotations

from collections.abc import Iterator

from ackwise.core.graph import syntax as s
from ackwise.core.graph.budget import DEFAULT_LIMITS
from ackwise.core.graph.commands import FindGraph, Found, RunGraph
from ackwise.core.graph.evaluating import holds
from ackwise.core.graph.faults import MatchFirst, Outrun
from ackwise.core.graph.patterns import Plan, check_names, exists_in, looks_elsewhere, plan, tells_time
from ackwise.core.graph.values import Entity
from ackwise.store.graph import matching
from ackwise.store.graph.reading import Reader
from ackwise.store.graph.writing import Graph
from ackwise.store.meter import Cancelled, Meter, Overrun
from ackwise.store.session import Session

TURN_SECONDS = 0.01
TURN_ROWS = 1000
"""Seconds and rows that a turn uses to match. When one of them is used up, the statement goes to a reader."""

Names = dict[str, Entity]


def patterns(statement: s.Statement) -> Iterator[s.Match]:
    """Patterns that a reader may match before the statement runs: nothing that the statement does changes them."""
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
    if isinstance(command.steps[0].statement, s.Spawn | s.Settle):
        return False
    return next(patterns(command.steps[0].statement), None) is not None


def find(session: Session, now: int, query: FindGraph, meter: Meter) -> tuple[Found, ...]:
    """A reader's matches for the patterns of a statement."""
    reader = Reader(session, now, meter)
    return tuple(_find(reader, match) for match in patterns(query.statement))


def _find(reader: Reader, match: s.Match) -> Found:
    looked = _planned(reader, match)
    rows = [row.key for row in matching.match(reader, looked, match.where)]
    return Found(match, reader.state.tick, reader.state.ontology, tuple(looked.names), rows)


def _planned(reader: Reader, match: s.Match) -> Plan:
    looked = plan(match.pattern, reader.ontology)
    check_names(match.where, looked, reader.ontology)
    return looked


def matched(graph: Graph, match: s.Match) -> tuple[str, list[Names]]:
    """The matches of a pattern, and the name of its first element."""
    looked = _planned(graph, match)
    ready = next((found for found in graph.found if found.match is match), None)
    if ready is not None:
        return looked.first, list(_checked(graph, ready))
    if not graph.may_wait:
        return looked.first, [dict(row.names) for row in matching.match(graph, looked, match.where)]
    whole = graph.meter
    graph.meter = Meter(whole.limits if whole else DEFAULT_LIMITS, seconds=TURN_SECONDS, rows=TURN_ROWS)
    try:
        return looked.first, [dict(row.names) for row in matching.match(graph, looked, match.where)]
    except Cancelled:
        raise
    except Overrun:
        raise MatchFirst from None
    finally:
        graph.meter = whole


def _checked(graph: Graph, ready: Found) -> Iterator[Names]:
    """The matched entities as they are now. Raises `Outrun` if an entity changed or a match no longer holds."""
    if graph.state.ontology != ready.ontology:
        raise Outrun
    moved = graph.state.tick != ready.tick
    where = ready.match.where
    again = moved and (looks_elsewhere(where) or tells_time(where) or next(exists_in(where), None) is not None)
    scope = matching.scope_of(graph, {})
    for row in ready.rows:
        if any(no < 0 for no in row):
            continue  # events of watches are no entities, and cannot be changed
        names: Names = {}
        for name, no in zip(ready.names, row, strict=True):
            entity = graph.by_no(no)
            if entity is None or (moved and entity.tick > ready.tick):
                raise Outrun
            names[name] = entity
        if again and not holds(where, scope.with_names(names)):
            raise Outrun
        yield {name: entity for name, entity in names.items() if not name.startswith("~")}
