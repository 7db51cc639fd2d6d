"""`ackwise demo`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from ackwise.demo.run import MESSAGES, run


def demo(
    messages: Annotated[int, typer.Option("--messages", min=1, help="How many orders.")] = MESSAGES,
    seed: Annotated[int, typer.Option("--seed", help="Which orders are poison.")] = 1,
    out: Annotated[Path, typer.Option("--out", help="Folder of the report.")] = Path("build/demo"),
) -> None:
    """A Spark pipeline over a pile of orders, some of them poison, and a report of its dead letters."""
    run(messages, seed, out)
