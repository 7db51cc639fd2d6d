"""Hooks of pre-commit, and the commit subjects that they accept."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tools.plain_language import complaints, main

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.parametrize(
    "subject",
    [
        "fix(postgres): add woken counts after a fallback",
        "feat!: remove the old routes",
        "docs: add a map of the code",
        "Merge branch 'main'",
        'Revert "fix(postgres): add woken counts"',
        f"fix: {'x' * 66}",
    ],
)
def test_good_subject_passes(subject: str) -> None:
    assert list(complaints(f"{subject}\n\nA body of any length.\n# a comment of git\n")) == []


@pytest.mark.parametrize(
    ("subject", "reason"),
    [
        ("Added some things", "no Conventional Commit"),
        ("fix:no space", "no Conventional Commit"),
        ("fix(postgres): add woken counts.", "full stop"),
        (f"fix: {'x' * 67}", "72 characters"),
        ("", "the message is empty"),
    ],
)
def test_bad_subject_is_refused(subject: str, reason: str) -> None:
    assert any(reason in complaint for complaint in complaints(subject))


def test_hook_exits_with_one_and_the_reason(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "COMMIT_EDITMSG"
    file.write_text("Stuff\n")
    assert main(["--commit-msg", str(file)]) == 1
    assert "Conventional Commit" in capsys.readouterr().err
    file.write_text("fix(core): check the limit\n")
    assert main(["--commit-msg", str(file)]) == 0


def test_hooks_are_local_and_call_tools_of_the_venv() -> None:
    config = (ROOT / ".pre-commit-config.yaml").read_text()
    assert re.findall(r"repo: (.*)", config) == ["local"]
    assert set(re.findall(r"language: (.*)", config)) == {"system"}
    entries = re.findall(r"entry: (.*)", config)
    assert len(entries) == config.count("- id: ") > 3
    assert [entry for entry in entries if not entry.startswith(".venv/bin/")] == []
