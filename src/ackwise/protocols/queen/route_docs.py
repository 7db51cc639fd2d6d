"""Documentation of Queen's routes for `/openapi.json`."""

from __future__ import annotations

from typing import Any

import msgspec

from ackwise.protocols.queen import ack, lease, push, transaction
from ackwise.protocols.queen import catalogue_docs as catalogue
from ackwise.protocols.queen import delivery_docs as delivery
from ackwise.protocols.queen import group_docs as groups
from ackwise.protocols.queen import message_docs as messages
from ackwise.protocols.queen import status_docs as status
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


def _doc(summary: str, **more: Any) -> RouteDoc:
    return RouteDoc(summary=summary, tag=TAG, error=QueenError, **more)


def _change(summary: str, **more: Any) -> RouteDoc:
    """A route whose body is an object without a struct. An empty body is allowed."""
    return _doc(summary, **{"body": Object, "body_required": False, "errors": (404, 409), **more})


_POP: dict[str, Any] = {
    "query": QueenPopQuery,
    "answers": {200: delivery.PoppedMessages, 204: None},
    "errors": (404, 409),
}
_V1, _GROUPS, _SYSTEM = "/api/v1", "/api/v1/consumer-groups", "/api/v1/system"
_ANALYTICS = "GET /api/v1/analytics"
DOCS = {
    f"POST {_V1}/push": _doc("Push messages", body=push._Body, answers={201: delivery.Pushed}, errors=(404, 409)),
    f"GET {_V1}/pop": _doc("Pop messages by namespace or task", **_POP),
    f"GET {_V1}/pop/queue/{{queue}}": _doc("Pop messages of a queue", **_POP),
    f"GET {_V1}/pop/queue/{{queue}}/partition/{{partition}}": _doc("Pop messages of a partition", **_POP),
    f"POST {_V1}/ack": _doc(
        "Acknowledge a message",
        body=ack.Ack,
        query=ShapeQuery,
        answers={200: delivery.Acked},
        errors=(404, 409),
    ),
    f"POST {_V1}/ack/batch": _doc(
        "Acknowledge messages",
        body=ack._Batch,
        answers={200: delivery.AckedBatch},
        errors=(404, 409),
    ),
    f"POST {_V1}/lease/{{lease}}/extend": _doc(
        "Extend a lease",
        body=lease._Body,
        body_required=False,
        answers={200: delivery.LeaseExtension},
        errors=(404, 409),
    ),
    f"POST {_V1}/transaction": _doc(
        "Acknowledge and push, all or nothing",
        body=transaction._Body,
        answers={200: delivery.QueenTransaction},
        errors=(404, 409),
    ),
    f"POST {_V1}/configure": _doc(
        "Create or change a queue", body=Object, answers={200: catalogue.ConfiguredQueue}, errors=(404, 409)
    ),
    f"GET {_V1}/resources/queues": _doc(
        "List queues with their counts", query=ResourceQuery, answers={200: catalogue.QueenQueues}
    ),
    f"GET {_V1}/resources/queues/{{queue}}": _doc(
        "Show a queue", errors=(404,), answers={200: catalogue.QueenQueueDetail}
    ),
    f"DELETE {_V1}/resources/queues/{{queue}}": _doc("Delete a queue", answers={200: catalogue.DeletedQueue}),
    f"GET {_V1}/resources/queues/{{queue}}/depth": _doc(
        "Unfinished messages of a group", query=DepthQuery, errors=(404,), answers={200: catalogue.QueenDepth}
    ),
    f"GET {_V1}/resources/partitions": _doc(
        "List partitions with their counts",
        query=ResourceQuery,
        errors=(404,),
        answers={200: catalogue.QueenPartitions},
    ),
    f"GET {_V1}/resources/namespaces": _doc("List namespaces", query=TagQuery, answers={200: catalogue.NamespaceList}),
    f"GET {_V1}/resources/tasks": _doc("List tasks", query=TagQuery, answers={200: catalogue.TaskList}),
    f"GET {_V1}/resources/overview": _doc("Totals of the server", query=TagQuery, answers={200: catalogue.Overview}),
    f"POST {_V1}/stats/refresh": _change(
        "Count now, also in a store of many queues", answers={200: catalogue.RefreshedOverview}
    ),
    f"GET {_V1}/dlq": _doc("List dead letters", query=DeadLetterQuery, answers={200: messages.QueenLetters}),
    f"DELETE {_V1}/dlq": _doc(
        "Remove the dead letters of a queue or group",
        query=PurgeQuery,
        errors=(404,),
        answers={200: messages.PurgedQueenLetters},
    ),
    f"DELETE {_V1}/dlq/{{id}}": _doc("Remove a dead letter", errors=(404,), answers={200: messages.PurgedQueenLetter}),
    f"POST {_V1}/dlq/{{id}}/replay": _change("Push a copy of a dead letter", answers={200: messages.ReplayedLetter}),
    f"POST {_V1}/messages/{{partitionId}}/{{transactionId}}/retry": _change(
        "Push a copy of a message's dead letter", query=GroupQuery, answers={200: messages.ReplayedLetter}
    ),
    f"GET {_V1}/messages/{{partitionId}}/{{transactionId}}": _doc(
        "Show a message", query=GroupQuery, errors=(404,), answers={200: messages.QueenMessageDetail}
    ),
    f"GET {_GROUPS}": _doc(
        "List consumer groups", query=ShapeQuery, answers={200: (groups.QueenGroups, list[groups.QueenGroup])}
    ),
    f"GET {_GROUPS}/lagging": _doc(
        "List lagging partitions", query=LaggingQuery, answers={200: list[groups.LaggingPartition]}
    ),
    f"GET {_GROUPS}/{{group}}": _doc(
        "Show a consumer group by queue and partition", errors=(404,), answers={200: dict[str, groups.GroupPlaces]}
    ),
    f"DELETE {_GROUPS}/{{group}}": _doc(
        "Delete a consumer group", query=GroupDeleteQuery, errors=(404,), answers={200: groups.DeletedGroup}
    ),
    f"DELETE {_GROUPS}/{{group}}/queues/{{queue}}": _doc(
        "Delete a consumer group of a queue", query=GroupDeleteQuery, errors=(404,), answers={200: groups.DeletedGroup}
    ),
    f"POST {_GROUPS}/{{group}}/subscription": _change(
        "Set where a subscription begins", answers={200: groups.MovedSubscription}
    ),
    f"POST {_GROUPS}/{{group}}/queues/{{queue}}/seek": _change(
        "Move a group in a queue", answers={200: groups.MovedGroup}
    ),
    f"POST {_GROUPS}/{{group}}/queues/{{queue}}/partitions/{{partition}}/seek": _change(
        "Move a group in a partition", answers={200: groups.MovedPartition}
    ),
    f"GET {_V1}/messages": _doc(
        "List messages, newest first", query=MessageQuery, answers={200: messages.ListedMessages}
    ),
    f"DELETE {_V1}/messages/{{partitionId}}/{{transactionId}}": _doc(
        "Delete the dead letters of a message", errors=(404,), answers={200: messages.DeletedMessage}
    ),
    f"GET {_V1}/status/queues/{{queue}}/messages": _doc(
        "List messages of a queue without payloads, newest first",
        query=PageQuery,
        answers={200: list[messages.ShortMessage]},
    ),
    f"POST {_V1}/traces": _doc(
        "Add a trace to a message", body=NewTrace, errors=(404,), answers={201: messages.AddedTrace}
    ),
    f"GET {_V1}/traces/names": _doc("List names of traces", query=PageQuery, answers={200: messages.TraceNameList}),
    f"GET {_V1}/traces/by-name/{{name}}": _doc(
        "List traces with a name, newest first", query=PageQuery, answers={200: messages.NamedTraces}
    ),
    f"GET {_V1}/traces/{{partitionId}}/{{transactionId}}": _doc(
        "List traces of a message, oldest first", answers={200: messages.QueenTraces}
    ),
    "GET /status": _doc("Whether the process answers", answers={200: status.Alive}),
    f"GET {_V1}/status": _doc(
        "Throughput and totals of the server", query=SeriesQuery, answers={200: status.QueenStatus}
    ),
    f"GET {_V1}/status/queues": _doc(
        "List queues with their message counts", query=QueuePageQuery, answers={200: status.StatusQueues}
    ),
    f"GET {_V1}/status/queues/{{queue}}": _doc(
        "Show a queue with its partitions", errors=(404,), answers={200: status.StatusQueueDetail}
    ),
    f"GET {_V1}/status/analytics": _doc(
        "Pushed messages per minute, hour or day", query=IntervalQuery, answers={200: status.PushedSeries}
    ),
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
    f"GET {_SYSTEM}/maintenance": _doc("Show push and pop maintenance", answers={200: status.PushMaintenance}),
    f"POST {_SYSTEM}/maintenance": _doc(
        "Switch push maintenance on or off", body=MaintenanceSwitch, answers={200: status.PushMaintenance}
    ),
    f"GET {_SYSTEM}/maintenance/pop": _doc("Show pop maintenance", answers={200: status.PopMaintenance}),
    f"POST {_SYSTEM}/maintenance/pop": _doc(
        "Switch pop maintenance on or off", body=MaintenanceSwitch, answers={200: status.PopMaintenance}
    ),
    f"GET {_SYSTEM}/shared-state": _doc(
        "Show the maintenance state that servers share", answers={200: status.SharedState}
    ),
    f"GET {_V1}/status/buffers": _doc(
        "Count the pushed messages that wait for the end of maintenance", answers={200: status.Buffers}
    ),
}
