"""docs/reference/same-names.md lists the class names that two modules share."""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
SOURCE = ROOT / "src" / "ackwise"
PAGE = ROOT / "docs" / "reference" / "same-names.md"


def shared_names() -> dict[str, set[str]]:
    """Public class names that occur in more than one module, with these modules, without generated twins."""
    modules: defaultdict[str, set[str]] = defaultdict(set)
    for path in SOURCE.rglob("*.py"):
        if "sync" in path.parts:
            continue
        for node in ast.parse(path.read_text("utf-8")).body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                modules[node.name].add(path.relative_to(SOURCE).as_posix())
    return {name: paths for name, paths in modules.items() if len(paths) > 1}


def test_page_lists_every_shared_class_name() -> None:
    rows = re.findall(r"^\| `(\w+)` \| (.+?) \|", PAGE.read_text("utf-8"), re.M)
    listed = {name: set(re.findall(r"`([\w/.]+)`", modules)) for name, modules in rows}
    assert listed == shared_names()
