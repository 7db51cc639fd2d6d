"""Counts and rates of queues, for `ackwise queue list` and `ackwise top`."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, Any

from ackwise.cli.output import fields_of

if TYPE_CHECKING:
    from ackwise.client import Connection

PAGE = 500
_LEDGER_PAGE = 10_000
_MINUTE = 60_000_000
_RATES = {"pushed": "pushed_rate", "acked": "acked_rate", "retried": "failed_rate", "dead": "dead_rate"}


def now_of(connection: Connection) -> datetime:
    """The time of the store."""
    from ackwise.wire.timestamps import moment

    transport = connection.transport
    return moment(transport.wall_of(transport.now()))


def queue_rows(connection: Connection, limit: int, minutes: int) -> list[dict[str, Any]]:
    """Queues by name with their settings, counts, and rates per second over the last `minutes`."""
    from ackwise.client.results import QueueInfo, as_result
    from ackwise.core.queries import ListStats

    rates = _rates(connection, minutes)
    rows: list[dict[str, Any]] = []
    after = ""
    while len(rows) < limit:
        page = connection.transport.ask(ListStats(after=after, limit=min(PAGE, limit - len(rows))))
        for summary in page:
            stats, name = summary.stats, summary.info.name
            group = stats.furthest_behind
            rows.append(
                {
                    **fields_of(as_result(summary.info, QueueInfo)),
                    "messages": stats.messages,
                    "pending": stats.pending,
                    "processing": stats.processing,
                    "scheduled": stats.scheduled,
                    "dead": stats.dead,
                    "groups": len(stats.groups),
                    "lag": stats.messages if group is None else group.lag,
                    **{field: rates.get((name, field), 0.0) for field in _RATES.values()},
                }
            )
        if not page:
            break
        after = page[-1].info.name
    return rows


def _rates(connection: Connection, minutes: int) -> dict[tuple[str, str], float]:
    """Events per second by queue and field, from the ledger: the last whole minutes and the current minute."""
    from ackwise.core.queries import ReadLedger

    transport = connection.transport
    until = transport.wall_of(transport.now())
    since = until - until % _MINUTE - minutes * _MINUTE
    counts: dict[tuple[str, str], int] = {}
    after: tuple[int, str, str, str] | None = None
    while page := transport.ask(ReadLedger(after_at=since, after=after, limit=_LEDGER_PAGE)):
        for row in page:
            if (field := _RATES.get(row.outcome)) is not None:
                counts[row.queue, field] = counts.get((row.queue, field), 0) + row.count
        last = page[-1]
        after = (last.minute, last.queue, last.group, last.outcome)
    return {key: count * 1_000_000 / (until - since) for key, count in counts.items()}
