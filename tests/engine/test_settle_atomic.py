"""All-or-nothing settling, and transactions of settlements and pushes."""

from __future__ import annotations

import pytest

from ackwise.core import commands as c
from ackwise.core import queries as q
from ackwise.core.errors import AckwiseError, LeaseLost, PayloadTooLarge, RolledBack
from ackwise.core.messages import NewMessage
from tests.engine.store_harness import Delivery, StoreHarness, counts, entry


@pytest.fixture
def held(harness: StoreHarness) -> list[Delivery]:
    harness.number(4)
    return harness.claim().deliveries


def out(queue: str, *txids: str) -> c.Push:
    return c.Push(queue=queue, messages=[NewMessage(b"{}", transaction_id=t) for t in txids])


def verdicts(harness: StoreHarness, *entries: c.Settlement) -> list[str]:
    return [s.verdict.value for s in harness.settle(*entries, atomic=True)]


def test_atomic_settle_of_good_entries_settles_all(harness: StoreHarness, held: list[Delivery]) -> None:
    assert verdicts(harness, entry(held[0]), entry(held[1], "reject")) == ["acked", "dead"]
    assert counts(harness.group()) == {"acked": 1, "dead": 1, "held": 2}


@pytest.mark.parametrize("bad", ["L1-00000000.1.0", "stale"])
def test_atomic_settle_with_a_refusal_undoes_the_others(harness: StoreHarness, held: list[Delivery], bad: str) -> None:
    if bad == "stale":
        harness.push("x", partition="other")
        late = harness.claim(1, seconds=1).deliveries[0]
        harness.advance(1)
        harness.sweep("expire")
        bad = late.id
    before = harness.everything()
    got = verdicts(harness, entry(held[0]), entry(bad), entry(held[1], "reject"), entry(held[2], "retry"))
    assert got[0] == got[2] == got[3] == "rolled_back"
    assert got[1] in ("unknown", "stale")
    assert harness.everything() == before
    assert harness.ack(*held) == ["acked"] * 4


def test_atomic_ack_of_failed_message_undoes_the_others(harness: StoreHarness, held: list[Delivery]) -> None:
    acked, failed, dead, good = held
    harness.ack(acked)
    harness.retry(failed)
    harness.reject(dead)
    before = harness.everything()
    for bad in (failed, dead):
        answers = harness.do(c.Settle(entries=[entry(good), entry(acked), entry(bad)], atomic=True, strict=True))
        assert [s.verdict.value for s in answers] == ["rolled_back", "already", "already"]
        assert [s.unacked for s in answers] == [False, False, True]
    assert harness.everything() == before
    assert verdicts(harness, entry(good), entry(failed)) == ["acked", "already"]


def test_atomic_settle_accepts_an_entry_settled_before(harness: StoreHarness, held: list[Delivery]) -> None:
    harness.ack(held[0])
    assert verdicts(harness, entry(held[0]), entry(held[1])) == ["already", "acked"]
    assert counts(harness.group()) == {"acked": 2, "held": 2}


def test_rolled_back_lease_end_is_no_end(harness: StoreHarness, held: list[Delivery]) -> None:
    assert verdicts(harness, *(entry(d) for d in held), entry("L1-00000000.1.0"))[:4] == ["rolled_back"] * 4
    assert harness.group().leases == 1
    assert harness.do(c.Extend(lease_id=held[0].lease_id, lease=5_000_000)).verdict is None


def test_rolled_back_call_leaves_its_neighbours_alone(harness: StoreHarness, held: list[Delivery]) -> None:
    good, bad, late = harness.together(
        c.Settle(entries=[entry(held[0])]),
        c.Settle(entries=[entry(held[1]), entry("L1-00000000.1.0")], atomic=True),
        c.Settle(entries=[entry(held[2])]),
    )
    assert [a.verdict for a in good + bad + late] == ["acked", "rolled_back", "unknown", "acked"]
    assert counts(harness.group()) == {"acked": 2, "held": 2}


def test_rolled_back_call_is_not_in_the_ledger(harness: StoreHarness, held: list[Delivery]) -> None:
    harness.ack(held[0])
    verdicts(harness, entry(held[1]), entry("L1-00000000.1.0"))
    rows = harness.store.ask(q.ReadLedger(queue="q"))
    assert {row.outcome: row.count for row in rows if row.group}.get("acked") == 1


def test_ack_and_push_are_one_step(harness: StoreHarness, held: list[Delivery]) -> None:
    done = harness.do(c.Transaction(settlements=[entry(held[0])], pushes=[out("r", "a", "b"), out("q", "t9")]))
    assert [s.verdict for s in done.settled] == ["acked"]
    assert [[r.status for r in receipts] for receipts in done.pushed] == [["queued", "queued"], ["queued"]]
    assert counts(harness.group()) == {"acked": 1, "held": 3, "unread": 1}
    assert harness.store.ask(q.QueueStats(queue="r")).messages == 2


def test_refused_settlement_takes_the_pushes_back(harness: StoreHarness, held: list[Delivery]) -> None:
    harness.ack(held[1])
    before = harness.everything()
    with pytest.raises(RolledBack, match="settlement 1 was refused as unknown") as refusal:
        harness.do(c.Transaction(settlements=[entry(held[0]), entry("L1-00000000.1.0")], pushes=[out("new", "a")]))
    assert refusal.value.details == {"index": 1, "verdict": "unknown"}
    assert harness.everything() == before
    assert [r.status for r in harness.do(out("new", "a"))] == ["queued"]


def test_transaction_accepts_an_entry_settled_before(harness: StoreHarness, held: list[Delivery]) -> None:
    harness.ack(held[1])
    done = harness.do(c.Transaction(settlements=[entry(held[0]), entry(held[1])], pushes=[out("r", "a")]))
    assert [s.verdict for s in done.settled] == ["acked", "already"]


def test_required_leases_must_be_held(harness: StoreHarness, held: list[Delivery]) -> None:
    lease = held[0].lease_id
    harness.do(c.Transaction(pushes=[out("r", "a")], required_leases=(lease,)))
    harness.advance(30)
    before = harness.everything()
    for gone in (lease, "L1-00000000", "rubbish"):
        with pytest.raises(LeaseLost, match="invalid_lease"):
            harness.do(c.Transaction(pushes=[out("r", "b")], required_leases=(gone,)))
    assert harness.everything() == before


def test_duplicates_are_fine_or_fatal_as_asked(harness: StoreHarness, held: list[Delivery]) -> None:
    harness.do(out("r", "a"))
    ok = harness.do(c.Transaction(settlements=[entry(held[0])], pushes=[out("r", "a", "b")], on_duplicate="ok"))
    assert [r.status for r in ok.pushed[0]] == ["duplicate", "queued"]
    before = harness.everything()
    with pytest.raises(RolledBack, match="duplicate transaction id 'a'") as refusal:
        harness.do(c.Transaction(settlements=[entry(held[1])], pushes=[out("r", "c", "a")], on_duplicate="fail"))
    assert refusal.value.details["reason"] == "duplicate"
    assert harness.everything() == before
    assert [r.status for r in harness.do(out("r", "c"))] == ["queued"]


@pytest.mark.parametrize("on_already", ["ok", "fail"])
def test_ack_of_what_was_not_acked_refuses_it_in_any_case(
    harness: StoreHarness, held: list[Delivery], on_already: str
) -> None:
    harness.retry(held[0])
    before = harness.everything()
    with pytest.raises(RolledBack, match="refused as already"):
        harness.do(c.Transaction(settlements=[entry(held[0])], pushes=[out("r", "a")], on_already=on_already))  # type: ignore[arg-type]
    assert harness.everything() == before


def strictly(settlements: list[c.Settlement], *pushes: c.Push) -> c.Transaction:
    return c.Transaction(
        settlements=settlements, pushes=list(pushes), on_duplicate="fail", on_already="fail", repeatable=True
    )


def test_repeatable_transaction_finds_itself_done(harness: StoreHarness, held: list[Delivery]) -> None:
    acks = [entry(held[0]), entry(held[1], "retry")]
    harness.do(strictly(acks, out("r", "a", "b")))
    before = harness.everything()
    again = harness.do(strictly(acks[:1], out("r", "a", "b")))
    assert [answer.verdict for answer in again.settled] == ["already"]
    assert [receipt.status for receipt in again.pushed[0]] == ["duplicate", "duplicate"]
    assert [answer.verdict for answer in harness.do(strictly(acks[:1])).settled] == ["already"]
    assert harness.everything() == before


def test_repeatable_transaction_done_in_part_rolls_back(harness: StoreHarness, held: list[Delivery]) -> None:
    harness.do(strictly([entry(held[0])], out("r", "a")))
    before = harness.everything()
    for settlements, push in (
        ([entry(held[0])], out("r", "other")),
        ([entry(held[0])], out("r", "a", "other")),
        ([entry(held[1])], out("r", "a")),
        ([entry(held[0]), entry(held[1])], out("r", "a")),
    ):
        with pytest.raises(RolledBack):
            harness.do(strictly(settlements, push))
    assert harness.everything() == before


def test_bad_push_takes_the_settlements_back(harness: StoreHarness, held: list[Delivery]) -> None:
    harness.configure("small", max_payload_bytes=1)
    before = harness.everything()
    push = c.Push(queue="small", messages=[NewMessage(b"too long")])
    with pytest.raises(PayloadTooLarge):
        harness.do(c.Transaction(settlements=[entry(held[0])], pushes=[out("new", "a"), push]))
    assert harness.everything() == before


def test_refused_transaction_leaves_its_neighbours_alone(harness: StoreHarness, held: list[Delivery]) -> None:
    first, refused, last, pushed = harness.together(
        c.Transaction(settlements=[entry(held[0])], pushes=[out("r", "a")]),
        c.Transaction(settlements=[entry(held[1])], pushes=[out("r", "b")], required_leases=("gone",)),
        c.Transaction(settlements=[entry(held[2])], pushes=[out("r", "c")]),
        out("r", "b", "c"),
    )
    assert isinstance(refused, AckwiseError)
    assert not isinstance(first, AckwiseError)
    assert not isinstance(last, AckwiseError)
    assert [r.status for r in pushed] == ["queued", "duplicate"]
    assert counts(harness.group()) == {"acked": 2, "held": 2}
