"""Rules for the files of the tests."""

from __future__ import annotations

import re
from pathlib import Path

TESTS = Path(__file__).parent.parent
SOURCE = TESTS.parent / "src" / "ackwise"
INNER = ("broker", "client", "core", "engine", "graph", "server", "store", "wire")
RUNS_AGAIN = {"subscriber/test_postgres.py"}
"""Modules that run tests of other modules again, on another store."""


def test_no_test_module_imports_another_one() -> None:
    """Helpers belong to modules without `test_` in their names."""
    importing = re.compile(r"^\s*(from tests[.\w]*\.test_\w+ import|from tests[.\w]* import .*\btest_)", re.MULTILINE)
    modules = [path for path in TESTS.rglob("*.py") if importing.search(path.read_text())]
    assert {str(path.relative_to(TESTS)) for path in modules} == RUNS_AGAIN


def test_package_has_a_folder_of_tests_with_its_name() -> None:
    protocols = [f"protocols/{path.parent.name}" for path in SOURCE.glob("protocols/*/__init__.py")]
    assert "protocols/native" in protocols
    for package in (*INNER, *protocols):
        assert (SOURCE / package / "__init__.py").exists(), package
        assert list((TESTS / package).glob("test_*.py")), package
