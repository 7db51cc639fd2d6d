"""Usage of the process: memory, CPU time, uptime."""

from __future__ import annotations

import os
import resource
import sys
import time
from pathlib import Path

import msgspec

_STATM, _STAT, _UPTIME = Path("/proc/self/statm"), Path("/proc/self/stat"), Path("/proc/uptime")
_STARTED = time.monotonic()
"""Import time of this module. Without /proc it replaces the start of the process."""


class ProcessUsage(msgspec.Struct, frozen=True):
    uptime: float
    """Seconds."""
    resident: int
    """Bytes."""
    virtual: int
    user: float
    """Seconds of CPU time."""
    system: float


def process_usage(started: float | None = None) -> ProcessUsage:
    """Usage of this process. `started` is a start in seconds of the monotonic clock, by default that of the process."""
    if started is None:
        started = _process_start()
    used = resource.getrusage(resource.RUSAGE_SELF)
    virtual, resident = _memory(used.ru_maxrss)
    return ProcessUsage(time.monotonic() - started, resident, virtual, used.ru_utime, used.ru_stime)


def _process_start() -> float:
    """When the process started, on the monotonic clock."""
    try:
        # Field 22 is the start in clock ticks after the boot. The name in field 2 may contain spaces.
        ticks = int(_STAT.read_text("ascii", errors="replace").rpartition(")")[2].split()[19])
        uptime = float(_UPTIME.read_text("ascii").split()[0])
        return time.monotonic() - (uptime - ticks / os.sysconf("SC_CLK_TCK"))
    except (OSError, ValueError, IndexError):
        return _STARTED


def _memory(largest: int) -> tuple[int, int]:
    """Virtual and resident bytes. Without /proc, both are the largest resident size."""
    try:
        pages = _STATM.read_text("ascii").split()
        size = os.sysconf("SC_PAGE_SIZE")
        return int(pages[0]) * size, int(pages[1]) * size
    except (OSError, ValueError, IndexError):
        resident = largest if sys.platform == "darwin" else largest * 1024
        return resident, resident
