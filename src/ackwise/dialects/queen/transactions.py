"""`POST /api/v1/transaction`: acks and pushes that happen together or not at all."""

from __future__ import annotations

from typing import Any

import msgspec
import uuid_utils

from ackwise.broker import AsyncBroker
from ackwise.core.answers import TransactionDone
from ackwise.core.commands import Settlement, Transaction
from ackwise.core.errors import BadInput, LeaseLost, RolledBack
from ackwise.core.settlement import Verdict
from ackwise.dialects.http import Answer, Call, Route, answer, parse
from ackwise.dialects.queen.acking import NO_PARTITION, NO_TRANSACTION, Ack, check, read, settlement_of, was_dropped
from ackwise.dialects.queen.pushing import Item, pushes_of
from ackwise.dialects.queen.words import Words


class _Body(msgspec.Struct):
    operations: list[msgspec.Raw] | None = None
    requiredLeases: list[str] | None = None
    transactionId: str | None = None
    kv: list[Any] | None = None
    timers: list[Any] | None = None
    positions: list[Any] | None = None


class _Kind(msgspec.Struct):
    type: Any = None
    items: list[Item] | msgspec.UnsetType = msgspec.UNSET


_decoder = msgspec.json.Decoder(_Body)
_kind = msgspec.json.Decoder(_Kind)
_ack = msgspec.json.Decoder(Ack)
_one_item = msgspec.json.Decoder(Item)


class Plan:
    """A request's operations, in the order of its results."""

    def __init__(self, body: _Body, words: Words) -> None:
        self._words = words
        self.acks: list[Ack] = []
        self.items: list[Item] = []
        self.order: list[tuple[str, int]] = []
        self.repeats: set[int] = set()
        """Results whose push repeats an id of this call."""
        self._pushed: dict[tuple[str, str | None, str], int] = {}
        self.required = tuple(dict.fromkeys(body.requiredLeases or ()))
        for number, raw in enumerate(body.operations or ()):
            self._add(number, bytes(raw))

    def _add(self, number: int, raw: bytes) -> None:
        asked = parse(_kind, raw)
        kind = asked.type
        if kind == "ack":
            ack = read(_ack, raw, NO_TRANSACTION, NO_PARTITION)
            check([ack], NO_TRANSACTION, NO_PARTITION)
            if not ack.leaseId and len(self.required) == 1:
                # A sole lease fences the acks that name none.
                ack.leaseId = self.required[0]
            self.order.append(("ack", len(self.acks)))
            self.acks.append(ack)
        elif kind == "push":
            found = [parse(_one_item, raw)] if asked.items is msgspec.UNSET else asked.items
            for item in found:
                self._add_push(item)
        else:
            raise BadInput(f"operation {number}: type must be ack or push, not {kind!r:.40}")

    def _add_push(self, item: Item) -> None:
        """Upstream stores a repeated id of a call once and commits. Otherwise the engine refuses the repeat."""
        named = (item.queue, item.partition, item.transactionId or "")
        known = self._pushed.get(named) if item.transactionId and self._words.upstream else None
        if known is not None:
            self.repeats.add(len(self.order))
            self.order.append(("push", known))
            return
        self._pushed[named] = len(self.items)
        self.order.append(("push", len(self.items)))
        self.items.append(item)

    def settlements(self) -> list[Settlement]:
        return [settlement_of(ack, ack.group, self._words) for ack in self.acks]


def routes(broker: AsyncBroker, words: Words) -> list[Route]:
    async def transact(call: Call) -> Answer:
        try:
            body = parse(_decoder, await call.body())
        except BadInput as problem:
            if "operations" in problem.message:
                raise BadInput("operations array required") from None
            raise
        if body.operations is None:
            raise BadInput("operations array required")
        if not body.operations:
            raise BadInput("operations array cannot be empty")
        for rider in ("kv", "timers", "positions"):
            if getattr(body, rider):
                raise NotSupported(f"{rider} cannot ride in a transaction here; nothing was done")
        plan = Plan(body, words)
        number = body.transactionId or str(uuid_utils.uuid7())
        pushes, owners = pushes_of(plan.items, words.policy(pushed=True))
        command = Transaction(
            settlements=plan.settlements(),
            pushes=pushes,
            required_leases=plan.required,
            on_duplicate="fail",
            on_already="acks" if words.upstream else "fail",
        )
        try:
            done: TransactionDone = await broker.send(command)
        except (RolledBack, LeaseLost) as problem:
            return answer(_rolled_back(number, problem, plan))
        return answer({"transactionId": number, "success": True, "results": _results(plan, owners, done)})

    return [Route("POST", "/api/v1/transaction", transact)]


class NotSupported(BadInput):
    """That is not in this version."""

    code = "not_supported"


def _rolled_back(number: str, problem: RolledBack | LeaseLost, plan: Plan) -> dict[str, Any]:
    reason = "duplicate" if problem.details.get("reason") == "duplicate" else "rejected_ack"
    text = problem.message
    at = problem.details.get("index")
    refused = {"stale": "invalid_lease", "unknown": "not_found", "already": "not_found"}.get(
        problem.details.get("verdict", "")
    )
    return {
        "transactionId": number,
        "success": False,
        "error": f"{text} ({refused})" if refused else text,
        "reason": reason,
        "failedIndex": None if at is None else plan.order.index(("ack", at)),
        "results": [],
    }


def _results(plan: Plan, owners: list[int], done: TransactionDone) -> list[dict[str, Any]]:
    left = [iter(receipts) for receipts in done.pushed]
    receipts = [next(left[owner]) for owner in owners]
    found: list[dict[str, Any]] = []
    for index, (kind, at) in enumerate(plan.order):
        if kind == "ack":
            settled = done.settled[at]
            found.append(
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
            found.append(
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
    return found
