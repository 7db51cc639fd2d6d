"""Purge of a queue beside other brokers: it waits for none of their turns, and takes nothing twice."""

from __future__ import annotations

from ackwise.core.answers import PurgedQueue, Settled
from ackwise.core.commands import ByRange, Claim, Extend, PurgeQueue, Settle, Settlement
from ackwise.core.queries import ListGroups, PreviewPurge
from ackwise.core.settlement import Outcome, Verdict
from ackwise.core.validation import MICROS
from ackwise.store.postgres import PostgresStore
from tests.postgres.conftest import Opener
from tests.postgres.support import claim, push, text, together


def purge(store: PostgresStore, command: PurgeQueue, shard: int = 0) -> PurgedQueue:
    (answer,) = store.transact([command], shard)
    assert isinstance(answer, PurgedQueue), answer
    return answer


def test_purge_leaves_a_partition_that_another_turn_holds(opened: Opener) -> None:
    first, second = opened(), opened()
    push(first, text("x"))
    claimed = claim(first, Claim(queue="q"))
    place = ByRange(claimed.lease_id, claimed.grants[0].lane, 0, 1)
    settling = first.prepare([Settle(entries=[Settlement(selector=place, outcome=Outcome.ACK)])])
    answer = purge(second, PurgeQueue(queue="q"))
    assert answer.more is not None
    assert (answer.messages, answer.more.lane) == (0, claimed.grants[0].lane)
    settling.commit()
    assert purge(second, PurgeQueue(queue="q", behind=answer.more)) == PurgedQueue(1, 0, 0)


def test_purge_leaves_a_lease_that_another_turn_holds(opened: Opener) -> None:
    first, second = opened(), opened()
    push(first, text("x"))
    claimed = claim(first, Claim(queue="q"))
    extending = first.prepare([Extend(lease_id=claimed.lease_id, lease=60 * MICROS)])
    answer = purge(second, PurgeQueue(queue="q"))
    assert answer.more is not None
    assert answer.skipped == 0
    extending.commit()
    assert purge(second, PurgeQueue(queue="q", behind=answer.more)) == PurgedQueue(1, 0, 1)


def purge_all(store: PostgresStore, shard: int) -> int:
    """Purge the queue in as many turns as it takes. Returns how many messages were skipped."""
    answer = purge(store, PurgeQueue(queue="q"), shard)
    while answer.more is not None:
        answer = purge(store, PurgeQueue(queue="q", behind=answer.more), shard)
    return answer.skipped


def ack_batch(store: PostgresStore, shard: int) -> int:
    """Claim a few messages and ack them. Returns how many of the acks counted."""
    taken = claim(store, Claim(queue="q", most=5), shard)
    ranges = [ByRange(taken.lease_id, grant.lane, grant.lo, grant.hi) for grant in taken.grants]
    entries = [Settlement(selector=place, outcome=Outcome.ACK) for place in ranges]
    settled: list[Settled] = store.transact([Settle(entries=entries)], shard)[0] if entries else []
    return sum(answer.count for answer in settled if answer.verdict is Verdict.ACKED)


def test_purge_beside_consumers_counts_each_message_once(opened: Opener) -> None:
    stores = [opened("shards=4"), opened("shards=4")]
    count = 600
    push(stores[0], *(text(str(number), partition=str(number % 30)) for number in range(count)))
    first = ack_batch(stores[0], 0)

    def work(number: int) -> int:
        store, shard = stores[number % 2], number // 2
        return purge_all(store, shard) if number == 0 else sum(ack_batch(store, shard) for _ in range(20))

    skipped, *acked = together(6, work)
    (group,) = stores[0].ask(ListGroups(queue="q"))
    assert (group.acked, group.skipped, group.lag) == (first + sum(acked), skipped, 0)
    assert group.acked + group.skipped == count
    assert stores[0].ask(PreviewPurge(queue="q")).messages == 0
