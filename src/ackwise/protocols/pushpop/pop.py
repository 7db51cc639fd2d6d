"""`pop`: takes items, with or without a lock."""

from __future__ import annotations

from ackwise.broker import AsyncBroker
from ackwise.broker.deliveries import Gate, segment_slices
from ackwise.core.answers import Handed
from ackwise.core.commands import Claim, Sweep
from ackwise.core.errors import BadInput, Draining, UnknownQueue
from ackwise.core.lane_selection import EmptyReason
from ackwise.core.validation import MICROS
from ackwise.protocols.answer_memory import build
from ackwise.protocols.http_request import Call, ClientDisconnected
from ackwise.protocols.http_response import Answer, Route, answer, encode
from ackwise.protocols.json_columns import message_columns
from ackwise.protocols.pushpop import vocabulary
from ackwise.protocols.pushpop.vocabulary import flag, number

_NOTHING = Answer(b'{"items":[],"count":0}')
_NOTHING_LOCKED = Answer(b'{"items":[],"count":0,"locked":false}')
_TRIES = 20


def claim_of(call: Call) -> tuple[Claim, str | None]:
    """The claim that the request describes, and the lock id if the request requires an ack."""
    queue = vocabulary.queue_id(call)
    locked, competing = flag(call, "require_ack"), flag(call, "allow_competing_consumers")
    ttl = min(max(number(call, "ttl_seconds", vocabulary.DEFAULT_TTL), vocabulary.SHORTEST_TTL), vocabulary.LONGEST_TTL)
    most = number(call, "count", 1)
    if not 1 <= most <= vocabulary.MOST_POPPED:
        raise BadInput(f"count must be between 1 and {vocabulary.MOST_POPPED}")
    lock_id = vocabulary.new_lock_id() if locked else None
    claim = Claim(
        queue=queue,
        most=most,
        lease=ttl * MICROS,
        exclusivity="none" if competing else "queue",
        order="relaxed" if competing else "strict",
        key=lock_id,
        auto_ack=not locked,
    )
    return claim, lock_id


async def take(broker: AsyncBroker, claim: Claim, gate: Gate | None = None) -> Handed:
    """Claims items. If an expired lock blocks the queue, sweeps and claims again."""
    handed = await broker.claim(claim, gate=gate)
    for _ in range(_TRIES):
        claimed = handed.claimed
        if claimed.empty is not EmptyReason.LOCKED or (claimed.until is not None and claimed.until > broker.now()):
            break
        await broker.send(Sweep(duties=("expire",)))
        handed = await broker.claim(claim, gate=gate)
    return handed


def routes(broker: AsyncBroker) -> list[Route]:
    async def pop(call: Call) -> Answer:
        claim, lock_id = claim_of(call)
        await _complete(call)
        pending = call.begin_answer()
        claim.most_bytes = pending.bound(None)
        try:
            handed = await take(broker, claim, pending.gate)
        except UnknownQueue:
            return _NOTHING if lock_id is None else _NOTHING_LOCKED
        claimed = handed.claimed
        call.messages = sum(grant.hi - grant.lo for grant in claimed.grants)
        pending.keep(broker, claimed)
        if claimed.empty is EmptyReason.LOCKED:
            free_at = broker.wall_of(broker.now() if claimed.until is None else claimed.until)
            return answer({"message": vocabulary.LOCKED, "lock_expires_at": vocabulary.seconds(free_at)}, 423)
        if claimed.empty is EmptyReason.DRAINING:
            raise Draining
        if lock_id is None:
            return Answer(await build(broker, [claimed], _write_items, handed, b"}")) if claimed.grants else _NOTHING
        if not claimed.grants:
            return _NOTHING_LOCKED
        if call.disconnected:
            raise ClientDisconnected
        until = encode(vocabulary.seconds(broker.wall_of(claimed.deadline)))
        rest = b',"locked":true,"lock_id":"%b","lock_expires_at":%b}' % (lock_id.encode(), until)
        return Answer(await build(broker, [claimed], _write_items, handed, rest))

    return [Route("POST", "/queue/{queue}/pop", pop)]


async def _complete(call: Call) -> None:
    """Waits for the whole request, so that an incomplete one takes no items."""
    await call.body()
    if call.disconnected:
        raise ClientDisconnected


def _write_items(handed: Handed, rest: bytes) -> bytes:
    """The answer with the items exactly as they were pushed."""
    items = [text for run in segment_slices(handed) for text in message_columns(run).texts]
    return b'{"items":[%b],"count":%d%b' % (b",".join(items), len(items), rest)
