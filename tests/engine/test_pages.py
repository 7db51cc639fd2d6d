"""Lists in pages: each page reads a bounded number of rows, and all pages together are the list."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from ackwise.core import commands as c
from ackwise.core import queries as q
from ackwise.core import validation
from ackwise.core.errors import BadInput
from ackwise.core.messages import NewMessage
from ackwise.core.pipelines import PipelineReport
from ackwise.core.rows import DeadPage
from ackwise.engine import ports as sessions
from ackwise.engine import queue_removal, queue_rounds
from ackwise.store.database_store import DatabaseStore
from ackwise.store.port import Store
from tests.engine.store_harness import StoreHarness

_NONE: sessions.Params = {}


class Counted:
    """A session that counts the statements and the rows of a reader."""

    def __init__(self, session: sessions.Session) -> None:
        self._session = session
        self.statements = self.read = 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._session, name)

    def rows(self, name: str, params: sessions.Params = _NONE) -> list[sessions.Row]:
        found = self._session.rows(name, params)
        self.statements += 1
        self.read += len(found)
        return found

    def row(self, name: str, params: sessions.Params = _NONE) -> sessions.Row | None:
        found = self.rows(name, params)
        return found[0] if found else None


def counting(store: Store, monkeypatch: pytest.MonkeyPatch) -> list[Counted]:
    """The sessions of every read from now on."""
    assert isinstance(store, DatabaseStore)
    seen: list[Counted] = []
    run_read = store._run_read

    def counted(job: Callable[[sessions.Session], Any], *, long: bool = False) -> Any:
        def run(session: sessions.Session) -> Any:
            seen.append(Counted(session))
            return job(seen[-1])

        return run_read(run, long=long)

    monkeypatch.setattr(store, "_run_read", counted)
    return seen


def fill(harness: StoreHarness, queues: int) -> None:
    """Queues with two partitions each. Every second queue has a group, every third belongs to a namespace."""
    names = [f"q{number:04d}" for number in range(queues)]
    messages = [NewMessage(b"1", "a"), NewMessage(b"2", "b")]
    tags = ["n" if number % 3 == 0 else "" for number in range(queues)]
    harness.together(*(c.ConfigureQueue(queue=name, namespace=tag) for name, tag in zip(names, tags, strict=True)))
    harness.together(*(c.Push(queue=name, messages=messages) for name in names))
    harness.together(*(c.ConfigureGroup(queue=name, group="g") for name in names[::2]))


def followed(store: Store, query: q.Query, limit: int) -> list[list[Any]]:
    """Every page of a list."""
    pages = []
    query = msgspec.structs.replace(query, limit=limit)
    while True:
        page: Any = store.ask(query)
        pages.append(list(page.letters if isinstance(page, DeadPage) else page))
        if page.next is None:
            return pages
        query = msgspec.structs.replace(query, after=page.next)


LISTS: dict[str, q.Query] = {
    "queues": q.ListQueues(),
    "queues of a namespace": q.ListQueues(namespace="n"),
    "stats": q.ListStats(),
    "groups": q.ListGroups(),
    "groups of a name": q.ListGroups(group="g"),
    "group names": q.ListGroupNames(),
    "partitions": q.ListPartitions(),
    "partitions of a queue": q.ListPartitions(queue="q0000"),
    "places": q.ListPlaces(),
    "places of a group": q.ListPlaces(group="g"),
    "depths": q.ListDepths(),
    "ledger": q.ReadLedger(),
    "leases": q.ListLeases(),
    "oldest leases": q.ListOldestLeases(),
    "oldest leases of a queue": q.ListOldestLeases(queue="q0002"),
    "consumers": q.ListConsumers(),
    "consumers of a group": q.ListConsumers(group="g"),
    "pipelines": q.ListPipelines(),
    "dead kinds": q.ListDeadKinds(),
    "dead kinds of a queue": q.ListDeadKinds(queue="q0002"),
    "dead letters": q.ListDead(limit=1000),
    "dead letters of a kind": q.ListDead(queue="q0002", kind="", limit=1000),
    "dead letters of a group": q.ListDead(group="g", limit=1000),
    "dead letters of a queue and group": q.ListDead(queue="q0002", group="g", limit=1000),
    "dead letters of a queue": q.ListDead(queue="q0002", limit=1000),
}


def test_list_followed_page_by_page_is_the_whole_list(harness: StoreHarness) -> None:
    fill(harness, 12)
    for queue in ("q0000", "q0002", "q0004"):
        harness.claim(1, queue=queue, group="g")
        harness.reject(*harness.claim(1, queue=queue, group="g").deliveries)
    report = PipelineReport()
    harness.together(*(c.ReportPipeline(id=name, queue="q0000", group="g", report=report) for name in "bacedf"))
    for name, query in LISTS.items():
        check_pages(harness.store, name, query)


def check_pages(store: Store, name: str, query: q.Query) -> None:
    whole: Any = store.ask(query)
    rows = list(whole.letters if isinstance(whole, DeadPage) else whole)
    assert rows, name
    for limit in (1, 5, 1000):
        pages = followed(store, query, limit)
        assert [row for page in pages for row in page] == rows, name
        assert all(len(page) <= limit for page in pages), name


def test_page_of_a_large_catalogue_reads_few_rows(harness: StoreHarness, monkeypatch: pytest.MonkeyPatch) -> None:
    fill(harness, 300)
    seen = counting(harness.store, monkeypatch)
    for name in ("queues", "queues of a namespace", "stats", "groups", "partitions", "places", "depths"):
        middle = {"partitions": ("q0100", "a"), "groups": ("q0100", "g"), "places": ("q0100", "g", "a")}
        query: Any = msgspec.structs.replace(LISTS[name], limit=10)
        assert len(harness.store.ask(query)) == 10
        following = msgspec.structs.replace(query, after=middle.get(name, "q0100"))
        assert len(harness.store.ask(following)) == 10
        assert max(session.read for session in seen) < 100, name
        seen.clear()


@pytest.mark.parametrize("after", [("x\0y", "z"), ("\ud800", "z")])
def test_cursor_that_no_store_can_look_for_is_refused(harness: StoreHarness, after: tuple[str, str]) -> None:
    with pytest.raises(BadInput):
        harness.store.ask(q.ListGroups(after=after))


# bytes


def test_browse_page_ends_at_its_bytes(harness: StoreHarness, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(validation, "ANSWER_BYTES", 10_000)
    for partition in "ab":
        for _ in range(6):
            harness.push("x" * 4000, partition=partition)
    pages = followed(harness.store, q.Browse(queue="q"), 100)
    assert [len(page) for page in pages] == [3, 3, 3, 3]
    places = [(row.message.lane, row.message.seq) for page in pages for row in page]
    assert places == sorted(set(places))
    assert len(places) == 12


def test_browse_message_above_the_bytes_is_a_page(harness: StoreHarness, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(validation, "ANSWER_BYTES", 100)
    harness.push("x" * 4000, "y" * 4000, "z")
    assert [len(page) for page in followed(harness.store, q.Browse(queue="q"), 100)] == [1, 1, 1]


def test_browse_reads_no_more_segments_than_fit(harness: StoreHarness, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(validation, "ANSWER_BYTES", 10_000)
    for _ in range(50):
        harness.push("x" * 4000)
    seen = counting(harness.store, monkeypatch)
    bodies: list[int] = []
    rows = Counted.rows

    def noted(self: Counted, name: str, params: sessions.Params = _NONE) -> list[sessions.Row]:
        found = rows(self, name, params)
        if name == "segment_range":
            bodies.append(sum(len(row[3]) for row in found))
        return found

    monkeypatch.setattr(Counted, "rows", noted)
    assert len(harness.store.ask(q.Browse(queue="q", limit=1000))) == 3
    assert seen
    assert sum(bodies) < 20_000


def test_dead_letter_page_ends_at_its_bytes(harness: StoreHarness, monkeypatch: pytest.MonkeyPatch) -> None:
    harness.push(*("x" * 4000 for _ in range(7)))
    harness.reject(*harness.claim(7).deliveries)
    monkeypatch.setattr(validation, "ANSWER_BYTES", 10_000)
    pages = followed(harness.store, q.ListDead(), 100)
    assert [len(page) for page in pages] == [3, 3, 1]
    assert len({letter.id for page in pages for letter in page}) == 7


def test_page_counts_what_each_row_adds_to_its_bytes(harness: StoreHarness, monkeypatch: pytest.MonkeyPatch) -> None:
    for partition in "ab":
        harness.push(*("x" for _ in range(100)), partition=partition)
    harness.reject(*harness.claim(200).deliveries)
    monkeypatch.setattr(validation, "ANSWER_BYTES", 10_000)
    for query in (q.Browse(queue="q"), q.ListDead()):
        pages = followed(harness.store, query, 1 << 31)
        assert max(len(page) for page in pages) <= 10_000 // validation.ROW_BYTES + 1
        assert sum(len(page) for page in pages) == 200


def test_browse_counts_headers(harness: StoreHarness, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(validation, "ANSWER_BYTES", 10_000)
    noted = [NewMessage(b"1", headers={"note": "x" * 4000}) for _ in range(6)]
    harness.do(c.Push(queue="q", messages=noted))
    assert [len(page) for page in followed(harness.store, q.Browse(queue="q"), 100)] == [3, 3]


def test_page_with_a_huge_limit_has_a_bound(harness: StoreHarness, monkeypatch: pytest.MonkeyPatch) -> None:
    harness.push(*("x" for _ in range(25)))
    harness.reject(*harness.claim(25).deliveries)
    monkeypatch.setattr(validation, "MOST_ROWS", 10)
    seen = counting(harness.store, monkeypatch)
    for query in (q.Browse(queue="q"), q.ListDead()):
        assert [len(page) for page in followed(harness.store, query, 1 << 31)] == [10, 10, 5]
    assert max(session.read for session in seen) < 40


# sweeps


def test_sweep_of_a_large_catalogue_goes_in_rounds(harness: StoreHarness, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(queue_rounds, "QUEUE_PAGE", 10)
    fill(harness, 25)
    for number in range(25):
        harness.configure(f"q{number:04d}", retention_seconds=10.0)
    harness.advance(11)
    removed, rounds = 0, 0
    while True:
        swept = harness.do(c.Sweep(duties=("retain",)))
        removed, rounds = removed + swept.done["retain"], rounds + 1
        assert swept.done["retain"] <= 2 * 10
        if not swept.more:
            break
    assert (removed, rounds) == (50, 3)


def test_sweep_with_a_full_limit_goes_on_at_its_queue(harness: StoreHarness) -> None:
    fill(harness, 3)
    for number in range(3):
        harness.configure(f"q{number:04d}", max_wait_seconds=10.0)
    harness.advance(11)
    done = []
    while (swept := harness.do(c.Sweep(duties=("max_wait",), limit=1))).more:
        done.append(swept.done["max_wait"])
    assert sum(done) + swept.done["max_wait"] == 6
    assert len(harness.dead()) == 6


@pytest.mark.parametrize("explicit", [False, True])
def test_dedupe_windows_of_all_queues_are_known(harness: StoreHarness, explicit: bool) -> None:
    harness.configure("short", dedupe_seconds=60.0)
    if explicit:
        harness.configure("long", dedupe_seconds=3600.0)
    else:
        harness.configure("default")
    harness.push("x", queue="short", txid="t")
    harness.advance(3 * 3600)
    harness.sweep("forget")
    assert harness.push("x", queue="short", txid="t")[0].status == "queued"


# purge


def test_purge_turn_ends_when_its_time_is_over(harness: StoreHarness, monkeypatch: pytest.MonkeyPatch) -> None:
    """A clock that counts the slices: each look at it takes as long as a whole turn may."""
    monkeypatch.setattr(queue_removal, "SLICE", 5)
    monkeypatch.setattr(queue_removal, "SECONDS", 1e-9)
    for number in range(40):
        harness.push(str(number))
    harness.reject(*harness.claim(20).deliveries)
    harness.do(c.DeleteQueue(queue="q"))
    chunks = []
    while (swept := harness.do(c.Sweep(duties=("purge",), limit=1000))).more:
        chunks.append(swept.done["purge"])
        assert len(chunks) < 200
    assert max(chunks) <= 5 + 2
    assert sum(chunks) + swept.done["purge"] >= 40 + 20
    assert harness.push("new")[0].status == "queued"


def test_purge_leaves_no_row_of_a_queue(harness: StoreHarness) -> None:
    harness.configure("other")
    harness.push("keep", queue="other")
    harness.push("later", delay=60)
    for name in "abc":
        harness.push("1", "2", partition=name)
    harness.reject(harness.take())
    harness.claim(2)
    harness.do(c.DeleteQueue(queue="q"))
    while harness.do(c.Sweep(duties=("purge",), limit=3)).more:
        pass
    assert isinstance(harness.store, DatabaseStore)
    counts = harness.store._run_read(
        lambda session: {
            table: session.look(f"SELECT count(*) FROM {table}", {}, lambda row: int(row[0]), None)[0]
            for table in ("queue", "part", "lane", "segment", "grp", "cursor", "span", "dead", "scheduled", "dropped")
        }
    )
    assert counts == dict.fromkeys(counts, 0) | {"queue": 1, "part": 1, "lane": 1, "segment": 1}
