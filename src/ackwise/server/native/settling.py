"""`POST /v1/settle`, `extend`, `extend-all`, `release` and `transaction`."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from ackwise.broker import AsyncBroker
from ackwise.core import limits
from ackwise.core.answers import Extended, Settled, TransactionDone
from ackwise.core.commands import Extend, giving_back
from ackwise.core.errors import AckwiseError, BadInput
from ackwise.core.native import instants, settling
from ackwise.dialects.http import Answer, Call, Route, answer, parse

_SETTLE = msgspec.json.Decoder(settling.SettleBody)
_EXTEND = msgspec.json.Decoder(settling.ExtendBody)
_EXTEND_ALL = msgspec.json.Decoder(settling.ExtendAllBody)
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
            raise settling.not_extended(extended)
        return answer(settling.Deadline(body.lease_id, instants.text(extended.deadline)))

    async def extend_all(call: Call) -> Answer:
        body = await call.read(_EXTEND_ALL)
        limits.count(len(body.extensions), "extensions", least=0, most=settling.MOST_EXTENSIONS)
        asked = list(map(_read_extension, body.extensions))
        answers: Iterator[Extended | AckwiseError]
        answers = iter(await broker.send_all([one for one in asked if isinstance(one, Extend)]))
        verdicts = []
        for one in asked:
            found = next(answers) if isinstance(one, Extend) else one
            if isinstance(found, AckwiseError) and not isinstance(found, BadInput):
                # It is the store's, and nobody's own.
                raise found
            verdicts.append(settling.extension_verdict(one.lease_id if isinstance(one, Extend) else "", found))
        return answer(settling.ExtensionVerdicts(verdicts))

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
        Route("POST", "/v1/extend-all", extend_all),
        Route("POST", "/v1/release", release),
        Route("POST", "/v1/transaction", transaction),
    ]


def _read_extension(body: msgspec.Raw) -> Extend | BadInput:
    try:
        return settling.extend(parse(_EXTEND, bytes(body)))
    except BadInput as problem:
        return problem
