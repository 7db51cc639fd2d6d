"""What a push may contain. Everything is refused here, before anything is made."""

from __future__ import annotations

from typing import NamedTuple

from ackwise.core import limits
from ackwise.core.commands import Push
from ackwise.core.errors import BadInput, PayloadTooLarge
from ackwise.core.messages import NewMessage, PlainBatch
from ackwise.core.policy import QueuePolicy, checked


class Checked(NamedTuple):
    """A push that nothing is wrong with, so that it is looked through only once."""

    command: Push
    batch: PlainBatch | None
    """Its messages as columns, when every one is plain."""


def check_push(command: Push) -> Checked:
    """Refuse what is wrong."""
    return Checked(command, _columns(command))


def _columns(command: Push) -> PlainBatch | None:
    limits.name(command.queue, "queue")
    messages = command.messages
    if type(messages) not in (list, PlainBatch):
        raise BadInput(f"messages must be a list or a PlainBatch, not {type(messages).__name__}")
    if len(messages) > limits.MAX_PUSH_ITEMS:
        raise BadInput(f"a push takes at most {limits.MAX_PUSH_ITEMS} messages")
    if command.create is not None:
        checked(command.create)
    if isinstance(messages, PlainBatch) and len(messages.transaction_ids or messages.payloads) != len(messages):
        raise BadInput("a batch has as many transaction ids as payloads, or none")
    if not len(messages):
        return None
    batch = messages if isinstance(messages, PlainBatch) else PlainBatch.of(messages)
    if batch is not None and _is_plain(batch):
        limits.name(batch.partition, "partition")
        limits.name(batch.content_type, "content_type")
        limits.count(batch.priority, "priority", least=0, most=limits.MAX_PRIORITY)
        return batch
    for message in messages.messages() if isinstance(messages, PlainBatch) else messages:
        _check_message(message)
    return batch


def check_sizes(messages: list[NewMessage] | PlainBatch, policy: QueuePolicy) -> None:
    payloads = messages.payloads if isinstance(messages, PlainBatch) else [m.payload for m in messages]
    largest = max(map(len, payloads), default=0)
    if largest > policy.max_payload_bytes:
        raise PayloadTooLarge(f"a payload of {largest} bytes is over the queue's limit of {policy.max_payload_bytes}")


def _is_plain(batch: PlainBatch) -> bool:
    """Bytes, and short printable ASCII ids ("" for none): what needs no closer look."""
    txids = batch.transaction_ids
    if set(map(type, batch.payloads)) != {bytes}:
        return False
    if txids is None:
        return True
    try:
        joined = "".join(txids)
    except TypeError:
        return False
    return len(txids) == len(batch) and joined.isascii() and joined.isprintable() and max(map(len, txids)) <= 128


def _check_message(message: NewMessage) -> None:
    limits.name(message.partition, "partition")
    if type(message.payload) is not bytes:
        raise BadInput(f"payload must be bytes, not {type(message.payload).__name__}")
    if message.transaction_id is not None:
        limits.transaction_id(message.transaction_id)
    limits.count(message.priority, "priority", least=0, most=limits.MAX_PRIORITY)
    limits.count(message.delay, "delay", least=0, most=round(limits.MAX_DELAY_SECONDS * limits.MICROS))
    limits.name(message.content_type, "content_type")
    size = 0
    for key, value in (message.headers or {}).items():
        limits.storable(key, "a header's name")
        limits.storable(value, "a header's value")
        size += len(key) + len(value)
    if size > limits.MAX_HEADERS_BYTES:
        raise BadInput(f"headers are larger than {limits.MAX_HEADERS_BYTES} bytes")
