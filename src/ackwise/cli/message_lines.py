"""Messages as lines of JSON: the format of `ackwise message export`, `import`, `pop` and `tail`."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from datetime import datetime
from typing import IO, Any, cast

import msgspec

from ackwise.core.errors import BadInput
from ackwise.core.messages import DEFAULT_PARTITION, JSON, NewMessage
from ackwise.wire import payloads

LONGEST_LINE = 64 << 20
_CHUNK = 256 << 10
_BATCH = 1000


class MessageLine(msgspec.Struct, kw_only=True, omit_defaults=True):
    """A message as one JSON object. The fields after `headers` are for the reader. An import ignores them."""

    payload: msgspec.Raw
    queue: str | None = None
    partition: str = DEFAULT_PARTITION
    priority: int = 0
    transaction_id: str | None = None
    content_type: str = JSON
    headers: dict[str, str] = {}
    id: str | None = None
    partition_id: str | None = None
    seq: int | None = None
    created_at: datetime | None = None
    state: str | None = None
    group: str | None = None
    delivery_id: str | None = None
    attempt: int | None = None
    failures: int | None = None


class _StrictLine(MessageLine, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """A line of an import: an unknown field is an error."""


_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(_StrictLine).decode


def payload_json(payload: bytes, content_type: str) -> tuple[msgspec.Raw, str]:
    """A payload as JSON, and its content type. Bytes become `{"$base64": …}`."""
    raw, kind = payloads.for_answer(payload, content_type)
    # A stored payload may have line breaks between its values. A line has none.
    return msgspec.Raw(msgspec.json.format(raw, indent=-1) if b"\n" in raw or b"\r" in raw else raw), kind


def written(line: MessageLine) -> bytes:
    return _encode(line) + b"\n"


def parsed(text: bytes, number: int) -> MessageLine:
    """The message of a line. Raises `BadInput` with the number of the line."""
    try:
        text.decode()
        return _decode(text)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as problem:
        raise BadInput(f"line {number}: {problem}") from None


def new_message(line: MessageLine, number: int) -> NewMessage:
    """The message to push for a line of an import."""
    try:
        body = payloads.from_request(line.payload, line.content_type)
    except BadInput as problem:
        raise BadInput(f"line {number}: {problem}") from None
    return NewMessage(
        body, line.partition, line.priority, line.transaction_id, dict(line.headers) or None, line.content_type
    )


def plain_payload(text: bytes, number: int) -> bytes:
    """The payload of a line. Raises `BadInput` if the line is not JSON."""
    if not payloads.are_json([text]):
        raise BadInput(f"line {number} is not JSON")
    return text


def read_batches() -> Iterator[list[tuple[int, bytes]]]:
    """Yields the lines of stdin with their numbers as soon as they arrive. Memory holds one chunk and one line."""
    stream = cast(Any, sys.stdin.buffer)
    number, rest = 0, b""
    while chunk := stream.read1(_CHUNK):
        *lines, rest = (rest + chunk).split(b"\n")
        if len(rest) > LONGEST_LINE:
            raise BadInput(f"line {number + len(lines) + 1} is longer than {LONGEST_LINE >> 20} MiB")
        yield from _batches(lines, number)
        number += len(lines)
    yield from _batches([rest], number)


def _batches(lines: list[bytes], before: int) -> Iterator[list[tuple[int, bytes]]]:
    numbered = [(before + at, line.strip()) for at, line in enumerate(lines, 1) if line.strip()]
    for at in range(0, len(numbered), _BATCH):
        yield numbered[at : at + _BATCH]


def stdout() -> IO[bytes]:
    """Stdout for bytes."""
    sys.stdout.flush()
    return sys.stdout.buffer
