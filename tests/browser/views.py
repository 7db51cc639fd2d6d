"""Pages of the dashboard in Chromium: open one in a theme and a width, and check what every page promises."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Browser, Page

from tests.patience import PATIENCE

THEMES = ("light", "dark")
WIDTHS = (1440, 768, 380)
HEIGHT = 900
SERIOUS = frozenset({"serious", "critical"})
"""Impacts of axe-core that a page must not have."""
_OVERFLOWS = """() => {
    const root = document.documentElement
    const width = root.clientWidth
    const boxed = (element) => element.closest(".scroll, pre") !== null
    const beyond = (element) => element.getClientRects().length > 0
        && element.getBoundingClientRect().right > width + 1
    const told = [...document.querySelectorAll("body *")]
        .filter((element) => !boxed(element) && beyond(element))
        .slice(0, 5).map((element) => `${element.tagName}.${element.className} is beyond the edge`)
    return root.scrollWidth > width ? [`the page is ${root.scrollWidth} wide`, ...told] : told
}"""


class View:
    """A browser window with one page of the dashboard."""

    def __init__(self, page: Page, base: str) -> None:
        self.page, self._base = page, base
        self.problems: list[str] = []
        page.on("console", lambda message: self.problems.append(message.text) if message.type == "error" else None)
        page.on("pageerror", lambda problem: self.problems.append(str(problem)))

    def open(self, path: str) -> Page:
        """Open a page of the server, and wait until its own resources are loaded."""
        answer = self.page.goto(self._base + path, wait_until="load")
        assert answer is not None
        assert answer.status < 500, f"{path}: {answer.status}"
        return self.page

    def set_theme(self, theme: str) -> None:
        self.page.emulate_media(color_scheme="dark" if theme == "dark" else "light")

    def set_width(self, width: int) -> None:
        self.page.set_viewport_size({"width": width, "height": HEIGHT})

    def check_layout(self) -> None:
        """Nothing is wider than the window, and the browser has reported no error."""
        overflows = self.page.evaluate(_OVERFLOWS)
        assert overflows == [], f"{self.page.url} at {self.page.viewport_size}: {overflows}"
        assert self.problems == [], f"{self.page.url}: {self.problems}"

    def check_axe(self) -> None:
        """axe-core finds no serious fault."""
        faults = [fault for fault in Axe().run(self.page).response["violations"] if fault["impact"] in SERIOUS]
        told = [f"{fault['id']}: {[node['html'][:200] for node in fault['nodes'][:3]]}" for fault in faults]
        assert told == [], f"{self.page.url}: {told}"

    def check_everywhere(self, path: str) -> None:
        """Open a page and check it in both themes and at every width."""
        self.open(path)
        for theme in THEMES:
            self.set_theme(theme)
            for width in WIDTHS:
                self.set_width(width)
                self.check_layout()
            self.check_axe()


@contextmanager
def opened_view(chrome: Browser, base: str, *, theme: str = "light", width: int = 1440) -> Iterator[View]:
    """A window on the server at `base`."""
    context = chrome.new_context(color_scheme="dark" if theme == "dark" else "light", reduced_motion="reduce")
    context.set_default_timeout(PATIENCE * 1000)
    try:
        view = View(context.new_page(), base)
        view.set_width(width)
        yield view
    finally:
        context.close()
