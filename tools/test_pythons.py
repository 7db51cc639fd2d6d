"""Install the wheel and each extra into a fresh environment of each Python on this machine, and try the main parts.

The output names an extra that cannot be installed on a Python, with pip's reason.

Usage: tools/test_pythons.py [python3.12 ...]. Without arguments: every python3.11 to python3.14 on the PATH or
installed by pyenv.
"""

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
SUPPORTED = [f"python3.{minor}" for minor in range(11, 15)]
PYENV = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv"))
IMPORTS = {
    "arrow": "import ackwise.arrow.message_pages",
    "cli": "import ackwise.cli.app",
    "client": "import ackwise.client.http_adapters.aio, ackwise.client.http_adapters.threads",
    "mew": "import ackwise.graph.language",
    "nats": "import ackwise.subscriber.feeds.jetstream",
    "otel": "import opentelemetry.sdk.trace",
    "postgres": "import ackwise.store.postgres",
    "server": "import ackwise.server.server",
    "spark": "import ackwise.spark.jobs, ackwise.spark.reports, ackwise.spark.types",
}
"""What each extra must make importable."""
USED = ("cli", "client", "mew", "server")
"""Extras that `PARTS` uses."""
SMOKE = """
import ackwise
with ackwise.connect("sqlite:///queue.db") as queue:
    queue.push("orders", {"id": 1})
    for delivery in queue.consume("orders", stop_when_empty=True):
        with delivery:
            assert delivery.json() == {"id": 1}
    assert not queue.claim("orders", wait=0)
"""
PARTS = """
import subprocess, sys, ackwise
from ackwise.mew import Session
with Session("sqlite:///graph.db") as session:
    session.run("node Job { name: String }")
    session.run('SPAWN j: Job { name = "x" }')
command = [sys.executable, "-m", "ackwise", "serve", "--store", "sqlite:///queue.db", "--port", "0"]
server = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
try:
    with ackwise.connect(server.stdout.readline().split()[1]) as queue:
        queue.push("orders", {"id": 2})
        with queue.claim("orders", wait=5) as batch:
            assert [delivery.json() for delivery in batch] == [{"id": 2}]
finally:
    server.terminate()
    assert server.wait(30) == 0
"""


def run(*command: str, folder: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=600)


def build(folder: Path) -> Path:
    command = [sys.executable, "-m", "pip", "wheel", "-q", "--no-deps", "--no-build-isolation", "-w", str(folder), "."]
    subprocess.run(command, cwd=ROOT, check=True)
    return next(folder.glob("*.whl"))


def packages(python: str, folder: Path) -> int:
    listed = run(python, "-m", "pip", "list", "--format=freeze", "--disable-pip-version-check", folder=folder)
    return sum(not line.startswith(("pip=", "setuptools=", "wheel=")) for line in listed.stdout.split())


def try_python(name: str, wheel: Path, folder: Path) -> str:
    """What happened: the number of packages and the parts that work, or the reason of the first failure."""
    made = run(name, "-m", "venv", "env", folder=folder)
    if made.returncode:
        return f"FAILED: no environment: {made.stderr.strip() or made.stdout.strip()}"
    python = str(folder / "env" / "bin" / "python")
    problem = install(python, str(wheel), folder) or try_script(python, SMOKE, folder)
    if problem:
        return f"FAILED: {problem}"
    outcome = f"ok: {packages(python, folder)} packages for embedded queues"
    refused = {}
    for extra, imports in IMPORTS.items():
        if why := install(python, f"{wheel}[{extra}]", folder):
            refused[extra] = why
        elif problem := try_script(python, imports, folder):
            return f"FAILED: extra {extra}: {problem}"
    if refused.keys().isdisjoint(USED) and (problem := try_script(python, PARTS, folder)):
        return f"FAILED: {problem}"
    outcome += f", {packages(python, folder)} with {','.join(extra for extra in IMPORTS if extra not in refused)}"
    return outcome + "".join(f"; extra {extra} cannot be installed: {why}" for extra, why in refused.items())


def install(python: str, requirement: str, folder: Path) -> str:
    """Install a requirement. Returns the reason of a failure, or nothing."""
    command = (python, "-m", "pip", "install", "-q", "--disable-pip-version-check", requirement)
    return problem_of(run(*command, folder=folder))


def try_script(python: str, script: str, folder: Path) -> str:
    """Run a script. Returns the reason of a failure, or nothing."""
    return problem_of(run(python, "-c", script, folder=folder))


def problem_of(done: subprocess.CompletedProcess[str]) -> str:
    return (done.stderr.strip().splitlines() or ["no reason given"])[-1] if done.returncode else ""


def find(name: str) -> str | None:
    """A Python of this version that runs: on the PATH, or installed by pyenv. A shim of pyenv may not run."""
    places = [shutil.which(name), *map(str, sorted(PYENV.glob(f"versions/{name.removeprefix('python')}.*/bin/python")))]
    return next((place for place in places if place and not run(place, "-c", "", folder=ROOT).returncode), None)


def main() -> int:
    wanted: dict[str, str | None] = {name: name for name in sys.argv[1:]} or {name: find(name) for name in SUPPORTED}
    failed = False
    with tempfile.TemporaryDirectory() as folder:
        wheel = build(Path(folder))
        for name, python in wanted.items():
            home = Path(folder, name.replace("/", "_"))
            home.mkdir()
            outcome = try_python(python, wheel, home) if python is not None else "not on this machine"
            failed |= outcome.startswith("FAILED")
            print(f"{name}: {outcome}", flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
