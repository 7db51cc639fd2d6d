"""How a delivery ends: ACK, NACK, timeout, release. What a failure means is the core's to say."""

from __future__ import annotations

import msgspec

from ackwise.core import ids
from ackwise.core.graph import faults
from ackwise.core.graph import syntax as s
from ackwise.core.graph.commands import Done
from ackwise.core.graph.faults import NOWHERE, At, GraphError
from ackwise.core.graph.watching import reason_shown
from ackwise.core.lifecycle import State
from ackwise.core.settlement import Attempt, Fate, on_expiry, on_reject, on_release, on_retry
from ackwise.core.spans import Lease
from ackwise.store.graph import events, letters, pools, redriving
from ackwise.store.graph.events import WatchRow
from ackwise.store.graph.mutating import Mutator
from ackwise.store.graph.pools import Delivery
from ackwise.store.graph.writing import Graph


class Held(msgspec.Struct):
    """A delivery that is not settled yet."""

    lease: Lease
    stands: Delivery
    watch: WatchRow

    @property
    def delivery_id(self) -> str:
        return ids.delivery_id(self.lease.no, self.lease.tag, 0, self.stands.entity)

    @property
    def attempt(self) -> Attempt:
        return Attempt(self.stands.fails, self.stands.delivs, probation=False, alone=True, bulk=False)


def find(graph: Graph, text: str, at: At = NOWHERE) -> Held:
    """The delivery an id names; refused unless it is pending now."""
    key = ids.parse_delivery_id(text)
    lease = graph.turn.lease(key.lease) if key is not None and key.lane == 0 else None
    if key is None or lease is None or lease.queue != 0 or lease.tag != key.tag or not lease.live(graph.turn.now):
        raise faults.invalid_delivery(text, at)
    stands = pools.delivery(graph, key.seq)
    if stands is None or stands.lease != lease.no:
        raise faults.invalid_delivery(text, at)
    return held_of(graph, stands, lease)


def held_of(graph: Graph, stands: Delivery, lease: Lease) -> Held:
    row = events.watch(graph, stands.watch)
    assert row is not None
    return Held(lease, stands, row)


def settle(graph: Graph, statement: s.Settle) -> Done:
    text = statement.delivery.value if isinstance(statement.delivery, s.Literal) else None
    if not isinstance(text, str):
        raise faults.wrong_type("a delivery id is a string", statement.at)
    held = find(graph, text, statement.at)
    done = Done(delivery_id=text, attempts=held.stands.delivs, failures=held.stands.fails)
    done.limit = max(1, held.watch.spec.max_redeliveries)
    if statement.verb == "ACK":
        _ack(graph, held, done, statement.at)
    elif statement.no_retry:
        _apply(graph, held, on_reject(held.watch.spec.policy, held.attempt), done, statement.at)
    else:
        now, roll = graph.turn.now, graph.turn.roll()
        _apply(graph, held, on_retry(held.watch.spec.policy, held.attempt, now, None, roll), done, statement.at)
    return done


def _ack(graph: Graph, held: Held, done: Done, at: At) -> None:
    entity = graph.by_no(held.stands.entity)
    if entity is not None:
        Mutator(graph, done).kill(entity, at)
    done.outcome = "acked"
    graph.session.run("mew_items_gone", {"entity": held.stands.entity})
    graph.session.run("mew_delivery_delete", {"entity": held.stands.entity})
    _let_go(graph, held, "settled")


def _apply(graph: Graph, held: Held, fate: Fate, done: Done, at: At) -> None:
    """Back to the pool, or dead."""
    if graph.by_no(held.stands.entity) is None:
        graph.session.run("mew_delivery_delete", {"entity": held.stands.entity})
        done.outcome = "deleted"
    elif fate.state is State.WAITING:
        _give_back(graph, held, fate)
        done.outcome = "requeued"
    else:
        assert fate.reason is not None
        done.reason = reason_shown(fate.reason)
        letters.bury(graph, held.watch, held.stands, held.delivery_id, done, at)
    _let_go(graph, held, "settled")


def _give_back(graph: Graph, held: Held, fate: Fate) -> None:
    stands = held.stands._replace(lease=None, fails=fate.failures, due_at=fate.due_at)
    if letters.is_held(graph, stands.entity):
        letters.hold_again(graph, stands)
        return
    graph.session.run("mew_delivery_put", stands._asdict())
    graph.session.run("mew_items_free", {"entity": stands.entity})
    for (pool,) in graph.session.rows("mew_pools_of", {"entity": stands.entity}):
        redriving.ring_pool(graph, pool)


def _let_go(graph: Graph, held: Held, kind: str) -> None:
    graph.turn.end_lease(held.lease, kind)
    graph.session.run("mew_watch_settled", {"no": held.watch.no})
    if held.watch.pool is not None and held.watch.held >= held.watch.spec.buffer:
        events.ring(graph, held.watch)  # it has room again
    graph.changed = True


def expire(graph: Graph, lease: Lease) -> None:
    """Nobody settled it in time: a failure, and a notice to the watch it was handed to."""
    stands = pools.delivery(graph, lease.granted[0][1])
    if stands is None or stands.lease != lease.no:
        graph.turn.end_lease(lease, "void")
        return
    held = held_of(graph, stands, lease)
    done = Done()
    _apply(
        graph, held, on_expiry(held.watch.spec.policy, held.attempt, graph.turn.now, graph.turn.roll()), done, NOWHERE
    )
    row = events.watch(graph, held.watch.no)
    if row is not None:
        events.notice(graph, row, faults.ack_timeout(held.delivery_id, held.watch.spec.ack_timeout_text))
        if isinstance(done.refused, GraphError):
            events.notice(graph, row, done.refused)


def release_one(graph: Graph, text: str) -> None:
    """A delivery that reached nobody; one that is over is left alone."""
    try:
        held = find(graph, text)
    except GraphError:
        return
    _apply(graph, held, on_release(held.watch.spec.policy, held.attempt, graph.turn.now), Done(), NOWHERE)


def release(graph: Graph, row: WatchRow, *, lost: bool = False) -> None:
    """What a watch holds goes back: unspent, or with a failure when its connection was lost."""
    for found in graph.session.rows("mew_deliveries_of_watch", {"watch": row.no}):
        stands = Delivery(*found)
        lease = graph.turn.lease(stands.lease or 0)
        if lease is None:
            continue
        held = Held(lease, stands, row)
        if lost:
            fate = on_expiry(row.spec.policy, held.attempt, graph.turn.now, graph.turn.roll())
        else:
            fate = on_release(row.spec.policy, held.attempt, graph.turn.now)
        _apply(graph, held, fate, Done(), NOWHERE)
