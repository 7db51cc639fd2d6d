"""docs/reference/metrics.md lists exactly the names of real scrapes."""

from __future__ import annotations

import re
from pathlib import Path

import httpx2

from ackwise.observability.handler_counts import AppCounts
from ackwise.observability.handler_metrics import app_exposition, pipeline_exposition
from tests.observability.scrapes import Scrape, scrape

PAGE = Path(__file__).resolve().parents[2] / "docs" / "reference" / "metrics.md"


def test_reference_lists_the_names_of_all_scrapes(http: httpx2.Client) -> None:
    rows = re.findall(r"^\| (`(?:ackwise|queen)_[^|]+)\|", PAGE.read_text(), re.MULTILINE)
    listed = [name for row in rows for name in re.findall(r"`([a-z_]+)`", row)]
    assert len(listed) == len(set(listed))
    app = Scrape(app_exposition(AppCounts(), connected=True).decode())
    pipeline = Scrape(pipeline_exposition("orders", "etl", {"acked": 1}, batches=1, rows=1).decode())
    assert set(listed) == scrape(http).names | app.names | pipeline.names


def test_pipeline_scrape_has_its_totals() -> None:
    seen = Scrape(pipeline_exposition("orders", "etl", {"acked": 7, "dead": 1}, batches=2, rows=8).decode())
    assert seen.value("ackwise_pipeline_records_total", queue="orders", group="etl") == 8
    assert seen.value("ackwise_pipeline_settled_total", queue="orders", group="etl", outcome="acked") == 7
