"""Connections of Spark's processes: one per process and URL."""

from __future__ import annotations

import atexit
import os
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import msgspec
import pyarrow as pa

from ackwise.arrow.message_pages import STORED, MessagePage, PageReader, StorePageReader
from ackwise.client.server_url import is_server
from ackwise.client.transport import Transport
from ackwise.connect import reach as connected
from ackwise.core.errors import BadInput
from ackwise.core.lane_range import LaneRange

_ROWS_PER_REQUEST = 32_768


class StoreConnection(msgspec.Struct, frozen=True):
    """Connection to a store or server: `transport` for commands and queries, `shelf` to read stored messages."""

    transport: Transport
    shelf: PageReader

    def finish_task(self) -> None:
        """Write the counts in memory to the store, because Spark kills its workers without notice."""
        store = getattr(self.transport, "store", None)
        if store is not None:
            store.flush_ledger()

    def close(self) -> None:
        self.transport.close()


class ServerShelf:
    """PageReader of a server: the server sends pages as Arrow."""

    def __init__(self, transport: Any) -> None:
        self._transport = transport

    def pages(self, ranges: Iterable[LaneRange], wanted: Sequence[str]) -> Iterator[MessagePage]:
        for part in _requests(ranges):
            with pa.ipc.open_stream(self._transport.read_arrow(part, list(wanted))) as stream:
                for batch in stream:
                    yield from _by_lane(batch, wanted)


def _requests(ranges: Iterable[LaneRange]) -> Iterator[list[LaneRange]]:
    """Ranges of one request each. A request has at most `_ROWS_PER_REQUEST` messages."""
    portion: list[LaneRange] = []
    room = _ROWS_PER_REQUEST
    for lane, lo, hi in ranges:
        while lo < hi:
            end = min(hi, lo + room)
            portion.append(LaneRange(lane, lo, end))
            room -= end - lo
            lo = end
            if not room:
                yield portion
                portion, room = [], _ROWS_PER_REQUEST
    if portion:
        yield portion


def _by_lane(batch: pa.RecordBatch, wanted: Sequence[str]) -> Iterator[MessagePage]:
    lanes = batch.column("lane").to_numpy()
    lo = 0
    while lo < len(lanes):
        hi = lo + int((lanes[lo:] == lanes[lo]).sum())
        part = batch.slice(lo, hi - lo)
        columns = {name: part.column(name).cast(STORED[name]) for name in wanted}
        yield MessagePage(int(lanes[lo]), part.column("seq").to_numpy(), columns)
        lo = hi


def absolute(url: str) -> str:
    """The URL with an absolute path, because Spark's workers run in other folders."""
    if not url.startswith("sqlite:///") or url.startswith("sqlite:////"):
        return url
    path, mark, query = url.removeprefix("sqlite:///").partition("?")
    if not path:
        raise BadInput("option url: sqlite:/// needs a path, as in sqlite:////data/queues.db")
    return f"sqlite:///{os.path.abspath(path)}{mark}{query}"


def open_connection(url: str, *, duties: bool) -> StoreConnection:
    """Open a new connection. With `duties` it also runs the sweep, which a store without a server needs."""
    transport = connected(url, duties=duties)
    if is_server(url):
        return StoreConnection(transport, ServerShelf(transport))
    return StoreConnection(transport, StorePageReader(transport.store))  # type: ignore[union-attr]


_open: dict[tuple[int, str], StoreConnection] = {}
"""Connections by process id and URL. Spark reuses a worker for later tasks. A fork must not use its parent's."""


def task_connection(url: str) -> StoreConnection:
    """The connection that all tasks of this process share."""
    key = (os.getpid(), url)
    if key not in _open:
        _open[key] = open_connection(url, duties=False)
        if len(_open) == 1:
            atexit.register(close_task_connections)
    return _open[key]


def close_task_connections() -> None:
    """Close this process's connections before a fork, which must not inherit them. The next task opens new ones."""
    for key in [key for key in _open if key[0] == os.getpid()]:
        _open.pop(key).close()
