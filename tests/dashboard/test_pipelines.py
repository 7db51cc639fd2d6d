"""The page of pipelines: states, rates, errors, and links that a browser may follow."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from ackwise.clock import ManualClock
from ackwise.connect import connect
from ackwise.core.commands import ReportPipeline
from ackwise.core.pipelines import PipelineReport
from ackwise.core.rows import PipelineRow
from ackwise.dashboard.pages import pipelines
from tests.dashboard.site import Site
from tests.server.running import Running

HOSTILE = '<img src=x onerror="alert(1)">'
Report = Callable[..., None]


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def reported(any_store: str, clock: ManualClock) -> Any:
    """A site, and a function that reports a pipeline."""
    with Running(any_store, clock) as server, connect(server.url) as connection:
        site = Site(server.url)

        def report(queue: str, group: str = "g", **fields: Any) -> None:
            command = ReportPipeline(id=f"{queue}/{group}", queue=queue, group=group, report=PipelineReport(**fields))
            connection.transport.send(command)

        yield site, report
        site.close()


def test_page_without_pipelines_says_how_to_run_one(reported: tuple[Site, Report]) -> None:
    site, _ = reported
    assert "ackwise pipeline run my_module:orders --follow" in site.get("/pipelines").text


def test_pipeline_is_listed_with_counts_rate_and_link(reported: tuple[Site, Report], clock: ManualClock) -> None:
    site, report = reported
    report("orders", ui_url="http://driver:4040")
    clock.advance(10)
    report("orders", rows=1500, acked=1400, dead=7, lag=12, host="driver", ui_url="http://driver:4040")
    page = site.get("/pipelines")
    assert "orders group g running 1,500 150 1,400 0 7 0 12 now started 10 s ago driver Spark's page" in page.text
    assert 'href="http://driver:4040" rel="noreferrer noopener"' in page.source
    assert 'href="/dashboard/dead-letters?queue=orders&amp;group=g"' in page.source


def test_states_of_pipelines_are_shown(reported: tuple[Site, Report], clock: ManualClock) -> None:
    site, report = reported
    report("quiet")
    report("ended", state="stopped")
    report("broken", state="failed", last_error=HOSTILE)
    clock.advance(31)
    page = site.get("/pipelines")
    assert "quiet group g silent since 31 s ago" in page.text
    assert "ended group g stopped" in page.text
    assert f"broken group g failed {HOSTILE}" in page.text
    assert HOSTILE not in page.source


def test_filters_choose_pipelines(reported: tuple[Site, Report]) -> None:
    site, report = reported
    report("a", "one")
    report("b", "two")
    assert "a group one" in site.get("/pipelines?queue=a").text
    assert "a group one" not in site.get("/pipelines?group=two").text
    assert "No pipeline of this queue and group" in site.get("/pipelines?queue=c").text


def test_pages_of_the_list_continue(reported: tuple[Site, Report], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pipelines, "ROWS", 1)
    site, report = reported
    report("a")
    report("b")
    assert "b group g" not in site.get("/pipelines").text
    assert "b group g" in site.get("/pipelines?after=a/g").text


@pytest.mark.parametrize("url", ["javascript:alert(1)", "data:text/html,x", "", "ftp://host"])
def test_other_addresses_are_text(url: str) -> None:
    row = PipelineRow("q/g", "q", "g", 0, 0, PipelineReport(ui_url=url))
    assert pipelines.shown(row, 0).link == ""
