"""Public names that the product has, section by section of docs/reference/names.md. No server and no JVM starts."""

from __future__ import annotations

import asyncio
import importlib
import inspect
import re
import tempfile
from collections.abc import Callable, Collection, Iterator
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any, get_args, get_type_hints

import click
import msgspec
import typer
from pyspark.sql.types import DoubleType, IntegerType, MapType, StringType, StructField, StructType

import ackwise
import ackwise.demo
import ackwise.graph.engine
import ackwise.protocols.mew
import ackwise.protocols.native
import ackwise.protocols.pushpop
import ackwise.protocols.queen
import ackwise.spark.jobs
from ackwise.broker import AsyncBroker
from ackwise.broker.write_health import SILENT_AFTER, Pulse
from ackwise.cli.app import app
from ackwise.connect import open_store
from ackwise.core.answers import Settled
from ackwise.core.errors import AckwiseError
from ackwise.core.settlement import Outcome, Reason, Verdict
from ackwise.engine.statement_limits import LowerLimits
from ackwise.graph import errors, system_types
from ackwise.graph.ast import NodeDecl
from ackwise.graph.commands import Done
from ackwise.graph.watch_options import reason_shown
from ackwise.protocols.mew.http import MewBody, MewServer
from ackwise.protocols.mew.output_records import EventRecord, Note, Result, StepLine
from ackwise.protocols.native.tables import TABLES
from ackwise.protocols.pushpop.sinks import Sinks
from ackwise.protocols.pushpop.sinks.targets import SinkTarget
from ackwise.server.health import make_pages
from ackwise.server.server import all_routes, make_server
from ackwise.server.settings import Settings
from ackwise.spark.pipelines.builder import Pipeline
from ackwise.spark.sink import batch_writer
from ackwise.spark.source import options as source_options
from ackwise.spark.source.schemas import STREAM
from ackwise.store.postgres import views as postgres_views
from ackwise.store.sqlite import views as sqlite_views
from ackwise.wire import settle
from ackwise.wire.amps import Header
from ackwise.wire.claim import ClaimBody
from ackwise.wire.http_status import status_of
from ackwise.wire.settle import Entry, SettleBody
from ackwise.wire.store_url import StoreURL
from benchmarks.report import Row
from tests.faults import __main__ as faults_main
from tests.faults.campaign import Tally

ROOT = Path(__file__).resolve().parents[2]
_TARGET = re.compile(r"^([a-z][a-z-]*):(?!=)", re.MULTILINE)
_CALL = re.compile(r"(?P<path>[\w.]+)(?:\((?P<parameters>[\w=, ]*)\))?")
_SHORT = {"bigint": "long"}


# what programs find in the repository and on the command line


@cache
def make_targets() -> Collection[str]:
    return set(_TARGET.findall((ROOT / "Makefile").read_text()))


@cache
def commands() -> dict[str, click.Command]:
    """Every command by its words."""

    def walk(command: Any, words: tuple[str, ...]) -> Iterator[tuple[str, click.Command]]:
        below = getattr(command, "commands", None)
        if below is None:
            yield " ".join(words), command
            return
        for word, found in below.items():
            yield from walk(found, (*words, word))

    return dict(walk(typer.main.get_command(app), ()))


@cache
def options(command: str) -> dict[str, click.Parameter]:
    """Options of a command by their spelling."""
    return {spelling: option for option in commands()[command].params for spelling in option.opts if spelling[0] == "-"}


def has_option(name: str) -> bool:
    command, _, option = name.rpartition(" ")
    return option in options(command)


@cache
def variables() -> Collection[str]:
    """Environment variables that name the store of a command and of the server."""
    commands_read, server_reads = (
        {option.envvar} if isinstance(option.envvar, str) else set(option.envvar or ())
        for option in (options("queue list")["--url"], options("serve")["--store"])
    )
    return commands_read & server_reads


# what goes over HTTP


@cache
def routes() -> Collection[str]:
    """`METHOD /path` of every route, of the pages and of WebSockets."""

    async def listed(folder: str) -> set[str]:
        store = open_store(f"sqlite:///{folder}/names.db")
        broker = await AsyncBroker.start(store)
        settings = Settings(port=0)
        found = {f"{r.method} {r.path}" for r in all_routes(broker, settings, Sinks(broker, ()), MewServer(broker))}
        pages: list[Any] = make_pages(lambda: broker, None).routes
        found |= {f"GET {page.path}" for page in pages}
        server = make_server(store, settings, lambda host, port: None)
        found |= {f"{route.method} {route.path}" for route in server.runtime.observer.routes(broker)}
        application: Any = server.config.app
        found |= {f"WEBSOCKET {path}" for path in application._sockets}
        await broker.close()
        store.close()
        return found

    with tempfile.TemporaryDirectory() as folder:
        return asyncio.run(listed(folder))


@cache
def error_classes() -> dict[str, type[AckwiseError]]:
    """Every error by its code. Of several with one code, the base."""

    def below(kind: type[AckwiseError]) -> Iterator[type[AckwiseError]]:
        for found in kind.__subclasses__():
            yield found
            yield from below(found)

    found: dict[str, type[AckwiseError]] = {}
    for kind in below(AckwiseError):
        if kind.__module__.startswith(f"{ackwise.__name__}."):
            found.setdefault(kind.code, kind)
    return found


def status(code: str) -> int:
    """The HTTP status of an error."""
    kind = error_classes()[code]
    if issubclass(kind, errors.GraphError):
        return status_of(kind("word", "message"))
    return status_of(kind("message"))


@cache
def readiness_codes() -> Collection[str]:
    now = [0.0]
    pulse = Pulse(lambda: now[0])
    silent = pulse.health()
    pulse.wrote()
    now[0] = SILENT_AFTER + 1
    return {code for code in (silent.code, pulse.health().code) if code}


def fields(kind: type[msgspec.Struct], **nested: type[msgspec.Struct]) -> Collection[str]:
    """Field names of a struct, and `outer.inner` of nested ones."""
    inner = (f"{outer}.{name}" for outer, struct in nested.items() for name in struct.__struct_fields__)
    return {*kind.__struct_fields__, *inner}


@cache
def settle_answer() -> Collection[str]:
    verdicts = settle.verdicts([Entry(Outcome.ACK, delivery_id="d")], [Settled(Verdict.ACKED)], detail=False)
    inner = (f"verdicts.{name}" for verdict in verdicts for name in msgspec.to_builtins(verdict))
    return {*inner, *(("verdicts",) if spelled_in(ackwise.protocols.native)("verdicts") else ())}


@cache
def _source(package: ModuleType) -> str:
    folder = Path(str(package.__file__)).parent
    return "\n".join(path.read_text() for path in folder.rglob("*.py"))


def spelled_in(*packages: ModuleType) -> Callable[[str], bool]:
    """True for words that a package spells as a literal: keys of answers, parameters, headers in lower case."""

    def exists(name: str) -> bool:
        return any(f'"{word}"' in _source(package) for package in packages for word in (name, name.lower()))

    return exists


# Python


def importable(name: str) -> bool:
    """`package.Class.method(parameter=)`: the name is there and takes the parameters."""
    parsed = _CALL.fullmatch(name)
    assert parsed is not None, name
    found: Any = ackwise
    for depth, part in enumerate(parsed["path"].split(".")[1:], 2):
        if part in _annotated(found):
            return True
        if not hasattr(found, part):
            try:
                importlib.import_module(".".join(parsed["path"].split(".")[:depth]))
            except ImportError:
                return False
        found = getattr(found, part)
    return takes(found, parsed["parameters"])


def _annotated(kind: Any) -> Collection[str]:
    """Attributes of the objects of a class that the class itself does not have."""
    return {name for base in getattr(kind, "__mro__", ()) for name in inspect.get_annotations(base)}


def takes(function: Any, parameters: str | None) -> bool:
    wanted = {one.strip(" =") for one in (parameters or "").split(",") if one.strip()}
    return not wanted or wanted <= set(inspect.signature(function).parameters)


def is_pipeline_method(name: str) -> bool:
    parsed = _CALL.fullmatch(name)
    assert parsed is not None, name
    return hasattr(Pipeline, parsed["path"]) and takes(getattr(Pipeline, parsed["path"]), parsed["parameters"])


# Spark


def is_source_option(name: str) -> bool:
    return not _refused(
        lambda: source_options.parse_options({"url": "sqlite:////tmp/names.db", name: "1"}), "has no option"
    )


def is_sink_option(name: str) -> bool:
    given = {"url": "sqlite:////tmp/names.db", "mode": "push", "queue": "orders", name: "push"}
    return not _refused(lambda: batch_writer(given, StructType(), False), "has no option")


def takes_column(mode: str) -> Callable[[str], bool]:
    kinds = {"priority": IntegerType(), "delay_seconds": DoubleType(), "headers": MapType(StringType(), StringType())}
    given = {"url": "sqlite:////tmp/names.db", "mode": mode, "queue": "orders"}
    needed = {"push": ("payload",), "settle": ("delivery_id", "outcome")}[mode]

    def exists(name: str) -> bool:
        columns = [StructField(column, kinds.get(column, StringType())) for column in dict.fromkeys((*needed, name))]
        return not _refused(lambda: batch_writer(given, StructType(columns), False), "does not know the column")

    return exists


def _refused(call: Callable[[], object], words: str) -> bool:
    try:
        call()
    except Exception as problem:
        return words in str(problem)
    return False


@cache
def source_columns() -> Collection[str]:
    kinds = ((field.name, field.dataType.simpleString()) for field in STREAM.fields)
    return {f"{name} {_SHORT.get(kind, kind)}" for name, kind in kinds}


# MEW


@cache
def result_fields() -> Collection[str]:
    return set(Result(1, 1, "ACK", Done(delivery_id="d")).as_object())


@cache
def event_fields() -> Collection[str]:
    return {name for kind in ("initial", "changed", "consumed") for name in EventRecord("#w", kind, 1).as_object()}


def is_mew_code(name: str) -> bool:
    return spelled_in(importlib.import_module(errors.__package__), ackwise.protocols.mew)(name)


@cache
def line_kinds() -> Collection[str]:
    lines = (Result(1, 1, "ACK", Done()), EventRecord("#w", "added", 1), StepLine("one"))
    notes = set(re.findall(r'\bNote\(\s*"(\w+)"', _source(ackwise.protocols.mew)))
    return notes | {line.as_object()["kind"] for line in lines}


@cache
def mew_outcomes() -> Collection[str]:
    literal = next(kind for kind in get_args(get_type_hints(Done)["outcome"]) if kind is not type(None))
    return set(get_args(literal))


@cache
def numbered_codes() -> Collection[str]:
    """`number NAME` of every error that has a number."""
    source = Path(str(errors.__file__)).read_text()
    return {
        f"{number} {name}" for number, name in re.findall(r'"(E\d{4})",(?:(?!GraphError).)*?name="(\w+)"', source, re.S)
    }


@cache
def dead_letter_attributes() -> Collection[str]:
    nodes = (declared for _, declared in system_types.SYSTEM if isinstance(declared, NodeDecl))
    (letter,) = (node for node in nodes if node.name == "_DeadLetter")
    return {attribute.name for attribute in letter.attributes}


def views() -> set[str]:
    return {*sqlite_views.VIEWS, *postgres_views.VIEWS}


Exists = Callable[[str], bool]


def among(names: Callable[[], Collection[str]]) -> Exists:
    return lambda name: name in names()


SECTIONS: dict[str, Exists] = {
    "make targets": among(make_targets),
    "Fields of the DEMO line": spelled_in(ackwise.demo),
    "Fields of build/bench.json": among(lambda: inspect.signature(Row).parameters),
    "Fields of build/faults.json": among(lambda: faults_main._figures(Tally())),
    "Flags of ackwise serve": among(lambda: options("serve")),
    "Options of a store URL": among(lambda: fields(StoreURL)),
    "Commands": among(commands),
    "Options of commands": has_option,
    "Environment variables": among(variables),
    "Fields of ackwise dlq report --json": spelled_in(ackwise.spark.jobs),
    "Routes": among(routes),
    "Headers of native answers": spelled_in(ackwise.protocols.native),
    "Tables": among(lambda: TABLES),
    "Fields of a settle request": among(lambda: fields(SettleBody, entries=Entry)),
    "Fields of a settle answer": among(settle_answer),
    "Outcomes": among(lambda: set(Outcome)),
    "Verdicts": among(lambda: set(Verdict)),
    "Fields of a claim request": among(lambda: fields(ClaimBody)),
    "Words of Queen's routes": spelled_in(ackwise.protocols.queen),
    "Fields of PushPop's answers": spelled_in(ackwise.protocols.pushpop),
    "Fields of a PushPop sink": among(lambda: fields(SinkTarget)),
    "Fields of PushPop's extend-lock request": spelled_in(ackwise.protocols.pushpop),
    "Trace fields of AMPS frames": among(lambda: fields(Header)),
    "Error codes": among(error_classes),
    "Codes of /readyz": among(readiness_codes),
    "Reasons of dead letters": among(lambda: set(Reason)),
    "Failure reasons of MEW": among(lambda: {reason_shown(reason) for reason in Reason}),
    "Python": importable,
    "Options of the source": is_source_option,
    "Columns of the source": among(source_columns),
    "Options of the sink": is_sink_option,
    "Columns of the settle sink": takes_column("settle"),
    "Columns of the push sink": takes_column("push"),
    "Methods of a pipeline": is_pipeline_method,
    "Kinds of lines": among(line_kinds),
    "Fields of a result line": among(result_fields),
    "Outcomes of an ACK or NACK": among(mew_outcomes),
    "Types of events": spelled_in(ackwise.graph.engine),
    "Fields of an event line": among(event_fields),
    "Fields of a notice or error line": among(lambda: Note("error", "E8003", "ACK_TIMEOUT", "text").as_object()),
    "Fields of a step line": among(lambda: StepLine("one").as_object()),
    "Codes of MEW": is_mew_code,
    "Numbered codes of MEW": among(numbered_codes),
    "Attributes of a MEW dead letter": among(dead_letter_attributes),
    "Fields of POST /mew": among(lambda: fields(MewBody, limits=LowerLimits)),
    "SQL views": among(views),
}
"""Whether the product has a name, by the heading of its section."""
