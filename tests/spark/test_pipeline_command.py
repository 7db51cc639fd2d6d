"""`ackwise pipeline run`: what it finds, how it ends, and that a signal stops it between batches."""

from __future__ import annotations

import json
import os
import signal
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from ackwise import connect
from tests.cli.conftest import Ackwise, ackwise, url

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["ackwise", "url"]

BILLING = """
from pathlib import Path
import time
from ackwise import Reject
from ackwise.spark import pipeline

HERE = Path({here!r})

def bill(order):
    if order["n"] == 3:
        raise Reject("no such customer")
    return {{"order": order["n"]}}

def wait(order):
    (HERE / "began").touch()
    while not (HERE / "go").exists():
        time.sleep(0.01)

def make(spark, url):
    return pipeline(spark, url).consume("orders", "billing").map(bill, returns="order long").produce("invoices")

def slow(spark, url):
    return pipeline(spark, url).consume("orders", "slow", max_rows=1).map(wait)

def steady(spark, url):
    return pipeline(spark, url).consume("orders", "steady").map(wait)

def broken(spark, url):
    return 1 / 0

def wrong(spark, url):
    return "a pipeline"

number = 7
"""
FINISHED = """
from ackwise.spark import session
made = make(session(), {url!r})
"""


@pytest.fixture
def module(tmp_path: Path, url: str, monkeypatch: pytest.MonkeyPatch) -> str:
    """A module in the current folder; its name is its own, for Spark ships a file of a name once."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    name = f"billing_{tmp_path.name}_{os.getpid()}".replace("-", "_")
    (tmp_path / f"{name}.py").write_text(BILLING.format(here=str(tmp_path), url=url))
    with connect(url) as queue:
        queue.push_many("orders", [{"n": n} for n in range(10)])
    return name


def test_function_makes_the_pipeline_and_it_runs_to_the_end(
    spark: SparkSession, ackwise: Ackwise, module: str, url: str
) -> None:
    said = ackwise("pipeline", "run", f"{module}:make", "--url", url, "--json")
    totals = json.loads(said.out)
    assert (said.code, totals["acked"], totals["dead"], totals["outputs"]) == (0, 9, 1, 9)
    assert "orders → billing: 10 rows in" in said.err.splitlines()[-1]
    with connect(url) as queue:
        assert queue.stats("invoices").messages == 9


@pytest.fixture
def finished(module: str, tmp_path: Path, url: str) -> str:
    """The same, and when it is imported it makes a session and a pipeline."""
    with (tmp_path / f"{module}.py").open("a") as file:
        file.write(FINISHED.format(url=url))
    return module


def test_pipeline_that_is_finished_has_its_own_url(
    spark: SparkSession, ackwise: Ackwise, finished: str, url: str
) -> None:
    refused = ackwise("pipeline", "run", f"{finished}:made", "--url", url)
    assert (refused.code, "has its own URL" in refused.err) == (2, True)
    assert json.loads(ackwise("pipeline", "run", f"{finished}:made", "--json").out)["acked"] == 9


def test_module_that_makes_session_is_refused_for_workers(spark: SparkSession, ackwise: Ackwise, finished: str) -> None:
    said = ackwise("pipeline", "run", f"{finished}:make")
    assert (said.code, "a Spark worker cannot start a session" in said.err) == (1, True)


@pytest.mark.parametrize(
    ("target", "code", "why"),
    [
        ("nowhere:pipeline", 2, "there is no module 'nowhere'"),
        ("billing", 2, "write it like module:name"),
        ("{module}:nothing", 2, "has no nothing"),
        ("{module}:number", 2, "neither a pipeline nor a function"),
        ("{module}:wrong", 2, "returned str, not a pipeline"),
        ("{module}:broken", 1, "ZeroDivisionError: division by zero ("),
    ],
)
def test_command_without_a_pipeline_prints_one_line(
    spark: SparkSession, ackwise: Ackwise, module: str, target: str, code: int, why: str
) -> None:
    said = ackwise("pipeline", "run", target.format(module=module))
    assert (said.code, said.out, why in said.err, said.err.count("\n")) == (code, "", True, 1)


def test_broken_module_is_reported_in_one_line_with_place(
    spark: SparkSession, ackwise: Ackwise, module: str, tmp_path: Path
) -> None:
    (tmp_path / f"{module}.py").write_text("x = 1\nimport nothing_of_the_kind\n")
    said = ackwise("pipeline", "run", f"{module}:make")
    assert (said.code, said.err.count("\n")) == (1, 1)
    assert f"ModuleNotFoundError: No module named 'nothing_of_the_kind' ({tmp_path}/{module}.py:2)" in said.err


@pytest.mark.parametrize(
    "wrong",
    [("--follow",), ("--config", "spark.x"), ("--config", "x=1"), ("--master", "lokal"), ("--py-files", "nowhere.py")],
)
def test_command_with_wrong_options_is_misuse(
    spark: SparkSession, ackwise: Ackwise, module: str, wrong: tuple[str, ...]
) -> None:
    said = ackwise("pipeline", "run", f"{module}:make", *wrong)
    assert (said.code, said.out, said.err.count("\n")) == (2, "", 1)


def test_signal_lets_the_batch_finish_and_no_other_begin(
    spark: SparkSession, ackwise: Ackwise, module: str, url: str, tmp_path: Path, await_file: Callable[[Path], None]
) -> None:
    def interrupt() -> None:
        await_file(tmp_path / "began")
        os.kill(os.getpid(), signal.SIGINT)
        (tmp_path / "go").touch()

    interrupting = threading.Thread(target=interrupt)
    interrupting.start()
    said = ackwise("pipeline", "run", f"{module}:slow", "--json")
    interrupting.join()
    assert (said.code, "stopped before all records were done" in said.err) == (1, True)
    acked = json.loads(said.out)["acked"]
    with connect(url) as queue:
        (group,) = queue.groups("orders")
        assert 1 <= acked == group.acked < 10
        assert (group.lag, group.dead, group.leases) == (10 - acked, 0, 0)
        assert {one.failures for one in queue.claim("orders", group="slow", max=10)} == {0}


def test_pipeline_with_follow_runs_until_sigterm(
    spark: SparkSession, ackwise: Ackwise, module: str, url: str, tmp_path: Path, await_file: Callable[[Path], None]
) -> None:
    def end() -> None:
        await_file(tmp_path / "began")
        (tmp_path / "go").touch()
        with connect(url) as queue:
            while queue.groups("orders")[0].lag:
                time.sleep(0.02)
        os.kill(os.getpid(), signal.SIGTERM)

    ending = threading.Thread(target=end)
    ending.start()
    kept = tmp_path / "checkpoint"
    said = ackwise("pipeline", "run", f"{module}:steady", "--follow", "--checkpoint", str(kept), "--json")
    ending.join()
    assert (said.code, json.loads(said.out)["acked"]) == (0, 10)
    assert all(line.startswith("orders → steady: ") for line in said.err.splitlines())
    assert sorted(path.name for path in tmp_path.iterdir() if not path.name.startswith(("q.db", "__"))) == [
        "began",
        f"{module}.py",
        "checkpoint",
        "go",
    ]
