"""Lists in pages: each page reads a bounded number of rows, and all pages together are the list."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from ackwise.broker.handing import answer
from ackwise.core import commands as c
from ackwise.core import limits
from ackwise.core import queries as q
from ackwise.core.errors import BadInput
from ackwise.core.messages import NewMessage
from ackwise.store import session as sessions
from ackwise.store.port import Store
from ackwise.store.turn import purge, sweep
from ackwise.store.verbs import ReadVerbs
from tests.contract.support import Desk

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
    assert isinstance(store, ReadVerbs)
    seen: list[Counted] = []
    look = store._look

    def counted(job: Callable[[sessions.Session], Any]) -> Any:
        def run(session: sessions.Session) -> Any:
            seen.append(Counted(session))
            return job(seen[-1])

        return look(run)

    monkeypatch.setattr(store, "_look", counted)
    return seen


def fill(desk: Desk, queues: int) -> None:
    """Queues with two partitions each. Every second queue has a group, every third belongs to a namespace."""
    names = [f"q{number:04d}" for number in range(queues)]
    messages = [NewMessage(b"1", "a"), NewMessage(b"2", "b")]
    tags = ["n" if number % 3 == 0 else "" for number in range(queues)]
    desk.together(*(c.ConfigureQueue(queue=name, namespace=tag) for name, tag in zip(names, tags, strict=True)))
    desk.together(*(c.Push(queue=name, messages=messages) for name in names))
    desk.together(*(c.ConfigureGroup(queue=name, group="g") for name in names[::2]))


def followed(store: Store, query: q.Query, limit: int) -> list[list[Any]]:
    """Every page of a list."""
    pages = []
    query = msgspec.structs.replace(query, limit=limit)
    while True:
        page = answer(store, query)
        pages.append(list(page.letters if isinstance(page, q.DeadPage) else page))
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
    "dead letters": q.ListDead(limit=1000),
    "dead letters of a queue": q.ListDead(queue="q0002", limit=1000),
}


def test_list_followed_page_by_page_is_the_whole_list(desk: Desk) -> None:
    fill(desk, 12)
    for queue in ("q0000", "q0002", "q0004"):
        desk.claim(1, queue=queue, group="g")
        desk.reject(*desk.claim(1, queue=queue, group="g").deliveries)
    for name, query in LISTS.items():
        whole = answer(desk.store, query)
        rows = list(whole.letters if isinstance(whole, q.DeadPage) else whole)
        assert rows, name
        for limit in (1, 5, 1000):
            pages = followed(desk.store, query, limit)
            assert [row for page in pages for row in page] == rows, name
            assert all(len(page) <= limit for page in pages), name


def test_page_of_a_large_catalogue_reads_few_rows(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    fill(desk, 300)
    seen = counting(desk.store, monkeypatch)
    for name in ("queues", "queues of a namespace", "stats", "groups", "partitions", "places", "depths"):
        middle = {"partitions": ("q0100", "a"), "groups": ("q0100", "g"), "places": ("q0100", "g", "a")}
        query: Any = msgspec.structs.replace(LISTS[name], limit=10)
        assert len(answer(desk.store, query)) == 10
        following = msgspec.structs.replace(query, after=middle.get(name, "q0100"))
        assert len(answer(desk.store, following)) == 10
        assert max(session.read for session in seen) < 100, name
        seen.clear()


@pytest.mark.parametrize("after", [("x\0y", "z"), ("\ud800", "z")])
def test_cursor_that_no_store_can_look_for_is_refused(desk: Desk, after: tuple[str, str]) -> None:
    with pytest.raises(BadInput):
        desk.store.list_groups(q.ListGroups(after=after))


# bytes


def test_browse_page_ends_at_its_bytes(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "ANSWER_BYTES", 10_000)
    for partition in "ab":
        for _ in range(6):
            desk.push("x" * 4000, partition=partition)
    pages = followed(desk.store, q.Browse(queue="q"), 100)
    assert [len(page) for page in pages] == [3, 3, 3, 3]
    places = [(row.message.lane, row.message.seq) for page in pages for row in page]
    assert places == sorted(set(places))
    assert len(places) == 12


def test_browse_message_above_the_bytes_is_a_page(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "ANSWER_BYTES", 100)
    desk.push("x" * 4000, "y" * 4000, "z")
    assert [len(page) for page in followed(desk.store, q.Browse(queue="q"), 100)] == [1, 1, 1]


def test_browse_reads_no_more_segments_than_fit(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "ANSWER_BYTES", 10_000)
    for _ in range(50):
        desk.push("x" * 4000)
    seen = counting(desk.store, monkeypatch)
    bodies: list[int] = []
    rows = Counted.rows

    def noted(self: Counted, name: str, params: sessions.Params = _NONE) -> list[sessions.Row]:
        found = rows(self, name, params)
        if name == "segment_range":
            bodies.append(sum(len(row[3]) for row in found))
        return found

    monkeypatch.setattr(Counted, "rows", noted)
    assert len(desk.store.browse(q.Browse(queue="q", limit=1000))) == 3
    assert seen
    assert sum(bodies) < 20_000


def test_dead_letter_page_ends_at_its_bytes(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    desk.push(*("x" * 4000 for _ in range(7)))
    desk.reject(*desk.claim(7).deliveries)
    monkeypatch.setattr(limits, "ANSWER_BYTES", 10_000)
    pages = followed(desk.store, q.ListDead(), 100)
    assert [len(page) for page in pages] == [3, 3, 1]
    assert len({letter.id for page in pages for letter in page}) == 7


def test_page_counts_what_each_row_adds_to_its_bytes(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    for partition in "ab":
        desk.push(*("x" for _ in range(100)), partition=partition)
    desk.reject(*desk.claim(200).deliveries)
    monkeypatch.setattr(limits, "ANSWER_BYTES", 10_000)
    for query in (q.Browse(queue="q"), q.ListDead()):
        pages = followed(desk.store, query, 1 << 31)
        assert max(len(page) for page in pages) <= 10_000 // limits.ROW_BYTES + 1
        assert sum(len(page) for page in pages) == 200


def test_browse_counts_headers(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "ANSWER_BYTES", 10_000)
    noted = [NewMessage(b"1", headers={"note": "x" * 4000}) for _ in range(6)]
    desk.do(c.Push(queue="q", messages=noted))
    assert [len(page) for page in followed(desk.store, q.Browse(queue="q"), 100)] == [3, 3]


def test_page_with_a_huge_limit_has_a_bound(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    desk.push(*("x" for _ in range(25)))
    desk.reject(*desk.claim(25).deliveries)
    monkeypatch.setattr(limits, "MOST_ROWS", 10)
    seen = counting(desk.store, monkeypatch)
    for query in (q.Browse(queue="q"), q.ListDead()):
        assert [len(page) for page in followed(desk.store, query, 1 << 31)] == [10, 10, 5]
    assert max(session.read for session in seen) < 40


# sweeps


def test_sweep_of_a_large_catalogue_goes_in_rounds(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sweep, "QUEUE_PAGE", 10)
    fill(desk, 25)
    for number in range(25):
        desk.configure(f"q{number:04d}", retention_seconds=10.0)
    desk.advance(11)
    removed, rounds = 0, 0
    while True:
        swept = desk.do(c.Sweep(duties=("retain",)))
        removed, rounds = removed + swept.done["retain"], rounds + 1
        assert swept.done["retain"] <= 2 * 10
        if not swept.more:
            break
    assert (removed, rounds) == (50, 3)


def test_sweep_with_a_full_limit_goes_on_at_its_queue(desk: Desk) -> None:
    fill(desk, 3)
    for number in range(3):
        desk.configure(f"q{number:04d}", max_wait_seconds=10.0)
    desk.advance(11)
    done = []
    while (swept := desk.do(c.Sweep(duties=("max_wait",), limit=1))).more:
        done.append(swept.done["max_wait"])
    assert sum(done) + swept.done["max_wait"] == 6
    assert len(desk.dead()) == 6


@pytest.mark.parametrize("explicit", [False, True])
def test_dedupe_windows_of_all_queues_are_known(desk: Desk, explicit: bool) -> None:
    desk.configure("short", dedupe_seconds=60.0)
    if explicit:
        desk.configure("long", dedupe_seconds=3600.0)
    else:
        desk.configure("default")
    desk.push("x", queue="short", txid="t")
    desk.advance(3 * 3600)
    desk.sweep("forget")
    assert desk.push("x", queue="short", txid="t")[0].status == "queued"


# purge


def test_purge_turn_ends_when_its_time_is_over(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    """A clock that counts the slices: each look at it takes as long as a whole turn may."""
    monkeypatch.setattr(purge, "SLICE", 5)
    monkeypatch.setattr(purge, "SECONDS", 1e-9)
    for number in range(40):
        desk.push(str(number))
    desk.reject(*desk.claim(20).deliveries)
    desk.do(c.DeleteQueue(queue="q"))
    chunks = []
    while (swept := desk.do(c.Sweep(duties=("purge",), limit=1000))).more:
        chunks.append(swept.done["purge"])
        assert len(chunks) < 200
    assert max(chunks) <= 5 + 2
    assert sum(chunks) + swept.done["purge"] >= 40 + 20
    assert desk.push("new")[0].status == "queued"


def test_purge_leaves_no_row_of_a_queue(desk: Desk) -> None:
    desk.configure("other")
    desk.push("keep", queue="other")
    desk.push("later", delay=60)
    for name in "abc":
        desk.push("1", "2", partition=name)
    desk.reject(desk.take())
    desk.claim(2)
    desk.do(c.DeleteQueue(queue="q"))
    while desk.do(c.Sweep(duties=("purge",), limit=3)).more:
        pass
    assert isinstance(desk.store, ReadVerbs)
    counts = desk.store._look(
        lambda session: {
            table: session.look(f"SELECT count(*) FROM {table}", {}, lambda row: int(row[0]), None)[0]
            for table in ("queue", "part", "lane", "segment", "grp", "cursor", "span", "dead", "scheduled", "dropped")
        }
    )
    assert counts == dict.fromkeys(counts, 0) | {"queue": 1, "part": 1, "lane": 1, "segment": 1}
