"""Reports of pipelines: kept by id, listed, bounded, and forgotten after a week."""

from __future__ import annotations

from typing import Any

import pytest

from ackwise.core import commands as c
from ackwise.core import queries as q
from ackwise.core.errors import BadInput
from ackwise.core.pipelines import LONGEST_ERROR, PipelineReport
from ackwise.core.rows import PipelineRow
from ackwise.core.validation import MICROS
from ackwise.engine import pipelines
from ackwise.engine.pipelines import TooManyPipelines
from tests.engine.store_harness import StoreHarness

DAY = 24 * 3600
FULL = PipelineReport(
    rows=10,
    acked=6,
    retried=2,
    dead=1,
    outputs=5,
    lag=7,
    batches=3,
    last_error="<b>'no'</b> \u202e",
    last_error_at=1_700_000_000_000_000,
    host="driver-1",
    application_id="app-1",
    ui_url="https://driver-1:4040/jobs?id=1",
)


def report(harness: StoreHarness, name: str = "p", queue: str = "q", group: str = "g", **fields: Any) -> None:
    counted = harness.do(c.ReportPipeline(id=name, queue=queue, group=group, report=PipelineReport(**fields)))
    assert counted.count == 1


def listed(harness: StoreHarness, **filters: Any) -> list[PipelineRow]:
    return harness.store.ask(q.ListPipelines(**filters))


def test_report_is_kept_as_it_was_sent(harness: StoreHarness) -> None:
    harness.do(c.ReportPipeline(id="p", queue="q", group="g", report=FULL))
    now = harness.clock.now()
    assert listed(harness) == [PipelineRow("p", "q", "g", now, now, FULL)]


def test_newer_report_replaces_the_older_one(harness: StoreHarness) -> None:
    report(harness, rows=1)
    started = harness.clock.now()
    harness.advance(5)
    report(harness, rows=2, state="failed", last_error="no")
    (row,) = listed(harness)
    assert (row.started_at, row.seen_at) == (started, started + 5 * MICROS)
    assert (row.report.rows, row.report.state, row.report.last_error) == (2, "failed", "no")


def test_pipeline_that_runs_again_starts_anew(harness: StoreHarness) -> None:
    report(harness)
    harness.advance(5)
    report(harness, state="stopped")
    harness.advance(5)
    report(harness, state="stopped")
    assert listed(harness)[0].started_at == harness.clock.now() - 10 * MICROS
    report(harness)
    assert listed(harness)[0].started_at == harness.clock.now()


def test_run_after_a_killed_driver_starts_anew(harness: StoreHarness) -> None:
    report(harness, rows=100, application_id="app-1")
    harness.advance(10)
    report(harness, rows=150, application_id="app-1")
    (before,) = harness.store.ask(q.ListPipelines())
    harness.advance(10)
    report(harness, rows=5, application_id="app-2")
    (after,) = harness.store.ask(q.ListPipelines())
    assert before.started_at < before.seen_at < after.started_at == after.seen_at


def test_list_is_filtered_by_queue_and_group(harness: StoreHarness) -> None:
    report(harness, "b", queue="q", group="g")
    report(harness, "a", queue="q", group="h")
    report(harness, "c", queue="r", group="g")
    assert [row.id for row in listed(harness)] == ["a", "b", "c"]
    assert [row.id for row in listed(harness, queue="q")] == ["a", "b"]
    assert [row.id for row in listed(harness, group="g")] == ["b", "c"]
    assert [row.id for row in listed(harness, after="a", limit=1)] == ["b"]


def test_pipeline_is_forgotten_a_week_after_its_last_report(harness: StoreHarness) -> None:
    report(harness, "old")
    harness.advance(2 * DAY)
    report(harness, "new")
    harness.advance(5 * DAY)
    harness.sweep("forget")
    assert [row.id for row in listed(harness)] == ["new", "old"]
    harness.advance(1)
    assert harness.sweep("forget")["forget"] == 1
    assert [row.id for row in listed(harness)] == ["new"]


def test_number_of_pipelines_is_bounded(harness: StoreHarness, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pipelines, "MOST_PIPELINES", 2)
    report(harness, "a")
    report(harness, "b")
    with pytest.raises(TooManyPipelines, match="has 2 pipelines"):
        report(harness, "c")
    report(harness, "b", rows=2)
    assert [(row.id, row.report.rows) for row in listed(harness)] == [("a", 0), ("b", 2)]


@pytest.mark.parametrize(
    "fields",
    [
        {"name": ""},
        {"name": "x" * 256},
        {"queue": "\0"},
        {"group": ""},
        {"state": "lost"},
        {"rows": -1},
        {"acked": 1 << 63},
        {"lag": -1},
        {"last_error": "x" * (LONGEST_ERROR + 1)},
        {"last_error": "\ud800"},
        {"last_error_at": -1},
        {"host": "x" * 256},
        {"application_id": "\0"},
        {"ui_url": "javascript:alert(1)"},
        {"ui_url": "//host/path"},
        {"ui_url": "http://"},
        {"ui_url": "http://[x"},
        {"ui_url": "https://h/" + "x" * 2000},
    ],
    ids=str,
)
def test_bad_report_is_refused(harness: StoreHarness, fields: dict[str, Any]) -> None:
    report(harness)
    before = listed(harness)
    with pytest.raises(BadInput):
        report(harness, **fields)
    assert listed(harness) == before
