"""Watchdog: ends a process whose shutdown hangs."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from ackwise.cli.serve import STOP_SECONDS
from tests.patience import PATIENCE

HANGS = """
import threading
from ackwise.cli.serve import _end_after
threading.Thread(target=threading.Event().wait).start()  # a thread that keeps the process alive
_end_after(0.05)
"""

SERVER = """
import asyncio, runpy, sys
from ackwise.broker import AsyncBroker
from ackwise.cli import serve

async def hang(self):
    await asyncio.Event().wait()

AsyncBroker.close = hang
serve.STOP_SECONDS = 0.2
sys.argv[0] = "ackwise"
runpy.run_module("ackwise", run_name="__main__")
"""


def test_shutdown_that_hangs_ends_the_process() -> None:
    ended = subprocess.run([sys.executable, "-c", HANGS], capture_output=True, text=True, timeout=PATIENCE)
    assert ended.returncode == 1
    assert "cut short" in ended.stderr


def test_server_that_hangs_ends_after_grace_and_stop_seconds(tmp_path: Path) -> None:
    """The server's own watchdog, armed by SIGTERM. Its deadline leaves half a second of the promised five."""
    assert STOP_SECONDS <= 4.5
    command = [sys.executable, "-c", SERVER, "serve", "--store", f"sqlite:///{tmp_path}/q.db"]
    with subprocess.Popen(
        [*command, "--port", "0", "--grace", "0.1"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as server:
        assert server.stdout is not None
        assert server.stdout.readline().startswith("ready ")
        server.terminate()
        _, log = server.communicate(timeout=PATIENCE)
    assert server.returncode == 1
    assert "the shutdown took longer than 0.3 seconds and was cut short" in log
