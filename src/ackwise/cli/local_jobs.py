"""Reports without Spark: the rows of `lag`, `metrics` and `dlq report`, read page by page in this process."""

from __future__ import annotations

import math
from collections.abc import Iterator
from datetime import datetime
from typing import TYPE_CHECKING

from ackwise.cli.message_lines import payload_json
from ackwise.core.error_kinds import error_kind
from ackwise.core.queries import GetQueue, ListDead, ListGroups, ListPlaces, ReadLedger
from ackwise.core.rows import DeadLetter, GroupStats, LedgerRow, Place
from ackwise.core.validation import MICROS, Seconds
from ackwise.spark.reports.summaries import (
    FAILED,
    LONGEST_EXAMPLE,
    MINUTE,
    MOST_ERRORS,
    OUTCOMES,
    QUANTILES,
    REDELIVERED,
    DeadLetterSummary,
    Row,
    step_for,
    summed,
    window_seconds,
)
from ackwise.wire.timestamps import instant, instant_or_none, moment

if TYPE_CHECKING:
    from ackwise.client.transport import Transport

PAGE = 1000
_LEDGER_PAGE = 10_000


def lag(
    transport: Transport,
    queue: str | None,
    group: str | None,
    now: datetime,
    *,
    partitions: bool = False,
    minutes: int,
) -> list[Row]:
    """Unfinished messages of each group, the age of the oldest, and an estimate of the time left."""
    if queue is not None:
        transport.ask(GetQueue(queue=queue))
    if partitions:
        rows = [
            {"queue": place.queue, "group": place.group, "partition": place.partition, **_behind(place, now)}
            for place in _places(transport, queue, group)
        ]
        return sorted(rows, key=lambda row: (-row["lag"], row["queue"], row["group"], row["partition"]))
    rates = _ack_rates(transport, queue, group, now, minutes)
    rows = []
    for stats in _groups(transport, queue, group):
        rate = rates.get((stats.queue, stats.group))
        left = 0.0 if not stats.lag else None if not rate else stats.lag / rate
        row = {"queue": stats.queue, "group": stats.group, **_behind(stats, now)}
        rows.append({**row, "ack_rate": rate or 0.0, "drain_seconds": left})
    return sorted(rows, key=lambda row: (-row["lag"], row["queue"], row["group"]))


def _behind(row: GroupStats | Place, now: datetime) -> Row:
    values = {"lag": row.lag, "unread": row.unread, "held": row.held}
    oldest = row.oldest_unfinished_at
    age = None if oldest is None else max(0, instant(now, "now") - oldest) / MICROS
    return {**values, "oldest_seconds": age}


def _groups(transport: Transport, queue: str | None, group: str | None) -> Iterator[GroupStats]:
    """Groups that have read a partition. The Spark engine lists the same groups."""
    query = ListGroups(queue=queue, group=group, limit=PAGE)
    while page := transport.ask(query):
        yield from (row for row in page if row.partitions)
        query.after = (page[-1].queue, page[-1].group)


def _places(transport: Transport, queue: str | None, group: str | None) -> Iterator[Place]:
    query = ListPlaces(queue=queue, group=group, limit=PAGE)
    while page := transport.ask(query):
        yield from page
        query.after = (page[-1].queue, page[-1].group, page[-1].partition)


def _ack_rates(
    transport: Transport, queue: str | None, group: str | None, now: datetime, minutes: int
) -> dict[tuple[str, str], float]:
    """Acks per second of each group, over the last whole minutes and the current minute."""
    until = instant(now, "now") // MICROS
    since = until - until % MINUTE - MINUTE * minutes
    acks: dict[tuple[str, str], int] = {}
    for row in ledger(transport, queue, group, since * MICROS):
        if row.outcome == "acked":
            acks[row.queue, row.group] = acks.get((row.queue, row.group), 0) + row.count
    return {key: count / (until - since) for key, count in acks.items()}


def ledger(
    transport: Transport, queue: str | None, group: str | None, after_at: int | None = None
) -> Iterator[LedgerRow]:
    """The ledger, oldest minute first."""
    query = ReadLedger(queue=queue, group=group, after_at=after_at, limit=_LEDGER_PAGE)
    while page := transport.ask(query):
        yield from page
        query.after = (page[-1].minute, page[-1].queue, page[-1].group, page[-1].outcome)


# metrics


class _Window:
    """Settlements of one group in one time window."""

    def __init__(self) -> None:
        self.counts = dict.fromkeys(OUTCOMES, 0)
        self.latency: dict[int, int] = {}

    def add(self, row: LedgerRow) -> None:
        self.counts[row.outcome] += row.count
        if row.outcome == "acked":
            for bound, count in row.latency.items():
                self.latency[bound] = self.latency.get(bound, 0) + count

    def quantile(self, share: float) -> float | None:
        """The bound of the bucket in which the quantile lies."""
        rank, below = math.ceil(sum(self.latency.values()) * share), 0
        for bound, count in sorted(self.latency.items()):
            below += count
            if below >= rank:
                return bound / MICROS
        return None


def metrics(
    transport: Transport,
    queue: str | None,
    group: str | None,
    now: datetime,
    *,
    window: Seconds,
    since: datetime | None,
    until: datetime | None,
) -> list[Row]:
    """Settlements per queue, group and window: counts, rates per second, shares, latencies in seconds."""
    step = window_seconds(window)
    if queue is not None:
        transport.ask(GetQueue(queue=queue))
    over = instant(now, "now") // MICROS
    first, last = instant_or_none(since, "since"), instant_or_none(until, "until")
    begin = None if first is None else first // MICROS - first // MICROS % step
    end = None if last is None else last // MICROS
    windows: dict[tuple[str, str, int], _Window] = {}
    for row in ledger(transport, queue, group, None if begin is None else begin * MICROS):
        minute = row.minute // MICROS
        outside = (begin is not None and minute < begin) or (end is not None and minute >= end)
        if row.group and row.outcome in OUTCOMES and not outside:
            windows.setdefault((row.queue, row.group, minute - minute % step), _Window()).add(row)
    over = over if end is None else min(over, end)
    return [_measured(*key, windows[key], step, over) for key in sorted(windows)]


def _measured(queue: str, group: str, start: int, window: _Window, step: int, over: int) -> Row:
    counts = window.counts
    # A store's clock may be ahead of this machine's.
    lasted = min(over - start, step) if start < over else step
    redelivered = sum(counts[name] for name in REDELIVERED)
    return {
        "queue": queue,
        "group": group,
        "window_start": moment(start * MICROS),
        "window_end": moment((start + step) * MICROS),
        **counts,
        "ack_rate": _share(counts["acked"], lasted),
        "success_rate": _share(counts["acked"], counts["acked"] + sum(counts[name] for name in FAILED)),
        "redelivery_rate": _share(redelivered, counts["acked"] + counts["dead"] + redelivered),
        **{name: window.quantile(share) for name, share in QUANTILES.items()},
    }


def _share(part: int, whole: int) -> float | None:
    return part / whole if whole > 0 else None


# dead letters


def dead_letters(transport: Transport, queue: str | None, group: str | None) -> Iterator[DeadLetter]:
    """Dead letters, newest first."""
    query = ListDead(queue=queue, group=group, limit=PAGE)
    while True:
        page = transport.ask(query)
        yield from page.letters
        if page.next is None:
            return
        query.after = page.next


def dead_letter_report(transport: Transport, queue: str | None, group: str | None) -> list[Row]:
    """Dead letters counted by queue, group, reason and error, the most frequent first."""
    counts: dict[tuple[str, ...], Row] = {}
    for letter in dead_letters(transport, queue, group):
        error = error_kind(letter.error)
        key = (letter.queue, letter.group, letter.reason, error)
        names = {"queue": letter.queue, "group": letter.group, "reason": letter.reason, "error": error}
        _count(counts, key, names, letter)
    return _sorted(counts)


def _count(counts: dict[tuple[str, ...], Row], key: tuple[str, ...], names: Row, letter: DeadLetter) -> Row:
    at = moment(letter.dead_at)
    row = counts.setdefault(key, {**names, "count": 0, "first_at": at, "last_at": at})
    row["count"] += 1
    row["first_at"], row["last_at"] = min(row["first_at"], at), max(row["last_at"], at)
    return row


def _sorted(counts: dict[tuple[str, ...], Row]) -> list[Row]:
    return [counts[key] for key in sorted(counts, key=lambda key: (-counts[key]["count"], key))]


def summarised(transport: Transport, queue: str | None, group: str | None, made_at: datetime) -> DeadLetterSummary:
    """Data for the HTML report. Reads the dead letters twice, because the time steps depend on the range of times."""
    instants = [letter.dead_at for letter in dead_letters(transport, queue, group)]
    step = step_for((max(instants, default=0) - min(instants, default=0)) / MICROS)
    errors: dict[tuple[str, ...], Row] = {}
    cells: dict[tuple[str, ...], Row] = {}
    newest: dict[tuple[str, ...], tuple[int, str]] = {}
    for letter in dead_letters(transport, queue, group):
        names = {"queue": letter.queue, "group": letter.group, "reason": letter.reason}
        error = error_kind(letter.error)
        key = (*names.values(), error)
        row = _count(errors, key, {**names, "error": error}, letter)
        if newest.get(key, (-1, "")) < (letter.dead_at, letter.id):
            newest[key] = (letter.dead_at, letter.id)
            row["example"] = _example(letter)
        at = letter.dead_at // (step * MICROS) * step * MICROS
        cell = {"queue": letter.queue, "group": letter.group, "at": moment(at), "reason": letter.reason}
        cell_key = (letter.queue, letter.group, f"{at:020d}", letter.reason, letter.error_type)
        _count(cells, cell_key, {**cell, "error_type": letter.error_type}, letter)
    counted = _sorted(cells)
    return DeadLetterSummary(
        queue=queue,
        group=group,
        made_at=made_at,
        errors=_sorted(errors)[:MOST_ERRORS],
        reasons=summed(counted, "reason"),
        error_types=summed(counted, "error_type"),
        times=sorted(summed(counted, "reason", "at"), key=lambda row: row["at"]),
        step=step,
    )


def _example(letter: DeadLetter) -> Row:
    raw, _ = payload_json(letter.payload, letter.content_type)
    return {
        "id": letter.id,
        "partition": letter.partition,
        "transaction_id": letter.transaction_id,
        "error_type": letter.error_type,
        "error_message": letter.error,
        "retry_count": letter.failures,
        "deliveries": letter.deliveries,
        "payload": bytes(raw).decode()[:LONGEST_EXAMPLE],
    }
