"""Spark's daemon of Python workers, with what its workers import already there.

Spark itself imports after each fork, for some libraries start threads when they are imported, and a fork leaves those
behind. That is a second of work for each of hundreds of workers here; so these libraries are told to start none.
"""

from __future__ import annotations

import gc
import importlib
import os

from pyspark.daemon import manager

NEEDED = ("pyspark.worker", "pandas", "ackwise.spark.pipelines", "ackwise.spark.source")
HELLO = 3.0
"""Seconds that a worker tries to find a server. Servers of the tests run before their queries."""


def warm() -> None:
    os.environ["OPENBLAS_NUM_THREADS"] = "1"
    os.environ["JE_ARROW_MALLOC_CONF"] = "background_thread:false"
    for name in NEEDED:
        importlib.import_module(name)
    vars(importlib.import_module("ackwise.client.sync.http_repeats"))["FIRST_PATIENCE"] = HELLO
    if len(os.listdir("/proc/self/task")) > 1:
        raise RuntimeError("a library has started a thread, which a fork would leave behind")
    # A worker looks for garbage after each task; none of this is any.
    gc.freeze()


if __name__ == "__main__":
    warm()
    manager()
