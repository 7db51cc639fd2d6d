"""The records of a pipeline that is broken on purpose: good ones, poison of four kinds, and a few that break the task
around them the first time they are met."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from ackwise import Item, Reject, Retry

QUEUE, GROUP, OUTPUT = "orders", "billing", "invoices"
RETRY_LIMIT = 3
RETURNS = "order long, cents long"
PARTITIONS = 8

POISON = ("raises", "rejects", "exits", "later")
BREAKS = ("kill", "interrupt", "orphan")
_LATER = 0.05


def kind_of(order: int) -> str:
    """One in a hundred is poison."""
    return POISON[order // 100 % len(POISON)] if order % 100 == 37 else "good"


def partition_of(order: int) -> str:
    return f"p{order % PARTITIONS}"


def items(count: int, break_every: int) -> Iterator[Item]:
    """All records; one in `break_every` breaks something. An odd number spreads these over the partitions: a task that
    fails four times ends the pipeline."""
    for order in range(count):
        number, rest = divmod(order, break_every)
        breaks = BREAKS[number % len(BREAKS)] if rest == break_every // 2 else None
        payload = {"order": order, "kind": kind_of(order), "breaks": breaks, "note": "x" * 120}
        yield Item(payload=payload, partition=partition_of(order), transaction_id=f"order-{order}")


class Bill:
    """The pipeline's function. `folder` is where it notes what it broke, so that nothing is broken twice."""

    def __init__(self, folder: str) -> None:
        self._folder = folder

    def __call__(self, order: dict[str, Any]) -> dict[str, int]:
        number: int = order["order"]
        if order["breaks"] is not None:
            self._break(order["breaks"], number)
        match order["kind"]:
            case "raises":
                raise ValueError(f"order {number} has no customer")
            case "rejects":
                raise Reject(f"order {number} is forged")
            case "exits":
                os._exit(3)
            case "later":
                raise Retry(delay=_LATER, error=f"order {number} is too early")
        return {"order": number, "cents": 2 * number}

    def _break(self, what: str, number: int) -> None:
        """This process is a child of Spark's worker, and that one of Spark's daemon."""
        try:
            Path(self._folder, f"{what}-{number}").touch(exist_ok=False)
        except FileExistsError:
            return
        worker = os.getppid()
        if what == "orphan":
            # The worker goes on without its daemon, and Spark starts another daemon for the next.
            os.kill(_parent(worker), signal.SIGKILL)
            return
        os.kill(worker, signal.SIGKILL if what == "kill" else signal.SIGINT)
        signal.pause()


def _parent(pid: int) -> int:
    status = Path(f"/proc/{pid}/status").read_text()
    return next(int(line.split()[1]) for line in status.splitlines() if line.startswith("PPid:"))
