"""Names of brokers, and the check whether a broker is dead."""

from __future__ import annotations

import os
import zlib
from contextlib import suppress

_open_here: set[str] = set()
"""Names of the open brokers of this process."""


def new_name() -> str:
    """Register a new broker. Its name is the process id, the process space and a random part."""
    name = f"{os.getpid()}-{_process_space()}-{os.urandom(4).hex()}"
    _open_here.add(name)
    return name


def mark_closed(name: str) -> None:
    _open_here.discard(name)


def is_dead(name: str) -> bool:
    """Whether a broker is certainly dead. False if its process belongs to another machine or container."""
    pid, _, rest = name.partition("-")
    if not pid.isdigit() or rest.partition("-")[0] != _process_space():
        return False
    if int(pid) == os.getpid():
        return name not in _open_here
    with suppress(PermissionError):
        try:
            os.kill(int(pid), 0)
        except (ProcessLookupError, OverflowError):
            return True
    return False


def _process_space() -> str:
    """Hash of the machine and its pid namespace. Processes with the same hash can see each other."""
    try:
        namespace = os.stat("/proc/self/ns/pid").st_ino
    except OSError:
        namespace = 0
    return f"{zlib.crc32(f'{os.uname().nodename}/{namespace}'.encode()):08x}"
