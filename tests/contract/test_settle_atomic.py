"""All-or-nothing settling, and transactions of settlements and pushes."""

from __future__ import annotations

import pytest

from ackwise.core import commands as c
from ackwise.core import queries as q
from ackwise.core.errors import AckwiseError, LeaseLost, PayloadTooLarge, RolledBack
from ackwise.core.messages import NewMessage
from tests.contract.support import Delivery, Desk, counts, entry


@pytest.fixture
def held(desk: Desk) -> list[Delivery]:
    desk.number(4)
    return desk.claim().deliveries


def out(queue: str, *txids: str) -> c.Push:
    return c.Push(queue=queue, messages=[NewMessage(b"{}", transaction_id=t) for t in txids])


def verdicts(desk: Desk, *entries: c.Settlement) -> list[str]:
    return [s.verdict.value for s in desk.settle(*entries, atomic=True)]


def test_all_good_entries_are_settled(desk: Desk, held: list[Delivery]) -> None:
    assert verdicts(desk, entry(held[0]), entry(held[1], "reject")) == ["acked", "dead"]
    assert counts(desk.group()) == {"acked": 1, "dead": 1, "held": 2}


@pytest.mark.parametrize("bad", ["L1-00000000.1.0", "stale"])
def test_one_refusal_undoes_the_others(desk: Desk, held: list[Delivery], bad: str) -> None:
    if bad == "stale":
        desk.push("x", partition="other")
        late = desk.claim(1, seconds=1).deliveries[0]
        desk.advance(1)
        desk.sweep("expire")
        bad = late.id
    before = desk.everything()
    got = verdicts(desk, entry(held[0]), entry(bad), entry(held[1], "reject"), entry(held[2], "retry"))
    assert got[0] == got[2] == got[3] == "rolled_back"
    assert got[1] in ("unknown", "stale")
    assert desk.everything() == before
    assert desk.ack(*held) == ["acked"] * 4


def test_an_ack_of_what_failed_undoes_the_others_if_that_is_asked_for(desk: Desk, held: list[Delivery]) -> None:
    acked, failed, dead, good = held
    desk.ack(acked)
    desk.retry(failed)
    desk.reject(dead)
    before = desk.everything()
    for bad in (failed, dead):
        answers = desk.do(c.Settle(entries=[entry(good), entry(acked), entry(bad)], atomic=True, strict=True))
        assert [s.verdict.value for s in answers] == ["rolled_back", "already", "already"]
        assert [s.unacked for s in answers] == [False, False, True]
    assert desk.everything() == before
    assert verdicts(desk, entry(good), entry(failed)) == ["acked", "already"]


def test_already_settled_disturbs_nobody(desk: Desk, held: list[Delivery]) -> None:
    desk.ack(held[0])
    assert verdicts(desk, entry(held[0]), entry(held[1])) == ["already", "acked"]
    assert counts(desk.group()) == {"acked": 2, "held": 2}


def test_a_rolled_back_lease_end_is_no_end(desk: Desk, held: list[Delivery]) -> None:
    assert verdicts(desk, *(entry(d) for d in held), entry("L1-00000000.1.0"))[:4] == ["rolled_back"] * 4
    assert desk.group().leases == 1
    assert desk.do(c.Extend(lease_id=held[0].lease_id, lease=5_000_000)).verdict is None


def test_a_rolled_back_call_leaves_its_neighbours_alone(desk: Desk, held: list[Delivery]) -> None:
    good, bad, late = desk.together(
        c.Settle(entries=[entry(held[0])]),
        c.Settle(entries=[entry(held[1]), entry("L1-00000000.1.0")], atomic=True),
        c.Settle(entries=[entry(held[2])]),
    )
    assert [a.verdict for a in good + bad + late] == ["acked", "rolled_back", "unknown", "acked"]
    assert counts(desk.group()) == {"acked": 2, "held": 2}


def test_a_rolled_back_call_is_not_in_the_ledger(desk: Desk, held: list[Delivery]) -> None:
    desk.ack(held[0])
    verdicts(desk, entry(held[1]), entry("L1-00000000.1.0"))
    rows = desk.store.read_ledger(q.ReadLedger(queue="q"))
    assert {row.outcome: row.count for row in rows if row.group}.get("acked") == 1


def test_ack_and_push_are_one_step(desk: Desk, held: list[Delivery]) -> None:
    done = desk.do(c.Transaction(settlements=[entry(held[0])], pushes=[out("r", "a", "b"), out("q", "t9")]))
    assert [s.verdict for s in done.settled] == ["acked"]
    assert [[r.status for r in receipts] for receipts in done.pushed] == [["queued", "queued"], ["queued"]]
    assert counts(desk.group()) == {"acked": 1, "held": 3, "unread": 1}
    assert desk.store.stats(q.QueueStats(queue="r")).messages == 2


def test_a_refused_settlement_takes_the_pushes_back(desk: Desk, held: list[Delivery]) -> None:
    desk.ack(held[1])
    before = desk.everything()
    with pytest.raises(RolledBack, match="settlement 1 was refused as unknown") as refusal:
        desk.do(c.Transaction(settlements=[entry(held[0]), entry("L1-00000000.1.0")], pushes=[out("new", "a")]))
    assert refusal.value.details == {"index": 1, "verdict": "unknown"}
    assert desk.everything() == before
    assert [r.status for r in desk.do(out("new", "a"))] == ["queued"]


def test_an_already_settled_entry_does_not_refuse_it(desk: Desk, held: list[Delivery]) -> None:
    desk.ack(held[1])
    done = desk.do(c.Transaction(settlements=[entry(held[0]), entry(held[1])], pushes=[out("r", "a")]))
    assert [s.verdict for s in done.settled] == ["acked", "already"]


def test_required_leases_must_be_held(desk: Desk, held: list[Delivery]) -> None:
    lease = held[0].lease_id
    desk.do(c.Transaction(pushes=[out("r", "a")], required_leases=(lease,)))
    desk.advance(30)
    before = desk.everything()
    for gone in (lease, "L1-00000000", "rubbish"):
        with pytest.raises(LeaseLost, match="invalid_lease"):
            desk.do(c.Transaction(pushes=[out("r", "b")], required_leases=(gone,)))
    assert desk.everything() == before


def test_duplicates_are_fine_or_fatal_as_asked(desk: Desk, held: list[Delivery]) -> None:
    desk.do(out("r", "a"))
    ok = desk.do(c.Transaction(settlements=[entry(held[0])], pushes=[out("r", "a", "b")], on_duplicate="ok"))
    assert [r.status for r in ok.pushed[0]] == ["duplicate", "queued"]
    before = desk.everything()
    with pytest.raises(RolledBack, match="duplicate transaction id 'a'") as refusal:
        desk.do(c.Transaction(settlements=[entry(held[1])], pushes=[out("r", "c", "a")], on_duplicate="fail"))
    assert refusal.value.details["reason"] == "duplicate"
    assert desk.everything() == before
    assert [r.status for r in desk.do(out("r", "c"))] == ["queued"]


@pytest.mark.parametrize("on_already", ["ok", "fail"])
def test_an_ack_of_what_was_not_acked_refuses_it_in_any_case(desk: Desk, held: list[Delivery], on_already: str) -> None:
    desk.retry(held[0])
    before = desk.everything()
    with pytest.raises(RolledBack, match="refused as already"):
        desk.do(c.Transaction(settlements=[entry(held[0])], pushes=[out("r", "a")], on_already=on_already))  # type: ignore[arg-type]
    assert desk.everything() == before


def strictly(settlements: list[c.Settlement], *pushes: c.Push) -> c.Transaction:
    return c.Transaction(
        settlements=settlements, pushes=list(pushes), on_duplicate="fail", on_already="fail", repeatable=True
    )


def test_a_repeatable_transaction_finds_itself_done(desk: Desk, held: list[Delivery]) -> None:
    acks = [entry(held[0]), entry(held[1], "retry")]
    desk.do(strictly(acks, out("r", "a", "b")))
    before = desk.everything()
    again = desk.do(strictly(acks[:1], out("r", "a", "b")))
    assert [answer.verdict for answer in again.settled] == ["already"]
    assert [receipt.status for receipt in again.pushed[0]] == ["duplicate", "duplicate"]
    assert [answer.verdict for answer in desk.do(strictly(acks[:1])).settled] == ["already"]
    assert desk.everything() == before


def test_a_repeatable_transaction_that_is_done_in_part_is_another_one(desk: Desk, held: list[Delivery]) -> None:
    desk.do(strictly([entry(held[0])], out("r", "a")))
    before = desk.everything()
    for settlements, push in (
        ([entry(held[0])], out("r", "other")),
        ([entry(held[0])], out("r", "a", "other")),
        ([entry(held[1])], out("r", "a")),
        ([entry(held[0]), entry(held[1])], out("r", "a")),
    ):
        with pytest.raises(RolledBack):
            desk.do(strictly(settlements, push))
    assert desk.everything() == before


def test_a_bad_push_takes_the_settlements_back(desk: Desk, held: list[Delivery]) -> None:
    desk.configure("small", max_payload_bytes=1)
    before = desk.everything()
    push = c.Push(queue="small", messages=[NewMessage(b"too long")])
    with pytest.raises(PayloadTooLarge):
        desk.do(c.Transaction(settlements=[entry(held[0])], pushes=[out("new", "a"), push]))
    assert desk.everything() == before


def test_a_refused_transaction_leaves_its_neighbours_alone(desk: Desk, held: list[Delivery]) -> None:
    first, refused, last, pushed = desk.together(
        c.Transaction(settlements=[entry(held[0])], pushes=[out("r", "a")]),
        c.Transaction(settlements=[entry(held[1])], pushes=[out("r", "b")], required_leases=("gone",)),
        c.Transaction(settlements=[entry(held[2])], pushes=[out("r", "c")]),
        out("r", "b", "c"),
    )
    assert isinstance(refused, AckwiseError)
    assert not isinstance(first, AckwiseError)
    assert not isinstance(last, AckwiseError)
    assert [r.status for r in pushed] == ["queued", "duplicate"]
    assert counts(desk.group()) == {"acked": 2, "held": 2}
