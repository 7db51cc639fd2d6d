"""Messages, acknowledgements and dead letters with Queen's names."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import msgspec

from ackwise.client.payloads import Item
from ackwise.client.results import DeadLetter, DeadLetters
from ackwise.client.settlements import Target
from ackwise.core.commands import ByTransaction
from ackwise.core.errors import BadInput, NotSettleable
from ackwise.core.settlement import Outcome, Reject, Retry

_ENVELOPE = ("data", "transaction_id", "delay_seconds", "headers", "priority")
_ACK = ("transaction_id", "partition_id", "lease_id", "consumer_group", "status", "error")


def _read(content_type: str, payload: bytes) -> tuple[Any, Exception | None]:
    if not content_type.startswith("application/json"):
        return payload, None
    try:
        return msgspec.json.decode(payload), None
    except (ValueError, RecursionError) as problem:
        # JSON allows numbers that Python cannot hold.
        return payload, problem


class Message:
    """A received message. Pass it to the client's `ack` or `nack`."""

    __slots__ = ("data", "delivery", "problem")

    def __init__(self, delivery: Any) -> None:
        self.delivery = delivery
        """The delivery of the underlying `ackwise.client` connection."""
        self.data: Any
        """The payload decoded from JSON, or the raw bytes if it is not JSON or cannot be decoded."""
        self.problem: Exception | None
        """The error if the JSON cannot be decoded."""
        self.data, self.problem = _read(delivery.content_type, delivery.payload)

    @property
    def id(self) -> str:
        """The message id."""
        return str(self.delivery.message_id)

    @property
    def queue(self) -> str:
        """The queue's name."""
        return str(self.delivery.queue)

    @property
    def transaction_id(self) -> str:
        """The transaction id, or the message id if the message was pushed without a transaction id."""
        return str(self.delivery.transaction_id)

    @property
    def partition(self) -> str:
        """The partition's name."""
        return str(self.delivery.partition)

    @property
    def partition_id(self) -> str:
        """The partition's id."""
        return str(self.delivery.partition_id)

    @property
    def lease_id(self) -> str:
        """The lease's id."""
        return str(self.delivery.lease_id)

    @property
    def consumer_group(self) -> str:
        """The consumer group's name."""
        return str(self.delivery.group)

    @property
    def headers(self) -> dict[str, str]:
        """The message's headers."""
        return dict(self.delivery.headers)

    @property
    def attempt(self) -> int:
        """The number of this delivery of the message, from 1."""
        return int(self.delivery.attempt)

    @property
    def retry_count(self) -> int:
        """The number of failures that count towards the retry limit."""
        return int(self.delivery.failures)

    @property
    def created_at(self) -> datetime:
        """When the message was pushed."""
        at: datetime = self.delivery.created_at
        return at

    def __repr__(self) -> str:
        return f"<Message {self.transaction_id} of {self.queue}/{self.partition} attempt {self.attempt}>"


Acked = Message | Mapping[str, Any]
"""A message, or a mapping with `transaction_id` and `partition_id`, and `lease_id` and `consumer_group` if known."""


def target_of(acked: Acked) -> Target:
    """The delivery or selector that an acknowledgement names. Raises `BadInput` if it is incomplete."""
    if isinstance(acked, Message):
        if not acked.lease_id:
            raise NotSettleable
        target: Target = acked.delivery
        return target
    if not isinstance(acked, Mapping):
        raise BadInput(f"acknowledge a message, or a mapping with transaction_id and partition_id, not {acked!r}")
    unknown = sorted(set(acked) - set(_ACK))
    if unknown:
        raise BadInput(f"unknown field {unknown[0]!r} of an acknowledgement; known: {', '.join(_ACK)}")
    if not acked.get("partition_id"):
        raise BadInput("partition_id is required to ensure message uniqueness")
    if not acked.get("transaction_id"):
        raise BadInput("transaction_id is required")
    return ByTransaction(
        str(acked["partition_id"]), str(acked["transaction_id"]), acked.get("consumer_group"), acked.get("lease_id")
    )


def outcome_of(acked: Acked) -> Outcome | Exception:
    """The outcome of an acknowledgement's `status`. Without one it is an ack."""
    status = acked.get("status", "completed") if isinstance(acked, Mapping) else "completed"
    error = acked.get("error") if isinstance(acked, Mapping) else None
    match status:
        case "completed":
            return Outcome.ACK
        case "failed":
            return Retry(error=error)
        case "retry":
            return Outcome.RELEASE
        case "dlq":
            return Reject(error or "rejected")
        case _:
            raise BadInput(f"status is completed, failed, retry or dlq, not {status!r}")


def item_of(item: object, partition: str) -> Item:
    """Convert `{"data": …, "transaction_id": …, "delay_seconds": …}` to an `Item`. Only `data` is required."""
    if not isinstance(item, Mapping) or "data" not in item:
        raise BadInput(f'an item is a mapping with "data", such as {{"data": {{"id": 1}}}}, not {item!r}')
    unknown = sorted(set(item) - set(_ENVELOPE))
    if unknown:
        raise BadInput(f"unknown field {unknown[0]!r} of an item; known: {', '.join(_ENVELOPE)}")
    return Item(
        payload=item["data"],
        partition=partition,
        priority=item.get("priority", 0),
        transaction_id=item.get("transaction_id"),
        headers=item.get("headers"),
        delay=item.get("delay_seconds"),
    )


Items = Mapping[str, Any] | Sequence[Mapping[str, Any]]


def items_of(items: object, partition: str) -> list[Item]:
    """Convert a mapping, or a list of mappings, to items."""
    listed = [items] if isinstance(items, Mapping) else items
    if not isinstance(listed, Iterable):
        raise BadInput(f'push a mapping with "data", or a list of them, not {items!r}')
    return [item_of(item, partition) for item in listed]


@dataclass(frozen=True)
class DeadMessage:
    """A dead letter with Queen's names."""

    letter: DeadLetter

    @property
    def data(self) -> Any:
        """The payload decoded from JSON, or the raw bytes if it is not JSON or cannot be decoded."""
        return _read(self.letter.content_type, self.letter.payload)[0]

    @property
    def original_created_at(self) -> datetime:
        return self.letter.created_at

    @property
    def moved_to_dlq_at(self) -> datetime:
        return self.letter.dead_at

    @property
    def id(self) -> str:
        return self.letter.id

    @property
    def queue(self) -> str:
        return self.letter.queue

    @property
    def message_id(self) -> str:
        return self.letter.message_id

    @property
    def transaction_id(self) -> str:
        return self.letter.transaction_id

    @property
    def partition(self) -> str:
        return self.letter.partition

    @property
    def partition_id(self) -> str:
        return self.letter.partition_id

    @property
    def consumer_group(self) -> str:
        return self.letter.group

    @property
    def error_message(self) -> str:
        return self.letter.error

    @property
    def reason(self) -> str:
        return self.letter.reason

    @property
    def retry_count(self) -> int:
        return self.letter.failures


class DeadMessages:
    """A page of dead letters, newest first. `total` is the number of all that match."""

    def __init__(self, page: DeadLetters, limit: int, offset: int) -> None:
        self.messages = [DeadMessage(letter) for letter in page]
        self.total, self.limit, self.offset = page.total, limit, offset

    def __len__(self) -> int:
        return len(self.messages)

    def __iter__(self) -> Iterator[DeadMessage]:
        return iter(self.messages)
