"""Queen's vocabulary: default policies, times, and arguments of requests."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from typing import Any, Literal

import msgspec

from ackwise.core.commands import Claim
from ackwise.core.errors import BadInput
from ackwise.core.ids import uuid_int
from ackwise.core.policy import QueuePolicy
from ackwise.core.validation import MICROS
from ackwise.protocols.http_request import Call, parse, with_plus
from ackwise.protocols.queen.deliveries import RecentConsumers, RecentDeliveries
from ackwise.protocols.queen.maintenance_watch import MaintenanceWatch
from ackwise.wire import payloads, timestamps

_SEED = QueuePolicy(lease_seconds=300.0, exclusivity="partition", completed_retention_seconds=None)
_UPSTREAM = msgspec.structs.replace(
    _SEED, retry_counting="retries", expiry_counts=False, on_failure="rewind", delivery_limit=None
)
_UPSTREAM_PUSHED = msgspec.structs.replace(_UPSTREAM, lease_seconds=60.0)
MOST_SEEN = 10_000
TRACE = "traceId"
"""The header that keeps a message's trace id."""
_DATE = re.compile(r"\d{4}-\d\d-\d\d")
_EPOCH = timestamps.EPOCH


class QueenContext:
    """State that all Queen routes share: mode, maintenance, recent deliveries, recent consumers."""

    def __init__(
        self, maintenance: MaintenanceWatch, *, upstream: bool = False, start: Literal["all", "new"] = "all"
    ) -> None:
        self.maintenance = maintenance
        self.upstream = upstream
        """Whether the routes answer as the official server does, where it differs from the seed."""
        self.start = start
        """Where a new group begins if its first pop has no start."""
        self.policy = _UPSTREAM if upstream else _SEED
        """Policy of a queue that a Queen route creates."""
        self.push_policy = _UPSTREAM_PUSHED if upstream else _SEED
        """Policy of a queue that a push creates. In upstream mode its lease is shorter."""
        self.consumers = RecentConsumers()
        self.deliveries = RecentDeliveries()
        self._first_seen: dict[tuple[str | None, str | None, str], int] = {}

    def first_seen(self, claim: Claim, now: int) -> int:
        """Time of a group's first pop of new messages of a namespace or task."""
        if len(self._first_seen) >= MOST_SEEN:
            self._first_seen.clear()
        return self._first_seen.setdefault((claim.namespace, claim.task, claim.group), now)


# instants


show_time = timestamps.text_or_none
"""Text of an instant, such as `2026-11-15T18:47:13.668185Z`."""


def parse_time(text: object, what: str, *, end_of_day: bool = False) -> int:
    """Microseconds since 1970 of an ISO timestamp, UTC by default. `end_of_day`: a date means its last moment."""
    if not isinstance(text, str):
        raise BadInput(f"{what} must be an ISO timestamp, not {type(text).__name__}")
    try:
        moment = datetime.fromisoformat(with_plus(text.strip()) if "T" in text else text.strip())
    except ValueError:
        raise BadInput(f"{what} is not an ISO timestamp: {text!r:.60}") from None
    moment = moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)
    micros = (moment - _EPOCH) // timedelta(microseconds=1)
    if end_of_day and _DATE.fullmatch(text.strip()):
        micros += 24 * 3600 * MICROS - 1
    return timestamps.within(micros, what)


_anything = msgspec.json.Decoder(Any)
_NUMBER = re.compile("-?[0-9]{1,18}")
"""`int` alone also takes `1_0`, `+5` and digits of other scripts."""


async def read_object(call: Call) -> dict[str, Any]:
    """The body as an object. An empty body counts as `{}`: Queen's Python client sends none."""
    body = await call.body()
    value: Any = parse(_anything, body) if body.strip() else None
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise BadInput("the body must be a JSON object")
    return value


def text_in(body: dict[str, Any], name: str) -> str | None:
    """An optional text field of a body."""
    value = body.get(name)
    if value is not None and not isinstance(value, str):
        raise BadInput(f"{name} must be a string, not {type(value).__name__}")
    return value or None


@lru_cache(maxsize=4096)
def uuid_in(text: str, what: str) -> str:
    """A UUID in lower case. Cached, because clients repeat few partition ids."""
    if uuid_int(text.lower()) is None:
        raise BadInput(f"{what} must be a UUID, not {text!r:.50}")
    return text.lower()


def shape_of(call: Call, *, default: str) -> str:
    """The shape that `?shape=` names: `object` or `array`."""
    shape = call.query.get("shape", default)
    if shape not in ("object", "array"):
        raise BadInput(f"shape must be object or array, not {shape!r:.40}")
    return shape


def number_in(
    query: dict[str, str], name: str, default: int, most: int, *, least: int = 0, lenient: bool = False
) -> int:
    """A whole number of the query string, from `least` to `most`.

    Upstream mode is `lenient`: the default replaces a value that is not a number. The nearest bound replaces a number
    out of range. A text with more than 18 digits is not a number.
    """
    text = query.get(name)
    if text is None:
        return default
    if not _NUMBER.fullmatch(text):
        if lenient:
            return default
        raise BadInput(f"{name} must be a whole number, not {text!r:.40}")
    number = int(text)
    if lenient:
        return min(max(number, least), most)
    if not least <= number <= most:
        raise BadInput(f"{name} must be {least} to {most}, not {number}")
    return number


def payload_field(payload: bytes, content_type: str) -> object:
    """A payload as a field of an answer: JSON as it was pushed, other bytes in base64."""
    return msgspec.Raw(payloads.for_answer(payload, content_type)[0])
