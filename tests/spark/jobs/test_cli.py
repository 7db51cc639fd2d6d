"""The verbs of the command line: what they print and how they end."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from ackwise import connect
from ackwise.cli.arguments import duration, instant
from ackwise.core.errors import BadInput
from tests.cli.conftest import Ackwise
from tests.patience import PATIENCE
from tests.spark.jobs.frames import at

pytestmark = pytest.mark.usefixtures("spark")


def fill(url: str) -> None:
    """Three dead letters, two messages acked, one left."""
    with connect(url) as queue:
        queue.push_many("orders", [{"id": number} for number in range(6)])
        batch = queue.claim("orders", group="billing", max=5)
        for number in range(3):
            batch[number].reject(f"order {number} not found [bold]")
        batch.ack()


def test_dlq_report_prints_json_and_writes_html(ackwise: Ackwise, url: str, tmp_path: Path) -> None:
    fill(url)
    page = tmp_path / "report.html"
    said = ackwise("dlq", "report", "--queue", "orders", "--group", "billing", "--json", "--html", str(page))
    (row,) = said.json
    assert list(row) == ["queue", "group", "reason", "error", "count", "first_at", "last_at"]
    assert (row["error"], row["count"], row["first_at"][-1]) == ("order <n> not found [bold]", 3, "Z")
    assert f"report: {page}" in said.err
    assert "order &lt;n&gt; not found" in page.read_text()
    said = ackwise("dlq", "report")
    assert (said.code, "order <n> not found [bold]" in said.out) == (0, True)


def test_reports_of_an_empty_store_say_so(ackwise: Ackwise, url: str, tmp_path: Path) -> None:
    connect(url).close()
    assert ackwise("dlq", "report", "--html", str(tmp_path / "report.html"))[:2] == (0, "no dead letters\n")
    assert "No dead letters here" in (tmp_path / "report.html").read_text()
    assert ackwise("dlq", "report", "--json").json == []
    assert ackwise("lag")[:2] == (0, "no group has read yet; a claim creates its group\n")
    assert ackwise("metrics")[:2] == (0, "no settlements in this time\n")


def test_redrive_by_expression(ackwise: Ackwise, url: str) -> None:
    fill(url)
    where = ("dlq", "redrive", "--where", "error_message LIKE 'order 1%'")
    said = ackwise(*where, "--dry-run")
    assert (said.code, said.out.splitlines()[-1]) == (0, "would redrive 1 dead letter")
    assert "order <n> not found" in said.out
    assert ackwise(*where).code == 1  # it asks first
    assert ackwise(*where, "--yes", "--rate", "1000")[:2] == (0, "redriven 1 dead letter\n")
    assert ackwise("dlq", "redrive", "--queue", "orders", "--rate", "1000", "--yes")[:2] == (
        0,
        "redriven 2 dead letters\n",
    )


def test_wrong_arguments_are_errors(ackwise: Ackwise, url: str) -> None:
    fill(url)
    wrong = {
        ("dlq", "redrive", "--where", "nosuch = 1", "--yes"): "--where 'nosuch = 1': ",
        ("dlq", "redrive", "--where", "true", "--rate", "0"): "rate must be",
        ("dlq", "redrive", "some-id", "--where", "true"): "not both",
        ("metrics", "--window", "soon"): "--window soon: ",
        ("metrics", "--window", "90s"): "whole minutes",
        ("metrics", "--since", "noon"): "--since noon: ",
    }
    for command, said in wrong.items():
        failed = ackwise(*command)
        assert (failed.code, failed.out, failed.err.count("\n")) == (2, "", 1), failed
        assert said in failed.err
    assert len(ackwise("dlq", "list", "--json").json) == 3


def test_missing_source_is_one_line_on_stderr(ackwise: Ackwise, url: str, tmp_path: Path) -> None:
    fill(url)
    missing = {
        ("dlq", "report", "--queue", "nowhere"): "nowhere",
        ("lag", "--url", f"sqlite:///{tmp_path}/none.db"): "there is no store",
        ("metrics", "--url", "http://127.0.0.1:1"): "http://127.0.0.1:1",
        ("replay", str(tmp_path / "none")): "there is no archive",
    }
    for command, said in missing.items():
        failed = ackwise(*command)
        assert (failed.code, failed.out, failed.err.count("\n")) == (1, "", 1), failed
        assert said in failed.err


def test_lag_and_metrics(ackwise: Ackwise, url: str, tmp_path: Path) -> None:
    fill(url)
    (group,) = ackwise("lag", "--json", "--html", str(tmp_path / "lag.html")).json
    assert (group["group"], group["lag"], group["unread"]) == ("billing", 1, 1)
    assert "billing" in (tmp_path / "lag.html").read_text()
    assert "Default" in ackwise("lag", "--partitions").out
    (window,) = ackwise("metrics", "--window", "1d", "--json", "--html", str(tmp_path / "metrics.html")).json
    assert (window["acked"], window["dead"], window["success_rate"]) == (2, 3, 0.4)
    assert "40.00%" in (tmp_path / "metrics.html").read_text()


def test_archive_and_replay(ackwise: Ackwise, url: str, tmp_path: Path) -> None:
    fill(url)
    path = str(tmp_path / "archive")
    assert ackwise("archive", path, "--prune").code == 1  # it asks first
    (row,) = ackwise("archive", path, "--queue", "orders", "--json").json
    assert (row["queue"], row["messages"]) == ("orders", 5)
    assert "orders" in ackwise("archive", path, "--prune", "--yes").out
    assert "would push" in ackwise("replay", path, "--dry-run").out
    again = ("replay", path, "--to-queue", "again", "--where", "seq > 1", "--since", "1h", "--json")
    assert ackwise(*again).json == [{"queue": "again", "pushed": 3, "duplicates": 0}]
    assert ackwise(*again).json == [{"queue": "again", "pushed": 0, "duplicates": 3}]
    assert ackwise(*again, "--copy", "second").json == [{"queue": "again", "pushed": 3, "duplicates": 0}]
    assert ackwise("replay", path, "--until", "2000-01-01")[:2] == (0, "no archived message matches\n")


def test_session_that_ran_before_goes_on(ackwise: Ackwise, url: str, spark: SparkSession) -> None:
    fill(url)
    assert ackwise("lag", "--engine", "spark").code == 0
    assert spark.range(3).count() == 3


def alone(code: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-c", code, *arguments], capture_output=True, text=True, timeout=PATIENCE)


def test_command_line_does_not_load_spark() -> None:
    done = alone(
        "import sys, ackwise.cli; print([name for name in sys.modules if name.startswith(('pyspark', 'pyarrow'))])"
    )
    assert done.stdout == "[]\n", done.stderr


def test_command_without_pyspark_names_the_extra(url: str) -> None:
    connect(url).close()
    code = "import sys; sys.modules['pyspark'] = None; from ackwise.cli import main; sys.argv[0] = 'ackwise'; main()"
    done = alone(code, "lag", "--url", url, "--engine", "spark")
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (1, "", 1)
    assert "ackwise[spark]" in done.stderr


def test_durations_and_times() -> None:
    now = at("2030-01-31T12:00:00")
    assert [duration(text, "--x").total_seconds() for text in ("90s", "15m", "1h30m", "7d", "0.5h", "2w")] == [
        90,
        900,
        5400,
        604_800,
        1800,
        1_209_600,
    ]
    for wrong in ("", "1", "h", "1 h", "1y", "-1h", "1h x", "9" * 400 + "d"):
        with pytest.raises(BadInput, match="--x"):
            duration(wrong, "--x")
    assert instant(None, "--x", now) is None
    assert instant("2h", "--x", now) == at("2030-01-31T10:00:00")
    assert instant("2030-01-31", "--x", now) == at("2030-01-31T00:00:00")
    assert instant("2030-01-31T13:00:00+01:00", "--x", now) == now
    for wrong in ("noon", "99999999d"):
        with pytest.raises(BadInput, match="--x"):
            instant(wrong, "--x", now)
