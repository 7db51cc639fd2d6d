"""Manifests of an archive: each run commits by creating one.

A run writes its files to a staging folder. Then it creates a manifest, which names the files and the archived position
of every lane. The manifest is the commit. Then the run moves the files to their final folders. A run that dies before
its manifest has archived nothing. After a later death, the next run finishes the moves. Two runs cannot create a
manifest with the same number. The folder of an archive:

    queue=orders/day=2030-01-31/00000007-0001.parquet    messages
    _ackwise/00000007.json                               the manifest of run 7
    _ackwise/00000008-<id>/…                             staging folder of a run
"""

from __future__ import annotations

import os
import re
import shutil
from pathlib import Path
from typing import Any, Protocol
from uuid import uuid4

import msgspec

from ackwise.client.transport import Transport
from ackwise.core import queries as q
from ackwise.core.commands import PruneQueue
from ackwise.core.errors import Conflict, StoreCorrupt
from ackwise.core.rows import LaneRow

_MANIFESTS = "_ackwise"
_MANIFEST = re.compile(r"(\d{8})\.json")
_STAGED = re.compile(r"(\d{8})-[0-9a-f]{32}")


class Manifest(msgspec.Struct, forbid_unknown_fields=True):
    """Commit of one run. `files` are pairs of staging path and final path."""

    number: int
    made_at: str
    messages: int
    files: list[tuple[str, str]]
    places: dict[str, int]
    """By lane (`partition id/priority`): the archive has all messages below this seq."""


def place_name(partition_id: str, priority: int) -> str:
    return f"{partition_id}/{priority}"


class Folder(Protocol):
    """Folder on some file system. Names in its methods are relative to it."""

    url: str

    def exists(self, name: str = "") -> bool: ...

    def names(self, name: str = "") -> list[str]: ...

    def tree(self, name: str) -> list[str]: ...

    def text(self, name: str) -> str: ...

    def create(self, name: str, text: str) -> bool: ...

    def move(self, source: str, target: str) -> None: ...

    def remove(self, name: str) -> None: ...

    def keep(self, names: list[str]) -> None: ...


class ArchiveFolder:
    """Manifests of an archive. On opening it finishes the moves of the last committed run."""

    def __init__(self, folder: Folder) -> None:
        self._folder = folder
        self.url = folder.url
        numbers = [int(match[1]) for name in folder.names(_MANIFESTS) if (match := _MANIFEST.fullmatch(name))]
        self.last = self._read(max(numbers)) if numbers else None
        if self.last is not None:
            self._finish(self.last)
        for name in folder.names(_MANIFESTS):
            match = _STAGED.fullmatch(name)
            # The manifest with this number exists, so the run of this staging folder can never commit.
            if match is not None and int(match[1]) < self.number:
                folder.remove(f"{_MANIFESTS}/{name}")

    @property
    def number(self) -> int:
        """Number of the next run."""
        return 1 if self.last is None else self.last.number + 1

    @property
    def places(self) -> dict[str, int]:
        return {} if self.last is None else self.last.places

    def new_stage(self) -> str:
        """Name of a new staging folder."""
        return f"{_MANIFESTS}/{self.number:08d}-{uuid4().hex}"

    def _read(self, number: int) -> Manifest:
        name = _manifest(number)
        try:
            return msgspec.json.decode(self._folder.text(name), type=Manifest)
        except msgspec.DecodeError as problem:
            raise StoreCorrupt(f"{self.url}/{name} is damaged: {problem}") from None

    def _finish(self, manifest: Manifest) -> None:
        for source, target in manifest.files:
            if self._folder.exists(source):
                self._folder.move(source, target)

    def commit(self, staged: str | None, places: dict[str, int], messages: int, made_at: str) -> None:
        """Commit a run: create its manifest and move its files. Raises `Conflict` if another run came first."""
        files: list[tuple[str, str]] = []
        for at, name in enumerate(self._folder.tree(staged) if staged is not None else ()):
            place = name.rpartition("/")[0]
            files.append((f"{staged}/{name}", f"{place}/{self.number:08d}-{at:04d}.parquet"))
        self._folder.keep([source for source, _ in files])
        manifest = Manifest(self.number, made_at, messages, files, {**self.places, **places})
        if not self._folder.create(_manifest(self.number), msgspec.json.encode(manifest).decode()):
            if staged is not None:
                self._folder.remove(staged)
            raise Conflict(
                f"another run of archive to {self.url} finished first; this run archived nothing, run it again"
            )
        self.last = manifest
        self._finish(manifest)
        if staged is not None:
            self._folder.remove(staged)


def _manifest(number: int) -> str:
    return f"{_MANIFESTS}/{number:08d}.json"


class LocalFolder:
    """Folder of this machine."""

    def __init__(self, path: str) -> None:
        self.path = Path(path).absolute()
        self.url = f"file://{self.path}"

    def exists(self, name: str = "") -> bool:
        return (self.path / name).exists()

    def names(self, name: str = "") -> list[str]:
        folder = self.path / name
        return sorted(entry.name for entry in folder.iterdir()) if folder.exists() else []

    def tree(self, name: str) -> list[str]:
        root = self.path / name
        return sorted(str(file.relative_to(root)) for file in root.rglob("*.parquet"))

    def text(self, name: str) -> str:
        return (self.path / name).read_text("utf-8")

    def create(self, name: str, text: str) -> bool:
        """Create a file atomically. Returns False if the file exists."""
        target = self.path / name
        target.parent.mkdir(parents=True, exist_ok=True)
        draft = target.with_name(f".{uuid4().hex}.tmp")
        draft.write_text(text, "utf-8")
        _sync(draft)
        try:
            os.link(draft, target)
        except FileExistsError:
            return False
        finally:
            draft.unlink()
        _sync(target.parent)
        return True

    def move(self, source: str, target: str) -> None:
        """Move a file. If the target exists, an earlier call has moved it, and the source is deleted."""
        if self.exists(target):
            (self.path / source).unlink()
            return
        place = self.path / target
        place.parent.mkdir(parents=True, exist_ok=True)
        (self.path / source).rename(place)

    def remove(self, name: str) -> None:
        shutil.rmtree(self.path / name, ignore_errors=True)

    def keep(self, names: list[str]) -> None:
        for name in names:
            _sync(self.path / name)
            _sync((self.path / name).parent)


def _sync(path: Path) -> None:
    number = os.open(path, os.O_RDONLY)
    try:
        os.fsync(number)
    finally:
        os.close(number)


# what both engines do before and after they write


class ArchiveLane(msgspec.Struct, frozen=True):
    """Lane to archive: messages from `place`, the next seq to archive, to `settled`."""

    queue: str
    row: LaneRow
    place: int
    settled: int

    @property
    def name(self) -> str:
        return place_name(self.row.partition_id, self.row.priority)

    @property
    def lo(self) -> int:
        """The first message that the store still has."""
        return min(max(self.place, self.row.start), self.settled)


Lanes = dict[str, list[ArchiveLane]]


def lanes_to_archive(transport: Transport, queue: str | None, places: dict[str, int]) -> Lanes:
    """Lanes by queue."""
    infos = transport.ask(q.ListQueues())
    names = [info.name for info in infos] if queue is None else [queue]
    lanes: Lanes = {}
    for name in names:
        rows = transport.ask(q.ListLanes(queue=name, settled=True))
        lanes[name] = [
            ArchiveLane(name, row, places.get(place_name(row.partition_id, row.priority), 0), row.settled or 0)
            for row in rows
        ]
    return lanes


def prune_archived(transport: Transport, lanes: Lanes, places: dict[str, int]) -> dict[str, int]:
    """Remove archived messages from the store. Returns the number by queue."""
    removed = {}
    for queue, queue_lanes in lanes.items():
        archived = {lane.row.lane: places[lane.name] for lane in queue_lanes if lane.name in places}
        removed[queue] = 0
        while archived:
            counted = transport.send(PruneQueue(queue=queue, lanes=archived))
            removed[queue] += counted.count
            if not counted.count:
                break
    return removed


def result_row(name: str, lanes: Lanes, written: dict[str, dict[str, Any]], pruned: dict[str, int]) -> tuple[Any, ...]:
    """Counts of a queue: `queue, messages, missing, pruned, first_at, last_at`."""
    counts = written.get(name, {"messages": 0, "first_at": None, "last_at": None})
    due = sum(max(0, lane.settled - lane.place) for lane in lanes[name])
    return (
        name,
        counts["messages"],
        due - counts["messages"],
        pruned.get(name, 0),
        counts["first_at"],
        counts["last_at"],
    )
