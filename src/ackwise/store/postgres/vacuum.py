"""`ackwise vacuum` on PostgreSQL: runs VACUUM on the tables of Ackwise without waiting for autovacuum."""

from __future__ import annotations

from collections.abc import Callable

from psycopg import sql

from ackwise.store.postgres.connection import Database
from ackwise.store.sqlite.vacuum import Compacted
from ackwise.wire.store_url import StoreURL

_SIZE = (
    "SELECT coalesce(sum(pg_total_relation_size(format('ackwise.%I', tablename)::regclass)), 0)::bigint"
    " FROM pg_tables WHERE schemaname = 'ackwise'"
)
_TABLES = "SELECT tablename FROM pg_tables WHERE schemaname = 'ackwise' ORDER BY 1"


def vacuum(url: StoreURL, progress: Callable[[], None] = lambda: None) -> Compacted:
    """Run VACUUM on each table. Servers may keep running, because VACUUM locks no rows.

    Freed space stays with a table unless it is at the end of the table.
    """
    database = Database(url)
    with database.translated_errors(), database.connect() as connection:
        connection.autocommit = True
        before = connection.execute(_SIZE).fetchall()[0][0]
        tables = connection.execute(_TABLES).fetchall()
        for (table,) in tables:
            progress()
            connection.execute(sql.SQL("VACUUM (ANALYZE) {}").format(sql.Identifier("ackwise", table)))
        return Compacted(before, connection.execute(_SIZE).fetchall()[0][0])
