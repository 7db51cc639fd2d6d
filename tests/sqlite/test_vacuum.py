"""Free pages: new files give them back in slices, older files are converted by `ackwise vacuum`."""

from __future__ import annotations

from pathlib import Path

import apsw
import pytest

from ackwise.core import commands as c
from ackwise.core import queries as q
from ackwise.core.errors import StoreLocked
from ackwise.store.sqlite import connection as opening
from ackwise.store.sqlite import vacuum
from ackwise.wire.store_url import parse
from tests.sqlite.support import open_store, push, rows


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "queues.db"


def older(path: Path) -> None:
    """A file of a release that knew no free pages."""
    rows(path, "PRAGMA auto_vacuum = 0")
    rows(path, "PRAGMA journal_mode = wal")
    rows(path, "CREATE TABLE t (x)")
    rows(path, "DROP TABLE t")


def fill(path: Path, count: int = 40) -> None:
    store = open_store(path)
    for number in range(count):
        push(store, str(number), payload=b"x" * 100_000)
    store.transact([c.DeleteQueue(queue="q")])
    while store.transact([c.Sweep(duties=("purge",))])[0].more:
        pass
    push(store, "kept", queue="other")
    store.close()


def free(path: Path) -> tuple[int, int]:
    return int(rows(path, "PRAGMA freelist_count")[0][0]), int(rows(path, "PRAGMA page_count")[0][0])


def test_new_file_is_made_for_incremental_vacuum(path: Path) -> None:
    open_store(path).close()
    assert rows(path, "PRAGMA auto_vacuum") == [(opening.INCREMENTAL,)]


def test_shrink_gives_free_pages_back_in_slices(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(vacuum, "KEPT", 50)
    fill(path)
    before, pages = free(path)
    assert before > 900
    store = open_store(path)
    released = []
    while (swept := store.transact([c.Sweep(duties=("shrink",))])[0]).more:
        released.append(swept.done["shrink"])
        assert len(released) < 100
    store.close()
    assert 0 < max(released) <= vacuum.SLICE
    kept, left = free(path)
    assert kept <= max(50, left // 5)
    assert left + sum(released) <= pages + 5
    new = open_store(path)
    assert new.audit() == []
    assert push(new, "kept", queue="other") == ["duplicate"]
    new.close()


def test_shrink_leaves_a_reserve_of_free_pages(path: Path) -> None:
    fill(path, 5)
    store = open_store(path)
    assert store.transact([c.Sweep(duties=("shrink",))])[0].done == {"shrink": 0}
    store.close()


def test_older_file_is_named_and_converted(path: Path) -> None:
    older(path)
    fill(path)
    store = open_store(path)
    assert store.transact([c.Sweep(duties=("shrink",))])[0].done == {"shrink": 0}
    assert ["older Ackwise" in note for note in store.notes()] == [True]
    store.close()
    done = vacuum.vacuum(parse(f"sqlite:///{path}"))
    assert done.converted
    assert done.after < done.before // 4
    assert rows(path, "PRAGMA auto_vacuum") == [(opening.INCREMENTAL,)]
    store = open_store(path)
    assert store.notes() == []
    assert store.audit() == []
    assert push(store, "kept", "new", queue="other") == ["duplicate", "queued"]
    assert [info.name for info in store.ask(q.ListQueues())] == ["other"]
    store.close()
    assert rows(path, "PRAGMA journal_mode") == [("wal",)]


def test_many_free_pages_are_named(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(vacuum, "KEPT", 50)
    fill(path)
    store = open_store(path)
    (note,) = store.notes()
    assert "pages of the file are free" in note
    assert f"ackwise vacuum --url sqlite:///{path}" in note
    store.close()


def test_vacuum_of_a_file_in_use_is_refused(path: Path) -> None:
    fill(path, 2)
    other = apsw.Connection(str(path))
    other.execute("SELECT count(*) FROM queue").fetchall()
    with pytest.raises(StoreLocked, match="open in another process"):
        vacuum.vacuum(parse(f"sqlite:///{path}"))
    other.close()
    assert not vacuum.vacuum(parse(f"sqlite:///{path}")).converted
