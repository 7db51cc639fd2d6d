"""In a filled database every hot statement goes through an index, with the planner's own settings."""

from __future__ import annotations

from collections.abc import Iterator

import psycopg
import pytest
from psycopg.rows import scalar_row

from ackwise.graph.engine.extension import GRAPH
from ackwise.store.postgres import PostgresStore
from ackwise.store.postgres.session import STATEMENTS
from tests.pg_databases import Databases
from tests.query_plans import BIG, HOT

ONLY_HERE: dict[str, dict[str, object]] = {
    "lock_parts": {"parts": [7, 8]},
    "lock_parts_free": {"parts": [7, 8]},
    "footprint": {"queues": ["q", "q"], "names": ["p1", "p2"], "prios": [0, 0]},
    "footprint_lanes": {"lanes": [7, 8]},
    "footprint_leases": {"leases": [77, 78]},
    "footprint_parts": {"uuids": ["x", "y"]},
    "footprint_dead": {"uuids": ["x", "y"]},
    "leases_lock": {"leases": [77, 78], "pieces": [78]},
    "leases_read": {"leases": [78]},
    "leases_parts": {"leases": [77, 78]},
    "leases_expired_lock": {"leases": [77, 78], "now": 1},
    "leases_forget": {"below": 9, "cutoff": 1, "floor": 1, "limit": 100},
    "dedupe_find": {"hashes": "{1,2,3}"},
    "dedupe_forget": {"before": 1, "limit": 100},
}
FILL = """
INSERT INTO queue (name, ns, task, policy, paused, created_at) VALUES ('q', '', '', '{}', 0, 0);
INSERT INTO queue (name, ns, task, policy, paused, created_at) SELECT 'q' || i, 'n' || i % 100, 't' || i % 100,
  CASE WHEN i % 50 = 0 THEN '{"max_wait_seconds":1.0,"dedupe_seconds":5.0,"notes":[["a","b"]]}' ELSE '{}' END, 0, 0
  FROM generate_series(2, 20000) i;
INSERT INTO grp (queue, name, mode, policy, created_at) SELECT 1, 'g' || i, 'all', '{}', 0 FROM generate_series(1, 3) i;
INSERT INTO grp (queue, name, mode, policy, created_at) SELECT i, 'h' || i % 100, 'all', '{}', 0
  FROM generate_series(2, 10000) i;
INSERT INTO part (uuid, queue, name) SELECT md5(i::text)::uuid, 1 + i % 3, 'p' || i FROM generate_series(1, 10000) i;
INSERT INTO lane (part, queue, prio, head, start, start_at)
  SELECT i, 1 + i % 3, 0, 1000, 0, i * 1000 FROM generate_series(1, 10000) i;
INSERT INTO cursor SELECT i, g, i, 0, 0, 0, 1000, 0, 1000, 0, 0, 0, 0, 1, 0,
    CASE WHEN i % 50 = 0 THEN 'owner' || i END, CASE WHEN i % 20 = 0 THEN i END
  FROM generate_series(1, 10000) i, generate_series(1, 3) g;
INSERT INTO span SELECT i / 10, 1, 100 + i % 10, 99 + i % 10, CASE WHEN i % 2 = 0 THEN i END, 0, 1, i, 0, ''
  FROM generate_series(10, 30000) i;
INSERT INTO lease SELECT i, 0, 1, 1 + i % 3, 'me', 'x', 'none', 0, i * 1000, 0, '[]', 'k' || i, '',
    CASE WHEN i % 20 <> 0 THEN i END FROM generate_series(1, 30000) i;
INSERT INTO segment SELECT (i::bigint << 40) + s, s, 0, 'x' FROM generate_series(1, 10000) i, generate_series(1, 5) s;
INSERT INTO husk SELECT (i::bigint << 40) + 1, 1, i, 1 + i % 3, 'x' FROM generate_series(1, 10000) i;
INSERT INTO scheduled (queue, part, prio, due_at, created_at, body)
  SELECT 1, 1, 0, i * 1000, 0, 'x' FROM generate_series(1, 10000) i;
INSERT INTO dead (uuid, queue, part, lane, seq, epoch, grp, grp_name, txid, reason, error, etype, fails, delivs,
    history, snapshot, born_at, dead_at, mark, kind)
  SELECT i, 1, i, i, 1, 0, 1, 'g', '', '', '', '', 1, 1, '', 'x', 0, i, i, 'error ' || i % 500
  FROM generate_series(1, 10000) i;
INSERT INTO mew_entity (id, type, attrs, tick) SELECT 'e' || i, 100 + i % 3, '{}', i FROM generate_series(1, 20000) i;
INSERT INTO mew_end SELECT i, s, i / 2 + s, 101 FROM generate_series(1, 10000) i, generate_series(0, 1) s;
INSERT INTO mew_num SELECT 1 + i % 4, i, i FROM generate_series(1, 20000) i;
INSERT INTO mew_txt SELECT 1 + i % 4, 't' || i, i FROM generate_series(1, 20000) i;
INSERT INTO mew_watch SELECT i, 'w', i, i, 'active', '{}', 9, 0, 0, 0 FROM generate_series(1, 5000) i;
INSERT INTO mew_event (watch, position, kind, tick, created_at, body)
  SELECT i, p, 'added', p, 0, '{}' FROM generate_series(1, 2000) i, generate_series(1, 9) p;
INSERT INTO mew_item SELECT 1 + i % 3, i, i % 2, '' FROM generate_series(1, 20000) i;
INSERT INTO mew_delivery SELECT i, i, 0, 1, i % 5000, 0, 0 FROM generate_series(1, 20000) i;
INSERT INTO hook (queue, name, payload, mark, letter, until, failures, next_at, paused, error, created_at)
  SELECT i, 'webhook', 0, 0, 0, 0, 0, 0, 0, '', 0 FROM generate_series(1, 20000) i;
INSERT INTO dedupe SELECT hashint8(i), i, i FROM generate_series(1, 50000) i;
INSERT INTO trace (uuid, queue, part_uuid, txid, lane, seq, grp, event, data, worker, created_at)
  SELECT i, 1 + i % 1000, 'u' || i, 't', CASE WHEN i % 100 > 0 THEN i END, 1, '', '', '', '', i
  FROM generate_series(1, 30000) i;
INSERT INTO trace_name SELECT 'n' || i % 5000, i FROM generate_series(1, 30000) i;
INSERT INTO spool (messages, bytes, created_at, body) SELECT 1, 1, i, 'x' FROM generate_series(1, 20000) i;
ANALYZE;
"""


@pytest.fixture(scope="module")
def filled(pg_databases: Databases) -> Iterator[psycopg.Connection[str]]:
    url = pg_databases.fresh()
    store = PostgresStore(url)
    store.extensions.add(GRAPH)
    store.close()
    with psycopg.connect(url, options="-c search_path=ackwise", row_factory=scalar_row) as connection:
        connection.execute(FILL.encode())
        yield connection
    pg_databases.give_back()


@pytest.mark.parametrize("name", [*HOT, *ONLY_HERE])
def test_plan_uses_an_index(filled: psycopg.Connection[str], name: str) -> None:
    values = {**HOT, **ONLY_HERE}[name]
    plan = "\n".join(filled.execute(b"EXPLAIN " + STATEMENTS[name], values).fetchall())
    assert not [table for table in BIG if f"Seq Scan on {table}" in plan], plan


def test_wildcard_claim_reads_the_lanes_in_their_order(filled: psycopg.Connection[str]) -> None:
    plan = "\n".join(filled.execute(b"EXPLAIN " + STATEMENTS["cursors_ready"], HOT["cursors_ready"]).fetchall())
    assert "cursor_ready" in plan
    assert "Sort" not in plan, plan


def test_transaction_id_lookup_is_indexed_before_analyze(pg_databases: Databases) -> None:
    """PostgreSQL then takes the ids of a large push for most of the table."""
    url = pg_databases.fresh()
    PostgresStore(url).close()
    settings = "-c search_path=ackwise -c enable_seqscan=off"
    with psycopg.connect(url, options=settings, row_factory=scalar_row, autocommit=True) as connection:
        connection.execute("INSERT INTO dedupe SELECT hashint8(i), i, i FROM generate_series(1, 50000) i")
        hashes = f"{{{','.join(map(str, range(2000)))}}}"
        lines = connection.execute(b"EXPLAIN " + STATEMENTS["dedupe_find"], {"hashes": hashes}).fetchall()
    pg_databases.give_back()
    plan = "\n".join(lines)
    assert "dedupe_hash" in plan, plan
    assert "dedupe_age" not in plan, plan
