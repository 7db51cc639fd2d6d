"""A Spark session with the settings that Ackwise was measured with."""

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
from ackwise.spark import SparkMissing, home, java, startup
from ackwise.spark.cache import temporary
from ackwise.spark.failing import ours

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
    """A session on `master` (else `ACKWISE_SPARK_MASTER`, `MASTER`, `local[*]`), or the one that runs already.

    What `config` says goes before every setting of ours. `quiet=False` lets Spark log as it would by itself.
    """
    try:
        from pyspark import SparkConf, SparkContext, TaskContext
        from pyspark.sql import SparkSession
    except ImportError as problem:
        raise SparkMissing(f"Spark is not installed ({problem}); pip install 'ackwise[spark]'") from None
    with ours():
        if TaskContext.get() is not None:
            raise BadInput("a worker has no session: make it in a function, not where a module is imported")
    asked = dict(config or {})
    configured = asked.pop("spark.master", None)
    chosen = master or configured or os.environ.get("ACKWISE_SPARK_MASTER")
    if SparkContext._active_spark_context is not None:
        return _running(SparkSession.builder.getOrCreate(), chosen, asked)
    if "PYSPARK_GATEWAY_PORT" in os.environ:  # spark-submit started Java and us, with a configuration of its own.
        SparkContext._ensure_initialized()
        asked = {**dict(SparkConf().getAll()), **asked}
        submitted = asked.pop("spark.master", None)
        chosen = chosen or submitted
    place = Place.parse(chosen or os.environ.get("MASTER") or "local[*]", asked)
    place.check()
    found = java.find() if SparkContext._gateway is None else None
    environment = _environment(place, asked)
    if found is not None:
        environment["JAVA_HOME"] = str(java.home(found, quiet=quiet))
    builder = SparkSession.builder.appName(app).master(place.master)
    options = _java_options(found, Path(environment["SPARK_HOME"]), asked, quiet)
    for key, value in {**_settings(place), **asked, **options}.items():
        builder.config(key, value)
    if quiet:
        _hush()
    try:
        with _temporarily(environment):
            return builder.getOrCreate()
    except Exception as problem:
        raise AckwiseError(f"Spark did not start on {place.master}: {_reason(problem)}") from problem


@dataclass(frozen=True, slots=True)
class Place:
    """Where a session is to run."""

    master: str
    cores: int | None
    """How many, where it runs in this very process."""
    hosts: tuple[tuple[str, int], ...]
    """The masters of a standalone cluster."""

    @classmethod
    def parse(cls, master: str, asked: Mapping[str, str]) -> Place:
        if local := _LOCAL.fullmatch(master):
            cores = local["cores"] or "1"
            # Without a number Spark gives up at the first task that fails, and so does the query.
            failures = local["failures"] or asked.get("spark.task.maxFailures", _FAILURES)
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
        """Everything is on this machine, and nobody outside needs to reach us."""
        return self.local or any(host in _LOOPBACK for host, _ in self.hosts)

    def check(self) -> None:
        """Spark itself would try for a minute and then print a page of Java."""
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


def _settings(place: Place) -> dict[str, str]:
    settings = {
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.sql.session.timeZone": "UTC",
    }
    if place.local:
        settings |= {
            "spark.sql.shuffle.partitions": str(place.cores),
            # Checksum files beside each file of a checkpoint cost a fifth of a small batch.
            "spark.hadoop.fs.AbstractFileSystem.file.impl": "org.apache.hadoop.fs.local.RawLocalFs",
            "spark.sql.warehouse.dir": str(temporary() / "warehouse"),
        }
    elif place.loopback:
        settings["spark.driver.host"] = "127.0.0.1"
    return settings


def _java_options(found: java.Java | None, spark: Path, asked: Mapping[str, str], quiet: bool) -> dict[str, str]:
    """What the driver's Java starts with, if it is not there yet."""
    if found is None:
        return {}
    key = "spark.driver.extraJavaOptions"
    options = [*startup.options(found, spark / "jars"), f"-Dderby.system.home={temporary()}"]
    if quiet:
        options.append(f"-Dlog4j2.configurationFile={_LOGS.as_uri()}")
    return {key: " ".join([*map(shlex.quote, options), asked.get(key, "")]).strip()}


def _environment(place: Place, asked: Mapping[str, str]) -> dict[str, str]:
    """What Spark reads from the environment while it starts."""
    python = asked.get("spark.pyspark.python") or os.environ.get("PYSPARK_PYTHON") or sys.executable
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
    """Some exceptions are logged by PySpark before they are raised, as a page of JSON."""
    from pyspark.logger import PySparkLogger

    for name in ("DataFrameQueryContextLogger", "SQLQueryContextLogger"):
        PySparkLogger.getLogger(name).setLevel("CRITICAL")


def _running(found: SparkSession, master: str | None, asked: Mapping[str, str]) -> SparkSession:
    """There is one session per process: what it cannot become is said."""
    context = found.sparkContext
    if master is not None and Place.parse(master, asked).master != Place.parse(str(context.master), asked).master:
        warnings.warn(f"a Spark session runs already, on {context.master} and not on {master}", stacklevel=3)
    for key, value in asked.items():
        if found.conf.isModifiable(key):
            found.conf.set(key, value)
        elif context.getConf().get(key) != value:
            warnings.warn(f"a Spark session runs already, and {key} cannot be changed any more", stacklevel=3)
    return found


def _reason(problem: Exception) -> str:
    """What Java said, in one line."""
    cause = getattr(problem, "java_exception", None)
    return str(cause.getMessage() if cause is not None else problem).strip().split("\n")[0]
