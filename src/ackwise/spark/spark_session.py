"""Spark session with settings that suit Ackwise."""

from __future__ import annotations

import contextlib
import os
import re
import shlex
import socket
import sys
import warnings
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from ackwise.core.errors import AckwiseError, BadInput
from ackwise.spark import SparkMissing, home, java
from ackwise.spark.errors import marked_errors
from ackwise.spark.java import temporary

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_LOCAL = re.compile(r"local(?:\[\s*(?P<cores>[1-9]\d*|\*)\s*(?:,\s*(?P<failures>[1-9]\d*)\s*)?\])?")
_STANDALONE = re.compile(r"spark://(?P<hosts>.+)")
_OTHERS = re.compile(r"yarn|k8s://.+|local-cluster\[.+\]")
_LOOPBACK = ("127.0.0.1", "localhost")
_FAILURES = 4
_LOGS = Path(__file__).with_name("log4j2.properties")


def session(
    app: str = "ackwise",
    *,
    master: str | None = None,
    config: Mapping[str, str] | None = None,
    quiet: bool = True,
) -> SparkSession:
    """Start a session on `master`, or return the running one. Default: `ACKWISE_SPARK_MASTER`, `MASTER`, `local[*]`.

    `config` overrides the settings of Ackwise. `quiet=False` keeps Spark's own logging.
    """
    try:
        from pyspark import SparkConf, SparkContext, TaskContext
        from pyspark.sql import SparkSession
    except ImportError as problem:
        text = f"Spark is not installed ({problem}); install it with: pip install 'ackwise[spark]'"
        raise SparkMissing(text) from None
    with marked_errors():
        if TaskContext.get() is not None:
            raise BadInput("a Spark worker cannot start a session; call session() in a function, not at import")
    given = dict(config or {})
    configured = given.pop("spark.master", None)
    chosen = master or configured or os.environ.get("ACKWISE_SPARK_MASTER")
    if SparkContext._active_spark_context is not None:
        return _running(SparkSession.builder.getOrCreate(), chosen, given)
    if "PYSPARK_GATEWAY_PORT" in os.environ:  # spark-submit started Java and this process, with its own configuration.
        SparkContext._ensure_initialized()
        given = {**dict(SparkConf().getAll()), **given}
        submitted = given.pop("spark.master", None)
        chosen = chosen or submitted
    place = SparkMaster.parse(chosen or os.environ.get("MASTER") or "local[*]", given)
    place.check()
    installed = java.find() if SparkContext._gateway is None else None
    environment = _environment(place, given)
    if installed is not None:
        environment["JAVA_HOME"] = str(java.home(installed, quiet=quiet))
    builder = SparkSession.builder.appName(app).master(place.master)
    options = {} if installed is None else _java_options(given, quiet=quiet)
    for key, value in {**_settings(place), **given, **options}.items():
        builder.config(key, value)
    if quiet:
        _hush()
    try:
        with _temporarily(environment):
            return builder.getOrCreate()
    except Exception as problem:
        raise AckwiseError(f"Spark did not start on {place.master}: {_reason(problem)}") from problem


@dataclass(frozen=True, slots=True)
class SparkMaster:
    """Master URL of a session, parsed."""

    master: str
    cores: int | None
    """Number of cores of a local session, else None."""
    hosts: tuple[tuple[str, int], ...]
    """Masters of a standalone cluster."""

    @classmethod
    def parse(cls, master: str, given: Mapping[str, str]) -> SparkMaster:
        if local := _LOCAL.fullmatch(master):
            cores = local["cores"] or "1"
            # Without a number of failures, local Spark fails the query at the first failed task.
            failures = local["failures"] or given.get("spark.task.maxFailures", _FAILURES)
            return cls(f"local[{cores},{failures}]", _cores() if cores == "*" else int(cores), ())
        if standalone := _STANDALONE.fullmatch(master):
            return cls(master, None, tuple(_host(master, part) for part in standalone["hosts"].split(",")))
        if not _OTHERS.fullmatch(master):
            raise BadInput(f"{master!r} is no Spark master; write it like local[4] or spark://host:7077")
        return cls(master, None, ())

    @property
    def local(self) -> bool:
        return self.cores is not None

    @property
    def loopback(self) -> bool:
        """Whether driver and workers run on this machine, so that the loopback address is enough."""
        return self.local or any(host in _LOOPBACK for host, _ in self.hosts)

    def check(self) -> None:
        """Raise in one line if no master answers. Spark itself tries for a minute and prints a Java traceback."""
        problems = []
        for address in self.hosts:
            try:
                socket.create_connection(address, timeout=10).close()
            except OSError as problem:
                problems.append(problem)
            else:
                return
        if problems:
            raise AckwiseError(f"no Spark master answers at {self.master}: {problems[0]}")


def _host(master: str, part: str) -> tuple[str, int]:
    host, _, port = part.rpartition(":")
    if not host or not port.isdecimal():
        raise BadInput(f"{master!r} is no Spark master; write it like spark://host:7077")
    return host.strip("[]"), int(port)


def _cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _settings(place: SparkMaster) -> dict[str, str]:
    settings = {
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.sql.session.timeZone": "UTC",
    }
    if place.local:
        settings |= {
            "spark.sql.shuffle.partitions": str(place.cores),
            # Spark writes a checksum file for each checkpoint file, which takes a fifth of a small batch.
            "spark.hadoop.fs.AbstractFileSystem.file.impl": "org.apache.hadoop.fs.local.RawLocalFs",
            "spark.sql.warehouse.dir": str(temporary() / "warehouse"),
        }
    elif place.loopback:
        settings["spark.driver.host"] = "127.0.0.1"
    return settings


def _java_options(given: Mapping[str, str], *, quiet: bool) -> dict[str, str]:
    """Options for the driver's Java."""
    key = "spark.driver.extraJavaOptions"
    options = [f"-Dderby.system.home={temporary()}"]
    if quiet:
        options.append(f"-Dlog4j2.configurationFile={_LOGS.as_uri()}")
    return {key: " ".join([*map(shlex.quote, options), given.get(key, "")]).strip()}


def _environment(place: SparkMaster, given: Mapping[str, str]) -> dict[str, str]:
    """Environment variables for the start of Spark."""
    python = given.get("spark.pyspark.python") or os.environ.get("PYSPARK_PYTHON") or sys.executable
    local_ip = {"SPARK_LOCAL_IP": os.environ.get("SPARK_LOCAL_IP", "127.0.0.1")} if place.loopback else {}
    return {"PYSPARK_PYTHON": python, "SPARK_HOME": str(home.home(python, local=place.local)), **local_ip}


@contextlib.contextmanager
def _temporarily(environment: Mapping[str, str]) -> Iterator[None]:
    before = {name: os.environ.get(name) for name in environment}
    os.environ.update(environment)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value


def _hush() -> None:
    """Switch off PySpark's loggers that print an exception as JSON before they raise it."""
    from pyspark.logger import PySparkLogger

    for name in ("DataFrameQueryContextLogger", "SQLQueryContextLogger"):
        PySparkLogger.getLogger(name).setLevel("CRITICAL")


def _running(session: SparkSession, master: str | None, given: Mapping[str, str]) -> SparkSession:
    """Return the one session of this process. Warns about settings that it cannot change any more."""
    context = session.sparkContext
    if (
        master is not None
        and SparkMaster.parse(master, given).master != SparkMaster.parse(str(context.master), given).master
    ):
        warnings.warn(f"a Spark session runs already, on {context.master} and not on {master}", stacklevel=3)
    for key, value in given.items():
        if session.conf.isModifiable(key):
            session.conf.set(key, value)
        elif context.getConf().get(key) != value:
            warnings.warn(f"a Spark session runs already, and {key} cannot be changed any more", stacklevel=3)
    return session


def _reason(problem: Exception) -> str:
    """Java's message in one line."""
    cause = getattr(problem, "java_exception", None)
    return str(cause.getMessage() if cause is not None else problem).strip().split("\n")[0]
