"""Bounded label values: a metric names the busiest queues, and adds up the others as `other`."""

from __future__ import annotations

import heapq
from collections.abc import Mapping

OTHER = "other"
MOST_QUEUES = 200
MOST_GROUPS = 1000
"""Maximum number of pairs of a queue and a group that have a label."""
MOST_MET = 10_000
"""Maximum number of queues whose activity is counted until the next choice."""


class QueueLabels:
    """Labels of queues: decides which queues have their own label.

    The first queues get a label at once. `choose` gives the labels to the queues with the most moved and stored
    messages. A queue without a label counts as `other`. A queue with the name `other` shares this label.
    """

    def __init__(self, most: int = MOST_QUEUES) -> None:
        self._most = most
        self._shown: dict[str, str] = {}
        self._activity: dict[str, int] = {}
        self.cut = False
        """Whether some queue has no label of its own."""

    def of(self, queue: str, moved: int = 0) -> str:
        """The label of a queue. `moved` messages count as activity of the queue."""
        if queue not in self._activity and len(self._activity) >= MOST_MET:
            self.cut = True
            return self._shown.get(queue, OTHER)
        self._activity[queue] = self._activity.get(queue, 0) + moved
        label = self._shown.get(queue)
        if label is not None:
            return label
        if len(self._shown) < self._most:
            self._shown[queue] = queue
            return queue
        self.cut = True
        return OTHER

    def copied(self) -> QueueLabels:
        twin = QueueLabels(self._most)
        twin._shown, twin._activity, twin.cut = self._shown.copy(), {}, self.cut
        return twin

    def known(self, queue: str) -> str:
        """The label that a queue already has, or `other`. Gives no new label: the queue may not exist."""
        return self._shown.get(queue, OTHER)

    def score(self, queue: str) -> int:
        """Messages moved since the last choice. The score of a queue with a label is at least 1."""
        return self._activity.get(queue, 0) + (queue in self._shown)

    @property
    def shown(self) -> frozenset[str]:
        return frozenset(self._shown)

    def choose(self, depths: Mapping[str, int], total: int) -> frozenset[str]:
        """Give the labels to the queues with the highest scores. Returns the queues that lost their label.

        The score is the number of messages moved since the last choice, plus the depth. `total` is the number of all
        queues.
        """
        scores = {queue: self._activity.get(queue, 0) + depths.get(queue, 0) for queue in {*self._activity, *depths}}
        before = self.shown
        # If two queues have the same score, the queue that already has a label keeps it.
        best = heapq.nlargest(self._most, scores, key=lambda queue: (scores[queue], queue in before, queue))
        self._shown = {queue: queue for queue in best}
        # The activity starts again at 0, so that deleted queues lose their labels.
        self._activity = {}
        self.cut = max(total, len(scores)) > len(self._shown)
        return before - self.shown


class GroupLabels:
    """Label of a group in its queue. Groups above the bound count as `other`."""

    def __init__(self, most: int = MOST_GROUPS) -> None:
        self._most = most
        self._shown: set[tuple[str, str]] = set()
        self.cut = False

    def of(self, queue: str, group: str) -> str:
        """The label of a group of a queue that has the label `queue`."""
        if queue == OTHER:
            return OTHER
        if (queue, group) not in self._shown:
            if len(self._shown) >= self._most:
                self.cut = True
                return OTHER
            self._shown.add((queue, group))
        return group

    def copied(self) -> GroupLabels:
        twin = GroupLabels(self._most)
        twin._shown, twin.cut = self._shown.copy(), self.cut
        return twin

    def forget(self, queues: frozenset[str]) -> None:
        """Free the labels of the groups of these queues."""
        if queues:
            self._shown = {pair for pair in self._shown if pair[0] not in queues}
            self.cut = False
