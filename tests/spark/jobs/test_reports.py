"""The pages: well formed, safe whatever is in a payload, standing by themselves."""

from __future__ import annotations

import re
from datetime import timedelta
from html.parser import HTMLParser
from pathlib import Path
from xml.etree import ElementTree

import pytest

from ackwise.core.errors import BadInput
from ackwise.spark.reports import write_dead_letter_report, write_lag_report, write_metrics_report
from ackwise.spark.reports.columns import cell, duration, number
from ackwise.spark.reports.summaries import DeadLetterSummary
from ackwise.wire import charts
from tests.spark.jobs.frames import Row, at

FIRST = at("2030-01-31T12:00:00")
NASTY = "<script>alert('x')</script> & \"quoted\""


class Page(HTMLParser):
    """Refuses what is not closed in order; knows every element with its attributes, and the text."""

    VOID = frozenset({"meta"})

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.text = ""
        self._open: list[str] = []
        self.source = path.read_text("utf-8")
        self.feed(self.source)
        self.close()
        assert self._open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))
        if tag not in self.VOID:
            self._open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self._open.pop() == tag

    def handle_data(self, data: str) -> None:
        if "style" not in self._open:
            self.text += data

    def named(self, tag: str) -> list[dict[str, str | None]]:
        return [attributes for name, attributes in self.elements if name == tag]

    def check(self) -> None:
        """Nothing runs, nothing is fetched; every chart says what it is."""
        assert self.source.startswith("<!doctype html>")
        assert not {"script", "link", "img", "iframe", "object"} & {tag for tag, _ in self.elements}
        for _, attributes in self.elements:
            assert not {"src", "href", "style"} & set(attributes)
            assert not any(name.startswith("on") for name in attributes)
        assert "http" not in self.source.replace("<!doctype html>", "")
        assert "@import" not in self.source
        assert "url(" not in self.source
        ids = [attributes["id"] for _, attributes in self.elements if "id" in attributes]
        assert len(ids) == len(set(ids))
        for attributes in self.named("svg"):
            if attributes.get("role") == "img":
                assert set((attributes["aria-labelledby"] or "").split()) <= set(ids)
            else:
                assert attributes["aria-hidden"] == "true"


def summary(error: str = "order <n> not found", payload: str = '{"n": 1}') -> DeadLetterSummary:
    seen = {"queue": "orders", "group": "billing", "first_at": FIRST, "last_at": FIRST + timedelta(hours=1)}
    example: Row = {
        "id": "id-1",
        "partition": error,
        "transaction_id": error,
        "error_type": error,
        "error_message": error,
        "retry_count": 3,
        "deliveries": 3,
        "payload": payload,
    }
    return DeadLetterSummary(
        queue="orders",
        group=None,
        made_at=FIRST,
        errors=[{**seen, "reason": "retry_limit", "error": error, "count": 1234, "example": example}],
        reasons=[{**seen, "reason": "retry_limit", "count": 1234}],
        error_types=[{**seen, "error_type": error, "count": 1234}],
        times=[
            {"at": FIRST, "queue": "orders", "group": "billing", "reason": "retry_limit", "count": 1000},
            {"at": FIRST + timedelta(hours=1), "queue": "orders", "group": "billing", "reason": error, "count": 234},
        ],
        step=900,
    )


def test_report_of_dead_letters_has_charts_and_commands(tmp_path: Path) -> None:
    write_dead_letter_report(tmp_path / "new" / "report.html", summary(), outcomes=[("pushed", 20_000)])
    page = Page(tmp_path / "new" / "report.html")
    page.check()
    for text in ("Queue orders", "20,000", "1,234", "order <n> not found", '{"n": 1}', "2030-01-31 13:00:00"):
        assert text in page.text
    assert "ackwise dlq redrive --queue orders --where 'reason = '\"'\"'retry_limit'\"'\"'' --dry-run" in page.text
    assert len([one for one in page.named("svg") if one.get("role") == "img"]) == 4
    assert len(page.named("table")) == 4


def test_report_escapes_markup_in_dead_letters(tmp_path: Path) -> None:
    write_dead_letter_report(tmp_path / "report.html", summary(NASTY, NASTY))
    page = Page(tmp_path / "report.html")
    page.check()
    assert page.text.count(NASTY) > 5
    assert "alert('x')</script>" not in page.source


def test_report_without_dead_letters_says_so(tmp_path: Path) -> None:
    empty = DeadLetterSummary(
        queue=None, group=None, made_at=FIRST, errors=[], reasons=[], error_types=[], times=[], step=1
    )
    write_dead_letter_report(tmp_path / "report.html", empty)
    page = Page(tmp_path / "report.html")
    page.check()
    assert "No dead letters here" in page.text
    assert page.named("svg") == page.named("table") == []


def window(hour: int, group: str = "billing", **more: object) -> Row:
    return {
        "queue": "orders",
        "group": group,
        "window_start": FIRST + timedelta(hours=hour),
        "window_end": FIRST + timedelta(hours=hour + 1),
        **dict.fromkeys(("retried", "dead", "released", "lease_expired", "expired"), 1),
        "acked": 96,
        "ack_rate": 96 / 3600,
        "success_rate": 0.97,
        "redelivery_rate": 0.03,
        "latency_p50": 0.01,
        "latency_p95": 0.1,
        "latency_p99": None,
        **more,
    }


def test_report_of_metrics_has_rates_and_names(tmp_path: Path) -> None:
    rows = [window(0), window(3), window(0, NASTY)]
    write_metrics_report(tmp_path / "report.html", rows, FIRST, queue="orders", group=None)
    page = Page(tmp_path / "report.html")
    page.check()
    assert "97.00%" in page.text
    assert f"orders · {NASTY}" in page.text
    write_metrics_report(tmp_path / "report.html", [], FIRST)
    assert "Nothing was settled" in Page(tmp_path / "report.html").text


def test_report_of_lag_has_counts_and_ages(tmp_path: Path) -> None:
    row: Row = {"queue": NASTY, "group": "g", "lag": 12_345, "unread": 12_000, "held": 345, "oldest_seconds": 432.5}
    write_lag_report(tmp_path / "report.html", [{**row, "ack_rate": 0.0, "drain_seconds": None}], FIRST)
    page = Page(tmp_path / "report.html")
    page.check()
    assert "12,345" in page.text
    assert "7.21 min" in page.text
    write_lag_report(tmp_path / "report.html", [{**row, "partition": "eu"}], FIRST)
    assert "eu" in Page(tmp_path / "report.html").text
    write_lag_report(tmp_path / "report.html", [], FIRST)
    assert "No group has read here yet" in Page(tmp_path / "report.html").text


def test_page_that_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(BadInput, match=r"cannot be written to .*report\.html"):
        write_lag_report(tmp_path / "file" / "report.html", [], FIRST)


# charts

TIMES = [FIRST + timedelta(minutes=minute) for minute in range(4)]


@pytest.mark.parametrize(
    "chart",
    [
        charts.bars(NASTY, [(NASTY, 3), ("b", 0)]),
        charts.bars("none", []),
        charts.stacked("columns", TIMES, 60, {NASTY: [1, 2, 0, 4], "b": [0, None, 3, 4]}),
        charts.stacked("none", [], 60, {}),
        charts.lines("lines", TIMES, {"p50": [0.1, None, 0.2, 0.3], NASTY: [None, None, None, 9e9]}, unit=" s"),
        charts.lines("one", TIMES[:1], {"p50": [5]}),
        charts.lines("none", [], {}),
    ],
)
def test_charts_are_xml_and_say_what_they_are(chart: str) -> None:
    root = ElementTree.fromstring(f"<figure>{chart}</figure>")  # noqa: S314 (it was just drawn)
    (svg,) = root.findall("svg")
    assert (svg.find("title") is not None, svg.find("desc") is not None) == (True, True)
    assert "nan" not in str(chart)
    for share in re.findall(r'"([\d.-]+)%"', str(chart)):
        assert 0 <= float(share) <= 100


def test_columns_stand_on_each_other() -> None:
    chart = charts.stacked("columns", TIMES[:1], 60, {"a": [30], "b": [10]})
    svg = ElementTree.fromstring(f"<figure>{chart}</figure>").find("svg")  # noqa: S314
    assert svg is not None
    one, other = (
        {name: float(r.get(name, "nan").rstrip("%")) for name in ("y", "height")} for r in svg.findall("rect")
    )
    assert one["height"] == pytest.approx(3 * other["height"])
    assert other["y"] + other["height"] == pytest.approx(one["y"])


def test_report_values_have_units_and_separators() -> None:
    assert [number(value) for value in (0, 1234, 12.5, 0.25, 1234.56)] == ["0", "1,234", "12.5", "0.25", "1,234.6"]
    assert [duration(value) for value in (0, 0.35, 1, 119, 240, 11_520, 432_000)] == [
        "0 s",
        "350 ms",
        "1 s",
        "119 s",
        "4 min",
        "3.2 h",
        "5 d",
    ]
    assert [cell(None, "number"), cell(0.5, "share"), cell(FIRST, "any"), cell("x", "any"), cell(7, "any")] == [
        "-",
        "50.00%",
        "2030-01-31 12:00:00",
        "x",
        "7",
    ]
