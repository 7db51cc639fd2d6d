"""Queries of Queen's admin routes. They are not part of `POST /v1/ask`."""

from __future__ import annotations

from typing import Any, ClassVar

from ackwise.core import validation
from ackwise.core.queries import Query
from ackwise.core.rows import LedgerSum, LedgerTotal, MaintenanceState, NewestMessages, TraceNames, TraceRow

MOST_NEWEST = 10_000
"""The most messages that a list of the newest messages skips or returns."""


class ListTraces(Query[list[TraceRow]], tag="list_traces"):
    """Traces of a message, oldest first. `after` is the number of the previous page's last trace."""

    LARGEST_LIMIT: ClassVar[int] = 100

    partition_id: str
    transaction_id: str
    after: int = 0
    limit: int = 50


class ListNamedTraces(Query[list[TraceRow]], tag="list_named_traces"):
    """Traces with a name, newest first. `after` is the number of the previous page's last trace."""

    LARGEST_LIMIT: ClassVar[int] = 100

    name: str
    offset: int = 0
    after: int | None = None
    limit: int = 50

    def check(self) -> None:
        super().check()
        validation.name(self.name, "trace name")


class CountNamedTraces(Query[int], tag="count_named_traces"):
    """Number of traces with a name."""

    name: str

    def check(self) -> None:
        validation.name(self.name, "trace name")


class ListTraceNames(Query[TraceNames], tag="list_trace_names"):
    """Names of traces, the name of the newest trace first."""

    LARGEST_LIMIT: ClassVar[int] = 1000

    offset: int = 0
    limit: int = 50


class GetMaintenance(Query[MaintenanceState], tag="get_maintenance"):
    """Queen's maintenance switches. `counted` adds what the spool has."""

    counted: bool = False


class TotalLedger(Query[list[LedgerTotal]], tag="total_ledger"):
    """Counts of the ledger by time bucket and outcome, oldest first. A bucket without a count is absent."""

    after_at: int
    before_at: int
    minutes: int
    queue: str | None = None
    namespace: str | None = None
    task: str | None = None


class SumLedger(Query[list[LedgerSum]], tag="sum_ledger"):
    """Counts of the ledger between two instants, by queue and outcome. `after` is the previous page's last queue."""

    after_at: int
    before_at: int
    queue: str | None = None
    namespace: str | None = None
    task: str | None = None
    after: str = ""
    limit: int = 500
    """Queues of a page."""


class ListNewest(Query[NewestMessages], tag="list_newest"):
    """Stored messages of any queue, newest first. `before_at` is exclusive.

    The query visits a bounded number of lanes and messages: `cut` says that older messages may be missing.
    """

    LARGEST_LIMIT: ClassVar[int] = 1000

    queue: str | None = None
    partition: str | None = None
    namespace: str | None = None
    task: str | None = None
    status: str | None = None
    after_at: int | None = None
    before_at: int | None = None
    limit: int = 200
    offset: int = 0

    def check(self) -> None:
        super().check()
        validation.count(self.offset, "offset", least=0, most=MOST_NEWEST)


class DatabaseStats(Query[dict[str, Any]], tag="database_stats"):
    """Statistics that the database keeps about itself. Empty if it keeps none or is too busy to answer."""
