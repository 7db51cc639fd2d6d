"""An archive of the classes that Spark loads, with which Java starts in about two thirds of the time.

It has 170 MB and takes half a minute to make, so it is made for those who start Spark all day, as our tests do:
`ACKWISE_SPARK_CDS=1`. One that is there is used, unless that is 0. Java ignores an archive of another class path.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from ackwise.spark.cache import folders, made_once, make_private
from ackwise.spark.java import Java

SWITCH = "ACKWISE_SPARK_CDS"
_SILENT = ("-Xlog:cds=off", "-Xlog:cds+dynamic=off", "-Xlog:class+path=off")


def options(java: Java, jars: Path) -> list[str]:
    """What to start Java with. Whoever needs the archive first makes it; without one Java starts all the same."""
    switch = os.environ.get(SWITCH)
    if switch == "0" or not jars.is_dir():
        return []
    folder = next(folders())
    where = _where(folder, java, jars)
    if switch == "1":
        with contextlib.suppress(OSError, subprocess.SubprocessError), _alone(folder):
            _renew(folder, where)
    return [f"-XX:SharedArchiveFile={where / 'spark.jsa'}", *_SILENT] if where.is_dir() else []


def _renew(folder: Path, where: Path) -> None:
    if not where.is_dir():
        for outdated in folder.glob(f"{where.name.rpartition('-')[0]}-*"):
            shutil.rmtree(outdated, ignore_errors=True)
        made_once(where, _make)


def _where(folder: Path, java: Java, jars: Path) -> Path:
    from pyspark import __version__

    place = hashlib.sha256(f"{java.home}\n{jars}".encode()).hexdigest()[:16]
    build = hashlib.sha256(f"{java.build}\n{__version__}\n{jars.stat().st_mtime_ns}".encode()).hexdigest()[:16]
    return folder / f"classes-{place}-{build}"


@contextlib.contextmanager
def _alone(folder: Path) -> Iterator[None]:
    make_private(folder)
    with (folder / "classes.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _make(draft: Path) -> None:
    subprocess.run(
        [sys.executable, "-m", __name__, str(draft / "spark.jsa")],
        env={**os.environ, SWITCH: "0"},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        timeout=300,
        check=True,
    )


def _train(archive: str) -> None:
    """A bit of everything, so that its classes are loaded."""
    from pyspark import SparkContext

    from ackwise.spark.sessions import session

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
