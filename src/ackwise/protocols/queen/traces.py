"""`/traces`: notes that consumers attach to messages."""

from __future__ import annotations

from typing import Any

import msgspec

from ackwise.broker import AsyncBroker
from ackwise.core import queen_queries as q
from ackwise.core.commands import AddTrace
from ackwise.core.errors import BadInput, MessageNotFound
from ackwise.core.messages import QUEUE_MODE
from ackwise.core.queries import FindMessage
from ackwise.core.rows import TraceRow
from ackwise.protocols.http_request import Call, parse
from ackwise.protocols.http_response import Answer, Route, answer, encode
from ackwise.protocols.queen.vocabulary import QueenContext, number_in, payload_field, show_time, uuid_in
from ackwise.protocols.streamed_lists import array, joined, pages, stream_list, streamed
from ackwise.store.port import Store

PAGE = 50
LARGEST_PAGE = 4 << 20
"""Bytes that a page of traces may have."""
MOST = 1000
FURTHEST = 1 << 31
LARGEST_PAYLOADS = 4 << 20
"""Bytes of payloads that a list of traces shows. Further traces have no payload."""


class _Body(msgspec.Struct):
    transactionId: str = ""
    partitionId: str = ""
    data: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET
    consumerGroup: str | None = None
    eventType: str | None = None
    traceNames: msgspec.Raw = msgspec.Raw(b"null")


_decoder = msgspec.json.Decoder(_Body)
_any_decoder = msgspec.json.Decoder()


def routes(broker: AsyncBroker, context: QueenContext) -> list[Route]:
    traces = TraceRoutes(broker, context)
    return [
        Route("POST", "/api/v1/traces", traces.add),
        Route("GET", "/api/v1/traces/names", traces.names),
        Route("GET", "/api/v1/traces/by-name/{name}", traces.named),
        Route("GET", "/api/v1/traces/{partitionId}/{transactionId}", traces.of_message),
    ]


class TraceRoutes:
    """Handlers of the trace routes."""

    def __init__(self, broker: AsyncBroker, context: QueenContext) -> None:
        self._broker, self._upstream = broker, context.upstream

    async def add(self, call: Call) -> Answer:
        body = _read(await call.body())
        partition_id = uuid_in(body.partitionId, "partitionId")
        lane = seq = None
        try:
            result = await self._broker.ask(FindMessage(partition_id=partition_id, transaction_id=body.transactionId))
            if result.due_at is None:
                lane, seq = result.message.lane, result.message.seq
        except MessageNotFound:
            if not self._upstream:
                return answer({"success": False, "error": "Message not found", "code": MessageNotFound.code}, 404)
        added = await self._broker.send(
            AddTrace(
                partition_id=partition_id,
                transaction_id=body.transactionId,
                data=bytes(body.data).decode() if body.data is not msgspec.UNSET else "null",
                names=_names(body.traceNames),
                group=body.consumerGroup or QUEUE_MODE,
                event=body.eventType or "info",
                worker=self._broker.store.traits.instance,
                lane=lane,
                seq=seq,
            )
        )
        return answer({"success": True, "traceId": added.trace_id}, 201)

    async def of_message(self, call: Call) -> Answer:
        await call.reserve(LARGEST_PAGE)
        query = q.ListTraces(partition_id=uuid_in(call.params[0], "partitionId"), transaction_id=call.params[1])
        return await stream_list(call, self._broker, query, "traces", _fields, rows=PAGE)

    async def named(self, call: Call) -> Answer:
        limit = number_in(call.query, "limit", 100, MOST, least=1, lenient=self._upstream)
        offset = number_in(call.query, "offset", 0, FURTHEST, lenient=self._upstream)
        name = call.params[0]
        await call.reserve(LARGEST_PAGE + LARGEST_PAYLOADS)
        total = await self._broker.ask(q.CountNamedTraces(name=name))
        writer = _NamedTraces(self._broker.store, with_payloads=not self._upstream)
        tail = encode({"total": total, "pagination": {"limit": limit, "offset": offset}})[1:]
        pieces = pages(self._broker, q.ListNamedTraces(name=name, offset=offset), writer.add, rows=PAGE, most=limit)
        return await streamed(call, array(pieces, b'{"traces":[', lambda: b"]," + tail))

    async def names(self, call: Call) -> Answer:
        limit = number_in(call.query, "limit", 50, MOST, least=1, lenient=self._upstream)
        offset = number_in(call.query, "offset", 0, FURTHEST, lenient=self._upstream)
        listed = await self._broker.ask(q.ListTraceNames(limit=limit, offset=offset))
        names = [
            {
                "trace_name": row.name,
                "trace_count": row.traces,
                "message_count": row.messages,
                "last_seen": show_time(row.last_at),
            }
            for row in listed.names
        ]
        return answer({"trace_names": names, "total": listed.total, "pagination": {"limit": limit, "offset": offset}})


def _read(body: bytes) -> _Body:
    """Decodes the body. The errors for a missing id and missing data have the same texts as upstream."""
    try:
        request = parse(_decoder, body)
    except BadInput as problem:
        if "transactionId" in problem.message or "partitionId" in problem.message:
            raise BadInput("transactionId and partitionId are required") from None
        raise
    if not request.transactionId or not request.partitionId:
        raise BadInput("transactionId and partitionId are required")
    if request.data is msgspec.UNSET:
        raise BadInput("data is required")
    return request


def _names(value: msgspec.Raw) -> list[str]:
    """Names of a trace. A single text is a list with one name. Other values are ignored, as in upstream."""
    names: Any = parse(_any_decoder, bytes(value))
    if isinstance(names, str):
        names = [names]
    return [name for name in names if isinstance(name, str) and name] if isinstance(names, list) else []


def _fields(row: TraceRow) -> dict[str, Any]:
    return {
        "id": row.id,
        "event_type": row.event,
        "data": msgspec.Raw(row.data.encode()),
        "consumer_group": row.group,
        "worker_id": row.worker,
        "created_at": show_time(row.created_at),
        "trace_names": row.names,
    }


class _NamedTraces:
    """Writes pages of traces that have a name, each with the payload of its message if the payload fits."""

    def __init__(self, store: Store, *, with_payloads: bool) -> None:
        self._store, self._room = store, LARGEST_PAYLOADS if with_payloads else 0
        self._payloads: dict[tuple[str, str], object] = {}
        self.add = joined(self._show)

    def _show(self, row: TraceRow) -> dict[str, Any]:
        return {
            **_fields(row),
            "transaction_id": row.transaction_id,
            "partition_id": row.partition_id,
            "queue_name": row.queue,
            "partition_name": row.partition,
            "message_payload": self._payload(row),
        }

    def _payload(self, row: TraceRow) -> object:
        key = (row.partition_id, row.transaction_id)
        if key not in self._payloads:
            if self._room <= 0:
                return None
            self._payloads[key] = self._read_payload(*key)
        return self._payloads[key]

    def _read_payload(self, partition_id: str, transaction_id: str) -> object:
        try:
            result = self._store.ask(FindMessage(partition_id=partition_id, transaction_id=transaction_id))
        except MessageNotFound:
            return None
        self._room -= len(result.message.payload)
        return payload_field(result.message.payload, result.message.content_type)
