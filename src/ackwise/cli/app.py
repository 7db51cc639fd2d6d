"""The commands put together, and what becomes of an error."""

from __future__ import annotations

import sys
from importlib.metadata import version
from pathlib import Path
from typing import Annotated

import typer

from ackwise.cli import (
    archive,
    bench,
    check,
    demo,
    dlq,
    group,
    lag,
    metrics,
    mew,
    pipeline,
    queue,
    replay,
    run,
    serve,
    settings,
    vacuum,
)
from ackwise.core.errors import AckwiseError, BadInput

app = typer.Typer(no_args_is_help=True, pretty_exceptions_enable=False, help="A durable message queue.")
app.command(name="check")(check.check)
app.command(name="vacuum")(vacuum.vacuum)
app.command(name="demo")(demo.demo)
app.command(name="archive")(archive.archive)
app.command(name="replay")(replay.replay)
app.command(name="metrics")(metrics.metrics)
app.command(name="lag")(lag.lag)
app.command(name="serve")(serve.serve)
app.command(name="mew")(mew.mew)
app.command(name="run")(run.run)
app.add_typer(queue.app, name="queue")
app.add_typer(group.app, name="group")
app.add_typer(dlq.app, name="dlq")
app.add_typer(pipeline.app, name="pipeline")
app.add_typer(bench.app, name="bench")


def _version(asked: bool) -> None:
    if asked:
        print(f"ackwise {version('ackwise')}")
        raise typer.Exit


@app.callback()
def root(
    context: typer.Context,
    config: Annotated[
        Path | None,
        typer.Option(envvar="ACKWISE_CONFIG", help="A TOML file with settings.", show_default=settings.DEFAULT_FILE),
    ] = None,
    show_version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    """A durable message queue in which every delivery ends in exactly one settlement."""
    context.default_map = settings.load(config, context.command)


def main() -> None:
    """Exit with 0 when it worked, 1 when it failed, 2 when it was asked wrongly; errors are one line on stderr."""
    try:
        app()
    except AckwiseError as problem:
        print(f"ackwise: {' '.join(problem.message.split())}", file=sys.stderr)
        sys.exit(2 if isinstance(problem, BadInput) else 1)
