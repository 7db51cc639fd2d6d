"""Mutants of tools/mutants.py: each one still applies to the sources."""

from __future__ import annotations

from pathlib import Path

import pytest

from tools import mutants

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.parametrize("mutant", mutants.MUTANTS, ids=lambda mutant: mutant.name)
def test_mutant_applies_to_its_source(mutant: mutants.Mutant) -> None:
    """The file exists and contains `old`; the tests that must notice the mutant exist."""
    assert mutants.planted(mutant) is not None, f"{mutant.file} does not contain {mutant.old!r}"
    for test in mutant.tests:
        path, _, name = test.partition("::")
        assert (ROOT / path).exists(), test
        assert not name or f"def {name}(" in (ROOT / path).read_text(), test


def test_mutant_names_are_distinct() -> None:
    names = [mutant.name for mutant in mutants.MUTANTS]
    assert len(set(names)) == len(names)


@pytest.mark.parametrize(
    ("file", "old"), [("core/nowhere.py", "x"), ("core/errors.py", "no such line"), ("core/errors.py", "BadInput")]
)
def test_mutant_that_does_not_apply_is_broken(file: str, old: str) -> None:
    """A missing file, a missing line, and a mutant that changes nothing."""
    mutant = mutants.Mutant("made up", file, old, old)
    assert mutants.judge(mutant) == (mutant, "broken", 0.0)


def test_mutants_run_with_a_broken_mutant_fails(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(mutants, "MUTANTS", (mutants.Mutant("made up", "core/nowhere.py", "x", "y"),))
    monkeypatch.setattr("sys.argv", ["mutants.py"])
    assert mutants.main() == 1
    assert "broken" in capsys.readouterr().out
