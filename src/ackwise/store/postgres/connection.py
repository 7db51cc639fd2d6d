"""Opening connections: settings a store relies on, and PostgreSQL's errors in our words."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import psycopg
from psycopg import conninfo, sql
from psycopg import errors as pg
from psycopg.types.numeric import Int8Dumper

from ackwise.core import errors
from ackwise.store.url import StoreURL

Connection = psycopg.Connection[tuple[Any, ...]]

OLDEST_SERVER = 15
CONNECT_SECONDS = 10
OTHERS_IN_THE_WAY = "others keep changing the same rows; nothing was changed, try again"
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


class Server:
    """How to reach one database, without saying the password to anybody."""

    def __init__(self, url: StoreURL) -> None:
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

    def connect(self) -> Connection:
        """A connection without a transaction of its own making, with every setting the store relies on."""
        try:
            connection = psycopg.connect(**self._options, autocommit=True)  # type: ignore[arg-type]
        except psycopg.Error as problem:
            raise self._unreachable(problem) from problem
        try:
            with self.our_errors():
                self._settle_in(connection)
        except BaseException:
            connection.close()
            raise
        return connection

    def _settle_in(self, connection: Connection) -> None:
        """PostgreSQL guesses a parameter's type from its value: an int is always a bigint here, so plans are shared."""
        connection.adapters.register_dumper(int, Int8Dumper)
        connection.prepare_threshold = 2
        connection.prepared_max = 400
        synchronous = self._check(connection)
        settings = {
            "search_path": "ackwise",
            "synchronous_commit": synchronous,
            "lock_timeout": f"{max(1, round(self.url.busy_timeout * 1000))}ms",
            "idle_in_transaction_session_timeout": IDLE_IN_TRANSACTION,
            # Plans are kept, and some are made while a table is still empty.
            "enable_seqscan": "off",
            "jit": "off",
        }
        statement = sql.SQL("; ").join(
            sql.SQL("SET {} = {}").format(sql.Identifier(name), sql.Literal(value)) for name, value in settings.items()
        )
        connection.execute(statement)

    def _check(self, connection: Connection) -> str:
        """Refuse a server that cannot keep the store's promises; say which synchronous_commit to use."""
        row = connection.execute(
            "SELECT current_setting('fsync'), current_setting('synchronous_commit'), pg_is_in_recovery(),"
            " current_setting('server_version_num')::int, current_setting('server_encoding')"
        ).fetchall()
        fsync, synchronous, standby, version, encoding = row[0]
        if version < OLDEST_SERVER * 10000:
            raise errors.StoreUnavailable(
                f"PostgreSQL at {self.where} is version {version // 10000}; Ackwise needs {OLDEST_SERVER} or newer"
            )
        if encoding != "UTF8":
            raise errors.StoreUnavailable(
                f"the database {self.where} is encoded in {encoding}; make one with ENCODING 'UTF8'"
            )
        if standby:
            raise errors.StoreReadOnly(f"{self.where} is a standby and cannot be written; give the primary's address")
        if self.url.durability == "normal":
            return "off"
        if fsync == "off":
            raise errors.UnsafeStore(f"{(errors.UnsafeStore.__doc__ or '').strip()} ({self.where})")
        return "remote_apply" if synchronous == "remote_apply" else "on"

    def _unreachable(self, problem: psycopg.Error) -> errors.StoreError:
        """Why nobody answered, and what to do about it, with the server's own words."""
        words = " ".join(str(problem).split())
        if "password" in words or "authentication failed" in words or "pg_hba.conf" in words:
            advice = f"it refused user {self.user!r}; check user and password in the store URL, and pg_hba.conf"
        elif "does not exist" in words and "database" in words:
            advice = f"there is no database {self.database!r}; create it (createdb {self.database}) or correct the URL"
        elif "too many clients" in words or "connection slots" in words:
            advice = "it has no connection to spare; raise max_connections or lower shards in the store URL"
        else:
            advice = "it cannot be reached; is it running, and are host and port right?"
        return errors.StoreUnavailable(f"PostgreSQL at {self.where}: {advice} ({words})")

    def translated(self, problem: Exception) -> Exception:
        """PostgreSQL's error as ours, with what to do about it."""
        if isinstance(problem, UnicodeEncodeError):
            return errors.BadInput("text must be valid Unicode (it has a lone surrogate)")
        if not isinstance(problem, psycopg.Error):
            return problem
        words = " ".join(str(problem).split())
        ours = _SQLSTATES.get(problem.sqlstate or "")
        if ours is not None:
            return ours(f"{(ours.__doc__ or '').strip()} ({self.where}: {words})")
        if isinstance(problem, psycopg.DataError):
            return errors.BadInput(f"PostgreSQL cannot store this value; nothing was changed ({words})")
        if again(problem):
            return errors.StoreUnavailable(f"{OTHERS_IN_THE_WAY} ({self.where}: {words})")
        if lost(problem):
            return errors.StoreUnavailable(
                f"PostgreSQL at {self.where} broke off; nothing was changed, try again. Is it running? ({words})"
            )
        return errors.StoreError(f"{self.where}: {words}")

    @contextmanager
    def our_errors(self) -> Iterator[None]:
        try:
            yield
        except (psycopg.Error, UnicodeEncodeError) as problem:
            raise self.translated(problem) from problem


def lost(problem: BaseException) -> bool:
    """Whether the connection, not the statement, is what failed."""
    if not isinstance(problem, psycopg.Error):
        return False
    if problem.sqlstate is None:
        return isinstance(problem, psycopg.OperationalError | psycopg.InterfaceError)
    return problem.sqlstate.startswith(_LOST)


def again(problem: BaseException) -> bool:
    """Whether another transaction got in the way and the same commands may well succeed now."""
    return isinstance(problem, _AGAIN)
