"""Memory of refused statements: nothing of a refused statement stays alive, also without the garbage collector."""

from __future__ import annotations

import gc
import tracemalloc
from collections.abc import Callable, Iterator
from typing import Any

import httpx2
import pytest

from ackwise.engine.statement_limits import StatementLimits
from ackwise.graph.errors import GraphError
from ackwise.mew import MewError, Session
from tests.patience import PATIENCE
from tests.server.running import Running

LONG = "x" * 100_000
NODES = 40
MOST_BYTES = 3_000_000
"""Limit of a statement: 30 of the 40 strings."""
TIMES = 4
LEFT = 2_000_000
"""Bytes that all refusals together may leave. One kept statement is more."""
TEXTS = {
    "read above its bytes": "MATCH t: T RETURN t.s",
    "read above its rows": "MATCH a: T, b: T RETURN a.s",
    "change above its bytes": 'MATCH t: T SET t.s = t.s ++ "y"',
    "change above its rows": "MATCH a: T, b: T SET a.s = b.s",
    "read in a transaction": "BEGIN MATCH t: T RETURN t.s",
    "expression that fails": "MATCH t: T WHERE t.n < 20 RETURN t.s, t.n ++ 1",
    "unknown type": "SPAWN t: Nope { s = $long }",
    "value that is refused": "SPAWN t: T { n = $long }",
    "refused in a transaction": "BEGIN SPAWN t: T { n = $long }",
}
CALLS = {
    "reads above the call's bytes": "MATCH t: T WHERE t.n < 20 RETURN t.s MATCH t: T WHERE t.n < 20 RETURN t.s",
    "the same in a transaction": "BEGIN MATCH t: T WHERE t.n < 20 RETURN t.s MATCH t: T WHERE t.n < 20 RETURN t.s",
}
"""Texts above the bytes of a call. Only a server bounds calls."""


def fill(session: Session) -> None:
    session.run('node T { n: Int = 0, s: String = "" }')
    for number in range(NODES):
        session.run(f"SPAWN t: T {{ n = {number}, s = $long }}", {"long": LONG})


@pytest.fixture
def without_collector() -> Iterator[None]:
    gc.collect()
    gc.disable()
    tracemalloc.start(1)
    yield
    tracemalloc.stop()
    gc.enable()


def check(refuse: Callable[[str], None], texts: dict[str, str]) -> None:
    """Refuse each text several times. Lists the texts that leave memory behind."""
    kept = {}
    for name, text in texts.items():
        refuse(text)
        before = tracemalloc.get_traced_memory()[0]
        for _ in range(TIMES):
            refuse(text)
        left = tracemalloc.get_traced_memory()[0] - before
        if left > LEFT:
            kept[name] = left
    assert kept == {}


@pytest.mark.usefixtures("without_collector")
def test_refused_statements_of_a_server_keep_nothing(graph_url: str) -> None:
    with Running(graph_url, statement=StatementLimits(rows=1000, bytes=MOST_BYTES)) as running:
        with Session(running.url) as session:
            fill(session)
        with httpx2.Client(base_url=running.url, timeout=PATIENCE) as http:

            def refuse(text: str) -> None:
                asked = {"text": text, "params": {"long": LONG * 10}, "session": "s"}
                assert http.post("/mew", json=asked).raise_for_status().json()["fine"] is False, text
                http.delete("/mew/s").raise_for_status()

            check(refuse, TEXTS | CALLS)


@pytest.mark.usefixtures("without_collector")
def test_refused_statements_of_a_session_keep_nothing(graph_url: str) -> None:
    with Session(graph_url, limits={"rows": 1000, "bytes": MOST_BYTES}) as session:
        fill(session)

        def refuse(text: str) -> None:
            with pytest.raises(MewError):
                session.run(text, {"long": LONG * 10})
            if text.startswith("BEGIN"):
                session.run("ROLLBACK")

        check(refuse, TEXTS)


@pytest.mark.usefixtures("without_collector")
def test_errors_that_stay_alive_keep_no_rows(graph_url: str) -> None:
    kept: list[GraphError] = []
    with Session(graph_url, limits={"rows": 1000, "bytes": MOST_BYTES}) as session:
        fill(session)
        opened: Any = session._opened()
        ask = opened.broker.ask

        def keep_error(query: Any) -> Any:
            try:
                return ask(query)
            except GraphError as problem:
                kept.append(problem)
                raise

        opened.broker.ask = keep_error

        def refuse(text: str) -> None:
            with pytest.raises(MewError):
                session.run(text)

        check(refuse, {name: text for name, text in TEXTS.items() if text.startswith("MATCH")})
        assert len(kept) == 5 * (TIMES + 1)
