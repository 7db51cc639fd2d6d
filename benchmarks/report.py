"""Rows of measurements, printed as tables and written to build/bench.json."""

from __future__ import annotations

import json
import operator
from dataclasses import asdict, dataclass
from pathlib import Path

from rich.console import Console
from rich.table import Table

NOT_MEASURED = "not measured"
_COMPARE = {">=": operator.ge, "<=": operator.le, "<": operator.lt, "=": operator.eq}


@dataclass(frozen=True)
class Row:
    """One figure. `ratio` compares it with `versus` of the same run. Without a value it was not measured."""

    table: str
    row: str
    metric: str
    value: float | None
    unit: str
    versus: str = ""
    ratio: float | None = None


class Report:
    """Collects rows. `aim` is the target of the ratio, or of the value if there is no ratio."""

    def __init__(self) -> None:
        self.rows: list[Row] = []
        self._aims: dict[tuple[str, str], str] = {}

    def add(
        self,
        table: str,
        row: str,
        value: float | None,
        unit: str = "msg/s",
        *,
        metric: str = "rate",
        versus: str = "",
        base: float | None = None,
        aim: str = "",
    ) -> None:
        ratio = value / base if base and value is not None else None
        self.rows.append(Row(table, row, metric, value, unit, versus, ratio))
        if aim:
            self._aims[table, row] = aim

    def show(self, console: Console) -> None:
        for name in dict.fromkeys(row.table for row in self.rows):
            table = Table(title=name, title_justify="left")
            for head in ("", "value", "unit", "versus", "ratio", "aim", ""):
                table.add_column(head, justify="right" if head in ("value", "ratio") else "left")
            for row in self.rows:
                if row.table == name:
                    aim = self._aims.get((name, row.row), "")
                    ratio = "" if row.ratio is None else f"{row.ratio:.2f}"
                    table.add_row(row.row, shown(row.value), row.unit, row.versus, ratio, aim, verdict(row, aim))
            console.print(table)

    def write(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps([asdict(row) for row in self.rows], indent=1))


def shown(value: float | None) -> str:
    if value is None:
        return NOT_MEASURED
    return f"{value:,.0f}" if value >= 100 or value == int(value) else f"{value:.3g}"


def verdict(row: Row, aim: str) -> str:
    """Whether the aim is met. Empty without an aim or a measurement."""
    reached = row.value if row.ratio is None else row.ratio
    if not aim or reached is None:
        return ""
    how, bound = aim.split()
    return "met" if _COMPARE[how](reached, float(bound)) else "not met"
