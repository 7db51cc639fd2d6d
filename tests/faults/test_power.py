"""Lost power: what was answered is there, or, where less was asked for, at least nothing is broken."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.faults.losing import Recording


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_answered_commands_survive_lost_power(tmp_path: Path, seed: int) -> None:
    assert Recording(tmp_path, seed).problems(30) == []


def test_normal_durability_loses_only_the_end(tmp_path: Path) -> None:
    problems, lost = Recording(tmp_path, 4, durability="normal").damage(30)
    assert problems == []
    assert lost > 0, "a disk that loses nothing proves nothing"


def test_store_that_never_syncs_loses_answers(tmp_path: Path) -> None:
    """The test can fail: SQLite that never syncs loses what it answered."""
    problems = Recording(tmp_path, 5, sync=False).problems(15)
    assert any("lost:" in p or "cannot be opened" in p for p in problems)


def test_disk_that_lies_about_syncing_loses_answers(tmp_path: Path) -> None:
    problems = Recording(tmp_path, 6).problems(15, syncs_count=False)
    assert any("lost:" in p or "cannot be opened" in p for p in problems)
