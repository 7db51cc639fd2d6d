"""Entry point of the command line: lists the commands, prints errors."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Annotated

import typer

from ackwise.cli import config_file, contexts
from ackwise.cli.arguments import CONTEXT_DEFAULT, CONTEXT_FLAG
from ackwise.cli.lazy_commands import COMMAND_SETTINGS, Home, LazyGroup
from ackwise.core.errors import AckwiseError, BadInput


class Program(LazyGroup):
    """All commands. The tests compare each line of help with the command's own."""

    HOMES = {
        "serve": Home("ackwise.cli.serve", "serve", "Run the server until SIGTERM or Ctrl-C."),
        "run": Home("ackwise.cli.run", "run", "Run a subscriber app. On SIGTERM or Ctrl-C the app drains and exits."),
        "message": Home("ackwise.cli.message", "app", "Push, read and take messages."),
        "queue": Home("ackwise.cli.queue", "app", "Queues."),
        "group": Home("ackwise.cli.group", "app", "Consumer groups."),
        "lease": Home("ackwise.cli.lease", "app", "Leases."),
        "consumer": Home("ackwise.cli.consumer", "app", "Consumers."),
        "dlq": Home("ackwise.cli.dlq", "app", "Dead letters."),
        "top": Home("ackwise.cli.top", "top", "Show queues, rates and consumers, live. Press q to quit."),
        "lag": Home("ackwise.cli.jobs", "lag", "Show the unfinished messages of each group and when it will be done."),
        "metrics": Home("ackwise.cli.jobs", "metrics", "Show settlements per queue, group and time window."),
        "archive": Home("ackwise.cli.jobs", "archive", "Write finished messages to Parquet, by queue and day."),
        "replay": Home("ackwise.cli.jobs", "replay", "Push archived messages again."),
        "check": Home("ackwise.cli.check", "check", "Check the stored data and print the settings in force."),
        "vacuum": Home("ackwise.cli.vacuum", "vacuum", "Compact a store."),
        "context": Home("ackwise.cli.context", "app", "Named URLs."),
        "pipeline": Home("ackwise.cli.pipeline", "app", "Spark pipelines."),
        "mew": Home("ackwise.cli.mew", "mew", "Run MEW statements on the graph, from a file or at a prompt."),
        "demo": Home("ackwise.cli.demo", "demo", "Run a Spark pipeline over generated orders."),
        "bench": Home("ackwise.cli.demo", "app", "Run benchmarks on this machine."),
    }


app = typer.Typer(
    cls=Program,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings=COMMAND_SETTINGS,
    help="A durable message queue.",
)


def _version(wanted: bool) -> None:
    if wanted:
        from importlib.metadata import version

        print(f"ackwise {version('ackwise')}")
        raise typer.Exit


@app.callback()
def root(
    context: typer.Context,
    config: Annotated[
        Path | None,
        typer.Option(envvar="ACKWISE_CONFIG", help="TOML file with settings.", show_default=config_file.DEFAULT_FILE),
    ] = None,
    context_name: Annotated[
        str | None,
        typer.Option("--context", envvar="ACKWISE_CONTEXT", metavar="NAME", help="Named URL: see ackwise context."),
    ] = None,
    show_version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    """A durable message queue in which every delivery ends in exactly one settlement."""
    context.default_map = config_file.load(config, context.command, context.invoked_subcommand)
    if context.invoked_subcommand == "context":
        return
    if context_name is None:
        current = contexts.read().current_url
        if current is not None:
            context.meta[CONTEXT_DEFAULT] = current
        return
    url = contexts.read().url(context_name)
    source = context.get_parameter_source("context_name")
    by_flag = source is not None and source.name == "COMMANDLINE"
    if by_flag or "ACKWISE_URL" not in os.environ:
        context.meta[CONTEXT_FLAG] = url


def main() -> None:
    """Run a command. The exit code is 0 after success, 1 after a failure, 2 after wrong usage. Errors go to stderr."""
    try:
        app()
    except AckwiseError as problem:
        print(f"ackwise: {' '.join(problem.message.split())}", file=sys.stderr)
        sys.exit(2 if isinstance(problem, BadInput) else 1)
