"""`ackwise run`."""

from __future__ import annotations

import asyncio
import importlib
import logging
import os
import sys
from types import TracebackType
from typing import TYPE_CHECKING, Annotated

import typer

from ackwise.cli.arguments import named
from ackwise.cli.logs import DEFAULT_LEVEL, LogFormatOption, LogLevel
from ackwise.core.errors import AckwiseError, BadInput
from ackwise.observability.log_setup import set_up_logs

if TYPE_CHECKING:
    from ackwise.subscriber import App

_IMPORTLIB = ("<frozen importlib", os.path.dirname(importlib.__file__) + os.sep)


def run(
    target: Annotated[
        str, typer.Argument(metavar="MODULE:APP", help="Module and name of the app, such as shop.orders:app.")
    ],
    url: Annotated[
        str | None, typer.Option(envvar="ACKWISE_URL", help="URL of the store or server, instead of the app's own.")
    ] = None,
    grace: Annotated[
        float, typer.Option(envvar="ACKWISE_GRACE", min=0, help="Seconds that running handlers have to finish.")
    ] = 30.0,
    health_port: Annotated[
        int | None,
        typer.Option(envvar="ACKWISE_HEALTH_PORT", help="Port for /health/live, /ready and /started."),
    ] = None,
    health_host: Annotated[
        str, typer.Option(envvar="ACKWISE_HEALTH_HOST", help="Address for the health port.")
    ] = "127.0.0.1",
    metrics_port: Annotated[
        int | None,
        typer.Option(envvar="ACKWISE_METRICS_PORT", help="Port for /metrics; 0 takes any free port."),
    ] = None,
    metrics_host: Annotated[
        str, typer.Option(envvar="ACKWISE_METRICS_HOST", help="Address for the metrics port.")
    ] = "127.0.0.1",
    log_level: LogLevel = DEFAULT_LEVEL,
    log_format: LogFormatOption = "text",
) -> None:
    """Run a subscriber app. On SIGTERM or Ctrl-C the app drains and exits."""
    set_up_logs(log_level, log_format)
    app = _loaded(target)
    if url is not None:
        app.url = url
    asyncio.run(
        app.run(
            grace=grace,
            health_port=health_port,
            host=health_host,
            metrics_port=metrics_port,
            metrics_host=metrics_host,
        )
    )
    if app.abandoned:
        logging.shutdown()
        sys.stdout.flush()
        # The interpreter would wait for the abandoned handlers' threads, longer than the grace.
        os._exit(0)


def _loaded(target: str) -> App:
    """Import the app. An error in the user's module prints the user's frames and ends the command."""
    try:
        return load_app(target)
    except Exception as problem:
        frames = _users_frames(problem.__traceback__)
        if frames is None and isinstance(problem, AckwiseError):
            # load_app raised the error, not the module.
            raise
        from ackwise.observability.log_records import traceback_lines
        from ackwise.wire.store_url import without_password

        for line in traceback_lines(problem.with_traceback(frames)):
            print(line, file=sys.stderr)
        text = without_password(f"{type(problem).__name__}: {problem}".removesuffix(": "))
        raise AckwiseError(f"module {target.partition(':')[0]!r} cannot be imported: {text}") from None


def _users_frames(trace: TracebackType | None) -> TracebackType | None:
    """The traceback without frames of Ackwise and importlib. It starts below the frames of typer and click."""
    from ackwise.observability.log_records import OUR_FOLDER

    kept = []
    while trace is not None:
        file = trace.tb_frame.f_code.co_filename
        if not file.startswith((OUR_FOLDER + os.sep, *_IMPORTLIB)):
            kept.append(trace)
        trace = trace.tb_next
    rebuilt: TracebackType | None = None
    for frame in reversed(kept):
        rebuilt = TracebackType(rebuilt, frame.tb_frame, frame.tb_lasti, frame.tb_lineno)
    return rebuilt


def load_app(target: str) -> App:
    """Import the app that `module:name` names. The module may be in the working folder."""
    # Imported here, so that other commands start faster.
    from ackwise.subscriber import App

    module, name = named(target, "app", "shop.orders:app")
    try:
        imported = importlib.import_module(module)
    except ModuleNotFoundError as problem:
        if problem.name is None or not f"{module}.".startswith(f"{problem.name}."):
            raise
        raise BadInput(f"there is no module {module!r}, neither in this folder nor installed") from None
    if not hasattr(imported, name):
        raise BadInput(f"module {module!r} has no {name!r}")
    value = getattr(imported, name)
    if not isinstance(value, App):
        raise BadInput(f"{target} is a {type(value).__name__}, not an App")
    return value
