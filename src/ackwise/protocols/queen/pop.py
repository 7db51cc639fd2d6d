"""`GET /pop/…`: claims messages and writes them as JSON."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import msgspec

from ackwise.broker import AsyncBroker
from ackwise.broker.deliveries import Gate, SegmentSlice, is_short, segment_slices
from ackwise.core import ids, validation
from ackwise.core.answers import Handed
from ackwise.core.commands import Claim
from ackwise.core.errors import BadInput
from ackwise.core.messages import QUEUE_MODE
from ackwise.protocols.http_request import Call
from ackwise.protocols.http_response import Answer, Route, encode
from ackwise.protocols.json_columns import text_columns
from ackwise.protocols.queen.deliveries import consumer_of
from ackwise.protocols.queen.vocabulary import TRACE, QueenContext, number_in, parse_time
from ackwise.wire import timestamps

DEFAULT_BATCH = 1
UPSTREAM_BATCH = 200
MOST = 10_000
DEFAULT_WAIT = 30_000
LONGEST_WAIT = 300_000
LONGEST_NUMBER = 1 << 53
MOST_PARTITIONS = 64
MOST_REMEMBERED = 1000
"""Maximum number of remembered requests. Path and query of each have at most `LONGEST_REMEMBERED` bytes."""
LONGEST_REMEMBERED = 500
AUTOPILOT = (200, 4)
"""(messages, partitions) of a pop with `autopilot`: the client lets the server choose."""

MODES = ("all", "new", "new-only", "timestamp")
"""Values of `subscriptionMode`: where a new group begins."""

_EMPTY = Answer(b"", 204)


def _flag(text: str | None) -> bool:
    return text in ("true", "1")


class PopRequest:
    """Claim, waiting time and client id that a pop's query string describes."""

    __slots__ = ("claim", "client_id", "names_nothing", "wait")

    def __init__(self, query: dict[str, str], context: QueenContext, queue: str | None, partition: str | None) -> None:
        autopilot = _flag(query.get("autopilot"))
        batch, partitions = AUTOPILOT if autopilot else (UPSTREAM_BATCH if context.upstream else DEFAULT_BATCH, 1)
        group = query.get("consumerGroup") or QUEUE_MODE
        self.claim = Claim(
            queue=queue,
            namespace=query.get("namespace") or None if queue is None else None,
            task=query.get("task") or None if queue is None else None,
            group=group,
            partitions=None if partition is None else (partition,),
            most=number_in(query, "batch", batch, MOST, least=1, lenient=context.upstream),
            most_bytes=_most_bytes(query, context),
            most_partitions=_partitions(query, partitions, context),
            lease=_lease(query.get("leaseSeconds"), context),
            auto_ack=_flag(query.get("autoAck")) or _flag(query.get("commitOnDelivery")),
            start=_start(query, group, context),
            # Clients with autopilot expect that a nack releases the partition, as upstream does.
            yields=autopilot and context.upstream,
            create=context.policy,
        )
        self.names_nothing = self.claim.queue is None and self.claim.namespace is None and self.claim.task is None
        # The server shortens a longer timeout instead of refusing it.
        wait = number_in(query, "timeout", DEFAULT_WAIT, LONGEST_NUMBER, lenient=context.upstream)
        self.wait = min(wait, LONGEST_WAIT) / 1000 if _flag(query.get("wait")) else 0
        client_id = query.get("clientId")
        self.client_id = validation.name(client_id, "clientId") if client_id else None


def _most_bytes(query: dict[str, str], context: QueenContext) -> int | None:
    """The value of `maxBytes`. Upstream mode ignores a value that is not a number above 0."""
    text = query.get("maxBytes")
    if text is None:
        return None
    # Python refuses to read a number with thousands of digits.
    digits = text.lstrip("0")[:18]
    if text.isascii() and text.isdecimal() and digits:
        return min(int(digits), validation.MAX_CLAIM_BYTES)
    if context.upstream:
        return None
    raise BadInput(f"maxBytes must be a number of bytes above 0, not {text!r:.40}")


def _partitions(query: dict[str, str], default: int, context: QueenContext) -> int:
    """Maximum number of partitions of a pop. In upstream mode 0 and negative numbers mean no limit."""
    if not context.upstream:
        return number_in(query, "partitions", default, MOST_PARTITIONS, least=1)
    return number_in(query, "partitions", default, MOST_PARTITIONS, lenient=True) or MOST


def _lease(text: str | None, context: QueenContext) -> int | None:
    """The lease time of a pop. Upstream replaces an invalid value with the queue's own lease time."""
    if text is None:
        return None
    try:
        # `float` also takes `1_0` and digits of other scripts.
        seconds = float(text) if text.isascii() and "_" not in text else None
    except ValueError:
        seconds = None
    if seconds is None:
        if context.upstream:
            return None
        raise BadInput(f"leaseSeconds must be a number of seconds, not {text!r:.40}")
    if context.upstream:
        return validation.lease_micros(min(seconds, validation.MAX_LEASE_SECONDS)) if seconds >= 0.001 else None
    return validation.lease_micros(seconds)


def _start(query: dict[str, str], group: str, context: QueenContext) -> Any:
    """Where the group begins if this pop creates it. Queue mode always begins at the oldest message."""
    mode = query.get("subscriptionMode")
    if mode and mode not in MODES and not context.upstream:
        raise BadInput(f"subscriptionMode must be one of {', '.join(MODES)}, not {mode!r:.40}")
    since = query.get("subscriptionFrom")
    if since and since != "now":
        try:
            at = parse_time(since, "subscriptionFrom")
            return "all" if group == QUEUE_MODE else at
        except BadInput:
            if not context.upstream:
                raise
    if group == QUEUE_MODE:
        return "all"
    if since == "now" or mode in ("new", "new-only"):
        return "new"
    return "all" if mode else context.start


def routes(broker: AsyncBroker, context: QueenContext) -> list[Route]:
    pops = PopRoutes(broker, context)
    return [
        Route("GET", "/api/v1/pop/queue/{queue}", pops.pop),
        Route("GET", "/api/v1/pop/queue/{queue}/partition/{partition}", pops.pop),
        Route("GET", "/api/v1/pop", pops.pop),
    ]


class PopRoutes:
    """Handlers of the pop routes."""

    def __init__(self, broker: AsyncBroker, context: QueenContext) -> None:
        self._broker, self._context = broker, context
        self._recent: dict[tuple[bytes, bytes], PopRequest] = {}
        """Recent requests by path and query string. Consumers repeat the same request."""

    async def pop(self, call: Call) -> Answer:
        """Pops from a partition, from a queue, or by namespace and task, as the path says."""
        broker, context = self._broker, self._context
        target = call.scope["raw_path"], call.scope["query_string"]
        wanted = self._recent.get(target) or self._read(call, target)
        if context.maintenance.may_stop_pops and await context.maintenance.stops_pops():
            return _EMPTY
        consumer = wanted.client_id or consumer_of(call)
        claim = msgspec.structs.replace(wanted.claim)
        if wanted.names_nothing:
            error = {"success": False, "error": "namespace or task is required", "messages": [], "code": "bad_input"}
            return Answer(encode(error), 400)
        if claim.start == "new" and claim.queue is None:
            # The group also gets all messages of queues that are created later.
            claim.start = context.first_seen(claim, broker.wall())
        claim.most_bytes, gate = call.begin_claim(claim.most_bytes)
        note = partial(self._note_poll, claim.queue, claim.group, consumer)
        handed = await (
            self._wait(call, claim, wanted.wait, gate, note)
            if wanted.wait
            else broker.claim(claim, gate=gate, on_park=note)
        )
        claimed = handed.claimed
        call.keep_claim(broker, claimed)
        if not claimed.grants:
            note()
            return _EMPTY
        call.queue = claimed.grants[0].queue
        call.messages = sum(grant.hi - grant.lo for grant in claimed.grants)
        # A pop by namespace names no queue: it counts in the queue that had messages.
        owner = ids.default_owner(claimed.lease_no) if claimed.lease_no else None
        now, shift = broker.now_and_shift()
        context.consumers.note(claimed.grants[0].queue, claim.group, consumer, now, owner)
        lease_id = ids.lease_id(claimed.lease_no, claimed.tag) if claimed.lease_no else ""
        if is_short(claimed):
            body, written = write_claim(handed, lease_id, claimed.deadline - shift)
        else:
            body, written = await broker.in_thread(write_claim, handed, lease_id, claimed.deadline - shift)
        # Messages that were acked at once have no lease, so no ack follows.
        for run, txids in written if claimed.lease_no else ():
            context.deliveries.note(lease_id, claimed.group, run.grant, run.lo, txids)
        return Answer(body)

    async def _wait(self, call: Call, claim: Claim, seconds: float, gate: Gate, on_park: Callable[[], None]) -> Handed:
        """Claims, and waits for messages until the client disconnects or a pop maintenance begins.

        Watching the connection has a cost, so only a pop that may wait does so.
        """
        with self._context.maintenance.waiting_pop() as stopped:
            claiming = self._broker.claim(claim, seconds, stopped=stopped, gate=gate, on_park=on_park)
            return await call.unless_gone(claiming)

    def _read(self, call: Call, target: tuple[bytes, bytes]) -> PopRequest:
        queue, partition = (*call.params, None, None)[:2]
        request = PopRequest(call.query, self._context, queue, partition)
        if len(self._recent) >= MOST_REMEMBERED:
            self._recent.clear()
        if sum(map(len, target)) <= LONGEST_REMEMBERED:
            self._recent[target] = request
        return request

    def _note_poll(self, queue: str | None, group: str, consumer: str) -> None:
        """Note a consumer that gets no message yet. A pop by namespace names no queue."""
        if queue is not None:
            self._context.consumers.note(queue, group, consumer, self._broker.now())


RunIds = list[tuple[SegmentSlice, list[str]]]
"""Runs of messages, each with its transaction ids."""


def write_claim(handed: Handed, lease_id: str, expires_at: int) -> tuple[bytes, RunIds]:
    """Writes a claim as JSON. Copies payloads as they are and writes fields that a run shares only once."""
    claimed = handed.claimed
    group, first = claimed.group, claimed.grants[0]
    pieces: list[bytes] = []
    run_ids = [(run, _write_run(pieces, run, lease_id, group)) for run in segment_slices(handed)]
    head = (
        b'{"success":true,"queue":%b,"partition":%b,"partitionId":"%b","leaseId":"%b","consumerGroup":%b,'
        b'"partitionsClaimed":%d,"leaseExpiresAt":%b,"messages":['
        % (
            encode(first.queue),
            encode(first.partition),
            first.partition_id.encode(),
            lease_id.encode(),
            encode(group),
            len({grant.partition_id for grant in claimed.grants}),
            encode(timestamps.text(expires_at) if claimed.deadline else None),
        )
    )
    return b"%b%b]}" % (head, b",".join(pieces)), run_ids


def _write_run(pieces: list[bytes], run: SegmentSlice, lease_id: str, group: str) -> list[str]:
    """Appends the messages of a run and returns its transaction ids."""
    grant, columns = run.grant, text_columns(run)
    shared = encode(
        {
            "producerSub": None,
            "partitionId": grant.partition_id,
            "partition": grant.partition,
            "queue": grant.queue,
            "leaseId": lease_id,
            "consumerGroup": group,
            "retryCount": grant.failures,
            "deliveryAttempt": grant.attempt,
        }
    )[1:-1].replace(b"%", b"%%")
    template = (
        b'{"id":"%%b","messageId":"%%b","transactionId":%%b,"traceId":%%b,"data":%%b,"createdAt":"%%b",%b,"offset":%%d}'
        % shared
    )
    traces = [b"null"] * len(columns.texts)
    if columns.extras is not None:
        traces = [encode(extra.headers.get(TRACE)) for extra in columns.extras]
    rows = zip(
        columns.message_ids,
        columns.message_ids,
        columns.quoted_txids,
        traces,
        columns.texts,
        columns.created,
        range(run.lo, run.hi),
        strict=True,
    )
    pieces += [template % row for row in rows]
    return columns.txids
