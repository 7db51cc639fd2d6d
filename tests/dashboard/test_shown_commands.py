"""Commands that pages show to copy: the command line has each of them."""

from __future__ import annotations

import re

import pytest

from ackwise.dashboard.static_files import STATIC
from tests.docs.product_names import commands, options

CALLS = sorted(
    {
        call
        for file in (STATIC.parent / "templates").glob("*.html.j2")
        for call in re.findall(r"\bcli\(([^)]*)\)", file.read_text())
    }
)


def test_templates_show_commands() -> None:
    assert len(CALLS) >= 2


@pytest.mark.parametrize("call", CALLS)
def test_shown_command_exists_with_its_options(call: str) -> None:
    words = re.findall(r'"([^"]*)"', call.replace("'", '"'))
    command = next((name for name in (" ".join(words[:2]), words[0]) if name in commands()), "")
    assert command, f"there is no command like {words}"
    flags = {word for word in words if word.startswith("--")}
    assert {*flags, "--url"} <= set(options(command))
