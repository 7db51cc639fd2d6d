"""Settle: resolve what an entry names, put together what belongs together, and end it."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from ackwise.core import ids, limits
from ackwise.core.answers import Settled
from ackwise.core.commands import ByDelivery, ByKey, ByLease, ByRange, ByTransaction, Settle, Settlement
from ackwise.core.errors import BadInput
from ackwise.core.messages import QUEUE_MODE
from ackwise.core.settlement import Outcome, Verdict
from ackwise.core.spans import Cursor, Lease
from ackwise.store.turn import catalog, reading, rewind
from ackwise.store.turn.catalog import GroupRow
from ackwise.store.turn.context import Turn
from ackwise.store.turn.ending import BURIED, RETURNED, Ending, Target, ended_by_settling, holding, nobodys

MANY_RUNS = 3
Run = list[tuple[int, Target]]
"""Entries, by number, that are settled as one."""


def check(command: Settle) -> None:
    for entry in command.entries:
        check_entry(entry)


def _plain_ack(entry: Settlement) -> bool:
    told = entry.error is not None or entry.error_type is not None or entry.trace is not None
    return entry.outcome is Outcome.ACK and not (told or entry.delay is not None or entry.undecodable)


def check_entry(entry: Settlement) -> None:
    if type(entry.selector) is ByDelivery and _plain_ack(entry):
        return  # what nearly every entry is
    if not isinstance(entry.outcome, Outcome):
        raise BadInput(f"outcome must be one of ack, retry, reject, release, not {entry.outcome!r}")
    if entry.delay is not None:
        limits.count(entry.delay, "delay", least=0, most=round(limits.MAX_DELAY_SECONDS * limits.MICROS))
    if entry.undecodable and entry.outcome is not Outcome.REJECT:
        raise BadInput("only a reject says that a message is undecodable")
    for what, text in (("error", entry.error), ("error_type", entry.error_type), ("trace", entry.trace)):
        if text is not None and not isinstance(text, str):
            raise BadInput(f"{what} must be a string, not {type(text).__name__}")
    match entry.selector:
        case ByRange(lo=lo, hi=hi):
            limits.count(lo, "lo", least=0, most=1 << 40)
            limits.count(hi, "hi", least=lo + 1, most=1 << 40)
        case ByTransaction(partition_id=part, transaction_id=txid, group=group):
            limits.name(part, "partition_id")
            limits.transaction_id(txid)
            if group is not None:
                limits.name(group, "group")
        case ByKey():
            check_key(entry.selector)
        case ByDelivery() | ByLease():
            pass
        case other:
            raise BadInput(f"{type(other).__name__} names nothing to settle")


def check_key(claim: ByKey) -> None:
    for what, text in (("queue", claim.queue), ("claim key", claim.key), ("group", claim.group)):
        limits.name(text, what)


def settle(turn: Turn, command: Settle) -> list[Settled]:
    """Each entry for itself, or all or nothing: then any refusal but `already` undoes the whole call; if it is strict
    an ack that is none does, too."""
    check(command)
    if not command.atomic or len(command.entries) == 1:
        # One entry is refused before it has touched anything.
        return settle_entries(turn, command.entries)
    turn.savepoint()
    answers = settle_entries(turn, command.entries)
    if not any(refused(answer) or (command.strict and answer.unacked) for answer in answers):
        turn.keep()
        return answers
    turn.undo()
    return [a if not a.verdict.settled else Settled(Verdict.ROLLED_BACK) for a in answers]


def refused(answer: Settled) -> bool:
    return not answer.verdict.settled and answer.verdict is not Verdict.ALREADY


def settle_entries(turn: Turn, entries: list[Settlement]) -> list[Settled]:
    targets = _resolved(turn, entries)
    answers: list[Settled | None] = [t if isinstance(t, Settled) else None for t in targets]
    pairs = [(i, t) for i, t in enumerate(targets) if isinstance(t, Target)]
    for group in _acks_of_a_lane(turn, entries, pairs) or _together(turn, _runs(turn, entries, pairs)):
        for index, answer in _settle_together(turn, entries, group):
            answers[index] = answer
    _yield(turn, entries, [(i, t, a) for i, t in pairs if (a := answers[i]) is not None])
    for index, target in pairs:
        ended = answers[index]
        if ended is not None and ended.lease_ended and isinstance(entries[index].selector, ByTransaction):
            ended.lease_id = ids.lease_id(target.lease.no, target.lease.tag)
    return [a for a in answers if a is not None]


def _yield(turn: Turn, entries: list[Settlement], done: list[tuple[int, Target, Settled]]) -> None:
    """Leases that were claimed so give back the rest of a partition in which something failed, last of all."""
    for index, target, answer in done:
        lease = target.lease
        if lease.yields and target.lane is not None and answer.verdict.settled:
            held = holding(turn, lease)
            if entries[index].outcome is not Outcome.ACK and held is not None and lease.live(turn.now):
                rewind.give_back_partition(turn, held, target)
            answer.lease_ended = answer.lease_ended or lease.ended_at is not None


def _acks_of_a_lane(turn: Turn, entries: list[Settlement], pairs: list[tuple[int, Target]]) -> list[list[Run]]:
    """All of them, if they are what acks of many callers nearly always are: of one lane, under one lease."""
    if len(pairs) < MANY_RUNS:
        return []
    lease, lane = pairs[0][1].lease, pairs[0][1].lane
    if lane is None or _rewinds(turn, lease):
        return []
    for index, target in pairs:
        if target.lease is not lease or target.lane != lane or entries[index].outcome is not Outcome.ACK:
            return []
    return [[[pair] for pair in pairs]]


def _runs(turn: Turn, entries: list[Settlement], pairs: list[tuple[int, Target]]) -> list[Run]:
    """Entries that are settled together: neighbours acked alike, or all of one lane where a failure rewinds it."""
    runs: list[Run] = []
    rewinds: dict[tuple[int, int, int], Run] = {}
    for index, target in pairs:
        held = holding(turn, target.lease)
        if held is not None and held.policy.on_failure == "rewind" and target.lane is not None:
            key = (target.lease.no, target.lease.grp, target.lane)
            if key not in rewinds:
                rewinds[key] = []
                runs.append(rewinds[key])
            rewinds[key].append((index, target))
        elif runs and _follows(entries, runs[-1], index, target):
            runs[-1].append((index, target))
        else:
            runs.append([(index, target)])
    return runs


def _follows(entries: list[Settlement], run: Run, index: int, target: Target) -> bool:
    before, last = run[-1]
    return (
        entries[index].outcome is Outcome.ACK
        and entries[before].outcome is Outcome.ACK
        and (last.lease.no, last.lease.grp) == (target.lease.no, target.lease.grp)
        and last.lane == target.lane is not None
        and last.hi == target.lo
    )


def _together(turn: Turn, runs: list[Run]) -> Iterator[list[Run]]:
    """Runs in one lane under one lease, wherever they stand. Who has the last entry comes last, settles last, and is
    told that the lease has ended; if that entry was refused it is told to another one of its lane."""
    groups: dict[tuple[int, int], list[Run]] = {}
    for run in runs:
        target = run[0][1]
        if target.lane is None or _rewinds(turn, target.lease):
            yield from groups.values()
            groups.clear()
            yield [run]
        else:
            key = (id(target.lease), target.lane)
            group = groups[key] = groups.pop(key, [])
            group.append(run)
    yield from groups.values()


def _in_order(entries: list[Settlement], group: list[Run]) -> list[Run]:
    """Acks of many callers come in any order. If no two name the same message they are settled in the lane's order, in
    which neighbours are one run."""
    if len(group) < MANY_RUNS or any(entries[run[0][0]].outcome is not Outcome.ACK for run in group):
        return group
    found = sorted((pair for run in group for pair in run), key=lambda pair: pair[1].lo)
    runs: list[Run] = [[found[0]]]
    for pair in found[1:]:
        behind = runs[-1][-1][1].hi
        if pair[1].lo < behind:
            return group
        if pair[1].lo == behind:
            runs[-1].append(pair)
        else:
            runs.append([pair])
    return runs


def _rewinds(turn: Turn, lease: Lease) -> bool:
    held = holding(turn, lease)
    return held is not None and held.policy.on_failure == "rewind"


def _settle_together(turn: Turn, entries: list[Settlement], group: list[Run]) -> Iterator[tuple[int, Settled]]:
    lease, lane = group[0][0][1].lease, group[0][0][1].lane
    if _rewinds(turn, lease):
        (run,) = group
        yield from zip((index for index, _ in run), _rewound(turn, entries, run), strict=True)
        return
    ending = Ending.of(turn, lease, [target for run in group for _, target in run])
    last: list[Settled] = []
    told = -1
    for run in _in_order(entries, group):
        whole = Target(lease, lane, run[0][1].lo, run[-1][1].hi)
        if ending is None:
            answers = [Settled(Verdict.STALE) for _ in run]
        elif len(run) > 1 and lease.live(turn.now) and ending.in_one_span(whole):
            ending.settle(whole, entries[run[0][0]])
            answers = [Settled(Verdict.ACKED, target.hi - target.lo) for _, target in run]
            if (latest := max(index for index, _ in run)) > told:
                last, told = answers, latest
        else:
            answers = [ending.settle(target, entries[index]) for index, target in run]
            for (index, _), answer in zip(run, answers, strict=True):
                if answer.verdict.settled and index > told:
                    last, told = [answer], index
        yield from zip((index for index, _ in run), answers, strict=True)
    if ending is not None and ending.close():
        for answer in last:
            answer.lease_ended = True


def _rewound(turn: Turn, entries: list[Settlement], run: Run) -> list[Settled]:
    lease, lane = run[0][1].lease, run[0][1].lane
    held = holding(turn, lease)
    assert held is not None
    if lane is not None:
        return rewind.settle_lane(turn, held, [(entries[index], target) for index, target in run])
    return [rewind.fail_lease(turn, held, lease, entries[index]) for index, _ in run]


def went_along(turn: Turn, entries: list[Settlement], answers: list[Settled]) -> list[int]:
    """Entries that are stale because another of them, which was done before, took them along: where a failure rewinds
    the lane, whoever did all of it before was told that it is done."""
    failed: dict[tuple[int, int | None], int] = {}
    stale: list[tuple[int, Target, Settlement]] = []
    for index, (entry, answer) in enumerate(zip(entries, answers, strict=True)):
        target = _meant(turn, entry)
        if target is None or not target.lease.returned or not _rewinds(turn, target.lease):
            continue
        if answer.verdict is Verdict.STALE:
            stale.append((index, target, entry))
        elif answer.verdict is Verdict.ALREADY and _took_along(entry, target):
            where = (target.lease.no, target.lane)
            failed[where] = min(target.lo, failed.get(where, target.lo))
    return [index for index, target, entry in stale if _was_taken_along(entry, target, failed)]


def _took_along(entry: Settlement, target: Target) -> bool:
    """Whether what was granted behind it went back: not if it was acked before another one failed."""
    lane, lease = target.lane, target.lease
    behind = (max(lo, target.hi) for where, lo, hi in lease.granted if where == lane and hi > target.hi)
    following = next(behind, None)
    if entry.outcome is Outcome.ACK or lane is None or following is None:
        return False
    return lease.was_lost(lane, following)


def _was_taken_along(entry: Settlement, target: Target, failed: dict[tuple[int, int | None], int]) -> bool:
    if target.lane is None:
        # All of the lease failed at once: each partition lost what was behind its first message.
        return entry.outcome is not Outcome.ACK and target.lease.end_kind in (RETURNED, BURIED)
    first = failed.get((target.lease.no, target.lane))
    return first is not None and first <= target.lo


def _meant(turn: Turn, entry: Settlement) -> Target | None:
    """What an entry named of its lease, whatever has become of that."""
    if not isinstance(entry.selector, ByTransaction):
        target = resolve(turn, entry)
        return target if isinstance(target, Target) else None
    place = _find_by_ids(turn, entry.selector)
    named = None if place is None else place.named
    if place is None or named is None or named.grp != place.group.id or not named.was_granted(place.lane, place.seq):
        return None
    return Target(named, place.lane, place.seq, place.seq + 1)


def _resolved(turn: Turn, entries: list[Settlement]) -> list[Target | Settled]:
    """What all selectors mean. Deliveries of one lane under one lease differ only in what follows the last point."""
    found: list[Target | Settled] = []
    alike: dict[str, Target] = {}
    for entry in entries:
        text = entry.selector.delivery_id if type(entry.selector) is ByDelivery else None
        head, _, tail = text.rpartition(".") if isinstance(text, str) else ("", "", "")
        known = alike.get(head)
        seq = None if known is None else ids.parse_seq(tail)
        if known is not None and seq is not None:
            granted = known.lane is not None and known.lease.was_granted(known.lane, seq)
            found.append(Target(known.lease, known.lane, seq, seq + 1) if granted else Settled(Verdict.UNKNOWN))
            continue
        found.append(target := resolve(turn, entry))
        if head and isinstance(target, Target):
            alike[head] = target
    return found


def resolve(turn: Turn, entry: Settlement) -> Target | Settled:
    """What the selector means, or the refusal."""
    match entry.selector:
        case ByDelivery(delivery_id=text):
            key = ids.parse_delivery_id(text)
            lease = turn.lease(key.lease) if key else None
            if key is None or lease is None or lease.tag != key.tag or not lease.was_granted(key.lane, key.seq):
                return Settled(Verdict.UNKNOWN)
            return Target(lease, key.lane, key.seq, key.seq + 1)
        case ByRange(lease_id=text, lane=lane, lo=lo, hi=hi, whole=whole):
            lease = find_lease(turn, text)
            if lease is None or not any(at == lane and a < hi and lo < b for at, a, b in lease.granted):
                return Settled(Verdict.UNKNOWN)
            return Target(lease, lane, lo, hi, whole)
        case ByLease(lease_id=text):
            lease = find_lease(turn, text)
            return Settled(Verdict.UNKNOWN) if lease is None else Target(lease, None)
        case ByKey():
            lease = find_claim(turn, entry.selector)
            return Settled(Verdict.UNKNOWN) if lease is None else Target(lease, None)
        case ByTransaction():
            return _resolve_transaction(turn, entry.selector, acks=entry.outcome is Outcome.ACK)


def find_lease(turn: Turn, text: str) -> Lease | None:
    key = ids.parse_lease_id(text)
    lease = turn.lease(key[0]) if key else None
    return lease if lease is not None and key is not None and lease.tag == key[1] else None


def find_claim(turn: Turn, claim: ByKey) -> Lease | None:
    """The lease of the claim that was made under a key; its number is the newest of those it had."""
    queue = catalog.find_queue(turn.session, claim.queue)
    group = catalog.find_group(turn.session, queue, claim.group) if queue is not None else None
    return turn.lease_of_claim(group.id, claim.key) if group is not None else None


class _Place(msgspec.Struct, frozen=True):
    """Where a message is that was named by its ids, for which group, and under which lease if that was named, too."""

    group: GroupRow
    named: Lease | None
    lane: int
    seq: int


def _find_by_ids(turn: Turn, selector: ByTransaction) -> _Place | None:
    """None if the group was never handed it."""
    part = turn.session.row("part_by_uuid", {"uuid": selector.partition_id})
    named = find_lease(turn, selector.lease_id) if selector.lease_id is not None else None
    group = _group_of(turn, part[1], selector.group, named) if part else None
    if part is None or group is None:
        return None
    cursors = [Cursor(*row) for row in turn.session.rows("cursors_of_part", {"part": part[0], "grp": group.id})]
    where = reading.find_by_transaction(turn, part[0], selector.transaction_id)
    if where is None:
        where = _held_ids(turn, part[0], group.id, cursors).get(selector.transaction_id)
    cursor = next((c for c in cursors if where is not None and c.lane == where[0]), None)
    if where is None or cursor is None or where[1] >= cursor.next:
        return None
    return _Place(group, named, *where)


def _resolve_transaction(turn: Turn, selector: ByTransaction, *, acks: bool) -> Target | Settled:
    place = _find_by_ids(turn, selector)
    if place is None:
        return Settled(Verdict.STALE if _names_wrong_lease(turn, selector) else Verdict.UNKNOWN)
    group, named, lane, seq = place.group, place.named, place.lane, place.seq
    spans = turn.spans("span_across", lane=lane, grp=group.id, hi=seq)
    if not spans or spans[0].lo > seq:
        # What its lease lost, to a seek for example, was not settled by it.
        if named is not None and named.was_lost(lane, seq):
            return Settled(Verdict.STALE)
        where_dead = {"lane": lane, "grp": group.id, "lo": seq, "hi": seq + 1}
        dropped = named is not None and named.grp == group.id and named.was_dropped(lane, seq)
        died = acks and (dropped or turn.session.row("dead_any", where_dead) is not None)
        ended = named is not None and named.was_granted(lane, seq) and ended_by_settling(named)
        return Settled(Verdict.ALREADY, lease_ended=ended, unacked=died)
    holder = turn.lease(spans[0].lease) if spans[0].lease is not None else None
    if selector.unheld and selector.lease_id is None and (holder is None or not holder.live(turn.now)):
        return _unheld(turn, group, holder, lane, seq)
    if holder is None or (selector.lease_id is not None and (named is None or named.no != holder.no)):
        if acks or selector.fenced or named is None or named.grp != group.id or not named.was_granted(lane, seq):
            return Settled(Verdict.STALE)
        # As by its delivery: what this very lease failed or gave back before is `already`.
        return Target(named, lane, seq, seq + 1)
    return Target(holder, lane, seq, seq + 1)


def _names_wrong_lease(turn: Turn, selector: ByTransaction) -> bool:
    """Whether a message exists, but the lease that names its group does not."""
    if selector.lease_id is None or selector.group is not None or find_lease(turn, selector.lease_id) is not None:
        return False
    part = turn.session.row("part_by_uuid", {"uuid": selector.partition_id})
    return part is not None and reading.find_by_transaction(turn, part[0], selector.transaction_id) is not None


def _held_ids(turn: Turn, part: int, grp: int, cursors: list[Cursor]) -> dict[str, tuple[int, int]]:
    """Where the messages are that a group was handed in a partition, for ids that dedupe has forgotten.

    Read once per turn: a call may name any number of ids that nobody knows.
    """
    key = (part, grp)
    if key not in turn.held_ids:
        spans = [s for c in cursors if c.held for s in turn.spans("spans_of_cursor", lane=c.lane, grp=grp)]
        turn.held_ids[key] = reading.ids_in_spans(turn.session, spans)
    return turn.held_ids[key]


def _unheld(turn: Turn, group: GroupRow, holder: Lease | None, lane: int, seq: int) -> Target:
    """A message that waits for its next delivery, or whose lease ran out and was not yet swept: as if that had not."""
    if holder is None:
        return nobodys(turn, group, lane, seq)
    return Target(msgspec.structs.replace(holder, deadline=turn.now + 1), lane, seq, seq + 1)


def _group_of(turn: Turn, queue: int, name: str | None, lease: Lease | None) -> GroupRow | None:
    if name is None and lease is not None:
        row = turn.session.row("group_by_id", {"id": lease.grp})
        return catalog.group_from(row) if row and row[1] == queue else None
    row = turn.session.row("group_by_name", {"queue": queue, "name": name or QUEUE_MODE})
    return catalog.group_from(row) if row else None
