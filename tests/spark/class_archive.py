"""Class-data archive for the tests: Java loads Spark's classes from it and starts in about two thirds of the time.

An archive has 170 MB and takes half a minute to make. The tests start many Spark sessions, so they save more time than
that. Java ignores an archive of another class path.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from ackwise.spark import home, java
from ackwise.spark.java import Java, folders, made_once, make_private

ROOT = Path(__file__).resolve().parents[2]
JAVA_OPTIONS = "SPARK_SUBMIT_OPTS"
"""Environment variable with options for every driver's Java that this process and its children start."""
_SILENT = ("-Xlog:cds=off", "-Xlog:cds+dynamic=off", "-Xlog:class+path=off")


def switch_on() -> None:
    """Make sure that the archive exists, and let every local session use it. Without an archive Java starts slowly."""
    if "-XX:SharedArchiveFile" in os.environ.get(JAVA_OPTIONS, ""):
        return
    with contextlib.suppress(OSError, subprocess.SubprocessError):
        archive = _make_sure(java.find(), home.home(sys.executable, local=True) / "jars")
        os.environ[JAVA_OPTIONS] = " ".join([os.environ.get(JAVA_OPTIONS, ""), *map(shlex.quote, options(archive))])


def options(archive: Path) -> list[str]:
    """Options that let Java use the archive and keep silent when the archive does not fit."""
    return [f"-XX:SharedArchiveFile={archive}", *_SILENT]


def _make_sure(found: Java, jars: Path) -> Path:
    cache = next(folders())
    folder = cache / _name(found, jars)
    with _locked(cache):
        if not folder.is_dir():
            for outdated in cache.glob(f"{folder.name.rpartition('-')[0]}-*"):
                shutil.rmtree(outdated, ignore_errors=True)
            made_once(folder, _make)
    return folder / "spark.jsa"


def _name(found: Java, jars: Path) -> str:
    """Name of the archive's folder: `classes-<place>-<build>`. An archive of an older build is outdated."""
    from pyspark import __version__

    place = hashlib.sha256(f"{found.home}\n{jars}".encode()).hexdigest()[:16]
    build = hashlib.sha256(f"{found.build}\n{__version__}\n{jars.stat().st_mtime_ns}".encode()).hexdigest()[:16]
    return f"classes-{place}-{build}"


@contextlib.contextmanager
def _locked(folder: Path) -> Iterator[None]:
    make_private(folder)
    with (folder / "classes.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _make(draft: Path) -> None:
    subprocess.run(
        [sys.executable, "-m", "tests.spark.class_archive", str(draft / "spark.jsa")],
        cwd=ROOT,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        timeout=300,
        check=True,
    )


def _train(archive: str) -> None:
    """Run one job of each kind, so that Java loads the classes that the archive is to hold."""
    from pyspark import SparkContext

    from ackwise.spark.spark_session import session

    spark = session(
        master="local[1]",
        config={"spark.driver.extraJavaOptions": f"-XX:ArchiveClassesAtExit={archive}"},
    )
    rows = spark.range(100).mapInArrow(lambda batches: batches, "id long")
    rows.groupBy((rows.id % 3).alias("third")).count().toPandas()
    stream = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", 10).load()
    stream.writeStream.format("noop").trigger(once=True).start().awaitTermination()
    spark.stop()
    gateway = SparkContext._gateway
    assert gateway is not None
    gateway.shutdown()
    gateway.proc.stdin.close()
    gateway.proc.wait()


if __name__ == "__main__":
    _train(sys.argv[1])
