"""Things that are made once and kept between runs."""

from __future__ import annotations

import atexit
import functools
import os
import shutil
import tempfile
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path


def folders() -> Iterator[Path]:
    """Where to keep things, best first: the user's cache, else a folder of this process that ends with it."""
    given = os.environ.get("XDG_CACHE_HOME", "")
    usual = Path(given) if os.path.isabs(given) else Path(os.path.expanduser("~")) / ".cache"
    yield usual / "ackwise"
    yield temporary()


@functools.cache
def temporary() -> Path:
    """A folder that is removed when this process ends; it is not there before something is put into it."""
    folder = Path(tempfile.gettempdir(), f"ackwise-{uuid.uuid4().hex}")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return folder


def make_private(folder: Path) -> None:
    """Create a folder, and the folders above it, for their owner alone. A folder that exists keeps its mode."""
    if not folder.is_dir():
        make_private(folder.parent)
        folder.mkdir(mode=0o700, exist_ok=True)


def made_once(folder: Path, make: Callable[[Path], None]) -> Path:
    """That folder, filled by `make` if it is not there. It appears whole or not at all, whoever makes it meanwhile."""
    if folder.is_dir():
        return folder
    make_private(folder.parent)
    draft = Path(tempfile.mkdtemp(prefix=".", dir=folder.parent))
    try:
        make(draft)
        draft.rename(folder)
    except OSError:
        if not folder.is_dir():
            raise
    finally:
        shutil.rmtree(draft, ignore_errors=True)
    return folder
