"""`/v1/leases/{lease}`: show, extend and release a lease."""

from __future__ import annotations

from contextlib import suppress
from typing import Annotated

import msgspec

from ackwise.broker import AsyncBroker
from ackwise.core import queries as q
from ackwise.core import validation
from ackwise.core.commands import Extend, release_command
from ackwise.core.errors import BadInput, LeaseLost, UnknownLease
from ackwise.core.rows import LeaseRow
from ackwise.core.settlement import Verdict
from ackwise.protocols.http_request import Call
from ackwise.protocols.http_response import Answer, Route
from ackwise.protocols.native.resource_answers import refuse_if_match, resource, resource_doc
from ackwise.wire import settle, timestamps

TAG = "leases"
Seconds = Annotated[float, msgspec.Meta(ge=0.001, le=validation.MAX_LEASE_SECONDS)]
_FENCED = "a lease id names one claim and is never used again"


class LeaseChange(msgspec.Struct, forbid_unknown_fields=True):
    """The new deadline: `lease_seconds` from now, or `add_seconds` beyond the old one."""

    lease_seconds: Seconds | None = None
    add_seconds: Seconds | None = None


class LeaseBody(msgspec.Struct):
    """A lease. A lease past its deadline has no `ended_at` until the server ends it."""

    lease_id: str
    queue: str
    group: str
    owner: str
    key: str | None
    made_at: str
    deadline: str
    ended_at: str | None
    end_kind: str | None
    granted: int
    held: int


class ReleasedLease(msgspec.Struct):
    """How many messages went back to their queue. A release costs no failure."""

    lease_id: str
    messages: int


_CHANGE = msgspec.json.Decoder(LeaseChange)


def routes(broker: AsyncBroker) -> list[Route]:
    async def find(lease_id: str) -> LeaseRow:
        return await broker.ask(q.GetLease(lease_id=lease_id))

    async def show(call: Call) -> Answer:
        return resource(_body(await find(call.params[0])))

    async def extend(call: Call) -> Answer:
        refuse_if_match(call, _FENCED)
        lease_id, body = call.params[0], await call.read(_CHANGE)
        if (body.lease_seconds is None) == (body.add_seconds is None):
            raise BadInput("an extension names one of lease_seconds and add_seconds")
        call.queue = (await find(lease_id)).queue
        command = Extend(lease_id=lease_id, lease=_micros(body.lease_seconds), add=_micros(body.add_seconds))
        extended = await broker.send(command)
        if extended.deadline is None:
            raise settle.not_extended(extended)
        return resource(_body(await find(lease_id)))

    async def release(call: Call) -> Answer:
        refuse_if_match(call, _FENCED)
        lease_id = call.params[0]
        with suppress(UnknownLease):
            call.queue = (await find(lease_id)).queue
        (settled,) = await broker.send(release_command([lease_id]))
        call.messages = settled.count
        if settled.verdict is Verdict.UNKNOWN:
            raise UnknownLease(f"there is no lease {lease_id!r:.60}; list the leases to see their ids")
        if settled.verdict is not Verdict.RELEASED:
            raise LeaseLost(f"the lease has ended ({settled.verdict.value}); nothing was released")
        return resource(ReleasedLease(lease_id, settled.count))

    answers = {200: LeaseBody}
    return [
        Route("GET", "/v1/leases/{lease}", show, doc=resource_doc(TAG, "Show a lease", answers=answers, errors=(404,))),
        Route("PATCH", "/v1/leases/{lease}", extend, doc=resource_doc(
            TAG, "Extend a lease", body=LeaseChange, answers=answers, errors=(404, 409))),
        Route("DELETE", "/v1/leases/{lease}", release, doc=resource_doc(
            TAG, "Release the messages of a lease, without a failure", answers={200: ReleasedLease},
            errors=(404, 409))),
    ]  # fmt: skip


def _micros(seconds: float | None) -> int | None:
    return None if seconds is None else validation.lease_micros(seconds)


def _body(row: LeaseRow) -> LeaseBody:
    return LeaseBody(
        row.lease_id,
        row.queue,
        row.group,
        row.owner,
        row.key,
        timestamps.text(row.made_at),
        timestamps.text(row.deadline),
        timestamps.text_or_none(row.ended_at),
        row.end_kind,
        row.granted,
        row.held,
    )
