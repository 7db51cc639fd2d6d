"""LISTEN and NOTIFY on a connection of their own: brokers tell each other which queues have become claimable."""

from __future__ import annotations

import os
import select
import threading
from collections.abc import Callable, Iterable
from contextlib import suppress

import msgspec
import psycopg

from ackwise.core.errors import StoreError
from ackwise.store.postgres.connection import Connection, Server
from ackwise.store.postgres.session import STATEMENTS, instance_lock

CHANNEL = b"ackwise"
ANY_QUEUE = "*"
_LONGEST = 7000
_FIRST_WAIT, _LONGEST_WAIT = 0.1, 5.0


class News:
    """A thread that says what was committed here, many commits at once, and hears what was committed elsewhere."""

    def __init__(self, server: Server, instance: str, heard: Callable[[], None]) -> None:
        self._server, self._instance, self._heard = server, instance, heard
        self._waiting: set[str] = set()
        self._lock = threading.Lock()
        self._wake_end, self._wake = os.pipe()
        os.set_blocking(self._wake, False)
        self._stopping = False
        self._ready = threading.Event()
        self._thread = threading.Thread(target=self._live, name="ackwise-news", daemon=True)
        self._thread.start()

    def tell(self, queues: Iterable[str]) -> None:
        with self._lock:
            quiet = not self._waiting
            self._waiting.update(queues)
        if quiet:
            self._ring()

    def wait_until_listening(self, timeout: float) -> bool:
        return self._ready.wait(timeout)

    def close(self) -> None:
        self._stopping = True
        self._ring()
        self._thread.join()
        os.close(self._wake)
        os.close(self._wake_end)

    def _ring(self) -> None:
        with suppress(BlockingIOError):  # then it is full of rings already
            os.write(self._wake, b"!")

    def _live(self) -> None:
        """Connect, listen and talk; when the connection breaks, again after a while."""
        wait = _FIRST_WAIT
        while not self._stopping:
            try:
                connection = self._server.connect()
            except StoreError:
                select.select([self._wake_end], [], [], wait)
                self._drain()
                wait = min(2 * wait, _LONGEST_WAIT)
                continue
            wait = _FIRST_WAIT
            with connection, suppress(psycopg.Error):
                self._talk(connection)
            self._ready.clear()

    def _talk(self, connection: Connection) -> None:
        connection.add_notify_handler(lambda notice: self._hear(notice.payload))
        connection.execute(STATEMENTS["instance_lives"], instance_lock(self._instance))
        connection.execute(b"LISTEN " + CHANNEL)
        self._ready.set()
        # Whatever was said while nobody listened is lost: look at everything once.
        self._heard()
        while not self._stopping:
            self._say(connection)
            readable, _, _ = select.select([connection.fileno(), self._wake_end], [], [])
            if self._wake_end in readable:
                self._drain()
            if connection.fileno() in readable:
                self._read(connection)

    def _drain(self) -> None:
        if select.select([self._wake_end], [], [], 0)[0]:
            os.read(self._wake_end, 65536)

    def _say(self, connection: Connection) -> None:
        with self._lock:
            queues, self._waiting = self._waiting, set()
        if not queues:
            return
        try:
            connection.execute("SELECT pg_notify('ackwise', %s)", (message(self._instance, queues),))
        except psycopg.Error:
            with self._lock:
                self._waiting |= queues
            raise

    def _read(self, connection: Connection) -> None:
        connection.pgconn.consume_input()
        while notice := connection.pgconn.notifies():
            self._hear(notice.extra.decode())

    def _hear(self, payload: str) -> None:
        if sender(payload) != self._instance:
            self._heard()


def message(instance: str, queues: Iterable[str]) -> str:
    """Who says it and which queues are meant; any queue when the list is too long for a notification."""
    text = msgspec.json.encode([instance, sorted(queues)]).decode()
    if len(text.encode()) > _LONGEST:
        return msgspec.json.encode([instance, [ANY_QUEUE]]).decode()
    return text


def sender(payload: str) -> str | None:
    try:
        return msgspec.json.decode(payload, type=tuple[str, list[str]])[0]
    except msgspec.DecodeError:
        return None
