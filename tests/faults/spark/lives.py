"""Drivers from their start to their end, and who else is still about."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
import uuid
from contextlib import suppress
from pathlib import Path

import msgspec

from tests.faults.campaign import ROOT
from tests.faults.spark.driver import MARK, Done, Job, Ready

PATIENCE = 240.0
ORPHANS_END = 60.0


class Mark:
    """Finds the processes that were started with `env`, and their children, under any present parent."""

    def __init__(self) -> None:
        self._value = uuid.uuid4().hex

    @property
    def env(self) -> dict[str, str]:
        path = os.pathsep.join(filter(None, (str(ROOT), os.environ.get("PYTHONPATH"))))
        return {**os.environ, MARK: self._value, "PYTHONPATH": path}

    def bearers(self) -> list[tuple[int, str]]:
        """Their process ids and command lines."""
        wanted, found = f"{MARK}={self._value}".encode(), []
        for folder in Path("/proc").glob("[0-9]*"):
            try:
                if wanted in (folder / "environ").read_bytes().split(b"\0"):
                    found.append((int(folder.name), (folder / "cmdline").read_bytes().replace(b"\0", b" ").decode()))
            except OSError:
                continue
        return found

    def gone(self) -> list[str]:
        """What is still there when everything should have ended by itself; it is ended then."""
        end = time.monotonic() + ORPHANS_END
        while (rest := self.bearers()) and time.monotonic() < end:
            time.sleep(0.2)
        for pid, _ in rest:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        return [f"still running: {pid} {command[-160:]}" for pid, command in rest]


class Life:
    """One driver. It is the leader of its own process group, to which its Java belongs."""

    def __init__(self, folder: Path, number: int, job: Job, mark: Mark) -> None:
        self._log = folder / f"life-{number}.log"
        self._ready, self._done = folder / f"life-{number}.ready", folder / f"life-{number}.done"
        job = msgspec.structs.replace(job, ready=str(self._ready), done=str(self._done))
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "tests.faults.spark.driver"],
                cwd=folder,
                env=mark.env,
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        assert self._process.stdin is not None
        with self._process.stdin as stdin:
            stdin.write(msgspec.json.encode(job) + b"\n")

    @property
    def ended(self) -> bool:
        return self._process.poll() is not None

    def log(self) -> str:
        return self._log.read_text(errors="replace")[-3000:]

    def kill(self, what: str) -> None:
        """`driver`: Java notices and ends by itself. `group`: both at once. `java`: the driver has to notice."""
        match what:
            case "driver":
                self._process.kill()
            case "group":
                os.killpg(self._process.pid, signal.SIGKILL)
            case "java":
                ready = msgspec.json.decode(self._ready.read_bytes(), type=Ready)
                os.kill(ready.java, signal.SIGKILL)
        self._process.wait(PATIENCE)

    def finish(self) -> Done:
        """What it said at its end."""
        code = self._process.wait(PATIENCE)
        if code or not self._done.exists():
            raise AssertionError(f"the driver ended with {code}:\n{self.log()}")
        return msgspec.json.decode(self._done.read_bytes(), type=Done)

    def abandon(self) -> None:
        """Ends the process if it exists, after another one failed."""
        if not self.ended:
            os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait(PATIENCE)
