"""Time series as SVG: well formed, described, and without a style of their own."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from xml.etree import ElementTree

import pytest

from ackwise.wire import charts

FIRST = datetime(2030, 1, 31, 12, tzinfo=UTC)
SERIES = {"acked": [1, 2, 0], "dead": [0, 2, 1]}


def timeline(count: int = 3, **options: object) -> ElementTree.Element:
    starts = [FIRST + timedelta(minutes=number) for number in range(count)]
    series = {name: (values * count)[:count] for name, values in SERIES.items()}
    drawn = charts.timeline("Flow <b>", starts, 60, series, **options)  # type: ignore[arg-type]
    return ElementTree.fromstring(f"<div>{drawn}</div>")  # noqa: S314 # our own text


def test_timeline_has_a_title_and_a_description() -> None:
    svg = timeline().find("svg")
    assert svg is not None
    texts = {element.get("id"): element.text for element in svg if element.get("id")}
    labels = [texts[name] for name in svg.attrib["aria-labelledby"].split()]
    assert labels == ["Flow <b>", "3 columns over time for acked, dead; the highest is 4."]


def test_timeline_has_a_path_per_series_and_a_tip_per_column() -> None:
    drawn = timeline(84)
    assert len(drawn.findall(".//path")) == 2
    tips = [tip for tip in drawn.iter("rect") if tip.get("class") == "tip"]
    assert len(tips) == 84
    (title,) = tips[1]
    assert title.text == "2030-01-31 12:01:00 acked: 2, dead: 2"


def test_columns_are_stacked_in_the_order_of_the_series() -> None:
    acked, dead = (path.attrib["d"] for path in timeline(height=100).findall(".//path"))
    assert acked == "M0.08 100.00h.84v-25.00h-.84zM1.08 100.00h.84v-50.00h-.84z"
    assert dead == "M1.08 50.00h.84v-50.00h-.84zM2.08 100.00h.84v-25.00h-.84z"


def test_line_counts_for_the_axis_and_has_a_legend() -> None:
    drawn = timeline(line=("pushed", [40, 0, 0]), colours=(1, 3, 0), height=100)
    paths = drawn.findall(".//path")
    assert [path.attrib["class"] for path in paths] == ["c1", "c3", "l0"]
    assert paths[2].attrib["d"] == "M0 0.00V0.00H1V100.00H2V100.00H3"
    assert [item.find("svg")[0].tag for item in drawn.findall(".//li")] == ["rect", "rect", "line"]  # type: ignore[index]
    assert "".join(drawn.findall(".//li")[2].itertext()).strip() == "pushed"


@pytest.mark.parametrize("count", [0, 1, 60])
def test_timeline_of_any_length_has_no_style(count: int) -> None:
    source = ElementTree.tostring(timeline(count)).decode()
    assert not re.search(r"\sstyle=|<style|nan|inf", source)


def test_timeline_without_series_is_empty() -> None:
    drawn = charts.timeline("Nothing", [FIRST], 60, {})
    assert "the highest is 0" in drawn
