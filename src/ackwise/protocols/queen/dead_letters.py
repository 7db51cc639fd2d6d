"""`/dlq`: lists, purges and replays dead letters."""

from __future__ import annotations

from typing import Any

from ackwise.broker import AsyncBroker
from ackwise.core import queries as q
from ackwise.core import validation
from ackwise.core.answers import QueueInfo
from ackwise.core.commands import PurgeDead, Replay
from ackwise.core.errors import BadInput, NotFound, UnknownQueue
from ackwise.core.rows import DeadLetter, DeadPage
from ackwise.core.settlement import Reason
from ackwise.protocols.http_request import Call
from ackwise.protocols.http_response import Answer, Route, answer, encode
from ackwise.protocols.queen.configure import tag_or_none
from ackwise.protocols.queen.vocabulary import (
    TRACE,
    QueenContext,
    number_in,
    parse_time,
    payload_field,
    read_object,
    show_time,
    text_in,
    uuid_in,
)
from ackwise.protocols.streamed_lists import array, pages, streamed
from ackwise.store.port import Store

DEFAULT_LIMIT = 100
MOST = 10_000
FURTHEST = 1 << 31
_WHY = {
    Reason.RETRY_LIMIT.value: "Retries exhausted",
    Reason.DELIVERY_LIMIT.value: "Delivery limit reached",
    Reason.REJECTED.value: "Rejected",
    Reason.MAX_WAIT.value: "Max wait time exceeded",
}
"""Error text of a dead letter whose consumer sent none, by reason."""


class DeadLetterNotFound(NotFound):
    """The dead letter does not exist; it may have been replayed or purged."""

    code = "dead_letter_not_found"


def routes(broker: AsyncBroker, context: QueenContext) -> list[Route]:
    letters = DeadLetterRoutes(broker, context)
    return [
        Route("GET", "/api/v1/dlq", letters.page),
        Route("DELETE", "/api/v1/dlq", letters.purge),
        Route("DELETE", "/api/v1/dlq/{id}", letters.delete),
        Route("POST", "/api/v1/dlq/{id}/replay", letters.replay),
        Route("POST", "/api/v1/messages/{partitionId}/{transactionId}/retry", letters.retry),
    ]


class DeadLetterRoutes:
    """Handlers of the dead-letter routes."""

    def __init__(self, broker: AsyncBroker, context: QueenContext) -> None:
        self._broker, self._lenient, self._maintenance = broker, context.upstream, context.maintenance

    async def page(self, call: Call) -> Answer:
        """Lists dead letters. A queue that does not exist has none, so that a monitor may start before the queue."""
        query = call.query
        limit = number_in(query, "limit", DEFAULT_LIMIT, MOST, lenient=self._lenient)
        offset = number_in(query, "offset", 0, FURTHEST, lenient=self._lenient)
        listing = q.ListDead(
            queue=query.get("queue") or None,
            group=query.get("consumerGroup") or None,
            partition=query.get("partition") or None,
            after_at=parse_time(query["from"], "from") if query.get("from") else None,
            before_at=parse_time(query["to"], "to", end_of_day=True) if query.get("to") else None,
            limit=limit,
            offset=offset,
        )
        writer = _LetterWriter(self._broker.store)
        await call.reserve(validation.ANSWER_BYTES)
        try:
            # Dead letters carry payloads, so the store bounds a page in bytes. The answer consists of all pages.
            pieces = pages(self._broker, listing, writer.add, rows=limit, most=limit or None)
            return await streamed(call, array(pieces, b'{"messages":[', lambda: writer.tail(limit, offset)))
        except UnknownQueue:
            return Answer(b'{"messages":[' + writer.tail(limit, offset))

    async def purge(self, call: Call) -> Answer:
        queue, group = call.query.get("queue") or None, call.query.get("consumerGroup") or None
        if queue is None and group is None:
            raise BadInput("queue or consumerGroup is required: all dead letters are never deleted at once")
        done = await self._broker.send(PurgeDead(queue=queue, group=group))
        return answer({"success": True, "deleted": done.count, "queue": queue, "consumerGroup": group})

    async def delete(self, call: Call) -> Answer:
        letter_id = uuid_in(call.params[0], "the dead letter's id")
        done = await self._broker.send(PurgeDead(ids=[letter_id]))
        if not done.count:
            raise DeadLetterNotFound
        return answer({"success": True, "deleted": done.count, "dlqId": letter_id})

    async def replay(self, call: Call) -> Answer:
        letter_id = uuid_in(call.params[0], "the dead letter's id")
        body = await read_object(call)
        page = await self._broker.ask(q.ListDead(ids=[letter_id]))
        if not page.letters:
            raise DeadLetterNotFound
        return await self._push_again(page.letters[0], text_in(body, "queue"), text_in(body, "partition"))

    async def retry(self, call: Call) -> Answer:
        """Replays the newest dead letter of a message. If the request names a group, replays the dead letter of this
        group."""
        partition_id, transaction_id = uuid_in(call.params[0], "partitionId"), call.params[1]
        group = text_in(await read_object(call), "consumerGroup") or call.query.get("consumerGroup") or None
        result = await self._broker.ask(q.FindMessage(partition_id=partition_id, transaction_id=transaction_id))
        letter = next((dead for dead in result.dead if group in (None, dead.group)), None)
        if letter is None:
            raise DeadLetterNotFound("the message is not a dead letter; only dead letters can be retried")
        return await self._push_again(letter, None, None)

    async def _push_again(self, letter: DeadLetter, queue: str | None, partition: str | None) -> Answer:
        """Pushes a copy at the tail and removes the record, in one step.

        If the copy's transaction id exists already, the record stays. During a push maintenance nothing happens.
        """
        if self._maintenance.may_keep_pushes and await self._maintenance.keeps_pushes():
            text = "push maintenance is on; replay the dead letter after its end"
            refused = {"success": False, "result": "maintenance", "error": text, "dlqRowRemoved": False}
            return answer({**refused, "code": "maintenance"}, 503)
        if queue is not None:
            await self._broker.ask(q.GetQueue(queue=queue))
        done = await self._broker.send(Replay(ids=[letter.id], queue=queue, partition=partition))
        copy = done.copies.get(letter.id)
        if copy is None:
            raise DeadLetterNotFound
        duplicate = copy.status == "duplicate"
        return answer(
            {
                "success": True,
                "result": "duplicate" if duplicate else "moved",
                "queue": queue or letter.queue,
                "partition": copy.partition,
                "consumerGroup": letter.group,
                "dlqId": letter.id,
                "originalTransactionId": letter.transaction_id,
                "replayedAs": {
                    "status": "duplicate" if duplicate else "queued",
                    "transaction_id": copy.transaction_id,
                    "message_id": copy.message_id,
                    "partition_id": copy.partition_id,
                    "queueName": queue or letter.queue,
                },
                "dlqRowRemoved": not duplicate,
            }
        )


class _LetterWriter:
    """Writes pages of dead letters as JSON, and the fields that follow them in the answer."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._total = 0
        self._queues: dict[str, QueueInfo | None] = {}

    def add(self, page: DeadPage) -> bytes:
        self._total = page.total
        return b",".join([encode(_letter_fields(letter, self._info(letter.queue))) for letter in page.letters])

    def _info(self, queue: str) -> QueueInfo | None:
        if queue not in self._queues:
            try:
                self._queues[queue] = self._store.ask(q.GetQueue(queue=queue))
            except UnknownQueue:
                self._queues[queue] = None
        return self._queues[queue]

    def tail(self, limit: int, offset: int) -> bytes:
        pagination = {"limit": limit, "offset": offset, "total": self._total}
        fields = {"total": self._total, "limit": limit, "offset": offset, "pagination": pagination}
        return b"],%b" % encode(fields)[1:]


def error_of(letter: DeadLetter) -> str:
    return letter.error or _WHY.get(letter.reason, letter.reason)


def _letter_fields(letter: DeadLetter, queue: QueueInfo | None) -> dict[str, Any]:
    """Fields of a dead letter. Some values occur twice because Queen's versions name them differently."""
    created_at, dead_at = show_time(letter.created_at), show_time(letter.dead_at)
    return {
        "id": letter.id,
        "messageId": letter.message_id,
        "partitionId": letter.partition_id,
        "transactionId": letter.transaction_id,
        "consumerGroup": letter.group,
        "errorMessage": error_of(letter),
        "retryCount": letter.failures,
        "originalCreatedAt": created_at,
        "movedToDlqAt": dead_at,
        "queueName": letter.queue,
        "data": payload_field(letter.payload, letter.content_type),
        "messageCreatedAt": created_at,
        "createdAt": created_at,
        "failedAt": dead_at,
        "queue": letter.queue,
        "namespace": tag_or_none(queue.namespace) if queue is not None else None,
        "task": tag_or_none(queue.task) if queue is not None else None,
        "partition": letter.partition,
        "partitionName": letter.partition,
        "traceId": letter.headers.get(TRACE),
        "producerSub": None,
        "reason": letter.reason,
        "deliveryCount": letter.deliveries,
    }
