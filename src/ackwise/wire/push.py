"""Native push request and answer."""

from __future__ import annotations

import msgspec

from ackwise.core import validation
from ackwise.core.answers import Placed, PlacedRun, Receipts
from ackwise.core.commands import Push
from ackwise.core.errors import BadInput, StoreError
from ackwise.core.ids import uuid_int, uuid_text
from ackwise.core.messages import DEFAULT_PARTITION, JSON, NewMessage, PlainBatch, Receipt
from ackwise.core.policy import NEW_QUEUE_POLICY, QueuePolicy
from ackwise.wire import payloads


class MessageBody(msgspec.Struct, forbid_unknown_fields=True, omit_defaults=True):
    """One message. Partition and content type default to those of the push."""

    payload: msgspec.Raw
    partition: str | None = None
    priority: int = 0
    transaction_id: str | None = None
    headers: dict[str, str] | None = None
    content_type: str | None = None
    delay_seconds: float = 0.0


class PushBody(msgspec.Struct, forbid_unknown_fields=True, omit_defaults=True):
    """Request body of a push: rows (`messages`) or columns (`payloads`, `transaction_ids`).

    With `create` null the push refuses a queue that does not exist.
    """

    queue: str
    messages: list[MessageBody] | None = None
    payloads: list[msgspec.Raw] | None = None
    transaction_ids: list[str] | None = None
    partition: str = DEFAULT_PARTITION
    content_type: str = JSON
    create: QueuePolicy | None = NEW_QUEUE_POLICY


class RunBody(msgspec.Struct):
    """Queued messages with consecutive ids and seqs."""

    count: int
    first_message_id: str
    first_seq: int
    partition: str
    partition_id: str


class PushAnswer(msgspec.Struct, omit_defaults=True):
    """Answer to a push: a receipt per message, or one `run` for columns with consecutive ids and seqs."""

    receipts: list[Receipt] | None = None
    run: RunBody | None = None


def command(body: PushBody) -> Push:
    if (body.messages is None) == (body.payloads is None):
        raise BadInput("a push has either messages, or payloads with or without transaction_ids")
    if body.payloads is not None:
        messages = [payloads.from_request(raw, body.content_type) for raw in body.payloads]
        return Push(
            queue=body.queue,
            messages=PlainBatch(messages, body.transaction_ids, body.partition, body.content_type),
            create=body.create,
        )
    if body.transaction_ids is not None:
        raise BadInput("transaction_ids go with payloads; each of messages has a transaction_id of its own")
    rows = [_message(row, body) for row in body.messages or ()]
    return Push(queue=body.queue, messages=rows, create=body.create)


def _message(row: MessageBody, body: PushBody) -> NewMessage:
    kind = body.content_type if row.content_type is None else row.content_type
    return NewMessage(
        payloads.from_request(row.payload, kind),
        body.partition if row.partition is None else row.partition,
        row.priority,
        row.transaction_id,
        row.headers,
        kind,
        validation.micros(row.delay_seconds, "delay_seconds") if row.delay_seconds else 0,
    )


def body(command: Push) -> PushBody:
    """The request body for a push."""
    messages = command.messages
    if isinstance(messages, PlainBatch) and not messages.priority:
        kind = messages.content_type
        if kind == JSON and payloads.are_json(messages.payloads):
            columns = list(map(msgspec.Raw, messages.payloads))
        else:
            columns = [payloads.for_request(payload, kind) for payload in messages.payloads]
        return PushBody(
            queue=command.queue,
            payloads=columns,
            transaction_ids=messages.transaction_ids,
            partition=messages.partition,
            content_type=kind,
            create=command.create,
        )
    listed = messages.messages() if isinstance(messages, PlainBatch) else messages
    return PushBody(queue=command.queue, messages=[_row(message) for message in listed], create=command.create)


def _row(message: NewMessage) -> MessageBody:
    return MessageBody(
        payloads.for_request(message.payload, message.content_type),
        message.partition,
        message.priority,
        message.transaction_id,
        message.headers,
        message.content_type,
        message.delay / validation.MICROS,
    )


def answer(receipts: Receipts, *, columns: bool) -> PushAnswer:
    run = receipts.run
    if run is None:
        return PushAnswer(receipts=list(receipts))
    first = run[0]
    if columns:
        body = RunBody(len(run), uuid_text(first.id_int), first.seq or 0, first.partition, first.partition_id)
        return PushAnswer(run=body)
    partition, partition_id = first.partition, first.partition_id
    named = zip(*run.columns(), strict=True)
    return PushAnswer(
        receipts=[
            Receipt("queued", message_id, txid, partition, partition_id, seq)
            for seq, (message_id, txid) in enumerate(named, first.seq or 0)
        ]
    )


def receipts(answer: PushAnswer, transaction_ids: list[str]) -> Receipts:
    """Receipts from a server's answer. `transaction_ids` are those that the client sent."""
    run = answer.run
    if run is not None:
        first = uuid_int(run.first_message_id)
        if first is None or len(transaction_ids) != run.count:
            raise StoreError("the server's answer does not match the push")
        return Receipts(PlacedRun(first, transaction_ids, run.count, run.partition, run.partition_id, run.first_seq))
    return Receipts([_placed(receipt) for receipt in answer.receipts or ()])


def _placed(receipt: Receipt) -> Placed:
    number = uuid_int(receipt.message_id)
    return Placed(
        receipt.status, number or 0, receipt.transaction_id, receipt.partition, receipt.partition_id, receipt.seq
    )
