"""Install a package of apt that a check needs."""

from __future__ import annotations

import os
import shutil
import subprocess


def install(package: str, purpose: str) -> None:
    """Install a package, if this is root on a machine with apt. Prints a failure and does not raise."""
    if os.geteuid() != 0 or shutil.which("apt-get") is None:
        return
    print(f"installing {package} for {purpose} ...", flush=True)
    environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    for command in (["update", "-qq"], ["install", "-qq", "-y", "--no-install-recommends", package]):
        done = subprocess.run(["apt-get", *command], env=environment, capture_output=True, text=True)  # noqa: S607
        if done.returncode:
            print(f"apt-get {command[0]} failed:\n{done.stderr[-2000:]}", flush=True)
            return
