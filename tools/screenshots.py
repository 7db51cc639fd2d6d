"""Take the pictures of the dashboard for README and the guide, from `ackwise serve --demo`.

Usage: python -m tools.screenshots [--out FOLDER] [--only NAME,NAME]

Starts the demo on a free port, opens each page in Chromium, and writes one PNG for each page and theme. The demo's
history is the same at each start, so the pictures change little.
"""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from playwright.sync_api import Browser, Page, sync_playwright

from tools import browser as chromium

ROOT = Path(__file__).resolve().parent.parent
OUT = ROOT / "docs" / "images"
WIDTH, HEIGHT = 1440, 900
WARM_UP = 45.0
"""Seconds in which the demo gets leases, retries and rates before the first picture."""
FLAGS = (
    "--no-sandbox",
    "--disable-gpu",
    "--no-first-run",
    "--disable-background-networking",
    "--font-render-hinting=none",
)
STATEMENT = """w = WATCH p: Parcel WHERE p.grams > 12000 RETURN p.code AS parcel, p.grams AS grams
MATCH p: Parcel, d: Depot, at(p, d) RETURN d.city AS city, COUNT(p) AS parcels ORDER BY parcels DESC LIMIT 3"""


class Picture(NamedTuple):
    """One page: its name in the file, its path, and whether it has a dark picture, too."""

    name: str
    path: str
    dark: bool = False


PICTURES = (
    Picture("overview", "/", dark=True),
    Picture("queues", "/dashboard/queues"),
    Picture("queue", "/dashboard/queues/media%2Fthumbnails", dark=True),
    Picture("messages", "/dashboard/messages?queue=shop%2Forders"),
    Picture("dead-letters", "/dashboard/dead-letters"),
    Picture("groups", "/dashboard/groups"),
    Picture("consumers", "/dashboard/consumers"),
    Picture("graph", "/dashboard/graph"),
    Picture("pipelines", "/dashboard/pipelines"),
    Picture("settings", "/dashboard/settings"),
)


@contextmanager
def demo() -> Iterator[str]:
    """The URL of a running demo."""
    command = [str(Path(sys.executable).parent / "ackwise"), "serve", "--demo", "--port", "0", "--log-level", "error"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        ready = re.match(r"ready (\S+)", process.stdout.readline())
        if ready is None:
            raise SystemExit("the demo did not start")
        yield ready[1]
    finally:
        process.terminate()
        process.communicate(timeout=30)


def take(browser: Browser, url: str, picture: Picture, theme: str, file: Path) -> None:
    context = browser.new_context(viewport={"width": WIDTH, "height": HEIGHT}, color_scheme=theme)  # type: ignore[arg-type]
    page = context.new_page()
    page.goto(url + picture.path, wait_until="load")
    page.evaluate("document.fonts.ready")
    if picture.name == "graph":
        _run_statement(page)
    file.write_bytes(page.screenshot())
    context.close()


def _run_statement(page: Page) -> None:
    """Run a watch, and wait until its stream shows an event."""
    page.get_by_label("MEW").fill(STATEMENT)
    page.get_by_role("button", name="Run").click()
    page.locator("#events table").wait_for()


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tools.screenshots")
    parser.add_argument("--out", type=Path, default=OUT)
    parser.add_argument("--only", default="", help=f"some of {','.join(picture.name for picture in PICTURES)}")
    parser.add_argument("--warm-up", type=float, default=WARM_UP, help="seconds before the first picture")
    options = parser.parse_args()
    path = chromium.find()
    if path is None:
        print(chromium.NOT_RUN, file=sys.stderr)
        return 1
    options.out.mkdir(parents=True, exist_ok=True)
    wanted = options.only.split(",") if options.only else [picture.name for picture in PICTURES]
    with demo() as url, sync_playwright() as playwright:
        time.sleep(options.warm_up)  # the demo needs this time to look alive; nothing to wait for
        browser = playwright.chromium.launch(executable_path=path, args=list(FLAGS))
        for picture in PICTURES:
            if picture.name in wanted:
                take(browser, url, picture, "light", options.out / f"{picture.name}.png")
                if picture.dark:
                    take(browser, url, picture, "dark", options.out / f"{picture.name}-dark.png")
        browser.close()
    files = sorted(options.out.glob("*.png"))
    print(f"{len(files)} pictures, {sum(file.stat().st_size for file in files) / 1000:,.0f} kB, in {options.out}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
