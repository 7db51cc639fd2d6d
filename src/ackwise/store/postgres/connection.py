"""Opens connections, sets what the store relies on, translates errors."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import psycopg
from psycopg import conninfo, sql
from psycopg import errors as pg
from psycopg.types.numeric import Int8Dumper

from ackwise.core import errors
from ackwise.core.events import EventPort, EventStream
from ackwise.store.connection_health import ConnectionHealth
from ackwise.wire.store_url import StoreURL

Connection = psycopg.Connection[tuple[Any, ...]]

OLDEST_SERVER = 15
CONNECT_SECONDS = 10
CONFLICT = "other transactions keep changing the same rows; nothing was changed, try again"
IDLE_IN_TRANSACTION = "60s"
_SQLSTATES: dict[str, type[errors.StoreError]] = {
    "53100": errors.StoreFull,
    "25006": errors.StoreReadOnly,
    "42501": errors.StoreReadOnly,
    "55P03": errors.StoreLocked,
}
# Connection exceptions, operator intervention, and a session that was idle inside a transaction for too long.
_LOST = ("08", "57P", "25P03")
_AGAIN = (pg.DeadlockDetected, pg.SerializationFailure, pg.UniqueViolation)


class Database:
    """One database: opens its connections and translates its errors. `where` names it without the password."""

    def __init__(self, url: StoreURL, events: EventPort | None = None) -> None:
        self.url = url
        try:
            self._options = conninfo.conninfo_to_dict(url.target)
        except psycopg.ProgrammingError as problem:
            raise errors.BadStoreURL(f"the PostgreSQL URL is not understood: {str(problem).strip()}") from None
        self._options.setdefault("connect_timeout", CONNECT_SECONDS)
        self._options.setdefault("application_name", "ackwise")
        self._options.setdefault("keepalives_idle", 30)
        self._options["client_encoding"] = "UTF8"
        self.user = str(self._options.get("user") or "the current user")
        self.database = str(self._options.get("dbname") or self.user)
        host, port = self._options.get("host") or "localhost", self._options.get("port") or 5432
        self.where = f"{host}:{port}/{self.database}"
        self.health = ConnectionHealth(self.where, events or EventStream())

    def connect(self) -> Connection:
        """Open a connection in autocommit mode, with all settings that the store relies on."""
        try:
            connection = psycopg.connect(**self._options, autocommit=True)  # type: ignore[arg-type]
        except psycopg.Error as problem:
            self.health.note_lost(problem)
            raise self._unreachable(problem) from problem
        try:
            with self.translated_errors():
                self._configure(connection)
        except BaseException:
            connection.close()
            raise
        self.health.note_connected()
        return connection

    def _configure(self, connection: Connection) -> None:
        """Set the session's parameters. Every int is sent as bigint, so that all values of a statement share a plan."""
        connection.adapters.register_dumper(int, Int8Dumper)
        connection.prepare_threshold = 2
        connection.prepared_max = 400
        synchronous = self._check(connection)
        settings = {
            "search_path": "ackwise",
            "synchronous_commit": synchronous,
            "lock_timeout": f"{max(1, round(self.url.busy_timeout * 1000))}ms",
            "idle_in_transaction_session_timeout": IDLE_IN_TRANSACTION,
            # PostgreSQL keeps plans, and makes some of them while a table is still empty.
            "enable_seqscan": "off",
            "jit": "off",
        }
        statement = sql.SQL("; ").join(
            sql.SQL("SET {} = {}").format(sql.Identifier(name), sql.Literal(value)) for name, value in settings.items()
        )
        connection.execute(statement)

    def _check(self, connection: Connection) -> str:
        """Refuse a server that cannot keep messages safe. Returns the value for `synchronous_commit`."""
        rows = connection.execute(
            "SELECT current_setting('fsync'), current_setting('synchronous_commit'), pg_is_in_recovery(),"
            " current_setting('server_version_num')::int, current_setting('server_encoding')"
        ).fetchall()
        fsync, synchronous, standby, version, encoding = rows[0]
        if version < OLDEST_SERVER * 10000:
            raise errors.StoreUnavailable(
                f"PostgreSQL at {self.where} is version {version // 10000}; Ackwise needs {OLDEST_SERVER} or newer"
            )
        if encoding != "UTF8":
            raise errors.StoreUnavailable(
                f"the database {self.where} is encoded in {encoding}; create one with ENCODING 'UTF8'"
            )
        if standby:
            raise errors.StoreReadOnly(f"{self.where} is a standby and cannot be written; give the primary's address")
        if self.url.durability == "normal":
            return "off"
        if fsync == "off":
            raise errors.UnsafeStore(f"{(errors.UnsafeStore.__doc__ or '').strip()} ({self.where})")
        return "remote_apply" if synchronous == "remote_apply" else "on"

    def _unreachable(self, problem: psycopg.Error) -> errors.StoreError:
        """The error of a failed connection: the cause, what to do, and the server's own text."""
        words = " ".join(str(problem).split())
        if "password" in words or "authentication failed" in words or "pg_hba.conf" in words:
            advice = f"it refused user {self.user!r}; check user and password in the store URL, and pg_hba.conf"
        elif "does not exist" in words and "database" in words:
            advice = f"there is no database {self.database!r}; create it (createdb {self.database}) or correct the URL"
        elif "too many clients" in words or "connection slots" in words:
            advice = "it has no free connection; raise max_connections or lower shards in the store URL"
        else:
            advice = "it cannot be reached; is it running, and are host and port right?"
        return errors.StoreUnavailable(f"PostgreSQL at {self.where}: {advice} ({words})")

    def translate_error(self, problem: Exception) -> Exception:
        """The store error for a psycopg error. Its text says what to do."""
        if isinstance(problem, UnicodeEncodeError):
            return errors.BadInput("text must be valid Unicode (it has a lone surrogate)")
        if not isinstance(problem, psycopg.Error):
            return problem
        words = " ".join(str(problem).split())
        store_error = _SQLSTATES.get(problem.sqlstate or "")
        if store_error is not None:
            return store_error(f"{(store_error.__doc__ or '').strip()} ({self.where}: {words})")
        if isinstance(problem, psycopg.DataError):
            return errors.BadInput(f"PostgreSQL cannot store this value; nothing was changed ({words})")
        if is_conflict(problem):
            return errors.StoreUnavailable(f"{CONFLICT} ({self.where}: {words})")
        if is_connection_lost(problem):
            self.health.note_lost(problem)
            return errors.StoreUnavailable(
                f"PostgreSQL at {self.where} disconnected; nothing was changed, try again. Is it running? ({words})"
            )
        return errors.StoreError(f"{self.where}: {words}")

    @contextmanager
    def translated_errors(self) -> Iterator[None]:
        try:
            yield
        except (psycopg.Error, UnicodeEncodeError) as problem:
            raise self.translate_error(problem) from problem


def is_connection_lost(problem: BaseException) -> bool:
    """Whether the connection failed, and not the statement."""
    if not isinstance(problem, psycopg.Error):
        return False
    if problem.sqlstate is None:
        return isinstance(problem, psycopg.OperationalError | psycopg.InterfaceError)
    return problem.sqlstate.startswith(_LOST)


def is_conflict(problem: BaseException) -> bool:
    """Whether another transaction caused the error, so that a retry may succeed."""
    return isinstance(problem, _AGAIN)
