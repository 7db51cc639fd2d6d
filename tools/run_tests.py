"""Run the linters and all tests in parallel, with three workers. A skip needs its reason in tests/allowed_skips.txt.

Usage: python -m tools.run_tests [--no-lint] [pytest arguments]
"""

import argparse
import os
import subprocess
import sys
from collections import Counter, defaultdict
from pathlib import Path

import pytest

from tools.scratch import temporary_files_in_memory

ROOT = Path(__file__).resolve().parent.parent
BYTECODE = ROOT / "build" / "pycache"
WORKERS = "3"
"""On two cores: tests wait for disks, servers and other processes a third of their time."""
ALLOWED_SKIPS = ROOT / "tests" / "allowed_skips.txt"


class Ledger:
    """Adds up the time of each test folder and remembers the skips that are not allowed."""

    def __init__(self, allowed: tuple[str, ...]) -> None:
        self.allowed = allowed
        self.seconds: defaultdict[str, float] = defaultdict(float)
        self.tests: Counter[str] = Counter()
        self.unlisted: set[str] = set()

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        folder = "/".join(Path(report.nodeid.split("::")[0]).parent.parts[:2])
        self.seconds[folder] += report.duration
        self.tests[folder] += report.when == "setup"
        self.note_skip(report)

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        self.note_skip(report)

    def note_skip(self, report: pytest.TestReport | pytest.CollectReport) -> None:
        if report.skipped and not report.nodeid.startswith(self.allowed):
            self.unlisted.add(report.nodeid)

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        terminalreporter.section("minutes per folder")
        for folder, seconds in sorted(self.seconds.items()):
            terminalreporter.line(f"{seconds / 60:7.2f} min  {self.tests[folder]:5d} tests  {folder}")
        for nodeid in sorted(self.unlisted):
            terminalreporter.line(f"SKIP NOT ALLOWED {nodeid}: give its reason in {ALLOWED_SKIPS.relative_to(ROOT)}")


def allowed_skips(text: str) -> tuple[str, ...]:
    """The node id prefixes of `nodeid-prefix: reason` lines."""
    prefixes = []
    for line in text.splitlines():
        if not line.strip() or line.startswith("#"):
            continue
        prefix, _, reason = line.partition(": ")
        if not prefix.strip() or not reason.strip():
            raise SystemExit(f"{ALLOWED_SKIPS.relative_to(ROOT)}: no reason in {line!r}")
        prefixes.append(prefix.strip())
    return tuple(prefixes)


def keep_bytecode() -> None:
    """Keep compiled modules, also where the environment forbids it. Else each process compiles all that it imports."""
    if sys.dont_write_bytecode:
        sys.dont_write_bytecode, sys.pycache_prefix = False, str(BYTECODE)
        os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
        os.environ["PYTHONPYCACHEPREFIX"] = str(BYTECODE)


def main() -> int:
    parser = argparse.ArgumentParser(description="Lint, and run the tests.", allow_abbrev=False)
    parser.add_argument("--no-lint", action="store_true", help="run the tests only")
    options, pytest_arguments = parser.parse_known_args()
    os.chdir(ROOT)
    ledger = Ledger(allowed_skips(ALLOWED_SKIPS.read_text()))
    keep_bytecode()
    linting = None if options.no_lint else subprocess.Popen([sys.executable, "tools/lint.py"])
    with temporary_files_in_memory():
        code = int(pytest.main(["-n", WORKERS, "--dist", "worksteal", *pytest_arguments], plugins=[ledger]))
    linted = 0 if linting is None else linting.wait()
    if linted:
        print("the linters found something: see above, or run make lint")
    return code or linted or int(bool(ledger.unlisted))


if __name__ == "__main__":
    sys.exit(main())
