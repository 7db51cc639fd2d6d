"""Client of the load generator: starts one process, which loads all servers in the same way."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec

from benchmarks.load.jobs import Done, Job

ROOT = Path(__file__).resolve().parent.parent


class Loader:
    """Runs jobs, one at a time."""

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        self._process = process

    def run(self, job: Job) -> Done:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(msgspec.json.encode(job) + b"\n")
        self._process.stdin.flush()
        line = self._process.stdout.readline()
        if not line:
            raise RuntimeError(f"the load generator died with {self._process.wait()}")
        done = msgspec.json.decode(line, type=Done)
        if done.error:
            raise RuntimeError(f"{job}: {done.error}")
        return done


@contextmanager
def loader() -> Iterator[Loader]:
    process = subprocess.Popen(
        [sys.executable, "-m", "benchmarks.load"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd=ROOT
    )
    try:
        yield Loader(process)
    finally:
        process.communicate()
