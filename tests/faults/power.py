"""A VFS that writes down what SQLite asked of the disk, and disks as lost power may leave them behind.

Everything goes to the real files as well. `Journal` keeps each write, truncation, sync and deletion in order, with
marks of what had been answered in between; `Journal.images` then makes, for any moment, the files as they may be when
the power goes: what was synced is there, of everything else each 512-byte sector is there or not, as the dice fall.
"""

from __future__ import annotations

import random
import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import apsw

SECTOR = 512


@dataclass
class Event:
    """`kind` is write, truncate, sync, delete or mark."""

    kind: str
    path: str = ""
    offset: int = 0
    data: bytes = b""


@dataclass
class _File:
    """What is safe, and what has been asked for since the last sync."""

    safe: bytearray = field(default_factory=bytearray)
    exists: bool = False
    unsafe: list[Event] = field(default_factory=list)
    ghost: bytes | None = None

    def sync(self) -> None:
        for event in self.unsafe:
            _apply(self.safe, event)
        self.unsafe.clear()
        self.exists, self.ghost = True, None

    def after_power_loss(self, dice: random.Random) -> bytes | None:
        if not self.exists and not self.unsafe:
            # A deletion may not have reached the disk.
            return self.ghost if dice.random() < 0.5 else None
        left = bytearray(self.safe)
        for event in self.unsafe:
            fate = dice.random()
            if fate < 0.4:
                _apply(left, event)
            elif fate < 0.7 and event.kind == "write":
                for torn in _torn(event, dice):
                    _apply(left, torn)
        return bytes(left) if self.exists or left or dice.random() < 0.5 else None


def _apply(content: bytearray, event: Event) -> None:
    if event.kind == "truncate":
        del content[event.offset :]
        content.extend(b"\0" * (event.offset - len(content)))
        return
    if len(content) < event.offset:
        content.extend(b"\0" * (event.offset - len(content)))
    content[event.offset : event.offset + len(event.data)] = event.data


def _torn(event: Event, dice: random.Random) -> Iterator[Event]:
    """Some sectors of a write."""
    first = event.offset // SECTOR
    last = (event.offset + len(event.data) - 1) // SECTOR
    for sector in range(first, last + 1):
        if dice.random() < 0.5:
            lo = max(event.offset, sector * SECTOR)
            hi = min(event.offset + len(event.data), (sector + 1) * SECTOR)
            yield Event("write", event.path, lo, event.data[lo - event.offset : hi - event.offset])


class Journal:
    """Every event of every file, in order. Without `room` left, a write that makes its file longer is refused."""

    def __init__(self) -> None:
        self.events: list[Event] = []
        self.room: int | None = None
        self.failing_syncs = 0
        self._sizes: dict[str, int] = {}
        self._lock = threading.Lock()

    def add(self, event: Event) -> None:
        with self._lock:
            self.events.append(event)

    def mark(self, data: bytes) -> None:
        """Something was answered (or asked) here."""
        self.add(Event("mark", data=data))

    def grow(self, path: str, size: int) -> None:
        """A file is about to reach this size."""
        with self._lock:
            more = size - self._sizes.get(path, 0)
            if more <= 0:
                return
            if self.room is not None:
                if more > self.room:
                    raise apsw.FullError("the disk is full")
                self.room -= more
            self._sizes[path] = size

    def shrink(self, path: str, size: int) -> None:
        with self._lock:
            less = self._sizes.get(path, 0) - size
            self._sizes[path] = size
            if self.room is not None:
                self.room += max(0, less)

    def check_sync(self) -> None:
        with self._lock:
            if self.failing_syncs:
                self.failing_syncs -= 1
                raise apsw.IOError("the disk failed to sync")

    def images(
        self, moments: Sequence[int], dice: random.Random, *, syncs_count: bool = True
    ) -> Iterator[tuple[dict[str, bytes], bytes]]:
        """For each moment (a number of events), the files after power loss and the marks until then."""
        files: dict[str, _File] = {}
        marks = bytearray()
        at = 0
        for moment in sorted(moments):
            for event in self.events[at:moment]:
                if event.kind == "mark":
                    marks += event.data
                elif event.kind != "sync" or syncs_count:
                    _note(files, event)
            at = moment
            left = {path: file.after_power_loss(dice) for path, file in files.items()}
            yield {path: content for path, content in left.items() if content is not None}, bytes(marks)


def _note(files: dict[str, _File], event: Event) -> None:
    file = files.setdefault(event.path, _File())
    match event.kind:
        case "sync":
            if not file.exists:
                # The first sync of a new journal or log syncs its folder too, and with it earlier deletions.
                for other in files.values():
                    other.ghost = None
            file.sync()
        case "delete":
            file.ghost = bytes(file.safe) if file.exists else None
            file.safe, file.exists, file.unsafe = bytearray(), False, []
        case _:
            file.unsafe.append(event)


def restore(image: dict[str, bytes], folder: Path) -> Path:
    """Put the files of an image into a folder; the database's path."""
    folder.mkdir(exist_ok=True)
    for old in folder.iterdir():
        old.unlink()
    for path, content in image.items():
        (folder / Path(path).name).write_bytes(content)
    return folder / Path(min(image, key=len) if image else "none.db").name


class PowerVFS(apsw.VFS):
    """The ordinary VFS, overheard."""

    def __init__(self, name: str, journal: Journal) -> None:
        self._journal = journal
        self._name = name
        super().__init__(name, "", maxpathname=1024)

    def xOpen(self, name: str | apsw.URIFilename | None, flags: list[int]) -> apsw.VFSFile:
        return _PowerFile(name, flags, self._journal)

    def xDelete(self, filename: str, syncdir: bool) -> None:
        super().xDelete(filename, syncdir)
        self._journal.shrink(filename, 0)
        self._journal.add(Event("delete", filename))


class _PowerFile(apsw.VFSFile):
    def __init__(self, name: str | apsw.URIFilename | None, flags: list[int], journal: Journal) -> None:
        super().__init__("", name, flags)
        self._journal = journal
        self._path = name.filename() if isinstance(name, apsw.URIFilename) else name or ""

    def xWrite(self, data: Any, offset: int) -> None:
        self._journal.grow(self._path, offset + len(data))
        super().xWrite(data, offset)
        self._journal.add(Event("write", self._path, offset, bytes(data)))

    def xTruncate(self, newsize: int) -> None:
        super().xTruncate(newsize)
        self._journal.shrink(self._path, newsize)
        self._journal.add(Event("truncate", self._path, newsize))

    def xSync(self, flags: int) -> None:
        self._journal.check_sync()
        # Nothing here outlives the test: that SQLite asked for it is what counts.
        self._journal.add(Event("sync", self._path))
