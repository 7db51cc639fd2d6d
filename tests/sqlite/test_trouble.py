"""Files that cannot be used: missing, read-only, locked, full, damaged."""

from __future__ import annotations

import os
import shutil
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import apsw
import pytest

from ackwise.core import commands as c
from ackwise.core import errors
from ackwise.core import queries as q
from ackwise.core.events import ConnectionLost, ConnectionRestored
from ackwise.core.messages import NewMessage
from ackwise.engine.turn import Turn
from ackwise.store.sqlite import SQLiteStore, writer
from ackwise.store.sqlite import store as storing
from ackwise.store.sqlite.connection import open_writer, translate_error
from tests.broker.watched import until
from tests.event_log import EventLog
from tests.patience import PATIENCE
from tests.sqlite.support import open_store, push, rows

NOBODY = 65534


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "queues.db"


@pytest.fixture
def store(path: Path) -> Iterator[SQLiteStore]:
    made = open_store(path, options="busy_timeout=0.2")
    push(made, "first")
    yield made
    made.close()


@pytest.fixture
def shared_folder() -> Iterator[Path]:
    """A folder that other users can look into."""
    folder = Path(tempfile.mkdtemp())
    folder.chmod(0o755)
    yield folder
    shutil.rmtree(folder)


@pytest.fixture
def unprivileged() -> Iterator[None]:
    """Root may write everything, so the test runs as another user for a while."""
    root = os.geteuid() == 0
    if root:
        os.seteuid(NOBODY)
    yield
    if root:
        os.seteuid(0)


def messages(store: SQLiteStore) -> int:
    return store.ask(q.QueueStats(queue="q")).messages


def test_full_durability_is_the_default(path: Path) -> None:
    for options, synchronous in (("", 2), ("durability=full", 2), ("durability=normal", 1)):
        store = open_store(path, options=options)
        assert store._writer.connection.pragma("synchronous") == synchronous
        assert store._writer.connection.pragma("journal_mode") == "wal"
        store.close()


def test_folder_that_does_not_exist(tmp_path: Path) -> None:
    with pytest.raises(errors.StoreUnavailable, match="does not exist; create it"):
        open_store(tmp_path / "no" / "such" / "folder.db")


def test_folder_in_place_of_a_file(tmp_path: Path) -> None:
    with pytest.raises(errors.StoreUnavailable):
        open_store(tmp_path)


def test_read_only_file(shared_folder: Path, request: pytest.FixtureRequest) -> None:
    path = shared_folder / "queues.db"
    open_store(path).close()
    path.chmod(0o444)
    shared_folder.chmod(0o555)
    before = path.read_bytes()
    request.getfixturevalue("unprivileged")
    with pytest.raises(errors.StoreReadOnly, match="permissions"):
        open_store(path)
    assert path.read_bytes() == before


def test_file_that_becomes_read_only(store: SQLiteStore) -> None:
    store._writer.connection.execute("PRAGMA query_only = 1").fetchall()
    with pytest.raises(errors.StoreReadOnly):
        push(store, "second")
    store._writer.connection.execute("PRAGMA query_only = 0").fetchall()
    assert messages(store) == 1
    assert push(store, "second") == ["queued"]


def test_locked_file_says_so_in_time_and_goes_on_later(store: SQLiteStore, path: Path) -> None:
    other = apsw.Connection(str(path))
    other.execute("BEGIN IMMEDIATE").fetchall()
    with pytest.raises(errors.StoreLocked, match="busy_timeout"):
        push(store, "second")
    other.execute("ROLLBACK").fetchall()
    other.close()
    assert messages(store) == 1
    assert push(store, "second") == ["queued"]


def test_many_callers_wait_for_one_lock_together(
    store: SQLiteStore, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = apsw.Connection(str(path))
    other.execute("BEGIN IMMEDIATE").fetchall()
    begin = store._writer._begin
    begun: list[int] = []

    def counted() -> Turn:
        begun.append(1)
        return begin()

    monkeypatch.setattr(store._writer, "_begin", counted)
    with pytest.raises(errors.StoreLocked):
        store.transact([c.Push(queue="q", messages=[NewMessage(b"1")]) for _ in range(50)])
    assert len(begun) == 1
    other.execute("ROLLBACK").fetchall()
    other.close()
    assert messages(store) == 1


def test_full_disk_changes_nothing_and_passes(store: SQLiteStore, path: Path) -> None:
    pages = store._writer.connection.pragma("page_count")
    store._writer.connection.execute(f"PRAGMA max_page_count = {pages + 2}").fetchall()
    with pytest.raises(errors.StoreFull, match="full"):
        push(store, "big", payload=b"x" * 1_000_000)
    assert messages(store) == 1
    assert store.audit() == []
    store._writer.connection.execute("PRAGMA max_page_count = 1000000").fetchall()
    assert push(store, "big", payload=b"x" * 1_000_000) == ["queued"]
    assert push(store, "big") == ["duplicate"]


def test_full_disk_fails_only_what_does_not_fit(store: SQLiteStore) -> None:
    pages = store._writer.connection.pragma("page_count")
    store._writer.connection.execute(f"PRAGMA max_page_count = {pages + 10}").fetchall()
    small, big, claimed = store.transact(
        [
            c.Push(queue="q", messages=[NewMessage(b"small")]),
            c.Push(queue="q", messages=[NewMessage(b"x" * 1_000_000)]),
            c.Claim(queue="q", most=5),
        ]
    )
    assert [receipt.status for receipt in small] == ["queued"]
    assert isinstance(big, errors.StoreFull)
    assert claimed.count == 2
    assert store.audit() == []


def test_garbage_is_no_database(path: Path) -> None:
    path.write_bytes(b"this is not a database, " * 1000)
    before = path.read_bytes()
    with pytest.raises(errors.StoreCorrupt, match="restore it from a backup"):
        open_store(path)
    assert path.read_bytes() == before


def test_damaged_page_is_noticed(path: Path) -> None:
    store = open_store(path)
    push(store, *(f"t{i}" for i in range(200)), payload=b"x" * 2000)
    store.close()
    content = bytearray(path.read_bytes())
    content[4096:] = b"\xff" * (len(content) - 4096)
    path.write_bytes(content)
    with pytest.raises(errors.StoreCorrupt):
        push(open_store(path), "new")


@pytest.mark.parametrize(
    ("theirs", "ours"),
    [
        (apsw.FullError, errors.StoreFull),
        (apsw.ReadOnlyError, errors.StoreReadOnly),
        (apsw.PermissionsError, errors.StoreReadOnly),
        (apsw.BusyError, errors.StoreLocked),
        (apsw.LockedError, errors.StoreLocked),
        (apsw.CorruptError, errors.StoreCorrupt),
        (apsw.NotADBError, errors.StoreCorrupt),
        (apsw.CantOpenError, errors.StoreUnavailable),
        (apsw.IOError, errors.StoreUnavailable),
        (apsw.SQLError, errors.StoreError),
    ],
)
def test_every_trouble_has_our_words(theirs: type[apsw.Error], ours: type[errors.StoreError]) -> None:
    problem = translate_error(theirs("disk says no"), "/data/q.db")
    assert type(problem) is ours
    assert "/data/q.db" in problem.message
    assert "disk says no" in problem.message


def test_store_that_could_not_be_reopened_tries_again(store: SQLiteStore, monkeypatch: pytest.MonkeyPatch) -> None:
    def down(*_: object) -> apsw.Connection:
        raise errors.StoreUnavailable("the disk is away")

    with monkeypatch.context() as patch:
        patch.setattr(writer, "open_writer", down)
        store._writer._reopen(apsw.IOError("away"))
        with pytest.raises(errors.StoreUnavailable):
            push(store, "second")
    assert push(store, "second") == ["queued"]
    assert push(store, "first") == ["duplicate"]


def test_connection_that_is_opened_again_is_heard(store: SQLiteStore, monkeypatch: pytest.MonkeyPatch) -> None:
    prepared = store.prepare([c.Push(queue="q", messages=[NewMessage(b"x")])])
    opened: list[None] = []

    def fail_once(*arguments: Any) -> apsw.Connection:
        opened.append(None)
        if len(opened) == 1:
            raise errors.StoreUnavailable("gone")
        return open_writer(*arguments)

    monkeypatch.setattr(writer, "open_writer", fail_once)
    store._writer.connection.close(True)
    with EventLog(store.events) as log:
        with pytest.raises(errors.OutcomeUnknown):
            prepared.commit()
        (lost,) = log.of(ConnectionLost)
        assert (lost.where, log.of(ConnectionRestored)) == (store.name, [])
        push(store, "later")
        (restored,) = log.of(ConnectionRestored)
        assert restored.where == store.name


def test_closed_store_says_so(path: Path) -> None:
    store = open_store(path)
    store.close()
    store.close()
    with pytest.raises(errors.StoreUnavailable, match="closed"):
        push(store, "a")


def test_abandoned_turn_changes_nothing(store: SQLiteStore, path: Path) -> None:
    prepared = store.prepare([c.Push(queue="q", messages=[NewMessage(b"1", transaction_id="never")])])
    results: list[Any] = prepared.results
    assert [receipt.status for receipt in results[0]] == ["queued"]
    prepared.abandon()
    assert messages(store) == 1
    assert push(store, "never") == ["queued"]


def test_another_process_does_not_see_what_is_not_committed(store: SQLiteStore, path: Path) -> None:
    prepared = store.prepare([c.Push(queue="q", messages=[NewMessage(b"1")])])
    before = rows(path, "SELECT sum(head) FROM lane")
    prepared.commit()
    assert (before, rows(path, "SELECT sum(head) FROM lane")) == ([(1,)], [(2,)])


def test_log_is_folded_back_into_the_file(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = open_store(path)
    push(store, *(f"t{i}" for i in range(50)), payload=b"x" * 10_000)
    monkeypatch.setattr(storing, "CHECKPOINT_BYTES", 1000)
    monkeypatch.setattr(storing, "RESTART_BYTES", 2000)
    assert os.path.getsize(f"{path}-wal") > 100_000
    store.maintain()
    assert os.path.getsize(f"{path}-wal") == 0
    assert messages(store) == 50
    store.close()


def test_checkpoint_beside_a_reader_does_not_wait(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Turns need the writer. A checkpoint that waits for a reader would hold the writer meanwhile."""
    store = open_store(path)
    push(store, *(f"t{i}" for i in range(50)), payload=b"x" * 10_000)
    monkeypatch.setattr(storing, "CHECKPOINT_BYTES", 1000)
    monkeypatch.setattr(storing, "RESTART_BYTES", 2000)
    sleeps: list[float] = []
    monkeypatch.setattr("ackwise.store.sqlite.connection.time.sleep", sleeps.append)
    with store._long_readers.use() as session:
        session.rows("queues_page", {"after": "", "limit": 1})
        push(store, "later")
        store.maintain()
        assert os.path.getsize(f"{path}-wal") > 0
    assert sleeps == []
    store.maintain()
    assert os.path.getsize(f"{path}-wal") == 0
    store.close()


def test_overlapping_readers_cannot_keep_the_log(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Above the bound new reads wait until the running ones have ended and the log is empty."""
    store = open_store(path)
    push(store, *(f"t{i}" for i in range(50)), payload=b"x" * 10_000)
    for bound in ("CHECKPOINT_BYTES", "RESTART_BYTES", "PAUSE_BYTES"):
        monkeypatch.setattr(storing, bound, 1000)
    began, sizes = threading.Event(), []

    def read() -> None:
        with store._long_readers.use() as session:
            session.rows("queues_page", {"after": "", "limit": 1})
            sizes.append(os.path.getsize(f"{path}-wal"))

    def truncate() -> None:
        began.set()
        store.maintain()

    with store._long_readers.use() as session:
        session.rows("queues_page", {"after": "", "limit": 1})
        push(store, "later")
        truncation = threading.Thread(target=truncate)
        truncation.start()
        assert began.wait(PATIENCE)
        # The pause has taken the free connection, so a new read waits.
        until(lambda: not store._long_readers._room._value)
        readers = [threading.Thread(target=read) for _ in range(4)]
        for reader in readers:
            reader.start()
        assert sizes == []
    for thread in (truncation, *readers):
        thread.join(PATIENCE)
    assert sizes == [0] * 4
    store.close()
