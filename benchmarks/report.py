"""Rows of measurements, printed as tables and written to build/bench.json."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path

from rich.console import Console
from rich.table import Table


@dataclass(frozen=True)
class Row:
    """One figure; `ratio` compares it with `versus`, measured in the same run."""

    table: str
    row: str
    metric: str
    value: float
    unit: str
    versus: str = ""
    ratio: float | None = None


class Report:
    """Collects rows; `aim` says what a ratio should reach."""

    def __init__(self) -> None:
        self.rows: list[Row] = []
        self._aims: dict[tuple[str, str], str] = {}

    def add(
        self,
        table: str,
        row: str,
        value: float,
        unit: str = "msg/s",
        *,
        metric: str = "rate",
        versus: str = "",
        base: float | None = None,
        aim: str = "",
    ) -> None:
        ratio = value / base if base else None
        self.rows.append(Row(table, row, metric, value, unit, versus, ratio))
        if aim:
            self._aims[table, row] = aim

    def show(self, console: Console) -> None:
        for name in dict.fromkeys(row.table for row in self.rows):
            table = Table(title=name, title_justify="left")
            for head in ("", "value", "unit", "versus", "ratio", "aim"):
                table.add_column(head, justify="right" if head in ("value", "ratio") else "left")
            for row in self.rows:
                if row.table == name:
                    ratio = "" if row.ratio is None else f"{row.ratio:.2f}"
                    aim = self._aims.get((name, row.row), "")
                    table.add_row(row.row, f"{row.value:,.0f}", row.unit, row.versus, ratio, aim)
            console.print(table)

    def write(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps([asdict(row) for row in self.rows], indent=1))
