"""Refusals: every combination of lease, spans and selector has exactly one verdict."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ackwise.core import refusals
from ackwise.core.answers import Extended, Settled
from ackwise.core.commands import ByTransaction
from ackwise.core.ids import DeliveryKey, GroupId, LaneId, LeaseNo, Micros, Seq
from ackwise.core.lane_range import LaneRange
from ackwise.core.settlement import Verdict
from ackwise.core.spans import BURIED, RETURNED, SETTLED, Lease, LeasedRange, Span

NOW, DEADLINE = Micros(100), 200
LANE, OTHER_LANE, GROUP, TAG = LaneId(1), LaneId(2), GroupId(3), 7
GRANTED = [LaneRange(LANE, 0, 10)]
END_KINDS = (SETTLED, RETURNED, BURIED, "expired", "seek")


def lease(**fields: Any) -> Lease:
    known: dict[str, Any] = {
        "no": LeaseNo(5), "tag": TAG, "queue": 1, "grp": GROUP, "owner": "me", "instance": "here",
        "exclusivity": "none", "bulk": 0, "deadline": DEADLINE, "made_at": Micros(0), "granted": GRANTED,
    }  # fmt: skip
    return Lease(**{**known, **fields})


def ended(kind: str, **fields: Any) -> Lease:
    return lease(ended_at=NOW, end_kind=kind, **fields)


EXPIRED = lease(deadline=NOW)


def span(lo: int, hi: int, holder: int | None = 5) -> Span:
    return Span(LANE, GROUP, lo, hi, lease=None if holder is None else LeaseNo(holder))


# which messages a selector names


@pytest.mark.parametrize(
    ("holder", "key", "known"),
    [
        (lease(), DeliveryKey(LeaseNo(5), TAG, LANE, Seq(9)), True),
        (lease(), DeliveryKey(LeaseNo(5), TAG, LANE, Seq(10)), False),
        (lease(), DeliveryKey(LeaseNo(5), TAG, OTHER_LANE, Seq(9)), False),
        (lease(), DeliveryKey(LeaseNo(5), TAG + 1, LANE, Seq(9)), False),
        (None, DeliveryKey(LeaseNo(5), TAG, LANE, Seq(9)), False),
        (lease(), None, False),
    ],
)
def test_delivery_is_unknown_unless_it_was_granted(holder: Lease | None, key: DeliveryKey | None, known: bool) -> None:
    answer = refusals.delivery_range(holder, key)
    assert answer == (LeasedRange(lease(), LANE, 9, 10) if known else Verdict.UNKNOWN)


@pytest.mark.parametrize(("lo", "hi", "known"), [(0, 10, True), (9, 20, True), (10, 20, False)])
def test_range_is_unknown_unless_a_message_was_granted(lo: int, hi: int, known: bool) -> None:
    named = LaneRange(LANE, lo, hi)
    answer = refusals.named_range(lease(), named, whole=True)
    assert answer == (LeasedRange(lease(), LANE, lo, hi, whole=True) if known else Verdict.UNKNOWN)
    assert refusals.named_range(None, named, whole=True) is Verdict.UNKNOWN


def test_whole_lease_is_unknown_without_lease() -> None:
    assert refusals.whole_lease(None) is Verdict.UNKNOWN
    assert refusals.whole_lease(lease()) == LeasedRange(lease(), None)


# messages that are named by their ids

FOREIGN = lease(no=LeaseNo(6))


def by_ids(named: Lease | None = None, **fields: Any) -> tuple[refusals.NamedMessage, ByTransaction]:
    message = refusals.NamedMessage(1, GROUP, LANE, Seq(4), named)
    return message, ByTransaction("p", "t", lease_id=None if named is None else "L", **fields)


@pytest.mark.parametrize(
    ("selector", "holder", "acks", "expected"),
    [
        (by_ids(), lease(), True, "holder"),
        (by_ids(), EXPIRED, True, "holder"),  # refused later, by the expired lease
        (by_ids(), None, True, Verdict.STALE),
        (by_ids(), None, False, Verdict.STALE),
        (by_ids(lease()), lease(), True, "holder"),
        (by_ids(FOREIGN), lease(), True, Verdict.STALE),
        (by_ids(FOREIGN), lease(), False, "named"),  # this lease failed the message before
        (by_ids(FOREIGN), None, False, "named"),
        (by_ids(FOREIGN, fenced=True), lease(), False, Verdict.STALE),
        (by_ids(lease(no=LeaseNo(6), granted=[])), lease(), False, Verdict.STALE),
        (by_ids(lease(no=LeaseNo(6), grp=GroupId(9))), lease(), False, Verdict.STALE),
        (by_ids(unheld=True), lease(), True, "holder"),
        (by_ids(unheld=True), EXPIRED, True, "late"),
        (by_ids(unheld=True), None, True, "stand-in"),
        (by_ids(FOREIGN, unheld=True), None, True, Verdict.STALE),
    ],
)
def test_named_message_has_one_lease_or_is_stale(
    selector: tuple[refusals.NamedMessage, ByTransaction], holder: Lease | None, acks: bool, expected: object
) -> None:
    answer = refusals.held_range(*selector, holder, acks=acks, now=NOW)
    if isinstance(expected, Verdict):
        assert answer is expected
        return
    assert isinstance(answer, LeasedRange)
    assert (answer.lane, answer.lo, answer.hi) == (LANE, 4, 5)
    assert answer.lease.no == {"stand-in": 0, "named": 6}.get(str(expected), 5)
    settles = expected in ("late", "stand-in") or (expected == "holder" and holder is not EXPIRED)
    held = [span(0, 10)] if expected != "named" else []
    assert (refusals.refuse(answer, held, NOW) is None) == settles


def test_undelivered_message_is_stale_only_for_a_wrong_lease() -> None:
    assert refusals.undelivered(wrong_lease=True) is Verdict.STALE
    assert refusals.undelivered(wrong_lease=False) is Verdict.UNKNOWN


@pytest.mark.parametrize(
    ("named", "acks", "died", "expected"),
    [
        (None, True, False, Settled(Verdict.ALREADY)),
        (None, True, True, Settled(Verdict.ALREADY, unacked=True)),
        (None, False, True, Settled(Verdict.ALREADY)),
        (lease(), True, False, Settled(Verdict.ALREADY)),
        (ended(SETTLED), True, False, Settled(Verdict.ALREADY, lease_ended=True)),
        (ended("expired"), True, False, Settled(Verdict.ALREADY)),
        (ended(SETTLED, granted=[]), True, False, Settled(Verdict.ALREADY)),
        (lease(dropped=GRANTED), True, False, Settled(Verdict.ALREADY, unacked=True)),
        (lease(dropped=GRANTED, grp=GroupId(9)), True, False, Settled(Verdict.ALREADY)),
        (lease(lost=GRANTED), True, True, Settled(Verdict.STALE)),
    ],
)
def test_finished_message_is_already_or_stale(named: Lease | None, acks: bool, died: bool, expected: Settled) -> None:
    message, _ = by_ids(named)
    assert refusals.finished(message, acks=acks, died=died) == expected


# whether the messages can be settled

MESSAGE = (LANE, 4, 5)
WHOLE_LEASE = (None,)


@pytest.mark.parametrize(
    ("holder", "where", "spans", "expected"),
    [
        (lease(), MESSAGE, [span(0, 10)], None),
        (lease(), MESSAGE, [], Verdict.ALREADY),
        (lease(lost=GRANTED), MESSAGE, [], Verdict.STALE),
        (lease(lost=[LaneRange(LANE, 5, 10)]), MESSAGE, [], Verdict.ALREADY),
        (lease(lost=[LaneRange(OTHER_LANE, 0, 10)]), MESSAGE, [], Verdict.ALREADY),
        (EXPIRED, MESSAGE, [span(0, 10)], Verdict.STALE),
        (EXPIRED, MESSAGE, [], Verdict.ALREADY),
        (ended(SETTLED), MESSAGE, [], Verdict.ALREADY),
        (ended("expired", lost=GRANTED), MESSAGE, [], Verdict.STALE),
        (lease(), WHOLE_LEASE, [span(0, 10)], None),
        (EXPIRED, WHOLE_LEASE, [span(0, 10)], Verdict.STALE),
        (ended(RETURNED), WHOLE_LEASE, [], Verdict.ALREADY),
        (ended("seek", lost=GRANTED), WHOLE_LEASE, [], Verdict.STALE),
    ],
)
def test_range_is_settled_or_refused(
    holder: Lease, where: tuple[Any, ...], spans: list[Span], expected: Verdict | None
) -> None:
    assert refusals.refuse(LeasedRange(holder, *where), spans, NOW) is expected


@pytest.mark.parametrize(
    ("spans", "expected"),
    [([span(0, 10)], None), ([span(0, 4), span(4, 8)], None), ([span(2, 7)], Verdict.UNKNOWN), ([], Verdict.UNKNOWN)],
)
def test_whole_range_is_unknown_unless_all_of_it_is_held(spans: list[Span], expected: Verdict | None) -> None:
    assert refusals.refuse(LeasedRange(lease(), LANE, 2, 8, whole=True), spans, NOW) is expected


@pytest.mark.parametrize(
    ("leased", "spans", "dead", "expected"),
    [
        (LeasedRange(lease(), LANE, 4, 5), [], [], False),
        (LeasedRange(lease(), LANE, 4, 5), [span(4, 5, None)], [], True),
        (LeasedRange(lease(), LANE, 4, 5), [], [LaneRange(LANE, 0, 5)], True),
        (LeasedRange(lease(), LANE, 4, 5), [], [LaneRange(LANE, 5, 6)], False),
        (LeasedRange(lease(dropped=GRANTED), LANE, 4, 5), [], [], True),
        (LeasedRange(ended(SETTLED), None), [], [], False),
        (LeasedRange(ended(RETURNED), None), [], [], True),
        (LeasedRange(ended(BURIED), None), [], [], True),
    ],
)
def test_message_that_returned_or_died_ended_without_ack(
    leased: LeasedRange, spans: list[Span], dead: list[LaneRange], expected: bool
) -> None:
    assert refusals.ended_without_ack(leased, spans, dead) is expected


# how a lease ended


@pytest.mark.parametrize(
    ("holder", "expected"),
    [
        (None, Extended(Verdict.UNKNOWN, None)),
        (lease(), None),
        (EXPIRED, Extended(Verdict.STALE, None)),
        (ended(SETTLED), Extended(Verdict.ALREADY, None, True)),
        (ended(BURIED), Extended(Verdict.ALREADY, None, True)),
        (ended(SETTLED, returned=1), Extended(Verdict.STALE, None, True)),
        (ended(SETTLED, lost=GRANTED), Extended(Verdict.STALE, None)),
        (ended(RETURNED), Extended(Verdict.STALE, None)),
        (ended("expired"), Extended(Verdict.STALE, None)),
    ],
)
def test_extension_is_refused_unless_the_lease_lives(holder: Lease | None, expected: Extended | None) -> None:
    assert refusals.refuse_extension(holder, NOW) == expected


@pytest.mark.parametrize(
    ("holder", "lane", "verdict", "told"),
    [
        (lease(), LANE, Verdict.ACKED, False),
        (ended(SETTLED), LANE, Verdict.ACKED, True),
        (ended(RETURNED), LANE, Verdict.RETRIED, True),
        (ended(SETTLED), LANE, Verdict.ALREADY, True),
        (ended(RETURNED), LANE, Verdict.ALREADY, False),
        (ended(RETURNED), None, Verdict.ALREADY, True),
        (ended("expired"), LANE, Verdict.ALREADY, False),
        (ended(SETTLED), LANE, Verdict.STALE, False),
        (ended(SETTLED), LANE, Verdict.UNKNOWN, False),
    ],
)
def test_answer_tells_the_end_of_its_lease(holder: Lease, lane: LaneId | None, verdict: Verdict, told: bool) -> None:
    ranges = [(2, LeasedRange(holder, lane, 0, 1))]
    assert refusals.told_ends(ranges, {2: Settled(verdict)}) == ([2] if told else [])


# properties

lost_ranges = st.lists(st.tuples(st.integers(0, 9), st.integers(1, 5)), max_size=2).map(
    lambda pairs: sorted(LaneRange(LANE, lo, lo + size) for lo, size in pairs)
)
leases = st.builds(
    lease,
    deadline=st.sampled_from([NOW - 1, NOW, NOW + 1, DEADLINE]),
    ended_at=st.none() | st.just(NOW),
    end_kind=st.sampled_from(END_KINDS),
    lost=lost_ranges,
    dropped=lost_ranges,
    returned=st.integers(0, 1),
)
parts = st.lists(st.tuples(st.integers(0, 9), st.integers(1, 5)), max_size=3).map(
    lambda pairs: [span(lo, lo + size) for lo, size in pairs]
)


@given(leases, parts, st.booleans(), st.booleans(), st.booleans())
def test_every_range_has_one_verdict(
    holder: Lease, spans: list[Span], whole: bool, late: bool, everything: bool
) -> None:
    leased = LeasedRange(holder, None) if everything else LeasedRange(holder, LANE, 2, 6, whole=whole, late=late)
    spans = spans if everything else [part for part in spans if part.lo < 6 and part.hi > 2]
    verdict = refusals.refuse(leased, spans, NOW)
    assert verdict in (None, Verdict.ALREADY, Verdict.STALE, Verdict.UNKNOWN)
    if verdict is None:
        assert spans, "a message that the lease does not hold is never settled"
        assert holder.ended_at is None
        assert holder.live(NOW) or leased.late
    elif spans and holder.live(NOW):
        assert verdict is Verdict.UNKNOWN, "a live lease that holds the message is never refused"
        assert leased.whole
    if verdict is Verdict.UNKNOWN:
        assert leased.whole


@given(
    st.none() | leases,
    st.none() | leases,
    st.booleans(),
    st.booleans(),
    st.booleans(),
)
def test_every_named_message_has_one_range_or_verdict(
    named: Lease | None, holder: Lease | None, unheld: bool, fenced: bool, acks: bool
) -> None:
    message, selector = by_ids(named, unheld=unheld, fenced=fenced)
    answer = refusals.held_range(message, selector, holder, acks=acks, now=NOW)
    assert answer is Verdict.STALE or isinstance(answer, LeasedRange)
    if holder is not None and (named is None or named.no == holder.no):
        assert isinstance(answer, LeasedRange), "the holder is never refused here"
        assert answer.lease is holder


@given(st.lists(st.tuples(st.integers(0, 9), st.integers(1, 4), st.integers(0, 30)), max_size=20), lost_ranges)
def test_message_is_never_settled_twice(calls: list[tuple[int, int, int]], lost: list[LaneRange]) -> None:
    """A lease of ten messages, settled range by range while time passes and the lease loses messages."""
    holder = lease(deadline=NOW + 20)
    held = set(range(10))
    settled: list[int] = []
    for lo, size, after in calls:
        if after == 13:
            holder.lost = lost
            held -= {seq for _, start, end in lost for seq in range(start, end)}
        wanted = sorted(held & set(range(lo, lo + size)))
        leased = LeasedRange(holder, LANE, lo, lo + size)
        verdict = refusals.refuse(leased, [span(seq, seq + 1) for seq in wanted], NOW + after)
        assert (verdict is None) == (bool(wanted) and after < 20)
        if verdict is None:
            settled += wanted
            held -= set(wanted)
    assert len(settled) == len(set(settled))
