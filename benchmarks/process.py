"""CPU time and memory of another process, from the kernel."""

from __future__ import annotations

import os
import resource
from pathlib import Path

TICKS = os.sysconf("SC_CLK_TCK")


def cpu_seconds(pid: int) -> float:
    """CPU seconds of the process so far, in user and kernel mode."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / TICKS


def most_resident_mb(pid: int) -> float:
    """Peak resident memory of the process."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) / 1024
    return 0.0


def allow_open_files(count: int) -> None:
    """Raise the limit of open files for this process and its children."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft >= count:
        return
    if hard != resource.RLIM_INFINITY and hard < count:
        raise SystemExit(f"the bench needs {count:,} open files and at most {hard:,} are allowed: raise `ulimit -Hn`")
    resource.setrlimit(resource.RLIMIT_NOFILE, (count, hard))
