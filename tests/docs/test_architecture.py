"""docs/architecture.md names the files and packages that exist."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
SOURCE = ROOT / "src" / "ackwise"
PAGE = (ROOT / "docs" / "architecture.md").read_text()
PATH = re.compile(r"`([a-z_][\w/.-]*(?:/|\.(?:py|sql|md|toml)))`")
EXAMPLES = {"push.py", "pop.py", "vocabulary.py", "aio/", "sync/", "sqlite_0002.sql"}
"""Names without the folder above them: modules and files that you add, and the two halves of a client."""
FOLDERS = ("core", "store/tables", "engine/reads", "graph/engine/tables", "cli", "")


def exists(path: str) -> bool:
    below = [SOURCE / folder / path for folder in FOLDERS]
    return any(place.exists() for place in (ROOT / path, *below))


def test_paths_of_the_page_exist() -> None:
    paths = set(PATH.findall(PAGE))
    assert len(paths) > 60
    assert sorted(path for path in paths - EXAMPLES if not exists(path)) == []


def test_page_has_every_package() -> None:
    packages = [path.name for path in SOURCE.iterdir() if (path / "__init__.py").exists()]
    assert [name for name in packages if f"`{name}/`" not in PAGE] == []


def test_page_has_the_layers_of_the_linter() -> None:
    configured = (ROOT / "pyproject.toml").read_text().partition("\nlayers = [\n")[2].partition("]\n")[0]
    layers = [line.strip(' ",').replace("(", "").replace(")", "") for line in configured.splitlines()]
    shown = PAGE.partition("```text\n")[2].partition("```")[0]
    assert [line.strip() for line in shown.splitlines()] == [layer for layer in layers if layer != "__main__"]
