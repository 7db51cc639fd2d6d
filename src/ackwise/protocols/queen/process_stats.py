"""Figures that only this process knows: uptime, memory and CPU time."""

from __future__ import annotations

import os
import resource
import socket
import time
from pathlib import Path
from typing import NamedTuple

_STARTED = time.monotonic()
_PAGE = resource.getpagesize()


class ProcessStats(NamedTuple):
    uptime: float
    user_seconds: float
    system_seconds: float
    resident_bytes: int | None
    """None if the system does not report this figure."""
    virtual_bytes: int | None


def process_stats() -> ProcessStats:
    times = os.times()
    try:
        virtual, resident = (int(pages) * _PAGE for pages in Path("/proc/self/statm").read_text().split()[:2])
    except OSError:
        return ProcessStats(time.monotonic() - _STARTED, times.user, times.system, None, None)
    return ProcessStats(time.monotonic() - _STARTED, times.user, times.system, resident, virtual)


def hostname() -> str:
    return socket.gethostname()
