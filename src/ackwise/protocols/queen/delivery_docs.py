"""Shapes of Queen's answers to push, pop, ack, lease and transaction, for `/openapi.json`."""

from __future__ import annotations

from typing import Any, Literal

import msgspec

from ackwise.protocols.queen.ack import AckResult
from ackwise.protocols.queen.push import PushResult

_UNSET = msgspec.UNSET
Pushed = list[PushResult]
Acked = (AckResult, list[AckResult])
AckedBatch = list[AckResult]


class QueenMessage(msgspec.Struct):
    """A popped message. `offset` is its position in its partition and priority."""

    id: str
    messageId: str
    transactionId: str
    traceId: str | None
    data: Any
    createdAt: str
    producerSub: None
    partitionId: str
    partition: str
    queue: str
    leaseId: str
    consumerGroup: str
    retryCount: int
    deliveryAttempt: int
    offset: int


class PoppedMessages(msgspec.Struct):
    """Answer to a pop with messages. `leaseId` is empty if the pop acked its messages at once."""

    success: bool
    queue: str
    partition: str
    partitionId: str
    leaseId: str
    consumerGroup: str
    partitionsClaimed: int
    leaseExpiresAt: str | None
    messages: list[QueenMessage]


class LeaseExtension(msgspec.Struct):
    """Answer to an extension. Three fields have the new end of the lease, because Queen's versions differ."""

    leaseId: str
    success: bool
    renewed: int
    newExpiresAt: str | None
    expiresAt: str | None
    lease_expires_at: str | None
    error: str | msgspec.UnsetType = _UNSET
    message: str | msgspec.UnsetType = _UNSET


class TransactionAck(msgspec.Struct, tag_field="type", tag="ack"):
    """Result of an ack in a transaction."""

    index: int
    success: bool
    transactionId: str
    error: None
    dlq: bool
    dropped: bool
    noop: bool
    leaseReleased: bool


class TransactionPush(msgspec.Struct, tag_field="type", tag="push"):
    """Result of a push in a transaction."""

    index: int
    success: bool
    transactionId: str
    messageId: str | None
    partitionId: str | None
    queueName: str
    duplicate: bool


class QueenTransaction(msgspec.Struct):
    """Answer to a transaction. If `success` is false, nothing was changed."""

    transactionId: str
    success: bool
    results: list[TransactionAck | TransactionPush]
    error: str | msgspec.UnsetType = _UNSET
    reason: Literal["duplicate", "rejected_ack"] | msgspec.UnsetType = _UNSET
    failedIndex: int | msgspec.UnsetType | None = _UNSET
