"""Things in the user's own modules, named like `module:name`."""

from __future__ import annotations

import sys
from pathlib import Path

from ackwise.core.errors import BadInput


def named(target: str, what: str, example: str) -> tuple[str, str]:
    """The module and the name in it. Modules of the working folder can be imported from now on, as Python would."""
    module, _, name = target.partition(":")
    if not all(part.isidentifier() for part in (*module.split("."), *name.split("."))):
        raise BadInput(f"{target!r} names no {what}; write it like {example}")
    if (here := str(Path.cwd())) not in sys.path:
        sys.path.insert(0, here)
    return module, name
