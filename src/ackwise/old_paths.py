"""Import paths of earlier versions: finds the module at its new path and warns."""

from __future__ import annotations

import importlib
import sys
import warnings
from collections.abc import Sequence
from importlib.machinery import ModuleSpec
from types import ModuleType

MOVED = {
    "ackwise.client.rows": "ackwise.client.results",
    "ackwise.columns": "ackwise.arrow",
    "ackwise.columns.pages": "ackwise.arrow.message_pages",
    "ackwise.columns.texts": "ackwise.arrow.text_columns",
    "ackwise.fluent.partial": "ackwise.fluent.outcomes",
    "ackwise.pushpop.threads": "ackwise.pushpop.thread_actor",
    "ackwise.subscriber.depends": "ackwise.subscriber.signatures",
    "ackwise.subscriber.outcomes": "ackwise.subscriber.message",
}


class OldPaths:
    """Finder and loader of the old paths. The module at an old path has the names of the module at the new one."""

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if name not in MOVED:
            return None
        warnings.warn(f"{name} is now {MOVED[name]}; change the import", DeprecationWarning, stacklevel=2)
        is_package = any(path.startswith(f"{name}.") for path in MOVED)
        return ModuleSpec(name, self, is_package=is_package)  # type: ignore[arg-type]

    def create_module(self, spec: ModuleSpec) -> None:
        """Python creates the module."""

    def exec_module(self, module: ModuleType) -> None:
        names = vars(importlib.import_module(MOVED[module.__name__]))
        vars(module).update({name: value for name, value in names.items() if not name.startswith("__")})


def install() -> None:
    """Ask for the old paths after all other finders, once."""
    if not any(isinstance(finder, OldPaths) for finder in sys.meta_path):
        sys.meta_path.append(OldPaths())
