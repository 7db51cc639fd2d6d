"""`ackwise pipeline`: a pipeline out of a module, run from the shell."""

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

from ackwise.cli.modules import named
from ackwise.cli.opening import DEFAULT_URL, URL, AsJSON, must_exist
from ackwise.cli.showing import show, show_json
from ackwise.cli.sparking import Master
from ackwise.core.errors import AckwiseError, BadInput

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from ackwise.spark.pipelines import Pipeline, Totals

app = typer.Typer(no_args_is_help=True, help="Pipelines on Spark.")
_LOOK_EVERY = 0.2
_COLUMNS = ("rows", "acked", "retried", "dead", "stale", "outputs")


@app.callback()
def pipelines() -> None:
    """Pipelines on Spark."""


@app.command()
def run(
    context: typer.Context,
    target: Annotated[
        str, typer.Argument(metavar="MODULE:NAME", help="A pipeline, or a function (spark, url) that makes one.")
    ],
    url: URL = DEFAULT_URL,
    master: Master = None,
    checkpoint: Annotated[
        str | None, typer.Option("--checkpoint", metavar="PATH", help="Where it keeps its place; go on from there.")
    ] = None,
    follow: Annotated[
        bool, typer.Option("--follow/--once", help="Go on until it is stopped, or end when nothing is left.")
    ] = False,
    config: Annotated[
        list[str] | None, typer.Option("--config", metavar="KEY=VALUE", help="A setting of Spark; may be repeated.")
    ] = None,
    py_files: Annotated[
        list[Path] | None,
        typer.Option("--py-files", metavar="PATH", help="A module or zip that the workers need; may be repeated."),
    ] = None,
    as_json: AsJSON = False,
) -> None:
    """Run a pipeline. The first Ctrl-C or SIGTERM lets the batch under way finish, the second waits for nobody."""
    if follow and checkpoint is None:
        raise BadInput("--follow needs --checkpoint: the folder in which the pipeline keeps its place")
    module, name = _parsed(target)
    settings = dict(_setting(text) for text in config or ())
    source = context.get_parameter_source("url")
    given = source is not None and source.name == "COMMANDLINE"
    if given:
        must_exist(url)
    from ackwise.spark import session

    spark = session(f"ackwise {target}", master=master, config=settings)
    from ackwise.spark.refusals import told

    with _signals() as stop, told():
        _ship(spark, module, py_files or ())
        totals = _worked(_made(spark, module, name, url, given), checkpoint, follow, stop)
    if as_json:
        show_json(msgspec.structs.asdict(totals))
    else:
        show([totals], _COLUMNS, False)
    if stop.is_set() and not follow:
        raise AckwiseError("stopped before everything was done")


def _parsed(target: str) -> tuple[str, str]:
    """A module that is here or installed, and a name in it."""
    module, name = named(target, "pipeline", "module:name")
    if importlib.util.find_spec(module.partition(".")[0]) is None:
        raise BadInput(f"there is no module {module!r}, neither here nor installed")
    return module, name


def _setting(text: str) -> tuple[str, str]:
    key, separator, value = text.partition("=")
    if not key.startswith("spark.") or not separator:
        raise BadInput(f"--config {text}: write it like spark.executor.memory=2g")
    return key, value


def _ship(spark: SparkSession, module: str, files: Iterable[Path]) -> None:
    """Workers run elsewhere and import functions by name: what is in this folder goes to them."""
    from ackwise.spark.cache import make_private, temporary

    top = module.partition(".")[0]
    here = Path.cwd()
    for file in files:
        if not file.is_file():
            raise BadInput(f"--py-files {file}: there is no such file")
        spark.sparkContext.addPyFile(str(file.absolute()))
    if (here / f"{top}.py").is_file():
        spark.sparkContext.addPyFile(str(here / f"{top}.py"))
    elif (here / top / "__init__.py").is_file():
        # Workers fetch it when they start, which may be late: it stays until we end.
        folder = temporary()
        make_private(folder)
        spark.sparkContext.addPyFile(shutil.make_archive(f"{folder}/{top}", "zip", here, top))


def _made(spark: SparkSession, module: str, name: str, url: str, given: bool) -> Pipeline:
    from pyspark.cloudpickle import register_pickle_by_value

    from ackwise.spark.pipelines import Pipeline

    with _blaming(f"importing {module} failed"):
        found: Any = importlib.import_module(module)
    for part in name.split("."):
        if not hasattr(found, part):
            raise BadInput(f"{module} has no {name}")
        found = getattr(found, part)
    if isinstance(found, Pipeline):
        if given:
            raise BadInput(f"{module}:{name} has a URL of its own; make it a function (spark, url) to give it one")
        # Workers must not import a module that makes a session: its functions go to them as they are.
        register_pickle_by_value(sys.modules[module])  # type: ignore[no-untyped-call]
        return found
    if not callable(found):
        raise BadInput(f"{module}:{name} is neither a pipeline nor a function that makes one")
    must_exist(url)
    with _blaming(f"{module}:{name} failed"):
        made = found(spark, url)
    if not isinstance(made, Pipeline):
        raise BadInput(f"{module}:{name} answers {type(made).__name__} and not a pipeline")
    return made


@contextmanager
def _blaming(what: str) -> Iterator[None]:
    """An error in the user's module, with the line it is at."""
    try:
        yield
    except AckwiseError:
        raise
    except Exception as problem:
        last = traceback.extract_tb(problem.__traceback__)[-1]
        text = str(problem).strip().partition("\n")[0]
        raise AckwiseError(f"{what}: {type(problem).__name__}: {text} ({last.filename}:{last.lineno})") from problem


def _worked(pipeline: Pipeline, checkpoint: str | None, follow: bool, stop: threading.Event) -> Totals:
    if not follow or checkpoint is None:
        return pipeline.run(checkpoint, progress=True, stop=stop)
    running = pipeline.start(checkpoint, progress=True)
    while not stop.is_set() and not running.await_termination(_LOOK_EVERY):
        pass
    running.stop()
    return running.totals


@contextmanager
def _signals() -> Iterator[threading.Event]:
    """Set by the first signal; the second one ends us at once.

    An exception in the middle of a call to Java would break the connection, so none is raised. Spark's own answer to
    Ctrl-C, which cancels the batch, is put aside meanwhile.
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
