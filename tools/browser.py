"""Find a Chromium for the browser tests, or install one.

Usage: tools/browser.py

Takes the first Chromium on the PATH. Without a Chromium, root on a machine with apt installs the package `chromium`.
Otherwise the browser tests do not run. With BROWSER=1 in the environment a missing browser is an error.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome")
NOT_RUN = "browser tests NOT RUN: there is no Chromium on the PATH, and only root with apt can install one"


def find() -> str | None:
    """The path of the first Chromium on the PATH."""
    return next((path for name in NAMES if (path := shutil.which(name))), None)


def required() -> bool:
    """Whether a missing browser fails the run."""
    return os.environ.get("BROWSER", "") not in ("", "0")


def install() -> None:
    """Install Debian's Chromium. Prints a failure, after which `find` finds nothing."""
    if os.geteuid() != 0 or shutil.which("apt-get") is None:
        return
    print("installing chromium for the browser tests ...", flush=True)
    environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    for command in (["update", "-qq"], ["install", "-qq", "-y", "--no-install-recommends", "chromium"]):
        done = subprocess.run(["apt-get", *command], env=environment, capture_output=True, text=True)  # noqa: S607
        if done.returncode:
            print(f"apt-get {command[0]} failed:\n{done.stderr[-2000:]}", flush=True)
            return


def main() -> int:
    if find() is None:
        install()
    if find() is not None:
        return 0
    print(f"\n{'=' * len(NOT_RUN)}\n{NOT_RUN}\n{'=' * len(NOT_RUN)}\n", flush=True)
    return 1 if required() else 0


if __name__ == "__main__":
    sys.exit(main())
