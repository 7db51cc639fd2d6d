"""Usage of the process: memory, CPU time, uptime."""

from __future__ import annotations

import os
import resource
import sys
import time
from pathlib import Path

import msgspec

_STATM = Path("/proc/self/statm")
_STARTED = time.monotonic()


class ProcessUsage(msgspec.Struct, frozen=True):
    uptime: float
    """Seconds."""
    resident: int
    """Bytes."""
    virtual: int
    user: float
    """Seconds of CPU time."""
    system: float


def process_usage(started: float = _STARTED) -> ProcessUsage:
    """The usage of this process. `started` is the start in seconds of the monotonic clock."""
    used = resource.getrusage(resource.RUSAGE_SELF)
    virtual, resident = _memory(used.ru_maxrss)
    return ProcessUsage(time.monotonic() - started, resident, virtual, used.ru_utime, used.ru_stime)


def _memory(largest: int) -> tuple[int, int]:
    """Virtual and resident bytes. Without /proc, both are the largest resident size."""
    try:
        pages = _STATM.read_text("ascii").split()
        size = os.sysconf("SC_PAGE_SIZE")
        return int(pages[0]) * size, int(pages[1]) * size
    except (OSError, ValueError, IndexError):
        resident = largest if sys.platform == "darwin" else largest * 1024
        return resident, resident
