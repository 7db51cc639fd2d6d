"""Fixtures that every folder may use."""

from tests.pg import pg_admin_url, pg_databases, pg_url, pg_url_factory

__all__ = ["pg_admin_url", "pg_databases", "pg_url", "pg_url_factory"]
