"""Commands as a page shows them: `$ ackwise …` in a console block, run in this process."""

from __future__ import annotations

import shlex
import sys

import pytest

from ackwise.cli import main

PROMPT = "$ ackwise "


def run_commands(block: str, patch: pytest.MonkeyPatch) -> None:
    """Every command of a block must end well; what else is in the block is what it prints."""
    for line in block.splitlines():
        if line.startswith(PROMPT):
            words = shlex.split(line.removeprefix(PROMPT), comments=True)
            patch.setattr(sys, "argv", ["ackwise", *words])
            with pytest.raises(SystemExit) as ended:
                main()
            assert not ended.value.code, line
