"""The PostgreSQL store: several brokers share one database."""

from ackwise.core.extras import needed

with needed("postgres", "a PostgreSQL store"):
    from ackwise.store.postgres.store import PostgresStore

__all__ = ["PostgresStore"]
