"""Documentation of tables and lists: the structs of their rows, pages and filters, from the columns of each table."""

from __future__ import annotations

from typing import Annotated, Any

import msgspec

from ackwise.core import cursors
from ackwise.core.error_kinds import LONGEST_KIND
from ackwise.core.validation import MAX_NAME
from ackwise.protocols.native.resource_answers import resource_doc
from ackwise.protocols.native.tables import LARGEST_PAGE, LISTS, TABLES, NativeTable
from ackwise.protocols.problem_documents import NativeError
from ackwise.protocols.route_docs import RouteDoc

ARROW_TYPE = "application/vnd.apache.arrow.stream"
_NULLABLE: dict[str, frozenset[str]] = {
    "consumers": frozenset({"deadline"}),
    "messages": frozenset({"state"}),
    "leases": frozenset({"key", "ended_at", "end_kind"}),
    "groups": frozenset({"oldest_unfinished_at", "settled_at"}),
}
"""Columns that may be null, by the last word of the list's name."""
_KINDS: dict[str, Any] = {
    "string": str,
    "int": int,
    "long": int,
    "bool": bool,
    "instant": str,
    "payload": Any,
    "json": dict[str, Any],
    "headers": dict[str, str],
    "strings": list[str],
    "latency": dict[str, int],
}
Text = Annotated[str, msgspec.Meta(max_length=MAX_NAME)]
Kind = Annotated[str, msgspec.Meta(max_length=LONGEST_KIND)]
Instant = Annotated[str, msgspec.Meta(max_length=64)]
Cursor = Annotated[str, msgspec.Meta(max_length=cursors.LONGEST)]
Flag = Annotated[str, msgspec.Meta(pattern="^(true|false)$")]
_FILTERS: dict[str, dict[str, Any]] = {
    "queues": {"namespace": Text, "task": Text},
    "groups": {"queue": Text, "group": Text},
    "leases": {"queue": Text, "group": Text, "live_only": Flag},
    "oldest-leases": {"queue": Text},
    "consumers": {"queue": Text, "group": Text, "recent_seconds": Annotated[int, msgspec.Meta(ge=0, le=3600)]},
    "messages": {"queue": Text, "partition": Text, "group": Text, "after": Annotated[str, msgspec.Meta(max_length=40)]},
    "dead-letters": {
        "queue": Text,
        "group": Text,
        "partition": Text,
        "reason": Text,
        "kind": Kind,
        "after": Instant,
        "before": Instant,
        "offset": Annotated[int, msgspec.Meta(ge=0, le=1 << 31)],
    },
    "ledger": {"queue": Text, "group": Text, "after": Instant, "before": Instant},
}
_REQUIRED = {"messages": "queue"}
PROBLEM_LISTS = frozenset({"consumers"})
"""Lists whose errors are problem documents. The older lists keep the older form of errors."""
_LARGEST = {"oldest-leases": 1000}


def _title(name: str) -> str:
    return "".join(word.capitalize() for word in name.replace("_", "-").split("-"))


def row_struct(name: str, table: NativeTable) -> type[msgspec.Struct]:
    """Struct of a table's rows."""
    nullable = _NULLABLE.get(name.removesuffix("-table").rpartition("-")[2], frozenset())
    fields = [
        (column, _KINDS[kind] | None if column in nullable else _KINDS[kind]) for column, kind in table.columns.items()
    ]
    return msgspec.defstruct(f"{_title(name)}Row", fields)


def page_struct(name: str, key: str, table: NativeTable) -> type[msgspec.Struct]:
    """Struct of a page: rows under `key`, the cursor of the next page, and for dead letters the total."""
    fields: list[Any] = [(key, list[row_struct(name, table)]), ("next", str | None)]  # type: ignore[misc] # a struct made at runtime
    if "dead_at" in table.columns:
        fields.append(("total", int))
    return msgspec.defstruct(f"{_title(name)}Page", fields)


def query_struct(name: str, *, fixed: str | None = None) -> type[msgspec.Struct]:
    """Struct of a list's parameters, without the one that the path fixes."""
    largest = _LARGEST.get(name, LARGEST_PAGE)
    fields: list[Any] = []
    for parameter, kind in _FILTERS.get(name, {}).items():
        if parameter == _REQUIRED.get(name):
            fields.insert(0, (parameter, kind))
        elif parameter != fixed:
            fields.append((parameter, kind, msgspec.UNSET))
    fields.append(("limit", Annotated[int, msgspec.Meta(ge=1, le=largest)], msgspec.UNSET))
    fields.append(("cursor", Cursor, msgspec.UNSET))
    return msgspec.defstruct(f"{_title(name)}Query", fields)


class TableQuery(msgspec.Struct):
    """Parameters of all tables. A table refuses the filters of other tables."""

    queue: Text | msgspec.UnsetType = msgspec.UNSET
    group: Text | msgspec.UnsetType = msgspec.UNSET
    partition: Text | msgspec.UnsetType = msgspec.UNSET
    reason: Text | msgspec.UnsetType = msgspec.UNSET
    kind: Kind | msgspec.UnsetType = msgspec.UNSET
    after: Instant | msgspec.UnsetType = msgspec.UNSET
    before: Instant | msgspec.UnsetType = msgspec.UNSET
    live_only: Flag | msgspec.UnsetType = msgspec.UNSET
    limit: Annotated[int, msgspec.Meta(ge=1, le=LARGEST_PAGE)] | msgspec.UnsetType = msgspec.UNSET
    cursor: Cursor | msgspec.UnsetType = msgspec.UNSET


def _list_doc(name: str, table: NativeTable) -> RouteDoc:
    doc = resource_doc(
        name.replace("oldest-", "").replace("-", " "),
        f"List {name.replace('-', ' ')}, a page at a time",
        query=query_struct(name),
        answers={200: page_struct(name, name.replace("-", "_"), table)},
        errors=(404,),
    )
    if name in PROBLEM_LISTS:
        return doc
    return msgspec.structs.replace(doc, error=NativeError, error_type="application/json")


DOCS = {f"GET /v1/{name}": _list_doc(name, table) for name, table in LISTS.items()} | {
    "GET /v1/tables/{table}": RouteDoc(
        summary="Read a table: messages, dead_letters, leases, ledger or groups, as JSON or Arrow",
        tag="tables",
        query=TableQuery,
        answers={200: tuple(page_struct(f"{name}-table", "rows", table) for name, table in TABLES.items())},
        answer_types=("application/json", ARROW_TYPE),
        errors=(404, 406, 501),
        error=NativeError,
    )
}
GROUPS_OF_QUEUE = resource_doc(
    "groups",
    "List the groups of a queue",
    query=query_struct("groups", fixed="queue"),
    answers={200: page_struct("queue-groups", "groups", LISTS["groups"])},
    errors=(404,),
)
