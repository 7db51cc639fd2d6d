"""Finds the lease and range that a selector names."""

from __future__ import annotations

from collections.abc import Sequence

from ackwise.core import ids, refusals
from ackwise.core.answers import Settled
from ackwise.core.commands import ByDelivery, ByKey, ByLease, ByRange, ByTransaction, Settlement
from ackwise.core.ids import GroupId, LaneId, Seq
from ackwise.core.lane_range import LaneRange
from ackwise.core.messages import QUEUE_MODE
from ackwise.core.refusals import NamedMessage
from ackwise.core.settlement import Outcome, Verdict
from ackwise.core.spans import Cursor, Lease, LeasedRange, NumberedRange
from ackwise.engine import catalog, segment_reads
from ackwise.engine.catalog import GroupRow
from ackwise.engine.span_settlement import Answers
from ackwise.engine.turn import Turn

Resolved = LeasedRange | Settled | Verdict
"""The range that a selector names, or the refusal."""


def resolve_all(turn: Turn, entries: Sequence[Settlement], answers: Answers) -> list[NumberedRange]:
    """The ranges that entries name, with the numbers of the entries. Writes refusals into `answers`."""
    ranges: list[NumberedRange] = []
    for number, resolved in enumerate(_resolve_each(turn, entries)):
        if isinstance(resolved, LeasedRange):
            ranges.append((number, resolved))
        else:
            answers[number] = resolved if isinstance(resolved, Settled) else Settled(resolved)
    return ranges


def _resolve_each(turn: Turn, entries: Sequence[Settlement]) -> list[Resolved]:
    """Resolve entries in their order.

    Delivery ids of one lane and lease differ only after the last dot. Only the first of them is parsed in full.
    """
    resolved: list[Resolved] = []
    by_prefix: dict[str, tuple[Lease, LaneId]] = {}
    for entry in entries:
        text = entry.selector.delivery_id if type(entry.selector) is ByDelivery else None
        prefix, _, tail = text.rpartition(".") if isinstance(text, str) else ("", "", "")
        known = by_prefix.get(prefix)
        if known is None or (seq := ids.parse_seq(tail)) is None:
            resolved.append(leased := resolve(turn, entry))
            if prefix and isinstance(leased, LeasedRange) and leased.lane is not None:
                by_prefix[prefix] = (leased.lease, leased.lane)
        else:
            resolved.append(refusals.message_range(*known, seq))
    return resolved


def resolve(turn: Turn, entry: Settlement) -> Resolved:
    match entry.selector:
        case ByDelivery(delivery_id=text):
            key = ids.parse_delivery_id(text)
            return refusals.delivery_range(turn.lease(key.lease) if key is not None else None, key)
        case ByRange(lease_id=text, lane=lane, lo=lo, hi=hi, whole=whole):
            return refusals.named_range(find_lease(turn, text), LaneRange(LaneId(lane), lo, hi), whole=whole)
        case ByLease(lease_id=text):
            return refusals.whole_lease(find_lease(turn, text))
        case ByKey():
            return refusals.whole_lease(find_claim(turn, entry.selector))
        case ByTransaction():
            return _resolve_transaction(turn, entry.selector, acks=entry.outcome is Outcome.ACK)


def named_by(turn: Turn, entry: Settlement) -> LeasedRange | None:
    """The range that an entry names of its lease, also if the lease no longer holds it."""
    if not isinstance(entry.selector, ByTransaction):
        leased = resolve(turn, entry)
        return leased if isinstance(leased, LeasedRange) else None
    message = _find_by_ids(turn, entry.selector)
    if message is None or message.lease is None or not message.was_granted:
        return None
    return message.under(message.lease)


def find_lease(turn: Turn, text: str) -> Lease | None:
    """The lease with this id. None if the id is malformed or its tag is wrong."""
    key = ids.parse_lease_id(text)
    lease = turn.lease(key[0]) if key is not None else None
    return lease if lease is not None and key is not None and lease.tag == key[1] else None


def find_claim(turn: Turn, claim: ByKey) -> Lease | None:
    """The newest lease of the claim with this key."""
    queue = catalog.find_queue(turn.session, claim.queue)
    group = catalog.find_group(turn.session, queue, claim.group) if queue is not None else None
    return turn.lease_of_claim(group.id, claim.key) if group is not None else None


# transaction ids


def _resolve_transaction(turn: Turn, selector: ByTransaction, *, acks: bool) -> Resolved:
    message = _find_by_ids(turn, selector)
    if message is None:
        return refusals.undelivered(wrong_lease=_names_wrong_lease(turn, selector))
    lane, grp, seq = message.lane, message.grp, message.seq
    spans = turn.spans("span_across", lane=lane, grp=grp, hi=seq)
    if not spans or spans[0].lo > seq:
        where = {"lane": lane, "grp": grp, "lo": seq, "hi": seq + 1}
        return refusals.finished(message, acks=acks, died=acks and turn.session.row("dead_any", where) is not None)
    holder = turn.lease(spans[0].lease) if spans[0].lease is not None else None
    return refusals.held_range(message, selector, holder, acks=acks, now=turn.now)


def _find_by_ids(turn: Turn, selector: ByTransaction) -> NamedMessage | None:
    """The message that a selector names. None if the group never received the message."""
    part = turn.session.row("part_by_uuid", {"uuid": selector.partition_id})
    named = find_lease(turn, selector.lease_id) if selector.lease_id is not None else None
    group = _group_of(turn, part[1], selector.group, named) if part else None
    if part is None or group is None:
        return None
    cursors = [Cursor(*row) for row in turn.session.rows("cursors_of_part", {"part": part[0], "grp": group.id})]
    where = segment_reads.find_by_transaction(turn, part[0], selector.transaction_id)
    if where is None:
        where = _held_ids(turn, part[0], group.id, cursors).get(selector.transaction_id)
    cursor = next((c for c in cursors if where is not None and c.lane == where[0]), None)
    if where is None or cursor is None or where[1] >= cursor.next:
        return None
    return NamedMessage(group.queue, group.id, *where, named)


def _names_wrong_lease(turn: Turn, selector: ByTransaction) -> bool:
    """Whether the message exists, but the lease that should name its group does not."""
    if selector.lease_id is None or selector.group is not None or find_lease(turn, selector.lease_id) is not None:
        return False
    part = turn.session.row("part_by_uuid", {"uuid": selector.partition_id})
    return part is not None and segment_reads.find_by_transaction(turn, part[0], selector.transaction_id) is not None


def _held_ids(turn: Turn, part: int, grp: GroupId, cursors: list[Cursor]) -> dict[str, tuple[LaneId, Seq]]:
    """(lane, seq) of the messages that a group holds in a partition, for ids that dedupe has forgotten.

    The turn reads them once, because a call may name any number of unknown ids.
    """
    key = (part, grp)
    if key not in turn.held_ids:
        spans = [s for c in cursors if c.held for s in turn.spans("spans_of_cursor", lane=c.lane, grp=grp)]
        turn.held_ids[key] = segment_reads.ids_in_spans(turn.session, spans)
    return turn.held_ids[key]


def _group_of(turn: Turn, queue: int, name: str | None, lease: Lease | None) -> GroupRow | None:
    """The named group, the group of the lease, or the group of plain consumers."""
    if name is None and lease is not None:
        row = turn.session.row("group_by_id", {"id": lease.grp})
        return catalog.group_from(row) if row and row[1] == queue else None
    row = turn.session.row("group_by_name", {"queue": queue, "name": name or QUEUE_MODE})
    return catalog.group_from(row) if row else None
