"""Spark home without the archives of PySpark's sources.

Spark puts these archives first on the import path of each Python process that it starts, several per query. Python does
not cache compiled modules of an archive, so each process would compile PySpark again, which dominates its start.
Without the archives Python imports the installed PySpark.
"""

from __future__ import annotations

import hashlib
import os
import sys
from pathlib import Path

from ackwise.spark.java import folders, made_once


def home(python: str, *, local: bool) -> Path:
    """Spark home for sessions whose workers run `python`. `local`: all workers run on this machine."""
    import pyspark

    if given := os.environ.get("SPARK_HOME"):
        return Path(given)
    real = Path(pyspark.__file__).parent
    if not local or python != sys.executable or not (real / "jars").is_dir():
        return real
    name = f"spark-home-{pyspark.__version__}-{hashlib.sha256(str(real).encode()).hexdigest()[:16]}"
    for folder in folders():
        try:
            return made_once(folder / name, lambda draft: _link(real, draft))
        except OSError:
            continue
    return real


def _link(real: Path, folder: Path) -> None:
    for name in ("bin", "conf", "jars"):  # `conf` need not exist
        (folder / name).symlink_to(real / name)
