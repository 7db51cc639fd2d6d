"""Options of the source, validated."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from difflib import get_close_matches
from typing import Literal

import msgspec

from ackwise.core import validation
from ackwise.core.errors import BadInput
from ackwise.spark.connections import absolute
from ackwise.wire import timestamps

Mode = Literal["lease", "log"]
Table = Literal["messages", "dead_letters", "leases", "ledger", "groups"]
Unsettled = Literal["ack", "release", "retry"]

ROWS_PER_TRIGGER = 100_000
LEASE_SECONDS = 300.0
TABLES: tuple[Table, ...] = ("messages", "dead_letters", "leases", "ledger", "groups")
_KNOWN = (
    "url",
    "queue",
    "group",
    "mode",
    "claimName",
    "maxRowsPerTrigger",
    "maxBytesPerTrigger",
    "leaseSeconds",
    "maxPartitions",
    "startingPosition",
    "table",
    "payloadSchema",
    "failOnDataLoss",
    "unsettled",
    "nonce",
)


class SourceOptions(msgspec.Struct, frozen=True):
    """Validated options of the source."""

    url: str
    queue: str | None
    group: str | None
    mode: Mode
    table: Table
    claim_name: str
    rows_per_trigger: int
    bytes_per_trigger: int
    """Unbounded unless the option is set: a claim returns ranges without payloads, and tasks read payloads in pages."""
    lease: int
    """In microseconds."""
    partitions: int
    start: Literal["all", "new"] | int
    payload_schema: str | None
    fail_on_data_loss: bool
    unsettled: Unsettled
    nonce: str | None

    def check_stream(self) -> None:
        """Reject the option `table`: a stream reads messages only."""
        if self.table != "messages":
            raise BadInput(f"option table is {self.table!r}: tables are read as batches, with spark.read")

    @property
    def needed_queue(self) -> str:
        if self.queue is None:
            raise BadInput('option queue is missing: .option("queue", "orders")')
        return self.queue

    @property
    def needed_group(self) -> str:
        if self.group is None:
            raise BadInput('option group is missing: a lease belongs to a group; .option("group", "billing")')
        return self.group


def check_known(given: Iterable[str], known: tuple[str, ...], where: str) -> None:
    """Reject unknown options with a hint, because Spark ignores a misspelt option silently."""
    spelled = {name.lower(): name for name in known}
    for name in given:
        if name.lower() not in spelled:
            prefixed = [option for option in spelled if option.startswith(name.lower())]
            close = prefixed or get_close_matches(name.lower(), spelled, 1)
            hint = f"; did you mean {spelled[close[0]]}?" if close else f"; it has {', '.join(known)}"
            raise BadInput(f"the {where} has no option {name!r:.60}{hint}")


def url_of(given: Mapping[str, str]) -> str:
    url = given.get("url") or os.environ.get("ACKWISE_URL")
    if not url:
        raise BadInput('option url is missing: .option("url", "sqlite:////path/to/queue.db"), or set ACKWISE_URL')
    return absolute(url)


def one_of(given: Mapping[str, str], name: str, allowed: tuple[str, ...], default: str) -> str:
    value = given.get(name, default)
    if value not in allowed:
        raise BadInput(f"option {name} is {value!r:.60}; it must be one of {', '.join(allowed)}")
    return value


def count_of(given: Mapping[str, str], name: str, default: int, most: int) -> int:
    text = given.get(name)
    if text is None:
        return default
    try:
        return validation.count(int(text), f"option {name}", most=most)
    except ValueError as problem:
        if isinstance(problem, BadInput):
            raise
        raise BadInput(f"option {name} must be a whole number, not {text!r:.60}") from None


def _name_of(given: Mapping[str, str], name: str) -> str | None:
    value = given.get(name)
    return None if value is None else validation.name(value, f"option {name}")


def _lease_of(given: Mapping[str, str]) -> int:
    text = given.get("leaseSeconds")
    try:
        return validation.lease_micros(LEASE_SECONDS if text is None else float(text))
    except ValueError as problem:
        why = problem if isinstance(problem, BadInput) else "it is not a number"
        raise BadInput(f"option leaseSeconds is {text!r:.60}: {why}") from None


def _bytes_of(given: Mapping[str, str], mode: str) -> int:
    if mode == "log" and "maxBytesPerTrigger" in given:
        raise BadInput("option maxBytesPerTrigger is for mode=lease; in mode=log use maxRowsPerTrigger")
    return count_of(given, "maxBytesPerTrigger", validation.MAX_CLAIM_BYTES, validation.MAX_CLAIM_BYTES)


def start_at(text: str, what: str) -> Literal["all", "new"] | int:
    if text == "all" or text == "new":
        return "all" if text == "all" else "new"
    try:
        return timestamps.parse(text, what)
    except BadInput as problem:
        raise BadInput(f"{problem} (it is all, new or an ISO time)") from None


def parse_options(given: Mapping[str, str]) -> SourceOptions:
    check_known(given, _KNOWN, "ackwise source")
    mode = one_of(given, "mode", ("lease", "log"), "lease")
    table = one_of(given, "table", TABLES, "messages")
    group = _name_of(given, "group")
    claim_name = _name_of(given, "claimName") or group or ""
    if "/" in claim_name and given.get("claimName"):
        raise BadInput(f"option claimName is {claim_name!r:.60}: it must not contain a slash")
    return SourceOptions(
        url=url_of(given),
        queue=_name_of(given, "queue"),
        group=group,
        mode="lease" if mode == "lease" else "log",
        table=TABLES[TABLES.index(table)],
        claim_name=claim_name,
        rows_per_trigger=count_of(given, "maxRowsPerTrigger", ROWS_PER_TRIGGER, validation.MAX_BATCH),
        bytes_per_trigger=_bytes_of(given, mode),
        lease=_lease_of(given),
        partitions=count_of(given, "maxPartitions", os.cpu_count() or 1, 100_000),
        start=start_at(given.get("startingPosition", "all"), "option startingPosition"),
        payload_schema=given.get("payloadSchema"),
        fail_on_data_loss=one_of(given, "failOnDataLoss", ("true", "false"), "true") == "true",
        unsettled=one_of(given, "unsettled", ("ack", "release", "retry"), "ack"),  # type: ignore[arg-type]
        nonce=given.get("nonce"),
    )
