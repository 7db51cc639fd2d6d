"""`ackwise serve` in a process of its own."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
from pathlib import Path
from types import TracebackType
from urllib.parse import urlsplit

from tests.patience import PATIENCE


class ServerProcess:
    """Running once made: `url` answers. Leaving the `with` block sends SIGTERM and expects exit code 0."""

    def __init__(self, store: str, *arguments: str, env: dict[str, str] | None = None) -> None:
        self._log = tempfile.TemporaryFile(mode="w+")  # noqa: SIM115 (it lives as long as the process)
        self.process = subprocess.Popen(
            command(*(["--store", store] if store else []), "--port", "0", *arguments),
            env=clean_env(env),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=self._log,
            text=True,
        )
        assert self.process.stdout is not None
        first = self.process.stdout.readline()
        if not first.startswith("ready "):
            self.kill()
            said = f"the server said {first!r} and logged:\n{self.log()}"
            self.process.stdout.close()
            self._log.close()
            raise AssertionError(said)
        self.url = first.removeprefix("ready ").strip()
        self.amps = self.process.stdout.readline().removeprefix("amps ").strip() if "--amps-port" in arguments else ""

    @property
    def port(self) -> int:
        port = urlsplit(self.url).port
        assert port is not None
        return port

    @property
    def address(self) -> tuple[str, int]:
        return "127.0.0.1", self.port

    def log(self) -> str:
        self._log.seek(0)
        return self._log.read()

    def terminate(self) -> None:
        self.process.send_signal(signal.SIGTERM)

    def wait(self) -> int:
        """The exit code; nothing but the ready line may have been printed, and nothing logged as an error."""
        assert self.process.stdout is not None
        rest = self.process.stdout.read()
        code = self.process.wait(PATIENCE)
        assert rest == "", rest
        assert " ERROR " not in self.log(), self.log()
        return code

    def stop(self) -> None:
        self.terminate()
        code = self.wait()
        assert code == 0, f"exit code {code}\n{self.log()}"

    def kill(self) -> None:
        """As a power cut would: no signal handler runs."""
        self.process.kill()
        self.process.wait(PATIENCE)

    def __enter__(self) -> ServerProcess:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, problem: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            if self.process.returncode is None:
                self.stop() if problem is None else self.kill()
        finally:
            assert self.process.stdout is not None
            self.process.stdout.close()
            self._log.close()


def command(*arguments: str) -> list[str]:
    return [str(Path(sys.executable).with_name("ackwise")), "serve", *arguments]


def clean_env(more: dict[str, str] | None = None) -> dict[str, str]:
    """This process's environment without settings of Ackwise's."""
    return {name: value for name, value in os.environ.items() if not name.startswith("ACKWISE_")} | (more or {})
