"""Shapes of Queen's answers about the status of the server and its maintenance, for `/openapi.json`."""

from __future__ import annotations

import msgspec

from ackwise.protocols.queen.catalogue_docs import QueenCounts, QueenQueue
from ackwise.protocols.queen.message_docs import Pagination

_UNSET = msgspec.UNSET


class Alive(msgspec.Struct):
    status: str
    engine: str


class TimeRange(msgspec.Struct):
    to: str
    since: str = msgspec.field(name="from")


class ThroughputPoint(msgspec.Struct):
    """Counts of one bucket of time. A value that the server does not measure is null."""

    timestamp: str
    ingested: int | None
    processed: int | None
    ingestedPerSecond: float | None
    processedPerSecond: float | None
    ackFailed: int | None
    dlqCount: int | None
    popMessages: None
    popPerSecond: None
    avgLagMs: None
    maxLagMs: None
    avgEventLoopLagMs: None
    maxEventLoopLagMs: None
    minFreeSlots: None
    dbErrors: None
    queenCpuUserPct: None
    queenCpuSysPct: None
    queenRssMb: None
    dbPoolActive: None
    dbPoolIdle: None
    dbPoolSize: None


class StatusQueue(msgspec.Struct):
    id: str
    name: str
    namespace: str | None
    task: str | None
    partitions: int
    totalConsumed: int


class Unmeasured(msgspec.Struct):
    push: None
    pop: None
    ack: None


class StatusMessages(QueenCounts):
    requests: Unmeasured
    batchEfficiency: Unmeasured


class StatusLeases(msgspec.Struct):
    active: int
    totalBatchSize: int
    partitionsWithLeases: None
    totalAcked: None


class FrequentError(msgspec.Struct):
    error: str
    count: int


class StatusLetters(msgspec.Struct):
    totalMessages: int
    affectedPartitions: None
    topErrors: list[FrequentError]


class StatusErrors(msgspec.Struct):
    dbErrors: None
    ackFailed: int | None
    dlqMessages: int | None


class StatusWorker(msgspec.Struct):
    hostname: str
    workerId: str
    uptimeSeconds: float
    avgEventLoopLagMs: None
    maxEventLoopLagMs: None
    freeSlots: None
    dbConnections: None
    jobQueueSize: None
    messagesProcessed: None


class QueenStatus(msgspec.Struct):
    """Throughput and totals of the server."""

    timeRange: TimeRange
    bucketMinutes: int
    pointCount: int
    throughput: list[ThroughputPoint]
    queues: list[StatusQueue]
    messages: StatusMessages
    leases: StatusLeases
    deadLetterQueue: StatusLetters
    errors: StatusErrors
    workers: list[StatusWorker]
    statsAge: int


class StatusQueues(msgspec.Struct):
    queues: list[QueenQueue]
    pagination: Pagination


class StatusConfig(msgspec.Struct):
    leaseTime: float
    retryLimit: int | None
    retryDelay: float
    ttl: float
    maxSize: float
    maxQueueSize: float
    deadLetterQueue: bool


class StatusQueueFields(msgspec.Struct):
    id: str
    name: str
    namespace: str | None
    task: str | None
    priority: float
    createdAt: str
    config: StatusConfig


class PartitionCursor(msgspec.Struct):
    totalConsumed: None
    batchesConsumed: None


class StatusPartition(msgspec.Struct):
    """A partition. `messages` and `stats` are the same."""

    id: str
    name: str
    createdAt: str | None
    messages: QueenCounts
    stats: QueenCounts
    cursor: PartitionCursor
    lastActivity: str | None
    oldestMessage: str | None
    newestMessage: str | None


class StatusTotals(QueenCounts):
    messages: QueenCounts


class StatusQueueDetail(msgspec.Struct):
    queue: StatusQueueFields
    partitions: list[StatusPartition]
    totals: StatusTotals


class PushedPoint(msgspec.Struct):
    timestamp: str
    messages: int | None


class PushedSeries(TimeRange):
    interval: str
    dataPoints: list[PushedPoint]


class FailedFiles(msgspec.Struct):
    count: int
    totalBytes: int
    totalMB: float
    failoverCount: int
    qos0Count: int


class BufferStats(msgspec.Struct):
    pendingCount: int
    failedCount: int
    dbHealthy: bool
    failedFiles: FailedFiles


class PushMaintenance(msgspec.Struct):
    """The switch of the push maintenance. A read has the pop switch, too, a change has a message."""

    maintenanceMode: bool
    bufferedMessages: int
    bufferHealthy: bool
    popMaintenanceMode: bool | msgspec.UnsetType = _UNSET
    bufferStats: BufferStats | msgspec.UnsetType = _UNSET
    message: str | msgspec.UnsetType = _UNSET


class PopMaintenance(msgspec.Struct):
    popMaintenanceMode: bool
    message: str


class SharedState(msgspec.Struct):
    enabled: bool
    reason: str
    maintenance_mode: bool
    pop_maintenance_mode: bool


class Buffers(msgspec.Struct):
    pending: int
    failed: int
    dbHealthy: bool
    worker: None
