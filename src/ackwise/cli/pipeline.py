"""`ackwise pipeline`."""

from __future__ import annotations

import importlib
import importlib.util
import shutil
import signal
import sys
import threading
import traceback
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Annotated, Any

import msgspec
import typer

from ackwise.cli.arguments import DEFAULT_URL, URL, AsJSON, must_exist, named
from ackwise.cli.output import show_json, show_rows
from ackwise.cli.spark_session import Master
from ackwise.core.errors import AckwiseError, BadInput
from ackwise.spark.reports.columns import Column

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from ackwise.spark.pipelines import Pipeline, Totals

app = typer.Typer(no_args_is_help=True, help="Pipelines on Spark.")
_LOOK_EVERY = 0.2
_COLUMNS = tuple(Column(name, name, "number") for name in ("rows", "acked", "retried", "dead", "stale", "outputs"))


@app.callback()
def pipelines() -> None:
    """Pipelines on Spark."""


@app.command()
def run(
    context: typer.Context,
    target: Annotated[
        str, typer.Argument(metavar="MODULE:NAME", help="A pipeline, or a function (spark, url) that returns one.")
    ],
    url: URL = DEFAULT_URL,
    master: Master = None,
    checkpoint: Annotated[
        str | None,
        typer.Option("--checkpoint", metavar="PATH", help="Folder of the progress. A later run continues from it."),
    ] = None,
    follow: Annotated[
        bool, typer.Option("--follow/--once", help="Run until stopped, or end when no record is left.")
    ] = False,
    config: Annotated[
        list[str] | None, typer.Option("--config", metavar="KEY=VALUE", help="Setting of Spark; repeatable.")
    ] = None,
    py_files: Annotated[
        list[Path] | None,
        typer.Option("--py-files", metavar="PATH", help="Module or zip that the workers need; repeatable."),
    ] = None,
    as_json: AsJSON = False,
) -> None:
    """Run a pipeline. The first Ctrl-C or SIGTERM finishes the current batch, the second stops at once."""
    if follow and checkpoint is None:
        raise BadInput("--follow needs --checkpoint PATH, the folder of the query's progress")
    module, name = _parse_target(target)
    settings = dict(_setting(text) for text in config or ())
    source = context.get_parameter_source("url")
    url_given = source is not None and source.name == "COMMANDLINE"
    if url_given:
        must_exist(url)
    from ackwise.spark import session

    spark = session(f"ackwise {target}", master=master, config=settings)
    from ackwise.spark.errors import translate_spark_errors

    with _signals() as stop, translate_spark_errors():
        _ship(spark, module, py_files or ())
        totals = _run_pipeline(_load_pipeline(spark, module, name, url, url_given), checkpoint, follow, stop)
    if as_json:
        show_json(msgspec.structs.asdict(totals))
    else:
        show_rows([msgspec.structs.asdict(totals)], _COLUMNS, False, "")
    if stop.is_set() and not follow:
        raise AckwiseError("stopped before all records were done; run the command again to continue")


def _parse_target(target: str) -> tuple[str, str]:
    """Split `module:name` and check that the module exists."""
    module, name = named(target, "pipeline", "module:name")
    if importlib.util.find_spec(module.partition(".")[0]) is None:
        raise BadInput(f"there is no module {module!r}, neither in this folder nor installed")
    return module, name


def _setting(text: str) -> tuple[str, str]:
    key, separator, value = text.partition("=")
    if not key.startswith("spark.") or not separator:
        raise BadInput(f"--config {text}: write it like spark.executor.memory=2g")
    return key, value


def _ship(spark: SparkSession, module: str, files: Iterable[Path]) -> None:
    """Send the module and `--py-files` to the workers, which import functions by name."""
    from ackwise.spark.java import make_private, temporary

    top = module.partition(".")[0]
    working_folder = Path.cwd()
    for file in files:
        if not file.is_file():
            raise BadInput(f"--py-files {file}: there is no such file")
        spark.sparkContext.addPyFile(str(file.absolute()))
    if (working_folder / f"{top}.py").is_file():
        spark.sparkContext.addPyFile(str(working_folder / f"{top}.py"))
    elif (working_folder / top / "__init__.py").is_file():
        # A worker may start late and fetch the archive then, so it stays until this process ends.
        folder = temporary()
        make_private(folder)
        spark.sparkContext.addPyFile(shutil.make_archive(f"{folder}/{top}", "zip", working_folder, top))


def _load_pipeline(spark: SparkSession, module: str, name: str, url: str, url_given: bool) -> Pipeline:
    from pyspark.cloudpickle import register_pickle_by_value

    from ackwise.spark.pipelines import Pipeline

    with _user_errors(f"importing {module} failed"):
        target_object: Any = importlib.import_module(module)
    for part in name.split("."):
        if not hasattr(target_object, part):
            raise BadInput(f"{module} has no {name}")
        target_object = getattr(target_object, part)
    if isinstance(target_object, Pipeline):
        if url_given:
            raise BadInput(f"{module}:{name} has its own URL; leave out --url, or make it a function (spark, url)")
        # Workers must not import a module that starts a session, so its functions are pickled by value.
        register_pickle_by_value(sys.modules[module])  # type: ignore[no-untyped-call]
        return target_object
    if not callable(target_object):
        raise BadInput(f"{module}:{name} is neither a pipeline nor a function that makes one")
    must_exist(url)
    with _user_errors(f"{module}:{name} failed"):
        made = target_object(spark, url)
    if not isinstance(made, Pipeline):
        raise BadInput(f"{module}:{name} returned {type(made).__name__}, not a pipeline")
    return made


@contextmanager
def _user_errors(what: str) -> Iterator[None]:
    """Report an error in the user's module in one line, with file and line number."""
    try:
        yield
    except AckwiseError:
        raise
    except Exception as problem:
        last = traceback.extract_tb(problem.__traceback__)[-1]
        text = str(problem).strip().partition("\n")[0]
        raise AckwiseError(f"{what}: {type(problem).__name__}: {text} ({last.filename}:{last.lineno})") from problem


def _run_pipeline(pipeline: Pipeline, checkpoint: str | None, follow: bool, stop: threading.Event) -> Totals:
    if not follow or checkpoint is None:
        return pipeline.run(checkpoint, progress=True, stop=stop)
    running = pipeline.start(checkpoint, progress=True)
    while not stop.is_set() and not running.await_termination(_LOOK_EVERY):
        pass
    running.stop()
    return running.totals


@contextmanager
def _signals() -> Iterator[threading.Event]:
    """Event that the first SIGINT or SIGTERM sets. The second signal ends the process at once.

    The handler sets an event, because an exception would break a call to Java. It replaces Spark's own handler of
    Ctrl-C, which would cancel the batch.
    """
    stop = threading.Event()

    def first(number: int, _: FrameType | None) -> None:
        signal.signal(number, signal.SIG_DFL)
        stop.set()

    before = {number: signal.signal(number, first) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield stop
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
