"""Fixtures that every folder may use."""

import functools
import gc
import os
from pathlib import Path

import httpcore2
import pytest
from hypothesis import settings

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

# An HTTP client reads the certificates of all authorities, which takes longer than most tests. Clients share them here.
httpcore2.default_ssl_context = functools.cache(httpcore2.default_ssl_context)

# An example may take any time: a busy machine is slow.
settings.register_profile("no deadline", deadline=None)
settings.load_profile("no deadline")


def pytest_sessionstart(session: pytest.Session) -> None:
    """Keep the format of `caplog.text`: PySpark's loggers give JSON to each handler that they get, pytest's too."""
    plugin = session.config.pluginmanager.get_plugin("logging-plugin")
    if plugin is not None:
        for handler in (plugin.caplog_handler, plugin.report_handler):
            handler.setFormatter = lambda _formatter: None


def pytest_collection_finish() -> None:
    """Keep the collected tests out of later garbage collections: they live until the end."""
    gc.freeze()
