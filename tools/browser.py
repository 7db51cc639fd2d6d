"""Find a Chromium for the browser tests, or install one.

Usage: python -m tools.browser

Takes the first Chromium on the PATH. Without a Chromium, root on a machine with apt installs the package `chromium`.
Otherwise the browser tests do not run. With BROWSER=1 in the environment a missing browser is an error.
"""

from __future__ import annotations

import os
import shutil
import sys

from tools import apt_package

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome")
NOT_RUN = "browser tests NOT RUN: there is no Chromium on the PATH, and only root with apt can install one"


def find() -> str | None:
    """The path of the first Chromium on the PATH."""
    return next((path for name in NAMES if (path := shutil.which(name))), None)


def required() -> bool:
    """Whether a missing browser fails the run."""
    return os.environ.get("BROWSER", "") not in ("", "0")


def main() -> int:
    if find() is None:
        apt_package.install("chromium", "the browser tests")
    if find() is not None:
        return 0
    print(f"\n{'=' * len(NOT_RUN)}\n{NOT_RUN}\n{'=' * len(NOT_RUN)}\n", flush=True)
    return 1 if required() else 0


if __name__ == "__main__":
    sys.exit(main())
