"""Heartbeats of pipelines: the newest report of each, pages, bounds, and the end of old ones."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from ackwise.core import commands as c
from ackwise.core import queries as q
from ackwise.core import rows
from ackwise.core.errors import BadInput
from ackwise.core.pipelines import KEPT_FOR, PipelineReport
from ackwise.core.validation import MICROS
from ackwise.engine import pipelines
from tests.engine.store_harness import StoreHarness


def report(harness: StoreHarness, name: str, queue: str = "orders", **fields: Any) -> None:
    fields = {"state": "running", "started_at": 5, **fields}
    harness.do(c.ReportPipeline(id=name, queue=queue, group="billing", report=PipelineReport(**fields)))


def listed(harness: StoreHarness, **fields: Any) -> list[rows.PipelineRow]:
    return list(harness.store.ask(q.ListPipelines(**fields)))


def test_pipeline_shows_its_newest_report(harness: StoreHarness) -> None:
    report(harness, "p", rows=3, acked=2)
    harness.advance(5)
    newest: dict[str, Any] = {
        **{"state": "failed", "rows": 9, "acked": 6, "retried": 2, "dead": 1, "outputs": 6, "batches": 2, "lag": 4},
        **{"last_error": "no disk \u202e<b>", "last_error_at": 7, "host": "h", "application_id": "app-1"},
        "ui_url": "http://127.0.0.1:4040",
    }
    report(harness, "p", **newest)
    (row,) = listed(harness)
    assert (row.id, row.queue, row.group) == ("p", "orders", "billing")
    assert row.report == PipelineReport(started_at=5, **newest)
    report(harness, "later")
    assert row.seen_at == listed(harness)[1].seen_at == listed(harness)[0].seen_at


def test_pipelines_are_newest_first_in_pages(harness: StoreHarness) -> None:
    for name in "abc":
        report(harness, name)
        harness.advance(1)
    report(harness, "other", queue="payments")
    assert [row.id for row in listed(harness)] == ["other", "c", "b", "a"]
    assert [row.id for row in listed(harness, queue="orders")] == ["c", "b", "a"]
    first = harness.store.ask(q.ListPipelines(limit=3))
    assert isinstance(first, rows.Page)
    assert [row.id for row in listed(harness, after=first.next)] == ["a"]


@pytest.mark.parametrize(
    "fields",
    [
        {"state": "lost"},
        {"rows": -1},
        {"lag": -1},
        {"lag": 1 << 63},
        {"last_error": "x" * 2001},
        {"host": "x" * 256},
        {"ui_url": "javascript:alert(1)"},
        {"ui_url": "http://[::1"},
        {"ui_url": "http://h/" + "x" * 2000},
        {"started_at": -1},
    ],
)
def test_impossible_report_is_refused(harness: StoreHarness, fields: dict[str, Any]) -> None:
    with pytest.raises(BadInput):
        report(harness, "p", **fields)
    assert listed(harness) == []


def test_report_survives_a_field_of_a_later_version(harness: StoreHarness) -> None:
    stored = msgspec.json.encode({"state": "running", "started_at": 5, "colour": "blue"})
    assert msgspec.json.decode(stored, type=PipelineReport) == PipelineReport(state="running", started_at=5)


def test_silent_pipeline_is_forgotten_after_a_week(harness: StoreHarness) -> None:
    report(harness, "old")
    harness.advance(KEPT_FOR / MICROS - 10)
    report(harness, "new")
    harness.sweep("forget")
    assert [row.id for row in listed(harness)] == ["new", "old"]
    harness.advance(11)
    harness.sweep("forget")
    assert [row.id for row in listed(harness)] == ["new"]


def test_surplus_of_pipelines_is_forgotten(harness: StoreHarness, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pipelines, "MOST_PIPELINES", 2)
    for name in "abcd":
        report(harness, name)
        harness.advance(1)
    harness.sweep("forget")
    assert [row.id for row in listed(harness)] == ["d", "c"]
