"""`ackwise demo`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from ackwise.demo.run import run


def demo(
    messages: Annotated[int, typer.Option("--messages", min=1, help="How many orders.")] = 50_000,
    seed: Annotated[int, typer.Option("--seed", help="Which orders are poison.")] = 1,
    out: Annotated[Path, typer.Option("--out", help="Folder of the report.")] = Path("build/demo"),
) -> None:
    """Push, fail, retry and settle a pile of orders."""
    run(messages, seed, out)
