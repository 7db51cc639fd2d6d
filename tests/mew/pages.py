"""Pages with MEW in them: files as the page shows them, commands, and what the commands print."""

from __future__ import annotations

import io
import re
import shlex
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from ackwise.cli import main

BLOCK = re.compile(r"^```(?P<kind>mew|console)\n(?P<text>.*?)^```$", re.MULTILINE | re.DOTALL)
_FILE = re.compile(r"-- (\w+\.mew)\n")
_DELIVERY = re.compile(r"L[0-9a-z]+-[0-9a-f]{8}\.0\.[0-9a-z]+")
_ID = re.compile(r"(?<![a-z])([a-z]+)_[0-9a-z]{12,13}\b")
PROMPT = "$ ackwise "


class Ran(NamedTuple):
    command: str
    shown: str
    printed: str


def plain(text: str) -> str:
    """Ids are new in every run."""
    return _ID.sub(r"\1_ID", _DELIVERY.sub("DELIVERY", text)).strip()


def run_page(page: str, folder: Path, patch: pytest.MonkeyPatch, capture: pytest.CaptureFixture[str]) -> Iterator[Ran]:
    """Write the page's files, run its commands in order, in a folder of their own."""
    patch.chdir(folder)
    patch.setenv("ACKWISE_URL", f"sqlite:///{folder}/graph.db?durability=normal")
    for block in BLOCK.finditer(page):
        if block["kind"] == "mew":
            file = _FILE.match(block["text"])
            assert file is not None, "a block of MEW begins with the name of its file"
            (folder / file[1]).write_text(block["text"])
            continue
        command, _, shown = block["text"].partition("\n")
        patch.setattr(sys, "argv", ["ackwise", *shlex.split(command.removeprefix(PROMPT))])
        patch.setattr(sys, "stdin", io.StringIO(""))
        capture.readouterr()
        with pytest.raises(SystemExit):
            main()
        yield Ran(command, shown, capture.readouterr().out)
