"""Settings of `ackwise serve` as the dashboard shows them: value and origin of each option."""

from __future__ import annotations

import os
from typing import Any

import typer

from ackwise.cli.config_file import DEFAULT_FILE
from ackwise.dashboard.settings import ShownSetting
from ackwise.wire.store_url import without_password

_ORIGINS = {"COMMANDLINE": "flag", "ENVIRONMENT": "environment", "DEFAULT_MAP": "file"}


def shown_settings(context: typer.Context, **effective: object) -> list[ShownSetting]:
    """Every option of the running command. `effective` are values that the command made of its options."""
    root = context.find_root()
    file = str(root.params.get("config") or DEFAULT_FILE)
    values = {**context.params, **effective}
    shown = []
    for option in context.command.params:
        if option.name not in values:
            continue
        source = context.get_parameter_source(option.name)
        origin = _ORIGINS.get(getattr(source, "name", ""), "default")
        where = {"flag": option.opts[0], "environment": _variable(option), "file": file}.get(origin, "")
        shown.append(ShownSetting(option.name, _text(values[option.name]), origin, where))
    return shown


def _variable(option: Any) -> str:
    """The environment variable that has the value."""
    names = [option.envvar] if isinstance(option.envvar, str) else list(option.envvar or ())
    return next((name for name in names if os.environ.get(name)), "")


def _text(value: object) -> str:
    if value is None or value == [] or value == ():
        return ""
    if isinstance(value, list | tuple):
        return without_password(", ".join(map(str, value)))
    if isinstance(value, bool):
        return "yes" if value else "no"
    return without_password(str(value))
