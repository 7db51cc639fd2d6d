"""One Spark session per process, for every test that needs Spark."""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from _pytest.runner import runtestprotocol

from ackwise.client.sync import http_repeats
from ackwise.core.policy import GroupPolicy
from ackwise.spark.spark_session import session
from tests.patience import PATIENCE
from tests.spark import class_archive, warm

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

HERE = Path(__file__).parent

# No test runs long enough to be repaid for what Java's second compiler costs.
for whose in ("SPARK_SUBMIT_OPTS", "SPARK_DAEMON_JAVA_OPTS"):
    os.environ.setdefault(whose, "-XX:TieredStopAtLevel=1")


SETTINGS = {
    "spark.python.daemon.module": warm.__name__,
    # Plans are run once here, over a few rows: to compile each takes longer.
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
}
EVERYWHERE = ("jobs", "pipelines", "queries", "spark")
"""Folders whose tests run a session on every store; what is said of one store holds for the others nearly always."""
SLOW_WORKER = "Python worker failed to connect back"
ATTEMPTS = 3
ALWAYS = ("test_map.py", "test_streams.py")
"""But these are run on every store each time."""


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Starting Spark takes its time, above all beside others. Sessions on all stores take minutes: `make faults`."""
    for item in items:
        if HERE not in item.path.parents:
            continue
        if item.get_closest_marker("timeout") is None:
            item.add_marker(pytest.mark.timeout(300))
        elsewhere = any(store in item.name for store in ("[postgres", "[http", "-postgres", "-http"))
        slow = item.path.parent.name in EVERYWHERE and item.path.name not in ALWAYS
        if elsewhere and slow and "spark" in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.long)


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item, nextitem: pytest.Item | None) -> bool:
    """Repeats a test whose Python worker was too slow for Spark, which waits ten seconds and has no setting for it."""
    item.ihook.pytest_runtest_logstart(nodeid=item.nodeid, location=item.location)
    for attempt in range(1, ATTEMPTS + 1):
        reports = runtestprotocol(item, nextitem=nextitem, log=False)
        if attempt == ATTEMPTS or not any(report.failed and SLOW_WORKER in report.longreprtext for report in reports):
            break
        item._initrequest()  # type: ignore[attr-defined]
    for report in reports:
        item.ihook.pytest_runtest_logreport(report=report)
    item.ihook.pytest_runtest_logfinish(nodeid=item.nodeid, location=item.location)
    return True


@pytest.fixture(autouse=True)
def pipeline_policy(monkeypatch: pytest.MonkeyPatch) -> None:
    """Groups of pipelines follow the policy of their queue, so a test chooses it. See pipelines/test_retries.py."""
    from ackwise.spark.pipelines import query

    monkeypatch.setattr(query, "PIPELINE_POLICY", GroupPolicy())


@pytest.fixture
def short_hello(monkeypatch: pytest.MonkeyPatch) -> None:
    """A connection tries for 0.2 seconds to find a server, not for 15. Spark's workers try for `warm.HELLO` seconds."""
    monkeypatch.setattr(http_repeats, "FIRST_PATIENCE", 0.2)


@pytest.fixture(scope="session", autouse=True)
def _class_archive() -> None:
    """Sessions of the tests start faster, also those in processes of their own."""
    class_archive.switch_on()


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    """The session. A test that changes its settings restores them."""
    running = session("ackwise-tests", master="local[2]", config=SETTINGS)
    yield running
    running.stop()


@pytest.fixture
def nowhere(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """A machine without Java; the folder is its `PATH`, and has what scripts need."""
    tools = tmp_path / "tools"
    tools.mkdir()
    for name in ("bash", "chmod", "dirname", "ls", "ps", "sh"):
        if found := shutil.which(name):
            (tools / name).symlink_to(found)
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(tools))
    return tools


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """An empty folder to run something in."""
    made = tmp_path / "here"
    made.mkdir()
    return made


@pytest.fixture
def await_file() -> Callable[[Path], None]:
    """Another process says by a file how far it is."""

    def wait(path: Path) -> None:
        end = time.monotonic() + PATIENCE
        while not path.exists():
            assert time.monotonic() < end, f"the other process made no {path.name}"
            time.sleep(0.02)

    return wait
