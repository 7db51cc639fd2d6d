"""Settings from a TOML file."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

from ackwise.core.errors import BadInput

DEFAULT_FILE = "ackwise.toml"


def load(file: Path | None, root: Any, invoked: str | None) -> dict[str, Any]:
    """Defaults for the invoked command under `root`. A file that you name must exist. `ackwise.toml` is optional."""
    where = file or Path(DEFAULT_FILE)
    if file is None and not where.exists():
        return {}
    try:
        settings = tomllib.loads(where.read_text("utf-8"))
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as problem:
        raise BadInput(f"{where}: {problem}") from None
    url = settings.pop("url", None)
    serve = settings.pop("serve", {})
    unknown = sorted(settings)
    if unknown or not isinstance(serve, dict):
        raise BadInput(f"{where}: {unknown[0] if unknown else 'serve'} is unknown; the file may have url and [serve]")
    defaults: dict[str, Any] = {}
    if url is not None and invoked is not None:
        defaults[invoked] = _url_everywhere(root.commands[invoked], url)
    if serve or invoked == "serve":
        defaults["serve"] = {
            **({"store": url} if url is not None else {}),
            **_checked(where, serve, root.commands["serve"]),
        }
    return defaults


def _checked(where: Path, given: dict[str, Any], command: Any) -> dict[str, Any]:
    known = {param.name for param in command.params}
    named = {name.replace("-", "_"): value for name, value in given.items()}
    unknown = sorted(set(named) - known)
    if unknown:
        raise BadInput(f"{where}: [serve] has no setting {unknown[0]!r}; see ackwise serve --help")
    lists = {param.name for param in command.params if getattr(param, "multiple", False)}
    # A text for a repeatable option is one value.
    return {name: [value] if name in lists and isinstance(value, str) else value for name, value in named.items()}


def _url_everywhere(command: Any, url: str) -> dict[str, Any]:
    if not hasattr(command, "commands"):
        return {"url": url}
    return {name: _url_everywhere(sub, url) for name, sub in command.commands.items()}
