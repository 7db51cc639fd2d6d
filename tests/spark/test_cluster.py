"""The example: a cluster, a server and PostgreSQL in processes of their own, and nothing left of them afterwards."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

pytestmark = pytest.mark.long

EXAMPLE = Path(__file__).parents[2] / "examples" / "cluster" / "run.py"


@contextmanager
def running(folder: Path, messages: int) -> Iterator[subprocess.Popen[str]]:
    """The example, with everything that it makes in `folder`: so its processes are known by their arguments."""
    process = subprocess.Popen(
        [sys.executable, str(EXAMPLE), "--messages", str(messages)],
        env={**os.environ, "TMPDIR": str(folder)},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


def left_over(folder: Path) -> list[str]:
    """Processes that have to do with `folder`."""
    found = []
    for entry in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            words = entry.read_bytes().decode(errors="replace")
        except OSError:
            continue
        if str(folder) in words and str(os.getpid()) != entry.parent.name:
            found.append(words.replace("\0", " "))
    return found


@pytest.fixture
def folder() -> Iterator[Path]:
    """PostgreSQL runs as another user when the tests run as root, so the folder is open to all users."""
    with tempfile.TemporaryDirectory(prefix="ackwise-example-") as made:
        Path(made).chmod(0o755)
        yield Path(made)


@pytest.mark.timeout(600)
def test_every_order_is_billed_or_dead_and_nothing_is_left(folder: Path) -> None:
    with running(folder, 600) as example:
        out, err = example.communicate(timeout=540)
    assert example.returncode == 0, err
    rows = [[cell.strip() for cell in line.split("│")[1:-1]] for line in out.splitlines() if line.startswith("│")]
    assert ["608", "594", "8", "6", "0", "594"] in [line.split() for line in out.splitlines()]
    assert dict(rows) == {
        "acked": "594",
        "dead: rejected": "2",
        "dead: KeyError": "2",
        "dead: WorkerDied": "2",
        "lag": "0",
        "invoices": "594",
    }
    assert left_over(folder) == []
    assert list(folder.glob("ackwise-*")) == []


@pytest.mark.timeout(600)
def test_ctrl_c_ends_all_of_it(folder: Path) -> None:
    with running(folder, 100) as example:
        assert example.stdout is not None
        assert any(line.startswith("cluster") for line in example.stdout)
        os.killpg(example.pid, signal.SIGINT)
        example.communicate(timeout=120)
    assert example.returncode == 130
    assert left_over(folder) == []
    assert list(folder.glob("ackwise-*")) == []
