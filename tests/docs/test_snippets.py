"""Every Python snippet in the README and the docs runs, file by file, in order, in an empty folder, beside a server if
the page speaks to one; every HTTP call is made and answered as the page says."""

from __future__ import annotations

import contextlib
import re
from pathlib import Path
from typing import Any

import httpx2
import pytest

from tests.docs.calls import Reader, calls
from tests.server.running import Running

ROOT = Path(__file__).resolve().parents[2]
BLOCK = re.compile(r"^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"\]\((?!https?://|#)([^)#]+)(?:#[^)]*)?\)")
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
WITH_SNIPPETS = [page for page in PAGES if BLOCK.search(page.read_text())]
WITH_CALLS = [page for page in PAGES if "```http" in page.read_text()]
SERVER = "http://127.0.0.1:6632"


def named(page: Path) -> str:
    return str(page.relative_to(ROOT))


def patiently(page: Path) -> Any:
    """Spark takes its time."""
    return pytest.param(page, marks=pytest.mark.timeout(600)) if "ackwise.spark" in page.read_text() else page


@pytest.mark.parametrize("page", [patiently(page) for page in WITH_SNIPPETS], ids=named)
def test_snippets_run(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    text = page.read_text()
    with contextlib.ExitStack() as stack:
        if any(SERVER in block[1] for block in BLOCK.finditer(text)):
            text = text.replace(SERVER, stack.enter_context(Running(f"sqlite:///{tmp_path}/server.db")).url)
        namespace: dict[str, Any] = {"__name__": "__main__"}
        for block in BLOCK.finditer(text):
            # Blank lines before it, so that a traceback names the line of the page.
            source = "\n" * text.count("\n", 0, block.start(1)) + block[1]
            exec(compile(source, str(page), "exec"), namespace)  # noqa: S102


@pytest.mark.parametrize("page", WITH_CALLS, ids=named)
def test_calls_are_answered_as_shown(page: Path, tmp_path: Path) -> None:
    with Running(f"sqlite:///{tmp_path}/server.db") as server, httpx2.Client(base_url=server.url) as http:
        reader = Reader(http)
        for call in calls(page.read_text()):
            reader.make(call)


@pytest.mark.parametrize("page", PAGES, ids=named)
def test_links_lead_somewhere(page: Path) -> None:
    broken = [link for link in LINK.findall(page.read_text()) if not (page.parent / link).exists()]
    assert broken == []


def test_the_readme_begins_with_a_five_line_example() -> None:
    example = BLOCK.search((ROOT / "README.md").read_text())
    assert example is not None
    lines = [line for line in example[1].splitlines() if line.strip() and not line.startswith("import ")]
    assert len(lines) == 5
