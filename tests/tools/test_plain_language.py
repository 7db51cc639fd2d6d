"""tools/plain_language.py: what it finds, what its baseline allows, which commit messages it accepts."""

from __future__ import annotations

from pathlib import Path

import pytest

from tools import plain_language


def write(root: Path, path: str, text: str) -> None:
    file = root / path
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text)


def found(root: Path) -> list[tuple[str, int]]:
    return [(finding.path, finding.line) for finding in plain_language.findings(root)]


@pytest.mark.parametrize(
    "source",
    [
        '"""Wakes whoever waits."""\n',
        "# Nobody reads this.\n",
        "x = 1  # for somebody else\n",
        'raise ValueError("anybody may")\n',
        'x = f"{y} nobody"\n',
        '"""The lane, of\nwhich there are two."""\n',
        "# The lane, of\n# which there are two.\n",
    ],
)
def test_banned_word_in_python_prose_is_found(tmp_path: Path, source: str) -> None:
    write(tmp_path, "src/pkg/lanes.py", source)
    assert found(tmp_path) == [("src/pkg/lanes.py", 1)]


@pytest.mark.parametrize("source", ["nobody = 1\n", "# A body; some body.\n", '"""Wakes the caller."""\n'])
def test_plain_python_has_no_finding(tmp_path: Path, source: str) -> None:
    write(tmp_path, "src/pkg/lanes.py", source)
    assert found(tmp_path) == []


def test_finding_after_multiline_string_names_its_line(tmp_path: Path) -> None:
    write(tmp_path, "src/pkg/lanes.py", '"""One.\n\nTwo, for nobody.\n"""\n\nx = 1  # whoever\n')
    assert found(tmp_path) == [("src/pkg/lanes.py", 3), ("src/pkg/lanes.py", 6)]


def test_banned_word_in_page_is_found(tmp_path: Path) -> None:
    """Pages under docs and tests, pages at the top, SQL files; a word quoted as code is no finding."""
    write(tmp_path, "README.md", "Whoever reads.\n")
    write(tmp_path, "docs/guides/a.md", "Never say `nobody`.\nNobody does.\n")
    write(tmp_path, "src/pkg/a.sql", "-- somebody\n")
    write(tmp_path, "tests/README.md", "Anybody.\n")
    pages = [("README.md", 1), ("docs/guides/a.md", 2), ("src/pkg/a.sql", 1), ("tests/README.md", 1)]
    assert sorted(found(tmp_path)) == pages


@pytest.mark.parametrize(
    "source",
    [
        "def f():\n    found = 1\n",
        "async def f():\n    here: int = 1\n",
        "def f(a):\n    return [x for\n one in a]\n",
        "key = (\n    lambda one: one)\n",
        "def f(\n    told): ...\n",
        "def f():\n    if (mine := 1): ...\n",
    ],
)
def test_vague_local_in_source_is_found(tmp_path: Path, source: str) -> None:
    write(tmp_path, "src/pkg/lanes.py", source)
    write(tmp_path, "tests/test_lanes.py", source)
    line = 3 if "for" in source else 2
    assert found(tmp_path) == [("src/pkg/lanes.py", line)]


@pytest.mark.parametrize(
    "source", ["class Done:\n    found: int = 1\n", "def f(done):\n    done.found = 1\n    return done.one(found=2)\n"]
)
def test_vague_field_in_source_is_no_finding(tmp_path: Path, source: str) -> None:
    write(tmp_path, "src/pkg/lanes.py", source)
    assert found(tmp_path) == []


def test_ing_module_is_found(tmp_path: Path) -> None:
    for path in ("pushing.py", "testing.py", "tracing.py", "claiming/__init__.py", "thing/readme.txt"):
        write(tmp_path, f"src/pkg/{path}", "")
    assert found(tmp_path) == [("src/pkg/claiming", 1), ("src/pkg/pushing.py", 1)]


def test_long_test_name_is_found(tmp_path: Path) -> None:
    longest, longer = "test_" + "x" * 55, "test_" + "x" * 56
    write(tmp_path, "tests/test_a.py", f"def {longest}(): ...\nclass TestA:\n    async def {longer}(self): ...\n")
    assert found(tmp_path) == [("tests/test_a.py", 3)]


def test_test_name_with_pronoun_is_found(tmp_path: Path) -> None:
    write(tmp_path, "tests/test_a.py", "def test_close_wakes_nobody(): ...\ndef test_nobodys(): ...\n")
    assert found(tmp_path) == [("tests/test_a.py", 1)]


@pytest.mark.parametrize("name", ["test_a_claim", "test_an_ack", "test_the_lease", "test_what_is_granted"])
def test_test_name_without_a_subject_is_found(tmp_path: Path, name: str) -> None:
    write(tmp_path, "tests/test_a.py", f"def {name}(): ...\nclass TestA:\n    async def {name}(self): ...\n")
    assert found(tmp_path) == [("tests/test_a.py", 1), ("tests/test_a.py", 3)]


@pytest.mark.parametrize("name", ["test_ack_ends_a_lease", "test_anchor_moves", "test_theme_is_dark", "test_whatever"])
def test_test_name_that_begins_with_its_subject_passes(tmp_path: Path, name: str) -> None:
    write(tmp_path, "tests/test_a.py", f"def {name}(): ...\n")
    assert found(tmp_path) == []


def test_data_of_a_test_is_not_prose(tmp_path: Path) -> None:
    write(tmp_path, "tests/test_a.py", '"""Nobody."""\ngroup = "nobody"  # somebody\n')
    assert found(tmp_path) == [("tests/test_a.py", 1), ("tests/test_a.py", 2)]


def test_baseline_allows_its_count_and_no_more(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write(tmp_path, "README.md", "Nobody.\nNobody.\n")
    write(tmp_path, "tools/plain_baseline.txt", "# comment\nREADME.md 2\n")
    assert plain_language.check(tmp_path) == 0
    write(tmp_path, "README.md", "Nobody.\nNobody.\nNobody.\n")
    assert plain_language.check(tmp_path) == 1
    assert "README.md: 3 findings, 2 allowed" in capsys.readouterr().out


def test_write_baseline_without_one_lists_all_findings(tmp_path: Path) -> None:
    write(tmp_path, "README.md", "Nobody.\nNobody.\n")
    (tmp_path / "tools").mkdir()
    assert plain_language.write_baseline(tmp_path) == 0
    assert plain_language.read_baseline(tmp_path) == {"README.md": 2}


def test_write_baseline_lowers_counts_and_never_raises(tmp_path: Path) -> None:
    write(tmp_path, "tools/plain_baseline.txt", "README.md 2\ndocs/a.md 2\ndocs/b.md 1\n")
    write(tmp_path, "README.md", "Nobody.\n")
    write(tmp_path, "docs/a.md", "Nobody.\nNobody.\nNobody.\n")
    write(tmp_path, "docs/c.md", "Nobody.\n")
    assert plain_language.write_baseline(tmp_path) == 1
    assert plain_language.read_baseline(tmp_path) == {"README.md": 1, "docs/a.md": 2}


@pytest.mark.parametrize(
    "message",
    [
        "fix(postgres): add woken counts after a fallback\n",
        "feat!: drop Python 3.10\n\nBREAKING CHANGE: none\n# Please enter the commit message\n",
        "# comment first\n\ndocs: say you\n",
        "Merge branch 'main'\n",
        "fixup! fix: add counts\n",
        "fix: " + "x" * 66,
    ],
)
def test_commit_message_in_good_form_is_accepted(tmp_path: Path, message: str) -> None:
    write(tmp_path, "message", message)
    assert plain_language.main(["--commit-msg", str(tmp_path / "message")]) == 0


@pytest.mark.parametrize(
    ("message", "complaint"),
    [
        ("", "empty"),
        ("# only a comment\n", "empty"),
        ("Add counts\n", "Conventional Commit"),
        ("fixed: counts\n", "Conventional Commit"),
        ("fix(postgres) add counts\n", "Conventional Commit"),
        ("fix:  two spaces\n", "Conventional Commit"),
        ("fix: " + "x" * 67, "72 characters"),
        ("fix: add counts.\n", "full stop"),
        ("fix: add counts\nand more\n", "second line"),
    ],
)
def test_commit_message_in_bad_form_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], message: str, complaint: str
) -> None:
    write(tmp_path, "message", message)
    assert plain_language.main(["--commit-msg", str(tmp_path / "message")]) == 1
    assert complaint in capsys.readouterr().err
