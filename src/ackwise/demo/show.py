"""How the demo looks: two tables and where the page is."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from rich.console import Console
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
    errors: list[tuple[str, str, int]]
    """Dead letters by (reason, error), with their count."""

    def outcomes(self) -> list[tuple[str, int]]:
        return [
            ("pushed", self.pushed),
            ("acked", self.acked),
            ("dead-lettered", self.dead),
            ("unfinished", self.unfinished),
            ("retries on the way", self.retried),
            ("results pushed with their ack", self.outputs),
        ]


def print_report(report: Report, path: Path) -> None:
    console = Console()
    outcomes = Table("outcome", "messages", title=f"{report.partitions} partitions, {report.seconds:.1f} s")
    for name, count in report.outcomes():
        outcomes.add_row(name, f"{count:,}")
    outcomes.columns[1].justify = "right"
    console.print(outcomes)
    errors = Table("reason", "error", "messages", title="dead letters by error")
    for reason, error, count in report.errors:
        errors.add_row(reason, error, f"{count:,}")
    errors.columns[2].justify = "right"
    console.print(errors)
    console.print(f"report: {path}", highlight=False, soft_wrap=True)
