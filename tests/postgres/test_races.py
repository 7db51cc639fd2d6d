"""Several brokers on one database: no claim gets a message that another lease holds."""

from __future__ import annotations

from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from ackwise.core.answers import Claimed, Settled
from ackwise.core.commands import (
    AdvanceGroup,
    ByKey,
    ByLease,
    ByRange,
    Claim,
    ConfigureGroup,
    ConfigureQueue,
    DeleteGroup,
    DeleteQueue,
    Push,
    Redrive,
    Settle,
    Settlement,
)
from ackwise.core.errors import AckwiseError
from ackwise.core.messages import PlainBatch
from ackwise.core.queries import ListCursors, ListDead, ListGroups, ListLanes
from ackwise.core.settlement import Outcome, Verdict
from ackwise.store.postgres import PostgresStore, locks
from tests.patience import PATIENCE
from tests.postgres.conftest import Opener, Raw
from tests.postgres.support import claim, places, push, settle_lease, text, together, until, waiting


@pytest.mark.parametrize("exclusivity", ["none", "partition", "queue"])
@pytest.mark.parametrize("lanes", [1, 1000])
def test_sixteen_claimers_get_each_message_once(opened: Opener, lanes: int, exclusivity: str) -> None:
    stores = [opened("shards=8"), opened("shards=8")]
    (done,) = stores[0].transact([ConfigureQueue(queue="q", policy={"exclusivity": exclusivity})])
    assert not isinstance(done, AckwiseError)
    push(stores[0], *(text(str(i), partition=str(i % lanes)) for i in range(1000)))
    got: Counter[tuple[int, int]] = Counter()

    def work(number: int) -> None:
        store, shard = stores[number % 2], number // 2
        while got.total() < 1000:
            taken = claim(store, Claim(queue="q", most=60), shard)
            got.update(places(taken))
            if taken.grants:
                assert settle_lease(store, taken, shard=shard).verdict is Verdict.ACKED

    together(16, work)
    assert len(got) == got.total() == 1000


def test_held_messages_are_never_handed_out_again(opened: Opener) -> None:
    stores = [opened("shards=8"), opened("shards=8")]
    push(stores[0], *(text(str(i), partition=str(i % 7)) for i in range(700)))

    def work(number: int) -> list[tuple[int, int]]:
        got = []
        while taken := places(claim(stores[number % 2], Claim(queue="q", most=11), shard=number // 2)):
            got += taken
        return got

    got = Counter(place for one in together(16, work) for place in one)
    assert len(got) == got.total() == 700


def test_concurrent_pushes_of_a_transaction_id_store_one(opened: Opener) -> None:
    stores = [opened(), opened()]
    for round_ in range(5):
        receipts = together(
            8,
            lambda n, t=f"t{round_}": push(stores[n % 2], text("x", transaction_id=t), shard=n // 2)[0],  # type: ignore[misc]
        )
        assert sorted(r.status for r in receipts) == ["duplicate"] * 7 + ["queued"]
        assert len({r.message_id for r in receipts}) == 1


def test_transaction_id_whose_push_is_under_way_is_waited_for(opened: Opener, raw: Raw) -> None:
    """Also in a turn of several pushes, which asks for all their transaction ids at once."""
    one, other = opened(), opened()
    push(one, text("first"))
    under_way = one.prepare([Push(queue="q", messages=PlainBatch([b"1"], ["x"]))])
    again = [Push(queue="q", messages=PlainBatch([b"1"], [name])) for name in ("x", "y")]
    with ThreadPoolExecutor(1) as beside:
        asked = beside.submit(other.transact, again)
        until(lambda: waiting(raw))
        under_way.commit()
        answers = asked.result(PATIENCE)
    assert [[receipt.status for receipt in answer] for answer in answers] == [["duplicate"], ["queued"]]


def test_new_queue_is_made_once(opened: Opener) -> None:
    stores = [opened(), opened()]
    receipts = together(8, lambda n: push(stores[n % 2], text(str(n), partition="p"), queue="new", shard=n // 2)[0])
    assert sorted(r.seq or 0 for r in receipts) == list(range(8))
    assert len({r.partition_id for r in receipts}) == 1


def test_new_lanes_and_new_groups_meet(opened: Opener) -> None:
    """Each lane has a place for each group, and none misses the wake-up of a push that came at the same moment."""
    stores = [opened("shards=8"), opened("shards=8")]
    push(stores[0], text("first", partition="0"))

    def work(number: int) -> None:
        store, shard = stores[number % 2], number // 2
        if number < 8:
            store.transact([ConfigureGroup(queue="q", group=f"g{number}")], shard)
        else:
            push(store, *(text(str(i), partition=f"{number}-{i}") for i in range(5)), text("x", "0"), shard=shard)

    together(16, work)
    for group in range(8):
        assert len(stores[0].ask(ListCursors(queue="q", group=f"g{group}"))) == 41
        assert claim(stores[0], Claim(queue="q", group=f"g{group}", most=100)).count == 49


def test_concurrent_settlements_of_a_lease_ack_once(opened: Opener) -> None:
    stores = [opened("shards=8"), opened("shards=8")]
    for _ in range(5):
        push(stores[0], text("x"), text("y", partition="o"))
        taken = claim(stores[0], Claim(queue="q", most=2))
        verdicts = together(8, lambda n, t=taken: settle_lease(stores[n % 2], t, shard=n // 2).verdict)  # type: ignore[misc]
        assert Counter(verdicts) == {Verdict.ACKED: 1, Verdict.ALREADY: 7}


@pytest.mark.parametrize("bulk", [False, True])
def test_parts_of_one_lease_are_settled_at_once_and_end_it_once(opened: Opener, bulk: bool) -> None:
    stores = [opened("shards=8"), opened("shards=8")]
    push(stores[0], *(text("x", partition=str(i)) for i in range(8)))
    taken = claim(stores[0], Claim(queue="q", most=8, bulk=bulk, exclusivity="partition", owner="o"))

    def work(number: int) -> Settled:
        grant = taken.grants[number]
        entry = Settlement(selector=ByRange(taken.lease_id, grant.lane, grant.lo, grant.hi), outcome=Outcome.ACK)
        ((settled,),) = stores[number % 2].transact([Settle(entries=[entry])], number // 2)
        assert isinstance(settled, Settled)
        return settled

    settled = together(8, work)
    assert {s.verdict for s in settled} == {Verdict.ACKED}
    assert sum(s.lease_ended for s in settled) == 1


def two_halves(store: PostgresStore, **more: Any) -> tuple[Claimed, list[Settlement]]:
    """A bulk claim of two messages in each of two partitions, and what acks each partition's."""
    push(store, *(text("x", partition=part) for part in "aabb"))
    taken = claim(store, Claim(queue="q", most=9, bulk=True, exclusivity="partition", owner="o", **more))
    ranges = [ByRange(taken.lease_id, one.lane, one.lo, one.hi) for one in taken.grants]
    return taken, [Settlement(selector=one, outcome=Outcome.ACK) for one in ranges]


def test_second_half_of_a_bulk_lease_ends_it(opened: Opener, raw: Raw) -> None:
    one, other = opened(), opened()
    _, (first, second) = two_halves(one)
    under_way = one.prepare([Settle(entries=[first])])
    with ThreadPoolExecutor(1) as beside:
        asked = beside.submit(other.transact, [Settle(entries=[second])])
        until(lambda: waiting(raw))
        under_way.commit()
        ((done,),) = asked.result(PATIENCE)
    results: list[Any] = under_way.results
    ((before,),) = results
    assert [(answer.verdict, answer.lease_ended) for answer in (before, done)] == [
        (Verdict.ACKED, False),
        (Verdict.ACKED, True),
    ]
    assert one.audit() == []


def test_pieces_of_a_bulk_lease_are_settled_side_by_side(opened: Opener) -> None:
    one, other = opened(), opened()
    taken, _ = two_halves(one)
    pieces = [
        Settlement(selector=ByRange(taken.lease_id, grant.lane, grant.lo, grant.lo + 1), outcome=Outcome.ACK)
        for grant in taken.grants
    ]
    under_way = one.prepare([Settle(entries=pieces[:1])])
    ((done,),) = other.transact([Settle(entries=pieces[1:])])
    assert done.verdict is Verdict.ACKED
    under_way.commit()
    assert one.audit() == []


def test_bulk_lease_is_taken_over_while_part_is_settled(opened: Opener, raw: Raw) -> None:
    one, other = opened(), opened()
    old, (first, second) = two_halves(one, key="k/1")
    under_way = one.prepare([Settle(entries=[first])])
    again = Claim(queue="q", most=9, bulk=True, exclusivity="partition", owner="o", key="k/1")
    with ThreadPoolExecutor(1) as beside:
        asked = beside.submit(other.transact, [again])
        until(lambda: waiting(raw))
        under_way.commit()
        (taken,) = asked.result(PATIENCE)
    assert isinstance(taken, Claimed)
    assert places(taken) == places(old)[2:]
    (late,) = one.transact([Settle(entries=[first, second])])
    assert [answer.verdict for answer in late] == [Verdict.ALREADY, Verdict.STALE]
    assert one.audit() == []


def test_claim_changes_hands_while_settled_by_key(opened: Opener, monkeypatch: pytest.MonkeyPatch) -> None:
    one, other = opened(), opened()
    push(one, *(text("x") for _ in range(4)))
    keyed = Claim(queue="q", most=2, key="k")
    claim(one, keyed)
    learned = locks._leases_of_keys
    once = iter([lambda: claim(other, keyed)])

    def learn(*named: Any) -> set[int]:
        found = learned(*named)
        next(once, list)()
        return found

    monkeypatch.setattr(locks, "_leases_of_keys", learn)
    ((done,),) = one.transact([Settle(entries=[Settlement(selector=ByKey("q", "k"), outcome=Outcome.ACK)])])
    assert (done.verdict, done.count) == (Verdict.ACKED, 2)
    assert one.audit() == []


def test_concurrent_claims_of_a_key_are_one_claim(opened: Opener) -> None:
    stores = [opened(), opened()]
    push(stores[0], *(text(str(i)) for i in range(10)))
    command = Claim(queue="q", most=5, key="job/1")
    answers = together(8, lambda n: claim(stores[n % 2], command, shard=n // 2))
    assert {tuple(places(a)) for a in answers} == {tuple((1, i) for i in range(5))}
    assert len({a.lease_no for a in answers}) == 8
    last = max(answers, key=lambda a: a.lease_no)
    assert [settle_lease(stores[0], a).verdict for a in answers if a is not last] == [Verdict.STALE] * 7
    assert settle_lease(stores[0], last).count == 5


def test_dead_letter_is_redriven_once(opened: Opener) -> None:
    stores = [opened(), opened()]
    push(stores[0], text("x"))
    settle_lease(stores[0], claim(stores[0], Claim(queue="q")), Outcome.REJECT)
    (letter,) = stores[0].ask(ListDead(queue="q")).letters
    answers = together(8, lambda n: stores[n % 2].transact([Redrive(ids=[letter.id])], n // 2)[0])
    assert sum(a.count for a in answers) == 1


def test_turns_across_the_same_partitions_do_not_get_in_a_ring(opened: Opener, raw: Raw) -> None:
    """Opposite orders in the calls; locked in one order, so PostgreSQL counts no deadlock."""
    stores = [opened(), opened()]
    names = [str(i) for i in range(20)]
    push(stores[0], *(text("x", partition=n) for n in names))
    before = deadlocks(raw)

    def work(number: int) -> None:
        for i in range(10):
            order = names if number % 2 else names[::-1]
            push(stores[number % 2], *(text(str(i), partition=n) for n in order), shard=number // 2)

    together(8, work)
    assert deadlocks(raw) == before


def test_group_is_moved_on_beside_claims_and_pushes(opened: Opener, raw: Raw) -> None:
    """The first command creates it, every message is delivered or passed once, and no commands deadlock."""
    stores = [opened("shards=8"), opened("shards=8")]
    push(stores[0], *(text(str(i), partition=str(i % 10)) for i in range(200)))
    lanes = [row.lane for row in stores[0].ask(ListLanes(queue="q"))]
    before = deadlocks(raw)

    def work(number: int) -> int:
        store, shard, done = stores[number % 2], number // 2, 0
        for step in range(1, 21):
            if number % 4 == 0:
                push(store, *(text("new", partition=str(i)) for i in range(10)), shard=shard)
            elif number % 4 == 1:
                taken = claim(store, Claim(queue="q", group="g", most=7), shard)
                done += settle_lease(store, taken, shard=shard).count if taken.grants else 0
            else:
                order = lanes if number % 4 == 2 else lanes[::-1]
                moved = AdvanceGroup(queue="q", group="g", lanes=dict.fromkeys(order[:5], step))
                (answer,) = store.transact([moved], shard)
                done += answer.count
        return done

    done = sum(together(8, work))
    (stats,) = stores[0].ask(ListGroups(queue="q", group="g"))
    assert (stats.acked, stats.held, stats.acked + stats.unread) == (done, 0, 600)
    assert deadlocks(raw) == before


def test_group_that_is_deleted_meanwhile_is_made_again(opened: Opener, raw: Raw) -> None:
    stores = [opened("shards=4"), opened("shards=4")]
    push(stores[0], *(text(str(i), partition=str(i % 5)) for i in range(50)))
    lanes = [row.lane for row in stores[0].ask(ListLanes(queue="q"))]

    before = deadlocks(raw)

    def work(number: int) -> list[object]:
        store, shard = stores[number % 2], number // 2
        command = (
            AdvanceGroup(queue="q", group="g", lanes=dict.fromkeys(lanes, 5))
            if number % 2
            else DeleteGroup(queue="q", group="g")
        )
        return [store.transact([command], shard)[0] for _ in range(15)]

    answers = [answer for one in together(4, work)[1::2] for answer in one]
    assert not [answer for answer in answers if isinstance(answer, AckwiseError)]
    assert deadlocks(raw) == before


def deadlocks(raw: Raw) -> object:
    with raw() as connection:
        connection.execute("SELECT pg_stat_force_next_flush()")
        row = connection.execute("SELECT deadlocks FROM pg_stat_database WHERE datname = current_database()").fetchone()
    return row and row[0]


def test_deletion_beside_claims_leaves_nothing_held(opened: Opener) -> None:
    stores = [opened("shards=8"), opened("shards=8")]
    push(stores[0], *(text("x", partition=str(i)) for i in range(50)))

    def work(number: int) -> Claimed | None:
        if number == 7:
            stores[1].transact([DeleteQueue(queue="q")], 7)
            return None
        (result,) = stores[number % 2].transact([Claim(queue="q", most=3)], number // 2)
        return result if isinstance(result, Claimed) and result.grants else None

    for taken in filter(None, together(8, work)):
        entry = Settlement(selector=ByLease(taken.lease_id), outcome=Outcome.ACK)
        ((settled,),) = stores[0].transact([Settle(entries=[entry])])
        assert settled.verdict is Verdict.STALE
    assert stores[0].ask(ListGroups()) == []


def test_settle_and_claim_of_whole_queue_do_not_deadlock(opened: Opener, raw: Raw) -> None:
    """What brokers do all day for PushPop: one caller's settlement and another's claim share a turn."""
    stores = [opened("shards=8"), opened("shards=8")]
    stores[0].transact([ConfigureQueue(queue="q", policy={"exclusivity": "queue"})])
    push(stores[0], *(text(str(i), partition=str(i % 5)) for i in range(60)))
    claim(stores[0], Claim(queue="q", group="other"))
    before = deadlocks(raw)
    done: Counter[tuple[int, int]] = Counter()

    def work(number: int) -> None:
        store, shard = stores[number % 2], number // 2
        taken = claim(store, Claim(queue="q", most=3), shard)
        while done.total() < 60:
            entry = Settlement(selector=ByLease(taken.lease_id), outcome=Outcome.ACK)
            settled, taken_next = store.transact([Settle(entries=[entry]), Claim(queue="q", most=3)], shard)
            if settled[0].verdict is Verdict.ACKED:
                done.update(places(taken))
            taken = taken_next

    together(8, work)
    assert len(done) == done.total() == 60
    assert deadlocks(raw) == before
