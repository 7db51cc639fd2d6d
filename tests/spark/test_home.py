"""Where Spark is, and that its Python processes import what is compiled already."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pyspark
import pytest
from pyspark.sql import SparkSession

from ackwise.spark import home

INSTALLED = Path(pyspark.__file__).parent


@pytest.mark.long
def test_tasks_find_pyspark_where_it_is_installed(spark: SparkSession) -> None:
    def where(_: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import pyspark.worker

        yield pa.record_batch([pa.array([getattr(pyspark.worker, "__cached__", "")])], names=["file"])

    found = {row["file"] for row in spark.range(1).mapInArrow(where, "file string").collect()}
    assert [Path(one).parent for one in found] == [INSTALLED / "__pycache__"]


def test_spark_home_variable_is_used(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("SPARK_HOME", str(tmp_path))
    assert home.home(sys.executable, local=True) == tmp_path


@pytest.mark.parametrize(("python", "local"), [("another python", True), (sys.executable, False)])
def test_processes_that_may_have_no_pyspark_get_sparks_own(
    python: str, local: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("SPARK_HOME", raising=False)
    assert home.home(python, local=local) == INSTALLED


def test_unwritable_cache_folder_uses_installed_spark(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("SPARK_HOME", raising=False)
    (tmp_path / "file").touch()
    monkeypatch.setattr(home, "folders", lambda: iter([tmp_path / "file"]))
    assert home.home(sys.executable, local=True) == INSTALLED
