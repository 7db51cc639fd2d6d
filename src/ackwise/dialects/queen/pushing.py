"""`POST /api/v1/push`."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from ackwise.broker import AsyncBroker
from ackwise.core import limits
from ackwise.core.answers import Receipts, TransactionDone
from ackwise.core.commands import Push, Transaction
from ackwise.core.errors import BadInput
from ackwise.core.messages import DEFAULT_PARTITION, NewMessage, PlainBatch
from ackwise.core.policy import QueuePolicy
from ackwise.dialects.cells import quoted
from ackwise.dialects.http import Answer, Call, Route, encode, parse
from ackwise.dialects.queen.words import TRACE, Words

_NULL = msgspec.Raw(b"null")


class Item(msgspec.Struct):
    """One message as Queen's clients send it; `data` is the seed's word for `payload`."""

    queue: str
    payload: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET
    data: msgspec.Raw = _NULL
    partition: str | None = DEFAULT_PARTITION
    transactionId: str | None = None
    traceId: str | None = None
    delaySeconds: float = 0.0

    @property
    def body(self) -> bytes:
        return bytes(self.data if self.payload is msgspec.UNSET else self.payload)

    @property
    def plain(self) -> bool:
        return not self.delaySeconds and not self.traceId


class _Body(msgspec.Struct):
    items: list[Item]


_decoder = msgspec.json.Decoder(_Body)


def read_items(body: bytes) -> list[Item]:
    """The items of a push, or upstream's own word for what is wrong with them."""
    try:
        return parse(_decoder, body).items
    except BadInput as problem:
        wrong = problem.message
        if "valid JSON" not in wrong and "$.items[" not in wrong:
            raise BadInput("items array is required") from None
        raise


def pushes_of(items: Iterable[Item], create: QueuePolicy) -> tuple[list[Push], list[int]]:
    """One push for each queue and partition, and which of them each item went into."""
    grouped: dict[tuple[str, str], list[Item]] = {}
    order: list[tuple[str, str]] = []
    for item in items:
        key = (item.queue, DEFAULT_PARTITION if item.partition is None else item.partition)
        grouped.setdefault(key, []).append(item)
        order.append(key)
    numbers = {key: number for number, key in enumerate(grouped)}
    pushes = [_push(queue, partition, some, create) for (queue, partition), some in grouped.items()]
    return pushes, [numbers[key] for key in order]


def _push(queue: str, partition: str, items: list[Item], create: QueuePolicy) -> Push:
    named = [item.transactionId for item in items if item.transactionId]
    if all(item.plain for item in items) and len(named) in (0, len(items)):
        batch = PlainBatch([item.body for item in items], named or None, partition)
        return Push(queue=queue, messages=batch, create=create)
    return Push(queue=queue, messages=[_message(item, partition) for item in items], create=create)


def _message(item: Item, partition: str) -> NewMessage:
    return NewMessage(
        item.body,
        partition=partition,
        transaction_id=item.transactionId or None,
        headers={TRACE: item.traceId} if item.traceId else None,
        delay=limits.micros(item.delaySeconds, "delaySeconds"),
    )


def results(items: list[Item], owners: list[int], receipts: list[Receipts]) -> bytes:
    """One result for each item, in the order in which they were sent."""
    run = receipts[0].run if len(receipts) == 1 else None
    if run is not None and all(item.plain for item in items):
        message_ids, txids = run.columns()
        spelled = quoted(txids)
        rest = f'","partition_id":"{run.partition_id}","trace_id":null,"queueName":{encode(items[0].queue).decode()}}}'
        found = [
            f'{{"index":{index},"transaction_id":{txid},"status":"queued","message_id":"{message_id}{rest}'
            for index, (message_id, txid) in enumerate(zip(message_ids, spelled, strict=True))
        ]
        return f"[{','.join(found)}]".encode()
    left = [iter(one) for one in receipts]
    listed = []
    for index, (item, owner) in enumerate(zip(items, owners, strict=True)):
        receipt = next(left[owner])
        listed.append(
            {
                "index": index,
                "transaction_id": receipt.transaction_id,
                "status": "duplicate" if receipt.status == "duplicate" else "queued",
                "message_id": receipt.message_id,
                "partition_id": receipt.partition_id,
                "trace_id": item.traceId,
                "queueName": item.queue,
            }
        )
    return encode(listed)


def routes(broker: AsyncBroker, words: Words) -> list[Route]:
    async def push(call: Call) -> Answer:
        items = read_items(await call.body())
        if not items:
            return Answer(b"[]", 201)
        pushes, owners = pushes_of(items, words.policy(pushed=True))
        if len(pushes) == 1:
            receipts: list[Receipts] = [await broker.send(pushes[0])]
        else:
            # All of the request or nothing of it, also when it goes to several places.
            done: TransactionDone = await broker.send(Transaction(pushes=pushes))
            receipts = done.pushed
        return Answer(results(items, owners, receipts), 201)

    return [Route("POST", "/api/v1/push", push)]
