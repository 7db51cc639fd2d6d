"""Transaction ids in generations: sealed, filtered, forgotten, and the same after a reopen."""

from __future__ import annotations

import sys
from array import array
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ackwise.clock import ManualClock
from ackwise.core import commands as c
from ackwise.core.errors import StoreCorrupt
from ackwise.core.messages import NewMessage
from ackwise.store.sqlite import SQLiteStore, dedupe_blocks
from ackwise.store.sqlite.dedupe import SHELF
from ackwise.store.sqlite.dedupe_blocks import BloomFilter
from tests.sqlite.support import open_store, push, rows

SMALL = 4


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "queues.db"


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture(params=["numpy", "plain"])
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """With numpy for however few keys, and without it for however many."""
    most = 0 if request.param == "numpy" else sys.maxsize
    monkeypatch.setattr(dedupe_blocks, "WORTH_USING", most)
    monkeypatch.setattr(dedupe_blocks, "WORTH_LOADING", most)


def small(path: Path, clock: ManualClock) -> SQLiteStore:
    return open_store(path, clock, dedupe_generation=SMALL)


def fill(store: SQLiteStore, count: int, prefix: str = "t") -> list[str]:
    txids = [f"{prefix}{number}" for number in range(count)]
    assert {status for txid in txids for status in push(store, txid)} == {"queued"}
    return txids


def test_ids_are_found_in_every_generation(way: None, path: Path, clock: ManualClock) -> None:
    store = small(path, clock)
    txids = fill(store, 50)
    generations = rows(path, "SELECT gen, n FROM dedupe_gen ORDER BY gen")
    assert [gen for gen, _ in generations] == list(range(len(generations)))
    assert len(generations) >= 10
    assert [push(store, txid) for txid in txids] == [["duplicate"]] * 50
    store.close()


@pytest.mark.parametrize("count", [1 << 60, -1, 2])
def test_runs_that_do_not_add_up_are_damage_and_not_read(path: Path, clock: ManualClock, count: int) -> None:
    """A torn page may hold any number: counting so far would take all memory. A pure consumer never reads it."""
    store = small(path, clock)
    fill(store, 1)
    store.close()
    rows(path, f"UPDATE dedupe_fresh SET runs = x'{array('q', [1, count]).tobytes().hex()}'")
    again = small(path, clock)
    for _ in range(2):
        (refused,) = again.transact([c.Push(queue="q", messages=[NewMessage(b"1", transaction_id="new")])])
        assert isinstance(refused, StoreCorrupt)
        assert "do not match their positions" in refused.message
    (claimed,) = again.transact([c.Claim(queue="q")])
    assert [(grant.lo, grant.hi) for grant in claimed.grants] == [(0, 1)]
    again.close()


def test_full_shelf_keeps_its_filter(path: Path, clock: ManualClock) -> None:
    store = small(path, clock)
    fill(store, SMALL * SHELF * 2 + 5)
    shelves = rows(path, "SELECT shelf FROM dedupe_filter ORDER BY shelf")
    full = max(gen for (gen,) in rows(path, "SELECT gen FROM dedupe_gen")) + 1
    assert [shelf for (shelf,) in shelves] == list(range(full // SHELF))
    assert shelves
    store.close()


@pytest.mark.parametrize("count", [1, SMALL - 1, SMALL, SMALL + 1, 17, SMALL * SHELF, SMALL * SHELF * 2 + 3])
def test_reopened_store_knows_the_same_ids(way: None, path: Path, clock: ManualClock, count: int) -> None:
    first = small(path, clock)
    txids = fill(first, count)
    first.close()
    again = small(path, clock)
    assert [push(again, txid) for txid in txids] == [["duplicate"]] * count
    assert push(again, *(f"new{i}" for i in range(9))) == ["queued"] * 9
    again.close()
    other_size = open_store(path, clock, dedupe_generation=1000)
    assert set(push(other_size, *txids, "new0")) == {"duplicate"}
    other_size.close()


def test_big_batches_seal_as_well(way: None, path: Path, clock: ManualClock) -> None:
    store = small(path, clock)
    batches = [[f"b{batch}-{number}" for number in range(11)] for batch in range(12)]
    for batch in batches:
        assert set(push(store, *batch)) == {"queued"}
    for batch in batches:
        assert set(push(store, *batch)) == {"duplicate"}
    store.close()


def test_forgotten_generations_are_removed_and_their_ids_free(way: None, path: Path, clock: ManualClock) -> None:
    store = small(path, clock)
    store.transact([c.ConfigureQueue(queue="q", policy={"dedupe_seconds": 60})])
    old = fill(store, 40, "old")
    clock.advance(100)
    young = fill(store, 20, "young")
    blocks = len(rows(path, "SELECT 1 FROM dedupe_block"))
    clock.advance(50)
    store.transact([c.Sweep()])
    assert len(rows(path, "SELECT 1 FROM dedupe_block")) < blocks
    for txid in old:
        assert push(store, txid) == ["queued"]
    for txid in young:
        assert push(store, txid) == ["duplicate"]
    store.close()


def test_dedupe_continues_after_all_generations_are_forgotten(path: Path, clock: ManualClock) -> None:
    store = small(path, clock)
    store.transact([c.ConfigureQueue(queue="q", policy={"dedupe_seconds": 60})])
    for number in range(4):
        txids = fill(store, 40, f"round{number}-")
        assert push(store, txids[0]) == ["duplicate"]
        clock.advance(200)
        store.transact([c.Sweep()])
        store.close()
        store = small(path, clock)
    gens = [gen for (gen,) in rows(path, "SELECT gen FROM dedupe_gen ORDER BY gen")]
    assert gens
    assert gens[0] > 20, "numbers go on rising"
    assert len(rows(path, "SELECT 1 FROM dedupe_filter")) <= 2
    store.close()


def test_undone_transaction_leaves_no_id_behind(path: Path, clock: ManualClock) -> None:
    store = small(path, clock)
    fill(store, SMALL - 1)
    bad = c.Transaction(
        pushes=[c.Push(queue="q", messages=[NewMessage(b"1", transaction_id=t) for t in ("x", "t0")])],
        on_duplicate="fail",
    )
    good = c.Push(queue="q", messages=[NewMessage(b"1", transaction_id="y")])
    store.transact([bad, good])
    assert push(store, "x", "y", "t1") == ["queued", "duplicate", "duplicate"]
    store.close()


def test_abandoned_seal_did_not_happen(path: Path, clock: ManualClock) -> None:
    store = small(path, clock)
    fill(store, SMALL - 1)
    store.prepare([c.Push(queue="q", messages=[NewMessage(b"1", transaction_id=f"x{i}") for i in range(9)])]).abandon()
    assert rows(path, "SELECT * FROM dedupe_gen") == []
    assert set(push(store, *(f"x{i}" for i in range(9)))) == {"queued"}
    assert set(push(store, *(f"x{i}" for i in range(9)), "t0", "t1", "t2")) == {"duplicate"}
    store.close()


hashes = st.lists(st.integers(-(2**63), 2**63 - 1), max_size=50)


@settings(
    max_examples=30,
    derandomize=True,
    deadline=None,
    database=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(hashes, hashes)
def test_filter_never_says_no_to_a_key_it_has(way: None, added: list[int], others: list[int]) -> None:
    one = BloomFilter()
    one.add(added)
    assert one.candidates(added) == added
    assert set(one.candidates(added + others)) >= set(added)


def test_filter_says_no_to_nearly_every_other_key(way: None) -> None:
    one = BloomFilter()
    one.add(range(0, 10**18, 10**15))
    strangers = list(range(7, 10**18, 10**14))
    assert len(one.candidates(strangers)) < len(strangers) // 20


def test_filters_are_the_same_with_and_without_numpy(monkeypatch: pytest.MonkeyPatch) -> None:
    """One process may have it while the next one, which reads what was stored, has it not installed."""
    keys = list(range(-(10**18), 10**18, 10**15))
    with_it, without = BloomFilter(), BloomFilter()
    monkeypatch.setattr(dedupe_blocks, "WORTH_LOADING", 0)
    with_it.add(array("q", keys))
    monkeypatch.setitem(sys.modules, "numpy", None)
    without.add(keys)
    assert with_it.slots == without.slots
