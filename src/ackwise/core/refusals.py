"""Decides `already`, `stale` or `unknown` from a lease, its spans and a selector.

The engine loads the rows and asks. A function without a refusal returns the range to settle, or None.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import msgspec

from ackwise.core.answers import Extended, Settled
from ackwise.core.commands import ByTransaction
from ackwise.core.ids import DeliveryKey, GroupId, LaneId, LeaseNo, Micros, Seq
from ackwise.core.lane_range import LaneRange, covers
from ackwise.core.lifecycle import Guard, LifecycleEvent, State, target
from ackwise.core.settlement import SETTLING, Verdict
from ackwise.core.spans import BURIED, RETURNED, SETTLED, Lease, LeasedRange, NumberedRange, Span

GROUP_DELETED = Verdict.STALE
"""Verdict for messages of a group that no longer exists."""
# `stand_in_lease` holds a message that waits for its next delivery.
assert target(State.WAITING, LifecycleEvent.CLAIM, Guard.UNHELD) is State.LEASED


# which messages a selector names


def delivery_range(lease: Lease | None, key: DeliveryKey | None) -> LeasedRange | Verdict:
    """The message that a delivery id names. The key is None if the id is malformed."""
    if lease is None or key is None or lease.tag != key.tag:
        return Verdict.UNKNOWN
    return message_range(lease, key.lane, key.seq)


def message_range(lease: Lease, lane: LaneId, seq: int) -> LeasedRange | Verdict:
    """One message of a lease, which must have been granted the message."""
    return LeasedRange(lease, lane, seq, seq + 1) if covers(lease.granted, lane, seq) else Verdict.UNKNOWN


def named_range(lease: Lease | None, named: LaneRange, *, whole: bool) -> LeasedRange | Verdict:
    """A range of a lease, which must have been granted one of its messages."""
    if lease is None:
        return Verdict.UNKNOWN
    leased = LeasedRange(lease, *named, whole=whole)
    return leased if leased.overlaps(lease.granted) else Verdict.UNKNOWN


def whole_lease(lease: Lease | None) -> LeasedRange | Verdict:
    """All messages of a lease."""
    return Verdict.UNKNOWN if lease is None else LeasedRange(lease, None)


class NamedMessage(msgspec.Struct, frozen=True):
    """A message that was delivered to a group. A selector names it by its ids, and perhaps a lease with it."""

    queue: int
    grp: GroupId
    lane: LaneId
    seq: Seq
    lease: Lease | None

    @property
    def was_granted(self) -> bool:
        """Whether the named lease belongs to the group and was granted the message."""
        lease = self.lease
        return lease is not None and lease.grp == self.grp and lease.was_granted(self.lane, self.seq)

    def under(self, lease: Lease, *, late: bool = False) -> LeasedRange:
        return LeasedRange(lease, self.lane, self.seq, self.seq + 1, late=late)


def undelivered(*, wrong_lease: bool) -> Verdict:
    """The refusal for ids that name no delivered message. `wrong_lease`: only the lease in the selector is wrong."""
    return Verdict.STALE if wrong_lease else Verdict.UNKNOWN


def held_range(
    message: NamedMessage, selector: ByTransaction, holder: Lease | None, *, acks: bool, now: Micros
) -> LeasedRange | Verdict:
    """The range of a message that its group has not finished. `holder` is the lease that holds it."""
    if selector.unheld and selector.lease_id is None:
        return message.under(holder or stand_in_lease(message, now), late=True)
    if holder is not None and (selector.lease_id is None or (message.lease and message.lease.no == holder.no)):
        return message.under(holder)
    if acks or selector.fenced or message.lease is None or not message.was_granted:
        return Verdict.STALE
    # As with a delivery id: a message that this lease failed or released before is `already`.
    return message.under(message.lease)


def stand_in_lease(message: NamedMessage, now: Micros) -> Lease:
    """A lease with number 0 for a delivered message that no lease holds now."""
    return Lease(
        no=LeaseNo(0),
        tag=0,
        queue=message.queue,
        grp=message.grp,
        owner="",
        instance="",
        exclusivity="none",
        bulk=0,
        deadline=now + 1,
        made_at=now,
        granted=[LaneRange(message.lane, message.seq, message.seq + 1)],
    )


# whether the messages can be settled


def refuse(leased: LeasedRange, spans: Sequence[Span], now: int) -> Verdict | None:
    """The refusal for a range, if the lease holds these spans of it. None if the lease settles them."""
    lease = leased.lease
    if leased.whole and _overlap(leased, spans) != leased.hi - leased.lo:
        # Not `already`: the caller must learn that this call did not settle the range.
        return Verdict.UNKNOWN
    if spans and lease.ended_at is None:
        return None if leased.late or lease.live(now) else Verdict.STALE
    lost = lease.lost if leased.lane is None else leased.overlaps(lease.lost)
    return Verdict.STALE if lost else Verdict.ALREADY


def _overlap(leased: LeasedRange, spans: Sequence[Span]) -> int:
    """Number of messages of the range in these spans."""
    return sum(min(leased.hi, span.hi) - max(leased.lo, span.lo) for span in spans)


def ended_without_ack(leased: LeasedRange, spans: Sequence[Span], dead: Sequence[LaneRange]) -> bool:
    """Whether a message that the lease settled before returned, died or was dropped.

    `spans` are the spans of all holders in the range. `dead` are the ranges in it that died. For a whole lease, the way
    in which the lease ended decides.
    """
    if leased.lane is None:
        return leased.lease.end_kind in (RETURNED, BURIED)
    return bool(spans) or leased.overlaps(dead) or leased.overlaps(leased.lease.dropped)


def finished(message: NamedMessage, *, acks: bool, died: bool) -> Settled:
    """The refusal for a message that its group has finished. `died` says that it is a dead letter."""
    lease, lane, seq = message.lease, message.lane, message.seq
    if lease is None:
        return Settled(Verdict.ALREADY, unacked=acks and died)
    if lease.was_lost(lane, seq):
        # A lease that lost the message, to a seek for example, did not settle it.
        return Settled(Verdict.STALE)
    dropped = lease.grp == message.grp and lease.was_dropped(lane, seq)
    ended = lease.was_granted(lane, seq) and ended_by_settling(lease)
    return Settled(Verdict.ALREADY, lease_ended=ended, unacked=acks and (died or dropped))


# how a lease ended


def ended_by_settling(lease: Lease, *, whole: bool = False) -> bool:
    """Whether settlements ended the lease. `whole` also counts a lease that was returned at once."""
    return lease.ended_at is not None and (
        lease.end_kind in (SETTLED, BURIED) or (whole and lease.end_kind == RETURNED)
    )


def whole_end_kind(verdict: Verdict) -> str:
    """How a lease ends that is settled as a whole."""
    return {Verdict.ACKED: SETTLED, Verdict.DEAD: BURIED}.get(verdict, RETURNED)


def told_ends(ranges: Iterable[NumberedRange], answers: Mapping[int, Settled]) -> list[int]:
    """Numbers of the answers that report an ended lease.

    These are settlements of a lease that has ended, and `already` answers of a lease that settlements ended.
    """
    return [
        number
        for number, leased in ranges
        if leased.lease.ended_at is not None
        and (
            answers[number].verdict in SETTLING
            or (
                answers[number].verdict is Verdict.ALREADY
                and ended_by_settling(leased.lease, whole=leased.lane is None)
            )
        )
    ]


def refuse_extension(lease: Lease | None, now: int) -> Extended | None:
    """The refusal to extend a lease. None if the lease lives."""
    if lease is None:
        return Extended(Verdict.UNKNOWN, None)
    if lease.live(now):
        return None
    settled = ended_by_settling(lease) and not lease.lost
    # A lease that ended before schema 5 did not record what it returned; it answers `already`.
    return Extended(Verdict.ALREADY if settled and not lease.returned else Verdict.STALE, None, settled)
