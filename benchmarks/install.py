"""The size of an install: the bare wheel beside the parts that every install had to bring before."""

from __future__ import annotations

import statistics
import subprocess
import sys
import time
from pathlib import Path

from benchmarks.report import Report

PARTS = "cli,client,mew,postgres,server"
ROUNDS = 7
TABLE = "install of the wheel in a fresh environment"


def everything(report: Report, folder: Path) -> None:
    """Packages, megabytes and import time of both installs."""
    wheel = _wheel(folder)
    for name, requirement in (("bare", str(wheel)), (f"with {PARTS}", f"{wheel}[{PARTS}]")):
        home = folder / name.split()[0]
        python = str(home / "bin" / "python")
        subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(home)], check=True)
        pip = [sys.executable, "-m", "pip", "--python", python, "-q", "--disable-pip-version-check"]
        subprocess.run([*pip, "install", "--no-compile", requirement], check=True)
        site = next(home.glob("lib/*/site-packages"))
        packages = len(list(site.glob("*.dist-info")))
        size = sum(file.stat().st_size for file in site.rglob("*") if file.is_file()) / 1e6
        report.add(TABLE, f"{name}: packages", packages, "", metric="packages", aim="<= 4" if name == "bare" else "")
        report.add(TABLE, f"{name}: size", round(size, 1), "MB", metric="size")
        report.add(TABLE, f"{name}: import ackwise", _import_ms(python), "ms", metric="import")


def _wheel(folder: Path) -> Path:
    command = [sys.executable, "-m", "pip", "wheel", "-q", "--no-deps", "--no-build-isolation", "-w", str(folder), "."]
    subprocess.run(command, check=True)
    return next(folder.glob("*.whl"))


def _import_ms(python: str) -> float:
    """Time of `import ackwise` beyond the start of Python, in milliseconds."""
    times: dict[str, list[float]] = {"import ackwise": [], "": []}
    for _ in range(ROUNDS + 1):
        for code, found in times.items():
            started = time.perf_counter()
            subprocess.run([python, "-c", code], check=True)
            found.append(time.perf_counter() - started)
    ours, bare = (statistics.median(found[1:]) for found in times.values())
    return round(1000 * (ours - bare), 1)
