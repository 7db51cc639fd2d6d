"""Graph commands, queries and answers."""

from __future__ import annotations

from typing import Any, ClassVar, Literal

import msgspec

from ackwise.core.commands import Command
from ackwise.core.errors import BadInput
from ackwise.core.ids import base36
from ackwise.core.queries import Query
from ackwise.core.structs import Answer_co
from ackwise.engine.metered_query import MeteredQuery
from ackwise.engine.statement_limits import DEFAULT_LIMITS, StatementLimits
from ackwise.engine.statement_meter import Overrun
from ackwise.graph import ast as s
from ackwise.graph.errors import GraphError, limit_error
from ackwise.graph.watch_options import MOST_WATCHES

FETCH_BYTES = 8 << 20
"""Bytes of events after which a fetch ends."""

GROUP_ROWS = 1000
GROUP_BYTES = 256 << 10
"""Rows and bytes that a group of statements returns. Beyond them the group is split."""


class Step(msgspec.Struct, frozen=True):
    """One statement of a command. Only names that earlier steps define are still open.

    `mint` and `now` stay the same in each replay, so each replay makes the same ids. A watch gets `mint` itself as
    its number, so that the session knows the id in advance. Other entities get the numbers above.
    """

    statement: s.Statement
    mint: int
    now: int | None = None


def minted(kind: str, number: int) -> str:
    """A new id: the type of the entity and a unique number."""
    return f"{kind.strip('_').lower()}_{base36(number)}"


class GraphCommand(Command[Answer_co]):
    """A command that changes the graph. All of them share one queue of turns: only one turn changes the graph."""

    queue: ClassVar[str] = "mew:"


class ReaderMatches(msgspec.Struct, frozen=True):
    """Matches that a reader found before the turn: for each match the numbers of its entities, in order of `names`.

    `tick` and `ontology` identify the state of the graph that the reader saw.
    """

    match: s.Match
    tick: int
    ontology: int
    names: tuple[str, ...]
    rows: list[tuple[int, ...]]


class RunGraph(GraphCommand["StepResults"], tag="run_graph"):
    """Run statements of a session in one turn. With `dry` the turn undoes them and returns their results.

    Each step may use the names of earlier steps.
    """

    session: str
    steps: tuple[Step, ...]
    dry: bool = False
    tried: int = 0
    """The number of leading steps that earlier dry runs of the transaction have accepted."""
    most_watches: int = MOST_WATCHES
    awaited: frozenset[str] = frozenset()
    """Names in `dead_letter` options of the session's watches for which there is no node yet."""
    limits: StatementLimits = DEFAULT_LIMITS
    found: tuple[ReaderMatches, ...] | None = None
    """The reader's matches for the only step. None: the turn matches the pattern, and raises `MatchFirst` if that takes
    long."""
    group: bool = False
    """The steps are consecutive statements outside a transaction. If one fails, those before it are committed."""
    cut: bool = False
    """Further statements of the group follow in another command: a minimum that is not met yet is `MinimumPending`."""
    whole: bool = False
    """The group must not be split: its minimums are met only at its end."""


class OpenGraphSession(GraphCommand["OpenedSession"], tag="open_graph_session"):
    session: str


class EndGraphSession(GraphCommand["Done"], tag="end_graph_session"):
    """End a session. Its deliveries are released.

    After a lost connection each of them counts as a failure, and `reliable` watches stay, so that the session may
    come back.
    """

    session: str
    lost: bool = False
    here: bool = False
    """Do nothing if another broker has taken the session over."""


class ReleaseGraph(GraphCommand["Done"], tag="release_graph"):
    """Release deliveries that did not reach a client. They cost no failure."""

    session: str
    deliveries: tuple[str, ...]


class RestartClocks(GraphCommand["Done"], tag="restart_graph_clocks"):
    """Start the ack timeout of deliveries again: their client gets them only now. Ignores settled and expired ones."""

    session: str
    deliveries: tuple[str, ...]


class FetchGraph(GraphCommand["FetchedEvents"], tag="fetch_graph"):
    """Fetch the next events of a session's watches, or of one of them. Items of consume watches are leased."""

    session: str
    most: int = 1000
    watch: s.IdRef | None = None
    most_bytes: int | None = None
    """Take only events that fit into this many bytes. None: take events until `FETCH_BYTES` are exceeded."""


class GraphStatement(MeteredQuery[Answer_co]):
    """A statement that reads the graph."""

    def limit_error(self, problem: Overrun) -> GraphError:
        return limit_error(problem)


class AskGraph(GraphStatement["GraphRows"], tag="ask_graph"):
    """A MATCH without mutations, or an INSPECT, outside a transaction."""

    statement: s.Match | s.Inspect
    session: str = ""


class FindGraph(GraphStatement[tuple[ReaderMatches, ...]], tag="find_graph"):
    """Match the patterns of a statement that changes the graph. The answer is a `ReaderMatches` for each pattern."""

    TRIES_SHORT: ClassVar[bool] = False

    statement: s.Statement


class DescribeGraph(Query[list["TypeRow"]], tag="describe_graph"):
    """All types, with the number of entities of each."""


class IsSessionHere(Query[bool], tag="is_session_here"):
    """Whether the session belongs to this broker: it was the last to open it."""

    session: str


class TypeRow(msgspec.Struct):
    name: str
    declared: str
    count: int


class Done(msgspec.Struct):
    """Result of one statement."""

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
    """The number of failures that the watch allows."""
    reason: str | None = None
    refused: BadInput | None = None
    """The error of a statement that took effect (E8007)."""
    tick: int = 0


class OpenedSession(msgspec.Struct):
    """An open session, with the names of its watches. `no` is its number in wake-up keys."""

    no: int
    handles: dict[str, str] = {}
    """Names of its watches by id. If two watches share a name, the one that the name stands for comes last."""
    awaited: frozenset[str] = frozenset()
    """As in `RunGraph`."""

    @property
    def wake_key(self) -> str:
        """The key under which the broker wakes the session."""
        return f"mew:{self.no}"


class StepResults(msgspec.Struct):
    """Results of the steps of a `RunGraph`."""

    done: list[Done]
    refused: GraphError | None = None
    """The error of the first step of a dry run or of a group that failed."""
    undone: GraphError | None = None
    """Why `steps` statements of a group were rolled back: a minimum was not met."""
    steps: int = 0


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
    ack_timeout: int | None = None
    """Microseconds until an unsettled delivery expires."""
    code: str | None = None
    name: str | None = None
    message: str | None = None


class FetchedEvents(msgspec.Struct):
    """Events of one fetch."""

    events: list[WatchEvent]
    until: int | None = None
    """When an item becomes free without a commit: fetch again then."""
    more: bool = False
    """Consumers may have further items."""
    cut: bool = False
    """The time or the bytes of the turn were used up: fetch again for the rest."""
    bytes: int = 0
    """Bytes of the events. A fetch ends after `FETCH_BYTES`."""
    needs: int = 0
    """Bytes of the next event, if it did not fit into `most_bytes`."""


class GraphRows(msgspec.Struct):
    """Rows of a MATCH or INSPECT."""

    columns: list[str]
    rows: list[list[Any]]
    found: bool | None = None
    due: bool = False
    """A delivery is past its deadline: sweep, then ask again."""
