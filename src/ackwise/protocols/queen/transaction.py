"""`POST /api/v1/transaction`: acks and pushes in one atomic command."""

from __future__ import annotations

import secrets
from typing import Any

import msgspec

from ackwise.broker import AsyncBroker
from ackwise.core.answers import TransactionDone
from ackwise.core.commands import Settlement, Transaction
from ackwise.core.errors import AckwiseError, BadInput, LeaseLost, RolledBack
from ackwise.core.ids import uuid7, uuid_text
from ackwise.core.settlement import Verdict
from ackwise.protocols.http_request import Call, parse
from ackwise.protocols.http_response import Answer, Route, answer
from ackwise.protocols.queen.ack import NO_PARTITION, NO_TRANSACTION, Ack, check, read, settlement_of, was_dropped
from ackwise.protocols.queen.push import PushItem, pushes_of
from ackwise.protocols.queen.vocabulary import QueenContext
from ackwise.protocols.trace_headers import has_trace, traced


class _Body(msgspec.Struct):
    operations: list[msgspec.Raw] | None = None
    requiredLeases: list[str] | None = None
    transactionId: str | None = None
    kv: list[Any] | None = None
    timers: list[Any] | None = None
    positions: list[Any] | None = None


class _Kind(msgspec.Struct):
    type: Any = None
    items: list[PushItem] | msgspec.UnsetType = msgspec.UNSET


_decoder = msgspec.json.Decoder(_Body)
_kind_decoder = msgspec.json.Decoder(_Kind)
_ack_decoder = msgspec.json.Decoder(Ack)
_item_decoder = msgspec.json.Decoder(PushItem)


class TransactionPlan:
    """Acks and push items of a request, and the order of their results."""

    def __init__(self, body: _Body, context: QueenContext) -> None:
        self._context = context
        self.acks: list[Ack] = []
        self.items: list[PushItem] = []
        self.order: list[tuple[str, int]] = []
        self.repeats: set[int] = set()
        """Indexes of results whose push repeats a transaction id of the same request."""
        self._pushed: dict[tuple[str, str | None, str], int] = {}
        self.required = tuple(dict.fromkeys(body.requiredLeases or ()))
        for number, raw in enumerate(body.operations or ()):
            self._add(number, bytes(raw))

    def _add(self, number: int, raw: bytes) -> None:
        operation = parse(_kind_decoder, raw)
        kind = operation.type
        if kind == "ack":
            ack = read(_ack_decoder, raw, NO_TRANSACTION, NO_PARTITION)
            check([ack], NO_TRANSACTION, NO_PARTITION)
            if not ack.leaseId and len(self.required) == 1:
                # If the request requires one lease, its acks without a lease id use that lease.
                ack.leaseId = self.required[0]
            self.order.append(("ack", len(self.acks)))
            self.acks.append(ack)
        elif kind == "push":
            items = [parse(_item_decoder, raw)] if operation.items is msgspec.UNSET else operation.items
            for item in items:
                self._add_push(item)
        else:
            raise BadInput(f"operation {number}: type must be ack or push, not {kind!r:.40}")

    def _add_push(self, item: PushItem) -> None:
        """Adds a push. Upstream mode stores a repeated transaction id once. Otherwise the engine refuses it."""
        key = (item.queue, item.partition, item.transactionId or "")
        first = self._pushed.get(key) if item.transactionId and self._context.upstream else None
        if first is not None:
            self.repeats.add(len(self.order))
            self.order.append(("push", first))
            return
        self._pushed[key] = len(self.items)
        self.order.append(("push", len(self.items)))
        self.items.append(item)

    def settlements(self) -> list[Settlement]:
        return [settlement_of(ack, ack.group, self._context) for ack in self.acks]


def routes(broker: AsyncBroker, context: QueenContext) -> list[Route]:
    async def transact(call: Call) -> Answer:
        body = _read(await call.body())
        plan = TransactionPlan(body, context)
        if plan.items and context.maintenance.may_keep_pushes and await context.maintenance.keeps_pushes():
            raise InMaintenance
        transaction_id = body.transactionId or uuid_text(uuid7(broker.wall() // 1000, secrets.randbits(73)))
        pushes, owners = pushes_of(plan.items, context.push_policy)
        if has_trace(call):
            pushes = traced(pushes, call)
        call.messages = len(plan.acks) + len(plan.items)
        if not plan.acks and len({push.queue for push in pushes}) == 1:
            call.queue = pushes[0].queue
        command = Transaction(
            settlements=plan.settlements(),
            pushes=pushes,
            required_leases=plan.required,
            on_duplicate="fail",
            on_already="acks" if context.upstream else "fail",
        )
        try:
            done = await broker.send(command)
        except (RolledBack, LeaseLost) as problem:
            return answer(_rolled_back(transaction_id, problem, plan))
        return answer({"transactionId": transaction_id, "success": True, "results": _results(plan, owners, done)})

    return [Route("POST", "/api/v1/transaction", transact)]


class InMaintenance(AckwiseError):
    """Push maintenance is on, and a transaction with pushes cannot wait for its end; try again later."""

    code = "maintenance"


class NotSupported(BadInput):
    """This version does not support a part of the request."""

    code = "not_supported"


def _read(body: bytes) -> _Body:
    """Decodes and checks the body. Error texts about `operations` are upstream's own."""
    try:
        request = parse(_decoder, body)
    except BadInput as problem:
        if "operations" in problem.message:
            raise BadInput("operations array required") from None
        raise
    if request.operations is None:
        raise BadInput("operations array required")
    if not request.operations:
        raise BadInput("operations array cannot be empty")
    for field in ("kv", "timers", "positions"):
        if getattr(request, field):
            raise NotSupported(f"a transaction cannot contain {field} in this version; nothing was done")
    return request


_REFUSALS = {"stale": "invalid_lease", "unknown": "not_found", "already": "not_found"}


def _rolled_back(transaction_id: str, problem: RolledBack | LeaseLost, plan: TransactionPlan) -> dict[str, Any]:
    ack_index = problem.details.get("index")
    refusal = _REFUSALS.get(problem.details.get("verdict", ""))
    return {
        "transactionId": transaction_id,
        "success": False,
        "error": f"{problem.message} ({refusal})" if refusal else problem.message,
        "reason": "duplicate" if problem.details.get("reason") == "duplicate" else "rejected_ack",
        "failedIndex": None if ack_index is None else plan.order.index(("ack", ack_index)),
        "results": [],
    }


def _results(plan: TransactionPlan, owners: list[int], done: TransactionDone) -> list[dict[str, Any]]:
    remaining = [iter(receipts) for receipts in done.pushed]
    receipts = [next(remaining[owner]) for owner in owners]
    results: list[dict[str, Any]] = []
    for index, (kind, at) in enumerate(plan.order):
        if kind == "ack":
            settled = done.settled[at]
            results.append(
                {
                    "index": index,
                    "type": "ack",
                    "success": True,
                    "transactionId": plan.acks[at].transactionId,
                    "error": None,
                    "dlq": settled.reason is not None,
                    "dropped": was_dropped(settled),
                    "noop": settled.verdict is Verdict.ALREADY,
                    "leaseReleased": settled.lease_ended and settled.verdict.settled,
                }
            )
        else:
            receipt = receipts[at]
            results.append(
                {
                    "index": index,
                    "type": "push",
                    "success": True,
                    "transactionId": receipt.transaction_id,
                    "messageId": receipt.message_id,
                    "partitionId": receipt.partition_id,
                    "queueName": plan.items[at].queue,
                    "duplicate": index in plan.repeats,
                }
            )
    return results
