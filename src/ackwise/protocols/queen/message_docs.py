"""Shapes of Queen's answers about dead letters, messages and traces, for `/openapi.json`."""

from __future__ import annotations

from typing import Any, Literal

import msgspec

_UNSET = msgspec.UNSET


class QueenLetter(msgspec.Struct):
    """A dead letter. Some values occur twice because Queen's versions name them differently."""

    id: str
    messageId: str
    partitionId: str
    transactionId: str
    consumerGroup: str
    errorMessage: str
    retryCount: int
    originalCreatedAt: str
    movedToDlqAt: str
    queueName: str
    data: Any
    messageCreatedAt: str
    createdAt: str
    failedAt: str
    queue: str
    namespace: str | None
    task: str | None
    partition: str
    partitionName: str
    traceId: str | None
    producerSub: None
    reason: str
    deliveryCount: int


class Pagination(msgspec.Struct):
    limit: int
    offset: int
    total: int | msgspec.UnsetType = _UNSET


class QueenLetters(msgspec.Struct):
    messages: list[QueenLetter]
    total: int
    limit: int
    offset: int
    pagination: Pagination


class PurgedQueenLetters(msgspec.Struct):
    success: bool
    deleted: int
    queue: str | None
    consumerGroup: str | None


class PurgedQueenLetter(msgspec.Struct):
    success: bool
    deleted: int
    dlqId: str


class ReplayedCopy(msgspec.Struct):
    status: Literal["queued", "duplicate"]
    transaction_id: str
    message_id: str | None
    partition_id: str | None
    queueName: str


class ReplayedLetter(msgspec.Struct):
    """A dead letter whose copy was pushed. After a duplicate the dead letter stays."""

    success: bool
    result: Literal["moved", "duplicate"]
    queue: str
    partition: str
    consumerGroup: str
    dlqId: str
    originalTransactionId: str
    replayedAs: ReplayedCopy
    dlqRowRemoved: bool


class BusStatus(msgspec.Struct):
    """How many of the named groups have passed the message."""

    consumedBy: int
    totalGroups: int


class _MessageFields(msgspec.Struct):
    id: str
    transactionId: str
    partitionId: str
    queuePath: str
    queue: str
    partition: str
    namespace: str | None
    task: str | None
    status: str
    queueStatus: str | None
    busStatus: BusStatus
    traceId: str | None
    producerSub: None
    queuePriority: float
    createdAt: str
    leaseExpiresAt: str | None
    isEncrypted: bool


class ListedMessage(_MessageFields):
    """A stored message in a list. `data` and `payload` are the same."""

    payloadAvailable: bool
    data: Any
    payload: Any


class MessageMode(msgspec.Struct):
    hasQueueMode: bool
    busGroupsCount: int
    type: Literal["queue", "bus", "hybrid", "none"]


class ListedMessages(msgspec.Struct):
    """Stored messages, newest first. `truncated` says that the list ended at its bound."""

    messages: list[ListedMessage]
    mode: MessageMode
    total: int
    truncated: bool


class ShortMessage(msgspec.Struct):
    id: str
    transactionId: str
    partitionId: str
    queuePath: str
    queue: str
    partition: str
    status: str
    createdAt: str


class MessageGroup(msgspec.Struct):
    """State of a message for one group."""

    name: str
    consumed: bool
    state: str
    leaseExpiresAt: str | None
    retryCount: int
    deliveryCount: int
    errorMessage: str | None


class MessageQueueConfig(msgspec.Struct):
    leaseTime: float
    retryLimit: int | None
    retryDelay: float
    ttl: float
    priority: float


class QueenMessageDetail(_MessageFields):
    """A stored message with its state for each group."""

    messageId: str
    deliverAt: str | None
    payload: Any
    data: Any
    errorMessage: str | None
    retryCount: int
    queueConfig: MessageQueueConfig
    consumerGroups: list[MessageGroup]
    consumedByGroups: list[str]
    mode: MessageMode


class DeletedMessage(msgspec.Struct):
    """Result of a deletion. Only dead letters can be deleted: else `success` is false."""

    success: bool
    partitionId: str
    transactionId: str
    message: str
    error: str | msgspec.UnsetType = _UNSET
    code: str | msgspec.UnsetType = _UNSET


class AddedTrace(msgspec.Struct):
    success: bool
    traceId: str


class QueenTrace(msgspec.Struct):
    id: str
    event_type: str
    data: Any
    consumer_group: str
    worker_id: str | None
    created_at: str
    trace_names: list[str]


class NamedTrace(QueenTrace):
    transaction_id: str
    partition_id: str
    queue_name: str | None
    partition_name: str | None
    message_payload: Any


class QueenTraces(msgspec.Struct):
    traces: list[QueenTrace]


class NamedTraces(msgspec.Struct):
    traces: list[NamedTrace]
    total: int
    pagination: Pagination


class TraceNameCount(msgspec.Struct):
    trace_name: str
    trace_count: int
    message_count: int
    last_seen: str


class TraceNameList(msgspec.Struct):
    trace_names: list[TraceNameCount]
    total: int
    pagination: Pagination
