"""The promises, checked after every step: what the store says about itself against the model."""

from __future__ import annotations

from collections import Counter

from ackwise.core import queries as q
from ackwise.core.rows import GroupStats
from ackwise.store.database_store import DatabaseStore
from tests.properties.model import Model

QUEUE = "q"


def check_everything(store: DatabaseStore, model: Model) -> None:
    assert store.audit() == []
    stats = store.ask(q.QueueStats(queue=QUEUE))
    assert stats.scheduled == len(model.scheduled)
    assert stats.messages == sum(len(lane) - model.starts[key] for key, lane in model.lanes.items())
    assert {g.group for g in stats.groups} == model.groups
    for group in stats.groups:
        check_group(store, model, group)
    check_leases(store, model)
    check_dead(store, model)


def check_group(store: DatabaseStore, model: Model, stats: GroupStats) -> None:
    """Conservation per lane: every message is in exactly one state, and the counts say which."""
    rows = {(r.partition, r.priority): r for r in store.ask(q.ListCursors(queue=QUEUE, group=stats.group))}
    lag = 0
    for lane, view in model.lanes_of(stats.group):
        row, head = rows[lane], len(model.lanes[lane])
        held = view.count("leased") + view.count("waiting")
        expected = {
            "start": model.starts[lane],
            "head": head,
            "epoch": view.epoch,
            "first": view.first,
            "next": view.next,
            "held": held,
            **{state: view.count(state) for state in ("acked", "dead", "skipped", "expired")},
        }
        assert {name: getattr(row, name) for name in expected} == expected, lane
        assert head - view.first == sum(view.count(s) for s in ("acked", "dead", "skipped", "expired")) + held + (
            head - view.next
        )
        lag += held + head - view.next
    assert stats.lag == lag
    check_states(store, model, stats.group)


def check_states(store: DatabaseStore, model: Model, group: str) -> None:
    """What browsing shows of each message."""
    for shown in store.ask(q.Browse(queue=QUEUE, group=group, limit=1000)):
        lane = (shown.partition, shown.priority)
        view, seq = model.views[lane, group], shown.message.seq
        cell = view.cells.get(seq)
        assert shown.message.payload == model.lanes[lane][seq].body
        if seq < view.first:
            assert shown.state == "skipped"
        elif cell is None:
            assert shown.state == "ready"
        elif cell.state in ("leased", "waiting", "dead"):
            assert shown.state == cell.state, (lane, seq)
        else:
            assert shown.state == ("dropped" if cell.state == "expired" else "acked"), (lane, seq, cell)


def check_leases(store: DatabaseStore, model: Model) -> None:
    """Who holds what: no message under two leases, and none under a lease that ended."""
    rows = {row.lease_id: row for row in store.ask(q.ListLeases())}
    living = {lease.lease_id: lease for lease in model.leases.values() if lease.ended is None}
    assert rows.keys() == living.keys()
    for lease_id, lease in living.items():
        assert (rows[lease_id].held, rows[lease_id].owner) == (len(model.held_by(lease)), lease.owner)
        assert rows[lease_id].deadline == lease.deadline
    check_held(store, model)


def check_held(store: DatabaseStore, model: Model) -> None:
    lanes = {row.lane: (row.partition, row.priority) for row in store.ask(q.ListLanes(queue=QUEUE))}
    for lease in model.leases.values():
        rows = store.ask(q.ListHeld(lease_id=lease.lease_id))
        found = {(lanes[row.lane], seq, row.failures, row.attempt) for row in rows for seq in range(row.lo, row.hi)}
        over = lease.ended or lease.deadline <= store.clock.now()
        held = [] if over else model.held_by(lease)
        assert found == {(lane, seq, cell.failures, cell.deliveries) for lane, seq, cell in held}


def check_dead(store: DatabaseStore, model: Model) -> None:
    page = store.ask(q.ListDead(queue=QUEUE, limit=1000))
    bodies = Counter((letter.payload, letter.group) for letter in page.letters)
    assert bodies == Counter((model.lanes[lane][seq].body, group) for lane, seq, group in model.dead)
