"""tools/complexity.py: complex functions fail unless the baseline lists them."""

from __future__ import annotations

from pathlib import Path

import pytest

from tools import complexity

BODY = "def knot(a):\n" + "".join(f"{'    ' * depth}if a > {depth}:\n" for depth in range(1, 7)) + "    " * 7 + "pass\n"
"""Six nested conditions: 1 + 2 + … + 6 = 21."""


@pytest.fixture
def root(tmp_path: Path) -> Path:
    (tmp_path / "src").mkdir()
    (tmp_path / "tools").mkdir()
    (tmp_path / "src/knots.py").write_text(BODY)
    return tmp_path


def baseline(root: Path, *lines: str) -> None:
    (root / complexity.BASELINE).write_text("".join(f"{line}\n" for line in lines))


def test_complex_function_without_entry_fails(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert complexity.check(root) == 1
    assert "src/knots.py: knot has a cognitive complexity of 21" in capsys.readouterr().out


@pytest.mark.parametrize(("allowed", "code"), [(21, 0), (22, 0), (20, 1)])
def test_complex_function_passes_up_to_its_entry(root: Path, allowed: int, code: int) -> None:
    baseline(root, "# comment", f"src/knots.py knot {allowed}")
    assert complexity.check(root) == code


def test_complex_function_in_generated_twin_is_skipped(root: Path) -> None:
    for folder in ("aio", "sync"):
        (root / "src" / folder).mkdir()
    (root / "src/knots.py").rename(root / "src/sync/knots.py")
    assert complexity.check(root) == 0


def test_write_baseline_lists_lowers_and_never_adds(root: Path) -> None:
    assert complexity.write_baseline(root) == 0
    assert complexity.read_baseline(root) == {("src/knots.py", "knot"): 21}
    baseline(root, "src/knots.py knot 30", "src/gone.py gone 30")
    (root / "src/new.py").write_text(BODY)
    assert complexity.write_baseline(root) == 1
    assert complexity.read_baseline(root) == {("src/knots.py", "knot"): 21}
