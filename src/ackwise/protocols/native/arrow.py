"""Arrow IPC streams: writes claims and tables, reads pushes. Imports pyarrow, an extra, at its first use."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from importlib import import_module
from importlib.util import find_spec
from io import BytesIO
from typing import Any

from ackwise.broker.deliveries import segment_slices
from ackwise.core import validation
from ackwise.core.answers import Handed, Settled
from ackwise.core.commands import Push
from ackwise.core.errors import BadInput
from ackwise.core.messages import DEFAULT_PARTITION, JSON, NewMessage, PlainBatch
from ackwise.core.policy import NEW_QUEUE_POLICY
from ackwise.protocols.http_response import encode
from ackwise.protocols.json_columns import created_times, message_columns
from ackwise.protocols.native.claim_json import delivery_ids, head_of
from ackwise.protocols.native.request_arguments import NotAcceptable, UnsupportedMedia
from ackwise.wire import payloads
from ackwise.wire.claim import ClaimBody

NO_PYARROW = "Arrow needs pyarrow on the server; install ackwise[arrow] there"
METADATA = b"ackwise"
"""Key of the schema metadata that holds a claim's lease, group, deadline and reason for being empty."""

CLAIM = {
    "delivery_id": "string",
    "message_id": "string",
    "transaction_id": "string",
    "queue": "string",
    "partition": "string",
    "priority": "int",
    "seq": "long",
    "attempt": "int",
    "payload": "string",
    "headers": "headers",
    "created_at": "instant",
}
PUSH = ("payload", "partition", "priority", "transaction_id", "headers", "delay_seconds", "content_type")


def needed_to_write() -> None:
    if find_spec("pyarrow") is None:
        raise NotAcceptable(NO_PYARROW)


def needed_to_read() -> None:
    if find_spec("pyarrow") is None:
        raise UnsupportedMedia(NO_PYARROW)


def _pyarrow() -> Any:
    return import_module("pyarrow")


def _types() -> dict[str, Any]:
    pa = _pyarrow()

    return {
        "string": pa.string(),
        "int": pa.int32(),
        "long": pa.int64(),
        "bool": pa.bool_(),
        "instant": pa.timestamp("us", tz="UTC"),
        "headers": pa.map_(pa.string(), pa.string()),
        "strings": pa.list_(pa.string()),
        "latency": pa.map_(pa.float64(), pa.int64()),
    }


class Stream:
    """Writer of an IPC stream, batch by batch. Each call returns the bytes that it added."""

    def __init__(self, kinds: Mapping[str, str], metadata: bytes | None = None) -> None:
        pa = _pyarrow()
        types = _types()
        self._types = {name: types[kind] for name, kind in kinds.items()}
        fields = [pa.field(name, kind) for name, kind in self._types.items()]
        self._schema = pa.schema(fields, None if metadata is None else {METADATA: metadata})
        self._file = BytesIO()
        self._writer = pa.ipc.new_stream(self._file, self._schema)

    def add(self, columns: Mapping[str, Sequence[Any]]) -> bytes:
        pa = _pyarrow()
        arrays = [pa.array(columns[name], kind) for name, kind in self._types.items()]
        self._writer.write_batch(pa.record_batch(arrays, schema=self._schema))
        return self._taken()

    def end(self) -> bytes:
        self._writer.close()
        return self._taken()

    def _taken(self) -> bytes:
        written = self._file.getvalue()
        self._file.seek(0)
        self._file.truncate()
        return written


def stream(kinds: Mapping[str, str], columns: Mapping[str, Sequence[Any]], metadata: bytes | None = None) -> bytes:
    """Columns of these kinds as one IPC stream."""
    writer = Stream(kinds, metadata)
    return writer.add(columns) + writer.end()


def write_claim(body: ClaimBody, settled: Sequence[Settled], handed: Handed) -> bytes:
    """A claim with the columns of the Spark source."""
    columns: dict[str, list[Any]] = {name: [] for name in CLAIM}
    for run in segment_slices(handed):
        messages, grant, size = message_columns(run), run.grant, run.hi - run.lo
        message_ids = messages.message_ids
        columns["delivery_id"] += delivery_ids(handed.claimed, run)
        columns["message_id"] += message_ids
        columns["transaction_id"] += messages.transaction_ids(message_ids)
        columns["queue"] += [grant.queue] * size
        columns["partition"] += [grant.partition] * size
        columns["priority"] += [grant.priority] * size
        columns["seq"] += range(run.lo, run.hi)
        columns["attempt"] += [grant.attempt] * size
        columns["payload"] += messages.texts
        columns["headers"] += [{}] * size if messages.extras is None else [extra.headers for extra in messages.extras]
        columns["created_at"] += created_times(messages, run)
    return stream(CLAIM, columns, encode(head_of(body, settled, handed.claimed)))


def read_push(queue: str, body: bytes) -> Push:
    """The push that a stream describes. By default text payloads are JSON and binary payloads are bytes."""
    columns, binary = _read(body)
    unknown = sorted(set(columns) - set(PUSH))
    if unknown:
        raise BadInput(f"unknown column {unknown[0]!r:.60}; known: {', '.join(PUSH)}")
    if "payload" not in columns:
        raise BadInput("the stream has no column 'payload'")
    default = payloads.BYTES if binary else JSON
    bodies = columns.pop("payload")
    if any(payload is None for payload in bodies):
        raise BadInput("a payload is null")
    kinds = [default if kind is None else kind for kind in columns.pop("content_type", [None] * len(bodies))]
    _check_json(bodies, kinds)
    if not columns and len(set(kinds)) == 1:
        return Push(
            queue=queue, messages=PlainBatch(bodies, None, DEFAULT_PARTITION, kinds[0]), create=NEW_QUEUE_POLICY
        )
    return Push(queue=queue, messages=_messages(bodies, kinds, columns), create=NEW_QUEUE_POLICY)


def _read(body: bytes) -> tuple[dict[str, list[Any]], bool]:
    """The columns as Python values, with payloads as bytes, and whether the payload column was binary."""
    pa = _pyarrow()

    try:
        with pa.ipc.open_stream(body) as reader:
            table = reader.read_all()
        table.validate(full=True)
        if len(set(table.column_names)) != table.num_columns:
            raise BadInput("the stream has two columns of the same name")
        binary = False
        column_types = _push_types()
        for name in set(table.column_names) & set(column_types):
            at = table.column_names.index(name)
            kind = table.schema.field(at).type
            if pa.types.is_dictionary(kind):
                kind = kind.value_type
            if name == "payload":
                binary = pa.types.is_binary(kind) or pa.types.is_large_binary(kind)
                table = table.set_column(at, name, table.column(at).cast(kind))
            table = table.set_column(at, name, table.column(at).cast(column_types[name]))
        validation.count(table.num_rows, "the number of messages", least=0, most=validation.MAX_PUSH_ITEMS)
        return {name: table.column(name).to_pylist() for name in table.column_names}, binary
    except (pa.ArrowException, OSError, ValueError) as problem:
        if isinstance(problem, BadInput):
            raise
        raise BadInput(f"the body is not an Arrow stream that can be pushed: {problem}") from None


def _push_types() -> dict[str, Any]:
    pa = _pyarrow()

    return {
        "payload": pa.large_binary(),
        "partition": pa.large_string(),
        "priority": pa.int64(),
        "transaction_id": pa.large_string(),
        "headers": pa.map_(pa.string(), pa.string()),
        "delay_seconds": pa.float64(),
        "content_type": pa.large_string(),
    }


def _check_json(bodies: list[bytes], kinds: list[str]) -> None:
    json_rows = [row for row, kind in enumerate(kinds) if kind == JSON]
    if not payloads.are_json([bodies[row] for row in json_rows]):
        invalid = next(row for row in json_rows if not payloads.are_json([bodies[row]]))
        raise BadInput(f"the payload in row {invalid} is not JSON")


def _messages(bodies: list[bytes], kinds: list[str], columns: dict[str, list[Any]]) -> list[NewMessage]:
    def column(name: str, default: Any, convert: Callable[[Any], Any] = lambda value: value) -> Iterable[Any]:
        return [default if value is None else convert(value) for value in columns.get(name, [None] * len(bodies))]

    return [
        NewMessage(payload, partition, priority, txid, headers, kind, delay)
        for payload, kind, partition, priority, txid, headers, delay in zip(
            bodies,
            kinds,
            column("partition", DEFAULT_PARTITION),
            column("priority", 0),
            column("transaction_id", None),
            column("headers", None, dict),
            column("delay_seconds", 0, lambda value: validation.micros(value, "delay_seconds")),
            strict=True,
        )
    ]
