"""A disk that fails on demand: a small library in front of the server's own."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

SOURCE = Path(__file__).with_name("sabotage.c")


class Sabotage:
    """Fails syncs and writes of processes that run with `env`. Without a C compiler it is not `available`."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        folder.mkdir()
        self._library = folder / "sabotage.so"
        compiler = shutil.which("cc") or shutil.which("gcc")
        self.available = compiler is not None
        if compiler is not None:
            command = [compiler, "-shared", "-fPIC", "-O1", "-o", str(self._library), str(SOURCE), "-ldl"]
            subprocess.run(command, check=True)

    @property
    def env(self) -> dict[str, str]:
        return {"LD_PRELOAD": str(self._library), "SABOTAGE": str(self._folder)} if self.available else {}

    def hit(self, what: str) -> bool:
        """Whether a fault of this kind has made a call of a server fail."""
        return (self._folder / f"{what}.hit").exists()

    @contextmanager
    def failing(self, what: str) -> Iterator[None]:
        """While the block runs: `fsync` is an I/O error, or the disk is `full`."""
        flag = self._folder / what
        flag.touch()
        try:
            yield
        finally:
            flag.unlink()
