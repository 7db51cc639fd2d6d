"""Create .venv from the lock files and install the project into it; does nothing when they are unchanged.

Usage: tools/make_venv.py [--product] [--clients]

With --product, only what the product needs (requirements.lock), and nothing for tests, docs and checks
(requirements-dev.lock). Also extracts the files of Swagger UI from the wheel in swagger-ui.lock, for the page /docs.
With --clients, also the environments of the official Queen clients that the tests drive:
.venv-queen-<version>.
"""

import argparse
import hashlib
import shutil
import subprocess
import sys
import tempfile
import venv
import zipfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
VENV = ROOT / ".venv"
CLIENTS = ROOT / "tests" / "protocols" / "queen_clients"


SWAGGER_LOCK = ROOT / "swagger-ui.lock"
SWAGGER_UI = ROOT / "src" / "ackwise" / "server" / "swagger_ui"
SWAGGER_FILES = {
    "/swagger-ui-dist/swagger-ui-bundle.js": "swagger-ui-bundle.js",
    "/swagger-ui-dist/swagger-ui.css": "swagger-ui.css",
    "/swagger-ui-dist/LICENSE": "LICENSE-swagger-ui.txt",
    ".dist-info/licenses/LICENSE": "LICENSE-sidecar.txt",
}
"""Files of the wheel, by the end of their paths, and their names in `SWAGGER_UI`."""


def fingerprint(folder: Path, *files: Path) -> str:
    """Hash of what the environment depends on. It contains the path, because scripts inside hold it."""
    digest = hashlib.sha256(f"{sys.version}\0{folder}".encode())
    for file in files:
        digest.update(file.read_bytes())
    return digest.hexdigest()


def pip(*arguments: str) -> None:
    command = [str(VENV / "bin" / "python"), "-m", "pip", "--no-input", "--disable-pip-version-check", *arguments]
    subprocess.run(command, cwd=ROOT, check=True, stdin=subprocess.DEVNULL)


def fresh(stamp: Path, wanted: str) -> bool:
    return stamp.exists() and stamp.read_text() == wanted


def make_project(*, product_only: bool) -> None:
    """Install the locked packages in two steps, so that a demo needs no packages of the tests."""
    lock, more, project = (ROOT / name for name in ("requirements.lock", "requirements-dev.lock", "pyproject.toml"))
    packages, for_tests, installed = (VENV / f"{name}.stamp" for name in ("packages", "development", "project"))
    locked = fingerprint(VENV, lock)
    if not fresh(packages, locked):
        venv.create(VENV, clear=True, with_pip=True, symlinks=True)
        install(lock)
        packages.write_text(locked)
    if not product_only and not fresh(for_tests, fingerprint(VENV, lock, more)):
        install(more)
        for_tests.write_text(fingerprint(VENV, lock, more))
    if not fresh(installed, fingerprint(VENV, lock, project)):
        pip("install", "-qq", "--no-deps", "--no-build-isolation", "-e", ".")
        pip("-q", "check")
        installed.write_text(fingerprint(VENV, lock, project))


def install(lock: Path) -> None:
    # Python compiles what it imports; most of what is installed never is.
    pip("install", "-qq", "--no-compile", "--no-deps", "--require-hashes", "-r", str(lock))


def make_client(lock: Path) -> None:
    """Create an environment without pip. The project's pip installs into it."""
    folder = ROOT / f".venv-queen-{lock.stem.removeprefix('requirements-')}"
    stamp, locked = folder / "packages.stamp", fingerprint(folder, lock)
    if not fresh(stamp, locked):
        venv.create(folder, clear=True, symlinks=True)
        inside = ("--python", str(folder / "bin" / "python"))
        pip(*inside, "install", "-qq", "--no-deps", "--require-hashes", "-r", str(lock))
        pip(*inside, "-q", "check")
        stamp.write_text(locked)


def make_swagger_ui() -> None:
    """Download the locked wheel and extract the files of Swagger UI. Git ignores them, our wheel contains them."""
    stamp, locked = VENV / "swagger-ui.stamp", fingerprint(SWAGGER_UI, SWAGGER_LOCK)
    if fresh(stamp, locked) and all((SWAGGER_UI / name).is_file() for name in SWAGGER_FILES.values()):
        return
    with tempfile.TemporaryDirectory() as folder:
        pip("download", "-qq", "--no-deps", "--require-hashes", "-r", str(SWAGGER_LOCK), "-d", folder)
        (wheel,) = Path(folder).glob("*.whl")
        extract_swagger_ui(wheel, SWAGGER_UI)
    stamp.write_text(locked)


def extract_swagger_ui(wheel: Path, target: Path) -> None:
    """Replace the files in `target` by those of the wheel."""
    with zipfile.ZipFile(wheel) as archive:
        names = {new: [name for name in archive.namelist() if name.endswith(end)] for end, new in SWAGGER_FILES.items()}
        missing = sorted(new for new, sources in names.items() if len(sources) != 1)
        if missing:
            raise SystemExit(f"{wheel.name} has other files than expected; not found: {', '.join(missing)}")
        shutil.rmtree(target, ignore_errors=True)
        target.mkdir(parents=True)
        for new, (source,) in names.items():
            (target / new).write_bytes(archive.read(source))


def main() -> int:
    parser = argparse.ArgumentParser(description="Create or refresh the environments.")
    parser.add_argument("--clients", action="store_true", help="also those of the official Queen clients")
    parser.add_argument("--product", action="store_true", help="nothing for tests, docs and checks")
    options = parser.parse_args()
    try:
        make_project(product_only=options.product)
        make_swagger_ui()
        if options.clients:
            with ThreadPoolExecutor() as pool:
                list(pool.map(make_client, CLIENTS.glob("requirements-*.txt")))
    except subprocess.CalledProcessError as error:
        return int(error.returncode)
    return 0


if __name__ == "__main__":
    sys.exit(main())
