"""`POST /ack` and `POST /ack/batch`: acknowledgements become settlements."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

import msgspec

from ackwise.broker import AsyncBroker
from ackwise.core import validation
from ackwise.core.answers import Settled
from ackwise.core.commands import ByRange, ByTransaction, Settle, Settlement
from ackwise.core.errors import BadInput
from ackwise.core.messages import QUEUE_MODE
from ackwise.core.settlement import Outcome, Verdict
from ackwise.protocols.http_request import Call, parse
from ackwise.protocols.http_response import Answer, Route, encode
from ackwise.protocols.queen.deliveries import PartitionLease
from ackwise.protocols.queen.vocabulary import QueenContext, shape_of, uuid_in

T = TypeVar("T")

NO_TRANSACTION = "transactionId is required"
NO_PARTITION = "partitionId is required to ensure message uniqueness"
_EACH = (
    "Each acknowledgment must have a valid transactionId string",
    "Each acknowledgment must have a valid partitionId string to ensure message uniqueness",
)
MOST_ACKS = 10_000

_OUTCOMES = {
    "completed": Outcome.ACK,
    "success": Outcome.ACK,
    "acked": Outcome.ACK,
    "ok": Outcome.ACK,
    "failed": Outcome.RETRY,
    "retry": Outcome.RELEASE,
    "dlq": Outcome.REJECT,
}


class Ack(msgspec.Struct):
    """One acknowledgement. An SDK sends every key, even a key without a value. A hand-written request omits these
    keys."""

    transactionId: str = ""
    partitionId: str = ""
    status: str | None = None
    error: str | msgspec.UnsetType | None = msgspec.UNSET
    consumerGroup: str | msgspec.UnsetType | None = msgspec.UNSET
    leaseId: str | None = None
    delaySeconds: float | None = None

    @property
    def from_sdk(self) -> bool:
        return self.error is not msgspec.UNSET

    @property
    def group(self) -> str | None:
        return self.consumerGroup or None if self.consumerGroup is not msgspec.UNSET else None


class _Batch(msgspec.Struct):
    acknowledgments: list[Ack]
    consumerGroup: str | None = None
    atomic: bool | None = None


_ack_decoder = msgspec.json.Decoder(Ack)
_batch_decoder = msgspec.json.Decoder(_Batch)


def outcome_of(status: str | None, context: QueenContext) -> Outcome:
    """Outcome of a status. A missing status means completed.

    An unknown status is an error. In upstream mode an unknown status is a failure.
    """
    if status is None:
        return Outcome.ACK
    known = _OUTCOMES.get(status)
    if known is None:
        if context.upstream:
            return Outcome.RETRY
        raise BadInput(f"status must be one of {', '.join(_OUTCOMES)}, not {status!r:.40}")
    return known


def settlement_of(ack: Ack, group: str | None, context: QueenContext) -> Settlement:
    """Settlement that names its message by partition and transaction id. The engine finds the message."""
    return Settlement(
        selector=ByTransaction(
            ack.partitionId.lower(),
            ack.transactionId,
            group,
            ack.leaseId or None,
            unheld=context.upstream,
            fenced=True,
        ),
        outcome=outcome_of(ack.status, context),
        delay=None if ack.delaySeconds is None else validation.micros(ack.delaySeconds, "delaySeconds"),
        error=ack.error[: validation.LONGEST_ERROR] if isinstance(ack.error, str) else None,
    )


def read(decoder: msgspec.json.Decoder[T], body: bytes, no_transaction: str, no_partition: str) -> T:
    """Decodes the body. The two texts replace the error about an id that is missing or not a string."""
    try:
        return parse(decoder, body)
    except BadInput as problem:
        for path, text in ((".transactionId`", no_transaction), (".partitionId`", no_partition)):
            if path in problem.message:
                raise BadInput(text) from None
        raise


def check(acks: Sequence[Ack], no_transaction: str, no_partition: str) -> None:
    """Raises `BadInput` for an acknowledgement without ids. Checks each distinct partition id once."""
    if not all(ack.transactionId for ack in acks):
        raise BadInput(no_transaction)
    for partition_id in {ack.partitionId for ack in acks}:
        if not partition_id:
            raise BadInput(no_partition)
        uuid_in(partition_id, "partitionId")


async def settle(
    broker: AsyncBroker, context: QueenContext, acks: Sequence[Ack], group: str | None, *, atomic: bool
) -> list[Settled] | dict[PartitionLease, Settled]:
    """Settles a request's acknowledgements.

    Returns one answer per acknowledgement. If this server remembers all deliveries and all are completed, returns one
    answer per partition and lease.
    """
    outcomes = {outcome_of(status, context) for status in dict.fromkeys(ack.status for ack in acks)}
    if outcomes == {Outcome.ACK}:
        deliveries = [(ack.partitionId, ack.transactionId, ack.leaseId) for ack in acks]
        ranges = context.deliveries.ranges(deliveries, group, QUEUE_MODE)
        if ranges and (by_lease := await _ack_ranges(broker, context, ranges)) is not None:
            return by_lease
    entries = [settlement_of(ack, group, context) for ack in acks]
    answers = await broker.send(Settle(entries=entries, atomic=atomic))
    return answers


async def _ack_ranges(
    broker: AsyncBroker, context: QueenContext, ranges: Sequence[tuple[PartitionLease, ByRange]]
) -> dict[PartitionLease, Settled] | None:
    """Acks whole ranges. Returns None if the engine refuses a range: then it settles nothing."""
    entries = [Settlement(selector=selector, outcome=Outcome.ACK) for _, selector in ranges]
    answers = await broker.send(Settle(entries=entries, atomic=True))
    if not all(answer.verdict is Verdict.ACKED for answer in answers):
        return None
    ended = {selector.lease_id for (_, selector), answer in zip(ranges, answers, strict=True) if answer.lease_ended}
    for lease_id in ended:
        context.deliveries.forget(lease_id)
    return {
        key: Settled(Verdict.ACKED, 1, selector.lease_id in ended, failures=answer.failures)
        for (key, selector), answer in zip(ranges, answers, strict=True)
    }


class AckResult(msgspec.Struct, gc=False):
    """Result of one acknowledgement, with every field that a Queen client of any version reads."""

    index: int
    transactionId: str
    partitionId: str
    success: bool
    message: str
    error: str | None
    leaseReleased: bool
    dlq: bool
    dropped: bool
    noop: bool
    retryCount: int
    queueName: str | None
    partitionName: str | None


def ack_result(index: int, ack: Ack, settled: Settled, context: QueenContext) -> AckResult:
    message, error, noop = _result_texts(ack, settled, context)
    names = context.deliveries.names_of(ack.partitionId.lower())
    return AckResult(
        index=index,
        transactionId=ack.transactionId,
        partitionId=ack.partitionId,
        success=error is None,
        message=message,
        error=error,
        leaseReleased=settled.lease_ended and settled.verdict.settled,
        dlq=settled.reason is not None,
        dropped=was_dropped(settled),
        noop=noop,
        retryCount=settled.failures,
        queueName=names.queue if names else None,
        partitionName=names.partition if names else None,
    )


_SETTLED = {
    Verdict.ACKED: "acknowledged",
    Verdict.RETRIED: "failed_retry",
    Verdict.DEAD: "failed_dlq",
    Verdict.RELEASED: "retry",
}


def was_dropped(settled: Settled) -> bool:
    """Whether the message was dropped because the queue keeps no dead letters."""
    return settled.verdict is Verdict.DEAD and settled.reason is None


def _result_texts(ack: Ack, settled: Settled, context: QueenContext) -> tuple[str, str | None, bool]:
    """(message, error, whether the message was settled already)."""
    match settled.verdict:
        case Verdict.STALE:
            # Users of SDKs look for "expired" or "invalid_lease". Hand-written requests expect the seed's text.
            more = ": invalid or expired lease (invalid_lease)" if ack.from_sdk else ""
            return "invalid_lease", f"Lease validation failed{more}", False
        case Verdict.UNKNOWN:
            return "not_found", "unresolvable: message not found (not_found)", False
        case Verdict.ROLLED_BACK:
            return "rolled_back", "rolled back: another acknowledgment of the batch was refused", False
        case Verdict.ALREADY if not context.upstream:
            return "not_found", "not_found: the message is already settled", True
        case Verdict.ALREADY if outcome_of(ack.status, context) is Outcome.ACK:
            return "acknowledged", None, True
        case Verdict.ALREADY:
            return "already_committed", "already committed: the message was settled before", False
        case Verdict.DEAD if was_dropped(settled):
            return "failed_dropped", None, False
        case verdict:
            return _SETTLED[verdict], None, False


def _acked_results(
    acks: Sequence[Ack], answers: dict[PartitionLease, Settled], context: QueenContext
) -> list[AckResult]:
    """Results of `ack_result` for acknowledgements that all succeeded. Looks up shared fields only once."""
    shared = {}
    for key, settled in answers.items():
        names = context.deliveries.names_of(key[0])
        queue, partition = (names.queue, names.partition) if names else (None, None)
        shared[key] = settled.lease_ended, False, False, False, settled.failures, queue, partition
    return [
        AckResult(
            index,
            ack.transactionId,
            ack.partitionId,
            True,
            _SETTLED[Verdict.ACKED],
            None,
            *shared[ack.partitionId, ack.leaseId],
        )
        for index, ack in enumerate(acks)
    ]


def routes(broker: AsyncBroker, context: QueenContext) -> list[Route]:
    acks = AckRoutes(broker, context)
    return [Route("POST", "/api/v1/ack", acks.single), Route("POST", "/api/v1/ack/batch", acks.batch)]


class AckRoutes:
    """Handlers of the two ack routes."""

    def __init__(self, broker: AsyncBroker, context: QueenContext) -> None:
        self._broker, self._context = broker, context

    async def single(self, call: Call) -> Answer:
        ack = read(_ack_decoder, await call.body(), NO_TRANSACTION, NO_PARTITION)
        check([ack], NO_TRANSACTION, NO_PARTITION)
        as_array = _as_array(call, ack)
        results = await self._results([ack], ack.group, atomic=False)
        _note(call, results)
        return Answer(encode(results if as_array else results[0]))

    async def batch(self, call: Call) -> Answer:
        batch = _read_batch(await call.body())
        acks = batch.acknowledgments
        if not acks:
            return Answer(b"[]")
        if len(acks) > MOST_ACKS:
            raise BadInput(f"a batch has at most {MOST_ACKS} acknowledgments, not {len(acks)}")
        check(acks, *_EACH)
        # The seed settles a batch as a whole. The official server settles each entry separately.
        atomic = not self._context.upstream if batch.atomic is None else batch.atomic
        results = await self._results(acks, batch.consumerGroup or None, atomic=atomic)
        _note(call, results)
        return Answer(encode(results))

    async def _results(self, acks: Sequence[Ack], group: str | None, *, atomic: bool) -> list[AckResult]:
        context = self._context
        answers = await settle(self._broker, context, acks, group, atomic=atomic)
        if isinstance(answers, dict):
            return _acked_results(acks, answers, context)
        return [
            ack_result(index, ack, settled, context)
            for index, (ack, settled) in enumerate(zip(acks, answers, strict=True))
        ]


def _note(call: Call, results: Sequence[AckResult]) -> None:
    """Note queue and messages for logs and metrics."""
    call.queue, call.messages = results[0].queueName or "", len(results)


def _read_batch(body: bytes) -> _Batch:
    try:
        return read(_batch_decoder, body, *_EACH)
    except BadInput as problem:
        if "`acknowledgments`" in problem.message or "`$.acknowledgments`" in problem.message:
            raise BadInput("acknowledgments array is required") from None
        raise


def _as_array(call: Call, ack: Ack) -> bool:
    """Whether to answer with an array. SDKs send both keys and read an array. The seed's requests read an object."""
    from_sdk = ack.error is not msgspec.UNSET and ack.consumerGroup is not msgspec.UNSET
    return shape_of(call, default="array" if from_sdk else "object") == "array" if call.query else from_sdk
