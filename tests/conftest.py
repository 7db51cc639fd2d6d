"""Fixtures that every folder may use."""

import os
from pathlib import Path

from tests.pg import given_pg_databases, given_pg_url_factory, pg_admin_url, pg_databases, pg_url, pg_url_factory

__all__ = [
    "given_pg_databases",
    "given_pg_url_factory",
    "pg_admin_url",
    "pg_databases",
    "pg_url",
    "pg_url_factory",
]

# Spark's workers look for `tests` where the session was started, and that may be some test's own folder.
os.environ["PYTHONPATH"] = os.pathsep.join(
    filter(None, (str(Path(__file__).resolve().parent.parent), os.environ.get("PYTHONPATH")))
)
