"""`ackwise run`."""

from __future__ import annotations

import asyncio
import importlib
import logging
import os
import sys
from typing import TYPE_CHECKING, Annotated

import typer

from ackwise.cli import logs
from ackwise.cli.modules import named
from ackwise.core.errors import BadInput

if TYPE_CHECKING:
    from ackwise.subscriber import App


def run(
    target: Annotated[str, typer.Argument(metavar="MODULE:APP", help="Where the app is, such as shop.orders:app.")],
    url: Annotated[str | None, typer.Option(envvar="ACKWISE_URL", help="Instead of the app's own URL.")] = None,
    grace: Annotated[
        float, typer.Option(envvar="ACKWISE_GRACE", min=0, help="Seconds that handlers may take to finish.")
    ] = 30.0,
    health_port: Annotated[
        int | None, typer.Option(envvar="ACKWISE_HEALTH_PORT", help="Serve /health/live, ready and started here.")
    ] = None,
    health_host: Annotated[str, typer.Option(envvar="ACKWISE_HEALTH_HOST", help="And on this address.")] = "127.0.0.1",
    log_level: Annotated[str, typer.Option(envvar="ACKWISE_LOG_LEVEL", help="debug, info, warning or error.")] = "info",
) -> None:
    """Run a subscriber app until SIGTERM or Ctrl-C, which drain."""
    logs.begin(log_level)
    app = found(target)
    if url is not None:
        app.url = url
    asyncio.run(app.run(grace=grace, health_port=health_port, host=health_host))
    if app.abandoned:
        logging.shutdown()
        sys.stdout.flush()
        # The interpreter would wait for them, whatever the grace was.
        os._exit(0)


def found(target: str) -> App:
    """The app that `module:name` names, from the working folder as well."""
    # Imported when asked for: the other commands need not load it.
    from ackwise.subscriber import App

    module, name = named(target, "app", "shop.orders:app")
    try:
        value = getattr(importlib.import_module(module), name)
    except ModuleNotFoundError as problem:
        if problem.name is None or not f"{module}.".startswith(f"{problem.name}."):
            raise
        raise BadInput(f"there is no module {module!r} here") from None
    except AttributeError:
        raise BadInput(f"module {module!r} has no {name!r}") from None
    if not isinstance(value, App):
        raise BadInput(f"{target} is a {type(value).__name__}, not an App")
    return value
