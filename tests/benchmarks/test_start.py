"""The start of the command line in the bench: our rows, and peers that are not installed."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks import start
from benchmarks.report import Report


def test_start_table_has_our_rows_and_names_missing_peers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(start, "ROUNDS", 1)
    monkeypatch.setattr(start, "PEERS", {"Nobody": ("no_such_package", "")})
    report = Report()
    start.everything(report, tmp_path)
    rows = {row.row: row.value for row in report.rows}
    assert list(rows) == ["ackwise --help", "ackwise queue list, 3 queues", "Nobody: not installed here"]
    assert 0 < (rows["ackwise --help"] or 0) < (rows["ackwise queue list, 3 queues"] or 0)
    assert rows["Nobody: not installed here"] is None
