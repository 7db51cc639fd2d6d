"""Entry point of the command line: lists the commands, prints errors."""

from __future__ import annotations

import contextlib
import errno
import os
import sys
from pathlib import Path
from typing import Annotated, ClassVar, NoReturn

import typer
from typer._click.exceptions import UsageError

from ackwise.cli import config_file, contexts
from ackwise.cli.arguments import CONTEXT_DEFAULT, CONTEXT_FLAG
from ackwise.cli.lazy_commands import COMMAND_SETTINGS, Home, LazyGroup
from ackwise.core.errors import AckwiseError, BadInput

_OUTPUT_ERRORS = frozenset((errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO, errno.EBADF))
"""Errors of a write to stdout. An error with a file name is an error of that file."""


class Program(LazyGroup):
    """All commands. A test compares each help text here with the help of the command."""

    HOMES: ClassVar = {
        "serve": Home("ackwise.cli.serve", "serve", "Serve the store over HTTP."),
        "run": Home("ackwise.cli.run", "run", "Run a subscriber app."),
        "message": Home("ackwise.cli.message", "app", "Push, read and take messages."),
        "queue": Home("ackwise.cli.queue", "app", "Queues."),
        "group": Home("ackwise.cli.group", "app", "Consumer groups."),
        "lease": Home("ackwise.cli.lease", "app", "Leases."),
        "consumer": Home("ackwise.cli.consumer", "app", "Consumers."),
        "dlq": Home("ackwise.cli.dlq", "app", "Dead letters."),
        "top": Home("ackwise.cli.top", "top", "Show queues, rates and consumers, live."),
        "lag": Home(
            "ackwise.cli.jobs",
            "lag",
            "Show the unfinished messages of each group, the age of the oldest, and an estimate of the time left.",
        ),
        "metrics": Home(
            "ackwise.cli.jobs",
            "metrics",
            "Show settlements per queue, group and time window: rates, shares and latencies.",
        ),
        "archive": Home(
            "ackwise.cli.jobs", "archive", "Write messages that every group has finished to Parquet, by queue and day."
        ),
        "replay": Home("ackwise.cli.jobs", "replay", "Push archived messages again."),
        "check": Home("ackwise.cli.check", "check", "Check the stored data and print the settings in force."),
        "vacuum": Home("ackwise.cli.vacuum", "vacuum", "Compact a store."),
        "context": Home("ackwise.cli.context", "app", "Named URLs."),
        "pipeline": Home("ackwise.cli.pipeline", "app", "Pipelines on Spark."),
        "mew": Home("ackwise.cli.mew", "mew", "Run MEW statements on the graph, from a file or at a prompt."),
        "demo": Home(
            "ackwise.cli.demo",
            "demo",
            "Run a Spark pipeline over generated orders and write a report of the dead letters.",
        ),
        "bench": Home("ackwise.cli.demo", "app", "Run benchmarks on this machine."),
    }


app = typer.Typer(
    cls=Program,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
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
        code = app(prog_name="ackwise", standalone_mode=False)
        _flush_output()
    except AckwiseError as problem:
        _fail(problem.message, 2 if isinstance(problem, BadInput) else 1)
    except UsageError as problem:
        _explain(problem)
    except typer.Abort:
        _fail("stopped; nothing was changed", 1)
    except BrokenPipeError:
        _discard_output()
        sys.exit(1)
    except OSError as problem:
        if problem.errno not in _OUTPUT_ERRORS or problem.filename is not None:
            raise
        _discard_output()
        _fail(f"cannot write the output: {problem.strerror}", 1)
    sys.exit(code if isinstance(code, int) else 0)


def _flush_output() -> None:
    # Python sets stdout to None if the process starts without it.
    if sys.stdout is not None:
        sys.stdout.flush()


def _discard_output() -> None:
    """Send the buffered output to /dev/null. Otherwise Python writes it again at exit and prints a second error."""
    with contextlib.suppress(OSError, ValueError), open(os.devnull, "wb") as nowhere:
        os.dup2(nowhere.fileno(), sys.stdout.fileno())
        sys.stdout.flush()


def _fail(message: str, code: int) -> NoReturn:
    print(f"ackwise: {' '.join(message.split())}", file=sys.stderr)
    sys.exit(code)


def _explain(problem: UsageError) -> NoReturn:
    """Print wrong usage in one line. A noun without a verb prints its help."""
    path = problem.ctx.command_path if problem.ctx is not None else "ackwise"
    if type(problem).__name__ == "NoArgsIsHelpError":
        problem.show()
        sys.exit(problem.exit_code)
    _fail(f"{problem.format_message().rstrip('.')}; see: {path} --help", problem.exit_code)
