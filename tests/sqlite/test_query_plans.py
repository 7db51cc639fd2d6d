"""Every hot statement goes through an index: no table that grows is ever scanned."""

from __future__ import annotations

from collections.abc import Iterator

import apsw
import pytest

from ackwise.graph.engine.extension import GRAPH
from ackwise.store.sqlite import SQLiteStore
from ackwise.store.sqlite.session import STATEMENTS
from tests.query_plans import BIG, HOT, LISTS


@pytest.fixture(scope="module")
def connection(tmp_path_factory: pytest.TempPathFactory) -> Iterator[apsw.Connection]:
    path = tmp_path_factory.mktemp("plans") / "queues.db"
    store = SQLiteStore(f"sqlite:///{path}")
    store.extensions.add(GRAPH)
    store.close()
    opened = apsw.Connection(str(path))
    yield opened
    opened.close()


def plan_of(connection: apsw.Connection, name: str) -> list[str]:
    rows = connection.execute(f"EXPLAIN QUERY PLAN {STATEMENTS[name]}", {**HOT, **LISTS}[name])
    return [str(row[3]) for row in rows]


@pytest.mark.parametrize("name", [*HOT, *LISTS])
def test_plan_uses_an_index(connection: apsw.Connection, name: str) -> None:
    for step in plan_of(connection, name):
        words = step.split()
        # A scan in the order of a covering index is read only as far as its LIMIT; a scan of the table is not.
        assert not (words[0] == "SCAN" and words[1] in BIG), step


def test_wildcard_claim_reads_the_lanes_in_their_order(connection: apsw.Connection) -> None:
    steps = plan_of(connection, "cursors_ready")
    assert any("cursor_ready" in step for step in steps), steps
    assert not any("TEMP B-TREE" in step for step in steps), steps
