"""`ackwise bench pushpop`: small, but everything that the large one does."""

from __future__ import annotations

import httpx2
import pytest

from ackwise.bench import pushpop
from ackwise.bench.latencies import Latencies
from tests.cli.conftest import Ackwise
from tests.server.running import Running

OPERATIONS = {
    "push": 60,
    "pop": 30,
    "pop with ack": 30,
    "acknowledge": 30,
    "pop with ack, in process": 5,
    "pop with ack, expired lock": 5,
}


@pytest.fixture(autouse=True)
def few(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pushpop, "CLEANUPS", 5)
    monkeypatch.setattr(pushpop, "LOCKS", 1000)


def test_on_a_server_of_its_own(ackwise: Ackwise) -> None:
    said = ackwise("bench", "pushpop", "--users", "3", "--iterations", "20", "--json")
    assert said.code == 0, said.err
    assert {row["operation"]: row["count"] for row in said.json["rows"]} == OPERATIONS
    for row in said.json["rows"]:
        assert 0 < row["p50"] <= row["p95"] <= row["p99"] <= row["most"]
        assert row["per_second"] > 0
    assert 100 < said.json["bytes_per_lock"] < 1000


def test_on_a_server_that_runs(ackwise: Ackwise, url: str) -> None:
    with Running(url) as server:
        said = ackwise("bench", "pushpop", "-u", "3", "-i", "20", "-r", "100", "--url", server.url)
        assert said.code == 0, said.err
        with httpx2.Client(base_url=server.url) as http:
            left = http.get("/queue").json()["queues"]
    assert [(one["queue_id"], one["depth"]) for one in left] == [(f"bench-{n}", {}) for n in range(3)]
    for text in (*OPERATIONS, "bytes per lock", "about 3,800/s, mean 10.5 ms", "3-5 ms", "200-500 bytes", "p99"):
        assert text in said.out


@pytest.mark.parametrize("wrong", [("--users", "0"), ("--iterations", "1"), ("--ramp-up", "-1"), ("--users", "x")])
def test_wrong_numbers(ackwise: Ackwise, wrong: tuple[str, str]) -> None:
    assert ackwise("bench", "pushpop", *wrong).code == 2


def test_percentiles() -> None:
    some = Latencies()
    some.add([n / 1000 for n in range(1, 101)])
    some.elapsed = 2.0
    row = some.row("x")
    assert (row.count, row.per_second, row.mean, row.p50, row.p95, row.p99, row.most) == (
        100,
        50.0,
        50.5,
        51,
        96,
        100,
        100,
    )
