"""Create .venv from the lock files and install the project into it; does nothing when they are unchanged.

Usage: tools/make_venv.py [--product] [--clients]

With --product, only what the product needs (requirements.lock), and nothing for tests, docs and checks
(requirements-dev.lock). Also extracts files for browsers from wheels: Swagger UI (swagger-ui.lock) for the page /docs,
and htmx (htmx.lock) for the dashboard.
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
from typing import NamedTuple

ROOT = Path(__file__).resolve().parent.parent
VENV = ROOT / ".venv"
CLIENTS = ROOT / "tests" / "protocols" / "queen_clients"


class BrowserFiles(NamedTuple):
    """Files for browsers out of a wheel that is not installed. Git ignores them, our wheel contains them."""

    lock: Path
    target: Path
    files: dict[str, str]
    """Names in `target` of the wheel's files, by the end of their paths."""


SWAGGER_UI = BrowserFiles(
    ROOT / "swagger-ui.lock",
    ROOT / "src" / "ackwise" / "server" / "swagger_ui",
    {
        "/swagger-ui-dist/swagger-ui-bundle.js": "swagger-ui-bundle.js",
        "/swagger-ui-dist/swagger-ui.css": "swagger-ui.css",
        "/swagger-ui-dist/LICENSE": "LICENSE-swagger-ui.txt",
        ".dist-info/licenses/LICENSE": "LICENSE-sidecar.txt",
    },
)
HTMX = BrowserFiles(
    ROOT / "htmx.lock",
    ROOT / "src" / "ackwise" / "dashboard" / "htmx",
    {
        "/django_htmx/htmx-2.min.js": "htmx-2.min.js",
        "/django_htmx/ext/hx-sse-2.min.js": "hx-sse-2.min.js",
        ".dist-info/licenses/LICENSE": "LICENSE-django-htmx.txt",
    },
)
BROWSER_FILES = (SWAGGER_UI, HTMX)


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


def make_browser_files(wanted: BrowserFiles) -> None:
    """Download the locked wheel and extract its files for browsers."""
    stamp, locked = VENV / f"{wanted.lock.stem}.stamp", fingerprint(wanted.target, wanted.lock)
    if fresh(stamp, locked) and all((wanted.target / name).is_file() for name in wanted.files.values()):
        return
    with tempfile.TemporaryDirectory() as folder:
        pip("download", "-qq", "--no-deps", "--require-hashes", "-r", str(wanted.lock), "-d", folder)
        (wheel,) = Path(folder).glob("*.whl")
        extract(wheel, wanted)
    stamp.write_text(locked)


def extract(wheel: Path, wanted: BrowserFiles) -> None:
    """Replace the files in the target folder by those of the wheel."""
    with zipfile.ZipFile(wheel) as archive:
        names = {new: [name for name in archive.namelist() if name.endswith(end)] for end, new in wanted.files.items()}
        missing = sorted(new for new, sources in names.items() if len(sources) != 1)
        if missing:
            raise SystemExit(f"{wheel.name} has other files than expected; not found: {', '.join(missing)}")
        shutil.rmtree(wanted.target, ignore_errors=True)
        wanted.target.mkdir(parents=True)
        for new, (source,) in names.items():
            (wanted.target / new).write_bytes(archive.read(source))


def main() -> int:
    parser = argparse.ArgumentParser(description="Create or refresh the environments.")
    parser.add_argument("--clients", action="store_true", help="also those of the official Queen clients")
    parser.add_argument("--product", action="store_true", help="nothing for tests, docs and checks")
    options = parser.parse_args()
    try:
        make_project(product_only=options.product)
        for wanted in BROWSER_FILES:
            make_browser_files(wanted)
        if options.clients:
            with ThreadPoolExecutor() as pool:
                list(pool.map(make_client, CLIENTS.glob("requirements-*.txt")))
    except subprocess.CalledProcessError as error:
        return int(error.returncode)
    return 0


if __name__ == "__main__":
    sys.exit(main())
