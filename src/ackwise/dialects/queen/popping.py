"""`GET /api/v1/pop/…`: claims, with or without waiting."""

from __future__ import annotations

from collections.abc import Awaitable
from typing import Any

from ackwise.broker import AsyncBroker
from ackwise.broker.handing import Run, runs
from ackwise.core import ids, limits
from ackwise.core.answers import Handed
from ackwise.core.commands import Claim
from ackwise.core.errors import BadInput
from ackwise.core.messages import QUEUE_MODE
from ackwise.core.native import instants
from ackwise.dialects.cells import cells, created, listed, quoted
from ackwise.dialects.handover import build
from ackwise.dialects.http import Answer, Call, Gone, Route, encode
from ackwise.dialects.queen.asking import number_in
from ackwise.dialects.queen.members import consumer_of
from ackwise.dialects.queen.words import TRACE, Words, parse_time, show_time

DEFAULT_BATCH = 1
UPSTREAM_BATCH = 200
MOST = 10_000
DEFAULT_WAIT = 30_000
LONGEST_WAIT = 300_000
LONGEST_NUMBER = 1 << 53
MOST_PARTITIONS = 64
AUTOPILOT = (200, 4)
"""Messages and partitions for a client that leaves the numbers to the server."""

MODES = ("all", "new", "new-only", "timestamp")
"""Values of `subscriptionMode`: where a new group begins."""

_EMPTY = Answer(b"", 204)


def _flag(text: str | None) -> bool:
    return text in ("true", "1")


class Asked:
    """What a pop's query string asks for."""

    __slots__ = ("claim", "wait")

    def __init__(self, query: dict[str, str], words: Words, queue: str | None, partition: str | None) -> None:
        autopilot = _flag(query.get("autopilot"))
        batch, partitions = AUTOPILOT if autopilot else (UPSTREAM_BATCH if words.upstream else DEFAULT_BATCH, 1)
        group = query.get("consumerGroup") or QUEUE_MODE
        self.claim = Claim(
            queue=queue,
            namespace=query.get("namespace") or None if queue is None else None,
            task=query.get("task") or None if queue is None else None,
            group=group,
            partitions=None if partition is None else (partition,),
            most=number_in(query, "batch", batch, MOST, least=1, lenient=words.upstream),
            most_bytes=_most_bytes(query, words),
            most_partitions=_partitions(query, partitions, words),
            lease=_lease(query.get("leaseSeconds"), words),
            auto_ack=_flag(query.get("autoAck")) or _flag(query.get("commitOnDelivery")),
            start=_start(query, group, words),
            # Clients with autopilot expect that a nack releases the partition, as upstream does.
            yields=autopilot and words.upstream,
            create=words.policy(),
        )
        # A client may offer to wait longer than the server lets it.
        wait = number_in(query, "timeout", DEFAULT_WAIT, LONGEST_NUMBER, lenient=words.upstream)
        self.wait = min(wait, LONGEST_WAIT) / 1000 if _flag(query.get("wait")) else 0


def _most_bytes(query: dict[str, str], words: Words) -> int | None:
    """The value of `maxBytes`. Upstream mode ignores a value that is not a number above 0."""
    text = query.get("maxBytes")
    if not text:
        return None
    # Python refuses to read a number with thousands of digits.
    digits = text.lstrip("0")[:18]
    if text.isascii() and text.isdecimal() and digits:
        return min(int(digits), limits.MAX_CLAIM_BYTES)
    if words.upstream:
        return None
    raise BadInput(f"maxBytes must be a number of bytes above 0, not {text!r:.40}")


def _partitions(query: dict[str, str], default: int, words: Words) -> int:
    """The most partitions of a pop. Upstream takes 0 and less as no bound."""
    if not words.upstream:
        return number_in(query, "partitions", default, MOST_PARTITIONS, least=1)
    wanted = number_in(query, "partitions", default, MOST_PARTITIONS, lenient=True)
    return wanted or MOST


def _lease(text: str | None, words: Words) -> int | None:
    """The lease time of a pop. Upstream replaces an invalid value with the queue's own lease time."""
    if not text:
        return None
    try:
        # `float` also takes `1_0` and digits of other scripts.
        seconds = float(text) if text.isascii() and "_" not in text else None
    except ValueError:
        seconds = None
    if seconds is None:
        if words.upstream:
            return None
        raise BadInput(f"leaseSeconds must be a number of seconds, not {text!r:.40}")
    if words.upstream:
        return limits.lease_micros(min(seconds, limits.MAX_LEASE_SECONDS)) if seconds >= 0.001 else None
    return limits.lease_micros(seconds)


def _start(query: dict[str, str], group: str, words: Words) -> Any:
    """Where a group begins that is new: it matters at first contact only. Queue mode begins at the oldest."""
    mode = query.get("subscriptionMode")
    if mode and mode not in MODES and not words.upstream:
        raise BadInput(f"subscriptionMode must be one of {', '.join(MODES)}, not {mode!r:.40}")
    since = query.get("subscriptionFrom")
    if since and since != "now":
        try:
            at = parse_time(since, "subscriptionFrom")
            return "all" if group == QUEUE_MODE else at
        except BadInput:
            if not words.upstream:
                raise
    if group == QUEUE_MODE:
        return "all"
    if since == "now" or mode in ("new", "new-only"):
        return "new"
    return "all" if mode else words.start


def routes(broker: AsyncBroker, words: Words) -> list[Route]:
    async def pop(call: Call, queue: str | None, partition: str | None) -> Answer:
        asked = Asked(call.query, words, queue, partition)
        claim, consumer = asked.claim, consumer_of(call)
        if claim.queue is None and claim.namespace is None and claim.task is None:
            body = {"success": False, "error": "namespace or task is required", "messages": [], "code": "bad_input"}
            return Answer(encode(body), 400)
        if claim.start == "new" and queue is None:
            # Queues that are made later are new to this group as a whole.
            claim.start = words.first_seen(claim, broker.now())
        handover = call.hand_over()
        claim.most_bytes = handover.bound(claim.most_bytes)
        if call.gone:
            raise Gone
        handed = await broker.claim(claim, gate=handover.gate)
        if queue is not None and not handed.claimed.grants:
            words.members.note(queue, claim.group, consumer, broker.now())
        if asked.wait and not handed.claimed.grants:
            # Only who really waits has to be watched for leaving.
            handed = await call.unless_gone(broker.claim(claim, asked.wait, gate=handover.gate))
        claimed = handed.claimed
        handover.keep(broker, claimed)
        if call.gone:
            raise Gone
        if queue is not None:
            owner = ids.default_owner(claimed.lease_no) if claimed.lease_no else None
            words.members.note(queue, claim.group, consumer, broker.now(), owner)
        if not claimed.grants:
            return _EMPTY
        body, runs_of = await build(broker, [claimed], spell, handed)
        if claimed.lease_no:
            for run, txids in runs_of:
                words.delivered.note(claimed.lease_id, claimed.group, run.grant, run.lo, txids)
        return Answer(body)

    def by_queue(call: Call) -> Awaitable[Answer]:
        return pop(call, call.params[0], None)

    def by_partition(call: Call) -> Awaitable[Answer]:
        return pop(call, call.params[0], call.params[1])

    def by_tag(call: Call) -> Awaitable[Answer]:
        return pop(call, None, None)

    return [
        Route("GET", "/api/v1/pop/queue/{queue}", by_queue),
        Route("GET", "/api/v1/pop/queue/{queue}/partition/{partition}", by_partition),
        Route("GET", "/api/v1/pop", by_tag),
    ]


Spelled = list[tuple[Run, list[str]]]
"""Runs of messages, each with its transaction ids."""


def spell(handed: Handed) -> tuple[bytes, Spelled]:
    """A claim as JSON, payloads copied as they are; what can be written once per run is."""
    claimed = handed.claimed
    lease_id, group = claimed.lease_id, claimed.group
    first = claimed.grants[0]
    pieces: list[bytes] = []
    spelled = [(run, _spell_run(pieces, run, lease_id, group)) for run in runs(handed)]
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
            encode(show_time(claimed.deadline or None)),
        )
    )
    return b"%b%b]}" % (head, b",".join(pieces)), spelled


def _spell_run(pieces: list[bytes], run: Run, lease_id: str, group: str) -> list[str]:
    """Appends the messages of a run and returns its transaction ids."""
    grant, found = run.grant, cells(run)
    message_ids = found.message_ids
    txids = found.transaction_ids(message_ids)
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
    named = listed(message_ids)
    size = len(named)
    traces = [b"null"] * size
    if found.extras is not None:
        traces = [encode(extra.headers.get(TRACE)) for extra in found.extras]
    moments = listed(map(instants.text, created(found, run)))
    columns = (named, named, listed(quoted(txids)), traces, found.texts, moments, range(run.lo, run.hi))
    pieces += [template % row for row in zip(*columns, strict=True)]
    return txids
