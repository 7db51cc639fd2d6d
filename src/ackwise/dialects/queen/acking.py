"""`POST /api/v1/ack` and `/ack/batch`: settle by partition and transaction id."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

import msgspec

from ackwise.broker import AsyncBroker
from ackwise.core import limits
from ackwise.core.answers import Settled
from ackwise.core.commands import ByTransaction, Settle, Settlement
from ackwise.core.errors import BadInput
from ackwise.core.messages import QUEUE_MODE
from ackwise.core.settlement import Outcome, Verdict
from ackwise.dialects.cells import quoted
from ackwise.dialects.http import Answer, Call, Route, encode, parse
from ackwise.dialects.queen.asking import shape_of, uuid_in
from ackwise.dialects.queen.delivered import Named
from ackwise.dialects.queen.words import Words

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
    """One acknowledgement. Which keys are there tells an SDK, which sends them all, from a hand-written call."""

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


def outcome_of(status: str | None, words: Words) -> Outcome:
    """No status means completed; one that nobody knows is refused, or with upstream's words a failure."""
    if status is None:
        return Outcome.ACK
    known = _OUTCOMES.get(status)
    if known is None:
        if words.upstream:
            return Outcome.RETRY
        raise BadInput(f"status must be one of {', '.join(_OUTCOMES)}, not {status!r:.40}")
    return known


def settlement_of(ack: Ack, group: str | None, words: Words) -> Settlement:
    """An entry for the engine, which looks the message up."""
    return Settlement(
        selector=ByTransaction(
            ack.partitionId.lower(),
            ack.transactionId,
            group,
            ack.leaseId or None,
            unheld=words.upstream,
            fenced=True,
        ),
        outcome=outcome_of(ack.status, words),
        delay=None if ack.delaySeconds is None else limits.micros(ack.delaySeconds, "delaySeconds"),
        error=ack.error[: limits.LONGEST_ERROR] if isinstance(ack.error, str) else None,
    )


def read(decoder: msgspec.json.Decoder[T], body: bytes, no_transaction: str, no_partition: str) -> T:
    """The body, or a refusal in the words that its users know for an id that is missing or no string."""
    try:
        return parse(decoder, body)
    except BadInput as problem:
        for path, words in ((".transactionId`", no_transaction), (".partitionId`", no_partition)):
            if path in problem.message:
                raise BadInput(words) from None
        raise


def check(acks: Sequence[Ack], no_transaction: str, no_partition: str) -> None:
    """Refuse acknowledgements that name nothing; what they have in common is looked at once."""
    if not all(ack.transactionId for ack in acks):
        raise BadInput(no_transaction)
    for partition_id in {ack.partitionId for ack in acks}:
        if not partition_id:
            raise BadInput(no_partition)
        uuid_in(partition_id, "partitionId")


async def settle(
    broker: AsyncBroker, words: Words, acks: Sequence[Ack], group: str | None, *, atomic: bool
) -> list[Settled] | dict[Named, Settled]:
    """One answer each; or one for all that name the same, where this server handed out every one of them and all are
    completed."""
    outcomes = {outcome_of(status, words) for status in dict.fromkeys(ack.status for ack in acks)}
    if outcomes == {Outcome.ACK}:
        ranges = words.delivered.ranges([(a.partitionId, a.transactionId, a.leaseId) for a in acks], group, QUEUE_MODE)
        if ranges:
            whole = [Settlement(selector=one, outcome=Outcome.ACK) for _, one in ranges]
            answers: list[Settled] = await broker.send(Settle(entries=whole, atomic=True))
            if all(one.verdict is Verdict.ACKED for one in answers):
                ended = {one.lease_id for (_, one), done in zip(ranges, answers, strict=True) if done.lease_ended}
                for lease_id in ended:
                    words.delivered.forget(lease_id)
                return {
                    name: Settled(Verdict.ACKED, 1, one.lease_id in ended, failures=done.failures)
                    for (name, one), done in zip(ranges, answers, strict=True)
                }
    entries = [settlement_of(ack, group, words) for ack in acks]
    done: list[Settled] = await broker.send(Settle(entries=entries, atomic=atomic))
    return done


class Item(msgspec.Struct):
    """What became of one acknowledgement: every field that a Queen client of any version reads."""

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


def item(index: int, ack: Ack, settled: Settled, words: Words) -> Item:
    message, error, noop = _said(ack, settled, words)
    place = words.delivered.place(ack.partitionId.lower())
    return Item(
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
        queueName=place.queue if place else None,
        partitionName=place.partition if place else None,
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


def _said(ack: Ack, settled: Settled, words: Words) -> tuple[str, str | None, bool]:
    """(message, error, whether nothing was left to do)."""
    match settled.verdict:
        case Verdict.STALE:
            # The seed's text to those who write as in the seed; an SDK's users look for more words in it.
            more = ": invalid or expired lease (invalid_lease)" if ack.from_sdk else ""
            return "invalid_lease", f"Lease validation failed{more}", False
        case Verdict.UNKNOWN:
            return "not_found", "unresolvable: message not found (not_found)", False
        case Verdict.ROLLED_BACK:
            return "rolled_back", "rolled back: another acknowledgment of the batch was refused", False
        case Verdict.ALREADY if not words.upstream:
            return "not_found", "not_found: the message is already settled", True
        case Verdict.ALREADY if outcome_of(ack.status, words) is Outcome.ACK:
            return "acknowledged", None, True
        case Verdict.ALREADY:
            return "already_committed", "already committed: the message was settled before", False
        case Verdict.DEAD if was_dropped(settled):
            return "failed_dropped", None, False
        case verdict:
            return _SETTLED[verdict], None, False


def _all_acked(acks: Sequence[Ack], answers: dict[Named, Settled], words: Words) -> list[str]:
    """The same as `item` for acknowledgements that all went well, spelled out at once."""
    tails = {}
    for (partition_id, lease_id), settled in answers.items():
        place = words.delivered.place(partition_id)
        names = {"queueName": place.queue if place else None, "partitionName": place.partition if place else None}
        tails[partition_id, lease_id] = (
            f',"partitionId":"{partition_id}","success":true,"message":"acknowledged","error":null,'
            f'"leaseReleased":{"true" if settled.lease_ended else "false"},"dlq":false,"dropped":false,"noop":false,'
            f'"retryCount":{settled.failures},{encode(names).decode()[1:]}'
        )
    txids = [ack.transactionId for ack in acks]
    spelled = quoted(txids)
    return [
        f'{{"index":{index},"transactionId":{txid}{tails[ack.partitionId, ack.leaseId]}'
        for index, (txid, ack) in enumerate(zip(spelled, acks, strict=True))
    ]


def routes(broker: AsyncBroker, words: Words) -> list[Route]:
    async def acked(acks: Sequence[Ack], group: str | None, *, atomic: bool) -> list[bytes]:
        settled = await settle(broker, words, acks, group, atomic=atomic)
        if isinstance(settled, dict):
            return [text.encode() for text in _all_acked(acks, settled, words)]
        return [encode(item(i, ack, s, words)) for i, (ack, s) in enumerate(zip(acks, settled, strict=True))]

    async def one(call: Call) -> Answer:
        ack = read(_ack_decoder, await call.body(), NO_TRANSACTION, NO_PARTITION)
        check([ack], NO_TRANSACTION, NO_PARTITION)
        as_array = _as_array(call, ack)
        (found,) = await acked([ack], ack.group, atomic=False)
        return Answer(b"[%b]" % found if as_array else found)

    async def batch(call: Call) -> Answer:
        try:
            asked = read(_batch_decoder, await call.body(), *_EACH)
        except BadInput as problem:
            if "`acknowledgments`" in problem.message or "`$.acknowledgments`" in problem.message:
                raise BadInput("acknowledgments array is required") from None
            raise
        acks = asked.acknowledgments
        if not acks:
            return Answer(b"[]")
        if len(acks) > MOST_ACKS:
            raise BadInput(f"a batch has at most {MOST_ACKS} acknowledgments, not {len(acks)}")
        check(acks, *_EACH)
        # All or nothing as the seed has it; entry by entry as the official server does.
        atomic = not words.upstream if asked.atomic is None else asked.atomic
        return Answer(b"[%b]" % b",".join(await acked(acks, asked.consumerGroup or None, atomic=atomic)))

    return [Route("POST", "/api/v1/ack", one), Route("POST", "/api/v1/ack/batch", batch)]


def _as_array(call: Call, ack: Ack) -> bool:
    """SDKs send both keys, null when unset, and read a list; whoever writes as in the seed reads an object."""
    from_sdk = ack.error is not msgspec.UNSET and ack.consumerGroup is not msgspec.UNSET
    return shape_of(call, default="array" if from_sdk else "object") == "array"
