"""Every Python snippet in the README and the docs runs, file by file, in order, in an empty folder, beside a server if
the page speaks to one; every HTTP call is made and answered as the page says.

A snippet that begins with a comment that names a file is that file. Between snippets the commands of console blocks
run. Spark wants absolute paths: what a page keeps under `/data` is in the page's folder here.
"""

from __future__ import annotations

import contextlib
import re
import sys
from pathlib import Path
from typing import Any

import httpx2
import pytest

from ackwise.spark.connections import close_task_connections
from tests.docs.calls import Reader, calls
from tests.docs.commands import run_commands
from tests.server.running import Running

ROOT = Path(__file__).resolve().parents[2]
BLOCK = re.compile(r"^```(?P<kind>python|console)\n(?P<text>.*?)^```$", re.MULTILINE | re.DOTALL)
PYTHON = re.compile(r"^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)
FILE = re.compile(r"# (\w+\.py)\n")
LINK = re.compile(r"\]\((?!https?://|#)([^)#]+)(?:#[^)]*)?\)")
ANCHOR = re.compile(r"\]\(([^)#:]*)#([^)]+)\)")
HEADING = re.compile(r"^#+ (.*)$", re.MULTILINE)
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
WITH_CALLS = [page for page in PAGES if "```http" in page.read_text()]
SERVER = "http://127.0.0.1:6632"
AMPS = "tcp://127.0.0.1:9007/amps/json"
NATS = "nats://127.0.0.1:4222"
FOLDER = "/data/"
SPARK = "from ackwise.spark"


def named(page: Path) -> str:
    return str(page.relative_to(ROOT))


def with_snippets() -> list[Any]:
    """Starting Spark takes its time, above all beside others."""
    found = []
    for page in PAGES:
        if PYTHON.search(page.read_text()):
            marks = [pytest.mark.timeout(300), pytest.mark.spark] if SPARK in page.read_text() else []
            found.append(pytest.param(page, marks=marks))
    return found


@pytest.mark.parametrize("page", with_snippets(), ids=named)
def test_snippets_of_a_page_run(
    page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "data").mkdir()
    text = page.read_text().replace(FOLDER, f"{tmp_path}/data/")
    snippets = [block["text"] for block in BLOCK.finditer(text)]
    with contextlib.ExitStack() as stack:
        if any(SPARK in snippet for snippet in snippets):
            request.getfixturevalue("spark")
            stack.callback(close_task_connections)
        if any(SERVER in snippet or AMPS in snippet for snippet in snippets):
            server = stack.enter_context(Running(f"sqlite:///{tmp_path}/server.db", amps_port=0))
            amps = "tcp://{}:{}/amps/json".format(*server.amps)
            text = text.replace(SERVER, server.url).replace(AMPS, amps)
        if any(NATS in snippet for snippet in snippets):
            text = text.replace(NATS, request.getfixturevalue("nats_url"))
        namespace: dict[str, Any] = {"__name__": "__main__"}
        for block in BLOCK.finditer(text):
            if block["kind"] == "console":
                run_commands(block["text"], monkeypatch)
            elif file := FILE.match(block["text"]):
                (tmp_path / file[1]).write_text(block["text"])
                monkeypatch.delitem(sys.modules, Path(file[1]).stem, raising=False)
            else:
                # Blank lines before it, so that a traceback names the line of the page.
                source = "\n" * text.count("\n", 0, block.start("text")) + block["text"]
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


@pytest.mark.parametrize("page", PAGES, ids=named)
def test_links_lead_to_headings(page: Path) -> None:
    broken = [
        f"{link}#{anchor}"
        for link, anchor in ANCHOR.findall(page.read_text())
        if anchor not in anchors((page.parent / link) if link else page)
    ]
    assert broken == []


def anchors(page: Path) -> set[str]:
    """What GitHub calls the headings of a page."""
    headings = HEADING.findall(re.sub(r"^```.*?^```$", "", page.read_text(), flags=re.MULTILINE | re.DOTALL))
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def test_readme_begins_with_a_five_line_example() -> None:
    example = PYTHON.search((ROOT / "README.md").read_text())
    assert example is not None
    lines = [line for line in example[1].splitlines() if line.strip() and not line.startswith("import ")]
    assert len(lines) == 5
