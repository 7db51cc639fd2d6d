"""Plain topics: their listeners, by exact topic or by regular expression."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ackwise.core.regular_expressions import compiled

if TYPE_CHECKING:
    from ackwise.protocols.amps.subscription import TopicListener

REGULAR = frozenset(r"\^$*+?()[]{}|")
"""Characters that make a topic a regular expression. A dot alone does not: topics such as `orders.eu` are common."""


def topic_pattern(topic: str) -> str | None:
    """The regular expression that a topic is, which must match a whole topic. None for an exact topic."""
    if REGULAR.isdisjoint(topic):
        return None
    compiled(topic)  # a refusal quotes the topic as it is
    return f"^(?:{topic})$"


class Topics:
    """Listeners of plain topics: exact ones by topic, and patterns."""

    def __init__(self) -> None:
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

    def publish(self, topic: str, body: bytes) -> None:
        """Send a message to the listeners of its topic. Listeners with the same pattern share one match.

        A cache bounds the memory of compiled expressions.
        """
        matching = list(self._exact.get(topic, ()))
        for listeners in self._patterns.values():
            pattern = next(iter(listeners)).pattern
            if pattern is not None and compiled(pattern).found_in(topic):
                matching += listeners
        for listener in matching:
            listener.deliver(topic, body)
