"""`POST /queue/{id}/pop`: items that are gone at once, or held under a lock until they are acknowledged."""

from __future__ import annotations

from ackwise.broker import AsyncBroker
from ackwise.broker.handing import Gate, runs
from ackwise.core.answers import Handed
from ackwise.core.claiming import EmptyReason
from ackwise.core.commands import Claim, Sweep
from ackwise.core.errors import BadInput, Draining, UnknownQueue
from ackwise.core.limits import MICROS
from ackwise.dialects.cells import cells
from ackwise.dialects.handover import build
from ackwise.dialects.http import Answer, Call, Gone, Route, answer, encode
from ackwise.dialects.pushpop import words
from ackwise.dialects.pushpop.asking import flag, number

_NOTHING = Answer(b'{"items":[],"count":0}')
_NOTHING_LOCKED = Answer(b'{"items":[],"count":0,"locked":false}')
_TRIES = 20


def claim_of(call: Call) -> tuple[Claim, str | None]:
    """What is asked for, all of it checked, and the id of the lock if there is to be one."""
    queue = words.queue_id(call)
    held, competing = flag(call, "require_ack"), flag(call, "allow_competing_consumers")
    ttl = min(max(number(call, "ttl_seconds", words.DEFAULT_TTL), words.SHORTEST_TTL), words.LONGEST_TTL)
    most = number(call, "count", 1)
    if not 1 <= most <= words.MOST_POPPED:
        raise BadInput(f"count must be between 1 and {words.MOST_POPPED}")
    lock_id = words.new_lock_id() if held else None
    claim = Claim(
        queue=queue,
        most=most,
        lease=ttl * MICROS,
        exclusivity="none" if competing else "queue",
        order="relaxed" if competing else "strict",
        key=lock_id,
        auto_ack=not held,
    )
    return claim, lock_id


async def take(broker: AsyncBroker, claim: Claim, gate: Gate | None = None) -> Handed:
    """What the claim brings. A lock that ran out shuts nobody out, however many others wait for the sweep."""
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
        handover = call.hand_over()
        claim.most_bytes = handover.bound(None)
        try:
            handed = await take(broker, claim, handover.gate)
        except UnknownQueue:
            return _NOTHING if lock_id is None else _NOTHING_LOCKED
        claimed = handed.claimed
        handover.keep(broker, claimed)
        if claimed.empty is EmptyReason.LOCKED:
            free_at = broker.now() if claimed.until is None else claimed.until
            return answer({"message": words.LOCKED, "lock_expires_at": words.seconds(free_at)}, 423)
        if claimed.empty is EmptyReason.DRAINING:
            raise Draining
        if lock_id is None:
            return Answer(await build(broker, [claimed], _spelled, handed, b"}")) if claimed.grants else _NOTHING
        if not claimed.grants:
            return _NOTHING_LOCKED
        if call.gone:
            raise Gone
        until = encode(words.seconds(claimed.deadline))
        rest = b',"locked":true,"lock_id":"%b","lock_expires_at":%b}' % (lock_id.encode(), until)
        return Answer(await build(broker, [claimed], _spelled, handed, rest))

    return [Route("POST", "/queue/{queue}/pop", pop)]


async def _complete(call: Call) -> None:
    """Items are not taken for a request of which something is missing, nor for nobody."""
    await call.body()
    if call.gone:
        raise Gone


def _spelled(handed: Handed, rest: bytes) -> bytes:
    """Items as they were pushed, byte by byte."""
    items = [text for run in runs(handed) for text in cells(run).texts]
    return b'{"items":[%b],"count":%d%b' % (b",".join(items), len(items), rest)
