"""The class-data archive of the tests: a broken one does no harm."""

from __future__ import annotations

import subprocess
from pathlib import Path

from ackwise.spark import java
from tests.spark import class_archive


def test_broken_class_archive_is_ignored_in_silence(tmp_path: Path) -> None:
    found = java.find()
    archive = tmp_path / "spark.jsa"
    archive.write_bytes(b"no archive" * 1000)
    command = [str(found.home / "bin" / "java"), *class_archive.options(archive), "-version"]
    java_run = subprocess.run(command, capture_output=True, text=True)
    assert (java_run.returncode, java_run.stdout) == (0, "")
    assert "version" in java_run.stderr.splitlines()[0]
