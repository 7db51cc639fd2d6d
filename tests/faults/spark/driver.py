"""The process that is killed: runs the pipeline from its checkpoint until nothing is left, and says how it went."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

import msgspec

from ackwise.spark import pipeline, session
from ackwise.spark.pipelines import Totals
from tests.faults.spark.orders import GROUP, OUTPUT, QUEUE, RETURNS, Bill

MARK = "ACKWISE_FAULTS_MARK"
"""Environment variable of every process that a campaign starts."""


class Job(msgspec.Struct):
    """What to run; `ready` and `done` are files that it writes."""

    url: str
    checkpoint: str
    broken: str
    rows: int
    files: str | None
    master: str = ""
    ready: str = ""
    done: str = ""


class Ready(msgspec.Struct):
    """The session is there."""

    java: int


class Done(msgspec.Struct):
    """Nothing is left."""

    totals: Totals


def _say(path: str, what: Any) -> None:
    """Whole or not at all."""
    draft = Path(f"{path}.draft")
    draft.write_bytes(msgspec.json.encode(what))
    draft.rename(path)


def main() -> None:
    job = msgspec.json.decode(sys.stdin.buffer.readline(), type=Job)
    # Executors of a cluster import the function from here as well, and bear the same mark.
    config = {f"spark.executorEnv.{name}": os.environ[name] for name in ("PYTHONPATH", MARK)}
    # A life is short: Java need not make the best of its code.
    config["spark.driver.extraJavaOptions"] = config["spark.executor.extraJavaOptions"] = "-XX:TieredStopAtLevel=1"
    spark = session("ackwise-faults", master=job.master, config=config)
    jvm: Any = spark._jvm
    _say(job.ready, Ready(int(jvm.java.lang.ProcessHandle.current().pid())))
    billing = pipeline(spark, job.url).consume(QUEUE, GROUP, max_rows=job.rows)
    billing = billing.map(Bill(job.broken), returns=RETURNS).produce(OUTPUT)
    if job.files is not None:
        billing = billing.write("parquet", job.files)
    _say(job.done, Done(billing.run(job.checkpoint)))
    spark.stop()


if __name__ == "__main__":
    main()
