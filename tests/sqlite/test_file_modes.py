"""File modes: other users of the machine cannot read a store."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from ackwise.spark.java import make_private
from tests.sqlite.support import open_store, push


@pytest.fixture(autouse=True)
def usual_umask() -> Iterator[None]:
    before = os.umask(0o022)
    yield
    os.umask(before)


def mode(path: Path) -> int:
    return path.stat().st_mode & 0o777


def test_new_store_files_are_for_their_owner_alone(tmp_path: Path) -> None:
    store = open_store(tmp_path / "q.db")
    push(store, "a")
    files = sorted(tmp_path.iterdir())
    assert [file.name for file in files] == ["q.db", "q.db-shm", "q.db-wal"]
    assert [mode(file) for file in files] == [0o600] * 3
    store.close()


def test_existing_store_keeps_its_mode(tmp_path: Path) -> None:
    path = tmp_path / "q.db"
    open_store(path).close()
    path.chmod(0o640)
    store = open_store(path)
    push(store, "a")
    assert {mode(file) for file in tmp_path.iterdir()} == {0o640}
    store.close()


def test_new_folders_are_for_their_owner_alone(tmp_path: Path) -> None:
    (tmp_path / "old").mkdir(mode=0o755)
    make_private(tmp_path / "old" / "new" / "newer")
    assert [mode(tmp_path / name) for name in ("old", "old/new", "old/new/newer")] == [0o755, 0o700, 0o700]
