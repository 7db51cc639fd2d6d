"""The documentation site builds without a warning, and a broken link is a warning."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


def build(source: Path, output: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "sphinx", "-q", "-W", "--keep-going", "-c", str(ROOT / "docs")]
    command += ["-d", str(output / "doctrees"), str(source), str(output / "site")]
    return subprocess.run(command, cwd=ROOT, text=True, stdin=subprocess.DEVNULL, capture_output=True)


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_site_builds_without_warnings(tmp_path: Path) -> None:
    done = build(ROOT, tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    site = tmp_path / "site"
    assert "docs/index.html" in (site / "index.html").read_text()
    api = (site / "docs" / "reference" / "api.html").read_text()
    names = ("ackwise.connect.connect", "ackwise.Connection.push", "ackwise.subscriber.App", "ackwise.fluent.Client")
    assert [name for name in names if f'id="{name}"' not in api] == []


@pytest.mark.slow
def test_broken_link_stops_the_build(tmp_path: Path) -> None:
    pages = tmp_path / "pages" / "docs"
    pages.mkdir(parents=True)
    (pages / "index.md").write_text("# One page\n\n[a page](guides/missing.md), [a heading](#nowhere)\n")
    done = build(tmp_path / "pages", tmp_path)
    assert done.returncode == 1
    assert "missing.md" in done.stderr
    assert "nowhere" in done.stderr
