"""What a session of the graph asks a store to do, and what it is answered."""

from __future__ import annotations

from typing import Any, ClassVar, Literal

import msgspec

from ackwise.core.commands import Command
from ackwise.core.errors import BadInput
from ackwise.core.graph import syntax as s
from ackwise.core.graph.budget import DEFAULT_LIMITS, StatementLimits
from ackwise.core.graph.faults import GraphError
from ackwise.core.graph.watching import MOST_WATCHES
from ackwise.core.ids import base36
from ackwise.core.queries import Query


class Step(msgspec.Struct, frozen=True):
    """One statement, closed but for what steps before it name. `mint` and `now` are fixed when it is first run, so
    that each replay makes the same.

    A watch gets `mint` itself for its id, so that its session knows it beforehand; everything else numbers above.
    """

    statement: s.Statement
    mint: int
    now: int | None = None


def minted(kind: str, number: int) -> str:
    """The id of something that is made: what it is, and a number nobody else has."""
    return f"{kind.strip('_').lower()}_{base36(number)}"


class GraphCommand(Command):
    """The graph is changed by one turn at a time, so its commands share their turns."""

    queue: ClassVar[str] = "mew:"


class Found(msgspec.Struct, frozen=True):
    """Matches that a reader found beforehand: the numbers of their entities, by the names of the pattern.

    `tick` and `ontology` say which state of the graph the reader saw.
    """

    match: s.Match
    tick: int
    ontology: int
    names: tuple[str, ...]
    rows: list[tuple[int, ...]]


class RunGraph(GraphCommand):
    """Run statements of a session together; `dry` takes everything back and only says what would be.

    What a step names is known to those after it.
    """

    session: str
    steps: tuple[Step, ...]
    dry: bool = False
    tried: int = 0
    """So many of the steps, the first ones, are of a transaction and were run dry before."""
    most_watches: int = MOST_WATCHES
    awaited: frozenset[str] = frozenset()
    """Names that watches of the session have as their dead_letter and that stood for nothing so far."""
    limits: StatementLimits = DEFAULT_LIMITS
    found: tuple[Found, ...] | None = None
    """The reader's matches for the only step. None: the turn matches the pattern itself, and raises `MatchFirst` when
    the match takes long."""


class OpenGraphSession(GraphCommand):
    session: str


class EndGraphSession(GraphCommand):
    """A session ends: cleanly, and what it holds goes back unspent; or its connection was lost, which is a failure.

    Watches of a lost session that are `reliable` stay, so that it may come back.
    """

    session: str
    lost: bool = False
    here: bool = False
    """Only if it is with this broker still: by now another one may serve it."""


class ReleaseGraph(GraphCommand):
    """Deliveries that reached nobody go back unspent."""

    session: str
    deliveries: tuple[str, ...]


class FetchGraph(GraphCommand):
    """The next events of a session's watches (or of one of them); consumed ones are leased with it."""

    session: str
    most: int = 1000
    watch: s.IdRef | None = None


class AskGraph(Query):
    """MATCH or INSPECT, outside of a transaction."""

    statement: s.Match | s.Inspect
    session: str = ""
    limits: StatementLimits = DEFAULT_LIMITS


class FindGraph(Query):
    """The matching part of a statement that changes the graph. The answer is a `Found` for each of its patterns."""

    statement: s.Statement
    limits: StatementLimits = DEFAULT_LIMITS


class DescribeGraph(Query):
    """Which types there are, and how much of each."""


class IsSessionHere(Query):
    """Whether this broker was the last to open the session."""

    session: str


class TypeRow(msgspec.Struct):
    name: str
    declared: str
    count: int


class Done(msgspec.Struct):
    """What one statement did."""

    created: int = 0
    linked: int = 0
    modified: int = 0
    deleted: int = 0
    unlinked: int = 0
    bindings: dict[str, str] = {}
    columns: list[str] = []
    rows: list[list[Any]] = []
    declared: dict[str, int] = {}
    handle: str | None = None
    """The id of a new watch."""
    warning: str | None = None
    found: bool | None = None
    delivery_id: str | None = None
    outcome: Literal["acked", "requeued", "dead_lettered", "deleted"] | None = None
    attempts: int | None = None
    failures: int | None = None
    limit: int | None = None
    """How many failures the watch allows."""
    reason: str | None = None
    refused: BadInput | None = None
    """The statement took effect and is an error all the same (E8007)."""
    tick: int = 0


class Opened(msgspec.Struct):
    """A session is there; `no` is what its bell is called by. One that comes back is told what stands of it."""

    no: int
    handles: dict[str, str] = {}
    """Names of its watches, by their ids; of two of a name the one it stands for comes last."""
    awaited: frozenset[str] = frozenset()
    """As in `RunGraph`."""

    @property
    def bell(self) -> str:
        return f"mew:{self.no}"


class Ran(msgspec.Struct):
    done: list[Done]
    refused: GraphError | None = None
    """What the next step of a dry run was refused with."""


class WatchEvent(msgspec.Struct):
    """One event of a watch, or a notice on its stream."""

    watch: str
    kind: str
    tick: int
    match: dict[str, Any] | None = None
    matches: list[dict[str, Any]] | None = None
    prev: dict[str, Any] | None = None
    delivery_id: str | None = None
    attempt: int | None = None
    failures: int | None = None
    limit: int | None = None
    code: str | None = None
    name: str | None = None
    message: str | None = None


class Fetched(msgspec.Struct):
    """`until` is when to look again though nothing is committed."""

    events: list[WatchEvent]
    until: int | None = None
    more: bool = False
    cut: bool = False
    """The turn's time was up: fetch again for the rest."""
    bytes: int = 0
    """Bytes of the events. A fetch ends after `FETCH_BYTES`."""


class Asked(msgspec.Struct):
    columns: list[str]
    rows: list[list[Any]]
    found: bool | None = None
    due: bool = False
    """Deliveries have run out and nobody has dealt with them yet: sweep, and ask again."""
