"""`POST /v1/settle`, `extend`, `extend-all`, `release` and `transaction`."""

from __future__ import annotations

import msgspec

from ackwise.broker import AsyncBroker
from ackwise.core import validation
from ackwise.core.answers import Extended
from ackwise.core.commands import Extend, release_command
from ackwise.core.errors import AckwiseError, BadInput
from ackwise.protocols.http_request import Call, parse
from ackwise.protocols.http_response import Answer, Route, answer
from ackwise.wire import settle as wire_settle
from ackwise.wire import timestamps

_SETTLE = msgspec.json.Decoder(wire_settle.SettleBody)
_EXTEND = msgspec.json.Decoder(wire_settle.ExtendBody)
_EXTEND_ALL = msgspec.json.Decoder(wire_settle.ExtendAllBody)
_RELEASE = msgspec.json.Decoder(wire_settle.ReleaseBody)
_TRANSACTION = msgspec.json.Decoder(wire_settle.TransactionBody)


def routes(broker: AsyncBroker) -> list[Route]:
    async def settle(call: Call) -> Answer:
        body = await call.read(_SETTLE)
        settled = await broker.send(wire_settle.settle(body))
        call.messages = sum(answer.count for answer in settled)
        return answer({"verdicts": wire_settle.verdicts(body.entries, settled, detail=body.detail)})

    async def extend(call: Call) -> Answer:
        body = await call.read(_EXTEND)
        extended = await broker.send(wire_settle.extend(body))
        if extended.deadline is None:
            raise wire_settle.not_extended(extended)
        return answer(wire_settle.Deadline(body.lease_id, timestamps.text(broker.wall_of(extended.deadline))))

    async def extend_all(call: Call) -> Answer:
        body = await call.read(_EXTEND_ALL)
        validation.count(len(body.extensions), "extensions", least=0, most=wire_settle.MOST_EXTENSIONS)
        extensions = list(map(_read_extension, body.extensions))
        answers = iter(await broker.send_all([extend for extend in extensions if isinstance(extend, Extend)]))
        verdicts = []
        for extension in extensions:
            lease_id, result = (extension.lease_id, next(answers)) if isinstance(extension, Extend) else ("", extension)
            if isinstance(result, AckwiseError) and not isinstance(result, BadInput):
                # An error of the store concerns the whole request.
                raise result
            verdicts.append(wire_settle.extension_verdict(lease_id, _shown(broker, result)))
        return answer(wire_settle.ExtensionVerdicts(verdicts))

    async def release(call: Call) -> Answer:
        body = await call.read(_RELEASE)
        settled = await broker.send(release_command([body.lease_id]))
        call.messages = settled[0].count
        return answer({"lease_id": body.lease_id, "verdict": settled[0].verdict, "count": settled[0].count})

    async def transaction(call: Call) -> Answer:
        body = await call.read(_TRANSACTION)
        done = await broker.send(wire_settle.transaction(body))
        call.messages = sum(answer.count for answer in done.settled) + sum(map(len, done.pushed))
        verdicts = wire_settle.verdicts(body.settlements, done.settled, detail=body.detail)
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
        return wire_settle.extend(parse(_EXTEND, bytes(body)))
    except BadInput as problem:
        return problem


def _shown(broker: AsyncBroker, result: Extended | BadInput) -> Extended | BadInput:
    """The answer with an instant of the wall clock."""
    if isinstance(result, BadInput) or result.deadline is None:
        return result
    return msgspec.structs.replace(result, deadline=broker.wall_of(result.deadline))
