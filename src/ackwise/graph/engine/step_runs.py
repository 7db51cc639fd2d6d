"""Runs the steps of a session's command: all of them or none, in groups, within their limits."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext

import msgspec

from ackwise.engine.ports import Session
from ackwise.engine.statement_limits import weight
from ackwise.engine.statement_meter import WRITER_SECONDS, Cancelled, Meter, Overrun, free_values
from ackwise.engine.turn import Turn
from ackwise.graph import errors
from ackwise.graph.commands import GROUP_BYTES, GROUP_ROWS, RunGraph, StepResults
from ackwise.graph.engine import early_matches, watch_budget, watch_index
from ackwise.graph.engine.change_publication import finish, publish_immediate
from ackwise.graph.engine.change_tracker import Difference, Tracker
from ackwise.graph.engine.delivery_expiry import expire_due
from ackwise.graph.engine.entities import Graph
from ackwise.graph.engine.statements import run_statement
from ackwise.graph.engine.watch_budget import WatchBudgetExceeded
from ackwise.graph.errors import GraphError, MatchFirst, MinimumPending, MinimumUnmet, Outrun, Postponed, SplitGroup
from ackwise.graph.parameters import Bindings, closed

_UNTRACKED = nullcontext()
FIRST_SECONDS = 0.05
"""Seconds of one SQL statement in a turn that may still leave the pattern to a reader."""
GROUP_SECONDS = 0.05
"""Seconds of one statement in a group. Beyond them the group is split."""
TURN_SECONDS = 0.02
"""Seconds of all graph statements in one turn. Further ones are refused with `Postponed` and come back later."""


class GraphUse:
    """Work of the graph in one turn."""

    def __init__(self) -> None:
        self.seconds = 0.0
        """Seconds that statements ran."""


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
            publish_immediate(graph, immediate)
    except BaseException as problem:
        turn.undo()
        watch_index.forget(turn.session)
        if command.group and (ended := _end_group(turn, command, problem, len(ran.done))) is not None:
            return ended
        refusal = limit_error(turn.session, problem, may_wait=may_wait)
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
        publish_immediate(Graph(turn), immediate)
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
    refusal = problem if isinstance(problem, GraphError) else limit_error(turn.session, problem)
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


def limit_error(session: Session, problem: BaseException, *, may_wait: bool = False) -> GraphError | None:
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
                done = run_statement(
                    graph, command, step, closed(step.statement, Bindings(names)) if names else step.statement
                )
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
