"""Create .venv from requirements.lock and install the project into it; does nothing when both are unchanged.

Usage: tools/make_venv.py [--clients]

With --clients, also the environments of the official Queen clients that the tests drive: .venv-queen-<version>.
"""

import argparse
import hashlib
import subprocess
import sys
import venv
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
VENV = ROOT / ".venv"
CLIENTS = ROOT / "tests" / "server" / "queen_clients"


def fingerprint(folder: Path, *files: Path) -> str:
    """Scripts inside an environment hold its path, so a copied folder counts as changed."""
    digest = hashlib.sha256(f"{sys.version}\0{folder}".encode())
    for file in files:
        digest.update(file.read_bytes())
    return digest.hexdigest()


def pip(*arguments: str) -> None:
    command = [str(VENV / "bin" / "python"), "-m", "pip", "--no-input", "--disable-pip-version-check", *arguments]
    subprocess.run(command, cwd=ROOT, check=True, stdin=subprocess.DEVNULL)


def fresh(stamp: Path, wanted: str) -> bool:
    return stamp.exists() and stamp.read_text() == wanted


def make_project() -> None:
    lock, project = ROOT / "requirements.lock", ROOT / "pyproject.toml"
    packages, installed = VENV / "packages.stamp", VENV / "project.stamp"
    locked, described = fingerprint(VENV, lock), fingerprint(VENV, lock, project)
    if not fresh(packages, locked):
        venv.create(VENV, clear=True, with_pip=True, symlinks=True)
        # Python compiles what it imports; most of what is installed never is.
        pip("install", "-qq", "--no-compile", "--no-deps", "--require-hashes", "-r", str(lock))
        packages.write_text(locked)
    if not fresh(installed, described):
        pip("install", "-qq", "--no-deps", "--no-build-isolation", "-e", ".")
        pip("-q", "check")
        installed.write_text(described)


def make_client(lock: Path) -> None:
    """An environment without a pip of its own: the project's fills it."""
    folder = ROOT / f".venv-queen-{lock.stem.removeprefix('requirements-')}"
    stamp, locked = folder / "packages.stamp", fingerprint(folder, lock)
    if not fresh(stamp, locked):
        venv.create(folder, clear=True, symlinks=True)
        inside = ("--python", str(folder / "bin" / "python"))
        pip(*inside, "install", "-qq", "--no-deps", "--require-hashes", "-r", str(lock))
        pip(*inside, "-q", "check")
        stamp.write_text(locked)


def main() -> int:
    parser = argparse.ArgumentParser(description="Create or refresh the environments.")
    parser.add_argument("--clients", action="store_true", help="also those of the official Queen clients")
    clients = parser.parse_args().clients
    try:
        make_project()
        if clients:
            with ThreadPoolExecutor() as pool:
                list(pool.map(make_client, CLIENTS.glob("requirements-*.txt")))
    except subprocess.CalledProcessError as error:
        return int(error.returncode)
    return 0


if __name__ == "__main__":
    sys.exit(main())
