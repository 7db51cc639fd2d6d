"""Preview of a seek: it says what the seek then does."""

from __future__ import annotations

from typing import Any

import pytest

from ackwise.core import queries as q
from ackwise.core.errors import BadInput, UnknownGroup, UnknownPartition, UnknownQueue
from ackwise.core.rows import SeekPreview
from tests.engine.store_harness import StoreHarness

UNFINISHED = ("ready", "leased", "waiting")


def preview(harness: StoreHarness, to: Any, **rest: Any) -> SeekPreview:
    return harness.store.ask(q.PreviewSeek(queue="q", group="g", to=to, **rest))


def fill(harness: StoreHarness) -> list[int]:
    """Two partitions with messages in each state, and the instants between their pushes."""
    instants = []
    for _ in range(4):
        harness.push("0", "1", "2", partition="a")
        harness.push("0", partition="b", priority=1)
        instants.append(harness.clock.now())
        harness.advance(1)
    acked, dead, retried, *held = harness.claim(8, group="g", partitions=("a",), seconds=600).deliveries
    harness.ack(acked, held[-1])
    harness.reject(dead)
    harness.retry(retried, delay=60)
    harness.claim(1, group="g", partitions=("b",), seconds=600)
    return instants


def shown(harness: StoreHarness) -> dict[tuple[int, int], str | None]:
    rows = harness.store.ask(q.Browse(queue="q", group="g", limit=1000))
    return {(row.message.lane, row.message.seq): row.state for row in rows}


@pytest.mark.parametrize("to", ["start", "end", 0, 1, 2, 3, -1])
def test_preview_says_what_a_seek_by_time_does(harness: StoreHarness, to: Any) -> None:
    instants = [*fill(harness), harness.clock.now() + 1]
    check(harness, instants[to] if isinstance(to, int) else to)


@pytest.mark.parametrize("to", ["start", "end", 0, 3, 5, 7, 8, 12, 99])
def test_preview_says_what_a_seek_in_a_partition_does(harness: StoreHarness, to: Any) -> None:
    fill(harness)
    where = {"partition": "a"} if isinstance(to, str) else {"partition": "a", "by": "seq"}
    check(harness, to, **where)


def check(harness: StoreHarness, to: Any, **where: Any) -> None:
    before, leased = shown(harness), harness.group("g").leased
    said = preview(harness, to, **where)
    partition = where.get("partition")
    lag = sum(row.lag for row in harness.store.ask(q.ListPlaces(queue="q")) if partition in (None, row.partition))
    assert said.lag_before == lag
    harness.seek(to, "g", **where)
    after = shown(harness)
    assert said.again == sum(after[key] == "ready" and before[key] not in UNFINISHED for key in before)
    assert said.skipped == sum(after[key] == "skipped" and before[key] in UNFINISHED for key in before)
    assert said.lag_after == said.lag_before + said.again - said.skipped
    assert said.leased == leased - harness.group("g").leased
    assert (said.leases, said.lanes) == ((2, 2) if partition is None else (1, 1))


def test_preview_counts_a_redriven_message_below_the_start(harness: StoreHarness) -> None:
    harness.configure(completed_retention_seconds=1)
    harness.push("old")
    harness.reject(*harness.claim(1, group="g").deliveries)
    harness.advance(5)
    harness.sweep("retain")
    harness.redrive(*harness.dead())
    assert harness.group("g").lag == 1
    said = preview(harness, "start")
    assert (said.again, said.skipped, said.lag_before, said.lag_after) == (0, 1, 1, 0)
    harness.seek("start", "g")
    assert harness.group("g").lag == 0


def test_preview_changes_nothing(harness: StoreHarness) -> None:
    fill(harness)
    before = harness.everything()
    preview(harness, "start")
    assert harness.everything() == before


def test_bad_preview_is_refused(harness: StoreHarness) -> None:
    fill(harness)
    for wrong, error in (
        ({"to": "middle"}, BadInput),
        ({"to": -1}, BadInput),
        ({"to": 1, "by": "seq"}, BadInput),
        ({"to": "end", "by": "seq", "partition": "a"}, BadInput),
        ({"to": "end", "partition": "c"}, UnknownPartition),
    ):
        with pytest.raises(error):
            preview(harness, **wrong)
    with pytest.raises(UnknownGroup):
        harness.store.ask(q.PreviewSeek(queue="q", group="nobody", to="end"))
    with pytest.raises(UnknownQueue):
        harness.store.ask(q.PreviewSeek(queue="nowhere", group="g", to="end"))
