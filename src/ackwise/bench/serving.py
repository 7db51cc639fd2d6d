"""A server of our own for a measurement, in a process of its own, on an empty store in a folder that goes away."""

from __future__ import annotations

import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from ackwise.core.errors import AckwiseError

PATIENCE = 30.0
_RUN = "from ackwise.cli import main; main()"


@contextmanager
def served(store: str | None) -> Iterator[str]:
    """The URL of the server; `store` is where it keeps its queues, full durability on SQLite unless it is said."""
    with tempfile.TemporaryDirectory(prefix="ackwise-bench-") as folder:
        where = store or f"sqlite:///{Path(folder).absolute()}/bench.db"
        command = [sys.executable, "-c", _RUN, "serve", "--store", where, "--port", "0", "--log-level", "warning"]
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True)
        assert process.stdout is not None
        try:
            line = process.stdout.readline()
            if not line.startswith("ready "):
                raise AckwiseError("the server for the bench did not start")
            yield line.split()[1]
        finally:
            process.terminate()
            process.wait(PATIENCE)
            process.stdout.close()
