"""Entry point of the command line: registers the commands, prints errors."""

from __future__ import annotations

import sys
from importlib.metadata import version
from pathlib import Path
from typing import Annotated

import typer

from ackwise.cli import check, config_file, demo, dlq, group, jobs, lease, mew, pipeline, queue, run, serve, vacuum
from ackwise.core.errors import AckwiseError, BadInput

app = typer.Typer(no_args_is_help=True, pretty_exceptions_enable=False, help="A durable message queue.")
app.command(name="check")(check.check)
app.command(name="vacuum")(vacuum.vacuum)
app.command(name="demo")(demo.demo)
app.command(name="archive")(jobs.archive)
app.command(name="replay")(jobs.replay)
app.command(name="metrics")(jobs.metrics)
app.command(name="lag")(jobs.lag)
app.command(name="serve")(serve.serve)
app.command(name="mew")(mew.mew)
app.command(name="run")(run.run)
app.add_typer(queue.app, name="queue")
app.add_typer(group.app, name="group")
app.add_typer(lease.app, name="lease")
app.add_typer(dlq.app, name="dlq")
app.add_typer(pipeline.app, name="pipeline")
app.add_typer(demo.app, name="bench")


def _version(wanted: bool) -> None:
    if wanted:
        print(f"ackwise {version('ackwise')}")
        raise typer.Exit


@app.callback()
def root(
    context: typer.Context,
    config: Annotated[
        Path | None,
        typer.Option(envvar="ACKWISE_CONFIG", help="TOML file with settings.", show_default=config_file.DEFAULT_FILE),
    ] = None,
    show_version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    """A durable message queue in which every delivery ends in exactly one settlement."""
    context.default_map = config_file.load(config, context.command)


def main() -> None:
    """Run a command. The exit code is 0 after success, 1 after a failure, 2 after wrong usage. Errors go to stderr."""
    try:
        app()
    except AckwiseError as problem:
        print(f"ackwise: {' '.join(problem.message.split())}", file=sys.stderr)
        sys.exit(2 if isinstance(problem, BadInput) else 1)
