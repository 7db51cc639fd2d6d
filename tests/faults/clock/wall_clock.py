"""A wall clock that a test can step: a small library in front of the processes' own."""

from __future__ import annotations

import os
import shutil
import struct
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from unittest import mock

SOURCE = Path(__file__).with_name("wall_clock.c")
NO_COMPILER = "steps of the clock NOT RUN: there is no C compiler"


def compiler() -> str | None:
    return shutil.which("cc") or shutil.which("gcc")


class WallClock:
    """Steps CLOCK_REALTIME of processes that run with `env`, also of running ones. Other clocks stay."""

    def __init__(self, folder: Path) -> None:
        tool = compiler()
        assert tool is not None, NO_COMPILER
        library, self._file = folder / "wall_clock.so", folder / "shift"
        warnings = ["-Wall", "-Wextra", "-Wno-nonnull-compare"]
        command = [tool, *warnings, "-shared", "-fPIC", "-O1", "-o", str(library), str(SOURCE), "-ldl"]
        subprocess.run(command, check=True)
        self.name = folder.name
        self.env = {"LD_PRELOAD": str(library), "WALL_CLOCK": str(self._file)}
        self._shift = 0
        self.step(0)

    def step(self, seconds: float) -> None:
        """Step the clock by these seconds."""
        self._shift += round(seconds * 1_000_000)
        with os.fdopen(os.open(self._file, os.O_CREAT | os.O_WRONLY, 0o644), "wb") as file:
            file.write(struct.pack("=q", self._shift))  # one write of 8 aligned bytes: no reader sees half of it

    @contextmanager
    def around(self) -> Iterator[None]:
        """Processes that start while the block runs have this clock."""
        with mock.patch.dict(os.environ, self.env):
            yield
