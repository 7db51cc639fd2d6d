"""Inline SVG charts of reports and of the dashboard.

A chart has no style of its own: classes give its colours, so a page with a strict content security policy may show it.
Each chart has a title and a description for screen readers. A table beside it has the numbers.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from itertools import pairwise
from zlib import crc32

from markupsafe import Markup

from ackwise.wire.number_format import number as number_of

COLOURS = 8
"""Number of colours in the pages' style: `c0`, `c1`, … for areas, `l0`, `l1`, … for lines."""
_LEFT, _WIDTH = 9.0, 90.0
"""Left edge and width of a plot over time, in percent."""
_TOP, _HEIGHT = 12, 180
_ROW, _BAR = 36, 12
_LONGEST_BAR = 88.0
_SPARK = 28
"""Height of a small chart."""

Series = Mapping[str, Sequence[float | None]]


def bars(title: str, rows: Sequence[tuple[str, float]], *, longest: int = 70) -> Markup:
    """Bar chart: one bar per row, with its label above."""
    most = max((value for _, value in rows), default=0) or 1
    shapes = []
    for number, (label, value) in enumerate(rows):
        y, share = number * _ROW, f"{_LONGEST_BAR * value / most:.2f}%"
        shapes += [
            _tag(
                "g",
                _tag("title", f"{label}: {number_of(value)}"),
                _tag("text", _short(label, longest), x=0, y=y + 13, class_="label"),
                _tag("rect", x=0, y=y + 18, width=share, height=_BAR, rx=2, class_="c0"),
                _tag("text", number_of(value), x=share, dx=6, y=y + 16 + _BAR, class_="value"),
            )
        ]
    what = f"{len(rows)} bars; the longest is {number_of(most)}." if rows else "Nothing to show."
    return _chart(title, what, max(1, len(rows)) * _ROW, shapes)


def stacked(title: str, starts: Sequence[datetime], step: float, series: Series) -> Markup:
    """Stacked column chart: one column per time step."""
    totals = [sum(values[at] or 0 for values in series.values()) for at in range(len(starts))]
    most = max(totals, default=0)
    top = _nice(most)
    shapes = [*_grid(top), *_times(starts, step)]
    width = _WIDTH / max(1, len(starts))
    for at, start in enumerate(starts):
        below = 0.0
        for number, (name, values) in enumerate(series.items()):
            value = values[at] or 0
            if value:
                shapes.append(
                    _tag(
                        "rect",
                        _tag("title", f"{_spelled(start)} {name}: {number_of(value)}"),
                        x=f"{_LEFT + width * (at + 0.05):.2f}%",
                        y=_y(below + value, top),
                        width=f"{width * 0.9:.2f}%",
                        height=round(_y(below, top) - _y(below + value, top), 2),
                        class_=f"c{number % COLOURS}",
                    )
                )
                below += value
    what = f"{len(starts)} columns over time, stacked by {', '.join(series)}; the highest is {number_of(most)}."
    return _chart(title, what, _TOP + _HEIGHT + 24, shapes) + _legend(series, "c")


def timeline(
    title: str,
    starts: Sequence[datetime],
    step: float,
    series: Series,
    *,
    line: tuple[str, Sequence[float]] | None = None,
    colours: Sequence[int] = range(COLOURS),
    height: int = 160,
) -> Markup:
    """Stacked column chart for a page that is fetched often: one path per series, and one tooltip per column.

    `line` is a further series, which is drawn as a line of steps over the columns. `colours` are the numbers of the
    colours, of the line last.
    """
    named = dict(series) if line is None else {**series, line[0]: line[1]}
    columns = _columns(series, len(starts))
    tops = [*map(sum, columns), *(line[1] if line is not None else ())]
    top = _nice(max(tops, default=0))
    plot = [
        _tag("path", d=_rectangles(columns, number, height, top), class_=f"c{colours[number % len(colours)]}")
        for number in range(len(series))
    ]
    if line is not None:
        colour = f"l{colours[len(series) % len(colours)]}"
        plot.append(_tag("path", d=_steps(line[1], height, top), class_=colour, vector_effect="non-scaling-stroke"))
    plot += [
        _tag("rect", _tag("title", _tip(start, at, named)), x=at, y=0, width=1, height=height, class_="tip")
        for at, start in enumerate(starts)
    ]
    view = {"viewBox": f"0 0 {max(1, len(starts))} {height}", "preserveAspectRatio": "none"}
    inner = _tag("svg", *plot, **view, x=f"{_LEFT}%", y=_TOP, width=f"{_WIDTH}%", height=height)
    what = f"{len(starts)} columns over time for {', '.join(named)}; the highest is {number_of(max(tops, default=0))}."
    shapes = [*_grid(top, height), inner, *_times(starts, step, height)]
    legend = _legend(named, "c", lines=() if line is None else (line[0],), colours=colours)
    return _chart(title, what, _TOP + height + 24, shapes) + legend


def _columns(series: Series, count: int) -> list[tuple[float, ...]]:
    """The values of each column. A missing value is 0."""
    rows = [[value or 0 for value in values] for values in series.values()]
    return list(zip(*rows, strict=True)) if rows else [()] * count


def _rectangles(columns: Sequence[Sequence[float]], number: int, height: int, top: float) -> str:
    """Outline of one series of a timeline: a rectangle per column, above the earlier series."""
    pieces = []
    for at, column in enumerate(columns):
        if value := column[number]:
            bottom = height * (1 - sum(column[:number]) / top)
            pieces.append(f"M{at + 0.08:.2f} {bottom:.2f}h.84v{-height * value / top:.2f}h-.84z")
    return "".join(pieces)


def _steps(values: Sequence[float], height: int, top: float) -> str:
    """Line over the columns of a timeline, horizontal within a column."""
    heights = [f"{height * (1 - value / top):.2f}" for value in values]
    return f"M0 {heights[0]}" + "".join(f"V{y}H{at + 1}" for at, y in enumerate(heights)) if heights else ""


def _tip(start: datetime, at: int, series: Series) -> str:
    """Text of one column: its start and its counts."""
    counted = [f"{name}: {number_of(value)}" for name, values in series.items() if (value := values[at])]
    return f"{_spelled(start)} {', '.join(counted) or 'nothing'}"


def lines(title: str, times: Sequence[datetime], series: Series, *, unit: str = "") -> Markup:
    """Line chart: one line per series, with a gap for a missing value."""
    most = max((value for values in series.values() for value in values if value is not None), default=0)
    top = _nice(most)
    shapes = [*_grid(top), *_times(times, 0)]
    for number, (name, values) in enumerate(series.items()):
        spots = [
            None if value is None else (f"{_x(time, times):.2f}%", _y(value, top))
            for time, value in zip(times, values, strict=True)
        ]
        for start, end in pairwise(spots):
            if start is not None and end is not None:
                shapes.append(
                    _tag("line", x1=start[0], y1=start[1], x2=end[0], y2=end[1], class_=f"l{number % COLOURS}")
                )
        for time, value, spot in zip(times, values, spots, strict=True):
            if spot is not None and value is not None:
                tooltip = _tag("title", f"{_spelled(time)} {name}: {number_of(value)}{unit}")
                shapes.append(_tag("circle", tooltip, cx=spot[0], cy=spot[1], r=2.5, class_=f"c{number % COLOURS}"))
    what = f"{len(times)} points over time for {', '.join(series)}; the highest is {number_of(most)}{unit}."
    return _chart(title, what, _TOP + _HEIGHT + 24, shapes) + _legend(series, "l")


def spark(title: str, values: Sequence[float]) -> Markup:
    """Small column chart for a cell of a table: no axes, and its numbers in the title."""
    most = max(values, default=0) or 1
    path = "".join(
        f"M{at + 0.1:.1f} {_SPARK}h.8v{-max(1.0, _SPARK * value / most):.2f}h-.8z"
        for at, value in enumerate(values)
        if value
    )
    shapes = (_tag("title", f"{title}; most in one column: {number_of(most)}"), _tag("path", d=path, class_="c0"))
    view = f"0 0 {max(1, len(values))} {_SPARK}"
    return _tag(
        "svg", *shapes, class_="spark", role="img", width=120, height=_SPARK, viewBox=view, preserveAspectRatio="none"
    )


def _tag(name: str, *inside: Markup | str, **attributes: object) -> Markup:
    """SVG element. Escapes all texts and values."""
    given = Markup().join(
        Markup(' {}="{}"').format(key.rstrip("_").replace("_", "-"), value) for key, value in attributes.items()
    )
    return Markup("<{}{}>{}</{}>").format(Markup(name), given, Markup().join(inside), Markup(name))  # noqa: S704


def _chart(title: str, description: str, height: int, shapes: Iterable[Markup]) -> Markup:
    id = f"chart-{crc32(title.encode()):08x}"
    texts = (_tag("title", title, id=f"{id}-title"), _tag("desc", description, id=f"{id}-desc"))
    labelled = f"{id}-title {id}-desc"
    return _tag(
        "svg", *texts, *shapes, class_="chart", role="img", aria_labelledby=labelled, width="100%", height=height
    )


def _legend(series: Series, kind: str, lines: Collection[str] = (), colours: Sequence[int] = range(COLOURS)) -> Markup:
    """Names of the series with their colours. Those in `lines` are lines, whatever the kind of the others."""
    items = []
    for number, name in enumerate(series):
        shown = "l" if name in lines else kind
        mark = {"class_": f"{shown}{colours[number % len(colours)]}"}
        shape = (
            _tag("line", x1=0, y1=6, x2=22, y2=6, **mark) if shown == "l" else _tag("rect", width=22, height=12, **mark)
        )
        items.append(_tag("li", _tag("svg", shape, width=22, height=12, aria_hidden="true"), " ", name))
    return _tag("ul", *items, class_="legend")


def _grid(top: float, height: int = _HEIGHT) -> list[Markup]:
    """Horizontal grid lines with their values."""
    shapes = []
    for value in (0, top / 4, top / 2, top * 3 / 4, top):
        y = _y(value, top, height)
        shapes.append(_tag("line", x1=f"{_LEFT}%", x2=f"{_LEFT + _WIDTH}%", y1=y, y2=y, class_="grid"))
        shapes.append(_tag("text", _tick(value), x=f"{_LEFT - 1}%", y=y + 4, text_anchor="end", class_="tick"))
    return shapes


def _times(times: Sequence[datetime], step: float, height: int = _HEIGHT) -> list[Markup]:
    """Four labels of the time axis."""
    if not times:
        return []
    span = times[-1] + timedelta(seconds=step) - times[0]
    form = (
        "%m-%d" if span > timedelta(days=4)
        else "%m-%d %H:%M" if span > timedelta(hours=20)
        else "%H:%M" if span > timedelta(minutes=5)
        else "%H:%M:%S"
    )  # fmt: skip
    places = ((0, "start"), (1, "middle"), (2, "middle"), (3, "end")) if span else ((1.5, "middle"),)
    return [
        _tag(
            "text",
            (times[0] + span * third / 3).strftime(form),
            x=f"{_LEFT + _WIDTH * third / 3:.2f}%",
            y=_TOP + height + 18,
            text_anchor=anchor,
            class_="tick",
        )
        for third, anchor in places
    ]


def _x(time: datetime, times: Sequence[datetime]) -> float:
    span = times[-1] - times[0]
    return _LEFT + _WIDTH * ((time - times[0]) / span if span else 0.5)


def _y(value: float, top: float, height: int = _HEIGHT) -> float:
    return round(_TOP + height * (1 - value / top), 2)


def _nice(most: float) -> float:
    """Upper end of an axis: the next 1, 2, 4, 6, 8 or 10 times a power of ten."""
    if most <= 0:
        return 1.0
    power = 10.0 ** math.floor(math.log10(most))
    return next(step * power for step in (1, 2, 4, 6, 8, 10) if most <= step * power * 1.000001)


def _tick(value: float) -> str:
    """Short text of a grid value: 1.5k, 20M."""
    for size, letter in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if value >= size:
            return f"{value / size:.3g}{letter}"
    return f"{value:.3g}"


def _short(text: str, longest: int) -> str:
    return text if len(text) <= longest else text[: longest - 1] + "…"


def _spelled(time: datetime) -> str:
    return time.strftime("%Y-%m-%d %H:%M:%S")
