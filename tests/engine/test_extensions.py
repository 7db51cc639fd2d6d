"""Extensions: a store has the tables and commands of an extension after the extension was added, and not before."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from threading import Thread

import apsw
import psycopg
import pytest

from ackwise.clock import ManualClock
from ackwise.connect import open_store
from ackwise.core.commands import Beat, Claim, Command, Push, Sweep
from ackwise.core.errors import BadInput, SchemaTooNew
from ackwise.core.events import EventStream, StoreMigrated
from ackwise.core.messages import NewMessage
from ackwise.engine.extensions import Extensions
from ackwise.graph.commands import EndGraphSession, FetchGraph, OpenGraphSession, ReleaseGraph, RunGraph
from ackwise.graph.engine.extension import GRAPH
from ackwise.store.database_store import DatabaseStore
from ackwise.wire.store_url import parse
from tests.engine.sample_extension import AddWord, ListWords, sample
from tests.engine.store_harness import StoreHarness
from tests.event_log import EventLog
from tests.patience import PATIENCE
from tests.pg import FACTORIES

PUSH = Push(queue="q", messages=[NewMessage(b"1")])
TABLES = {
    "sqlite": "SELECT name FROM sqlite_schema WHERE type IN ('table', 'view') AND name LIKE 'mew%'",
    "postgresql": "SELECT table_name FROM information_schema.tables"
    " WHERE table_schema = 'ackwise' AND table_name LIKE 'mew%'",
}


@pytest.fixture(params=["sqlite", *FACTORIES], ids=lambda name: name.replace("pg_url_factory", "postgres"))
def url(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    if request.param == "sqlite":
        yield f"sqlite:///{tmp_path}/queues.db?durability=normal"
    else:
        yield request.getfixturevalue(request.param)()


def rows(url: str, statement: str) -> list[tuple[object, ...]]:
    """Rows of a statement on the database itself."""
    target = parse(url)
    if target.scheme == "sqlite":
        with closing(apsw.Connection(target.target)) as database:
            return database.execute(statement).fetchall()
    with psycopg.connect(target.target, options="-c search_path=ackwise", autocommit=True) as connection:
        return connection.execute(statement.encode()).fetchall()


def graph_tables(url: str) -> set[object]:
    return {name for (name,) in rows(url, TABLES[parse(url).scheme])}


def test_queue_only_store_has_no_graph_tables(url: str) -> None:
    with closing(open_store(url)) as store:
        store.transact([PUSH, Claim(queue="q"), Sweep(), Beat(instance="other")])
        assert not store.has_tables("mew")
        assert store.audit() == []
    assert graph_tables(url) == set()


def test_later_open_with_the_graph_adds_its_tables(url: str) -> None:
    with closing(open_store(url)) as store:
        store.transact([PUSH])
    with closing(open_store(url, graph=True)) as store:
        assert store.has_tables("mew")
        opened, claimed = store.transact([OpenGraphSession(session="x"), Claim(queue="q")])
        assert opened.no > 0
        assert claimed.count == 1
        assert store.audit() == []
    assert {"mew_state", "mew_entity", "mew_event_end"} <= graph_tables(url)


def test_store_with_graph_tables_always_loads_the_graph(url: str) -> None:
    open_store(url, graph=True).close()
    with closing(open_store(url)) as store:
        assert "mew" in store.extensions
        (swept,) = store.transact([Sweep(duties=("graph",))])
        assert swept.done == {"graph": 0}


@pytest.mark.parametrize(
    "command",
    [
        RunGraph(session="x", steps=()),
        OpenGraphSession(session="x"),
        EndGraphSession(session="x"),
        ReleaseGraph(session="x", deliveries=()),
        FetchGraph(session="x"),
    ],
    ids=lambda command: type(command).__name__,
)
def test_command_of_a_missing_extension_is_refused(store: DatabaseStore, command: Command) -> None:
    """The other commands of the turn run."""
    pushed, refusal, claimed = store.transact([PUSH, command, Claim(queue="q")])
    assert pushed[0].status == "queued"
    assert isinstance(refusal, BadInput)
    assert "needs an extension that this store does not have" in refusal.message
    assert claimed.count == 1


def test_duty_of_a_missing_extension_is_refused(harness: StoreHarness) -> None:
    with pytest.raises(BadInput, match="unknown duty 'graph'; known duties: expire,"):
        harness.do(Sweep(duties=("graph",)))


def test_commands_of_an_extension_run_in_their_phases(store: DatabaseStore) -> None:
    store.extensions.add(sample(1))
    listed, first, refusal, second = store.transact(
        [ListWords(), AddWord(word="b"), AddWord(word="refused"), AddWord(word="a")]
    )
    assert (listed, first, second) == (["a", "b"], 1, 2)
    assert isinstance(refusal, BadInput)
    assert store.transact([AddWord(word="c")]) == [1]
    (swept,) = store.transact([Sweep(duties=("clear_words", "expire"))])
    assert swept.done == {"clear_words": 3, "expire": 0}


@pytest.mark.parametrize(
    ("command", "locks"),
    [
        (AddWord(word="a"), ["sample_lock"]),
        (ListWords(), ["sample_lock"]),
        (Sweep(duties=("expire", "clear_words")), ["sample_lock"]),
        (Sweep(), []),
        (PUSH, []),
        (OpenGraphSession(session="x"), ["mew_lock"]),
    ],
)
def test_command_needs_the_lock_of_its_extension(command: Command, locks: list[str]) -> None:
    extensions = Extensions(lambda extension: None)
    extensions.add(sample(1))
    extensions.add(GRAPH)
    assert extensions.locks([Beat(instance="x"), command]) == locks


def test_audit_checks_the_invariants_of_an_extension(store: DatabaseStore) -> None:
    store.extensions.add(sample(1))
    store.transact([AddWord(word="")])
    assert store.audit() == ["a word is empty"]
    store.transact([Sweep(duties=("clear_words",))])


def test_dead_broker_stays_while_an_extension_needs_it(url: str, clock: ManualClock) -> None:
    with closing(open_store(url, clock=clock)) as store:
        store.extensions.add(sample(1))
        store.transact([Beat(instance="needed"), Beat(instance="idle")])
        clock.advance(40)
        store.transact([Beat(instance="other")])
    assert rows(url, "SELECT id FROM instance ORDER BY id") == [("needed",), ("other",)]


def test_tables_of_an_older_version_are_migrated(url: str) -> None:
    with closing(open_store(url)) as store:
        store.extensions.add(sample(1))
        store.transact([AddWord(word="old")])
    with closing(open_store(url)) as store:
        assert store.has_tables("sample")
        store.extensions.add(sample(2))
        assert store.transact([AddWord(word="new"), ListWords()])[1] == ["new", "old"]
    assert rows(url, "SELECT word, language FROM sample_word ORDER BY word") == [("new", "en"), ("old", "en")]
    assert rows(url, "SELECT value FROM meta WHERE key = 'schema:sample'") == [("2",)]


def test_new_and_migrated_tables_of_an_extension_are_heard(url: str) -> None:
    migrated = []
    for version in (1, 2, 2):
        stream = EventStream()
        with EventLog(stream) as log, closing(open_store(url, events=stream)) as store:
            store.extensions.add(sample(version))
            migrated.append([(event.before, event.after) for event in log.of(StoreMigrated) if event.extension])
            assert {event.store for event in log.of(StoreMigrated)} <= {store.name}
    assert migrated == [[(0, 1)], [(1, 2)], []]


def test_newer_tables_of_an_extension_are_refused(url: str) -> None:
    with closing(open_store(url)) as store:
        store.extensions.add(sample(2))
    with (
        closing(open_store(url)) as store,
        pytest.raises(SchemaTooNew, match=r"has schema 2 of sample, this Ackwise knows 1; upgrade"),
    ):
        store.extensions.add(sample(1))


def test_failed_migration_of_an_extension_changes_nothing(url: str) -> None:
    """The release has no step 3."""
    with closing(open_store(url)) as store:
        store.extensions.add(sample(1))
        store.transact([AddWord(word="old")])
    with closing(open_store(url)) as store:
        with pytest.raises(FileNotFoundError, match="_0003"):
            store.extensions.add(sample(3))
        assert "sample" not in store.extensions
    assert rows(url, "SELECT * FROM sample_word") == [("old",)]
    assert rows(url, "SELECT value FROM meta WHERE key = 'schema:sample'") == [("1",)]


def test_extension_added_by_several_stores_at_once_is_one(url: str) -> None:
    stores = [open_store(url) for _ in range(4)]
    threads = [Thread(target=store.extensions.add, args=(GRAPH,)) for store in stores]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(PATIENCE)
    for store in stores:
        store.extensions.add(GRAPH)
        (swept,) = store.transact([Sweep(duties=("graph",))])
        assert swept.done == {"graph": 0}
        store.close()
    assert rows(url, "SELECT count(*) FROM mew_state") == [(1,)]
