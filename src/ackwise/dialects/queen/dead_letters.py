"""`/api/v1/dlq`: dead letters, looked at, pushed again and forgotten."""

from __future__ import annotations

from typing import Any

from ackwise.broker import AsyncBroker
from ackwise.core import limits
from ackwise.core import queries as q
from ackwise.core.answers import Counted, QueueInfo, Redriven
from ackwise.core.commands import PurgeDead, Replay
from ackwise.core.errors import BadInput, NotFound, UnknownQueue
from ackwise.core.settlement import Reason
from ackwise.dialects.http import Answer, Call, Route, answer, encode
from ackwise.dialects.pages import array, pages, streamed
from ackwise.dialects.queen.asking import number_in, read_object, shown_payload, text_in, uuid_in
from ackwise.dialects.queen.configuring import tag
from ackwise.dialects.queen.words import TRACE, Words, parse_time, show_time
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
"""What is said where the consumer said nothing."""


class DeadLetterNotFound(NotFound):
    """There is no such dead letter; it may have been replayed or purged."""

    code = "dead_letter_not_found"


def routes(broker: AsyncBroker, words: Words) -> list[Route]:
    letters = DeadLetters(broker, words)
    return [
        Route("GET", "/api/v1/dlq", letters.page),
        Route("DELETE", "/api/v1/dlq", letters.purge),
        Route("DELETE", "/api/v1/dlq/{id}", letters.delete),
        Route("POST", "/api/v1/dlq/{id}/replay", letters.replay),
        Route("POST", "/api/v1/messages/{partitionId}/{transactionId}/retry", letters.retry),
    ]


class DeadLetters:
    def __init__(self, broker: AsyncBroker, words: Words) -> None:
        self._broker, self._lenient = broker, words.upstream

    async def page(self, call: Call) -> Answer:
        """A queue that is not there has no dead letters: who watches it need not know when it was made."""
        query = call.query
        limit = number_in(query, "limit", DEFAULT_LIMIT, MOST, lenient=self._lenient)
        offset = number_in(query, "offset", 0, FURTHEST, lenient=self._lenient)
        wanted = q.ListDead(
            queue=query.get("queue") or None,
            group=query.get("consumerGroup") or None,
            partition=query.get("partition") or None,
            after_at=parse_time(query["from"], "from") if query.get("from") else None,
            before_at=parse_time(query["to"], "to", end_of_day=True) if query.get("to") else None,
            limit=limit,
            offset=offset,
        )
        shown = _Shown(self._broker.store)
        await call.reserve(limits.ANSWER_BYTES)
        try:
            # Letters carry payloads: a page is bounded in bytes, and all pages together are the answer.
            found = pages(self._broker, wanted, shown.add, rows=limit, most=limit or None)
            return await streamed(call, array(found, b'{"messages":[', lambda: shown.tail(limit, offset)))
        except UnknownQueue:
            return Answer(b'{"messages":[' + shown.tail(limit, offset))

    async def purge(self, call: Call) -> Answer:
        queue, group = call.query.get("queue") or None, call.query.get("consumerGroup") or None
        if queue is None and group is None:
            raise BadInput("queue or consumerGroup is required: all dead letters are never deleted at once")
        done: Counted = await self._broker.send(PurgeDead(queue=queue, group=group))
        return answer({"success": True, "deleted": done.count, "queue": queue, "consumerGroup": group})

    async def delete(self, call: Call) -> Answer:
        letter = uuid_in(call.params[0], "the dead letter's id")
        done: Counted = await self._broker.send(PurgeDead(ids=[letter]))
        if not done.count:
            raise DeadLetterNotFound
        return answer({"success": True, "deleted": done.count, "dlqId": letter})

    async def replay(self, call: Call) -> Answer:
        wanted = uuid_in(call.params[0], "the dead letter's id")
        body = await read_object(call)
        page: q.DeadPage = await self._broker.ask(q.ListDead(ids=[wanted]))
        if not page.letters:
            raise DeadLetterNotFound
        return await self._push_again(page.letters[0], text_in(body, "queue"), text_in(body, "partition"))

    async def retry(self, call: Call) -> Answer:
        """The newest dead letter of a message, or a group's own."""
        partition_id, transaction_id = uuid_in(call.params[0], "partitionId"), call.params[1]
        group = text_in(await read_object(call), "consumerGroup") or call.query.get("consumerGroup") or None
        found: q.FoundMessage = await self._broker.ask(
            q.FindMessage(partition_id=partition_id, transaction_id=transaction_id)
        )
        letter = next((one for one in found.dead if group in (None, one.group)), None)
        if letter is None:
            raise DeadLetterNotFound("the message is not a dead letter; only those can be tried again")
        return await self._push_again(letter, None, None)

    async def _push_again(self, letter: q.DeadLetter, queue: str | None, partition: str | None) -> Answer:
        """Push a copy at the tail and remove the record, in one step. If the copy's transaction id exists already,
        the record stays."""
        if queue is not None:
            await self._broker.ask(q.GetQueue(queue=queue))
        done: Redriven = await self._broker.send(Replay(ids=[letter.id], queue=queue, partition=partition))
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


class _Shown:
    """Pages of dead letters as JSON, and the fields behind them in the answer."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._total = 0
        self._queues: dict[str, QueueInfo | None] = {}

    def add(self, page: q.DeadPage) -> bytes:
        self._total = page.total
        return b",".join([encode(_spelled(letter, self._info(letter.queue))) for letter in page.letters])

    def _info(self, queue: str) -> QueueInfo | None:
        if queue not in self._queues:
            try:
                self._queues[queue] = self._store.get_queue(q.GetQueue(queue=queue))
            except UnknownQueue:
                self._queues[queue] = None
        return self._queues[queue]

    def tail(self, limit: int, offset: int) -> bytes:
        pagination = {"limit": limit, "offset": offset, "total": self._total}
        shown = {"total": self._total, "limit": limit, "offset": offset, "pagination": pagination}
        return b"],%b" % encode(shown)[1:]


def error_of(letter: q.DeadLetter) -> str:
    return letter.error or _WHY.get(letter.reason, letter.reason)


def _spelled(letter: q.DeadLetter, queue: QueueInfo | None) -> dict[str, Any]:
    """One dead letter under every name that a version of Queen has had for its parts."""
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
        "data": shown_payload(letter.payload, letter.content_type),
        "messageCreatedAt": created_at,
        "createdAt": created_at,
        "failedAt": dead_at,
        "queue": letter.queue,
        "namespace": tag(queue.namespace) if queue is not None else None,
        "task": tag(queue.task) if queue is not None else None,
        "partition": letter.partition,
        "partitionName": letter.partition,
        "traceId": letter.headers.get(TRACE),
        "producerSub": None,
        "reason": letter.reason,
        "deliveryCount": letter.deliveries,
    }
