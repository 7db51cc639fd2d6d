"""The archive of classes: who gets it, and that a bad one does no harm; a good one is behind every session here."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from ackwise.spark import home, java, startup


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.delenv(startup.SWITCH, raising=False)
    return tmp_path / "ackwise"


def jars() -> Path:
    return home.home("another python", local=True) / "jars"


def test_nobody_waits_for_it_without_asking(cache: Path) -> None:
    assert startup.options(java.find(), jars()) == []
    assert not cache.exists()


def test_one_that_is_no_good_is_ignored_in_silence(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = java.find()
    archive = startup._where(cache, found, jars()) / "spark.jsa"
    archive.parent.mkdir(parents=True)
    archive.write_bytes(b"no archive" * 1000)
    options = startup.options(found, jars())
    assert f"-XX:SharedArchiveFile={archive}" in options
    said = subprocess.run([found.home / "bin" / "java", *options, "-version"], capture_output=True, text=True)
    assert (said.returncode, said.stdout) == (0, "")
    assert "version" in said.stderr.splitlines()[0]
    monkeypatch.setenv(startup.SWITCH, "0")
    assert startup.options(found, jars()) == []
