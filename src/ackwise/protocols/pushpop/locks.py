"""`acknowledge`, `extend-lock` and `deadletter`: requests about the items of a lock."""

from __future__ import annotations

from typing import Any

from ackwise.broker import AsyncBroker
from ackwise.core import queries as q
from ackwise.core.answers import Settled
from ackwise.core.commands import ByKey, Extend, Settle, Settlement, Sweep
from ackwise.core.errors import BadInput, UnknownQueue
from ackwise.core.settlement import Outcome, Verdict
from ackwise.core.validation import MAX_LEASE_SECONDS, MICROS
from ackwise.protocols.http_request import Call
from ackwise.protocols.http_response import Answer, Route, answer
from ackwise.protocols.pushpop import vocabulary
from ackwise.protocols.pushpop.vocabulary import bad, read_object

BY_REQUEST = "dead-lettered by request"


def routes(broker: AsyncBroker) -> list[Route]:
    locks = Locks(broker)
    return [
        Route("POST", "/queue/{queue}/acknowledge", locks.acknowledge),
        Route("POST", "/queue/{queue}/extend-lock", locks.extend),
        Route("POST", "/queue/{queue}/deadletter", locks.dead_letter),
    ]


class Locks:
    """Handlers of the lock routes."""

    def __init__(self, broker: AsyncBroker) -> None:
        self._broker = broker

    async def acknowledge(self, call: Call) -> Answer:
        lock = await _lock(call)
        if isinstance(lock, Answer):
            return lock
        settled = await self._settle(lock[0], Outcome.ACK)
        if not settled.verdict.settled:
            return await self._lock_lost(lock[0], settled.verdict)
        call.messages = settled.count
        message = "Items acknowledged successfully"
        return answer({"success": True, "message": message, "items_acknowledged": settled.count})

    async def dead_letter(self, call: Call) -> Answer:
        lock = await _lock(call)
        if isinstance(lock, Answer):
            return lock
        settled = await self._settle(lock[0], Outcome.REJECT)
        if not settled.verdict.settled:
            return await self._lock_lost(lock[0], settled.verdict)
        call.messages = settled.count
        returned = settled.count - settled.dead
        fields = {
            "success": True,
            "message": f"{settled.dead} items dead-lettered" + (f", {returned} returned" if returned else ""),
            "dlq_id": settled.dead_ids[0] if settled.dead_ids else None,
        }
        return answer(fields if settled.dead == 1 else {**fields, "dlq_ids": settled.dead_ids})

    async def extend(self, call: Call) -> Answer:
        lock = await _lock(call)
        if isinstance(lock, Answer):
            return lock
        claim, body = lock
        added = body.get("additional_ttl_seconds", vocabulary.DEFAULT_TTL)
        if isinstance(added, bool) or not isinstance(added, int) or not 0 < added <= MAX_LEASE_SECONDS:
            return bad("additional_ttl_seconds must be a whole number of seconds above 0", "INVALID_TTL")
        try:
            extended = await self._broker.send(Extend(claim=claim, add=added * MICROS))
        except BadInput:
            return bad(f"a lock may be held for {MAX_LEASE_SECONDS:g} seconds from now at most", "INVALID_TTL")
        if extended.deadline is None:
            return await self._lock_lost(claim, extended.verdict)
        until = self._broker.wall_of(extended.deadline)
        return answer({"lock_id": claim.key, "new_expires_at": vocabulary.seconds(until)})

    async def _settle(self, claim: ByKey, outcome: Outcome) -> Settled:
        error = BY_REQUEST if outcome is Outcome.REJECT else None
        entry = Settlement(selector=claim, outcome=outcome, error=error)
        (settled,) = await self._broker.send(Settle(entries=[entry]))
        assert isinstance(settled, Settled)
        return settled

    async def _lock_lost(self, claim: ByKey, verdict: Verdict | None) -> Answer:
        """Error answer for a lock that does not exist. Requeues an expired lock's items before it answers 410."""
        if verdict is Verdict.STALE:
            await self._broker.send(Sweep(duties=("expire",)))
            return answer(vocabulary.EXPIRED, 410)
        try:
            held = await self._broker.ask(q.IsHeld(queue=claim.queue))
        except UnknownQueue:
            held = False
        if held:
            return bad(vocabulary.INVALID)
        return answer({"success": False, "message": vocabulary.NOT_FOUND}, 404)


async def _lock(call: Call) -> tuple[ByKey, dict[str, Any]] | Answer:
    """Selector of the lock that the body names, and the body. Or an error answer."""
    queue = vocabulary.queue_id(call)
    body = await read_object(call)
    lock_id = body.get("lock_id")
    if not isinstance(lock_id, str) or not lock_id:
        return bad(vocabulary.REQUIRED)
    if len(lock_id) > vocabulary.LONGEST_LOCK_ID or not lock_id.isprintable():
        return bad(vocabulary.INVALID)
    return ByKey(queue, lock_id), body
