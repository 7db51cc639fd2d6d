"""`ackwise serve --demo`: a scratch store with history and moving data, which the end of the process removes."""

from __future__ import annotations

import contextlib
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import httpx2
import pytest

from ackwise import connect
from ackwise.core.queries import ReadLedger
from ackwise.demo import history
from ackwise.demo.history import write_history
from ackwise.demo.scratch_store import ScratchStore
from ackwise.demo.shop import KEPT_SECONDS, STAGES
from tests.cli.conftest import Ackwise
from tests.patience import PATIENCE

PROGRAM = str(Path(sys.executable).parent / "ackwise")
NOW = 1_800_000_000_000_000


def test_history_has_a_week_of_real_deliveries(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(history, "SPACING", ((0, 7 * history.DAY, 12 * history.HOUR),))
    monkeypatch.setattr(history, "STEP_MESSAGES", {12 * history.HOUR: 60.0})
    url = f"sqlite:///{tmp_path}/history.db?durability=normal"
    last = write_history(url, random.Random(7), NOW)
    assert last > history.NUMBERS
    with connect(url) as connection:
        queues = {queue.name: queue for queue in connection.queues()}
        assert {stage.queue for stage in STAGES} < set(queues)
        assert queues["reports/nightly"].paused
        assert {queue.policy["completed_retention_seconds"] for queue in queues.values()} == {KEPT_SECONDS}
        minutes = [row.minute for row in connection.transport.ask(ReadLedger(limit=10_000))]
        assert min(minutes) <= NOW - 6 * history.DAY * 1_000_000
        assert NOW - history.DAY * 1_000_000 < max(minutes) <= NOW
        reasons = Counter(letter.reason for letter in connection.dead_letters(limit=1000))
        assert set(reasons) == {"rejected", "retry_limit", "delivery_limit"}
        tracebacks = [letter.history[-1].get("trace") for letter in connection.dead_letters(limit=1000)]
        assert any("in reserve" in str(text) or "in charge" in str(text) for text in tracebacks)


def test_scratch_store_is_removed(tmp_path: Path) -> None:
    scratch = ScratchStore()
    with connect(scratch.url) as connection:
        connection.push("orders", {})
    assert any(scratch.folder.iterdir())
    scratch.remove()
    assert not scratch.folder.exists()


def test_demo_with_a_store_is_refused(ackwise: Ackwise) -> None:
    said = ackwise("serve", "--demo", "--store", "sqlite:///mine.db")
    assert said.code != 0
    assert "--demo has its own scratch store; leave out --store" in said.err


@pytest.mark.slow
def test_demo_moves_and_ends_at_once_with_its_store(tmp_path: Path) -> None:
    environment = {"PATH": "/usr/bin:/bin", "TMPDIR": str(tmp_path), "ACKWISE_STORE": f"sqlite:///{tmp_path}/mine.db"}
    command = [PROGRAM, "serve", "--demo", "--port", "0", "--log-level", "error"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment) as process, killed(process):
        assert process.stdout is not None
        url = process.stdout.readline().split()[1]
        assert process.stdout.readline() == f"dashboard {url}/ (example data, removed at exit)\n"
        with connect(url) as connection, httpx2.Client(base_url=url, timeout=PATIENCE) as http:
            before = sum(connection.stats(stage.queue).messages for stage in STAGES)
            # Retention also removes messages, so the sum may fall.
            wait_for(lambda: sum(connection.stats(stage.queue).messages for stage in STAGES) != before)
            wait_for(lambda: any(row.owner == "resizer-9 (stuck)" for row in connection.leases("media/thumbnails")))
            assert "demo</span>" in http.get("/", headers={"accept": "text/html"}).text
            rows = "MATCH d: Depot RETURN COUNT(d) AS n"
            wait_for(lambda: http.post("/mew", json={"text": rows}).json()["lines"][0].get("rows") == [[5]])
        assert [folder.name.startswith("ackwise-demo-") for folder in tmp_path.iterdir()] == [True]
        stopped = time.monotonic()
        process.send_signal(signal.SIGTERM)
        assert process.wait(PATIENCE) == 0
        assert time.monotonic() - stopped < 8, "a demo without requests ends at once"
    assert list(tmp_path.iterdir()) == []


@contextlib.contextmanager
def killed(process: subprocess.Popen[str]) -> Iterator[None]:
    """Kills the process at the end, so that a failed assertion does not wait for it."""
    try:
        yield
    finally:
        process.kill()


def wait_for(condition: Callable[[], bool]) -> None:
    end = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.05)
