"""Dead letters counted by the kind of their errors and by time, and listed by filters."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from ackwise.core import commands as c
from ackwise.core import queries as q
from ackwise.core.error_kinds import LONGEST_KIND
from ackwise.core.errors import BadInput, UnknownQueue
from ackwise.core.rows import DeadKind, DeadLetter
from ackwise.core.validation import MICROS
from tests.engine.store_harness import StoreHarness

ERRORS = ("order 17 not found", "order 18 not found", "timeout after 5 s", "")
KINDS = ("order <n> not found", "order <n> not found", "timeout after <n> s", "")


def bury(harness: StoreHarness, error: str, *, queue: str = "q", partition: str = "p", group: str = "g") -> None:
    """One message dies, and a second passes."""
    harness.push("x", queue=queue, partition=partition)
    hand = harness.claim(1, queue=queue, group=group, partitions=(partition,))
    harness.reject(*hand.deliveries, error=error, error_type="SomeError")
    harness.advance(1)


def fill(harness: StoreHarness) -> None:
    for error in ERRORS:
        bury(harness, error)
    bury(harness, ERRORS[0], queue="r", partition="p", group="h")
    bury(harness, ERRORS[2], partition="p2", group="h")
    harness.configure(retry_limit=0)
    harness.push("last", partition="p3")
    harness.retry(*harness.claim(1, group="h", partitions=("p3",)).deliveries, error="order 19 not found")


def kinds(harness: StoreHarness, **filters: Any) -> list[DeadKind]:
    return harness.store.ask(q.ListDeadKinds(**filters))


def test_letter_has_the_kind_of_its_error(harness: StoreHarness) -> None:
    for error in ERRORS:
        bury(harness, error)
    assert [letter.kind for letter in reversed(harness.dead())] == list(KINDS)


def test_letter_that_dies_again_gets_the_new_kind(harness: StoreHarness) -> None:
    bury(harness, ERRORS[0])
    harness.redrive(*harness.dead())
    harness.reject(*harness.claim(1, group="g").deliveries, error=ERRORS[2])
    assert [letter.kind for letter in harness.dead()] == [KINDS[2]]
    assert [row.kind for row in kinds(harness)] == [KINDS[2]]


def test_kinds_count_letters_by_queue_and_error(harness: StoreHarness) -> None:
    fill(harness)
    rows = kinds(harness)
    assert [(row.queue, row.kind, row.count) for row in rows] == [
        ("q", KINDS[0], 3),
        ("q", KINDS[2], 2),
        ("q", "", 1),
        ("r", KINDS[0], 1),
    ]
    first = rows[0]
    letters = [letter for letter in harness.dead(queue="q", limit=1000) if letter.kind == KINDS[0]]
    assert first.reasons == {"rejected": 2, "retry_limit": 1}
    assert (first.first_at, first.last_at) == (letters[-1].dead_at, letters[0].dead_at)
    assert first.example_id in {letter.id for letter in letters}
    assert (first.example_error, rows[1].example_error_type) == ("order 19 not found", "SomeError")
    assert kinds(harness, queue="q") == rows[:3]


def test_filters_select_the_same_letters_in_each_query(harness: StoreHarness) -> None:
    fill(harness)
    letters = harness.dead(limit=1000)
    middle = letters[3].dead_at
    for filters in (
        {},
        {"queue": "q"},
        {"group": "h"},
        {"queue": "q", "group": "h"},
        {"partition": "p"},
        {"queue": "q", "partition": "p2"},
        {"queue": "q", "partition": "missing"},
        {"reason": "retry_limit"},
        {"queue": "q", "reason": "rejected"},
        {"queue": "q", "kind": KINDS[0]},
        {"queue": "q", "kind": KINDS[0], "reason": "rejected", "group": "g", "partition": "p"},
        {"kind": ""},
        {"kind": KINDS[2]},
        {"after_at": middle},
        {"before_at": middle, "queue": "q", "kind": KINDS[0]},
        {"before_at": middle, "after_at": middle, "queue": "q"},
    ):
        expected = [letter for letter in letters if matches(letter, filters)]
        assert harness.dead(**filters, limit=1000) == expected, filters
        assert harness.dead(**filters, ids=[letter.id for letter in letters], limit=1000) == expected, filters
        assert harness.store.ask(q.ListDead(**filters, limit=1)).total == len(expected), filters
        assert harness.store.ask(q.CountDead(**filters)) == len(expected), filters
        times: dict[str, Any] = {"after_at": 0, "before_at": letters[0].dead_at + 1, **filters}
        times["before_at"] += "before_at" in filters
        series = harness.store.ask(q.CountDeadByTime(**times))
        assert sum(map(sum, series.counts.values())) == len(expected), filters
        if "kind" not in filters:
            assert sum(row.count for row in kinds(harness, **filters)) == len(expected), filters


def matches(letter: DeadLetter, filters: dict[str, Any]) -> bool:
    within = filters.get("after_at", 0) <= letter.dead_at <= filters.get("before_at", letter.dead_at)
    names = [name for name in filters if not name.endswith("_at")]
    return within and all(getattr(letter, name) == filters[name] for name in names)


def test_time_buckets_are_equal_and_count_by_reason(harness: StoreHarness) -> None:
    fill(harness)
    letters = harness.dead(queue="q", limit=1000)[::-1]
    first = letters[0].dead_at
    query = q.CountDeadByTime(queue="q", after_at=first, before_at=first + 10 * MICROS, buckets=5)
    series = harness.store.ask(query)
    assert (series.first_at, series.step) == (first, 2 * MICROS)
    expected: dict[str, list[int]] = {}
    for letter in letters:
        expected.setdefault(letter.reason, [0] * 5)[(letter.dead_at - first) // series.step] += 1
    assert series.counts == expected
    query.kind = KINDS[2]
    assert harness.store.ask(query).counts == {"rejected": [0, 1, 1, 0, 0]}


def test_bucket_of_an_uneven_range_ends_at_the_range(harness: StoreHarness) -> None:
    bury(harness, "x")
    at = harness.dead()[0].dead_at
    for buckets in (1, 3, 7, 400):
        series = harness.store.ask(q.CountDeadByTime(after_at=at - 9, before_at=at + 1, buckets=buckets))
        assert sum(series.counts["rejected"]) == 1
        assert len(series.counts["rejected"]) == buckets
        assert harness.store.ask(q.CountDeadByTime(after_at=at - 9, before_at=at, buckets=buckets)).counts == {}


def test_letters_of_a_deleted_queue_are_not_counted(harness: StoreHarness) -> None:
    fill(harness)
    harness.together(c.DeleteQueue(queue="q"))
    assert [row.queue for row in kinds(harness)] == ["r"]
    assert harness.store.ask(q.CountDead()) == 1
    assert harness.store.ask(q.CountDead(group="g")) == 0
    assert [letter.queue for letter in harness.dead(reason="rejected")] == ["r"]
    with pytest.raises(UnknownQueue):
        kinds(harness, queue="q")


@pytest.mark.parametrize(
    "query",
    [
        q.ListDead(kind="x" * (LONGEST_KIND + 1)),
        q.ListDead(kind="\0"),
        q.CountDead(kind="\ud800"),
        q.CountDead(queue="x" * 256),
        q.ListDeadKinds(limit=1001),
        q.ListDeadKinds(after=(1, "q", "\0")),
        q.CountDeadByTime(after_at=5, before_at=5),
        q.CountDeadByTime(after_at=0, before_at=5, buckets=401),
        q.CountDeadByTime(after_at=0, before_at=5, buckets=0),
        q.CountDeadByTime(after_at=-1, before_at=5),
    ],
    ids=lambda query: msgspec.json.encode(str(query)).decode()[:60],
)
def test_bad_filter_is_refused(harness: StoreHarness, query: q.Query) -> None:
    with pytest.raises(BadInput):
        harness.store.ask(query)
