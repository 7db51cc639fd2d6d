"""Fixtures that every folder may use."""

import functools
import gc
import os
from collections.abc import Generator
from pathlib import Path

import httpcore2
import httpx2
import pytest
from hypothesis import settings

from tests import running_order
from tests.patience import PATIENCE
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

# A server on a busy machine may answer a request of a test late. The usual limit is 5 seconds.
for _phase in ("connect", "read", "write", "pool"):
    setattr(httpx2.Client.__init__.__kwdefaults__["timeout"], _phase, PATIENCE)

_FAILED = pytest.StashKey[bool]()

# An example may take any time: a busy machine is slow.
settings.register_profile("no deadline", deadline=None)
settings.load_profile("no deadline")


def pytest_sessionstart(session: pytest.Session) -> None:
    """Keep the format of `caplog.text`: PySpark's loggers give JSON to each handler that they get, pytest's too."""
    plugin = session.config.pluginmanager.get_plugin("logging-plugin")
    if plugin is not None:
        for handler in (plugin.caplog_handler, plugin.report_handler):
            handler.setFormatter = lambda _formatter: None


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    if report.failed:
        item.stash[_FAILED] = True
    return report


@pytest.hookimpl(wrapper=True)
def pytest_runtest_teardown(item: pytest.Item) -> Generator[None]:
    """Remove the stores of a test that passed, because thousands of stores would fill the memory.

    The folder and its other files stay. Spark reads a module of an earlier test again, and no later test may get the
    same path, because Spark's workers keep connections by path.
    """
    yield
    folder = getattr(item, "funcargs", {}).get("tmp_path")
    if folder is not None and _FAILED not in item.stash:
        for store in folder.glob("*.db*"):
            if store.is_file():
                store.unlink(missing_ok=True)


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    running_order.arrange(items)


def pytest_collection_finish() -> None:
    """Keep the collected tests out of later garbage collections: they live until the end."""
    gc.freeze()
