"""Typed events that the server, the broker and the store emit, once per turn and not per message.

Listeners in the same process subscribe to the `EventStream` of a store: logs, metrics, pages, tests. They miss what
happens while the process is down. A reader that must not miss anything reads rows with a cursor instead: dead letters
(`ListDead`) and the ledger (`ReadLedger`).
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence, Sized
from contextlib import suppress
from typing import Protocol, TypeVar

import msgspec


class Event(msgspec.Struct, frozen=True):
    """Base of all events. An event that reports a change is emitted after the commit of the change."""


class BrokerStarted(Event, frozen=True):
    """A broker opened its store."""

    instance: str
    store: str


class BrokerStopped(Event, frozen=True):
    """A broker closed its store."""

    instance: str


class StoreMigrated(Event, frozen=True):
    """The store's tables changed from one schema version to another. 0 is a new store."""

    store: str
    before: int
    after: int
    extension: str = ""
    """The extension whose tables changed. Empty for the tables of the queues."""


class MessagesPushed(Event, frozen=True):
    """Messages that a turn stored in a queue, and duplicates that it did not store."""

    queue: str
    count: int
    duplicates: int = 0


class MessagesClaimed(Event, frozen=True):
    """Messages that a turn put under new leases of a group."""

    queue: str
    group: str
    count: int


class MessagesSettled(Event, frozen=True):
    """Messages whose delivery ended with this outcome: acked, retried, released, dead, expired or redriven."""

    queue: str
    group: str
    outcome: str
    count: int
    times: dict[int, int] = {}
    """How many of the messages took so many microseconds from their claim. Read it, never change it."""


class RequestsRefused(Event, frozen=True):
    """Requests that were refused in a turn or before it.

    Settlements and extensions have their verdict as the reason, other commands their error code.
    """

    reason: str
    count: int


class LeasesExpired(Event, frozen=True):
    """Messages whose lease passed its deadline. `leases` is the number of leases that ended by it."""

    queue: str
    group: str
    count: int
    leases: int = 0


class DeadLetterAdded(Event, frozen=True):
    """One new dead letter."""

    queue: str
    group: str
    id: str
    reason: str
    error: str
    attempts: int


class HookDelivered(Event, frozen=True):
    """A hook reported a dead letter."""

    queue: str
    hook: str
    id: str


class HookFailed(Event, frozen=True):
    """A hook could not report a dead letter. It tries again after `retry_seconds`."""

    queue: str
    hook: str
    id: str
    error: str
    failures: int
    retry_seconds: float


class HookPaused(Event, frozen=True):
    """A hook failed for 24 hours and paused. Setting it again resumes it."""

    queue: str
    hook: str
    error: str


class MessagesPromoted(Event, frozen=True):
    """Scheduled messages that became claimable."""

    queue: str
    count: int


class MessagesPruned(Event, frozen=True):
    """Messages that retention removed."""

    queue: str
    count: int


class MaintenanceChanged(Event, frozen=True):
    """A switch of Queen's maintenance changed: `push` keeps pushes in the spool, `pop` lets pops answer empty."""

    push: bool
    pop: bool


class SpoolReplayed(Event, frozen=True):
    """Messages that a turn moved from the spool to their queues, and messages whose push was refused."""

    count: int
    refused: int = 0


class TurnCommitted(Event, frozen=True):
    """A transaction: how many commands it ran, how many messages they concerned, and how long it took."""

    commands: int
    messages: int
    seconds: float


class TurnFellBack(Event, frozen=True):
    """A turn failed as a whole, and its commands ran one by one."""

    commands: int
    error: str


class ConnectionLost(Event, frozen=True):
    """A connection to the database broke."""

    where: str
    error: str


class ConnectionRestored(Event, frozen=True):
    """A connection to the database works again after this many seconds."""

    where: str
    seconds: float


class RequestServed(Event, frozen=True):
    """The server answered a request. `route` is the pattern and not the path, so that its values are few.

    Status 499 means that the client left before the answer. WebSockets are no requests.
    """

    method: str
    route: str
    status: int
    seconds: float
    peer: str
    queue: str = ""
    """The queue of a request about one queue."""
    messages: int = 0
    """How many messages the request pushed, got or settled."""
    command: str = ""
    """The command of a request to `/v1/admin`."""


class EventSource(Protocol):
    """Source of events that builds them when a listener needs them."""

    def events(self) -> Sequence[Event]: ...


E = TypeVar("E", bound=Event)
Listener = Callable[[Event], None]
Keeper = Callable[[Event | EventSource], None]


class EventPort(Protocol):
    """Port through which a component emits events.

    The component checks `listening` first and builds no event without listeners.
    """

    @property
    def listening(self) -> Sized:
        """The listeners: empty while nothing listens."""
        ...

    def emit(self, event: Event) -> None: ...

    def emit_later(self, source: EventSource) -> None:
        """Emit the events of a source. If only keepers listen, the source builds its events later."""
        ...


class EventStream:
    """The events of one store in this process. Thread-safe.

    The thread that caused an event calls the listeners, so a listener must return at once. A listener that raises
    does not disturb the emitter or other listeners: Python prints a warning.
    """

    def __init__(self) -> None:
        self._listeners: dict[object, tuple[Listener, tuple[type[Event], ...]] | Keeper] = {}
        self._by_kind: dict[type[Event], tuple[Listener, ...]] = {}
        """Listeners of each kind of event. A new subscription or its end replaces the whole dictionary."""
        self._keepers: tuple[Keeper, ...] = ()
        self._only_keepers = True
        self.listening: Sized = self._listeners
        """True while it has an entry. A plain attribute, because every turn and every request asks."""

    def subscribe(self, listener: Callable[[E], None], *kinds: type[E]) -> Callable[[], None]:
        """Call the listener for events of these kinds, or for all. The returned function ends the subscription."""
        return self._add((listener, kinds or (Event,)))  # type: ignore[arg-type]

    def keep(self, keeper: Keeper) -> Callable[[], None]:
        """Call the keeper for all events and for sources of events. The returned function ends the subscription.

        The keeper takes the events from a source when it needs them, so the turn does not wait for them.
        """
        return self._add(keeper)

    def _add(self, listener: tuple[Listener, tuple[type[Event], ...]] | Keeper) -> Callable[[], None]:
        key = object()
        self._listeners[key] = listener
        self._sort()

        def unsubscribe() -> None:
            self._listeners.pop(key, None)
            self._sort()

        return unsubscribe

    def _sort(self) -> None:
        listeners = list(self._listeners.values())
        self._by_kind = {}
        self._keepers = tuple(listener for listener in listeners if callable(listener))
        self._only_keepers = len(listeners) == len(self._keepers)

    def emit(self, event: Event) -> None:
        for keeper in self._keepers:
            try:
                keeper(event)
            except Exception as problem:
                _warn(keeper, problem)
        if not self._only_keepers:
            self._emit_to_listeners(event)

    def emit_later(self, source: EventSource) -> None:
        for keeper in self._keepers:
            try:
                keeper(source)
            except Exception as problem:
                _warn(keeper, problem)
        if not self._only_keepers:
            for event in source.events():
                self._emit_to_listeners(event)

    def _emit_to_listeners(self, event: Event) -> None:
        by_kind = self._by_kind
        listeners = by_kind.get(type(event))
        if listeners is None:
            pairs = [listener for listener in list(self._listeners.values()) if isinstance(listener, tuple)]
            listeners = by_kind[type(event)] = tuple(hear for hear, kinds in pairs if isinstance(event, kinds))
        for listener in listeners:
            try:
                listener(event)
            except Exception as problem:
                _warn(listener, problem)


def _warn(listener: Callable[..., object], problem: Exception) -> None:
    name = getattr(listener, "__qualname__", type(listener).__name__)
    # With `python -W error` a warning is an exception.
    with suppress(RuntimeWarning):
        warnings.warn(f"the event listener {name} failed: {problem!r}", RuntimeWarning, stacklevel=3)
