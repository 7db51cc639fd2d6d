"""`ackwise vacuum` on PostgreSQL: runs VACUUM on the tables of Ackwise without waiting for autovacuum."""

from __future__ import annotations

from collections.abc import Callable

from psycopg import sql

from ackwise.store.postgres.connection import Server
from ackwise.store.sqlite.vacuum import Compacted
from ackwise.store.url import StoreURL

_SIZE = (
    "SELECT coalesce(sum(pg_total_relation_size(format('ackwise.%I', tablename)::regclass)), 0)::bigint"
    " FROM pg_tables WHERE schemaname = 'ackwise'"
)
_TABLES = "SELECT tablename FROM pg_tables WHERE schemaname = 'ackwise' ORDER BY 1"


def vacuum(url: StoreURL, progress: Callable[[], None] = lambda: None) -> Compacted:
    """Servers may keep running: VACUUM locks no rows. Freed space stays with the tables unless it is at their end."""
    server = Server(url)
    with server.our_errors(), server.connect() as connection:
        connection.autocommit = True
        before = connection.execute(_SIZE).fetchall()[0][0]
        tables = connection.execute(
            "SELECT tablename FROM pg_tables WHERE schemaname = 'ackwise' ORDER BY 1"
        ).fetchall()
        for (table,) in tables:
            progress()
            connection.execute(sql.SQL("VACUUM (ANALYZE) {}").format(sql.Identifier("ackwise", table)))
        return Compacted(before, connection.execute(_SIZE).fetchall()[0][0])
