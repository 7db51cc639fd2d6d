"""Plain topics: their listeners, by exact topic or by regular expression."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import TYPE_CHECKING

from ackwise.core.filters import MOST_VISITS, ContentFilter, Document, Truth
from ackwise.core.regular_expressions import compiled

if TYPE_CHECKING:
    from ackwise.protocols.amps.subscription import TopicListener

REGULAR = frozenset(r"\^$*+?()[]{}|")
"""Characters that make a topic a regular expression. A dot alone does not: topics such as `orders.eu` are common."""

LARGEST_ON_LOOP = 64 << 10
"""Bytes of a payload that the event loop decodes for filters. A helper thread decodes larger ones."""
VISITS_ON_LOOP = 10_000
"""Visits for which the event loop evaluates filters of one message, about 1 ms. A helper thread makes the others."""

InThread = Callable[[Callable[[ContentFilter, Document], Truth], ContentFilter, Document], Awaitable[Truth]]
"""Runs a judgement in a helper thread."""


def topic_pattern(topic: str) -> str | None:
    """The regular expression that a topic is, which must match a whole topic. None for an exact topic."""
    if REGULAR.isdisjoint(topic):
        return None
    compiled(topic)  # a refusal quotes the topic as it is
    return f"^(?:{topic})$"


class Topics:
    """Listeners of plain topics: exact ones by topic, and patterns."""

    def __init__(self, in_thread: InThread) -> None:
        self._in_thread = in_thread
        self._exact: dict[str, dict[TopicListener, None]] = {}
        self._patterns: dict[str, dict[TopicListener, None]] = {}

    def join(self, listener: TopicListener) -> None:
        self._listeners(listener).setdefault(listener.topic, {})[listener] = None

    def leave(self, listener: TopicListener) -> None:
        by_topic = self._listeners(listener)
        listeners = by_topic.get(listener.topic, {})
        listeners.pop(listener, None)
        if not listeners:
            by_topic.pop(listener.topic, None)

    def _listeners(self, listener: TopicListener) -> dict[str, dict[TopicListener, None]]:
        return self._exact if listener.pattern is None else self._patterns

    async def publish(self, topic: str, body: bytes, context: Mapping[str, str]) -> None:
        """Send a message to the listeners of its topic, after their filters have judged it.

        A publisher waits for the filters, so its messages keep their order.
        """
        matching = self._matching(topic)
        filters = {known.text: known for listener in matching if (known := listener.content_filter) is not None}
        verdicts = await self._judge(filters.values(), body) if filters else {}
        for listener in matching:
            known = listener.content_filter
            listener.deliver(topic, body, True if known is None else verdicts[known.text], context)

    async def _judge(self, filters: Iterable[ContentFilter], body: bytes) -> dict[str, Truth]:
        """What each filter says about a message. The message is decoded once."""
        document = Document(body)
        left = VISITS_ON_LOOP if len(body) <= LARGEST_ON_LOOP else 0
        verdicts: dict[str, Truth] = {}
        for known in filters:
            verdict: Truth = None
            if left > 0:
                verdict = known.takes(document, min(left, MOST_VISITS))
                left -= 1 + document.visits
            if verdict is None:
                verdict = await self._in_thread(ContentFilter.takes, known, document)
            verdicts[known.text] = verdict
        return verdicts

    def _matching(self, topic: str) -> list[TopicListener]:
        """Listeners of a topic. Listeners with the same pattern share one match.

        A cache bounds the memory of compiled expressions.
        """
        matching = list(self._exact.get(topic, ()))
        for listeners in self._patterns.values():
            pattern = next(iter(listeners)).pattern
            if pattern is not None and compiled(pattern).found_in(topic):
                matching += listeners
        return matching
