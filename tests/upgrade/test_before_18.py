"""A store that the version before the new package layout wrote opens, and everything in it works."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import apsw
import msgspec
import psycopg
import pytest

from ackwise import Backoff, QueuePolicy, connect
from ackwise.client import Connection
from ackwise.clock import ManualClock
from ackwise.connect import open_store
from ackwise.core.commands import Sweep
from ackwise.core.errors import LeaseLost
from ackwise.core.settlement import Verdict
from ackwise.mew import MewError, Session
from tests.data.before_18.contents import ENDED, SESSION, Expected, expected, restore, unpack
from tests.pg import FACTORIES

TEN_MINUTES = 600.0


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock(ENDED + 1_000_000)


@pytest.fixture(params=["sqlite", *FACTORIES])
def kind(request: pytest.FixtureRequest) -> str:
    found: str = request.param
    return found


@pytest.fixture
def url(kind: str, request: pytest.FixtureRequest, tmp_path: Path, clock: ManualClock) -> Iterator[str]:
    """The old store. Nothing in it may be wrong, before and after the test."""
    if kind == "sqlite":
        at = f"sqlite:///{unpack('store', tmp_path)}/store.db?durability=normal"
    else:
        at = request.getfixturevalue(kind)()
        restore(at)
    assert problems(at, clock) == []
    yield at
    assert problems(at, clock) == []


def problems(url: str, clock: ManualClock) -> list[str]:
    with closing(open_store(url, clock=clock)) as store:
        return store.audit()


@pytest.fixture
def names(kind: str) -> Expected:
    return expected("sqlite" if kind == "sqlite" else "postgres")


@pytest.fixture
def queue(url: str, clock: ManualClock) -> Iterator[Connection]:
    with connect(url, clock=clock) as connection:
        yield connection


def test_old_sqlite_store_has_rows_in_every_table(tmp_path: Path) -> None:
    with closing(apsw.Connection(str(unpack("store", tmp_path) / "store.db"))) as database:
        tables = [str(row[0]) for row in database.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
        empty = [table for table in tables if not database.execute(f"SELECT count(*) FROM {table}").get]
    assert len(tables) > 25
    assert empty == []


def test_old_queues_keep_their_policies(queue: Connection) -> None:
    infos = {info.name: info for info in queue.queues()}
    policies = {name: msgspec.convert(info.policy, QueuePolicy) for name, info in infos.items()}
    assert policies == {
        "orders": QueuePolicy(lease_seconds=60, retry_limit=2, backoff=Backoff(kind="exponential", seconds=30)),
        "letters": QueuePolicy(exclusivity="partition", on_failure="rewind", notes=(("colour", "blue"),)),
        "parcels": QueuePolicy(max_wait_seconds=60, window_seconds=5, delay_seconds=1),
        "adverts": QueuePolicy(dead_letters=False),
        "done": QueuePolicy(completed_retention_seconds=1),
    }
    assert (infos["letters"].namespace, infos["letters"].task) == ("post", "print")
    assert [name for name, info in infos.items() if info.paused] == ["parcels"]


def test_old_groups_keep_their_counts(queue: Connection) -> None:
    stats = {group.group: group for group in queue.groups("orders")}
    assert set(stats) == {"audit", "newcomers", "billing", "expiring"}
    billing = stats["billing"]
    assert (billing.acked, billing.dead, billing.held, billing.leases) == (2, 2, 2, 1)
    assert (stats["audit"].held, stats["audit"].leases, stats["newcomers"].lag) == (3, 1, 13)
    assert {row.outcome for row in queue.ledger("orders", "billing")} >= {"acked", "retried", "dead"}


def test_old_delivery_is_settled_once(queue: Connection, names: Expected) -> None:
    for verdict in (Verdict.ACKED, Verdict.ALREADY):
        (settled,) = queue.settle([(names.held, "ack")])
        assert settled.verdict is verdict


def test_old_claim_key_takes_the_claim_over(queue: Connection, names: Expected) -> None:
    batch = queue.claim("orders", group="audit", max=100, key="nightly/1", owner="auditor")
    assert len(batch) == 3
    assert [delivery.headers["number"] for delivery in batch] == [str(delivery.json()["id"]) for delivery in batch]
    assert names.keyed not in [lease.lease_id for lease in queue.leases("orders", "audit")]
    with pytest.raises(LeaseLost):
        queue.extend(names.keyed, 60)
    assert batch.ack() is Verdict.ACKED
    assert len(queue.claim("orders", group="audit", max=100)) == 10


def test_old_messages_keep_every_field(queue: Connection) -> None:
    messages = {message.transaction_id: message for message in queue.browse("orders")}
    third = messages["order-3"]
    assert (third.partition, third.priority, third.json(), third.headers) == ("eu", 0, {"id": 3}, {"number": "3"})
    (raw,) = (message for message in messages.values() if message.partition == "raw")
    assert (raw.payload, raw.content_type) == (b"\x00\xff", "image/png")
    assert len(messages) == 13


def test_old_retries_and_schedules_come_due(queue: Connection, clock: ManualClock, names: Expected) -> None:
    queue.settle([(names.held, "release")])
    due = queue.claim("orders", group="billing", max=100)
    assert len(due) == 8
    due.ack()
    clock.advance(TEN_MINUTES)
    queue.transport.send(Sweep())
    late = {delivery.transaction_id: delivery for delivery in queue.claim("orders", group="billing", max=100)}
    (retried,) = (delivery for delivery in late.values() if delivery.failures)
    assert (retried.failures, retried.attempt) == (1, 2)
    assert late["later"].json() == {"id": 100}


def test_old_dead_letters_are_redriven(queue: Connection) -> None:
    letters = queue.dead_letters()
    assert sorted(letter.reason for letter in letters) == ["max_wait", "rejected", "retry_limit"]
    mine = [letter for letter in letters if letter.queue == "orders"]
    assert {letter.error for letter in mine} == {"no such customer", "no stock"}
    assert queue.redrive(mine).count == 2
    again = {delivery.transaction_id for delivery in queue.claim("orders", group="billing", max=100)}
    assert {letter.transaction_id for letter in mine} <= again


@pytest.mark.parametrize(("name", "partition", "old"), [("orders", "eu", "order-3"), ("done", "Default", "done-1")])
def test_old_transaction_id_is_a_duplicate(queue: Connection, name: str, partition: str, old: str) -> None:
    """The message of `done-1` is pruned."""
    assert queue.push(name, {"id": 3}, transaction_id=old, partition=partition).status == "duplicate"
    assert queue.push(name, {"id": 3}, transaction_id="new", partition=partition).status == "queued"


def test_old_rewinding_queue_returns_what_follows(queue: Connection) -> None:
    """The old lease holds two pages. A failure returns everything after the last ack."""
    (lease,) = queue.leases("letters", "readers")
    assert len(queue.claim("letters", group="readers", max=4)) == 0
    queue.release(lease.lease_id)
    batch = queue.claim("letters", group="readers", max=4)
    assert [delivery.json()["page"] for delivery in batch] == [0, 1, 2, 3]
    batch[0].ack()
    batch[1].retry(error="smudged")
    assert [delivery.json()["page"] for delivery in queue.claim("letters", group="readers", max=4)] == [1, 2, 3]


def test_old_graph_tables_become_version_one_of_the_graph(url: str, clock: ManualClock) -> None:
    """Schema 7 gave the graph a schema version of its own. The old store has schema 6."""
    with closing(open_store(url, clock=clock)) as store:
        assert store.has_tables("mew")
        assert "mew" in store.extensions


def test_old_store_gets_the_sql_views(url: str, kind: str, clock: ManualClock, queue: Connection) -> None:
    with closing(open_store(url, clock=clock)) as store:
        assert [note for note in store.notes() if "view" in note] == []
    statement = "SELECT consumer_group, acked, dead, held FROM ackwise_groups WHERE queue = 'orders'"
    if kind == "sqlite":
        with closing(apsw.Connection(url.removeprefix("sqlite:///").partition("?")[0])) as database:
            rows = {row[0]: row[1:] for row in database.execute(statement)}
            letters = database.execute("SELECT count(*) FROM dead_letter_queue").get
    else:
        with psycopg.connect(url) as connection:
            rows = {row[0]: row[1:] for row in connection.execute(statement)}
            letters = len(connection.execute("SELECT * FROM dead_letter_queue").fetchall())
            assert len(connection.execute("SELECT * FROM ackwise_messages WHERE queue = 'orders'").fetchall()) == 13
    assert rows["billing"] == (2, 2, 2)
    assert letters == 3


def test_old_group_member_takes_turns_with_a_new_one(url: str, clock: ManualClock) -> None:
    """Version 2 of the graph's tables adds the turns of members."""
    with Session(url, session=SESSION, clock=clock) as old, Session(url, clock=clock) as new:
        new.run("""
            new = WATCH j: Job WHERE j.status = "pending" [mode: consume, group: "workers", initial: none]
              RETURN j.payload
        """)
        while any(list(map(ask, (old, new)))):
            pass
        shares = []
        for payload in "wxyz":
            new.run("SPAWN j: Job { payload = $payload }", payload=payload)
            shares.append((ask(old), ask(new)))
        assert sorted(shares) == [(0, 1), (0, 1), (1, 0), (1, 0)]


def ask(session: Session) -> int:
    return sum(event.delivery_id is not None for event in session.events())


def test_old_graph_answers_and_changes(url: str, clock: ManualClock) -> None:
    with Session(url, clock=clock) as graph:
        jobs = graph.query("MATCH j: Job RETURN j.payload, j.size, j.status")
        assert {job["j.payload"]: (job["j.size"], job["j.status"]) for job in jobs} == {
            "b": (2, "pending"),
            "c": (3, "pending"),
            "d": (1, "pending"),
            "e": (1, "running"),
        }
        (held,) = graph.query("MATCH _dead_letter_item(t, j) RETURN t.name, j.payload")
        assert held == {"t.name": "jobs to look at", "j.payload": "b"}
        (letter,) = graph.query("MATCH l: _DeadLetter RETURN l.failure_reason, l.original_match")
        assert letter["l.failure_reason"] == "no_retry"
        with pytest.raises(MewError, match="status"):
            graph.run('SPAWN x: Job { payload = "x", status = "lost" }')


def test_old_watch_goes_on_for_its_session(url: str, clock: ManualClock, names: Expected) -> None:
    with Session(url, session=SESSION, clock=clock) as graph:
        graph.run("MATCH t: Tray RETURN t.name")
        seen = graph.events(watch="#seen")
        assert [(event.type, event.match) for event in seen if event.type == "added"] == [
            ("added", {"j.payload": "b"}),
            ("added", {"j.payload": "c"}),
        ]
        assert graph.ack(names.delivered).done.outcome == "acked"
        (again,) = graph.events(watch="#jobs")
        assert (again.match, again.attempt) == ({"j.payload": "d", "j.size": 1}, 2)
        graph.ack(again)
        graph.run('SPAWN f: Job { payload = "f", size = 4 }')
        (fresh,) = graph.events(watch="#jobs")
        assert (fresh.match, fresh.attempt) == ({"j.payload": "f", "j.size": 4}, 1)
        assert [event.match for event in graph.events(watch="#seen")][-1] == {"j.payload": "f"}
        # The dead letter holds its job until the edge is gone.
        graph.run("UNLINK _dead_letter_item(_, _)")
        (freed,) = graph.events(watch="#jobs")
        assert freed.match == {"j.payload": "b", "j.size": 2}
        for event in (fresh, freed):
            graph.ack(event)
        assert graph.query("MATCH j: Job RETURN j.payload") == [{"j.payload": "e"}]
