"""Runs that lose power at many moments, and what must be there when it comes back."""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterator
from pathlib import Path
from unittest import mock

import apsw

from ackwise.clock import ManualClock
from ackwise.core.commands import Push
from ackwise.core.messages import NewMessage
from ackwise.store.sqlite import SQLiteStore
from tests.faults.actors import body, home
from tests.faults.checking import Book, check
from tests.faults.ledger import Life
from tests.faults.power import Journal, PowerVFS, restore
from tests.faults.rehearsal import START, rehearse

_MODULE = "ackwise.store.sqlite.store"
_names = itertools.count(1)


class Recording:
    """One run on a disk that remembers; its checkpoints are frequent, because the interesting moments are there."""

    def __init__(
        self, folder: Path, seed: int, *, durability: str = "full", steps: int = 250, sync: bool = True
    ) -> None:
        self.journal = Journal()
        self._folder, self._seed, self._durability = folder, seed, durability
        name = f"power-{next(_names)}"
        vfs = PowerVFS(name, self.journal)
        clock = ManualClock(START)
        url = f"sqlite:///{folder}/{name}.db?durability={durability}"
        with mock.patch(f"{_MODULE}.CHECKPOINT_BYTES", 64 << 10), mock.patch(f"{_MODULE}.RESTART_BYTES", 256 << 10):
            store = SQLiteStore(url, clock=clock, vfs=name, seed=seed, instance="one")
            if not sync:
                store._writer.connection.execute("PRAGMA synchronous = 0").fetchall()
            rehearse(store, clock, self.journal, seed, steps)
            store.close()
        vfs.unregister()
        self.ends_at = clock.now()

    def moments(self, count: int) -> list[int]:
        """Any moment after the first answer, more of them beside a checkpoint."""
        dice = random.Random(self._seed)
        events = self.journal.events
        first = next(i for i, e in enumerate(events) if e.kind == "mark")
        checkpoints = [i for i, e in enumerate(events) if i > first and e.path.endswith(".db")]
        chosen = {dice.randrange(first, len(events) + 1) for _ in range(count - count // 3)}
        return sorted(
            chosen | {min(len(events), dice.choice(checkpoints) + dice.randrange(3)) for _ in range(count // 3)}
        )

    def after(self, moments: list[int], *, syncs_count: bool = True) -> Iterator[tuple[int, str, Life]]:
        """For each moment: the URL of the store as it came back, and what had been answered."""
        images = self.journal.images(moments, random.Random(self._seed), syncs_count=syncs_count)
        for moment, (image, marks) in zip(moments, images, strict=True):
            path = restore(image, self._folder / "image")
            life = Life()
            life.hear(marks)
            life.end()
            yield moment, f"sqlite:///{path}?durability=normal", life

    def problems(self, count: int, *, syncs_count: bool = True) -> list[str]:
        """Under full durability: every answer must stand."""
        found = []
        for moment, url, life in self.after(self.moments(count), syncs_count=syncs_count):
            try:
                store = SQLiteStore(url, clock=ManualClock(self.ends_at + 3600_000_000))
            except Exception as problem:
                found.append(f"moment {moment}: cannot be opened: {problem!r}")
                continue
            try:
                found += [f"moment {moment}: {p}" for p in check(store, [life], Book(), random.Random(0))]
            except Exception as problem:
                found.append(f"moment {moment}: {problem!r}")
            finally:
                store.close()
            found += [f"moment {moment}: {p}" for p in _integrity(url)]
        return found

    def damage(self, count: int) -> tuple[list[str], int]:
        """Under normal durability: nothing is corrupt, and what is missing is the end. Also how often something was."""
        found: list[str] = []
        lost = 0
        for moment, url, life in self.after(self.moments(count)):
            store = SQLiteStore(url, clock=ManualClock(self.ends_at + 3600_000_000))
            found += [f"moment {moment}: {p}" for p in store.audit()]
            there = [_is_there(store, queue, txid) for queue, txid in life.pushed]
            if there != sorted(there, reverse=True):
                found.append(f"moment {moment}: a hole in the middle of what was pushed")
            lost += not all(there)
            store.close()
            found += [f"moment {moment}: {p}" for p in _integrity(url)]
        return found, lost


def _is_there(store: SQLiteStore, queue: str, txid: str) -> bool:
    (answer,) = store.transact([Push(queue=queue, messages=[NewMessage(body(txid), home(txid), 0, txid)])])
    return next(iter(answer)).status == "duplicate"  # type: ignore[no-any-return]


def _integrity(url: str) -> list[str]:
    connection = apsw.Connection(url.removeprefix("sqlite:///").partition("?")[0])
    try:
        said = [str(row[0]) for row in connection.execute("PRAGMA integrity_check")]
    except apsw.Error as problem:
        said = [repr(problem)]
    finally:
        connection.close()
    return [] if said == ["ok"] else [f"integrity: {said[:3]}"]
