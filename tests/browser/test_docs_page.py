"""The page `/docs` in a real browser: Swagger UI starts under the page's Content-Security-Policy."""

from __future__ import annotations

from pathlib import Path

import pytest
from playwright.sync_api import Page, expect

from ackwise.server import docs_pages
from tests.patience import PATIENCE
from tests.server.running import Running

pytestmark = pytest.mark.slow


def test_docs_page_shows_the_operations(page: Page, tmp_path: Path) -> None:
    if not (docs_pages.SWAGGER_UI / "swagger-ui-bundle.js").is_file():
        pytest.fail("the files of Swagger UI are missing; run make venv")
    expect.set_options(timeout=PATIENCE * 1000)  # a busy machine is slow
    problems: list[str] = []
    page.on("console", lambda message: problems.append(message.text) if message.type == "error" else None)
    page.on("pageerror", lambda problem: problems.append(str(problem)))
    with Running(f"sqlite:///{tmp_path}/docs.db") as server:
        page.goto(f"{server.url}/docs")
        tag = page.locator("#operations-tag-queues")
        expect(tag).to_be_visible()
        tag.click()
        expect(page.locator("#operations-queues-post_v1_queues")).to_be_visible()
        page.locator("#operations-queues-get_v1_queues").click()
        page.get_by_role("button", name="Execute").first.click()
        expect(page.locator(".live-responses-table tbody .response-col_status").first).to_contain_text("200")
        page.close()
    assert problems == []
