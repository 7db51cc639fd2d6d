"""Compare this checkout with an older one: `python -m benchmarks.compare OLDER --only embedded --pairs 5`.

OLDER is another checkout with an environment of its own (`make venv` there). Both run the same tables in turn, so that
a slow moment of the machine hits both. The table shows the median of each row's ratios, worst first.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

from rich.console import Console
from rich.table import Table

Key = tuple[str, str, str]
Figures = dict[Key, tuple[float, str]]
LESS_IS_BETTER = frozenset({"ms", "us", "s", "MB", "MiB", "bytes"})


def figures(rows: list[dict[str, object]]) -> Figures:
    """The measured rows of a `bench.json`, with their units."""
    return {
        (str(row["table"]), str(row["row"]), str(row["metric"])): (float(str(row["value"])), str(row["unit"]))
        for row in rows
        if row["value"] is not None
    }


def gains(before: Figures, after: Figures) -> dict[Key, float]:
    """How much better each row is: 1.05 is 5 % better, 0.95 is 5 % worse."""
    found = {}
    for key in before.keys() & after.keys():
        (old, unit), (new, _) = before[key], after[key]
        if old and new:
            found[key] = old / new if unit in LESS_IS_BETTER else new / old
    return found


def medians(pairs: list[dict[Key, float]]) -> list[tuple[Key, float, list[float]]]:
    """Each row's median and its single ratios, worst first."""
    keys = set().union(*pairs)
    listed = [(key, [pair[key] for pair in pairs if key in pair]) for key in keys]
    return sorted(((key, statistics.median(some), some) for key, some in listed), key=lambda entry: entry[1])


def measure(checkout: Path, only: str, out: Path) -> Figures:
    command = [
        str(checkout / ".venv" / "bin" / "python"),
        "-m",
        "benchmarks",
        "--quick",
        "--only",
        only,
        "--out",
        str(out),
    ]
    subprocess.run(command, cwd=checkout, check=True, stdout=subprocess.DEVNULL)
    return figures(json.loads(out.read_text()))


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.compare", description=__doc__)
    parser.add_argument("older", type=Path, help="the other checkout")
    parser.add_argument("--only", default="embedded", help="tables, as for python -m benchmarks")
    parser.add_argument("--pairs", type=int, default=5)
    options = parser.parse_args()
    here = Path(__file__).resolve().parent.parent
    pairs = []
    with tempfile.TemporaryDirectory() as folder:
        for number in range(options.pairs):
            # Turn about: whatever runs second finds the machine warmer.
            order = (options.older, here) if number % 2 == 0 else (here, options.older)
            found = {
                checkout: measure(checkout.resolve(), options.only, Path(folder, "bench.json")) for checkout in order
            }
            pairs.append(gains(found[options.older], found[here]))
            print(f"pair {number + 1} of {options.pairs}", file=sys.stderr, flush=True)
    table = Table(title=f"{options.only}: this checkout against {options.older.name}, medians of {options.pairs} pairs")
    for head in ("table", "row", "metric", "ratio", "single ratios"):
        table.add_column(head, justify="right" if head == "ratio" else "left")
    for (name, row, metric), median, single in medians(pairs):
        table.add_row(name, row, metric, f"{median:.3f}", " ".join(f"{one:.2f}" for one in sorted(single)))
    Console(width=None if sys.stdout.isatty() else 160).print(table)
    return 0


if __name__ == "__main__":
    sys.exit(main())
