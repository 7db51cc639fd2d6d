"""Extensions: commands, duties, invariants and tables that a product adds to a store."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from enum import IntEnum
from typing import TYPE_CHECKING, TypeVar, cast

import msgspec

from ackwise.core.answers import Result
from ackwise.core.commands import Command, Sweep
from ackwise.core.errors import BadInput, SchemaTooNew
from ackwise.engine.ports import Session

if TYPE_CHECKING:
    from ackwise.engine.turn import Turn

C = TypeVar("C", bound=Command)
Handler = Callable[["Turn", Command], Result]
"""Runs a command and returns its answer."""
Duty = Callable[["Turn", int], int]
"""Does up to a number of time-driven changes and returns how many it did."""


class Phase(IntEnum):
    """Phases of a turn, in their order. A later phase sees the changes of the earlier ones."""

    SETTLE = 0
    ADMIN = 1
    PUSH = 2
    CLAIM = 3
    AFTER_CLAIMS = 4


PhasedHandler = tuple[Phase, Handler]


def handles(kind: type[C], function: Callable[[Turn, C], Result]) -> tuple[type[Command], Handler]:
    """A command with its handler, for a table of handlers. The function takes this command only.

    The table finds a handler by the type of the command, so the handler never gets another one.
    """
    return kind, cast("Handler", function)


def handled(kind: type[C], phase: Phase, function: Callable[[Turn, C], Result]) -> tuple[type[Command], PhasedHandler]:
    """A command of an extension with its phase and its handler."""
    return kind, (phase, handles(kind, function)[1])


class Extension(msgspec.Struct, frozen=True, kw_only=True):
    """Extension of the engine. A store without the extension has neither its commands nor its tables."""

    name: str
    """Name of the extension in `meta`, which has the version of its schema."""
    tables: str
    """Folder with `statements.sql`, `postgres.sql`, and `sqlite_0001.sql`, `postgres_0001.sql` for each version."""
    schema_version: int
    lock: str
    """Statement that PostgreSQL runs before a turn with commands of the extension. Such turns do not overlap."""
    commands: Mapping[type[Command], PhasedHandler]
    """Made by `handled`."""
    duties: Mapping[str, Duty]
    """Duties of `Sweep`, by name. The broker runs each of them every second."""
    audit: Callable[[Session], list[str]]
    """Returns one text for each violated invariant."""
    needs_instance: Callable[[Session, str], bool]
    """Whether the row of a dead broker must stay."""

    @property
    def meta_key(self) -> str:
        return meta_key(self.name)

    def check_version(self, version: int, where: str) -> None:
        """Refuse tables of a newer version."""
        if version > self.schema_version:
            raise SchemaTooNew(
                f"{where} has schema {version} of {self.name}, this Ackwise knows {self.schema_version}; "
                "upgrade Ackwise to open it"
            )

    def owns(self, command: Command) -> bool:
        if isinstance(command, Sweep):
            return any(duty in command.duties for duty in self.duties)
        return type(command) in self.commands


def meta_key(name: str) -> str:
    """Key of the row in `meta` that has the schema version of an extension."""
    return f"schema:{name}"


class Extensions:
    """The extensions of one store. `install` creates or migrates the tables of an extension."""

    def __init__(self, install: Callable[[Extension], None]) -> None:
        self._install = install
        self._all: dict[str, Extension] = {}
        self._commands: dict[type[Command], PhasedHandler] = {}
        self.duties: dict[str, Duty] = {}

    def __contains__(self, name: str) -> bool:
        return name in self._all

    def __iter__(self) -> Iterator[Extension]:
        return iter(self._all.values())

    def add(self, extension: Extension) -> None:
        """Install an extension and add its commands, before the first turn. Does nothing for a known extension."""
        if extension.name in self._all:
            return
        self._install(extension)
        self._all[extension.name] = extension
        self._commands.update(extension.commands)
        self.duties.update(extension.duties)

    def phase(self, kind: type[Command]) -> Phase:
        """The phase of a command. A command without an extension is refused when it runs."""
        return self._commands[kind][0] if kind in self._commands else Phase.ADMIN

    def handler(self, kind: type[Command]) -> Handler:
        if kind not in self._commands:
            raise BadInput(f"{kind.__name__} needs an extension that this store does not have")
        return self._commands[kind][1]

    def locks(self, commands: Sequence[Command]) -> list[str]:
        """Statements that lock what these commands of extensions change."""
        return [extension.lock for extension in self if any(map(extension.owns, commands))]

    def audit(self, session: Session) -> list[str]:
        return [problem for extension in self for problem in extension.audit(session)]

    def need_instance(self, session: Session, instance: str) -> bool:
        """Whether an extension needs the row of a dead broker. One that this process did not load may need it."""
        loaded = {meta_key(extension.name) for extension in self}
        if any(key not in loaded for (key,) in session.rows("meta_extensions")):
            return True
        return any(extension.needs_instance(session, instance) for extension in self)
