"""The start of the command line in the bench: our rows, a peer, and a peer that cannot be installed."""

from __future__ import annotations

import zipfile
from pathlib import Path

import pytest

from benchmarks import start
from benchmarks.report import Report


def make_wheel(folder: Path) -> None:
    """A package `peer` with a program of the same name."""
    info = "peer-1.5.dist-info"
    files = {
        "peer.py": "def main() -> None: print('usage: peer')\n",
        f"{info}/METADATA": "Metadata-Version: 2.1\nName: peer\nVersion: 1.5\n",
        f"{info}/WHEEL": "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
        f"{info}/entry_points.txt": "[console_scripts]\npeer = peer:main\n",
    }
    files[f"{info}/RECORD"] = "".join(f"{name},,\n" for name in [*files, f"{info}/RECORD"])
    with zipfile.ZipFile(folder / "peer-1.5-py3-none-any.whl", "w") as wheel:
        for name, text in files.items():
            wheel.writestr(name, text)


def test_start_table_has_our_rows_and_the_peers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make_wheel(tmp_path)
    for name, value in {"PIP_NO_INDEX": "1", "PIP_FIND_LINKS": str(tmp_path)}.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(start, "ROUNDS", 1)
    monkeypatch.setattr(start, "PEERS", {"Peer": "peer", "Nobody": "no-such-package"})
    report = Report()
    start.everything(report, tmp_path)
    rows = {row.row: row.value for row in report.rows}
    assert list(rows) == [
        "ackwise --help",
        "ackwise queue list, 3 queues",
        "Peer 1.5 --help",
        "Nobody: cannot be installed here",
    ]
    assert 0 < (rows["ackwise --help"] or 0) < (rows["ackwise queue list, 3 queues"] or 0)
    assert (rows["Peer 1.5 --help"] or 0) > 0
    assert rows["Nobody: cannot be installed here"] is None
