"""Commands and queries of MEW sessions: run statements, read, fetch events, expire deliveries."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from typing import assert_never

import msgspec

from ackwise.core import validation
from ackwise.core.validation import MICROS
from ackwise.engine.ports import Session
from ackwise.engine.statement_limits import weight
from ackwise.engine.statement_meter import WRITER_SECONDS, Cancelled, Meter, Overrun, free_values
from ackwise.engine.turn import Turn, lease_from
from ackwise.graph import ast as s
from ackwise.graph import declarations, errors
from ackwise.graph.commands import (
    GROUP_BYTES,
    GROUP_ROWS,
    Done,
    EndGraphSession,
    FetchedEvents,
    FetchGraph,
    GraphRows,
    OpenedSession,
    OpenGraphSession,
    ReleaseGraph,
    RestartClocks,
    RunGraph,
    Step,
    StepResults,
    minted,
)
from ackwise.graph.engine import (
    consumer_pools,
    early_matches,
    events,
    pattern_sql,
    settlements,
    watch_budget,
    watch_index,
    watches,
)
from ackwise.graph.engine.change_tracker import Difference, Tracker
from ackwise.graph.engine.entities import Graph
from ackwise.graph.engine.entity_reads import Reader
from ackwise.graph.engine.event_fetch import EventFetch
from ackwise.graph.engine.events import WatchRow, watch_from
from ackwise.graph.engine.mutations import Mutator
from ackwise.graph.engine.pattern_sql import Search
from ackwise.graph.engine.watch_budget import WatchBudgetExceeded
from ackwise.graph.engine.watch_index import StandingQuery
from ackwise.graph.errors import GraphError, MatchFirst, MinimumPending, MinimumUnmet, Outrun, Postponed, SplitGroup
from ackwise.graph.ontology import FIRST_USER_TYPE, Ontology
from ackwise.graph.parameters import Bindings, closed
from ackwise.graph.patterns import PatternPlan, check_names, plan_pattern
from ackwise.graph.projection import Count, count_column, limit_of, plain, project
from ackwise.graph.values import Entity

ORPHANED_AFTER = 60 * MICROS
EVENTS_KEPT_FOR = WATCHES_KEPT_FOR = 7 * 24 * 3600 * MICROS
"""How long the events and the node of a cancelled watch stay."""
_AT_ONCE = 200
"""Deliveries that one turn expires, and entities of old watches that it removes."""
_UNMETERED = _UNTRACKED = nullcontext()
FIRST_SECONDS = 0.05
"""Seconds of one SQL statement in a turn that may still leave the pattern to a reader."""
GROUP_SECONDS = 0.05
"""Seconds of one statement in a group. Beyond them the group is split."""
TURN_SECONDS = 0.02
"""Seconds of all graph statements in one turn. Further ones are refused with `Postponed` and come back later."""
LAST_TICK = 1 << 62
"""The highest tick that TICK may set. Later commits count on from it, and the database stores 64 bits."""


class GraphUse:
    """Work of the graph in one turn."""

    def __init__(self) -> None:
        self.seconds = 0.0
        """Seconds that statements ran."""
        self.expired = False
        """Whether the turn has expired all deliveries that are due."""


def run(turn: Turn, command: RunGraph) -> StepResults:
    """Run all steps of a command, or none. A dry run keeps only the events of watches with `visibility: immediate`."""
    expire_due(turn)
    use = turn.state(GraphUse)
    if use.seconds > TURN_SECONDS:
        raise Postponed
    started = time.monotonic()
    try:
        return _run(turn, command)
    finally:
        use.seconds += time.monotonic() - started


def _run(turn: Turn, command: RunGraph) -> StepResults:
    may_wait = early_matches.may_wait(command)
    turn.savepoint(FIRST_SECONDS if may_wait else GROUP_SECONDS if _may_split(command) else WRITER_SECONDS)
    ran = StepResults([])
    immediate: list[Difference] = []
    try:
        graph = Graph(turn, meter=Meter(command.limits, seconds=WRITER_SECONDS, name="writer"))
        graph.may_wait, graph.found = may_wait, command.found or ()
        graph.left_out = watch_budget.left_out(turn.session)
        _run_steps(graph, command, ran, immediate)
        if not command.dry:
            finish(graph)
            _publish_immediate(graph, immediate)
    except BaseException as problem:
        turn.undo()
        watch_index.forget(turn.session)
        if command.group and (ended := _end_group(turn, command, problem, len(ran.done))) is not None:
            return ended
        refusal = _limit_error(turn.session, problem, may_wait=may_wait)
        free_values(problem)
        if refusal is None:
            raise
        raise refusal from None
    if not command.dry:
        turn.keep()
        return ran
    turn.undo()
    if ran.refused is not None:
        watch_index.forget(turn.session)
    if any(difference.events for difference in immediate):
        _publish_dry(turn, immediate)
    return ran


def _publish_dry(turn: Turn, immediate: list[Difference]) -> None:
    """Publish what a dry run changed for immediate watches, after the turn undid the changes."""
    turn.savepoint()
    try:
        _publish_immediate(Graph(turn), immediate)
    except BaseException:
        turn.undo()
        raise
    turn.keep()


# groups: consecutive statements outside a transaction


def _may_split(command: RunGraph) -> bool:
    """Whether the session may send the steps of a group in several commands."""
    return command.group and not command.whole and len(command.steps) > 1


def _end_group(turn: Turn, command: RunGraph, problem: BaseException, done: int) -> StepResults | None:
    """What becomes of a group after a problem, when `done` of its steps had run. None: the problem is raised.

    The statements before one that fails keep their effect. A minimum that is not met at the end undoes them all.
    """
    if isinstance(problem, WatchBudgetExceeded | SplitGroup | MatchFirst | Outrun):
        return None
    if isinstance(problem, MinimumUnmet):
        if command.cut:
            raise MinimumPending from None
        return StepResults([], undone=problem, steps=len(command.steps))
    is_limit = isinstance(problem, Overrun) and not isinstance(problem, Cancelled)
    if _may_split(command) and (is_limit or turn.session.stopped(problem)):
        raise SplitGroup(max(1, done if done < len(command.steps) else done // 2)) from None
    return None if done == len(command.steps) else _commit_before(turn, command, problem, done)


def _commit_before(turn: Turn, command: RunGraph, problem: BaseException, done: int) -> StepResults | None:
    """Commit the first `done` steps of a group: the next one failed. None: the problem is raised."""
    if not done:
        return StepResults([], refused=problem) if isinstance(problem, GraphError) else None
    refusal = problem if isinstance(problem, GraphError) else _limit_error(turn.session, problem)
    if refusal is None:
        return None
    ran = _run(turn, msgspec.structs.replace(command, steps=command.steps[:done], cut=False))
    ran.refused = refusal
    return ran


def _step_meter(graph: Graph, command: RunGraph) -> Meter | None:
    """The budget of one step: the command's, or in a group that may be split, as much as a turn may match itself."""
    if not command.group or graph.meter is None:
        return graph.meter
    if command.whole or len(command.steps) == 1:
        return Meter(command.limits, seconds=max(0.0, graph.meter.left), name="writer")
    seconds = max(0.0, min(GROUP_SECONDS, graph.meter.left))
    return Meter(command.limits, seconds=seconds, rows=GROUP_ROWS, name="writer")


def _refuse_large(command: RunGraph, ran: StepResults) -> None:
    """Split a group whose statements return more than a few rows: each of them has its own limits."""
    rows = [done.rows for done in ran.done if done.rows]
    if rows and _may_split(command) and (sum(map(len, rows)) > GROUP_ROWS or weight(rows) > GROUP_BYTES):
        raise SplitGroup(max(1, len(ran.done) - 1))


def _limit_error(session: Session, problem: BaseException, *, may_wait: bool = False) -> GraphError | None:
    """The error that a caller gets for an exceeded limit. None if the problem is another one."""
    if isinstance(problem, WatchBudgetExceeded):
        watch_budget.note(session, problem)
        return Postponed()
    if isinstance(problem, Overrun):
        return errors.limit_error(problem)
    if session.stopped(problem):
        return MatchFirst() if may_wait else errors.statement_limit("writer", WRITER_SECONDS)
    return None


def _run_steps(graph: Graph, command: RunGraph, ran: StepResults, immediate: list[Difference]) -> None:
    """Run the steps. Adds each result to `ran`, and what new steps change for immediate watches to `immediate`.

    A dry run ends at the first step that fails, and `ran` gets the error.
    """
    names: dict[str, str] = {}
    meter = graph.meter
    for number, step in enumerate(command.steps):
        tracker = Tracker(graph, graph.watches.immediate)
        graph.meter = _step_meter(graph, command)
        try:
            with _tracked(graph, tracker) if number >= command.tried else _UNTRACKED:
                done = _step(graph, command, step, closed(step.statement, Bindings(names)) if names else step.statement)
                if done.refused is not None and (command.dry or command.tried):
                    raise done.refused
            immediate += tracker.differences()
        except GraphError as problem:
            if not command.dry:
                raise
            ran.refused = problem.detached()
            return
        finally:
            graph.meter = meter
        names |= done.bindings
        ran.done.append(done)
        _refuse_large(command, ran)


@contextmanager
def _tracked(graph: Graph, tracker: Tracker) -> Iterator[None]:
    """Let the tracker see the changes of a step."""
    graph.trackers.append(tracker)
    yield
    graph.trackers.remove(tracker)


def _step(graph: Graph, command: RunGraph, step: Step, statement: s.Statement) -> Done:
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


def finish(graph: Graph) -> None:
    """End a command that changed the graph: check cardinality, inform watches and pools, store the tick."""
    if not graph.changed:
        return
    Mutator(graph, Done()).check_cardinality()
    _publish(graph, [difference for tracker in graph.trackers for difference in tracker.differences()])
    graph.session.run("mew_tick", {"tick": graph.tick})


def _publish_immediate(graph: Graph, differences: list[Difference]) -> None:
    _publish(graph, [difference for difference in differences if not difference.watch.pool])


def _publish(graph: Graph, differences: list[Difference]) -> None:
    """Append events to watches and update pools, until nothing changes any more.

    A full buffer or an exceeded budget cancels a watch. That changes the node of the watch, which other watches may
    match, so each round tracks the changes that it makes itself.
    """
    lost = _lost_watches(graph)
    while differences or lost:
        graph.trackers = [Tracker(graph, graph.watches.committed), Tracker(graph, graph.watches.immediate)]
        for watch in lost:
            watches.lose(graph, watch)
        for difference in differences:
            if difference.watch.pool:
                consumer_pools.reconcile(graph, difference)
            else:
                _append_events(graph, difference)
        differences = [difference for tracker in graph.trackers for difference in tracker.differences()]
        lost = _lost_watches(graph)


def _lost_watches(graph: Graph) -> list[StandingQuery]:
    return [watch for tracker in graph.trackers for watch in tracker.lost.values()]


def _append_events(graph: Graph, difference: Difference) -> None:
    """Append the events of a watch. Cancels the watch if its buffer is full and `on_full` is error."""
    watch = difference.watch
    with _UNMETERED if watch.simple or graph.background else graph.costs.metered(graph, watch, 0):
        has_room = events.append_changes(graph, watch.no, difference.events)
    if not has_room:
        row = events.watch_of(graph, watch.no)
        if row is not None:
            watches.overflow(graph, row)


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


# reads


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


# sessions and time


def open_session(turn: Turn, command: OpenGraphSession) -> OpenedSession:
    validation.name(command.session, "session")
    return watches.opened(Graph(turn), command.session)


def end_session(turn: Turn, command: EndGraphSession) -> Done:
    expire_due(turn)
    graph = Graph(turn, background=True)
    ended = watches.end_session(graph, command.session, lost=command.lost, here=command.here)
    finish(graph)
    return Done(found=ended)


def release(turn: Turn, command: ReleaseGraph) -> Done:
    expire_due(turn)
    graph = Graph(turn, background=True)
    for delivery_id in command.deliveries:
        settlements.release_delivery(graph, delivery_id)
    finish(graph)
    return Done()


def restart_clocks(turn: Turn, command: RestartClocks) -> Done:
    expire_due(turn)
    graph = Graph(turn, background=True)
    for delivery_id in command.deliveries:
        settlements.restart_clock(graph, delivery_id)
    return Done()


def fetch(turn: Turn, command: FetchGraph) -> FetchedEvents:
    """Fetch events of a session's watches. A search for items that may take long runs under the writer's limits."""
    expire_due(turn)
    graph = Graph(turn, background=True)
    graph.tick = graph.state.tick
    rows = _watches_to_fetch(graph, command)
    if not any(row.pool is not None and row.status == "active" and _may_take_long(graph, row.pool) for row in rows):
        return _fetch(graph, command, rows)
    turn.savepoint(WRITER_SECONDS)
    graph.meter = Meter(seconds=WRITER_SECONDS, name="writer")
    try:
        fetched = _fetch(graph, command, rows)
    except BaseException as problem:
        turn.undo()
        refusal = _limit_error(turn.session, problem)
        free_values(problem)
        if refusal is None:
            raise
        raise refusal from None
    turn.keep()
    return fetched


def _watches_to_fetch(graph: Graph, command: FetchGraph) -> list[WatchRow]:
    owner = graph.session.row("mew_session_by_id", {"id": command.session})
    stored = graph.session.rows("mew_watches_of_session", {"session": owner[0]}) if owner else []
    rows = [watch_from(row) for row in stored]
    if command.watch is None:
        return rows
    rows = [row for row in rows if row.id == command.watch.id]
    if not rows:
        watches.owned(graph, command.session, command.watch)
        raise errors.watch_not_found(command.watch.shown, command.watch.at, cannot="fetch from")
    return rows


def _may_take_long(graph: Graph, pool: int) -> bool:
    """Whether the pattern of a pool is more than one node."""
    query = consumer_pools.pool_of(graph, pool)
    return query is not None and not query.simple


def _fetch(graph: Graph, command: FetchGraph, rows: list[WatchRow]) -> FetchedEvents:
    fetched = EventFetch(graph, command).run(rows)
    finish(graph)
    return fetched


def expire_due(turn: Turn, limit: int = _AT_ONCE) -> int:
    """Expire deliveries past their deadline. Each turn does this before its first graph command."""
    use = turn.state(GraphUse)
    if use.expired:
        return 0
    rows = turn.session.rows("mew_leases_expired", {"now": turn.now, "limit": limit})
    use.expired = len(rows) < limit
    for row in rows:
        graph = Graph(turn, background=True)
        settlements.expire(graph, turn.lease(row[0]) or lease_from(row))
        finish(graph)
    return len(rows)


def sweep(turn: Turn, limit: int) -> int:
    """Time-driven duties of the graph.

    Expire deliveries, end sessions of dead brokers, remove old events and watches.
    """
    done = expire_due(turn, limit)
    where = {"own": turn.instance, "before": turn.now - ORPHANED_AFTER, "limit": limit}
    for no, _ in turn.session.rows("mew_sessions_orphaned", where):
        graph = Graph(turn, background=True)
        watches.abandon_session(graph, no)
        finish(graph)
        done += 1
    for (no,) in turn.session.rows("mew_watches_over", {"before": turn.wall - EVENTS_KEPT_FOR, "limit": limit}):
        done += turn.session.run("mew_events_expire", {"watch": no})
        turn.session.run("mew_watch_quiet", {"no": no})
    return done + _remove_old_watches(turn, min(limit, _AT_ONCE))


def _remove_old_watches(turn: Turn, limit: int) -> int:
    """Remove about `limit` entities of watches that were cancelled long ago, for a few milliseconds."""
    turn.session.run("mew_watches_dated", {"now": turn.now, "limit": limit})
    left, end = limit, time.monotonic() + TURN_SECONDS
    for no, session in turn.session.rows("mew_watches_old", {"before": turn.now - WATCHES_KEPT_FOR, "limit": limit}):
        if left <= 0 or time.monotonic() > end:
            break
        graph = Graph(turn, background=True)
        left -= watches.remove_cancelled(graph, no, session, left)
        finish(graph)
    return limit - left
