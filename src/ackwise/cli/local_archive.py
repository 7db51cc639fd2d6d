"""`ackwise archive` without Spark: the same files and manifests, written in this process with Arrow."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, date, datetime
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit
from uuid import uuid4

from ackwise.core.errors import BadInput
from ackwise.core.extras import needed
from ackwise.core.queries import Browse
from ackwise.spark.archive_folder import (
    ArchiveFolder,
    ArchiveLane,
    Lanes,
    LocalFolder,
    lanes_to_archive,
    prune_archived,
    result_row,
)
from ackwise.spark.reports.summaries import Row
from ackwise.wire import payloads
from ackwise.wire.timestamps import moment

if TYPE_CHECKING:
    from ackwise.client.transport import Transport

ROWS_PER_FILE = 50_000
BYTES_IN_MEMORY = 64 << 20
PAGE = 1000
_RESULT = ("queue", "messages", "missing", "pruned", "first_at", "last_at")
_ESCAPED = frozenset("\"#%'*/:=?\\{[]^\x7f")
"""Characters that Spark escapes in the name of a partition's folder. Spark also escapes control characters."""


def archive(transport: Transport, path: str, queue: str | None, *, prune: bool) -> list[Row]:
    """Archive the messages that every group has finished. Returns the same rows as the Spark engine."""
    folder = _folder(path)
    archived = ArchiveFolder(folder)
    lanes = lanes_to_archive(transport, queue, archived.places)
    written = _write(transport, folder, archived, lanes)
    pruned = prune_archived(transport, lanes, archived.places) if prune else {}
    return [dict(zip(_RESULT, result_row(name, lanes, written, pruned), strict=True)) for name in lanes]


def _folder(path: str) -> LocalFolder:
    parts = urlsplit(path)
    if parts.scheme == "file" and not parts.netloc:
        return LocalFolder(parts.path)
    if "://" in path:
        raise BadInput(f"{path} is not a folder of this machine; add --engine spark")
    return LocalFolder(path)


def _write(transport: Transport, folder: LocalFolder, archived: ArchiveFolder, lanes: Lanes) -> dict[str, Row]:
    """Write the messages and commit. Returns the counts by queue."""
    ahead = [lane for queue_lanes in lanes.values() for lane in queue_lanes if lane.settled > lane.place]
    if not ahead:
        return {}
    places = {lane.name: lane.settled for lane in ahead}
    made_at = datetime.now(UTC).isoformat(timespec="seconds")
    if not any(lane.settled > lane.lo for lane in ahead):
        archived.commit(None, places, 0, made_at)
        return {}
    stage = _Stage(folder, archived.new_stage())
    try:
        for lane in ahead:
            for row in _messages(transport, lane):
                stage.add(row)
        stage.flush()
    except BaseException:
        folder.remove(stage.name)
        raise
    total = sum(counts["messages"] for counts in stage.counts.values())
    archived.commit(stage.name if total else None, places, total, made_at)
    return stage.counts


def _messages(transport: Transport, lane: ArchiveLane) -> Iterator[Row]:
    """Messages of a lane that the run must archive, page by page."""
    lo = lane.lo
    while lo < lane.settled:
        limit = min(PAGE, lane.settled - lo)
        query = Browse(queue=lane.queue, partition=lane.row.partition, after=(lane.row.lane, lo - 1), limit=limit)
        page = [browsed.message for browsed in transport.ask(query) if browsed.message.lane == lane.row.lane]
        if not page:
            return
        for message in page:
            if message.seq >= lane.settled:
                return
            text, content_type = payloads.for_answer(message.payload, message.content_type)
            yield {
                "message_id": message.id,
                "transaction_id": message.transaction_id,
                "queue": lane.queue,
                "partition": lane.row.partition,
                "partition_id": lane.row.partition_id,
                "priority": lane.row.priority,
                "seq": message.seq,
                "payload": text.decode(),
                "headers": list(message.headers.items()),
                "content_type": content_type,
                "created_at": message.created_at,
            }
        lo = page[-1].seq + 1


class _Stage:
    """Staging folder of a run. Memory holds a bounded number of rows and bytes."""

    def __init__(self, folder: LocalFolder, name: str) -> None:
        with needed("arrow", "ackwise archive"):
            import pyarrow as pa
            import pyarrow.parquet as parquet

        self._arrow, self._parquet, self._folder, self.name = pa, parquet, folder, name
        self._rows: dict[tuple[str, date], list[Row]] = {}
        self._count = self._bytes = 0
        self.counts: dict[str, Row] = {}

    def add(self, row: Row) -> None:
        created = moment(row["created_at"])
        self._rows.setdefault((row["queue"], created.date()), []).append(row)
        self._count, self._bytes = self._count + 1, self._bytes + len(row["payload"])
        counts = self.counts.setdefault(row["queue"], {"messages": 0, "first_at": created, "last_at": created})
        counts["messages"] += 1
        counts["first_at"], counts["last_at"] = min(counts["first_at"], created), max(counts["last_at"], created)
        if self._count >= ROWS_PER_FILE or self._bytes >= BYTES_IN_MEMORY:
            self.flush()

    def flush(self) -> None:
        """Write one file for each queue and day."""
        for (queue, day), rows in self._rows.items():
            place = self._folder.path / self.name / f"queue={_escaped(queue)}" / f"day={day.isoformat()}"
            place.mkdir(parents=True, exist_ok=True)
            self._parquet.write_table(self._table(rows), place / f"part-{uuid4().hex}.parquet")
        self._rows.clear()
        self._count = self._bytes = 0

    def _table(self, rows: list[Row]) -> Any:
        pa = self._arrow
        text = pa.string()
        kinds = {
            "message_id": text,
            "transaction_id": text,
            "partition": text,
            "partition_id": text,
            "priority": pa.int32(),
            "seq": pa.int64(),
            "payload": text,
            "headers": pa.map_(text, text),
            "content_type": text,
            "created_at": pa.timestamp("us", tz="UTC"),
        }
        return pa.table({name: pa.array([row[name] for row in rows], kind) for name, kind in kinds.items()})


def _escaped(value: str) -> str:
    """The name of a queue in a folder's name, as Spark writes it."""
    return "".join(f"%{ord(c):02X}" if c in _ESCAPED or ord(c) < 0x20 else c for c in value)
