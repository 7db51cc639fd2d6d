"""Progress on stderr: a bar on a terminal, lines elsewhere."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from types import TracebackType
from typing import TYPE_CHECKING

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeElapsedColumn
from rich.progress import Progress as Bars

if TYPE_CHECKING:
    from pyspark import StatusTracker
    from pyspark.sql import SparkSession

SECONDS_BETWEEN_LINES = 5.0
SECONDS_BETWEEN_LOOKS = 0.2
_ALWAYS_SAID = ("acked", "retried", "dead")


@contextlib.contextmanager
def batch_progress(spark: SparkSession, label: str, console: Console | None = None) -> Iterator[None]:
    """Shows a bar of Spark's tasks, and removes it at the end."""
    console = console or Console(stderr=True)
    if not console.is_interactive:
        yield
        return
    tasks = Tasks(spark.sparkContext.statusTracker())
    over = threading.Event()
    with Bars(
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("tasks"),
        TimeElapsedColumn(),
        console=console,
        transient=True,
    ) as bars:
        bar = bars.add_task(label, total=None)

        def look() -> None:
            while not over.wait(SECONDS_BETWEEN_LOOKS):
                done, total = tasks.count()
                bars.update(bar, completed=done, total=total or None)

        looking = threading.Thread(target=look, name="ackwise-progress", daemon=True)
        looking.start()
        try:
            yield
        finally:
            over.set()
            looking.join()


class Tasks:
    """Counts the tasks of all stages that were seen running. Spark forgets finished stages."""

    def __init__(self, tracker: StatusTracker) -> None:
        self._tracker = tracker
        self._stages: dict[int, tuple[int, int]] = {}

    def count(self) -> tuple[int, int]:
        """Number of finished tasks, and of all tasks."""
        active = set(self._tracker.getActiveStageIds())
        self._stages = {stage: (total, total) for stage, (_, total) in self._stages.items()}
        for stage in active:
            if (info := self._tracker.getStageInfo(stage)) is not None:
                self._stages[stage] = (info.numCompletedTasks, info.numTasks)
        return sum(done for done, _ in self._stages.values()), sum(total for _, total in self._stages.values())


class StreamProgress:
    """Shows the settled rows of a stream, their outcomes and the lag."""

    def __init__(self, label: str, console: Console | None = None, clock: Callable[[], float] = time.monotonic) -> None:
        self._label, self._clock = label, clock
        self._console = console or Console(stderr=True)
        self._started = clock()
        self._said: float | None = None
        self._bars = Bars(
            TextColumn("{task.description}", markup=False),
            BarColumn(),
            MofNCompleteColumn(),
            TextColumn("{task.fields[outcomes]}"),
            TimeElapsedColumn(),
            console=self._console,
        )
        self._bar = self._bars.add_task(label, total=None, outcomes="")

    def __enter__(self) -> StreamProgress:
        if self._console.is_interactive:
            self._bars.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, problem: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._console.is_interactive:
            self._bars.stop()

    def update(self, rows: int, outcomes: Mapping[str, int], lag: int | None, done: bool = False) -> None:
        """Show `rows` settled rows with `outcomes`, and `lag` unfinished ones (None: unknown)."""
        total = None if lag is None else rows + lag
        counts = _counts(outcomes, lag)
        self._bars.update(self._bar, completed=rows, total=total, outcomes=counts)
        if not self._console.is_interactive:
            self._say(rows, total, counts, done)

    def _say(self, rows: int, total: int | None, counts: str, done: bool) -> None:
        now = self._clock()
        if not done and self._said is not None and now - self._said < SECONDS_BETWEEN_LINES:
            return
        self._said = now
        of = "" if total is None or done else f" of {total:,}"
        took = f" in {now - self._started:.1f} s" if done else ""
        self._console.print(
            f"{self._label}: {rows:,}{of} rows{took}, {counts}", highlight=False, markup=False, soft_wrap=True
        )


def _counts(outcomes: Mapping[str, int], lag: int | None) -> str:
    shown = {**dict.fromkeys(_ALWAYS_SAID, 0), **outcomes}
    counts = [f"{name} {count:,}" for name, count in shown.items() if count or name in _ALWAYS_SAID]
    return ", ".join(counts if lag is None else [*counts, f"lag {lag:,}"])
