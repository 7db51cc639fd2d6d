"""The demo: everything adds up, and the last line says so to programs."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from ackwise.demo.__main__ import main
from ackwise.demo.orders import orders
from tests.cli.conftest import Ackwise


def test_every_order_is_acked_or_dead_and_every_ack_has_its_result(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    main(["--messages", "2000", "--seed", "7", "--out", str(tmp_path / "out")])
    last = capsys.readouterr().out.splitlines()[-1]
    summary = json.loads(last.removeprefix("DEMO "))
    report = Path(summary.pop("report"))
    assert summary == {"pushed": 2000, "acked": 1960, "dead": 40, "outputs": 1960}
    assert "no rate for currency XBT" in report.read_text()


def test_the_command_runs_the_same(ackwise: Ackwise, tmp_path: Path) -> None:
    said = ackwise("demo", "--messages", "100", "--out", str(tmp_path))
    assert said.out.splitlines()[-1].startswith('DEMO {"pushed":100,"acked":98,"dead":2,')


def test_a_seed_always_gives_the_same_orders() -> None:
    assert list(orders(500, 3)) == list(orders(500, 3))
    assert list(orders(500, 3)) != list(orders(500, 4))


def test_nothing_to_do_is_misuse() -> None:
    with pytest.raises(SystemExit, match="2"):
        main(["--messages", "0"])
