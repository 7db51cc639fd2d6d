"""Heartbeats of pipelines: reports at the start, in between, at the end and after a failure."""

from __future__ import annotations

import logging
import socket
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from ackwise.core import commands as c
from ackwise.core import queries as q
from ackwise.core.answers import Counted
from ackwise.core.errors import AckwiseError, BadInput, StoreUnavailable
from ackwise.core.pipelines import PipelineReport
from ackwise.core.rows import PipelineRow
from ackwise.spark import pipeline
from ackwise.spark.pipelines import heartbeat
from ackwise.spark.pipelines.heartbeat import PipelineHeartbeat, pipeline_id
from tests.patience import PATIENCE
from tests.spark.queue_harness import QueueHarness, until

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class Transport:
    """Keeps the reports that it gets, or refuses them."""

    def __init__(self, problem: Exception | None = None) -> None:
        self.reports: list[c.ReportPipeline] = []
        self.tries = 0
        self._problem = problem
        self.sent = threading.Event()

    def send(self, command: c.ReportPipeline) -> Counted:
        self.tries += 1
        self.sent.set()
        if self._problem is not None:
            raise self._problem
        self.reports.append(command)
        return Counted(1)


def beating(transport: Transport) -> PipelineHeartbeat:
    return PipelineHeartbeat(transport, "q/g", "q", "g")  # type: ignore[arg-type]


def reports(harness: QueueHarness) -> list[PipelineRow]:
    found: list[PipelineRow] = harness.ask(q.ListPipelines())
    return found


def same(order: dict[str, Any]) -> dict[str, Any]:
    return order


def test_heartbeat_reports_first_again_and_last(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(heartbeat, "EVERY", 0.01)
    transport = Transport()
    beat = beating(transport)
    beat.start(lambda: PipelineReport(rows=len(transport.reports)))
    until(lambda: len(transport.reports) > 2)
    beat.stop(lambda: PipelineReport(state="stopped", rows=99))
    assert [report.report.rows for report in transport.reports[:3]] == [0, 1, 2]
    assert (transport.reports[-1].report.state, transport.reports[-1].report.rows) == ("stopped", 99)
    assert {report.report.state for report in transport.reports[:-1]} == {"running"}
    assert {(report.id, report.queue, report.group) for report in transport.reports} == {("q/g", "q", "g")}


def test_first_failure_is_logged_once(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    monkeypatch.setattr(heartbeat, "EVERY", 0.01)
    transport = Transport(StoreUnavailable("the database is gone"))
    beat = beating(transport)
    with caplog.at_level(logging.WARNING, "ackwise.spark"):
        beat.start(PipelineReport)
        until(lambda: transport.tries > 2)
        beat.stop(PipelineReport)
    (record,) = caplog.records
    assert record.getMessage() == "the pipeline of q/g could not report itself: the database is gone"


def test_older_server_gets_one_report(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(heartbeat, "EVERY", 0.0)
    transport = Transport(BadInput("unknown command"))
    beat = beating(transport)
    beat.start(PipelineReport)
    assert transport.sent.wait(PATIENCE)
    beat.stop(PipelineReport)
    assert transport.tries == 1


def test_report_that_cannot_be_collected_is_no_error() -> None:
    def collect() -> PipelineReport:
        raise AckwiseError("no lag")

    transport = Transport()
    beat = beating(transport)
    beat.start(collect)
    beat.stop(lambda: PipelineReport(state="stopped"))
    assert [report.report.state for report in transport.reports] == ["stopped"]


def test_pipeline_without_a_last_report_sends_none() -> None:
    transport = Transport()
    beating(transport).stop(None)
    assert transport.reports == []


@pytest.mark.parametrize(
    ("queue", "group", "claim_name", "expected"),
    [
        ("q", "g", "g", "q/g"),
        ("q", "team/g", "team.g", "q/team/g"),
        ("q", "g", "other", "q/g/other"),
        ("q", "g", "g.run-0a1b2c3d", "q/g"),
        ("q" * 200, "g" * 200, "g" * 200, None),
    ],
)
def test_id_is_the_same_in_each_run(queue: str, group: str, claim_name: str, expected: str | None) -> None:
    made = pipeline_id(queue, group, claim_name)
    assert made == expected if expected is not None else len(made) == 255
    assert made != pipeline_id(queue, group, claim_name + "x")


def test_pipeline_reports_itself_until_it_stops(
    spark: SparkSession, local_harness: QueueHarness, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(heartbeat, "EVERY", 0.05)
    local_harness.number(20)
    orders = pipeline(spark, local_harness.url).consume("q", "g").map(same, returns="n long").produce("out")
    running = orders.start(str(tmp_path / "checkpoint"))
    until(lambda: any(row.report.acked == 20 for row in reports(local_harness)))
    (row,) = reports(local_harness)
    assert (row.id, row.queue, row.group, row.report.state) == ("q/g", "q", "g", "running")
    assert (row.report.rows, row.report.outputs, row.report.lag) == (20, 20, 0)
    assert (row.report.host, row.report.application_id) == (socket.gethostname(), spark.sparkContext.applicationId)
    assert row.report.ui_url == (spark.sparkContext.uiWebUrl or "")
    running.stop()
    (row,) = reports(local_harness)
    assert (row.report.state, row.report.rows, row.report.last_error) == ("stopped", 20, "")


def test_failed_pipeline_reports_its_error(spark: SparkSession, local_harness: QueueHarness) -> None:
    local_harness.number(1)
    broken = pipeline(spark, local_harness.url).consume("q", "g").transform(lambda frame: 1)  # type: ignore[arg-type,return-value]
    with pytest.raises(BadInput, match="returned int"):
        broken.run()
    (row,) = reports(local_harness)
    assert (row.id, row.report.state) == ("q/g", "failed")
    assert "returned int, not a DataFrame" in row.report.last_error
    assert row.report.last_error_at is not None


def test_pipeline_runs_without_its_reports(
    spark: SparkSession, local_harness: QueueHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(**_: object) -> None:
        raise RuntimeError("no reports today")

    monkeypatch.setattr(heartbeat, "ReportPipeline", refuse)
    local_harness.number(3)
    done = pipeline(spark, local_harness.url).consume("q", "g").map(same, returns="n long").produce("out").run()
    assert done.acked == 3
    assert reports(local_harness) == []
