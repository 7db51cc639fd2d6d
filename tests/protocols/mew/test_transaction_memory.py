"""Memory of open transactions: bounded for each session, and over all sessions of a server."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx2
import pytest

from ackwise.clock import ManualClock
from ackwise.protocols.mew import http as mew_http
from ackwise.protocols.mew.transaction_memory import TransactionMemory
from tests.patience import PATIENCE
from tests.server.running import Running

SPAWN = "SPAWN b: B { n = $n }"
SIZE = 10_000


@pytest.fixture
def memory(monkeypatch: pytest.MonkeyPatch) -> TransactionMemory:
    """Room for four statements of a session, and for eight of all sessions."""
    memory = TransactionMemory(each=4 * SIZE + 5000, most=8 * SIZE + 9000)
    monkeypatch.setattr(mew_http, "TransactionMemory", lambda: memory)
    return memory


@pytest.fixture
def http(memory: TransactionMemory, tmp_path: Path, clock: ManualClock) -> Iterator[httpx2.Client]:
    url = f"sqlite:///{tmp_path}/graph.db?durability=normal"
    with Running(url, clock) as server, httpx2.Client(base_url=server.url, timeout=PATIENCE) as http:
        run(http, "maker", "node B { n: String }")
        yield http


def run(http: httpx2.Client, session: str, text: str) -> dict[str, Any]:
    """The last line."""
    body = {"session": session, "text": text, "params": {"n": "x" * SIZE}}
    line: dict[str, Any] = http.post("/mew", json=body).raise_for_status().json()["lines"][-1]
    return line


def test_transaction_beyond_its_bytes_is_refused(http: httpx2.Client, memory: TransactionMemory) -> None:
    run(http, "a", "BEGIN")
    for _ in range(4):
        assert run(http, "a", SPAWN)["kind"] == "result"
    assert memory.used > 4 * SIZE
    line = run(http, "a", SPAWN)
    assert (line["code"], "limit transaction:" in line["message"]) == ("statement_limit", True)
    assert memory.used == 0
    assert run(http, "a", "COMMIT")["kind"] == "error"
    assert run(http, "a", f"BEGIN {SPAWN} {SPAWN} COMMIT")["created"] == 2
    assert memory.used == 0


@pytest.mark.parametrize("text", ["COMMIT", "ROLLBACK", "SPAWN x: Nothing", None])
def test_open_transactions_share_their_memory(http: httpx2.Client, memory: TransactionMemory, text: str | None) -> None:
    for session in ("a", "b"):
        assert run(http, session, f"BEGIN {SPAWN} {SPAWN} {SPAWN} {SPAWN}")["kind"] == "result"
    line = run(http, "c", f"BEGIN {SPAWN}")
    assert (line["code"], "limit transactions:" in line["message"]) == ("statement_limit", True)
    assert run(http, "d", SPAWN)["kind"] == "result"  # a statement without a transaction is not held
    if text is None:
        http.delete("/mew/a")
    else:
        run(http, "a", text)
    run(http, "c", "ROLLBACK")
    assert run(http, "c", f"BEGIN {SPAWN}")["kind"] == "result"


def test_statement_that_looks_is_not_held(http: httpx2.Client, memory: TransactionMemory) -> None:
    run(http, "a", "BEGIN")
    for _ in range(10):
        assert run(http, "a", "MATCH b: B WHERE b.n = $n RETURN COUNT(b)")["rows"] == [[0]]
    assert memory.used == 0
