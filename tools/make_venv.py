"""Create .venv from requirements.lock and install the project into it; does nothing when both are unchanged."""

import hashlib
import subprocess
import sys
import venv
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
VENV = ROOT / ".venv"


def fingerprint(*names: str) -> str:
    """Scripts inside an environment hold its path, so a copied folder counts as changed."""
    digest = hashlib.sha256(f"{sys.version}\0{VENV}".encode())
    for name in names:
        digest.update((ROOT / name).read_bytes())
    return digest.hexdigest()


def pip(*arguments: str) -> None:
    command = [str(VENV / "bin" / "python"), "-m", "pip", "--no-input", "--disable-pip-version-check", *arguments]
    subprocess.run(command, cwd=ROOT, check=True, stdin=subprocess.DEVNULL)


def fresh(stamp: Path, wanted: str) -> bool:
    return stamp.exists() and stamp.read_text() == wanted


def main() -> int:
    packages, project = VENV / "packages.stamp", VENV / "project.stamp"
    locked, described = fingerprint("requirements.lock"), fingerprint("requirements.lock", "pyproject.toml")
    try:
        if not fresh(packages, locked):
            venv.create(VENV, clear=True, with_pip=True, symlinks=True)
            pip("install", "-qq", "--no-deps", "--require-hashes", "-r", "requirements.lock")
            packages.write_text(locked)
        if not fresh(project, described):
            pip("install", "-qq", "--no-deps", "--no-build-isolation", "-e", ".")
            pip("-q", "check")
            project.write_text(described)
    except subprocess.CalledProcessError as error:
        return int(error.returncode)
    return 0


if __name__ == "__main__":
    sys.exit(main())
