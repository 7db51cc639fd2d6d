"""tools/busy_tests.py: busy loops run beside the tests and end with them."""

from __future__ import annotations

import subprocess
from typing import Any

import pytest

from tools import busy_tests


def test_busy_loops_run_in_block_and_end_after_it() -> None:
    with busy_tests.busy_loops(2) as loops:
        assert [loop.poll() for loop in loops] == [None, None]
    assert [loop.poll() for loop in loops] == [-9, -9]


def test_busy_loops_end_when_the_block_raises() -> None:
    with pytest.raises(KeyboardInterrupt), busy_tests.busy_loops(1) as loops:
        raise KeyboardInterrupt
    assert loops[0].poll() == -9


def test_busy_tests_passes_arguments_and_exit_code_on(monkeypatch: pytest.MonkeyPatch) -> None:
    commands: list[list[str]] = []

    def run(command: list[str], **_: Any) -> subprocess.CompletedProcess[str]:
        commands.append(command)
        return subprocess.CompletedProcess(command, 3)

    monkeypatch.setattr(subprocess, "run", run)
    assert busy_tests.main(["--loops-per-core", "0", "-k", "name"]) == 3
    assert commands[0][1:] == ["-m", "tools.run_tests", "--no-lint", "--timeout", "900", "-k", "name"]
