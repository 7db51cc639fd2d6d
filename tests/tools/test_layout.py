"""Rules for the files of the tests."""

from __future__ import annotations

import re
from pathlib import Path

TESTS = Path(__file__).parent.parent
RUNS_AGAIN = {"subscriber/test_postgres.py"}
"""Modules that run tests of other modules again, on another store."""


def test_no_test_module_imports_another_one() -> None:
    """Helpers belong to modules without `test_` in their names."""
    importing = re.compile(r"^\s*(from tests[.\w]*\.test_\w+ import|from tests[.\w]* import .*\btest_)", re.MULTILINE)
    modules = [path for path in TESTS.rglob("*.py") if importing.search(path.read_text())]
    assert {str(path.relative_to(TESTS)) for path in modules} == RUNS_AGAIN
