"""Python in a process of its own, where Spark starts anew."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

Folder = Path


class Said(NamedTuple):
    """What it printed and how it ended."""

    code: int
    out: str
    err: str


def run_python(source: str, folder: Folder, *command: str) -> Said:
    """`source` as a script, run in `folder`; `command` is what to run it with instead of this Python."""
    script = folder.parent / f"{folder.name}.py"
    script.write_text(source)
    done = subprocess.run(
        [*(command or (sys.executable,)), str(script)],
        cwd=folder,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=240,
    )
    return Said(done.returncode, done.stdout, done.stderr)
