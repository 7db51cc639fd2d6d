"""docs/reference/names.md, parsed: the names of each section with their marks and explanations."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

PAGE = Path(__file__).resolve().parents[2] / "docs" / "reference" / "names.md"
_HEADING = re.compile(r"^#{2,3} (.+)$")
_NAME = r"`[^`]+`(?: \(planned\))?"
_LINE = re.compile(rf"^- (?P<names>{_NAME}(?:, {_NAME})*)(?:: (?P<text>.+))?$")
_PARTS = re.compile(r"`(?P<name>[^`]+)`(?P<planned> \(planned\))?")


class Name(NamedTuple):
    """A public name. `text` is the explanation of its line."""

    section: str
    name: str
    planned: bool
    text: str


def names(page: str | None = None) -> Iterator[Name]:
    """Every name of the page. A list line of another form is an error."""
    section = ""
    for line in (PAGE.read_text() if page is None else page).splitlines():
        if heading := _HEADING.match(line):
            section = heading[1]
        elif line.startswith("- "):
            parsed = _LINE.match(line)
            if parsed is None:
                raise ValueError(f"{PAGE.name}: {line!r} does not begin with names in code spans and a colon")
            for part in _PARTS.finditer(parsed["names"]):
                yield Name(section, part["name"], part["planned"] is not None, parsed["text"] or "")
