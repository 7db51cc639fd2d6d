"""Queue: depth, flow, groups, live leases with their holders, partitions and policy of one queue."""

from __future__ import annotations

import asyncio
from typing import NamedTuple

from starlette.responses import Response

from ackwise.core.answers import QueueInfo
from ackwise.core.errors import BadInput
from ackwise.core.queries import GetQueue, ListOldestLeases, ListPartitions, QueueStats
from ackwise.core.rows import LeaseRow, Page, PartitionRow, Stats
from ackwise.dashboard.live import queue_topic
from ackwise.dashboard.policy_form import GROUPS, texts_of
from ackwise.dashboard.request import PageRequest
from ackwise.dashboard.routes import get
from ackwise.dashboard.series import SPANS, flow_chart
from ackwise.observability.depths import depth_of

PARTITIONS, LEASES, MOST_GROUPS = 25, 25, 50


class QueueParts(NamedTuple):
    """Data of a queue that the page shows."""

    info: QueueInfo
    stats: Stats
    partitions: list[PartitionRow]
    leases: list[LeaseRow]


async def show(page: PageRequest) -> Response:
    queue = page.params["queue"]
    partition, lease = page.query.get("partition_after", ""), _place(page.query.get("lease_after", ""))
    parts, rates, (span, series, chart) = await asyncio.gather(
        _read(page, queue, partition, lease), page.rates(), flow_chart(page, queue)
    )
    groups = sorted(parts.stats.groups, key=lambda group: (-group.lag, group.group))
    return page.render(
        "queue.html.j2",
        queue=queue,
        topic=queue_topic(queue),
        info=parts.info,
        depth=depth_of(parts.stats, paused=parts.info.paused),
        stats=parts.stats,
        groups=groups[:MOST_GROUPS],
        more_groups=max(0, len(groups) - MOST_GROUPS),
        partitions=parts.partitions,
        leases=parts.leases,
        next_partition=parts.partitions[-1].partition if len(parts.partitions) == PARTITIONS else None,
        next_lease=_spelled(parts.leases),
        rates=None if rates.queues is None else rates.queues.get(queue, {}),
        span=span,
        spans=SPANS,
        series=series,
        chart=chart,
        policy=[(title, fields) for title, fields in GROUPS],
        texts=texts_of(parts.info.policy),
    )


async def _read(page: PageRequest, queue: str, partition: str, lease: tuple[int, str] | None) -> QueueParts:
    """The parts of the page. Each part has its own cache key, so all pages of one list share the other parts."""
    info, stats, partitions, leases = await asyncio.gather(
        page.cached(("queue", queue), GetQueue(queue=queue)),
        page.cached(("queue_stats", queue), QueueStats(queue=queue)),
        page.cached(
            ("partitions", queue, partition),
            ListPartitions(queue=queue, after=(queue, partition) if partition else None, limit=PARTITIONS),
        ),
        page.cached(("leases", queue, lease), ListOldestLeases(queue=queue, after=lease, limit=LEASES)),
    )
    return QueueParts(info, stats, partitions, leases)


def _spelled(leases: list[LeaseRow]) -> str | None:
    """The place of the next page of leases in a URL."""
    place = leases.next if isinstance(leases, Page) else None
    return None if place is None else f"{place[0]}.{place[1]}"


def _place(text: str) -> tuple[int, str] | None:
    if not text:
        return None
    at, _, lease = text.partition(".")
    try:
        return int(at[:19]), lease
    except ValueError:
        raise BadInput("lease_after must be the place of a lease; go back to the first page") from None


ROUTES = (get("/queues/{queue}", show),)
