"""Shapes of Queen's answers about consumer groups, for `/openapi.json`."""

from __future__ import annotations

from typing import Literal

import msgspec

GroupState = Literal["Stable", "Lagging", "Dead"]
SubscriptionMode = Literal["all", "new", "timestamp"]


class GroupInQueue(msgspec.Struct):
    """A group in one queue. Lags are in messages and in seconds."""

    queueName: str
    members: int
    totalLag: int
    maxTimeLag: int
    state: GroupState
    partitions: int
    partitionsWithLag: int
    totalConsumed: int
    deadLetters: int
    lastConsumedAt: str | None
    subscriptionMode: SubscriptionMode
    subscriptionTimestamp: str | None
    subscriptionCreatedAt: str | None


class QueenGroup(msgspec.Struct):
    """A group with its queues. Fields that cannot be summed have the first queue's value."""

    name: str
    queues: list[GroupInQueue]
    topics: list[str]
    members: int
    totalLag: int
    partitionsWithLag: int
    maxTimeLag: int
    state: GroupState
    queueName: str | None
    subscriptionMode: SubscriptionMode | None
    subscriptionTimestamp: str | None
    subscriptionCreatedAt: str | None


class QueenGroups(msgspec.Struct):
    groups: list[QueenGroup]


class LaggingPartition(msgspec.Struct):
    consumer_group: str
    queue_name: str
    partition_name: str
    partition_id: str
    worker_id: str | None
    offset_lag: int
    time_lag_seconds: int
    lag_hours: float
    oldest_unconsumed_at: str | None
    last_consumed_at: str | None


class GroupPlace(msgspec.Struct):
    """Position and lease of a group in one partition."""

    partition: str
    partitionId: str
    consumerGroup: str
    lastConsumedId: str | None
    lastConsumedCreatedAt: str | None
    lastConsumedAt: str | None
    totalMessagesConsumed: int
    totalConsumed: int
    deadLetters: int
    workerId: str | None
    leaseActive: bool
    leaseAcquiredAt: str | None
    leaseExpiresAt: str | None
    batchSize: int
    ackedCount: int
    offsetLag: int
    timeLagSeconds: int
    oldestUnconsumedAt: str | None


class GroupPlaces(msgspec.Struct):
    partitions: list[GroupPlace]


class DeletedGroup(msgspec.Struct):
    success: bool
    consumerGroup: str
    deletedPartitions: int
    metadataDeleted: bool
    queueName: str | msgspec.UnsetType = msgspec.UNSET


class MovedSubscription(msgspec.Struct):
    success: bool
    consumerGroup: str
    newTimestamp: str
    rowsUpdated: int


class MovedGroup(msgspec.Struct):
    success: bool
    consumerGroup: str
    queueName: str
    seekToEnd: bool
    targetTimestamp: str | None
    partitionsUpdated: int


class MovedPartition(msgspec.Struct):
    success: bool
    consumerGroup: str
    queueName: str
    partitionName: str
    cursorMovedTo: str
    updated: bool
