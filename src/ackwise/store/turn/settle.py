"""Settle: resolve what an entry names, ask the core what becomes of it, cut the spans, end the leases."""

from __future__ import annotations

import msgspec

from ackwise.core import ids, limits
from ackwise.core.answers import Settled
from ackwise.core.commands import ByDelivery, ByLease, ByRange, ByTransaction, Settle, Settlement
from ackwise.core.errors import BadInput
from ackwise.core.lifecycle import State
from ackwise.core.messages import QUEUE_MODE
from ackwise.core.policy import QueuePolicy
from ackwise.core.settlement import Attempt, Fate, Outcome, Reason, Verdict, on_expiry, on_reject, on_release, on_retry
from ackwise.core.spans import Cursor, Lease, Span, cut, merge_ranges
from ackwise.store.turn import catalog, dead, places, reading
from ackwise.store.turn.catalog import GroupRow, QueueRow
from ackwise.store.turn.context import Turn


class Target(msgspec.Struct, frozen=True):
    """Messages [lo, hi) of a lane under a lease; `lane` None means everything the lease holds."""

    lease: Lease
    lane: int | None
    lo: int = 0
    hi: int = 0


class Holding(msgspec.Struct, frozen=True):
    """The queue, group and policy that decide about a lease."""

    queue: QueueRow
    group: GroupRow
    policy: QueuePolicy


def check(command: Settle) -> None:
    for entry in command.entries:
        check_entry(entry)


def check_entry(entry: Settlement) -> None:
    if not isinstance(entry.outcome, Outcome):
        raise BadInput(f"outcome must be one of ack, retry, reject, release, not {entry.outcome!r}")
    if entry.delay is not None:
        limits.count(entry.delay, "delay", least=0, most=round(limits.MAX_DELAY_SECONDS * limits.MICROS))
    for what, text in (("error", entry.error), ("error_type", entry.error_type)):
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
        case ByDelivery() | ByLease():
            pass
        case other:
            raise BadInput(f"{type(other).__name__} names nothing to settle")


def settle(turn: Turn, command: Settle) -> list[Settled]:
    """Each entry for itself, or all or nothing: then any refusal but `already` undoes the whole call."""
    check(command)
    if not command.atomic:
        return settle_entries(turn, command.entries)
    turn.savepoint()
    answers = settle_entries(turn, command.entries)
    if not any(refused(answer) for answer in answers):
        turn.keep()
        return answers
    turn.undo()
    return [a if not a.verdict.settled else Settled(Verdict.ROLLED_BACK) for a in answers]


def refused(answer: Settled) -> bool:
    return not answer.verdict.settled and answer.verdict is not Verdict.ALREADY


def settle_entries(turn: Turn, entries: list[Settlement]) -> list[Settled]:
    targets = [resolve(turn, entry) for entry in entries]
    answers: list[Settled | None] = [t if isinstance(t, Settled) else None for t in targets]
    pairs = [(i, t) for i, t in enumerate(targets) if isinstance(t, Target)]
    for run in _runs(turn, entries, pairs):
        for index, answer in zip((i for i, _ in run), _settle_run(turn, entries, run), strict=True):
            answers[index] = answer
    return [a for a in answers if a is not None]


def _runs(turn: Turn, entries: list[Settlement], pairs: list[tuple[int, Target]]) -> list[list[tuple[int, Target]]]:
    """Entries that are settled together: neighbours acked alike, or all of one lane where a failure rewinds it."""
    runs: list[list[tuple[int, Target]]] = []
    rewinds: dict[tuple[int, int | None], list[tuple[int, Target]]] = {}
    for index, target in pairs:
        held = holding(turn, target.lease)
        if held is not None and held.policy.on_failure == "rewind" and target.lane is not None:
            key = (target.lease.no, target.lane)
            if key not in rewinds:
                rewinds[key] = []
                runs.append(rewinds[key])
            rewinds[key].append((index, target))
        elif runs and _follows(entries, runs[-1], index, target):
            runs[-1].append((index, target))
        else:
            runs.append([(index, target)])
    return runs


def _follows(entries: list[Settlement], run: list[tuple[int, Target]], index: int, target: Target) -> bool:
    before, last = run[-1]
    return (
        entries[index].outcome is Outcome.ACK
        and entries[before].outcome is Outcome.ACK
        and last.lease.no == target.lease.no
        and last.lane == target.lane is not None
        and last.hi == target.lo
    )


def _settle_run(turn: Turn, entries: list[Settlement], run: list[tuple[int, Target]]) -> list[Settled]:
    target = run[0][1]
    held = holding(turn, target.lease)
    if held is not None and held.policy.on_failure == "rewind":
        if target.lane is not None:
            return _rewind(turn, held, [(entries[i], t) for i, t in run])
        return [_rewind_lease(turn, held, t.lease, entries[i]) for i, t in run]
    if len(run) > 1 and held is not None and target.lease.live(turn.now):
        whole = Target(target.lease, target.lane, target.lo, run[-1][1].hi)
        spans = _spans(turn, held, whole)
        if len(spans) == 1 and spans[0].lo <= whole.lo and whole.hi <= spans[0].hi:
            done = act(turn, whole, entries[run[0][0]])
            return [Settled(Verdict.ACKED, t.hi - t.lo, done.lease_ended) for _, t in run]
    return [act(turn, t, entries[i]) for i, t in run]


def resolve(turn: Turn, entry: Settlement) -> Target | Settled:
    """What the selector means, or the refusal."""
    match entry.selector:
        case ByDelivery(delivery_id=text):
            key = ids.parse_delivery_id(text)
            lease = turn.lease(key.lease) if key else None
            if key is None or lease is None or lease.tag != key.tag or not lease.was_granted(key.lane, key.seq):
                return Settled(Verdict.UNKNOWN)
            return Target(lease, key.lane, key.seq, key.seq + 1)
        case ByRange(lease_id=text, lane=lane, lo=lo, hi=hi):
            lease = find_lease(turn, text)
            if lease is None or not any(at == lane and a < hi and lo < b for at, a, b in lease.granted):
                return Settled(Verdict.UNKNOWN)
            return Target(lease, lane, lo, hi)
        case ByLease(lease_id=text):
            lease = find_lease(turn, text)
            return Settled(Verdict.UNKNOWN) if lease is None else Target(lease, None)
        case ByTransaction():
            return _resolve_transaction(turn, entry.selector)


def find_lease(turn: Turn, text: str) -> Lease | None:
    key = ids.parse_lease_id(text)
    lease = turn.lease(key[0]) if key else None
    return lease if lease is not None and key is not None and lease.tag == key[1] else None


def _resolve_transaction(turn: Turn, selector: ByTransaction) -> Target | Settled:
    part = turn.session.row("part_by_uuid", {"uuid": selector.partition_id})
    named = find_lease(turn, selector.lease_id) if selector.lease_id is not None else None
    group = _group_of(turn, part[1], selector.group, named) if part else None
    if part is None or group is None:
        return Settled(Verdict.UNKNOWN)
    cursors = [Cursor(*row) for row in turn.session.rows("cursors_of_part", {"part": part[0], "grp": group.id})]
    where = reading.find_by_transaction(turn, part[0], selector.transaction_id)
    if where is None:
        spans = [s for c in cursors if c.held for s in turn.spans("spans_of_cursor", lane=c.lane, grp=group.id)]
        where = reading.find_in_spans(turn, spans, selector.transaction_id)
    cursor = next((c for c in cursors if where is not None and c.lane == where[0]), None)
    if where is None or cursor is None or where[1] >= cursor.next:
        return Settled(Verdict.UNKNOWN)
    lane, seq = where
    spans = turn.spans("span_across", lane=lane, grp=group.id, hi=seq)
    if not spans or spans[0].lo > seq:
        return Settled(Verdict.ALREADY)
    holder = turn.lease(spans[0].lease) if spans[0].lease is not None else None
    if holder is None or (selector.lease_id is not None and (named is None or named.no != holder.no)):
        return Settled(Verdict.STALE)
    return Target(holder, lane, seq, seq + 1)


def _group_of(turn: Turn, queue: int, name: str | None, lease: Lease | None) -> GroupRow | None:
    if name is None and lease is not None:
        row = turn.session.row("group_by_id", {"id": lease.grp})
        return catalog.group_from(row) if row and row[1] == queue else None
    row = turn.session.row("group_by_name", {"queue": queue, "name": name or QUEUE_MODE})
    return catalog.group_from(row) if row else None


def holding(turn: Turn, lease: Lease) -> Holding | None:
    """None when the queue or group is gone."""
    known: Holding | None = turn.loaded.get(lease.grp)
    if known is not None:
        return known
    row = turn.session.row("group_by_id", {"id": lease.grp})
    queue = catalog.queue_of_id(turn.session, lease.queue) if row else None
    if row is None or queue is None:
        return None
    group = catalog.group_from(row)
    known = turn.loaded[lease.grp] = Holding(queue, group, group.policy.over(queue.policy))
    return known


def _spans(turn: Turn, held: Holding, target: Target) -> list[Span]:
    """The spans of the lease that the target touches."""
    if target.lane is None:
        return turn.spans("spans_of_lease", lease=target.lease.no)
    where = {"lane": target.lane, "grp": held.group.id}
    spans = turn.spans("spans_inside", **where, lo=target.lo, hi=target.hi) if target.hi - target.lo > 1 else []
    spans += turn.spans("span_across", **where, hi=target.hi if target.hi - target.lo > 1 else target.lo)
    return [s for s in spans if s.lease == target.lease.no and s.lo < target.hi and s.hi > target.lo]


def act(turn: Turn, target: Target, entry: Settlement) -> Settled:
    """Settle what of the target is outstanding."""
    lease = target.lease
    held = holding(turn, lease)
    if held is None:
        return Settled(Verdict.STALE)
    spans = _spans(turn, held, target)
    if not lease.live(turn.now) or not spans:
        return Settled(_refusal(turn, target, spans))
    pieces = [cut(s, target.lo, target.hi) if target.lane is not None else (None, s, None) for s in spans]
    verdicts: dict[Verdict, int] = {}
    reason: Reason | None = None
    took = turn.now - lease.made_at
    cursors: dict[int, Cursor] = {}
    for span, (before, piece, after) in zip(spans, pieces, strict=True):
        cursor = cursors.get(piece.lane) or _cursor(turn, piece)
        cursors[piece.lane] = cursor
        rest = [s for s in (before, after) if s is not None]
        verdict, why = _apply(turn, held, lease, cursor, span, piece, rest, entry)
        verdicts[verdict] = verdicts.get(verdict, 0) + len(piece)
        reason = why or reason
        dropped = verdict is Verdict.DEAD and not held.policy.dead_letters
        word = State.EXPIRED.value if dropped else verdict.value
        turn.count(held.queue.name, held.group.name, word, len(piece), took)
    ended = _let_go(turn, held, lease, cursors)
    died = verdicts.pop(Verdict.DEAD, 0)
    overall = next(iter(verdicts), Verdict.DEAD)
    return Settled(overall, sum(verdicts.values()) + died, ended, None if verdicts else reason, died)


def _cursor(turn: Turn, span: Span) -> Cursor:
    cursor = turn.cursor(span.lane, span.grp)
    assert cursor is not None
    return cursor


def _refusal(turn: Turn, target: Target, spans: list[Span]) -> Verdict:
    """`stale` for what the lease lost or let run out, `already` for what it settled."""
    lease = target.lease
    if lease.ended_at is None and spans:
        return Verdict.STALE
    if target.lane is None:
        return Verdict.STALE if lease.lost else Verdict.ALREADY
    lost = any(lane == target.lane and lo < target.hi and target.lo < hi for lane, lo, hi in lease.lost)
    return Verdict.STALE if lost else Verdict.ALREADY


def attempt_of(lease: Lease, span: Span) -> Attempt:
    return Attempt(span.fails, span.delivs, bool(span.probation), lease.alone, bool(lease.bulk))


def _apply(
    turn: Turn,
    held: Holding,
    lease: Lease,
    cursor: Cursor,
    span: Span,
    piece: Span,
    rest: list[Span],
    entry: Settlement,
) -> tuple[Verdict, Reason | None]:
    """Do to one piece of a span what its fate says."""
    if entry.outcome is Outcome.ACK:
        cursor.held -= len(piece)
        cursor.acked += len(piece)
        turn.replace_span(span, rest)
        return Verdict.ACKED, None
    fate = _fate(turn, held.policy, attempt_of(lease, piece), entry)
    piece.history = dead.add_history(piece.history, turn.now, entry.outcome.value, lease.owner, entry.error)
    finish(turn, held, cursor, span, piece, rest, fate, entry.error or "", entry.error_type or "")
    if fate.state is State.WAITING:
        return (Verdict.RELEASED if entry.outcome is Outcome.RELEASE else Verdict.RETRIED), None
    return Verdict.DEAD, fate.reason


def _fate(turn: Turn, policy: QueuePolicy, attempt: Attempt, entry: Settlement) -> Fate:
    match entry.outcome:
        case Outcome.RELEASE:
            return on_release(policy, attempt, turn.now)
        case Outcome.REJECT:
            return on_reject(policy, attempt)
        case _:
            return on_retry(policy, attempt, turn.now, entry.delay, turn.roll())


def finish(
    turn: Turn,
    held: Holding,
    cursor: Cursor,
    span: Span,
    piece: Span,
    rest: list[Span],
    fate: Fate,
    error: str,
    error_type: str = "",
) -> None:
    """Return a piece to its lane, bury it, or drop it."""
    if fate.state is State.WAITING:
        piece.lease, piece.owner = None, None
        piece.fails, piece.due_at, piece.probation = fate.failures, fate.due_at, int(fate.probation)
        turn.replace_span(span, [piece, *rest])
        return
    size = len(piece)
    cursor.held -= size
    if fate.state is State.DEAD:
        dead.bury(turn, held.queue, held.group, cursor, piece, fate, error, error_type)
        cursor.dead += size
    else:
        cursor.expired += size
    turn.replace_span(span, rest)


def _let_go(turn: Turn, held: Holding, lease: Lease, cursors: dict[int, Cursor], kind: str = "settled") -> bool:
    """Free the lanes that the lease has finished, and end it when it holds nothing more."""
    finished = 0
    for lane, cursor in cursors.items():
        if turn.session.row("span_held_in_lane", {"lease": lease.no, "lane": lane}) is None:
            finished += 1
            _leave_lane(cursor, lease)
        places.refresh(turn, cursor, held.policy, held.queue.name)
    if finished and lease.exclusivity != "none":
        places.open_doors(turn, list(cursors.values()), held.policy, held.queue.name)
    if finished < len(cursors):
        return False
    elsewhere = any(lane not in cursors for lane, _, _ in lease.granted)
    if elsewhere and turn.session.row("span_held", {"lease": lease.no}) is not None:
        return False
    turn.end_lease(lease, kind)
    return True


def _leave_lane(cursor: Cursor, lease: Lease) -> None:
    cursor.leased -= 1
    if lease.exclusivity != "none":
        cursor.exclusive -= 1
        if cursor.exclusive == 0:
            cursor.exclusive_owner = None


def _rewind(turn: Turn, held: Holding, run: list[tuple[Settlement, Target]]) -> list[Settled]:
    """An ack means up to there; the lowest failure ends the lease on this partition and everything from it returns."""
    lowest: int | None = None
    answers: dict[int, Settled] = {}
    for index, (entry, target) in sorted(enumerate(run), key=lambda item: item[1][1].lo):
        if lowest is not None and target.lo > lowest:
            verdict = Verdict.ACKED if entry.outcome is Outcome.ACK else Verdict.RELEASED
            answers[index] = Settled(verdict, 0, True)
        elif entry.outcome is Outcome.ACK:
            whole = Target(target.lease, target.lane, 0, target.hi)
            mine = act(turn, target, entry)
            answers[index] = mine
            if mine.verdict.settled:
                act(turn, whole, entry)
        else:
            answers[index] = act(turn, _lowest(turn, held, target), entry)
            if answers[index].verdict.settled:
                lowest = target.lo
    if lowest is not None:
        _give_back_partition(turn, held, run[0][1])
    return [answers[i] for i in range(len(run))]


def _lowest(turn: Turn, held: Holding, target: Target) -> Target:
    """Of a range that failed only the first outstanding message is to blame."""
    spans = _spans(turn, held, target)
    if not spans:
        return target
    lo = max(target.lo, spans[0].lo)
    return Target(target.lease, target.lane, lo, lo + 1)


def _give_back_partition(turn: Turn, held: Holding, target: Target) -> None:
    """What the lease still holds in the target's partition, in every lane of it, goes back unspent."""
    lanes = {lane for lane, _, _ in target.lease.granted}
    cursors = [cursor for lane in sorted(lanes) if (cursor := turn.cursor(lane, held.group.id)) is not None]
    part = next(cursor.part for cursor in cursors if cursor.lane == target.lane)
    give_back = Settlement(selector=ByLease(""), outcome=Outcome.RELEASE)
    for cursor in cursors:
        if cursor.part == part:
            act(turn, Target(target.lease, cursor.lane, 0, 1 << 40), give_back)


def _rewind_lease(turn: Turn, held: Holding, lease: Lease, entry: Settlement) -> Settled:
    """A whole lease fails: in each partition its first message is to blame and the rest goes back."""
    spans = turn.spans("spans_of_lease", lease=lease.no)
    if entry.outcome in (Outcome.ACK, Outcome.RELEASE) or not lease.live(turn.now) or not spans:
        return act(turn, Target(lease, None), entry)
    answer = Settled(Verdict.ALREADY)
    for lane, lo in sorted({span.lane: span.lo for span in reversed(spans)}.items()):
        (mine,) = _rewind(turn, held, [(entry, Target(lease, lane, lo, lo + 1))])
        if mine.verdict.settled:
            answer = Settled(mine.verdict, answer.count + mine.count, True, mine.reason, answer.dead + mine.dead)
    return msgspec.structs.replace(answer, count=sum(map(len, spans)))


def expire(turn: Turn, lease: Lease, budget: int, kind: str = "expired") -> int:
    """The lease ran out: a failure for each message it still holds. How many it touched; at most `budget` die."""
    held = holding(turn, lease)
    spans = turn.spans("spans_of_lease", lease=lease.no)
    if held is None:
        lease.lost = lease.granted
        turn.end_lease(lease, "void")
        return 0
    lost = [(s.lane, s.lo, s.hi) for s in spans]
    cursors: dict[int, Cursor] = {}
    left = budget
    for span in spans:
        cursor = cursors.get(span.lane) or _cursor(turn, span)
        cursors[span.lane] = cursor
        fate = on_expiry(held.policy, attempt_of(lease, span), turn.now, turn.roll())
        piece, rest = span, []
        if fate.state is State.DEAD and len(span) > left:
            if left == 0:
                continue
            _, piece, after = cut(span, span.lo, span.lo + left)
            rest = [after] if after is not None else []
        else:
            piece = span.part(span.lo, span.hi)
        piece.history = dead.add_history(piece.history, turn.now, "lease_expiry", lease.owner, None)
        finish(turn, held, cursor, span, piece, rest, fate, "lease expired")
        took = turn.now - lease.made_at
        turn.count(held.queue.name, held.group.name, "lease_expired", len(piece), took)
        if fate.state is not State.WAITING:
            turn.count(held.queue.name, held.group.name, fate.state.value, len(piece), took)
        left -= len(piece) if fate.state is State.DEAD else 0
    lease.lost = merge_ranges(lease.lost + lost, places.MOST_LOST_RANGES)
    _let_go(turn, held, lease, cursors, kind)
    return budget - left
