"""`ackwise bench pushpop`: small, but everything that the large one does."""

from __future__ import annotations

import asyncio
from collections import Counter
from types import SimpleNamespace

import httpx2
import pytest

from ackwise.bench import load as users_module
from ackwise.bench import pushpop
from ackwise.bench.load import Latencies, User, Users
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


def test_bench_without_url_starts_its_own_server(ackwise: Ackwise) -> None:
    said = ackwise("bench", "pushpop", "--users", "3", "--iterations", "20", "--json")
    assert said.code == 0, said.err
    assert {row["operation"]: row["count"] for row in said.json["rows"]} == OPERATIONS
    for row in said.json["rows"]:
        assert 0 < row["p50"] <= row["p95"] <= row["p99"] <= row["most"]
        assert row["per_second"] > 0
    assert 100 < said.json["bytes_per_lock"] < 1000


def test_bench_with_url_uses_the_running_server(ackwise: Ackwise, url: str) -> None:
    with Running(url) as server:
        for _ in range(2):
            said = ackwise("bench", "pushpop", "-u", "3", "-i", "20", "-r", "100", "--url", server.url)
            assert said.code == 0, said.err
        with httpx2.Client(base_url=server.url) as http:
            left = http.get("/queue").json()["queues"]
    assert [one["depth"] for one in left] == [{}] * 6
    runs = Counter(one["queue_id"].rpartition("-")[0] for one in left)
    assert (list(runs.values()), all(run.startswith("bench-") for run in runs)) == ([3, 3], True)
    for text in (*OPERATIONS, "bytes per lock", "about 3,800/s, mean 10.5 ms", "3-5 ms", "200-500 bytes", "p99"):
        assert text in said.out


@pytest.mark.parametrize("url", ["https://127.0.0.1:6632", "127.0.0.1:6632", "http://", "http://x:y", "sqlite:///x.db"])
def test_bench_of_a_url_without_plain_http_is_refused(ackwise: Ackwise, url: str) -> None:
    said = ackwise("bench", "pushpop", "-u", "1", "-i", "2", "--url", url)
    assert said.code != 0
    assert "plain http" in said.err


def test_users_arrive_before_anything_is_measured(monkeypatch: pytest.MonkeyPatch, url: str) -> None:
    waited: list[float] = []

    async def sleep(seconds: float) -> None:
        waited.append(seconds)

    async def push(user: User) -> None:
        await user.timed("push", user.post("push", b'{"item":{}}'))

    async def main(server: str) -> None:
        users = await Users.arrive(server, 3, ramp_up=10)
        await users.begin(1, push)
        assert waited == [0.0, 0.1, 0.2]
        await users.each(2, push)
        assert len(waited) == 3
        users.leave()

    monkeypatch.setattr(users_module, "asyncio", SimpleNamespace(sleep=sleep, gather=asyncio.gather))
    with Running(url) as server:
        asyncio.run(main(server.url))


@pytest.mark.parametrize("wrong", [("--users", "0"), ("--iterations", "1"), ("--ramp-up", "-1"), ("--users", "x")])
def test_bench_with_wrong_numbers_is_misuse(ackwise: Ackwise, wrong: tuple[str, str]) -> None:
    assert ackwise("bench", "pushpop", *wrong).code == 2


def test_latency_row_has_rate_mean_and_percentiles() -> None:
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
