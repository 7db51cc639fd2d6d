"""Session without I/O: text goes in, commands for a broker and lines for the user come out.

Each method that needs a broker is a flow. A driver executes the requests of the flow and shows its lines.
"""

from __future__ import annotations

import secrets
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from itertools import count
from typing import Any, Literal, NamedTuple

import msgspec

from ackwise.core.commands import Sweep
from ackwise.core.errors import Overloaded
from ackwise.engine.statement_limits import DEFAULT_LIMITS, LowerLimits, StatementLimits
from ackwise.graph import ast as s
from ackwise.graph import errors as graph_errors
from ackwise.graph.commands import (
    FETCH_BYTES,
    AskGraph,
    DescribeGraph,
    Done,
    EndGraphSession,
    FetchedEvents,
    FetchGraph,
    GraphRows,
    IsSessionHere,
    OpenedSession,
    OpenGraphSession,
    RunGraph,
    Step,
    StepResults,
    TypeRow,
    minted,
)
from ackwise.graph.errors import GraphError, MinimumPending, MinimumUnmet, SplitGroup
from ackwise.graph.language import Parsed, check_params, is_quick, parse
from ackwise.graph.language.parser import pointed
from ackwise.graph.parameters import Bindings, closed
from ackwise.graph.watch_options import MOST_WATCHES
from ackwise.protocols.mew.output_records import EventRecord, Note, Result, TextLine, error_line, event_line
from ackwise.protocols.mew.session_flow import Flow, Parse, send_run
from ackwise.protocols.mew.session_transaction import OUTSIDE_TRANSACTION, SessionTransaction, is_read, mint, total_of
from ackwise.protocols.mew.statement_group import StatementGroup, is_mutation
from ackwise.protocols.mew.transaction_memory import TransactionMemory

Admit = Callable[[list[list[Any]]], None]
"""Counts the rows of a statement before its result line. Raises `GraphError` when the answer would be too large."""
MOST_ERRORS = 100
"""The session stops after this many parse errors in one text: each error costs one more pass over the text."""
BLOCKED_FOR = 10.0
"""Seconds that a statement waits for room in the buffer of a watch with `on_full: block`."""


def _admit_all(rows: list[list[Any]]) -> None:
    """Accept any rows: for callers that bound their own memory."""


def _has_always_room() -> bool:
    return True


class Source(NamedTuple):
    """Text that the session parses, and the number of lines above it in the user's file."""

    text: str
    above: int


class MewSession:
    """State of a MEW session: names, parameters, the open transaction, handles of watches."""

    def __init__(
        self,
        session_id: str | None = None,
        *,
        actor: str | None = None,
        most_watches: int = MOST_WATCHES,
        blocked_for: float = BLOCKED_FOR,
        limits: StatementLimits = DEFAULT_LIMITS,
        memory: TransactionMemory | None = None,
    ) -> None:
        """`memory` bounds the open transactions of all sessions that share it."""
        self.id = session_id or f"session_{secrets.token_hex(8)}"
        self.names: dict[str, str] = {}
        self.params: dict[str, Any] = {}
        self.actor = actor
        self.opened: OpenedSession | None = None
        self._handles: dict[str, str] = {}
        """Handles of the session's watches, `#` included, by their ids."""
        self._transaction: SessionTransaction | None = None
        self._memory = memory or TransactionMemory()
        self._count = 0
        self._awaited: set[str] = set()
        """Names of `dead_letter` nodes that do not exist yet."""
        self._most_watches, self._blocked_for = most_watches, blocked_for
        self._most = self._limits = limits
        self._admit: Admit = _admit_all
        self._has_room: Callable[[], bool] = _has_always_room
        self._caller = self.id
        self._has_run = False
        """Whether a statement of the text has run."""

    @property
    def in_transaction(self) -> bool:
        return self._transaction is not None

    @property
    def is_busy(self) -> bool:
        """Whether the session has an open transaction or a watch that it did not cancel."""
        return self.in_transaction or bool(self._handles)

    # opening and ending

    def open(self) -> Flow[OpenedSession]:
        """Open the session in the store, once. A session that comes back finds the handles of its watches."""
        if self.opened is None:
            opened: OpenedSession = yield OpenGraphSession(session=self.id)
            for name, watch in {name: watch for watch, name in opened.handles.items()}.items():
                if name not in self.names or self.names[name] in self._handles:
                    self.names[name] = watch
            self._handles |= {watch: f"#{name}" for watch, name in opened.handles.items()}
            self._awaited |= opened.awaited
            self.opened = opened
        return self.opened

    def reopen(self) -> Flow[OpenedSession]:
        """Open the session again if another broker has taken it over, together with the watches made there."""
        if self.opened is not None and not (yield IsSessionHere(session=self.id)):
            self.opened = None
        return (yield from self.open())

    def end(self, *, lost: bool = False, here: bool = False) -> Flow[None]:
        """End the session in the store. With `here` it stays if another broker has taken it over."""
        self.drop_transaction()
        if self.opened is not None:
            yield EndGraphSession(session=self.id, lost=lost, here=here)
            self.opened = None

    def drop_transaction(self) -> None:
        """Forget the open transaction and its steps."""
        if self._transaction is not None:
            self._transaction.forget()
            self._transaction = None

    # text

    def run(
        self,
        text: str,
        params: Mapping[str, Any] | None = None,
        *,
        above: int = 0,
        keep_going: bool = False,
        events: int = 0,
        limits: LowerLimits | None = None,
        admit: Admit = _admit_all,
        has_room: Callable[[], bool] = _has_always_room,
        caller: str | None = None,
        reads_only: bool = False,
    ) -> Flow[bool]:
        """Run a text. After each statement up to `events` events follow. Returns False after any error.

        With `reads_only` it refuses a text with a statement that changes something, and opens no session in the store.
        `admit` bounds the answer of the whole text. If it refuses even no rows, the remaining statements do not run.
        `has_room` tells whether it admits the rows of a group of statements.
        The text uses the share of `caller` of the waiting places. The default is the session itself.
        """
        self._caller, self._has_run = caller or self.id, False
        self._limits = self._most.lowered(limits)
        self._admit, self._has_room = admit, has_room
        params = params or {}
        if not reads_only:
            yield from self.open()
        try:
            check_params(params)
        except GraphError as problem:
            self._roll_back()
            yield error_line(problem, above)
            return False
        succeeded = True
        start = errors = 0
        while True:
            source = Source(text[start:], above + text.count("\n", 0, start))
            parsed = yield from self._parse(source, is_first=not start, reads_only=reads_only)
            if parsed is None:
                return False
            outcome = yield from self._run_statements(parsed, params, source, keep_going=keep_going, events=events)
            if outcome == "stopped":
                return False
            if parsed.error is None:
                return succeeded and outcome == "ok"
            succeeded = False
            self._roll_back()
            yield error_line(parsed.error, source.above)
            start += parsed.resume
            errors += 1
            if not keep_going or start >= len(text) or not parsed.resume or errors >= MOST_ERRORS:
                return False

    def _parse(self, source: Source, *, is_first: bool, reads_only: bool) -> Flow[Parsed | None]:
        """Parse up to the first error.

        None if the parser is overloaded after earlier statements of the text ran, or if a statement may not run.
        """
        try:
            parsed: Parsed = parse(source.text) if is_quick(source.text) else (yield Parse(source.text, self._caller))
        except Overloaded as problem:
            if is_first:
                raise
            self._roll_back()
            yield error_line(GraphError("overloaded", problem.message), source.above)
            return None
        for word, name, (line, column) in parsed.skipped:
            message = f"{word} '{name}' was read over: it has no effect"
            yield Note("notice", "not_supported", "NOT_SUPPORTED", message, line + source.above, column)
        refusal = _first_change(parsed.statements) if reads_only else None
        if refusal is not None:
            yield error_line(pointed(refusal, source.text), source.above)
            return None
        return parsed

    def _run_statements(
        self, parsed: Parsed, params: Mapping[str, Any], source: Source, *, keep_going: bool, events: int
    ) -> Flow[Literal["ok", "failed", "stopped"]]:
        ahead = deque(parsed.statements)
        outcome: Literal["ok", "failed"] = "ok"
        while ahead:
            try:
                self._admit([])
            except GraphError as problem:
                yield self._failure(ahead[0], problem, source)
                return "stopped"
            # An event that was fetched after the last statement may have changed the session's parameters.
            statement = ahead[0]
            try:
                succeeded = yield from self._run_next(ahead, {**self.params, **params}, source)
            except Overloaded as problem:
                if not self._has_run:
                    raise
                # Earlier statements have run. A caller whose call is refused would run them twice.
                yield self._failure(statement, GraphError("overloaded", problem.message), source)
                return "stopped"
            self._has_run = True
            if events:
                # The statement has run, and its answer comes. Events that are not fetched stay.
                with suppress(Overloaded):
                    yield from self.fetch(events)
            if not succeeded:
                outcome = "failed"
                if not keep_going:
                    return "stopped"
        return outcome

    def _run_next(self, ahead: deque[s.Statement], params: Mapping[str, Any], source: Source) -> Flow[bool]:
        """Run the next statement, or all statements that commit together with it.

        In a transaction, run all statements up to its end or the end of the text.
        """
        transaction = self._transaction
        if transaction is None and is_mutation(ahead[0]) and len(ahead) > 1:
            group = StatementGroup(ahead, self._bindings(params), rows=self._has_room())
            if len(group.candidates) > 1:
                return (yield from self._run_group(group, ahead, source))
            group.give_back(0)
        if transaction is None or transaction.failed or isinstance(ahead[0], OUTSIDE_TRANSACTION):
            return (yield from self._run_one(ahead.popleft(), params, source))
        problem = yield from self._try_steps(transaction, ahead, params, source)
        if problem is not None:
            yield self._failure(ahead.popleft(), problem, source)
        return problem is None

    def _try_steps(
        self, transaction: SessionTransaction, ahead: deque[s.Statement], params: Mapping[str, Any], source: Source
    ) -> Flow[GraphError | None]:
        """Run new steps dry, after a replay of the earlier ones. Returns the error of the first statement in `ahead`.

        One replay serves as many new steps as the text has.
        """
        candidates, problem = yield from transaction.gather(ahead, self._bindings(params))
        if not candidates:
            return problem
        before = len(transaction.steps)
        steps = (*transaction.steps, *(candidate.step for candidate in candidates))
        try:
            ran: StepResults = yield from send_run(
                self._command(steps, dry=True, tried=before), self._blocked_for, self._caller
            )
        except GraphError as refusal:
            ran = StepResults([], refusal.detached())
        problem = ran.refused or problem
        accepted = 0
        for candidate, done in zip(candidates, ran.done[before:], strict=False):
            try:
                self._admit(done.rows)
            except GraphError as refusal:
                problem = refusal.detached()
                break
            accepted += 1
            yield from self._result(candidate.statement, done, source)
            transaction.add(candidate.step)
        ahead.extendleft(candidate.statement for candidate in reversed(candidates[accepted:]))
        return problem

    def _run_group(self, group: StatementGroup, ahead: deque[s.Statement], source: Source) -> Flow[bool]:
        """Commit the statements of a group together. Returns whether all of them succeeded.

        If a statement fails, the statements before it are committed. The statements after it stay in `ahead`.
        """
        ran = yield from self._commit_group(group)
        if ran.undone is not None:
            first = group.candidates[0].statement
            if ran.refused is not None:
                yield self._failure(ahead.popleft(), ran.refused, source)
            yield self._failure(first, ran.undone, source)
            return False
        succeeded = True
        for candidate, done in zip(group.candidates, ran.done, strict=True):
            try:
                if done.rows:
                    self._admit(done.rows)
            except GraphError as problem:
                yield self._failure(candidate.statement, problem, source)
                succeeded = False
            else:
                yield from self._result(candidate.statement, done, source)
        if ran.refused is not None:
            yield self._failure(ahead.popleft(), ran.refused, source)
        return succeeded and ran.refused is None

    def _commit_group(self, group: StatementGroup) -> Flow[StepResults]:
        """Send a group. Splits it if a turn has no time for all of it, and extends it while a minimum needs more."""
        whole = False
        is_cut = group.is_cut
        while True:
            command = self._command(group.steps, group=True, cut=is_cut, whole=whole)
            try:
                ran: StepResults = yield from send_run(command, self._blocked_for, self._caller)
            except SplitGroup as split:
                group.give_back(split.steps)
                is_cut = True
            except MinimumPending:
                whole = True
                try:
                    group.extend()
                except GraphError as problem:
                    return StepResults([], undone=problem)
                is_cut = group.is_cut
            except GraphError as problem:
                return StepResults([], undone=problem)
            else:
                group.give_back(len(ran.done) if ran.undone is None else ran.steps)
                return ran

    def _run_one(self, statement: s.Statement, params: Mapping[str, Any], source: Source) -> Flow[bool]:
        try:
            done = yield from self._statement(statement, params)
            self._admit(done.rows)
        except GraphError as problem:
            yield self._failure(statement, problem, source)
            return False
        yield from self._result(statement, done, source)
        if isinstance(done.refused, GraphError):
            yield error_line(done.refused, source.above)
            return False
        return True

    def _result(self, statement: s.Statement, done: Done, source: Source) -> Flow[None]:
        """Lines for a statement that ran. Its names are the session's from now on."""
        self._count += 1
        line = statement.at[0] + source.above
        handle = self._name_handle(statement, done) if isinstance(statement, s.Watch) else None
        self.names.update(done.bindings)
        yield Result(self._count, line, word_of(statement), done, handle)
        if done.warning:
            yield Note("notice", "E8007", "DEAD_LETTER_FAILED", done.warning, line, 1, handle)

    def _failure(self, statement: s.Statement, problem: GraphError, source: Source) -> Note:
        if problem.at == graph_errors.NOWHERE:
            problem.at = statement.at
        self._roll_back()
        return error_line(pointed(problem, source.text), source.above)

    # transactions

    def _roll_back(self) -> None:
        """Roll the open transaction back after an error. It accepts no further steps until ROLLBACK or COMMIT."""
        if self._transaction is not None:
            self._transaction.fail()
            self._restore_names(self._transaction)

    def _restore_names(self, transaction: SessionTransaction) -> None:
        """Restore the names from before BEGIN: the transaction does not create its entities."""
        self.names.clear()
        self.names.update(transaction.names_before)

    def _begin(self, statement: s.Begin) -> Done:
        if self._transaction is not None:
            raise graph_errors.constraint("there is a transaction already", statement.at)
        self._transaction = SessionTransaction(self.names, self._memory)
        return Done()

    def _end_transaction(self, statement: s.Commit | s.Rollback) -> Flow[Done]:
        transaction = self._transaction
        if transaction is None:
            raise graph_errors.constraint("there is no transaction", statement.at)
        steps = tuple(transaction.steps)
        self.drop_transaction()
        if isinstance(statement, s.Rollback):
            self._restore_names(transaction)
            return Done()
        if transaction.failed:
            raise graph_errors.constraint("the transaction was rolled back: a statement of it failed", statement.at)
        if not steps:
            return Done()
        try:
            ran: StepResults = yield from send_run(
                self._command(steps, tried=len(steps)), self._blocked_for, self._caller
            )
        except GraphError as problem:
            self._restore_names(transaction)
            if isinstance(problem, MinimumUnmet):
                problem.at = statement.at  # the steps may be from other texts
            raise
        except Overloaded:
            # Nothing has run: the session may commit again.
            transaction.restore(steps)
            self._transaction = transaction
            raise
        return total_of(ran)

    # single statements

    def _statement(self, statement: s.Statement, params: Mapping[str, Any]) -> Flow[Done]:
        if isinstance(statement, s.Begin):
            return self._begin(statement)
        if isinstance(statement, s.Commit | s.Rollback):
            return (yield from self._end_transaction(statement))
        if self._transaction is not None:
            if self._transaction.failed:
                message = "the transaction was rolled back; say ROLLBACK and begin again"
                raise graph_errors.constraint(message, statement.at)
            raise graph_errors.not_supported(f"{word_of(statement)} inside a transaction", statement.at)
        ready = closed(statement, self._bindings(params))
        if isinstance(ready, s.Match | s.Inspect) and is_read(ready):
            return (yield from self._read(ready))
        return (yield from self._change(ready))

    def _read(self, statement: s.Match | s.Inspect) -> Flow[Done]:
        """Ask a reader. If deliveries are past their deadline, expire them first."""
        query = AskGraph(statement=statement, session=self.id, limits=self._limits, caller=self._caller)
        answer: GraphRows = yield query
        while answer.due:
            yield Sweep(duties=("graph",))
            answer = yield query
        return Done(columns=answer.columns, rows=answer.rows, found=answer.found)

    def _change(self, statement: s.Statement) -> Flow[Done]:
        """Run one statement in a turn."""
        number = mint()
        if isinstance(statement, s.Watch):
            statement = msgspec.structs.replace(statement, name=self._name_of(statement))
            # The handle is known before the first event of the watch arrives.
            self._handles[minted("_Watch", number)] = f"#{statement.name}"
        try:
            ran: StepResults = yield from send_run(
                self._command((Step(statement, number),)), self._blocked_for, self._caller
            )
        except (GraphError, Overloaded):
            self._handles.pop(minted("_Watch", number), None)
            raise
        if isinstance(statement, s.Manage) and statement.verb == "CANCEL":
            self._handles.pop(statement.ref.id, None)
        return ran.done[-1]

    def _bindings(self, params: Mapping[str, Any]) -> Bindings:
        return Bindings(self.names, params, self.id, self.actor)

    def _command(
        self,
        steps: tuple[Step, ...],
        *,
        dry: bool = False,
        tried: int = 0,
        group: bool = False,
        cut: bool = False,
        whole: bool = False,
    ) -> RunGraph:
        return RunGraph(
            session=self.id,
            steps=steps,
            dry=dry,
            tried=tried,
            group=group,
            cut=cut,
            whole=whole,
            most_watches=self._most_watches,
            awaited=frozenset(self._awaited),
            limits=self._limits,
        )

    def _name_handle(self, watch: s.Watch, done: Done) -> str:
        """Make the name of a new watch known, and return its handle."""
        assert done.handle is not None
        name = self._handles[done.handle].removeprefix("#")
        self.names[name] = done.handle
        if done.warning:
            self._awaited |= {o.value.id for o in watch.options if isinstance(o.value, s.IdRef)}
        return f"#{name}"

    def _name_of(self, watch: s.Watch) -> str:
        """The name in the statement, its last alias if that is free, or a new name `watch_<n>`."""
        alias = watch.returns.projections[-1].alias
        if watch.name is not None:
            return watch.name
        if alias is not None and alias not in self.names:
            return alias
        return next(name for number in count(1) if (name := f"watch_{number}") not in self.names)

    def describe(self, what: str) -> Flow[bool]:
        r"""`\dt` lists the declared types, `\dg` the number of nodes and edges of each type."""
        rows: list[TypeRow] = yield DescribeGraph()
        if what == "dt":
            yield TextLine("\n".join(row.declared for row in rows) or "no types are declared")
        else:
            counts = [f"{row.count:>8}  {row.name}" for row in rows if not row.declared.startswith("type ")]
            yield TextLine("\n".join(counts) or "the graph is empty")
        return True

    # events

    def handle_of(self, watch: str) -> str:
        return self._handles.get(watch, f"#{watch}")

    def fetch(self, most: int, handle: str | None = None, most_bytes: int | None = None) -> Flow[FetchedEvents]:
        """Events of all watches, or of one by its handle, as lines. The last delivery id becomes a parameter.

        With `most_bytes`, events that do not fit stay in the store.
        """
        yield from self.open()
        name = (handle or "").removeprefix("#")
        watch_id = self.names.get(name, name)
        watch = s.IdRef(watch_id, self._handles.get(watch_id, f"#{name}")) if handle is not None else None
        total = FetchedEvents([])
        while True:
            left = None if most_bytes is None else most_bytes - total.bytes
            command = FetchGraph(session=self.id, most=most - len(total.events), watch=watch, most_bytes=left)
            fetched: FetchedEvents = yield command
            for event in fetched.events:
                line = event_line(event, self.handle_of(event.watch))
                if isinstance(line, EventRecord) and line.delivery_id is not None:
                    self.params["delivery_id"] = line.delivery_id
                yield line
            total.events += fetched.events
            total.bytes += fetched.bytes
            total.until, total.more, total.needs = fetched.until, fetched.more, fetched.needs
            if fetched.needs or not fetched.cut or len(total.events) >= most or total.bytes >= FETCH_BYTES:
                return total


def _first_change(statements: Iterable[s.Statement]) -> GraphError | None:
    """The error of the first statement that is not only a read."""
    for statement in statements:
        if not is_read(statement):
            message = f"{word_of(statement)} is refused: only statements that read run here (MATCH … RETURN, INSPECT)"
            return GraphError("read_only", message, at=statement.at)
    return None


def word_of(statement: s.Statement) -> str:
    """The keyword of a statement, as result lines show it."""
    match statement:
        case s.SettleStatement(verb=verb) | s.Manage(verb=verb):
            return verb
        case s.OntologyDecl(declarations=(declaration,), name=None):
            return {"AliasDecl": "TYPE", "NodeDecl": "NODE", "EdgeDecl": "EDGE"}[s.tag_of(declaration)]
        case _:
            return s.tag_of(statement).upper()
