"""How Spark's processes reach messages: the store itself, or a server. One connection per process and URL."""

from __future__ import annotations

import atexit
import os
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import msgspec
import pyarrow as pa

from ackwise.client.servers import is_server
from ackwise.client.transport import Transport
from ackwise.columns.pages import STORED, Page, Range, Shelf, Stored
from ackwise.connect import reach as connected
from ackwise.core.errors import BadInput

_ROWS_PER_REQUEST = 32_768


class Reach(msgspec.Struct, frozen=True):
    """Commands and queries go through `transport`; stored messages are read from the `shelf`."""

    transport: Transport
    shelf: Shelf

    def finish_task(self) -> None:
        """What is counted in memory is written down: Spark ends its workers without a word."""
        store = getattr(self.transport, "store", None)
        if store is not None:
            store.flush_ledger()

    def close(self) -> None:
        self.transport.close()


class Served:
    """A shelf behind a server: pages come as Arrow."""

    def __init__(self, transport: Any) -> None:
        self._transport = transport

    def pages(self, ranges: Iterable[Range], wanted: Sequence[str]) -> Iterator[Page]:
        for part in _portions(ranges):
            with pa.ipc.open_stream(self._transport.read_arrow(part, list(wanted))) as stream:
                for batch in stream:
                    yield from _by_lane(batch, wanted)


def _portions(ranges: Iterable[Range]) -> Iterator[list[Range]]:
    """As much as is asked for at once: a request must not grow with a queue."""
    portion: list[Range] = []
    room = _ROWS_PER_REQUEST
    for lane, lo, hi in ranges:
        while lo < hi:
            end = min(hi, lo + room)
            portion.append((lane, lo, end))
            room -= end - lo
            lo = end
            if not room:
                yield portion
                portion, room = [], _ROWS_PER_REQUEST
    if portion:
        yield portion


def _by_lane(batch: pa.RecordBatch, wanted: Sequence[str]) -> Iterator[Page]:
    lanes = batch.column("lane").to_numpy()
    lo = 0
    while lo < len(lanes):
        hi = lo + int((lanes[lo:] == lanes[lo]).sum())
        part = batch.slice(lo, hi - lo)
        columns = {name: part.column(name).cast(STORED[name]) for name in wanted}
        yield Page(int(lanes[lo]), part.column("seq").to_numpy(), columns)
        lo = hi


def absolute(url: str) -> str:
    """The URL as every process understands it: workers start in folders of their own."""
    if not url.startswith("sqlite:///") or url.startswith("sqlite:////"):
        return url
    path, mark, query = url.removeprefix("sqlite:///").partition("?")
    if not path:
        raise BadInput("option url: sqlite:/// needs a path behind it")
    return f"sqlite:///{os.path.abspath(path)}{mark}{query}"


def reach(url: str, *, duties: bool) -> Reach:
    """A connection of one's own. With `duties` it also sweeps: somebody has to, where no server runs."""
    transport = connected(url, duties=duties)
    return Reach(transport, Served(transport) if is_server(url) else Stored(transport.store.read))  # type: ignore[union-attr]


_kept: dict[tuple[int, str], Reach] = {}
"""Workers are used again by later tasks and so are their connections. A forked process must not use its parent's."""


def kept(url: str) -> Reach:
    """This process's connection for tasks."""
    key = (os.getpid(), url)
    if key not in _kept:
        _kept[key] = reach(url, duties=False)
        if len(_kept) == 1:
            atexit.register(let_go)
    return _kept[key]


def let_go() -> None:
    """Close this process's connections; the next task opens them again. A fork must not inherit an open one."""
    for key in [one for one in _kept if one[0] == os.getpid()]:
        _kept.pop(key).close()
