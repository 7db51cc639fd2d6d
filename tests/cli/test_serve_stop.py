"""Watchdog: ends a process whose shutdown hangs."""

from __future__ import annotations

import subprocess
import sys

from tests.patience import PATIENCE

HANGS = """
import threading
from ackwise.cli.serve import _end_after
threading.Thread(target=threading.Event().wait).start()  # a thread that keeps the process alive
_end_after(0.05)
"""


def test_shutdown_that_hangs_ends_the_process() -> None:
    ended = subprocess.run([sys.executable, "-c", HANGS], capture_output=True, text=True, timeout=PATIENCE)
    assert ended.returncode == 1
    assert "cut short" in ended.stderr
