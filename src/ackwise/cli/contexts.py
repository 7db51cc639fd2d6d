"""Named URLs in a file of the user's configuration folder.

Only the user can read the file, because a URL may have a password.
"""

from __future__ import annotations

import os
import re
from pathlib import Path

import msgspec
import typer

from ackwise.core.errors import BadInput, NotFound

MOST = 1000
NAME = re.compile(r"[A-Za-z0-9._-]{1,64}")


class Contexts(msgspec.Struct, forbid_unknown_fields=True):
    """Named URLs. `current` is the one that commands use by default."""

    current: str | None = None
    contexts: dict[str, str] = {}

    @property
    def current_url(self) -> str | None:
        return None if self.current is None else self.contexts.get(self.current)

    def url(self, name: str) -> str:
        if name not in self.contexts:
            raise NotFound(f"there is no context {name!r}; add it with: ackwise context add {name} URL")
        return self.contexts[name]


def path() -> Path:
    return Path(typer.get_app_dir("ackwise")) / "contexts.json"


def read() -> Contexts:
    """The stored contexts. None are stored if the file does not exist."""
    try:
        return msgspec.json.decode(path().read_bytes(), type=Contexts)
    except FileNotFoundError:
        return Contexts()
    except (OSError, msgspec.DecodeError) as problem:
        raise BadInput(f"{path()}: {problem}") from None


def write(stored: Contexts) -> None:
    """Replace the file in one step, with mode 0600."""
    file = path()
    draft = file.with_name(f".{file.name}.{os.getpid()}")
    try:
        file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        with os.fdopen(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as opened:
            os.fchmod(opened.fileno(), 0o600)
            opened.write(msgspec.json.format(msgspec.json.encode(stored), indent=2) + b"\n")
        draft.replace(file)
    except OSError as problem:
        raise BadInput(f"{file}: {problem}") from None
