"""Documentation of Queen's routes for `/openapi.json`."""

from __future__ import annotations

from typing import Any

import msgspec

from ackwise.protocols.queen import ack, lease, push, transaction
from ackwise.protocols.route_docs import RouteDoc

TAG = "queen"
_UNSET = msgspec.UNSET
Text = str | msgspec.UnsetType
Object = dict[str, Any]


class QueenError(msgspec.Struct):
    """Error of a Queen route."""

    error: str
    code: str


class QueenPopQuery(msgspec.Struct):
    batch: Text = _UNSET
    wait: Text = _UNSET
    timeout: Text = _UNSET
    consumerGroup: Text = _UNSET
    namespace: Text = _UNSET
    task: Text = _UNSET
    autoAck: Text = _UNSET
    leaseSeconds: Text = _UNSET
    maxBytes: Text = _UNSET
    partitions: Text = _UNSET
    autopilot: Text = _UNSET
    commitOnDelivery: Text = _UNSET
    subscriptionMode: Text = _UNSET
    subscriptionFrom: Text = _UNSET
    clientId: Text = _UNSET


class ResourceQuery(msgspec.Struct):
    namespace: Text = _UNSET
    task: Text = _UNSET
    limit: Text = _UNSET
    after: Text = _UNSET


class TagQuery(msgspec.Struct):
    namespace: Text = _UNSET
    task: Text = _UNSET


class DepthQuery(msgspec.Struct):
    group: Text = _UNSET
    consumerGroup: Text = _UNSET


class ShapeQuery(msgspec.Struct):
    shape: Text = _UNSET


class DeadLetterQuery(msgspec.Struct):
    queue: Text = _UNSET
    consumerGroup: Text = _UNSET
    partition: Text = _UNSET
    to: Text = _UNSET
    limit: Text = _UNSET
    offset: Text = _UNSET
    since: Text = msgspec.field(default=_UNSET, name="from")


class PurgeQuery(msgspec.Struct):
    queue: Text = _UNSET
    consumerGroup: Text = _UNSET


class GroupQuery(msgspec.Struct):
    consumerGroup: Text = _UNSET


class LaggingQuery(msgspec.Struct):
    minLagSeconds: Text = _UNSET


class GroupDeleteQuery(msgspec.Struct):
    deleteMetadata: Text = _UNSET


class PageQuery(msgspec.Struct):
    limit: Text = _UNSET
    offset: Text = _UNSET


class MessageQuery(msgspec.Struct):
    queue: Text = _UNSET
    partition: Text = _UNSET
    namespace: Text = _UNSET
    ns: Text = _UNSET
    task: Text = _UNSET
    status: Text = _UNSET
    to: Text = _UNSET
    limit: Text = _UNSET
    offset: Text = _UNSET
    since: Text = msgspec.field(default=_UNSET, name="from")


class QueuePageQuery(TagQuery):
    queue: Text = _UNSET
    limit: Text = _UNSET
    offset: Text = _UNSET


class RangeQuery(msgspec.Struct):
    """Window of time."""

    to: Text = _UNSET
    since: Text = msgspec.field(default=_UNSET, name="from")


class SeriesQuery(RangeQuery):
    """Window of time of all queues or of some."""

    queue: Text = _UNSET
    namespace: Text = _UNSET
    task: Text = _UNSET


class IntervalQuery(SeriesQuery):
    interval: Text = _UNSET


class WorkloadQuery(SeriesQuery):
    groupBy: Text = _UNSET


class RetentionQuery(RangeQuery):
    groupBy: Text = _UNSET


class ReplicaQuery(RangeQuery):
    hostname: Text = _UNSET
    workerId: Text = _UNSET


class SignatureQuery(msgspec.Struct):
    queue: str
    limit: Text = _UNSET


class LivenessQuery(TagQuery):
    queue: Text = _UNSET
    limit: Text = _UNSET


class NewTrace(msgspec.Struct):
    transactionId: str
    partitionId: str
    data: Any
    consumerGroup: str | None = None
    eventType: str | None = None
    traceNames: list[str] | str | None = None


class MaintenanceSwitch(msgspec.Struct):
    enabled: bool


class PoppedMessages(msgspec.Struct):
    """Answer to a pop with messages. Each message names its queue, partition, lease and attempt."""

    success: bool
    messages: list[Object]
    queue: Text = _UNSET
    partition: Text = _UNSET
    partitionId: Text = _UNSET
    leaseId: Text = _UNSET
    consumerGroup: Text = _UNSET
    partitionsClaimed: int | msgspec.UnsetType = _UNSET
    leaseExpiresAt: str | msgspec.UnsetType | None = _UNSET


def _doc(summary: str, **more: Any) -> RouteDoc:
    return RouteDoc(summary=summary, tag=TAG, error=QueenError, **more)


def _change(summary: str, **more: Any) -> RouteDoc:
    """A route whose body is an object without a struct. An empty body is allowed."""
    return _doc(summary, **{"body": Object, "body_required": False, "errors": (404, 409), **more})


_POP: dict[str, Any] = {"query": QueenPopQuery, "answers": {200: PoppedMessages, 204: None}, "errors": (404, 409)}
_V1, _GROUPS, _SYSTEM = "/api/v1", "/api/v1/consumer-groups", "/api/v1/system"
_ANALYTICS = "GET /api/v1/analytics"
DOCS = {
    f"POST {_V1}/push": _doc("Push messages", body=push._Body, answers={201: list[push.PushResult]}, errors=(404, 409)),
    f"GET {_V1}/pop": _doc("Pop messages by namespace or task", **_POP),
    f"GET {_V1}/pop/queue/{{queue}}": _doc("Pop messages of a queue", **_POP),
    f"GET {_V1}/pop/queue/{{queue}}/partition/{{partition}}": _doc("Pop messages of a partition", **_POP),
    f"POST {_V1}/ack": _doc(
        "Acknowledge a message",
        body=ack.Ack,
        query=ShapeQuery,
        answers={200: (Object, list[Object])},
        errors=(404, 409),
    ),
    f"POST {_V1}/ack/batch": _doc(
        "Acknowledge messages",
        body=ack._Batch,
        query=ShapeQuery,
        answers={200: (Object, list[Object])},
        errors=(404, 409),
    ),
    f"POST {_V1}/lease/{{lease}}/extend": _doc(
        "Extend a lease", body=lease._Body, body_required=False, answers={200: Object}, errors=(404, 409)
    ),
    f"POST {_V1}/transaction": _doc(
        "Acknowledge and push, all or nothing", body=transaction._Body, answers={200: Object}, errors=(404, 409)
    ),
    f"POST {_V1}/configure": _doc(
        "Create or change a queue", body=Object, answers={200: Object, 201: Object}, errors=(404, 409)
    ),
    f"GET {_V1}/resources/queues": _doc("List queues with their counts", query=ResourceQuery),
    f"GET {_V1}/resources/queues/{{queue}}": _doc("Show a queue", errors=(404,)),
    f"DELETE {_V1}/resources/queues/{{queue}}": _doc("Delete a queue"),
    f"GET {_V1}/resources/queues/{{queue}}/depth": _doc(
        "Unfinished messages of a group", query=DepthQuery, errors=(404,)
    ),
    f"GET {_V1}/resources/partitions": _doc("List partitions with their counts", query=ResourceQuery, errors=(404,)),
    f"GET {_V1}/resources/namespaces": _doc("List namespaces", query=TagQuery),
    f"GET {_V1}/resources/tasks": _doc("List tasks", query=TagQuery),
    f"GET {_V1}/resources/overview": _doc("Totals of the server", query=TagQuery),
    f"POST {_V1}/stats/refresh": _change("Counts are always current: does nothing"),
    f"GET {_V1}/dlq": _doc("List dead letters", query=DeadLetterQuery),
    f"DELETE {_V1}/dlq": _doc("Remove the dead letters of a queue or group", query=PurgeQuery, errors=(404,)),
    f"DELETE {_V1}/dlq/{{id}}": _doc("Remove a dead letter", errors=(404,)),
    f"POST {_V1}/dlq/{{id}}/replay": _change("Push a copy of a dead letter"),
    f"POST {_V1}/messages/{{partitionId}}/{{transactionId}}/retry": _change(
        "Push a copy of a message's dead letter", query=GroupQuery
    ),
    f"GET {_V1}/messages/{{partitionId}}/{{transactionId}}": _doc("Show a message", query=GroupQuery, errors=(404,)),
    f"GET {_GROUPS}": _doc("List consumer groups", query=ShapeQuery, answers={200: (Object, list[Object])}),
    f"GET {_GROUPS}/lagging": _doc("List lagging partitions", query=LaggingQuery, answers={200: list[Object]}),
    f"GET {_GROUPS}/{{group}}": _doc("Show a consumer group by queue and partition", errors=(404,)),
    f"DELETE {_GROUPS}/{{group}}": _doc("Delete a consumer group", query=GroupDeleteQuery, errors=(404,)),
    f"DELETE {_GROUPS}/{{group}}/queues/{{queue}}": _doc(
        "Delete a consumer group of a queue", query=GroupDeleteQuery, errors=(404,)
    ),
    f"POST {_GROUPS}/{{group}}/subscription": _change("Set where a subscription begins"),
    f"POST {_GROUPS}/{{group}}/queues/{{queue}}/seek": _change("Move a group in a queue"),
    f"POST {_GROUPS}/{{group}}/queues/{{queue}}/partitions/{{partition}}/seek": _change("Move a group in a partition"),
    f"GET {_V1}/messages": _doc("List messages, newest first", query=MessageQuery),
    f"DELETE {_V1}/messages/{{partitionId}}/{{transactionId}}": _doc(
        "Delete the dead letters of a message", errors=(404,)
    ),
    f"GET {_V1}/status/queues/{{queue}}/messages": _doc(
        "List messages of a queue without payloads, newest first", query=PageQuery, answers={200: list[Object]}
    ),
    f"POST {_V1}/traces": _doc("Add a trace to a message", body=NewTrace, answers={201: Object}, errors=(404,)),
    f"GET {_V1}/traces/names": _doc("List names of traces", query=PageQuery),
    f"GET {_V1}/traces/by-name/{{name}}": _doc("List traces with a name, newest first", query=PageQuery),
    f"GET {_V1}/traces/{{partitionId}}/{{transactionId}}": _doc("List traces of a message, oldest first"),
    "GET /status": _doc("Whether the process answers"),
    f"GET {_V1}/status": _doc("Throughput and totals of the server", query=SeriesQuery),
    f"GET {_V1}/status/queues": _doc("List queues with their message counts", query=QueuePageQuery),
    f"GET {_V1}/status/queues/{{queue}}": _doc("Show a queue with its partitions", errors=(404,)),
    f"GET {_V1}/status/analytics": _doc("Pushed messages per minute, hour or day", query=IntervalQuery),
    f"{_ANALYTICS}/queue-lag": _doc(
        "Always an empty list: the server does not measure lag", query=RangeQuery, answers={200: list[Object]}
    ),
    f"{_ANALYTICS}/queue-ops": _doc("Counts per queue and time bucket", query=SeriesQuery),
    f"{_ANALYTICS}/queue-parked-replicas": _doc(
        "Always an empty series: the server does not count waiting consumers", query=RangeQuery
    ),
    f"{_ANALYTICS}/retention": _doc(
        "Always an empty series: the server does not count what retention removes", query=RetentionQuery
    ),
    f"{_ANALYTICS}/worker-metrics": _doc("Throughput of the server per time bucket", query=SeriesQuery),
    f"{_ANALYTICS}/system-metrics": _doc("CPU and memory of this process", query=ReplicaQuery),
    f"{_ANALYTICS}/postgres-stats": _doc("Statistics of the database"),
    f"{_ANALYTICS}/workload": _doc("Counts by namespace, task or queue", query=WorkloadQuery),
    f"{_ANALYTICS}/dlq-signatures": _doc("Dead letters of a queue by error text", query=SignatureQuery),
    f"{_ANALYTICS}/partition-liveness": _doc("How many partitions of each queue are in use", query=LivenessQuery),
    f"GET {_SYSTEM}/maintenance": _doc("Show push and pop maintenance"),
    f"POST {_SYSTEM}/maintenance": _doc("Switch push maintenance on or off", body=MaintenanceSwitch),
    f"GET {_SYSTEM}/maintenance/pop": _doc("Show pop maintenance"),
    f"POST {_SYSTEM}/maintenance/pop": _doc("Switch pop maintenance on or off", body=MaintenanceSwitch),
    f"GET {_SYSTEM}/shared-state": _doc("Show the maintenance state that servers share"),
    f"GET {_V1}/status/buffers": _doc("Count the pushed messages that wait for the end of maintenance"),
}
