"""What a session is set to, that it is quiet, and what it leaves behind."""

from __future__ import annotations

import json
import os
import socket
import sys
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from ackwise.core.errors import AckwiseError, BadInput
from ackwise.spark import java
from ackwise.spark.spark_session import SparkMaster, session
from tests.spark.running import Folder, run_python

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import SparkSession

EVERYTHING = """
import json, os
before = dict(os.environ)
from ackwise.spark import session
from pyspark.sql.functions import udf
spark = session(master="local[2]", config={
    "spark.sql.shuffle.partitions": "7",
    "spark.sql.session.timeZone": "Europe/Berlin",
    "spark.driver.extraJavaOptions": "-Dackwise.test=given",
})
changed = sorted(name for name in os.environ.keys() | before.keys() if os.environ.get(name) != before.get(name))
spark.range(100).write.saveAsTable("kept")
spark.addArtifacts(__file__, pyfile=True)
kept = spark.table("kept").mapInArrow(lambda batches: batches, "id long").count()
stream = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", 10).load()
stream.writeStream.format("noop").trigger(availableNow=True).start().awaitTermination()
raised = []
for job in (
    lambda: spark.range(9).select(udf(lambda n: 1 / 0)("id")).collect(),
    lambda: spark.sql("SELECT nowhere").collect(),
    lambda: stream.writeStream.foreachBatch(lambda rows, n: 1 / 0).start().awaitTermination(),
):
    try:
        job()
    except Exception as problem:
        raised.append(type(problem).__name__)
print(json.dumps({
    "kept": kept,
    "changed": changed,
    "raised": raised,
    "partitions": spark.conf.get("spark.sql.shuffle.partitions"),
    "zone": spark.conf.get("spark.sql.session.timeZone"),
    "property": spark.sparkContext._jvm.System.getProperty("ackwise.test"),
    "warehouse": spark.conf.get("spark.sql.warehouse.dir"),
}))
"""
PYSPARKS_OWN = ["SPARK_AUTH_SOCKET_TIMEOUT", "SPARK_BUFFER_SIZE"]
SUBMITTED = """
import ackwise.spark
ackwise.spark.session()
spark = ackwise.spark.session()
print(spark.sparkContext.master, spark.conf.get("spark.sql.shuffle.partitions"), spark.range(5).count())
"""


def test_session_has_its_default_settings(spark: SparkSession) -> None:
    context = spark.sparkContext
    assert (context.master, context.uiWebUrl) == ("local[2,4]", None)
    assert spark.conf.get("spark.sql.shuffle.partitions") == "2"
    assert spark.conf.get("spark.sql.session.timeZone") == "UTC"


def test_task_that_fails_is_tried_again(spark: SparkSession) -> None:
    def fails_at_first(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        from pyspark import TaskContext

        task = TaskContext.get()
        assert task is not None
        if task.attemptNumber() < 3:
            raise RuntimeError("not yet")
        yield from batches

    assert spark.range(0, 10, 1, 1).mapInArrow(fails_at_first, "id long").count() == 10


def test_session_is_silent_leaves_no_files_and_keeps_settings(folder: Folder, monkeypatch: pytest.MonkeyPatch) -> None:
    # PySpark sets these itself, and has done so in this process for an earlier session.
    for name in PYSPARKS_OWN:
        monkeypatch.delenv(name, raising=False)
    said = run_python(EVERYTHING, folder)
    assert (said.err, said.code) == ("", 0)
    found = json.loads(said.out)
    warehouse = Path(found.pop("warehouse").removeprefix("file:"))
    assert found == {
        "kept": 100,
        "changed": PYSPARKS_OWN,
        "raised": ["PythonException", "AnalysisException", "StreamingQueryException"],
        "partitions": "7",
        "zone": "Europe/Berlin",
        "property": "given",
    }
    assert list(folder.iterdir()) == []
    assert not warehouse.parent.exists()


@pytest.mark.long
def test_options_of_spark_submit_hold(folder: Folder, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JAVA_HOME", str(java.home(java.find())))
    monkeypatch.setenv("PYSPARK_PYTHON", sys.executable)
    monkeypatch.setenv("SPARK_LOCAL_IP", "127.0.0.1")
    submit = Path(sys.executable).with_name("spark-submit")
    said = run_python(
        SUBMITTED, folder, str(submit), "--master", "local[1]", "--conf", "spark.sql.shuffle.partitions=3"
    )
    assert (said.out, said.code) == ("local[1,4] 3 5\n", 0)


def test_running_session_is_reused_and_differences_warn(spark: SparkSession) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert session() is spark
        assert session(master="local[2]", config={"spark.ui.enabled": "false"}) is spark
    with pytest.warns(UserWarning, match=r"runs already, on local\[2,4\] and not on local\[3\]"):
        assert session(master="local[3]") is spark
    with pytest.warns(UserWarning, match=r"not on local\[3\]"):
        session(config={"spark.master": "local[3]"})
    with pytest.warns(UserWarning, match=r"spark\.ui\.enabled cannot be changed"):
        session(config={"spark.ui.enabled": "true"})
    try:
        session(config={"spark.sql.shuffle.partitions": "5"})
        assert spark.conf.get("spark.sql.shuffle.partitions") == "5"
    finally:
        spark.conf.set("spark.sql.shuffle.partitions", "2")


@pytest.mark.parametrize(
    ("master", "understood"),
    [
        ("local", "local[1,4]"),
        ("local[3]", "local[3,4]"),
        ("local[*]", "local[*,4]"),
        ("local[3, 1]", "local[3,1]"),
        ("local-cluster[2,1,1024]", "local-cluster[2,1,1024]"),
        ("yarn", "yarn"),
    ],
)
def test_master_is_understood_in_each_spelling(master: str, understood: str) -> None:
    assert SparkMaster.parse(master, {}).master == understood


def test_callers_limit_of_failures_holds_locally_too() -> None:
    assert SparkMaster.parse("local[2]", {"spark.task.maxFailures": "9"}).master == "local[2,9]"


def test_local_master_uses_loopback() -> None:
    assert SparkMaster.parse("local[2]", {}).loopback
    assert SparkMaster.parse("spark://127.0.0.1:7077", {}).loopback
    assert not SparkMaster.parse("spark://10.0.0.1:7077,10.0.0.2:7077", {}).loopback


@pytest.mark.parametrize("master", ["lokal[2]", "local[0]", "local[two]", "sc://localhost", "spark://x", "spark://h:p"])
def test_master_that_is_none_is_refused_before_java_starts(master: str) -> None:
    with pytest.raises(BadInput, match="is no Spark master; write it like"):
        SparkMaster.parse(master, {})


def test_cluster_that_does_not_answer() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    with pytest.raises(AckwiseError, match=f"no Spark master answers at spark://127.0.0.1:{port}"):
        SparkMaster.parse(f"spark://127.0.0.1:{port}", {}).check()


def test_session_without_pyspark_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pyspark", None)
    with pytest.raises(AckwiseError, match=r"^Spark is not installed .*pip install 'ackwise\[spark\]'$"):
        session()


def test_environment_names_the_master(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(os.environ, "ACKWISE_SPARK_MASTER", "local[7]")
    with pytest.warns(UserWarning, match=r"not on local\[7\]"):
        session()
