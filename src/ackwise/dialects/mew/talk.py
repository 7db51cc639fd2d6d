"""A session without any I/O: text goes in, commands for a broker and lines for the user come out.

A talk is a generator. What it yields is either a command or query, for which it wants the answer, or a line to show.
So threads and event loops run the very same talk.
"""

from __future__ import annotations

import secrets
from collections import deque
from collections.abc import Callable, Generator, Mapping
from itertools import count
from typing import Any, TypeVar

import msgspec

from ackwise.core.commands import Command, Sweep
from ackwise.core.errors import Overloaded
from ackwise.core.graph import faults
from ackwise.core.graph import syntax as s
from ackwise.core.graph.budget import DEFAULT_LIMITS, FETCH_BYTES, LowerLimits, StatementLimits
from ackwise.core.graph.closing import Bindings, closed, spawned
from ackwise.core.graph.commands import (
    Asked,
    AskGraph,
    DescribeGraph,
    Done,
    EndGraphSession,
    Fetched,
    FetchGraph,
    FindGraph,
    IsSessionHere,
    Opened,
    OpenGraphSession,
    Ran,
    RunGraph,
    Step,
    TypeRow,
    minted,
)
from ackwise.core.graph.faults import GraphError, MatchFirst, Outrun, Postponed
from ackwise.core.graph.watching import MOST_WATCHES
from ackwise.core.queries import Query
from ackwise.dialects.mew.language import Parsed, check_params, is_quick, parse
from ackwise.dialects.mew.language.parsing import pointed
from ackwise.dialects.mew.lines import Event, Line, Note, Result, Said, error_line, event_line
from ackwise.dialects.mew.memory import TransactionMemory, size_of


class Now(msgspec.Struct):
    """Asks what time it is."""


class Parse(msgspec.Struct):
    """Asks for the statements of a text that takes long to parse."""

    text: str


class Pause(msgspec.Struct):
    """Asks to wait a little."""

    seconds: float = 0.05


T = TypeVar("T")
Wish = Command | Query | Now | Parse | Pause
Talking = Generator[Wish | Line, Any, T]
Admit = Callable[[list[list[Any]]], None]
"""Counts rows for an answer, before their statement is told. Raises `GraphError` when the answer takes no more."""
MOST_ERRORS = 100
"""The parser stops after this many errors in one text: each error costs one more pass over the text."""
MOST_STEPS = 2000
"""Statements of one transaction. Each call with statements of it runs those before them once more."""
_ALONE = (s.Begin, s.Commit, s.Rollback, s.Watch, s.Manage, s.Alter, s.Tick)
"""Statements that are no part of a transaction."""
BLOCKED_FOR = 10.0
"""Seconds that a statement waits for room in the buffer of a watch with `on_full: block`."""


class Session:
    """What a connection knows: names, parameters, its transaction, its watches."""

    def __init__(
        self,
        found: str | None = None,
        *,
        actor: str | None = None,
        most_watches: int = MOST_WATCHES,
        blocked_for: float = BLOCKED_FOR,
        limits: StatementLimits = DEFAULT_LIMITS,
        memory: TransactionMemory | None = None,
    ) -> None:
        """`memory` bounds the open transactions of all sessions that share it."""
        self.id = found or f"session_{secrets.token_hex(8)}"
        self.names: dict[str, str] = {}
        self.params: dict[str, Any] = {}
        self.actor = actor
        self.opened: Opened | None = None
        self._handles: dict[str, str] = {}
        self._transaction: list[Step] | None = None
        self._memory, self._held = memory or TransactionMemory(), 0
        self._broken = False
        self._names_before: dict[str, str] = {}
        self._count = 0
        self._awaited: set[str] = set()
        self._most_watches, self._blocked_for = most_watches, blocked_for
        self._most = self._limits = limits
        self._admit: Admit = _admit_all

    @property
    def in_transaction(self) -> bool:
        return self._transaction is not None

    @property
    def is_busy(self) -> bool:
        """Whether it has watches that it did not cancel, or is amid a transaction."""
        return self.in_transaction or bool(self._handles)

    # coming and going

    def open(self) -> Talking[Opened]:
        if self.opened is None:
            found: Opened = yield OpenGraphSession(session=self.id)
            for name, watch in {name: watch for watch, name in found.handles.items()}.items():
                if name not in self.names or self.names[name] in self._handles:
                    self.names[name] = watch
            self._handles |= {watch: f"#{name}" for watch, name in found.handles.items()}
            self._awaited |= found.awaited
            self.opened = found
        return self.opened

    def come_back(self) -> Talking[Opened]:
        """As `open`; when it was with another broker meanwhile it is taken over, with the watches it made there."""
        if self.opened is not None and not (yield IsSessionHere(session=self.id)):
            self.opened = None
        return (yield from self.open())

    def end(self, *, lost: bool = False, here: bool = False) -> Talking[None]:
        """`here`: not when another broker has taken it over."""
        self.drop_transaction()
        if self.opened is not None:
            yield EndGraphSession(session=self.id, lost=lost, here=here)
            self.opened = None

    def drop_transaction(self) -> None:
        """Forget the statements of the transaction."""
        self._transaction = None
        self._memory.used -= self._held
        self._held = 0

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
        admit: Admit | None = None,
    ) -> Talking[bool]:
        """Run a text; after each statement up to `events` events follow. False when something failed.

        `admit` bounds the answer of the whole text. When it refuses even no rows, the remaining statements do not run.
        """
        self._limits = self._most.lowered(limits)
        self._admit = admit or _admit_all
        yield from self.open()
        fine = True
        base = errors = 0
        try:
            check_params(params or {})
        except GraphError as problem:
            self._break()
            yield error_line(problem, above)
            return False
        while True:
            rest = text[base:]
            lines_before = above + text.count("\n", 0, base)
            try:
                parsed: Parsed = parse(rest) if is_quick(rest) else (yield Parse(rest))
            except Overloaded as problem:
                if not base:
                    raise
                # Statements before this have run: the call is not refused as a whole.
                self._break()
                yield error_line(GraphError("overloaded", problem.message), lines_before)
                return False
            for word, name, at in parsed.skipped:
                yield Note(
                    "notice",
                    "not_supported",
                    "NOT_SUPPORTED",
                    f"{word} '{name}' was read over: it has no effect",
                    at[0] + lines_before,
                    at[1],
                )
            ahead = deque(parsed.statements)
            while ahead:
                try:
                    self._admit([])
                except GraphError as problem:
                    yield self._failed(ahead[0], problem, rest, lines_before)
                    return False
                worked = yield from self._next(ahead, {**self.params, **(params or {})}, rest, lines_before)
                if events:
                    yield from self.fetch(events)
                fine = fine and worked
                if not worked and not keep_going:
                    return False
            if parsed.error is None:
                return fine
            fine = False
            self._break()
            yield error_line(parsed.error, lines_before)
            base += parsed.resume
            errors += 1
            if not keep_going or base >= len(text) or not parsed.resume or errors >= MOST_ERRORS:
                return False

    def _next(self, ahead: deque[s.Statement], params: Mapping[str, Any], text: str, above: int) -> Talking[bool]:
        """The next statement; in a transaction all up to its end, or the end of the text."""
        if self._transaction is None or self._broken or isinstance(ahead[0], _ALONE):
            return (yield from self._one(ahead.popleft(), params, text, above))
        # Each try runs all that came before once more, so as many as there are share one.
        tried, problem = yield from self._gathered(ahead, params)
        if tried:
            steps = (*self._transaction, *(step for _, step in tried))
            try:
                ran: Ran = yield from self._patiently(self._command(steps, dry=True, tried=len(self._transaction)))
            except GraphError as refusal:
                ran = Ran([], refusal)
            problem = ran.refused or problem
            fresh = ran.done[len(self._transaction) :]
            for number, ((statement, step), done) in enumerate(zip(tried, fresh, strict=False)):
                try:
                    self._admit(done.rows)
                except GraphError as refusal:
                    problem, fresh = refusal, fresh[:number]
                    break
                yield from self._told(statement, done, above)
                if not _looks(step.statement):
                    self._transaction.append(step)
                    size = size_of(step.statement)
                    self._held += size
                    self._memory.used += size
            ahead.extendleft(statement for statement, _ in reversed(tried[len(fresh) :]))
        if problem is not None:
            yield self._failed(ahead.popleft(), problem, text, above)
        return problem is None

    def _gathered(
        self, ahead: deque[s.Statement], params: Mapping[str, Any]
    ) -> Talking[tuple[list[tuple[s.Statement, Step]], GraphError | None]]:
        """Statements of a transaction, as steps; and what is wrong with the one behind them."""
        assert self._transaction is not None
        # One instant for the whole transaction.
        now = self._transaction[0].now if self._transaction else (yield Now())
        names = dict(self.names)
        tried: list[tuple[s.Statement, Step]] = []
        size = 0
        while ahead and not isinstance(ahead[0], _ALONE):
            try:
                if len(self._transaction) + len(tried) >= MOST_STEPS:
                    raise faults.constraint(f"a transaction has at most {MOST_STEPS} statements", ahead[0].at)
                ready = closed(ahead[0], Bindings(names, params, self.id, self.actor))
                size += size_of(ready)
                self._memory.check(self._held, size)
            except GraphError as problem:
                return tried, problem
            tried.append((ahead.popleft(), Step(ready, _mint(), now)))
            if isinstance(ready, s.Spawn | s.Link):
                for name in spawned((ready,)):
                    names.pop(name, None)  # the steps behind it learn what it stands for from the store
        return tried, None

    def _one(self, statement: s.Statement, params: Mapping[str, Any], text: str, above: int) -> Talking[bool]:
        try:
            done = yield from self._statement(statement, params)
            self._admit(done.rows)
        except GraphError as problem:
            yield self._failed(statement, problem, text, above)
            return False
        yield from self._told(statement, done, above)
        if isinstance(done.refused, GraphError):
            yield error_line(done.refused, above)
            return False
        return True

    def _told(self, statement: s.Statement, done: Done, above: int) -> Talking[None]:
        self._count += 1
        handle = self._named(statement, done) if isinstance(statement, s.Watch) else None
        self.names.update(done.bindings)
        yield Result(self._count, statement.at[0] + above, word_of(statement), done, handle)
        if done.warning:
            yield Note("notice", "E8007", "DEAD_LETTER_FAILED", done.warning, statement.at[0] + above, 1, handle)

    def _failed(self, statement: s.Statement, problem: GraphError, text: str, above: int) -> Note:
        if problem.at == faults.NOWHERE:
            problem.at = statement.at
        self._break()
        return error_line(pointed(problem, text), above)

    def _break(self) -> None:
        """A failing statement rolls its transaction back; nothing more is taken until that is acknowledged."""
        if self._transaction is not None:
            self._broken = True
            self.drop_transaction()
            self._transaction = []
            self._take_names_back()

    def _take_names_back(self) -> None:
        """What a transaction named is gone with it."""
        self.names.clear()
        self.names.update(self._names_before)

    def _statement(self, statement: s.Statement, params: Mapping[str, Any]) -> Talking[Done]:
        match statement:
            case s.Begin():
                if self._transaction is not None:
                    raise faults.constraint("there is a transaction already", statement.at)
                self._transaction, self._broken = [], False
                self._names_before = dict(self.names)
                return Done()
            case s.Commit() | s.Rollback():
                return (yield from self._end_transaction(statement))
        if self._broken:
            raise faults.constraint("the transaction was rolled back; say ROLLBACK and begin again", statement.at)
        if self._transaction is not None:
            raise faults.not_supported(f"{word_of(statement)} inside a transaction", statement.at)
        ready = closed(statement, Bindings(self.names, params, self.id, self.actor))
        if isinstance(ready, s.Match | s.Inspect) and _looks(ready):
            query = AskGraph(statement=ready, session=self.id, limits=self._limits)
            asked: Asked = yield query
            while asked.due:
                # What time alone has made so is so before it is looked at.
                yield Sweep(duties=("graph",))
                asked = yield query
            return Done(columns=asked.columns, rows=asked.rows, found=asked.found)
        mint = _mint()
        if isinstance(ready, s.Watch):
            ready = msgspec.structs.replace(ready, name=self._name_of(ready))
            # Before anybody can see an event of it.
            self._handles[minted("_Watch", mint)] = f"#{ready.name}"
        try:
            ran: Ran = yield from self._patiently(self._command((Step(ready, mint),)))
        except GraphError:
            self._handles.pop(minted("_Watch", mint), None)
            raise
        if isinstance(ready, s.Manage) and ready.verb == "CANCEL":
            self._handles.pop(ready.ref.id, None)
        return ran.done[-1]

    def _end_transaction(self, statement: s.Commit | s.Rollback) -> Talking[Done]:
        if self._transaction is None:
            raise faults.constraint("there is no transaction", statement.at)
        steps, broken = self._transaction, self._broken
        self._broken = False
        self.drop_transaction()
        if isinstance(statement, s.Rollback):
            self._take_names_back()
            return Done()
        if broken:
            raise faults.constraint("the transaction was rolled back: a statement of it failed", statement.at)
        if not steps:
            return Done()
        try:
            ran: Ran = yield from self._patiently(self._command(tuple(steps), tried=len(steps)))
        except GraphError:
            self._take_names_back()
            raise
        total = Done()
        for done in ran.done:
            for field in ("created", "linked", "modified", "deleted", "unlinked"):
                setattr(total, field, getattr(total, field) + getattr(done, field))
        return total

    def _command(self, steps: tuple[Step, ...], *, dry: bool = False, tried: int = 0) -> RunGraph:
        return RunGraph(
            session=self.id,
            steps=steps,
            dry=dry,
            tried=tried,
            most_watches=self._most_watches,
            awaited=frozenset(self._awaited),
            limits=self._limits,
        )

    def _patiently(self, command: RunGraph) -> Talking[Ran]:
        """Wait for room where a watch holds its producers up. A reader first matches patterns that take long."""
        left = self._blocked_for
        again = once_more = True
        while True:
            try:
                ran: Ran = yield command
                return ran
            except Postponed:
                continue
            except (MatchFirst, Outrun) as problem:
                if isinstance(problem, Outrun):
                    if not again:
                        raise faults.conflict() from None
                    again = False
                found = yield FindGraph(statement=command.steps[0].statement, limits=command.limits)
                command = msgspec.structs.replace(command, found=found)
                continue
            except GraphError as problem:
                if once_more and problem.details.get("limit") == "writer":
                    once_more = False  # the machine may have been busy with something else
                    continue
                if problem.name != "BLOCKED" or left <= 0:
                    raise
            pause = Pause()
            left -= pause.seconds
            yield pause

    def _named(self, watch: s.Watch, done: Done) -> str:
        """A watch's handle, known from now on."""
        assert done.handle is not None
        name = self._handles[done.handle].removeprefix("#")
        self.names[name] = done.handle
        if done.warning:
            self._awaited |= {o.value.id for o in watch.options if isinstance(o.value, s.IdRef)}
        return f"#{name}"

    def _name_of(self, watch: s.Watch) -> str:
        """The name it is given, an alias that is free, or one that is made up."""
        alias = watch.returns.projections[-1].alias
        if watch.name is not None:
            return watch.name
        if alias is not None and alias not in self.names:
            return alias
        return next(name for number in count(1) if (name := f"watch_{number}") not in self.names)

    def describe(self, what: str) -> Talking[bool]:
        r"""`\\dt` says what is declared, `\\dg` how much there is of it."""
        rows: list[TypeRow] = yield DescribeGraph()
        if what == "dt":
            yield Said("\n".join(row.declared for row in rows) or "no types are declared")
        else:
            counts = [f"{row.count:>8}  {row.name}" for row in rows if not row.declared.startswith("type ")]
            yield Said("\n".join(counts) or "the graph is empty")
        return True

    # events

    def shown(self, watch: str) -> str:
        return self._handles.get(watch, f"#{watch}")

    def fetch(self, most: int, handle: str | None = None) -> Talking[Fetched]:
        """Events that are due (of one watch, by its handle), as lines; the last delivery id becomes a parameter."""
        yield from self.open()
        name = (handle or "").removeprefix("#")
        found = self.names.get(name, name)
        watch = s.IdRef(found, self._handles.get(found, f"#{name}")) if handle is not None else None
        whole = Fetched([])
        while True:
            fetched: Fetched = yield FetchGraph(session=self.id, most=most - len(whole.events), watch=watch)
            for event in fetched.events:
                line = event_line(event, self.shown(event.watch))
                if isinstance(line, Event) and line.delivery_id is not None:
                    self.params["delivery_id"] = line.delivery_id
                yield line
            whole.events += fetched.events
            whole.bytes += fetched.bytes
            whole.until, whole.more = fetched.until, fetched.more
            if not fetched.cut or len(whole.events) >= most or whole.bytes >= FETCH_BYTES:
                return whole


def _looks(statement: s.Statement) -> bool:
    """Whether it only looks."""
    return isinstance(statement, s.Inspect) or (isinstance(statement, s.Match) and not statement.mutations)


def _admit_all(rows: list[list[Any]]) -> None:
    """The caller bounds its own memory."""


def _mint() -> int:
    return secrets.randbits(60) + 36**11


def word_of(statement: s.Statement) -> str:
    """What a statement is called."""
    match statement:
        case s.Settle(verb=verb) | s.Manage(verb=verb):
            return verb
        case s.Ontology(declarations=(one,), name=None):
            return {"AliasDecl": "TYPE", "NodeDecl": "NODE", "EdgeDecl": "EDGE"}[type(one).__name__]
        case _:
            return type(statement).__name__.upper()
