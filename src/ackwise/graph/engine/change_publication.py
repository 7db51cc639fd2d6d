"""Publishes the changes of a command: events for watches, items for pools, the tick."""

from __future__ import annotations

from contextlib import nullcontext

from ackwise.graph.commands import Done
from ackwise.graph.engine import consumer_pools, events, watches
from ackwise.graph.engine.change_tracker import Difference, Tracker
from ackwise.graph.engine.entities import Graph
from ackwise.graph.engine.mutations import Mutator
from ackwise.graph.engine.watch_index import StandingQuery

_UNMETERED = nullcontext()


def finish(graph: Graph) -> None:
    """End a command that changed the graph: check cardinality, inform watches and pools, store the tick."""
    if not graph.changed:
        return
    Mutator(graph, Done()).check_cardinality()
    _publish(graph, [difference for tracker in graph.trackers for difference in tracker.differences()])
    graph.session.run("mew_tick", {"tick": graph.tick})


def publish_immediate(graph: Graph, differences: list[Difference]) -> None:
    _publish(graph, [difference for difference in differences if not difference.watch.pool])


def _publish(graph: Graph, differences: list[Difference]) -> None:
    """Append events to watches and update pools, until nothing changes any more.

    A full buffer or an exceeded budget cancels a watch. That changes the node of the watch, which other watches may
    match, so each round tracks the changes that it makes itself.
    """
    lost = _lost_watches(graph)
    while differences or lost:
        graph.trackers = [Tracker(graph, graph.watches.committed), Tracker(graph, graph.watches.immediate)]
        for watch in lost:
            watches.lose(graph, watch)
        for difference in differences:
            if difference.watch.pool:
                consumer_pools.reconcile(graph, difference)
            else:
                _append_events(graph, difference)
        differences = [difference for tracker in graph.trackers for difference in tracker.differences()]
        lost = _lost_watches(graph)


def _lost_watches(graph: Graph) -> list[StandingQuery]:
    return [watch for tracker in graph.trackers for watch in tracker.lost.values()]


def _append_events(graph: Graph, difference: Difference) -> None:
    """Append the events of a watch. Cancels the watch if its buffer is full and `on_full` is error."""
    watch = difference.watch
    with _UNMETERED if watch.simple or graph.background else graph.costs.metered(graph, watch, 0):
        has_room = events.append_changes(graph, watch.no, difference.events)
    if not has_room:
        row = events.watch_of(graph, watch.no)
        if row is not None:
            watches.overflow(graph, row)
