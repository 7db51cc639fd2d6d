"""docs/reference/cli.md names every command of the program, and no other. Flags that it shows exist."""

from __future__ import annotations

import re
from pathlib import Path

from tests.docs import product_names as product

PAGE = Path(__file__).resolve().parents[2] / "docs" / "reference" / "cli.md"
ROW = re.compile(r"^\| `ackwise ([^`]+)` \|", re.MULTILINE)


def command_of(usage: str) -> str:
    """The longest command with which a usage begins."""
    words = usage.replace("\\|", "|").split()
    names = [" ".join(words[:count]) for count in (2, 1)]
    return next((name for name in names if name in product.commands()), usage)


def test_page_names_every_command_once() -> None:
    named = [command_of(usage) for usage in ROW.findall(PAGE.read_text())]
    assert sorted(named) == sorted(product.commands())


def test_flags_of_the_page_exist() -> None:
    for usage in ROW.findall(PAGE.read_text()):
        command = command_of(usage)
        for flag in re.findall(r"(?<![\w-])--?[a-z][a-z-]*", usage):
            assert flag in product.options(command), f"{command} has no {flag}"
