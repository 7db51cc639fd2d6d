"""Find promtool for the check of the alert rules, or install it.

Usage: tools/promtool.py

Takes the promtool on the PATH. Without one, root on a machine with apt installs the package `prometheus`. Otherwise
the check does not run, and the summary of the tests says so.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys

NOT_RUN = "check of the alert rules NOT RUN: there is no promtool on the PATH, and only root with apt can install one"


def find() -> str | None:
    return shutil.which("promtool")


def install() -> None:
    """Install Debian's Prometheus. Prints a failure, after which `find` finds nothing."""
    if os.geteuid() != 0 or shutil.which("apt-get") is None:
        return
    print("installing prometheus for the check of the alert rules ...", flush=True)
    environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    for command in (["update", "-qq"], ["install", "-qq", "-y", "--no-install-recommends", "prometheus"]):
        done = subprocess.run(["apt-get", *command], env=environment, capture_output=True, text=True)  # noqa: S607
        if done.returncode:
            print(f"apt-get {command[0]} failed:\n{done.stderr[-2000:]}", flush=True)
            return


def main() -> int:
    if find() is None:
        install()
    if find() is None:
        print(f"\n{'=' * len(NOT_RUN)}\n{NOT_RUN}\n{'=' * len(NOT_RUN)}\n", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
