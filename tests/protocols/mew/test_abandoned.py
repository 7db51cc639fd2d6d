"""Hostile statements against a real server: others are answered, memory is bounded, and SIGTERM ends the process."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import httpx2
import pytest

from tests.patience import PATIENCE
from tests.pg import FACTORIES
from tests.protocols.mew.abandoned import MOST_MEMORY, peak, post
from tests.server.process import ServerProcess

NODES = 400
GRACE = 1
QUICK = 20.0
"""Ten times what a small request takes on a busy machine."""


@pytest.fixture(params=["sqlite", *FACTORIES], ids=lambda name: name.replace("pg_url_factory", "postgres"))
def server(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[ServerProcess]:
    """400 nodes of one type."""
    sqlite = f"sqlite:///{tmp_path}/graph.db?durability=normal"
    url = sqlite if request.param == "sqlite" else request.getfixturevalue(request.param)()
    with ServerProcess(url, "--grace", str(GRACE)) as process:
        with httpx2.Client(base_url=process.url, timeout=PATIENCE) as client:
            run(client, 'node T { n: String = "a" }')
            for _ in range(4):
                run(client, ", ".join(["SPAWN t: T"] * (NODES // 4)))
        yield process


@pytest.fixture
def http(server: ServerProcess) -> Iterator[httpx2.Client]:
    with httpx2.Client(base_url=server.url, timeout=QUICK) as client:
        yield client


def run(client: httpx2.Client, text: str) -> dict[str, object]:
    found: dict[str, object] = client.post("/mew", json={"text": text}).raise_for_status().json()
    assert found["fine"] is True, found
    return found


def check_others(http: httpx2.Client) -> None:
    """A push, the health pages and a small statement are answered."""
    assert http.get("/livez").status_code == 200
    assert http.get("/readyz").status_code == 200
    pushed = http.post("/api/v1/push", json={"items": [{"queue": "q", "payload": 1}]})
    assert pushed.status_code == 201, pushed.text
    run(http, "SPAWN t: T MATCH t: T RETURN COUNT(t)")


def stop_in_time(server: ServerProcess) -> None:
    """SIGTERM ends the process within its grace and 5 seconds. The exit code 0 says that no watchdog had to end it."""
    began = time.monotonic()
    server.stop()
    assert time.monotonic() - began < GRACE + 5


def test_abandoned_four_way_set_disturbs_no_other(server: ServerProcess, http: httpx2.Client) -> None:
    sock = post(server, 'MATCH a: T, b: T, c: T, d: T SET a.n = "x"')
    check_others(http)
    time.sleep(1)  # the client hangs up after one second, as in the report
    sock.close()
    check_others(http)
    assert http.post("/mew", json={"text": 'MATCH t: T WHERE t.n = "x" RETURN COUNT(t)'}).json()["lines"][0][
        "rows"
    ] == [[0]]
    assert peak(server) < MOST_MEMORY
    stop_in_time(server)


def test_long_statements_leave_others_alone(server: ServerProcess, http: httpx2.Client) -> None:
    """More joins at once than there are readers, the sum of the report, the longest text within the bounds, a stop."""
    slow = 'MATCH a: T, b: T, c: T, d: T WHERE a.n ++ b.n ++ c.n ++ d.n = "no" RETURN COUNT(a)'
    texts = ["MATCH a: T, b: T, c: T RETURN a.n", "MATCH a: T, b: T, c: T, d: T RETURN COUNT(a)", slow]
    texts += ["MATCH t: T RETURN " + "1+" * count + "1" for count in (30_000, 4_990)]
    socks = [post(server, text) for text in texts * 3]
    for _ in range(3):
        check_others(http)
    answer = http.post("/mew", json={"text": texts[3]}).json()
    assert answer["lines"][0]["code"] == "statement_limit"
    assert "10,000 tokens" in answer["lines"][0]["message"]
    assert peak(server) < MOST_MEMORY
    stop_in_time(server)
    for sock in socks:
        sock.close()
