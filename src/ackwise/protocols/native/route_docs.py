"""Documentation of the native routes that are no resources."""

from __future__ import annotations

from typing import Any

import msgspec

from ackwise.core.answers import Grant
from ackwise.core.commands import Selector
from ackwise.core.lane_selection import EmptyReason
from ackwise.core.messages import Receipt
from ackwise.core.settlement import Verdict
from ackwise.protocols.native import hooks, list_docs
from ackwise.protocols.native.list_docs import ARROW_TYPE
from ackwise.protocols.native.resource_answers import resource_doc
from ackwise.protocols.problem_documents import NativeError
from ackwise.protocols.route_docs import RouteDoc
from ackwise.wire import claim, push, settle

TAG = "deliveries"
_JSON = "application/json"
_UNSET = msgspec.UNSET


class ServerName(msgspec.Struct):
    server: str
    version: str


class ShownVerdict(msgspec.Struct):
    """Verdict of one entry, with the field by which the entry selected its message."""

    verdict: Verdict
    delivery_id: str | msgspec.UnsetType = _UNSET
    lease_id: str | msgspec.UnsetType | None = _UNSET
    selector: Selector | msgspec.UnsetType = _UNSET


class Verdicts(msgspec.Struct):
    """Verdicts in the order of the entries. With `detail` each has the fields of `Settled`."""

    verdicts: list[ShownVerdict]


class ReleaseAnswer(msgspec.Struct):
    lease_id: str
    verdict: Verdict
    count: int


class TransactionAnswer(msgspec.Struct):
    verdicts: list[ShownVerdict]
    receipts: list[list[Receipt]]


class ClaimedMessage(msgspec.Struct):
    delivery_id: str
    message_id: str
    transaction_id: str
    queue: str
    partition: str
    partition_id: str
    priority: int
    attempt: int
    failures: int
    seq: int
    payload: Any
    headers: dict[str, str]
    content_type: str
    created_at: str


class ClaimAnswer(msgspec.Struct):
    """Answer to a claim: `messages`, or `grants` with `grants_only`."""

    lease_id: str | None
    group: str
    deadline: str | None
    empty: EmptyReason | None
    until: str | None
    verdicts: list[ShownVerdict] | msgspec.UnsetType = _UNSET
    messages: list[ClaimedMessage] | msgspec.UnsetType = _UNSET
    grants: list[Grant] | msgspec.UnsetType = _UNSET


class Batches(msgspec.Struct):
    """Answer to a claim with `ahead`."""

    verdicts: list[ShownVerdict]
    claims: list[ClaimAnswer]


class Stopped(msgspec.Struct):
    stopped: int


class PushQuery(msgspec.Struct):
    """Parameters of a push as an Arrow stream."""

    queue: list_docs.Text | msgspec.UnsetType = _UNSET


class ShownHook(msgspec.Struct):
    """Webhook of a queue's dead letters. `pending` says whether dead letters wait for a request to the URL."""

    queue: str
    url: str | None
    include_payload: bool
    paused: bool
    error: str | None
    failures: int
    failing_since: str | None
    retry_seconds: float
    pending: bool
    created_at: str


class RemovedHooks(msgspec.Struct):
    removed: int


class ClientCommand(msgspec.Struct):
    """A command or a query of our own client. `type` selects its other fields."""

    type: str


def _doc(summary: str, *, tag: str = TAG, **more: Any) -> RouteDoc:
    return RouteDoc(summary=summary, tag=tag, error=NativeError, **more)


CLAIMS = (ClaimAnswer, Batches, claim.ClaimColumns[list[Any]], claim.Ahead[list[Any]])
DOCS = list_docs.DOCS | {
    "GET /v1": _doc("Name and version of the server", tag="server", answers={200: ServerName}),
    "POST /v1/push": _doc(
        "Push messages, as JSON or as an Arrow stream",
        body=push.PushBody,
        body_types=(_JSON, ARROW_TYPE),
        query=PushQuery,
        answers={200: push.PushAnswer},
        errors=(404, 409, 415, 501),
    ),
    "POST /v1/claim": _doc(
        "Claim messages under a lease",
        body=claim.ClaimBody,
        answers={200: CLAIMS},
        answer_types=(_JSON, ARROW_TYPE),
        errors=(404, 406, 409, 501),
    ),
    "POST /v1/stop": _doc("End waiting claims by their poll names", body=claim.StopBody, answers={200: Stopped}),
    "POST /v1/settle": _doc(
        "Settle deliveries",
        body=settle.SettleBody,
        answers={200: (Verdicts, settle.DetailedVerdicts)},
        errors=(404, 409),
    ),
    "POST /v1/extend": _doc(
        "Extend a lease", body=settle.ExtendBody, answers={200: settle.Deadline}, errors=(404, 409)
    ),
    "POST /v1/extend-all": _doc("Extend leases", body=settle.ExtendAllBody, answers={200: settle.ExtensionVerdicts}),
    "POST /v1/release": _doc("Release a lease", body=settle.ReleaseBody, answers={200: ReleaseAnswer}),
    "POST /v1/transaction": _doc(
        "Settle and push, all or nothing",
        body=settle.TransactionBody,
        answers={200: (TransactionAnswer, settle.DetailedTransaction)},
        errors=(404, 409),
    ),
    "POST /v1/read": _doc(
        "Read stored messages by their positions, as Arrow",
        body=claim.ReadBody,
        answers={200: bytes},
        answer_types=(ARROW_TYPE,),
        errors=(404, 406, 501),
    ),
    f"PUT {hooks.PATH}": resource_doc(
        "queues",
        "Set the webhook of a queue's dead letters",
        body=hooks.HookBody,
        answers={200: ShownHook},
        errors=(404,),
    ),
    f"GET {hooks.PATH}": resource_doc(
        "queues", "Show the webhook of a queue's dead letters", answers={200: ShownHook}, errors=(404,)
    ),
    f"DELETE {hooks.PATH}": resource_doc(
        "queues", "Remove the webhook of a queue's dead letters", answers={200: RemovedHooks}, errors=(404,)
    ),
    "POST /v1/admin": _doc(
        "Run an administrative command of our own client",
        tag="internal",
        body=ClientCommand,
        answers={200: Any},
        errors=(404, 409, 412),
        internal=True,
    ),
    "POST /v1/ask": _doc(
        "Run a query of our own client",
        tag="internal",
        body=ClientCommand,
        answers={200: Any},
        errors=(404, 409),
        internal=True,
    ),
}
