"""Run all linters in parallel and print their findings."""

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
BIN = Path(sys.executable).parent
CHECKS = (
    ("ruff", "check"),
    ("ruff", "format", "--check"),
    ("mypy",),
    ("lint-imports", "--no-cache"),
    ("python", "tools/plain_language.py"),
    ("python", "tools/complexity.py"),
)


def lint() -> bool:
    """Runs the linters side by side; True when all of them pass."""
    running = [(check, start(check)) for check in CHECKS]
    passed = [finish(check, process) for check, process in running]
    return all(passed)


def start(check: tuple[str, ...]) -> subprocess.Popen[str]:
    command = [str(BIN / check[0]), *check[1:]]
    return subprocess.Popen(
        command, cwd=ROOT, text=True, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
    )


def finish(check: tuple[str, ...], process: subprocess.Popen[str]) -> bool:
    output, _ = process.communicate()
    passed = process.returncode == 0
    print(f"{' '.join(check)}: {'ok' if passed else 'FAILED'}", flush=True)
    if not passed:
        print(output, flush=True)
    return passed


if __name__ == "__main__":
    sys.exit(0 if lint() else 1)
