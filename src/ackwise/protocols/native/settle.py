"""`POST /v1/settle`, `extend`, `extend-all`, `release` and `transaction`."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import msgspec

from ackwise.broker import AsyncBroker
from ackwise.core import validation
from ackwise.core.answers import Extended
from ackwise.core.commands import ByKey, ByLease, ByRange, ByTransaction, Extend, release_command
from ackwise.core.errors import AckwiseError, BadInput
from ackwise.protocols.http_request import Call, parse
from ackwise.protocols.http_response import Answer, Route, answer
from ackwise.protocols.native.claim import LeaseQueues
from ackwise.protocols.trace_headers import has_trace, traced
from ackwise.wire import settle as wire_settle
from ackwise.wire import timestamps

_SETTLE = msgspec.json.Decoder(wire_settle.SettleBody)
_EXTEND = msgspec.json.Decoder(wire_settle.ExtendBody)
_EXTEND_ALL = msgspec.json.Decoder(wire_settle.ExtendAllBody)
_RELEASE = msgspec.json.Decoder(wire_settle.ReleaseBody)
_TRANSACTION = msgspec.json.Decoder(wire_settle.TransactionBody)


def routes(broker: AsyncBroker, leases: LeaseQueues) -> list[Route]:
    async def settle(call: Call) -> Answer:
        body = await call.read(_SETTLE)
        call.queue = _queue_of(leases, body.entries)
        settled = await broker.send(wire_settle.settle(body))
        call.messages = sum(answer.count for answer in settled)
        return answer({"verdicts": wire_settle.verdicts(body.entries, settled, detail=body.detail)})

    async def extend(call: Call) -> Answer:
        body = await call.read(_EXTEND)
        command = wire_settle.extend(body)
        call.queue = _queue_of_extensions(leases, (command,))
        extended = await broker.send(command)
        if extended.deadline is None:
            raise wire_settle.not_extended(extended)
        return answer(wire_settle.Deadline(body.lease_id, timestamps.text(broker.wall_of(extended.deadline))))

    async def extend_all(call: Call) -> Answer:
        body = await call.read(_EXTEND_ALL)
        validation.count(len(body.extensions), "extensions", least=0, most=wire_settle.MOST_EXTENSIONS)
        extensions = list(map(_read_extension, body.extensions))
        valid = [extension for extension in extensions if isinstance(extension, Extend)]
        call.queue = _queue_of_extensions(leases, valid)
        return answer(wire_settle.ExtensionVerdicts(_verdicts(broker, extensions, await broker.send_all(valid))))

    async def release(call: Call) -> Answer:
        body = await call.read(_RELEASE)
        call.queue = leases.of(body.lease_id)
        settled = await broker.send(release_command([body.lease_id]))
        call.messages = settled[0].count
        return answer({"lease_id": body.lease_id, "verdict": settled[0].verdict, "count": settled[0].count})

    async def transaction(call: Call) -> Answer:
        body = await call.read(_TRANSACTION)
        call.queue = _queue_of_transaction(leases, body)
        command = wire_settle.transaction(body)
        if has_trace(call):
            command.pushes = traced(command.pushes, call)
        done = await broker.send(command)
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


def _queue_of(leases: LeaseQueues, entries: Sequence[wire_settle.Entry]) -> str:
    """The queue of the first entry, for the log. Most requests concern one queue."""
    if not entries:
        return ""
    entry = entries[0]
    if entry.delivery_id is not None:
        return leases.of(entry.delivery_id.partition(".")[0])
    if isinstance(entry.selector, ByKey):
        return entry.selector.queue
    if isinstance(entry.selector, ByRange | ByLease | ByTransaction):
        return leases.of(entry.selector.lease_id)
    return leases.of(entry.lease_id)


def _queue_of_extensions(leases: LeaseQueues, extensions: Sequence[Extend]) -> str:
    if not extensions:
        return ""
    claim = extensions[0].claim
    return claim.queue if claim else leases.of(extensions[0].lease_id)


def _queue_of_transaction(leases: LeaseQueues, body: wire_settle.TransactionBody) -> str:
    if body.settlements:
        return _queue_of(leases, body.settlements)
    return body.pushes[0].queue if body.pushes else ""


def _read_extension(body: msgspec.Raw) -> Extend | BadInput:
    try:
        return wire_settle.extend(parse(_EXTEND, bytes(body)))
    except BadInput as problem:
        return problem


def _verdicts(
    broker: AsyncBroker, extensions: Sequence[Extend | BadInput], answers: Iterable[Extended | AckwiseError]
) -> list[wire_settle.ExtensionVerdict]:
    """A verdict for each extension. `answers` has the answers to the valid ones."""
    left, verdicts = iter(answers), []
    for extension in extensions:
        lease_id, result = (extension.lease_id, next(left)) if isinstance(extension, Extend) else ("", extension)
        if isinstance(result, AckwiseError) and not isinstance(result, BadInput):
            # An error of the store concerns the whole request.
            raise result
        verdicts.append(wire_settle.extension_verdict(lease_id, _shown(broker, result)))
    return verdicts


def _shown(broker: AsyncBroker, result: Extended | BadInput) -> Extended | BadInput:
    """The answer with an instant of the wall clock."""
    if isinstance(result, BadInput) or result.deadline is None:
        return result
    return msgspec.structs.replace(result, deadline=broker.wall_of(result.deadline))
