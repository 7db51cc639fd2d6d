"""Several processes on one file."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from ackwise.core import commands as c
from ackwise.core import queries as q
from ackwise.core.messages import QUEUE_MODE
from ackwise.store.sqlite import SQLiteStore
from tests.patience import PATIENCE
from tests.sqlite.support import open_store, push, rows

ROOT = Path(__file__).resolve().parent.parent.parent
SMALL = 5


class Peer:
    """A second process that has the file open all the time."""

    def __init__(self, path: Path) -> None:
        command = [sys.executable, "-m", "tests.sqlite.peer", str(path), str(SMALL)]
        self._process = subprocess.Popen(
            command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1
        )
        assert self._answer() == "ready"

    def _answer(self) -> Any:
        assert self._process.stdout is not None
        return json.loads(self._process.stdout.readline())

    def ask(self, *request: Any) -> Any:
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(request) + "\n")
        return self._answer()

    def stop(self) -> None:
        self._process.communicate(timeout=PATIENCE)
        assert self._process.returncode == 0


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "shared.db"


@pytest.fixture
def store(path: Path) -> Iterator[SQLiteStore]:
    made = open_store(path, dedupe_generation=SMALL)
    yield made
    assert made.audit() == []
    made.close()


@pytest.fixture
def peer(path: Path, store: SQLiteStore) -> Iterator[Peer]:
    made = Peer(path)
    yield made
    made.stop()


def claim(store: SQLiteStore, most: int, exclusivity: str = "none") -> list[int]:
    (claimed,) = store.transact([c.Claim(queue="q", most=most, exclusivity=exclusivity)])  # type: ignore[arg-type]
    return [seq for grant in claimed.grants for seq in range(grant.lo, grant.hi)]


def test_duplicates_are_found_between_processes(store: SQLiteStore, peer: Peer) -> None:
    assert push(store, "a", "b") == ["queued", "queued"]
    assert peer.ask("push", "b", "c") == ["duplicate", "queued"]
    assert push(store, "c", "a", "d") == ["duplicate", "duplicate", "queued"]
    assert store.ask(q.QueueStats(queue="q")).messages == 4


def test_ids_are_known_after_sealing_by_any_process(store: SQLiteStore, peer: Peer, path: Path) -> None:
    for number in range(60):
        mine, theirs = f"m{number}", f"t{number}"
        assert push(store, mine) == ["queued"]
        assert peer.ask("push", theirs) == ["queued"]
        assert peer.ask("push", mine) == ["duplicate"]
        assert push(store, theirs) == ["duplicate"]
    assert len(rows(path, "SELECT * FROM dedupe_gen")) > 10
    every = [f"{who}{number}" for number in range(60) for who in "mt"]
    assert set(peer.ask("push", *every)) == {"duplicate"}
    assert set(push(store, *every)) == {"duplicate"}


def test_claims_of_both_never_overlap(store: SQLiteStore, peer: Peer) -> None:
    push(store, *(f"t{i}" for i in range(40)))
    mine: list[int] = []
    theirs: list[int] = []
    for _ in range(10):
        mine += claim(store, 2)
        theirs += peer.ask("claim", 2, "none")
    assert sorted(mine + theirs) == list(range(40))
    (stats,) = store.ask(q.ListGroups(queue="q", group=QUEUE_MODE))
    assert (stats.held, stats.leases) == (40, 20)


def test_exclusivity_holds_between_them(store: SQLiteStore, peer: Peer) -> None:
    push(store, "a", "b")
    assert peer.ask("claim", 1, "partition") == [0]
    assert claim(store, 1, "partition") == []
    assert claim(store, 1, "none") == []


def test_queue_deleted_by_one_is_gone_for_the_other(store: SQLiteStore, peer: Peer) -> None:
    push(store, "a")
    assert peer.ask("push", "b") == ["queued"]
    store.transact([c.DeleteQueue(queue="q")])
    assert peer.ask("push", "a", "b") == ["queued", "queued"]
    assert claim(store, 5) == [0, 1]


def test_store_notices_a_write_of_another_process(store: SQLiteStore, peer: Peer) -> None:
    push(store, "a")
    store.changed()
    assert not store.changed()
    peer.ask("push", "b")
    assert store.changed()
    assert not store.changed()


def test_concurrent_processes_push_each_id_once(store: SQLiteStore, peer: Peer) -> None:
    with ThreadPoolExecutor(2) as pool:
        theirs = pool.submit(lambda: [peer.ask("push", f"t{i}", f"x{i}") for i in range(40)])
        mine = pool.submit(lambda: [push(store, f"t{i}", f"y{i}") for i in range(40)])
        answers = list(zip(mine.result(), theirs.result(), strict=True))
    for ours, others in answers:
        assert sorted((ours[0], others[0])) == ["duplicate", "queued"]
        assert (ours[1], others[1]) == ("queued", "queued")
    assert store.ask(q.QueueStats(queue="q")).messages == 120


def test_new_file_is_opened_by_several_stores_at_once(tmp_path: Path) -> None:
    with ThreadPoolExecutor(4) as pool:
        stores = list(pool.map(lambda _: open_store(tmp_path / "new.db"), range(4)))
    assert [push(one, "same") for one in stores] == [["queued"], ["duplicate"], ["duplicate"], ["duplicate"]]
    for one in stores:
        one.close()
