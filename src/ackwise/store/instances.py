"""What a broker is called in a store, and whether one of the same machine is still there."""

from __future__ import annotations

import os
import zlib
from contextlib import suppress

_open: set[str] = set()
"""Those of this process."""


def mint() -> str:
    """A new name: the process, where processes are counted, and a random part."""
    name = f"{os.getpid()}-{_place()}-{os.urandom(4).hex()}"
    _open.add(name)
    return name


def closed(name: str) -> None:
    _open.discard(name)


def gone_here(name: str) -> bool:
    """Whether the process is known to be dead; not of one that runs where its processes cannot be seen from here."""
    pid, _, rest = name.partition("-")
    if not pid.isdigit() or rest.partition("-")[0] != _place():
        return False
    if int(pid) == os.getpid():
        return name not in _open
    with suppress(PermissionError):
        try:
            os.kill(int(pid), 0)
        except (ProcessLookupError, OverflowError):
            return True
    return False


def _place() -> str:
    """The same for processes that see each other: a machine, or a container of it."""
    try:
        space = os.stat("/proc/self/ns/pid").st_ino
    except OSError:
        space = 0
    return f"{zlib.crc32(f'{os.uname().nodename}/{space}'.encode()):08x}"
