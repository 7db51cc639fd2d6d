"""What the store knows after a campaign: messages of lost claims, and failures of groups that read no answer."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import NamedTuple, cast

from ackwise.core import queries as q
from ackwise.core.spans import Span
from ackwise.engine import catalog
from ackwise.engine.ports import Row, Session
from ackwise.engine.turn import lease_from
from ackwise.store.database_store import DatabaseStore
from ackwise.store.port import Store

MOST_SPANS = 1_000_000

Place = tuple[int, int]
"""Lane and seq of a message."""


class Stolen(NamedTuple):
    """Messages that were claimed for clients that hung up."""

    messages: int
    deliveries: int
    failures: int
    """Failures that these messages were charged."""


def places_of_claims(store: Store, queue: str, group: str, keys: Iterable[str]) -> Counter[Place]:
    """How many of these claims held each message. A claim that the store never granted has no lease."""

    def read(session: Session) -> Counter[Place]:
        places: Counter[Place] = Counter()
        number = catalog.group(session, catalog.queue(session, queue), group).id
        for key in keys:
            row = session.row("lease_by_key", {"grp": number, "key": key})
            if row is not None:
                for lane, lo, hi in lease_from(row).granted:
                    places.update((lane, seq) for seq in range(lo, hi))
        return places

    return cast(DatabaseStore, store)._run_read(read)


def stolen_by(store: Store, queue: str, prefix: str) -> Stolen:
    """Deliveries and failures of all groups with this prefix. These groups settle nothing, so every span is left."""
    groups = [row.group for row in store.ask(q.ListGroups(queue=queue)) if row.group.startswith(prefix)]

    spans = cast(DatabaseStore, store)._run_read(lambda session: _spans(session, queue, groups))
    dead = sum(len(store.ask(q.ListDead(queue=queue, group=name)).letters) for name in groups)
    return Stolen(
        messages=sum(map(len, spans)),
        deliveries=sum(span.delivs * len(span) for span in spans),
        failures=sum(span.fails * len(span) for span in spans) + dead,
    )


def _spans(session: Session, queue: str, groups: list[str]) -> list[Span]:
    """Messages of these groups that were delivered and not settled."""
    owner = catalog.queue(session, queue)
    lanes = [row[0] for row in session.rows("lanes_of_queue", {"queue": owner.id})]
    rows: list[Row] = []
    for name in groups:
        number = catalog.group(session, owner, name).id
        for lane in lanes:
            where = {"lane": lane, "grp": number, "after": -1, "limit": MOST_SPANS}
            rows += session.rows("spans_in_order", where)
    return [Span(*row) for row in rows]
