"""Spark's home without its archives of Python sources.

Spark puts those first on the path of every Python process it starts, and it starts several per query. Python keeps no
compiled modules of an archive, so each process would compile PySpark anew, which takes longer than all else it does
before its work. Without them Python finds PySpark where it is installed.
"""

from __future__ import annotations

import hashlib
import os
import sys
from pathlib import Path

from ackwise.spark.cache import folders, made_once


def home(python: str, *, local: bool) -> Path:
    """Where Spark is, for sessions that run `python`, `local` on this machine only."""
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
    for name in ("bin", "conf", "jars"):  # nobody has a conf before he makes it
        (folder / name).symlink_to(real / name)
