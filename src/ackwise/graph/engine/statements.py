"""Runs one statement of a session in a turn."""

from __future__ import annotations

from typing import assert_never

import msgspec

from ackwise.engine.statement_meter import Overrun
from ackwise.graph import ast as s
from ackwise.graph import declarations, errors
from ackwise.graph.commands import Done, GraphRows, RunGraph, Step, minted
from ackwise.graph.engine import early_matches, events, pattern_sql, settlements, watches
from ackwise.graph.engine.entities import Graph
from ackwise.graph.engine.events import watch_from
from ackwise.graph.engine.mutations import Mutator
from ackwise.graph.engine.queries import ask_match, inspect
from ackwise.graph.ontology import FIRST_USER_TYPE, Ontology
from ackwise.graph.values import Entity

LAST_TICK = 1 << 62
"""The highest tick that TICK may set. Later commits count on from it, and the database stores 64 bits."""


def run_statement(graph: Graph, command: RunGraph, step: Step, statement: s.Statement) -> Done:
    """Run the statement of a step. Its names are bound."""
    graph.begin_step(step.mint, step.now if step.now is not None else graph.turn.wall)
    done = Done()
    match statement:
        case s.Spawn() | s.Link() | s.Set() | s.Kill() | s.Unlink():
            made = Mutator(graph, done).run(statement, {})
            done.bindings = {name: entity.id for name, entity in made.items()}
        case s.Match():
            done = _match(graph, statement)
        case s.Inspect():
            done = _done(inspect(graph, statement))
        case s.OntologyDecl():
            done = _declare(graph, statement)
        case s.Tick():
            done = _tick(graph, statement)
        case s.SettleStatement():
            done = settlements.settle(graph, statement)
        case s.Watch():
            watch_id = minted("_Watch", step.mint)
            done = watches.create(graph, command.session, statement, most=command.most_watches, watch_id=watch_id)
        case s.Manage():
            done = watches.manage(graph, command.session, statement)
        case s.Alter():
            done = watches.alter(graph, command.session, statement)
        case s.Begin() | s.Commit() | s.Rollback():
            raise errors.constraint("a transaction is the session's business", statement.at)
        case _:
            assert_never(statement)
    if command.awaited and not command.awaited.isdisjoint(done.bindings):
        watches.resolve_dead_letters(graph, command.session, done.bindings)
    done.tick = graph.tick
    return done


def _declare(graph: Graph, statement: s.OntologyDecl) -> Done:
    """Add declarations to the ontology, one by one. Skips those that it already has in the same form."""
    done = Done()
    ontology = Ontology(())
    ontology.aliases.update(graph.ontology.aliases)
    ontology.nodes.update(graph.ontology.nodes)
    ontology.edges.update(graph.ontology.edges)
    ontology.by_id.update(graph.ontology.by_id)
    ontology.declared.update(graph.ontology.declared)
    rows = graph.session.rows("mew_types")
    number = max([FIRST_USER_TYPE - 1, *(row[0] for row in rows)])
    for declaration in statement.declarations:
        if not ontology.is_new(declaration):
            continue
        number += 1
        ontology.add(number, declaration)
        declarations.check(declaration, ontology, pattern_sql.scope_of(graph, {}))
        graph.session.run(
            "mew_type_insert",
            {"id": number, "name": declaration.name, "declared": _stored(declaration)},
        )
        word = {"AliasDecl": "alias", "NodeDecl": "node", "EdgeDecl": "edge"}[s.tag_of(declaration)]
        done.declared[word] = done.declared.get(word, 0) + 1
    if done.declared:
        graph.declare(ontology)
        graph.changed = True
    return done


def _stored(declaration: s.Declaration) -> str:
    return msgspec.json.encode(declaration).decode()


def _tick(graph: Graph, statement: s.Tick) -> Done:
    """Advance the tick, and wake the watches with `deliver_on: tick`."""
    if statement.amount <= 0 or graph.state.tick + statement.amount > LAST_TICK:
        raise errors.bad_tick(statement.amount, statement.at)
    graph.tick = graph.state.tick + statement.amount
    graph.session.run("mew_ticked", {"tick": graph.tick, "now": graph.turn.wall})
    for row in graph.session.rows("mew_watches_standing"):
        watch = watch_from(row)
        if watch.spec.deliver_on == "tick":
            events.wake(graph, watch)
    graph.changed = True
    return Done()


def _match(graph: Graph, statement: s.Match) -> Done:
    if not statement.mutations:
        return _done(ask_match(graph, statement))
    done = Done()
    mutator = Mutator(graph, done)
    _, rows = early_matches.matched(graph, statement)
    _refuse_many(graph, statement, rows)
    for names in rows:
        if any(graph.by_no(entity.no) is None for entity in names.values()):
            continue  # a mutation of an earlier row removed it
        for mutation in statement.mutations:
            # Each mutation sees the changes of those before it.
            names = {name: graph.by_no(entity.no) or entity for name, entity in names.items()}
            names |= mutator.run(mutation, names)
    return done


def _refuse_many(graph: Graph, statement: s.Match, rows: list[dict[str, Entity]]) -> None:
    """Refuse too many changes before the turn makes the first change."""
    if graph.meter is None or len(rows) <= graph.meter.changes:
        return
    for mutation in statement.mutations:
        target = mutation.target if isinstance(mutation, s.Set | s.Kill) else None
        if isinstance(target, s.Name):
            changed = {row[target.name].no for row in rows if target.name in row}
            if len(changed) > graph.meter.changes:
                raise Overrun("changes", graph.meter.changes)


def _done(answer: GraphRows) -> Done:
    return Done(columns=answer.columns, rows=answer.rows, found=answer.found)
