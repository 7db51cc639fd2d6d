"""Fixtures that every folder may use."""

from tests.pg import given_pg_databases, given_pg_url_factory, pg_admin_url, pg_databases, pg_url, pg_url_factory

__all__ = [
    "given_pg_databases",
    "given_pg_url_factory",
    "pg_admin_url",
    "pg_databases",
    "pg_url",
    "pg_url_factory",
]
