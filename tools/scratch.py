"""Folders for files that tests write: in memory where there is enough of it, so that no file waits for a disk."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

MEMORY = Path("/dev/shm")  # noqa: S108
ROOM = 4 << 30
"""Bytes that must be free in memory."""


def roomy_folder(*, runs_programs: bool = False) -> Path:
    """A folder in memory, or the usual one for temporary files. `runs_programs`: files in it can be executed."""
    if MEMORY.is_dir() and shutil.disk_usage(MEMORY).free > ROOM and os.access(MEMORY, os.W_OK):
        may_run = not os.statvfs(MEMORY).f_flag & os.ST_NOEXEC
        if may_run or not runs_programs:
            return MEMORY
    return Path(tempfile.gettempdir())


@contextmanager
def temporary_files_in_memory() -> Iterator[None]:
    """While the block runs, this process and its children write temporary files to memory, if there is room."""
    folder = roomy_folder(runs_programs=True)
    if folder != MEMORY:
        yield
        return
    before = os.environ.get("TMPDIR")
    with tempfile.TemporaryDirectory(prefix="ackwise-run-", dir=folder, ignore_cleanup_errors=True) as made:
        # Tests run databases and programs as other users, which must reach their files below.
        os.chmod(made, 0o711)  # noqa: S103 # names in it are random, and /tmp is open as well
        os.environ["TMPDIR"], tempfile.tempdir = made, None
        try:
            yield
        finally:
            del os.environ["TMPDIR"]
            if before is not None:
                os.environ["TMPDIR"] = before
            tempfile.tempdir = None
