"""How a struct is named where its kind is told by a tag."""

from __future__ import annotations

import re

_WORD = re.compile(r"(?<!^)(?=[A-Z])")


def spelled(name: str) -> str:
    """`ListQueues` as `list_queues`."""
    return _WORD.sub("_", name).lower()
