"""Every program in examples/ runs alone and prints what its page promises."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
LAST_LINES = {
    "push_and_consume": "shipping lag 0",
    "retry_and_dead_letters": "dead letter: {'id': 2} retry_limit - the card is expired after 3 failures",
    "redrive": "dead letters: 0 lag: 0",
    "subscriber_app": "dead letters: [('retry_limit', 'negative total')]",
    "transaction": "invoices: [{'order': 1, 'cents': 1487}, {'order': 2, 'cents': 3570}]",
    "fluent": "dead letter: {'id': 2} invalid data",
    "pushpop": "popped [{'to': 'ann'}]",
    "amps": "queue://orders {'id': 2} acked: 1",
    "mew": "jobs left: []",
    "spark_pipeline": "acked 90 dead 10 outputs 90",
}


def examples() -> list[Any]:
    """Starting Spark takes long on a busy machine."""
    slow = [pytest.mark.slow, pytest.mark.timeout(300)]
    return [pytest.param(name, marks=slow if "spark" in name else []) for name in LAST_LINES]


@pytest.mark.parametrize("name", examples())
def test_example_prints_its_result(name: str, tmp_path: Path) -> None:
    command = [sys.executable, "-W", "error", str(EXAMPLES / f"{name}.py")]
    if "spark" in name:
        command[1:3] = []  # pyspark itself warns
    done = subprocess.run(command, cwd=tmp_path, text=True, stdin=subprocess.DEVNULL, capture_output=True)
    assert done.returncode == 0, done.stderr
    assert LAST_LINES[name] in done.stdout.splitlines()
    assert list(tmp_path.iterdir()) == []


def test_every_example_is_run_and_listed() -> None:
    files = {path.stem for path in EXAMPLES.glob("*.py")}
    assert files == set(LAST_LINES)
    page = (EXAMPLES / "README.md").read_text()
    assert [name for name in files if f"[{name}.py]({name}.py)" not in page] == []
