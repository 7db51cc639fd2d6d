"""The PostgreSQL store: several brokers share one database."""

from ackwise.store.postgres.store import PostgresStore

__all__ = ["PostgresStore"]
