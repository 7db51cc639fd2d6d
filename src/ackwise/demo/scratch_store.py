"""Scratch store of `ackwise serve --demo`: a temporary folder that is removed at exit."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path


class ScratchStore:
    """A folder for one store. `remove` deletes the folder with everything in it."""

    def __init__(self) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="ackwise-demo-"))
        self.url = f"sqlite:///{self.folder.resolve()}/demo.db?durability=normal"
        """The store ends with its process, so its commits do not wait for the disk."""

    def remove(self) -> None:
        shutil.rmtree(self.folder, ignore_errors=True)
