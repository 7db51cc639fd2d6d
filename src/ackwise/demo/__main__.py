"""`python -m ackwise.demo`."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from ackwise.core.errors import MissingExtra
from ackwise.core.extras import needed
from ackwise.demo.orders import MESSAGES


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="ackwise demo", description="Run a Spark pipeline over generated orders.")
    parser.add_argument("--messages", type=int, default=MESSAGES, help=f"number of orders (default {MESSAGES})")
    parser.add_argument("--seed", type=int, default=1, help="seed that decides which orders fail")
    parser.add_argument("--out", type=Path, default=Path("build/demo"), help="folder for the report")
    options = parser.parse_args(arguments)
    if options.messages < 1:
        parser.error("--messages must be at least 1")
    try:
        with needed("spark", "the demo"):
            from ackwise.demo.run import run

            run(options.messages, options.seed, options.out)
    except MissingExtra as problem:
        sys.exit(f"ackwise: {problem.message}")


if __name__ == "__main__":
    main()
