"""Runs the tests while busy loops occupy every core: tests must wait for events, not for an amount of time.

Usage: tools/busy_tests.py [--loops-per-core N] [pytest arguments]
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
LOOP = "while True: pass"
TIMEOUT = "900"
"""Seconds for one test: the machine is slow on purpose."""


@contextmanager
def busy_loops(count: int) -> Iterator[list[subprocess.Popen[bytes]]]:
    """Keeps `count` processes busy while the block runs."""
    loops = [subprocess.Popen([sys.executable, "-c", LOOP]) for _ in range(count)]
    try:
        yield loops
    finally:
        for loop in loops:
            loop.kill()
        for loop in loops:
            loop.wait()


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description="Run the tests on a busy machine.", allow_abbrev=False)
    parser.add_argument(
        "--loops-per-core", type=int, default=2, metavar="N", help="busy processes per core (default: 2)"
    )
    options, pytest_arguments = parser.parse_known_args(arguments)
    with busy_loops(options.loops_per_core * (os.cpu_count() or 1)):
        command = [sys.executable, "-m", "tools.run_tests", "--no-lint", "--timeout", TIMEOUT, *pytest_arguments]
        return subprocess.run(command, cwd=ROOT, check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
