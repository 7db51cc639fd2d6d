"""Files with named statements: two statements with one name are refused."""

from __future__ import annotations

from pathlib import Path

import pytest

from ackwise.store import sql_files

FIRST = "-- name: rows: some rows\nSELECT 1;\n"
SECOND = "-- name: rows: other rows\nSELECT 2;\n"


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A package with three files of statements."""
    folder = tmp_path / "sample_statements"
    folder.mkdir()
    (folder / "__init__.py").touch()
    (folder / "first.sql").write_text(FIRST)
    (folder / "second.sql").write_text(SECOND)
    (folder / "both.sql").write_text(FIRST + SECOND)
    monkeypatch.syspath_prepend(str(tmp_path))
    return "sample_statements"


def test_second_statement_of_a_name_is_refused(package: str) -> None:
    for files in ([(package, "first.sql"), (package, "second.sql")], [(package, "both.sql")]):
        with pytest.raises(ValueError, match="second statement 'rows'; rename one"):
            sql_files.load(files)
        with pytest.raises(ValueError, match="second statement 'rows'; rename one"):
            sql_files.load([], files)


def test_override_replaces_the_shared_statement(package: str) -> None:
    shared, own = [(package, "first.sql")], [(package, "second.sql")]
    assert sql_files.load(shared, own) == {"rows": "SELECT 2"}


def test_extension_replaces_no_known_statement() -> None:
    statements = {"rows": "SELECT 1"}
    sql_files.add(statements, {"rows": "SELECT 1", "more": "SELECT 3"})
    with pytest.raises(ValueError, match="second statement 'rows'; begin its name"):
        sql_files.add(statements, {"rows": "SELECT 2"})
    assert statements == {"rows": "SELECT 1", "more": "SELECT 3"}
