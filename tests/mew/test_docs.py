"""The pages about MEW print what they say they print; the grammar's reference is the grammar."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.mew.pages import plain, run_page
from tests.mew.prompt import Prompt
from tools import mew_grammar

ROOT = Path(__file__).resolve().parents[2]
PAGES = [page for page in sorted((ROOT / "docs").rglob("*.md")) if "```mew\n" in page.read_text()]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_commands_print_what_the_page_shows(
    page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    ran = list(run_page(page.read_text(), tmp_path, monkeypatch, capfd))
    assert ran
    for one in ran:
        assert plain(one.printed) == plain(one.shown), one.command


def test_pages_with_mew_are_listed() -> None:
    assert [page.stem for page in PAGES] == ["mew"]


def test_unsupported_clauses_answer_as_the_guide_says(lite: Prompt) -> None:
    page = (ROOT / "docs/guides/mew.md").read_text()
    table = page.partition("## Upstream clauses")[2].partition("## More")[0]
    rows = [line.strip("| \n").split(" | ") for line in table.splitlines() if line.startswith("| ")][1:]
    lite.ok('node Job { payload: String } edge depends(after: Job, before: Job) SPAWN j: Job { payload = "p" }')
    assert len(rows) > 10
    for _, examples, answer in rows:
        for example in re.findall("`([^`]+)`", examples):
            (line,) = [line for line in lite(example) if line["kind"] != "result"]
            expected = ("error", answer.strip("`")) if answer.startswith("`") else ("notice", "not_supported")
            assert (line["kind"], line["code"]) == expected, example
            lite("ROLLBACK")


def test_grammar_reference_is_the_grammar() -> None:
    assert mew_grammar.PAGE.read_text() == mew_grammar.page(), "run .venv/bin/python tools/mew_grammar.py"
