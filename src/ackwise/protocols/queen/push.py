"""`POST /push`: items become one push per queue and partition."""

from __future__ import annotations

import secrets
from collections.abc import Iterable

import msgspec

from ackwise.broker import AsyncBroker
from ackwise.core import validation
from ackwise.core.answers import Receipts
from ackwise.core.commands import Push, Spool, Transaction
from ackwise.core.errors import BadInput
from ackwise.core.ids import uuid7, uuid_text
from ackwise.core.messages import DEFAULT_PARTITION, NewMessage, PlainBatch
from ackwise.core.policy import QueuePolicy
from ackwise.protocols.http_request import Call, parse
from ackwise.protocols.http_response import Answer, Route, encode
from ackwise.protocols.queen.vocabulary import TRACE, QueenContext
from ackwise.protocols.trace_headers import has_trace, traced

_NULL = b"null"


class PushItem(msgspec.Struct):
    """One message as Queen clients send it. `data` is the seed's name of `payload`."""

    queue: str
    payload: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET
    data: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET
    partition: str | None = DEFAULT_PARTITION
    transactionId: str | None = None
    traceId: str | None = None
    delaySeconds: float = 0.0

    @property
    def body(self) -> bytes:
        if self.payload is not msgspec.UNSET:
            return bytes(self.payload)
        return _NULL if self.data is msgspec.UNSET else bytes(self.data)

    @property
    def plain(self) -> bool:
        return not self.delaySeconds and not self.traceId


class _Body(msgspec.Struct):
    items: list[PushItem]


_decoder = msgspec.json.Decoder(_Body)


def read_items(body: bytes) -> list[PushItem]:
    """The items of a push. Without an array `items`, raises an error with the text of the official server."""
    try:
        return parse(_decoder, body).items
    except BadInput as problem:
        if "valid JSON" not in problem.message and "$.items[" not in problem.message:
            raise BadInput("items array is required") from None
        raise


def pushes_of(items: Iterable[PushItem], create: QueuePolicy) -> tuple[list[Push], list[int]]:
    """One push per queue and partition, and for each item the index of its push."""
    grouped: dict[tuple[str, str], list[PushItem]] = {}
    order: list[tuple[str, str]] = []
    for item in items:
        key = (item.queue, DEFAULT_PARTITION if item.partition is None else item.partition)
        grouped.setdefault(key, []).append(item)
        order.append(key)
    numbers = {key: number for number, key in enumerate(grouped)}
    pushes = [_push(queue, partition, part, create) for (queue, partition), part in grouped.items()]
    return pushes, [numbers[key] for key in order]


def _push(queue: str, partition: str, items: list[PushItem], create: QueuePolicy) -> Push:
    txids = [item.transactionId for item in items if item.transactionId]
    if all(item.plain for item in items) and len(txids) in (0, len(items)):
        batch = PlainBatch([item.body for item in items], txids or None, partition)
        return Push(queue=queue, messages=batch, create=create)
    return Push(queue=queue, messages=[_message(item, partition) for item in items], create=create)


def _message(item: PushItem, partition: str) -> NewMessage:
    return NewMessage(
        item.body,
        partition=partition,
        transaction_id=item.transactionId or None,
        headers={TRACE: item.traceId} if item.traceId else None,
        delay=validation.micros(item.delaySeconds, "delaySeconds"),
    )


class PushResult(msgspec.Struct, gc=False):
    """Result of one item."""

    index: int
    transaction_id: str
    status: str
    message_id: str | None
    partition_id: str | None
    trace_id: str | None
    queueName: str


def results(items: list[PushItem], owners: list[int], receipts: list[Receipts]) -> bytes:
    """One result per item as JSON, in the order of the request."""
    run = receipts[0].run if len(receipts) == 1 else None
    if run is not None:
        message_ids, txids = run.columns()
        rows = zip(items, message_ids, txids, strict=True)
        return encode(
            [
                PushResult(index, txid, "queued", message_id, run.partition_id, item.traceId, item.queue)
                for index, (item, message_id, txid) in enumerate(rows)
            ]
        )
    remaining = [iter(push_receipts) for push_receipts in receipts]
    entries = []
    for index, (item, owner) in enumerate(zip(items, owners, strict=True)):
        receipt = next(remaining[owner])
        status = "duplicate" if receipt.status == "duplicate" else "queued"
        entries.append(
            PushResult(
                index,
                receipt.transaction_id,
                status,
                receipt.message_id,
                receipt.partition_id,
                item.traceId,
                item.queue,
            )
        )
    return encode(entries)


async def _kept(broker: AsyncBroker, context: QueenContext, items: list[PushItem], call: Call) -> bytes | None:
    """Keeps the items until the push maintenance ends. Returns their results. None if there is no maintenance."""
    if not await context.maintenance.keeps_pushes():
        return None
    for item in items:
        # The id is known now, so a repeated request is a duplicate.
        item.transactionId = item.transactionId or uuid_text(uuid7(broker.wall() // 1000, secrets.randbits(73)))
    pushes, _ = pushes_of(items, context.push_policy)
    if has_trace(call):
        pushes = traced(pushes, call)
    if len(pushes) == 1:
        call.queue = pushes[0].queue
    kept = await broker.send(Spool(pushes=pushes))
    if not kept.count:
        # Another server has ended the maintenance.
        await context.maintenance.refresh()
        return None
    return encode(
        [
            PushResult(index, item.transactionId or "", "buffered", None, None, item.traceId, item.queue)
            for index, item in enumerate(items)
        ]
    )


def routes(broker: AsyncBroker, context: QueenContext) -> list[Route]:
    async def push(call: Call) -> Answer:
        items = read_items(await call.body())
        if not items:
            return Answer(b"[]", 201)
        call.messages = len(items)
        if context.maintenance.may_keep_pushes and (kept := await _kept(broker, context, items, call)) is not None:
            return Answer(kept, 201)
        pushes, owners = pushes_of(items, context.push_policy)
        if has_trace(call):
            pushes = traced(pushes, call)
        if len(pushes) == 1:
            call.queue = pushes[0].queue
            receipts: list[Receipts] = [await broker.send(pushes[0])]
        else:
            # A transaction: the server stores all items of the request or none.
            done = await broker.send(Transaction(pushes=pushes))
            receipts = done.pushed
        return Answer(results(items, owners, receipts), 201)

    return [Route("POST", "/api/v1/push", push)]
