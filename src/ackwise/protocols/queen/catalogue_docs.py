"""Shapes of Queen's answers about queues, partitions, tags and their totals, for `/openapi.json`."""

from __future__ import annotations

import msgspec

_UNSET = msgspec.UNSET


class QueenCounts(msgspec.Struct):
    """Messages by status. `failed` is always 0."""

    total: int
    pending: int
    processing: int
    completed: int
    failed: int
    deadLetter: int


class QueenOptions(msgspec.Struct):
    """Options of a queue. Times are in seconds."""

    leaseTime: float
    retryLimit: int | None
    retryDelay: float
    priority: float
    delayedProcessing: float
    windowBuffer: float
    maxSize: float
    ttl: float
    retentionEnabled: bool
    retentionSeconds: float
    completedRetentionSeconds: float
    maxWaitTimeSeconds: float
    encryptionEnabled: bool
    deadLetterQueue: bool
    dlqAfterMaxRetries: bool
    dedupWindowSeconds: float


class ConfiguredQueue(msgspec.Struct):
    configured: bool
    queueId: str
    partitionId: str | None
    queue: str
    namespace: str | None
    task: str | None
    options: QueenOptions


class QueenQueue(msgspec.Struct):
    """A queue in a list. `partitions` is their number."""

    id: str
    name: str
    namespace: str | None
    task: str | None
    createdAt: str
    partitions: int
    messages: QueenCounts


class QueenQueues(msgspec.Struct):
    """All queues, or a page of them. Only a page has `nextAfter`."""

    queues: list[QueenQueue]
    nextAfter: str | msgspec.UnsetType | None = _UNSET


class QueenPartition(msgspec.Struct):
    id: str
    name: str
    createdAt: str | None
    stats: QueenCounts
    oldestMessage: str | None
    newestMessage: str | None


class QueenQueueDetail(msgspec.Struct):
    """A queue with its options and partitions."""

    id: str
    name: str
    namespace: str | None
    task: str | None
    createdAt: str
    paused: bool
    options: QueenOptions
    partitions: list[QueenPartition]
    totals: QueenCounts


class DeletedQueue(msgspec.Struct):
    deleted: bool
    existed: bool
    queue: str


class PartitionDepth(msgspec.Struct):
    partition: str
    pending: int


class QueenDepth(msgspec.Struct):
    """Messages that a group has not finished. `partitions` lists those with such messages."""

    queue: str
    group: str
    conflation: bool
    pending: int
    effectivePending: int
    partitionsPending: int
    partitions: list[PartitionDepth]


class PartitionOfQueue(QueenPartition):
    """A partition in the list of all partitions."""

    queue: str


class QueenPartitions(msgspec.Struct):
    """All partitions, or a page of them. Only a page has `nextAfter`."""

    partitions: list[PartitionOfQueue]
    nextAfter: str | msgspec.UnsetType | None = _UNSET


class _TagCounts(msgspec.Struct):
    queues: int
    partitions: int
    messages: QueenCounts


class NamespaceCounts(_TagCounts):
    namespace: str


class TaskCounts(_TagCounts):
    task: str


class NamespaceList(msgspec.Struct):
    namespaces: list[NamespaceCounts]


class TaskList(msgspec.Struct):
    tasks: list[TaskCounts]


class Distribution(msgspec.Struct):
    avg: float
    median: float
    min: int
    max: int


class Lags(msgspec.Struct):
    """Lags of all groups: in seconds and in messages."""

    time: Distribution
    offset: Distribution


class Throughput(msgspec.Struct):
    ingestedPerSecond: float
    processedPerSecond: float


class Overview(msgspec.Struct):
    """Totals of the server."""

    queues: int
    partitions: int
    namespaces: int
    tasks: int
    consumerGroups: int
    messages: QueenCounts
    lag: Lags
    throughput: Throughput
    statsAge: int
    timestamp: str


class RefreshedOverview(Overview):
    success: bool
    refreshed: bool
