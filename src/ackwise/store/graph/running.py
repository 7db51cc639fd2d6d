"""The commands of a session, each in one turn: run, tell the watches, or take everything back."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import nullcontext
from typing import assert_never

import msgspec

from ackwise.core import limits
from ackwise.core.graph import declaring, faults, spelling
from ackwise.core.graph import syntax as s
from ackwise.core.graph.closing import Bindings, closed
from ackwise.core.graph.commands import (
    Asked,
    AskGraph,
    Done,
    EndGraphSession,
    Fetched,
    FetchGraph,
    IsSessionHere,
    Opened,
    OpenGraphSession,
    Ran,
    ReleaseGraph,
    RunGraph,
    Step,
    TypeRow,
    minted,
)
from ackwise.core.graph.faults import GraphError, MatchFirst, Postponed
from ackwise.core.graph.ontology import FIRST_USER_TYPE, Ontology
from ackwise.core.graph.patterns import check_names, plan
from ackwise.core.graph.projecting import Count, count_asked, limit_of, plain, project
from ackwise.core.graph.values import Entity
from ackwise.core.limits import MICROS
from ackwise.store.graph import burden, events, matching, pools, prematch, settling, standing, watching
from ackwise.store.graph.burden import Burden
from ackwise.store.graph.events import WatchRow, watch_from
from ackwise.store.graph.handing import Handing
from ackwise.store.graph.matching import Wanted
from ackwise.store.graph.mutating import Mutator
from ackwise.store.graph.reading import Reader
from ackwise.store.graph.standing import Standing
from ackwise.store.graph.tracking import Difference, Tracker
from ackwise.store.graph.writing import Graph
from ackwise.store.meter import WRITER_SECONDS, Meter, Overrun
from ackwise.store.session import Session
from ackwise.store.turn.context import Turn, lease_from

ORPHANED_AFTER = 60 * MICROS
EVENTS_KEPT_FOR = 7 * 24 * 3600 * MICROS
"""Of a watch that was cancelled; its node stays."""
_AT_ONCE = 200
_PLAIN = nullcontext()
FIRST_SECONDS = 0.05
"""Seconds that one SQL statement may take in a turn while the turn may still leave the pattern to a reader."""
TURN_SECONDS = 0.02
"""When statements of the graph have run this long in one turn, the next ones are sent again, to a later turn."""
LAST_TICK = 1 << 62
"""No TICK goes beyond it: the commits that follow need room to count on, in what a database can store."""


def run(turn: Turn, command: RunGraph) -> Ran:
    """All steps or none. A dry run leaves nothing but what watches with `visibility: immediate` are shown."""
    expire_due(turn)
    if turn.graph_seconds > TURN_SECONDS:
        raise Postponed
    started = time.monotonic()
    try:
        return _run(turn, command)
    finally:
        turn.graph_seconds += time.monotonic() - started


def _run(turn: Turn, command: RunGraph) -> Ran:
    meter = Meter(command.limits, seconds=WRITER_SECONDS, name="writer")
    may_wait = prematch.may_wait(command)
    turn.savepoint(FIRST_SECONDS if may_wait else WRITER_SECONDS)
    ran = Ran([])
    shown: list[Difference] = []
    try:
        graph = Graph(turn, meter=meter)
        graph.may_wait, graph.found = may_wait, command.found or ()
        graph.left_out = burden.left_out(turn.session)
        try:
            for done, seen in _run_steps(graph, command):
                ran.done.append(done)
                shown += seen
        except GraphError as problem:
            if not command.dry:
                raise
            ran.refused = problem
        if not command.dry:
            finish(graph)
            _show(graph, shown)
    except BaseException as problem:
        turn.undo()
        standing.forget(turn.session)
        if isinstance(problem, Burden):
            burden.note(turn.session, problem)
            raise Postponed from None
        if isinstance(problem, Overrun):
            raise problem.told() from None
        if turn.session.stopped(problem):
            raise MatchFirst if may_wait else faults.statement_limit("writer", WRITER_SECONDS) from None
        raise
    if not command.dry:
        turn.keep()
        return ran
    turn.undo()
    if ran.refused is not None:
        standing.forget(turn.session)
    if any(one.events for one in shown):
        turn.savepoint()
        try:
            _show(Graph(turn), shown)
        except BaseException:
            turn.undo()
            raise
        turn.keep()
    return ran


def _run_steps(graph: Graph, command: RunGraph) -> Iterator[tuple[Done, list[Difference]]]:
    """What each step did, and what watches that do not wait for the commit see of it."""
    names: dict[str, str] = {}
    for number, step in enumerate(command.steps):
        impatient = Tracker(graph, graph.watches.immediate)
        if number >= command.tried:
            graph.trackers.append(impatient)
        done = _step(graph, command, step, closed(step.statement, Bindings(names)) if names else step.statement)
        if done.refused is not None and (command.dry or command.tried):
            raise done.refused
        names |= done.bindings
        if number >= command.tried:
            graph.trackers.remove(impatient)
        yield done, impatient.differences()


def _step(graph: Graph, command: RunGraph, step: Step, statement: s.Statement) -> Done:
    graph.begin_step(step.mint, step.now if step.now is not None else graph.turn.now)
    done = Done()
    match statement:
        case s.Spawn() | s.Link() | s.Set() | s.Kill() | s.Unlink():
            made = Mutator(graph, done).run(statement, {})
            done.bindings = {name: entity.id for name, entity in made.items()}
        case s.Match():
            done = _match(graph, statement)
        case s.Inspect():
            done = _asked(inspect(graph, statement))
        case s.Ontology():
            done = _declare(graph, statement)
        case s.Tick():
            done = _tick(graph, statement)
        case s.Settle():
            done = settling.settle(graph, statement)
        case s.Watch():
            found = minted("_Watch", step.mint)
            done = watching.create(graph, command.session, statement, command.most_watches, found)
        case s.Manage():
            done = watching.manage(graph, command.session, statement)
        case s.Alter():
            done = watching.alter(graph, command.session, statement)
        case s.Begin() | s.Commit() | s.Rollback():
            raise faults.constraint("a transaction is the session's business", statement.at)
        case _:
            assert_never(statement)
    if command.awaited and not command.awaited.isdisjoint(done.bindings):
        watching.found_letters(graph, command.session, done.bindings)
    done.tick = graph.tick
    return done


def finish(graph: Graph) -> None:
    """Constraints, then what watches are told, then the tick."""
    if not graph.changed:
        return
    Mutator(graph, Done()).check_cardinality()
    _spread(graph, [one for tracker in graph.trackers for one in tracker.differences()])
    graph.session.run("mew_tick", {"tick": graph.tick})


def _show(graph: Graph, shown: list[Difference]) -> None:
    _spread(graph, [one for one in shown if not one.watch.pool])


def _spread(graph: Graph, news: list[Difference]) -> None:
    """A watch may be cancelled for its full buffer, which is news again, for those who watch watches."""
    lost = _lost(graph)
    while news or lost:
        graph.trackers = [Tracker(graph, graph.watches.committed), Tracker(graph, graph.watches.immediate)]
        for watch in lost:
            watching.lose(graph, watch)
        for found in news:
            if found.watch.pool:
                pools.reconcile(graph, found)
            else:
                _tell(graph, found)
        news = [one for tracker in graph.trackers for one in tracker.differences()]
        lost = _lost(graph)


def _lost(graph: Graph) -> list[Standing]:
    return [watch for tracker in graph.trackers for watch in tracker.lost.values()]


def _tell(graph: Graph, found: Difference) -> None:
    watch = found.watch
    with _PLAIN if watch.simple or graph.unasked else graph.bills.look(graph, watch, 0):
        told = events.tell(graph, watch.no, found.events)
    if not told:
        row = events.watch(graph, watch.no)
        if row is not None:
            watching.overflow(graph, row)


def _declare(graph: Graph, statement: s.Ontology) -> Done:
    """Declarations one by one on top of what is known; one that was made before, and alike, is no news."""
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
        declaring.check(declaration, ontology, matching.scope_of(graph, {}))
        graph.session.run(
            "mew_type_insert",
            {"id": number, "name": declaration.name, "declared": _stored(declaration)},
        )
        word = {"AliasDecl": "alias", "NodeDecl": "node", "EdgeDecl": "edge"}[type(declaration).__name__]
        done.declared[word] = done.declared.get(word, 0) + 1
    if done.declared:
        graph.declare(ontology)
        graph.changed = True
    return done


def _stored(declaration: s.Declaration) -> str:
    return msgspec.json.encode(declaration).decode()


def _tick(graph: Graph, statement: s.Tick) -> Done:
    if statement.amount <= 0 or graph.state.tick + statement.amount > LAST_TICK:
        raise faults.bad_tick(statement.amount, statement.at)
    graph.tick = graph.state.tick + statement.amount
    graph.session.run("mew_ticked", {"tick": graph.tick, "now": graph.turn.now})
    for row in graph.session.rows("mew_watches_standing"):
        watch = watch_from(row)
        if watch.spec.deliver_on == "tick":
            events.ring(graph, watch)
    graph.changed = True
    return Done()


def _match(graph: Graph, statement: s.Match) -> Done:
    if not statement.mutations:
        return _asked(ask_match(graph, statement))
    done = Done()
    mutator = Mutator(graph, done)
    _, rows = prematch.matched(graph, statement)
    _refuse_many(graph, statement, rows)
    for names in rows:
        if any(graph.by_no(entity.no) is None for entity in names.values()):
            continue  # an earlier row's mutation took it away
        for mutation in statement.mutations:
            # As they are after the mutations before it.
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


def _asked(asked: Asked) -> Done:
    return Done(columns=asked.columns, rows=asked.rows, found=asked.found)


# looking


def ask(session: Session, now: int, query: AskGraph, meter: Meter) -> Asked:
    if session.row("mew_leases_expired", {"now": now, "limit": 1}) is not None:
        return Asked([], [], due=True)
    reader = Reader(session, now, meter)
    if isinstance(query.statement, s.Inspect):
        return inspect(reader, query.statement)
    return ask_match(reader, query.statement)


def describe(session: Session) -> list[TypeRow]:
    reader = Reader(session, 0)
    counts = {row[0]: row[1] for row in session.rows("mew_counts")}
    found = []
    for name, declared in reader.ontology.declared.items():
        if not name.startswith("_"):
            kind = reader.ontology.nodes.get(name) or reader.ontology.edges.get(name)
            found.append(TypeRow(name, spelling.declaration(declared), counts.get(kind.id, 0) if kind else 0))
    return found


def ask_match(reader: Reader, statement: s.Match) -> Asked:
    if statement.returns is None:
        raise faults.constraint("a MATCH that only looks ends with RETURN", statement.at)
    looked = plan(statement.pattern, reader.ontology)
    check_names(statement.where, looked, reader.ontology)
    aliases = {one.alias for one in statement.returns.projections if one.alias}
    for expr in (*(one.of for one in statement.returns.projections), *statement.order):
        if isinstance(expr, s.Sorted) and isinstance(expr.by, s.Name) and expr.by.name in aliases:
            continue
        check_names(expr, looked, reader.ontology)
    counted = count_asked(statement, looked.variables)
    if counted is not None and (number := matching.count(reader, looked, statement.where)) is not None:
        return Asked([counted], [[number]])
    limit = limit_of(statement)
    if limit is not None and not matching.is_exact(reader, looked, statement.where):
        limit = None
    rows = (row.names for row in matching.match(reader, looked, statement.where, Wanted(limit=limit)))
    count = _count(reader)
    columns, values = project(statement, looked.variables, rows, matching.scope_of(reader, {}), count)
    return Asked(columns, values)


def _count(reader: Reader) -> Count:
    return _uncounted if reader.meter is None else reader.meter.made


def _uncounted(value: object) -> None:
    pass


def inspect(reader: Reader, statement: s.Inspect) -> Asked:
    entity = reader.by_id(statement.ref.id)
    if entity is None:
        return Asked([], [], found=False)
    if statement.returns is None:
        shown = entity.shown()
        return Asked(list(shown), [list(shown.values())], found=True)
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
            raise faults.constraint("INSPECT returns attributes by their names", statement.at)
    return Asked(columns, [row], found=True)


# sessions and time


def open_session(turn: Turn, command: OpenGraphSession) -> Opened:
    limits.name(command.session, "session")
    return watching.opened(Graph(turn), command.session)


def is_here(session: Session, instance: str, query: IsSessionHere) -> bool:
    row = session.row("mew_session_by_id", {"id": query.session})
    return row is not None and row[2] == instance


def end_session(turn: Turn, command: EndGraphSession) -> Done:
    expire_due(turn)
    graph = Graph(turn, unasked=True)
    found = watching.end_session(graph, command.session, lost=command.lost, here=command.here)
    finish(graph)
    return Done(found=found)


def release(turn: Turn, command: ReleaseGraph) -> Done:
    expire_due(turn)
    graph = Graph(turn, unasked=True)
    for text in command.deliveries:
        settling.release_one(graph, text)
    finish(graph)
    return Done()


def fetch(turn: Turn, command: FetchGraph) -> Fetched:
    expire_due(turn)
    graph = Graph(turn, unasked=True)
    graph.tick = graph.state.tick
    row = graph.session.row("mew_session_by_id", {"id": command.session})
    rows = [watch_from(one) for one in graph.session.rows("mew_watches_of_session", {"session": row[0]})] if row else []
    if command.watch is not None:
        one = watching.owned(graph, command.session, command.watch)
        rows = [row for row in rows if row.no == one.no]
        if not rows:
            raise faults.watch_not_found(command.watch.shown, command.watch.at, cannot="fetch from")
    if not any(row.pool is not None and row.status == "active" and _joins(graph, row.pool) for row in rows):
        return _fetched(graph, command, rows)
    turn.savepoint(WRITER_SECONDS)
    graph.meter = Meter(seconds=WRITER_SECONDS, name="writer")
    try:
        fetched = _fetched(graph, command, rows)
    except BaseException as problem:
        turn.undo()
        if isinstance(problem, Overrun):
            raise problem.told() from None
        if turn.session.stopped(problem):
            raise faults.statement_limit("writer", WRITER_SECONDS) from None
        raise
    turn.keep()
    return fetched


def _joins(graph: Graph, pool: int) -> bool:
    """Whether looking for a match may take long: the pattern is more than one node."""
    known = pools.pool_of(graph, pool)
    return known is not None and not known.simple


def _fetched(graph: Graph, command: FetchGraph, rows: list[WatchRow]) -> Fetched:
    fetched = Handing(graph, command).run(rows)
    finish(graph)
    return fetched


def expire_due(turn: Turn, limit: int = _AT_ONCE) -> int:
    """Deliveries whose time is up, before anything else is done in this turn."""
    if turn.graph_expired:
        return 0
    rows = turn.session.rows("mew_leases_expired", {"now": turn.now, "limit": limit})
    turn.graph_expired = len(rows) < limit
    for row in rows:
        graph = Graph(turn, unasked=True)
        settling.expire(graph, turn.lease(row[0]) or lease_from(row))
        finish(graph)
    return len(rows)


def sweep(turn: Turn, limit: int) -> int:
    """What time alone makes due in the graph: expiry, sessions of brokers that are gone, old events."""
    turn.session.lock_graph()
    done = expire_due(turn, limit)
    where = {"own": turn.instance, "before": turn.now - ORPHANED_AFTER, "limit": limit}
    for no, _ in turn.session.rows("mew_sessions_orphaned", where):
        graph = Graph(turn, unasked=True)
        watching.abandon_session(graph, no)
        finish(graph)
        done += 1
    for (no,) in turn.session.rows("mew_watches_over", {"before": turn.now - EVENTS_KEPT_FOR, "limit": limit}):
        done += turn.session.run("mew_events_expire", {"watch": no})
        turn.session.run("mew_watch_quiet", {"no": no})
    return done
