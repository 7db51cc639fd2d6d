"""`POST /v1/settle`, `extend`, `release` and `transaction`."""

from __future__ import annotations

import msgspec

from ackwise.broker import AsyncBroker
from ackwise.core.answers import Extended, Settled, TransactionDone
from ackwise.core.commands import giving_back
from ackwise.core.errors import LeaseLost
from ackwise.core.native import instants, settling
from ackwise.dialects.http import Answer, Call, Route, answer

_SETTLE = msgspec.json.Decoder(settling.SettleBody)
_EXTEND = msgspec.json.Decoder(settling.ExtendBody)
_RELEASE = msgspec.json.Decoder(settling.ReleaseBody)
_TRANSACTION = msgspec.json.Decoder(settling.TransactionBody)


def routes(broker: AsyncBroker) -> list[Route]:
    async def settle(call: Call) -> Answer:
        body = await call.read(_SETTLE)
        settled: list[Settled] = await broker.send(settling.settle(body))
        return answer({"verdicts": settling.verdicts(body.entries, settled, detail=body.detail)})

    async def extend(call: Call) -> Answer:
        body = await call.read(_EXTEND)
        extended: Extended = await broker.send(settling.extend(body))
        if extended.deadline is None:
            how = extended.verdict.value if extended.verdict else "gone"
            raise LeaseLost(f"invalid_lease: the lease is no longer held ({how}) and cannot be extended", verdict=how)
        return answer(settling.Deadline(body.lease_id, instants.text(extended.deadline)))

    async def release(call: Call) -> Answer:
        body = await call.read(_RELEASE)
        settled: list[Settled] = await broker.send(giving_back([body.lease_id]))
        return answer({"lease_id": body.lease_id, "verdict": settled[0].verdict, "count": settled[0].count})

    async def transaction(call: Call) -> Answer:
        body = await call.read(_TRANSACTION)
        done: TransactionDone = await broker.send(settling.transaction(body))
        verdicts = settling.verdicts(body.settlements, done.settled, detail=body.detail)
        return answer({"verdicts": verdicts, "receipts": [list(receipts) for receipts in done.pushed]})

    return [
        Route("POST", "/v1/settle", settle),
        Route("POST", "/v1/extend", extend),
        Route("POST", "/v1/release", release),
        Route("POST", "/v1/transaction", transaction),
    ]
