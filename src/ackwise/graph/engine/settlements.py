"""Ends deliveries: ACK, NACK, timeout, release. The core decides what a failure means."""

from __future__ import annotations

import msgspec

from ackwise.core import ids
from ackwise.core.ids import LeaseNo
from ackwise.core.lifecycle import State
from ackwise.core.settlement import Attempt, Fate, on_expiry, on_reject, on_release, on_retry
from ackwise.core.spans import Lease
from ackwise.graph import ast as s
from ackwise.graph import errors
from ackwise.graph.commands import Done
from ackwise.graph.engine import consumer_pools, dead_letters, entity_removal, events
from ackwise.graph.engine.consumer_pools import ItemDelivery
from ackwise.graph.engine.dead_letters import QUEUE
from ackwise.graph.engine.entities import Graph
from ackwise.graph.engine.events import WatchRow
from ackwise.graph.engine.mutations import Mutator
from ackwise.graph.errors import NOWHERE, At, GraphError
from ackwise.graph.watch_options import reason_shown


class HeldDelivery(msgspec.Struct):
    """A delivery that is not settled yet."""

    lease: Lease
    delivery: ItemDelivery
    watch: WatchRow

    @property
    def delivery_id(self) -> str:
        return ids.delivery_id(self.lease.no, self.lease.tag, 0, self.delivery.entity)

    @property
    def attempt(self) -> Attempt:
        return Attempt(self.delivery.fails, self.delivery.delivs, probation=False, alone=True, bulk=False)


def find(graph: Graph, delivery_id: str, at: At = NOWHERE) -> HeldDelivery:
    """The pending delivery with this id. Raises E8004 if there is none."""
    key = ids.parse_delivery_id(delivery_id)
    lease = graph.turn.lease(key.lease) if key is not None and key.lane == 0 else None
    if key is None or lease is None or lease.queue != 0 or lease.tag != key.tag or not lease.live(graph.turn.now):
        raise errors.invalid_delivery(delivery_id, at)
    delivery = consumer_pools.delivery_of(graph, key.seq)
    if delivery is None or delivery.lease != lease.no:
        raise errors.invalid_delivery(delivery_id, at)
    return held_of(graph, delivery, lease)


def held_of(graph: Graph, delivery: ItemDelivery, lease: Lease) -> HeldDelivery:
    row = events.watch_of(graph, delivery.watch)
    assert row is not None
    return HeldDelivery(lease, delivery, row)


def settle(graph: Graph, statement: s.SettleStatement) -> Done:
    text = statement.delivery.value if isinstance(statement.delivery, s.Literal) else None
    if not isinstance(text, str):
        raise errors.wrong_type("a delivery id is a string", statement.at)
    held = find(graph, text, statement.at)
    done = Done(delivery_id=text, attempts=held.delivery.delivs, failures=held.delivery.fails)
    done.limit = max(1, held.watch.spec.max_redeliveries)
    if statement.verb == "ACK":
        _ack(graph, held, done, statement.at)
        _count(graph, held, "acked")
        return done
    if statement.no_retry:
        _apply(graph, held, on_reject(held.watch.spec.policy, held.attempt), done, statement.at)
    else:
        now, roll = graph.turn.now, graph.turn.roll()
        _apply(graph, held, on_retry(held.watch.spec.policy, held.attempt, now, None, roll), done, statement.at)
    _count(graph, held, "dead" if done.reason else "retried")
    return done


def _count(graph: Graph, held: HeldDelivery, outcome: str) -> None:
    """Count a delivery for the ledger and the events. Deliveries of the graph have no queue."""
    spec, turn = held.watch.spec, graph.turn
    turn.count(QUEUE, spec.group or spec.name, outcome, 1, turn.now - held.lease.made_at)


def _ack(graph: Graph, held: HeldDelivery, done: Done, at: At) -> None:
    entity = graph.by_no(held.delivery.entity)
    if entity is not None:
        Mutator(graph, done).kill(entity, at)
    done.outcome = "acked"
    graph.session.run("mew_delivery_delete", {"entity": held.delivery.entity})
    _end_delivery(graph, held, "settled")


def _apply(graph: Graph, held: HeldDelivery, fate: Fate, done: Done, at: At) -> None:
    """Return the item to its pool or make it a dead letter, as the core decided."""
    if graph.by_no(held.delivery.entity) is None:
        graph.session.run("mew_delivery_delete", {"entity": held.delivery.entity})
        done.outcome = "deleted"
    elif fate.state is State.WAITING:
        _return(graph, held, fate)
        done.outcome = "requeued"
    else:
        assert fate.reason is not None
        done.reason = reason_shown(fate.reason)
        dead_letters.bury(graph, held.watch, held.delivery, done, delivery_id=held.delivery_id, at=at)
    _end_delivery(graph, held, "settled")


def _return(graph: Graph, held: HeldDelivery, fate: Fate) -> None:
    """Make the item free again in all its pools."""
    delivery = held.delivery._replace(lease=None, fails=fate.failures, due_at=fate.due_at)
    if dead_letters.has_dead_letter_edge(graph, delivery.entity):
        dead_letters.hold_again(graph, delivery)
        return
    graph.session.run("mew_delivery_put", delivery._asdict())
    graph.session.run("mew_items_free", {"entity": delivery.entity})
    for (pool,) in graph.session.rows("mew_pools_of", {"entity": delivery.entity}):
        entity_removal.wake_pool(graph, pool)


def _end_delivery(graph: Graph, held: HeldDelivery, kind: str) -> None:
    graph.turn.end_lease(held.lease, kind)
    graph.session.run("mew_watch_settled", {"no": held.watch.no})
    if held.watch.pool is not None and held.watch.held >= held.watch.spec.buffer:
        events.wake(graph, held.watch)  # its buffer has room again
    graph.changed = True


def expire(graph: Graph, lease: Lease) -> None:
    """End a delivery after its deadline: count a failure, and send a notice to its watch."""
    delivery = consumer_pools.delivery_of(graph, lease.granted[0][1])
    if delivery is None or delivery.lease != lease.no:
        graph.turn.end_lease(lease, "void")
        return
    held = held_of(graph, delivery, lease)
    done = Done()
    fate = on_expiry(held.watch.spec.policy, held.attempt, graph.turn.now, graph.turn.roll())
    _apply(graph, held, fate, done, NOWHERE)
    _count_expiry(graph, held, done)
    row = events.watch_of(graph, held.watch.no)
    if row is not None:
        events.notice(graph, row, errors.ack_timeout(held.delivery_id, held.watch.spec.ack_timeout_text))
        if isinstance(done.refused, GraphError):
            events.notice(graph, row, done.refused)


def _count_expiry(graph: Graph, held: HeldDelivery, done: Done) -> None:
    _count(graph, held, "lease_expired")
    graph.turn.count_expired_lease(QUEUE, held.watch.spec.group or held.watch.spec.name)
    if done.reason:
        _count(graph, held, "dead")


def release_delivery(graph: Graph, delivery_id: str) -> None:
    """Release a delivery that did not reach its client. Ignores one that is settled or expired."""
    try:
        held = find(graph, delivery_id)
    except GraphError:
        return
    _apply(graph, held, on_release(held.watch.spec.policy, held.attempt, graph.turn.now), Done(), NOWHERE)
    _count(graph, held, "released")


def restart_clock(graph: Graph, delivery_id: str) -> None:
    """Start the ack timeout of a delivery again. Ignores one that is settled or expired."""
    try:
        held = find(graph, delivery_id)
    except GraphError:
        return
    deadline = graph.turn.now + held.watch.spec.ack_timeout * 1000
    if deadline > held.lease.deadline:
        held.lease.deadline = deadline
        graph.turn.session.run("lease_deadline", {"no": held.lease.no, "deadline": deadline})
        graph.session.run("mew_delivery_put", held.delivery._replace(due_at=deadline)._asdict())


def release(graph: Graph, row: WatchRow, *, lost: bool = False) -> None:
    """Release all deliveries of a watch. After a lost connection each counts as a failure."""
    for values in graph.session.rows("mew_deliveries_of_watch", {"watch": row.no}):
        delivery = ItemDelivery(*values)
        lease = graph.turn.lease(LeaseNo(delivery.lease or 0))
        if lease is None:
            continue
        held, done = HeldDelivery(lease, delivery, row), Done()
        if lost:
            fate = on_expiry(row.spec.policy, held.attempt, graph.turn.now, graph.turn.roll())
        else:
            fate = on_release(row.spec.policy, held.attempt, graph.turn.now)
        _apply(graph, held, fate, done, NOWHERE)
        if lost:
            _count_expiry(graph, held, done)
        else:
            _count(graph, held, "released")
