"""Find promtool for the check of the alert rules, or install it.

Usage: python -m tools.promtool

Takes the promtool on the PATH. Without one, root on a machine with apt installs the package `prometheus`. Otherwise
the check does not run, and the summary of the tests says so.
"""

from __future__ import annotations

import shutil
import sys

from tools import apt_package

NOT_RUN = "check of the alert rules NOT RUN: there is no promtool on the PATH, and only root with apt can install one"


def find() -> str | None:
    return shutil.which("promtool")


def main() -> int:
    if find() is None:
        apt_package.install("prometheus", "the check of the alert rules")
    if find() is None:
        print(f"\n{'=' * len(NOT_RUN)}\n{NOT_RUN}\n{'=' * len(NOT_RUN)}\n", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
