"""Live events: notify open pages of changed topics, at most once per second and topic."""

from __future__ import annotations

import asyncio
import hashlib
import re
import time
from collections.abc import Iterable
from contextlib import suppress

from starlette.responses import JSONResponse, Response
from starlette.types import Receive, Scope, Send

from ackwise.broker import AsyncBroker
from ackwise.core import events as e
from ackwise.core.errors import BadInput

QUEUES, DEAD, GRAPH, PIPELINES, CLOCK = "queues", "dead", "graph", "pipelines", "clock"
TOPICS = frozenset({QUEUES, DEAD, GRAPH, PIPELINES, CLOCK})
"""`clock` has no events: it changes when every topic counts as changed."""
MOST_SUBSCRIBERS = 200
"""Open pages with live events. A further page works, but does not update itself."""
MOST_TOPICS = 20
"""Topics of one page."""
FLUSH_EVERY = 1.0
"""Seconds between two messages to a page."""
POLL_LOCAL, POLL_SHARED = 15.0, 5.0
"""Seconds after which every topic counts as changed: ages grow, and other processes write to the same store. Other
servers write to a PostgreSQL more often than other processes to a file."""
ECHOES = (2.2, 10.0)
"""Seconds after a change at which the change is reported again. A page that reads directly after the change may get a
cached result that is older than the change. The second echo is for slow reads, which stay cached for longer. A new page
also gets the first echo, because it has missed the changes before its connection."""
HEARTBEAT = 20.0
"""Seconds after which an idle connection gets a comment, so that a lost client is noticed."""
RETRY_MILLIS = 2000
"""Milliseconds after which a browser opens an ended connection again."""
_HEADERS = [
    (b"content-type", b"text/event-stream; charset=utf-8"),
    (b"cache-control", b"no-store"),
    (b"x-accel-buffering", b"no"),
    (b"x-content-type-options", b"nosniff"),
]


_QUEUE_TOPIC = re.compile(r"q-[0-9a-f]{16}")


def queue_topic(queue: str) -> str:
    """Topic of one queue: a word without special characters."""
    return f"q-{hashlib.blake2s(queue.encode(), digest_size=8).hexdigest()}"


class Subscriber:
    """One open page: the topics that it shows, and those that changed since its last message."""

    def __init__(self, topics: frozenset[str]) -> None:
        self.topics = topics
        self.changed: set[str] = set()
        self.news = asyncio.Event()

    def notify(self, changed: Iterable[str]) -> None:
        self.changed |= self.topics.intersection(changed)
        if self.changed:
            self.news.set()

    def take(self) -> set[str]:
        changed, self.changed = self.changed, set()
        self.news.clear()
        return changed


class LiveEvents:
    """Collects the events of a store while pages are open, and notifies the pages.

    Without an open page it has no subscription to the store's events.
    """

    def __init__(self, stream_seconds: float) -> None:
        """A stream ends after `stream_seconds`, and the browser opens a new one."""
        self._stream_seconds = stream_seconds
        self._subscribers: set[Subscriber] = set()
        self._wanted: frozenset[str] = frozenset()
        self._wants_queue = False
        """Whether a page shows one queue."""
        self._changed: set[str] = set()
        self._echoes: dict[str, list[float]] = {}
        """Times of the next echoes of each topic."""
        self._poll = self._poll_at = 0.0
        self._stopped = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    @property
    def count(self) -> int:
        """Number of open pages."""
        return len(self._subscribers)

    def stop(self) -> None:
        """End all streams: the server drains."""
        self._stopped.set()

    def response(self, broker: AsyncBroker, topics: str) -> Response:
        """The stream of a page, or 503 if too many pages are open."""
        named = frozenset(topics.split()[: MOST_TOPICS + 1])
        if not named or len(named) > MOST_TOPICS or not all(t in TOPICS or _QUEUE_TOPIC.fullmatch(t) for t in named):
            raise BadInput(f"topics must have between 1 and {MOST_TOPICS} known topics")
        if self._stopped.is_set() or broker.draining or len(self._subscribers) >= MOST_SUBSCRIBERS:
            return JSONResponse({"error": "too many open pages"}, 503, headers={"retry-after": "10"})
        return LiveStream(self, broker, named)

    async def follow(self, broker: AsyncBroker, topics: frozenset[str], send: Send) -> None:
        """Send the changes of the topics until the stream ends."""
        subscriber = Subscriber(topics)
        self._enter(subscriber, broker)
        end = time.monotonic() + self._stream_seconds
        try:
            await _send(send, f"retry: {RETRY_MILLIS}\n\n")
            while (left := end - time.monotonic()) > 0 and not self._stopped.is_set():
                with suppress(TimeoutError):
                    await asyncio.wait_for(subscriber.news.wait(), min(left, HEARTBEAT))
                changed = subscriber.take()
                await _send(send, f"data: {' '.join(sorted(changed))}\n\n" if changed else ": idle\n\n")
        finally:
            self._leave(subscriber)

    def _enter(self, subscriber: Subscriber, broker: AsyncBroker) -> None:
        self._subscribers.add(subscriber)
        self._count_topics()
        for topic in subscriber.topics:
            self._echoes.setdefault(topic, [time.monotonic() + ECHOES[0]])
        if self._task is None or self._task.done():
            self._task = asyncio.get_running_loop().create_task(self._run(broker))

    def _leave(self, subscriber: Subscriber) -> None:
        self._subscribers.discard(subscriber)
        self._count_topics()
        if not self._subscribers and self._task is not None:
            self._task.cancel()
            self._task = None
            self._echoes.clear()
            self._changed.clear()

    def _count_topics(self) -> None:
        self._wanted = frozenset().union(*(subscriber.topics for subscriber in self._subscribers))
        self._wants_queue = not self._wanted <= TOPICS

    async def _run(self, broker: AsyncBroker) -> None:
        """Notify the pages once per interval, as long as a page is open."""
        unsubscribe = broker.events.subscribe(self._hear, *_QUEUE_EVENTS, e.DeadLetterAdded)
        self._poll = POLL_LOCAL if broker.store.traits.local else POLL_SHARED
        self._poll_at = time.monotonic() + self._poll
        try:
            while True:
                with suppress(TimeoutError):
                    await asyncio.wait_for(self._stopped.wait(), FLUSH_EVERY)
                if self._stopped.is_set() or broker.draining:
                    self._end_all()
                    return
                self._flush(time.monotonic())
        finally:
            unsubscribe()

    def _flush(self, now: float) -> None:
        """Notify the pages of changes, of echoes and, when it is due, of all topics."""
        # Other threads add topics meanwhile: a copy, and each topic of it removed by itself.
        changed = frozenset(self._changed.copy())
        self._changed.difference_update(changed)
        topics = changed | self._due_echoes(now)
        self._echoes |= {topic: [now + delay for delay in ECHOES] for topic in changed}
        if now >= self._poll_at:
            self._poll_at = now + self._poll
            topics |= self._wanted
        if topics:
            for subscriber in self._subscribers:
                subscriber.notify(topics)

    def _due_echoes(self, now: float) -> set[str]:
        """Topics whose next echo is due."""
        due = {topic for topic, times in self._echoes.items() if times[0] <= now}
        for topic in due:
            self._echoes[topic].pop(0)
            if not self._echoes[topic]:
                del self._echoes[topic]
        return due

    def _end_all(self) -> None:
        self._stopped.set()
        for subscriber in self._subscribers:
            subscriber.news.set()

    def changed_all(self) -> None:
        """Note that a form of the dashboard changed something."""
        self.changed(*self._wanted)

    def changed(self, *topics: str) -> None:
        """Note a change that no event of the store reports. Thread-safe."""
        for topic in topics:
            if topic in self._wanted:
                self._changed.add(topic)

    def _hear(self, event: e.Event) -> None:
        """Runs in the thread that caused the event."""
        queue: str = getattr(event, "queue", "")
        self.changed(DEAD if isinstance(event, e.DeadLetterAdded) else QUEUES)
        if self._wants_queue and queue:
            self.changed(queue_topic(queue))


_QUEUE_EVENTS = (
    e.MessagesPushed, e.MessagesClaimed, e.MessagesSettled, e.LeasesExpired, e.MessagesPromoted, e.MessagesPruned,
    e.MaintenanceChanged,
)  # fmt: skip


class LiveStream(Response):
    """Server-sent events. Ends when the client leaves."""

    def __init__(self, live: LiveEvents, broker: AsyncBroker, topics: frozenset[str]) -> None:
        super().__init__()
        self._live, self._broker, self._topics = live, broker, topics

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": _HEADERS})
        follower = asyncio.ensure_future(self._live.follow(self._broker, self._topics, send))
        leaving = asyncio.ensure_future(_until_gone(receive))
        try:
            await asyncio.wait({follower, leaving}, return_when=asyncio.FIRST_COMPLETED)
            gone = leaving.done()
        finally:
            for task in (follower, leaving):
                task.cancel()
            results = await asyncio.gather(follower, leaving, return_exceptions=True)
        if not gone:
            if isinstance(results[0], Exception):
                raise results[0]
            await send({"type": "http.response.body", "body": b""})


async def _send(send: Send, text: str) -> None:
    await send({"type": "http.response.body", "body": text.encode(), "more_body": True})


async def _until_gone(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
