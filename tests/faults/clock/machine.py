"""Processes on one machine whose wall clock a test steps."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from types import TracebackType
from typing import Any

from tests.faults.clock.wall_clock import WallClock
from tests.patience import PATIENCE


class PeerProcess:
    """A broker in a process of its own on the machine."""

    def __init__(self, url: str, clock: WallClock) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.faults.clock.peer", url],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=os.environ | clock.env,
        )  # fmt: skip

    def __enter__(self) -> PeerProcess:
        assert self.answer() == "ready"
        return self

    def __exit__(
        self, kind: type[BaseException] | None, problem: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        try:
            if kind is None:
                self._process.wait(PATIENCE)
        finally:
            self._process.kill()
            self._process.wait()
            assert self._process.stdout is not None
            self._process.stdout.close()

    def send(self, *request: object) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(request) + "\n")
        self._process.stdin.flush()

    def answer(self) -> Any:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        assert line, "the process ended"
        return json.loads(line)

    def ask(self, *request: object) -> Any:
        self.send(*request)
        return self.answer()


class Timed:
    """An answer, and the moments between which it was given."""

    def __init__(self, peer: PeerProcess, *request: object) -> None:
        self.sent_at = time.monotonic()
        self.value = peer.ask(*request)
        self.answered_at = time.monotonic()

    def change_until(self, later: Timed, lease: str) -> tuple[float, float]:
        """Least and most that a lease lost beside the time that really passed between the two answers."""
        lost = float(self.value[lease]) - float(later.value[lease])
        return lost - (later.answered_at - self.sent_at), lost - (later.sent_at - self.answered_at)
