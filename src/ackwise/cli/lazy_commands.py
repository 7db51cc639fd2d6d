"""Commands that are imported on use, so that the help of the program starts fast."""

from __future__ import annotations

from collections.abc import ItemsView, ValuesView
from importlib import import_module
from typing import Any, ClassVar, NamedTuple

import typer
from typer.core import TyperCommand, TyperGroup

COMMAND_SETTINGS: dict[str, Any] = {"help_option_names": ["-h", "--help"]}


class Home(NamedTuple):
    """Module and name of a command's function, or of the Typer app of a noun, with the line that the help shows."""

    module: str
    name: str
    help: str


class LazyCommands(dict[str, Any]):
    """Commands by name. The first access to a command imports its module."""

    def __init__(self, homes: dict[str, Home]) -> None:
        super().__init__(dict.fromkeys(homes))
        self._homes = homes

    def __getitem__(self, name: str) -> Any:
        command = super().__getitem__(name)
        if command is None:
            command = self[name] = _loaded(name, self._homes[name])
        return command

    def get(self, name: str, default: Any = None) -> Any:
        if name not in self:
            return default
        return self[name]

    def items(self) -> ItemsView[str, Any]:  # type: ignore[override]
        return {name: self[name] for name in self}.items()

    def values(self) -> ValuesView[Any]:  # type: ignore[override]
        return {name: self[name] for name in self}.values()


def _loaded(name: str, home: Home) -> Any:
    target = getattr(import_module(home.module), home.name)
    if isinstance(target, typer.Typer):
        command = typer.main.get_command(_named(target, name))
    else:
        single = typer.Typer(add_completion=False, rich_markup_mode=None)
        single.command(name=name)(target)
        command = typer.main.get_command(single)
    command.name = name
    return command


def _named(app: typer.Typer, name: str) -> typer.Typer:
    # Plain help: an import of rich would take longer than the whole help.
    app._add_completion, app.rich_markup_mode = False, None
    app.info.name = name
    return app


class LazyGroup(TyperGroup):
    """The program: its help shows the line of each command without an import of the command's module."""

    HOMES: ClassVar[dict[str, Home]] = {}

    def __init__(self, *arguments: Any, **settings: Any) -> None:
        super().__init__(*arguments, **settings)
        self.commands = LazyCommands(self.HOMES)
        self._brief = False

    def list_commands(self, ctx: Any) -> list[str]:
        return list(self.HOMES)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        if self._brief and cmd_name in self.HOMES:
            return TyperCommand(cmd_name, help=self.HOMES[cmd_name].help)
        return self.commands.get(cmd_name)

    def format_help(self, ctx: Any, formatter: Any) -> None:
        self._brief = True
        try:
            super().format_help(ctx, formatter)
        finally:
            self._brief = False
