"""Ackwise: a durable message queue in which every delivery ends in exactly one settlement.

The import of this package loads no other module. The first use of a name loads the module that has it.
"""

import sys
from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING, Any

from ackwise import old_paths

if TYPE_CHECKING:
    from ackwise.client import AsyncConnection, Batch, Connection, Delivery
    from ackwise.client.payloads import Item
    from ackwise.connect import connect, connect_async, dashboard_app
    from ackwise.core import errors, events
    from ackwise.core.policy import Backoff, QueuePolicy
    from ackwise.core.settlement import Reject, Retry

    __version__: str

__all__ = [
    "AsyncConnection",
    "Backoff",
    "Batch",
    "Connection",
    "Delivery",
    "Item",
    "QueuePolicy",
    "Reject",
    "Retry",
    "__version__",
    "connect",
    "connect_async",
    "dashboard_app",
    "errors",
    "events",
]

_HOMES = {
    "AsyncConnection": "ackwise.client",
    "Backoff": "ackwise.core.policy",
    "Batch": "ackwise.client",
    "Connection": "ackwise.client",
    "Delivery": "ackwise.client",
    "Item": "ackwise.client.payloads",
    "QueuePolicy": "ackwise.core.policy",
    "Reject": "ackwise.core.settlement",
    "Retry": "ackwise.core.settlement",
    "connect": "ackwise.connect",
    "connect_async": "ackwise.connect",
    "dashboard_app": "ackwise.connect",
    "errors": "ackwise.core",
    "events": "ackwise.core",
}


class _Package(ModuleType):
    """This package as a module. The name `connect` is the function, also after an import of the module `connect`."""

    def __setattr__(self, name: str, value: object) -> None:
        if name == "connect" and isinstance(value, ModuleType):
            value = value.connect
        super().__setattr__(name, value)

    def __reduce__(self) -> tuple[object, ...]:
        """Pickle the package by its name, as other modules: functions for Spark may use it."""
        return import_module, (__name__,)


def __getattr__(name: str) -> Any:
    if name == "__version__":
        from importlib.metadata import version

        value: Any = version("ackwise")
    elif name in _HOMES:
        home = _HOMES[name]
        value = import_module(f"{home}.{name}") if home == "ackwise.core" else getattr(import_module(home), name)
    else:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    setattr(sys.modules[__name__], name, value)
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})


sys.modules[__name__].__class__ = _Package
old_paths.install()
