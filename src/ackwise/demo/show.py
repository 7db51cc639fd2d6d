"""How the demo looks: a progress bar, two tables, a page."""

from __future__ import annotations

from dataclasses import dataclass
from html import escape
from pathlib import Path
from types import TracebackType

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, TextColumn
from rich.progress import Progress as Bars
from rich.table import Table


@dataclass(frozen=True, slots=True)
class Report:
    """What came out."""

    seconds: float
    pushed: int
    acked: int
    dead: int
    retried: int
    unfinished: int
    outputs: int
    partitions: int
    errors: list[tuple[str, str, str, int, int]]
    """Dead letters by (reason, error type, error, deliveries), with their count."""

    def outcomes(self) -> list[tuple[str, int]]:
        return [
            ("pushed", self.pushed),
            ("acked", self.acked),
            ("dead-lettered", self.dead),
            ("unfinished", self.unfinished),
            ("retries on the way", self.retried),
            ("results pushed with their ack", self.outputs),
        ]


ERROR_COLUMNS = ("reason", "error type", "error", "deliveries", "messages")


class Progress:
    """A bar on a terminal, a line every fifth of the way elsewhere."""

    def __init__(self, total: int) -> None:
        self._total, self._said = total, 0
        console = Console()
        self._bars = Bars(TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), console=console)
        self._live = console.is_terminal
        self._tasks = [self._bars.add_task(name, total=total) for name in ("pushed ", "settled")]

    def __enter__(self) -> Progress:
        if self._live:
            self._bars.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, problem: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._live:
            self._bars.stop()

    def show(self, pushed: int, settled: int) -> None:
        for task, count in zip(self._tasks, (pushed, settled), strict=True):
            self._bars.update(task, completed=count)
        fifth = 5 * settled // self._total
        if not self._live and fifth > self._said:
            self._said = fifth
            print(f"pushed {pushed:,}, settled {settled:,} of {self._total:,}", flush=True)


def print_report(report: Report, path: Path) -> None:
    console = Console()
    outcomes = Table("outcome", "messages", title=f"{report.partitions} partitions, {report.seconds:.1f} s")
    for name, count in report.outcomes():
        outcomes.add_row(name, f"{count:,}")
    outcomes.columns[1].justify = "right"
    console.print(outcomes)
    errors = Table(*ERROR_COLUMNS, title="dead letters by error")
    for row in report.errors:
        errors.add_row(*map(str, row))
    for column in errors.columns[3:]:
        column.justify = "right"
    console.print(errors)
    console.print(f"report: {path}", highlight=False, soft_wrap=True)


def write_html(report: Report, path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    outcomes = _table(("outcome", "messages"), [(name, f"{count:,}") for name, count in report.outcomes()])
    errors = _table(ERROR_COLUMNS, [tuple(map(str, row)) for row in report.errors])
    path.write_text(
        f"""<!doctype html>
<html lang="en"><meta charset="utf-8"><title>Ackwise demo</title>
<style>
body {{ font: 16px/1.5 system-ui, sans-serif; max-width: 56rem; margin: 2rem auto; padding: 0 1rem }}
table {{ border-collapse: collapse; margin: 1rem 0 }} th, td {{ padding: .3rem .8rem; border-bottom: 1px solid #ccc }}
th {{ text-align: left }} td:last-child {{ text-align: right; font-variant-numeric: tabular-nums }}
</style>
<h1>Ackwise demo</h1>
<p>{report.pushed:,} orders over {report.partitions} partitions, settled in {report.seconds:.1f} seconds.
Every order ended in exactly one settlement: pushed = acked + dead-lettered + unfinished.</p>
<h2>Outcomes</h2>{outcomes}
<h2>Dead letters by error</h2>{errors}
</html>
""",
        encoding="utf-8",
    )


def _table(columns: tuple[str, ...], rows: list[tuple[str, ...]]) -> str:
    head = "".join(f"<th>{escape(column)}</th>" for column in columns)
    body = "".join("<tr>" + "".join(f"<td>{escape(cell)}</td>" for cell in row) + "</tr>" for row in rows)
    return f"<table><tr>{head}</tr>{body}</table>"
