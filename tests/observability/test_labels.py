"""Bounded labels: which queues have their own, and how counters stay monotonic."""

from __future__ import annotations

from ackwise.clock import ManualClock
from ackwise.engine.turn import Tally
from ackwise.engine.turn_events import TurnReport
from ackwise.observability.event_buffer import Batch
from ackwise.observability.event_counts import EventCounts
from ackwise.observability.labels import OTHER, GroupLabels, QueueLabels


def test_first_queues_get_labels_and_later_ones_are_other() -> None:
    labels = QueueLabels(most=2)
    assert [labels.of(queue, 1) for queue in ("a", "b", "c", "a")] == ["a", "b", OTHER, "a"]
    assert labels.cut


def test_labels_go_to_the_busiest_and_deepest_queues() -> None:
    labels = QueueLabels(most=2)
    for queue, moved in (("a", 1), ("b", 5), ("c", 9)):
        labels.of(queue, moved)
    assert labels.choose({"a": 0, "b": 0, "c": 0, "deep": 7}, 4) == {"a", "b"}
    assert labels.shown == {"c", "deep"}
    assert labels.choose({"a": 1, "c": 1, "deep": 1}, 3) == frozenset(), "equal queues keep their labels"


def test_deleted_queue_frees_its_label() -> None:
    labels = QueueLabels(most=2)
    labels.of("a", 1)
    labels.choose({"a": 1}, 1)
    labels.choose({}, 0)
    assert labels.shown == frozenset()
    assert not labels.cut


def test_unknown_name_of_a_request_gets_no_label() -> None:
    labels = QueueLabels()
    assert labels.known("made-up") == OTHER
    assert labels.shown == frozenset()


def test_groups_above_the_bound_are_other() -> None:
    labels = GroupLabels(most=2)
    assert [labels.of("q", group) for group in ("a", "b", "c")] == ["a", "b", OTHER]
    assert labels.of(OTHER, "a") == OTHER
    labels.forget(frozenset({"q"}))
    assert labels.of("q", "c") == "c"


def pushes(**counts: int) -> Batch:
    """A turn that pushed messages, by queue."""
    tally: Tally = {(queue, "", "pushed", 0): (count, {}) for queue, count in counts.items()}
    return Batch([(0.0, TurnReport(tally, {}, {}, {}, [], 1, 0.001))], 0)


def test_counters_of_a_lost_label_end_and_other_never_falls() -> None:
    counts = EventCounts(ManualClock().now)
    counts.queues = QueueLabels(most=1)
    counts.add(pushes(a=3, b=9))
    assert counts.pushed == {"a": 3, OTHER: 9}
    counts.forget(counts.queues.choose({"a": 0, "b": 9}, 2))
    counts.add(pushes(a=1, b=2))
    assert counts.pushed == {OTHER: 10, "b": 2}
