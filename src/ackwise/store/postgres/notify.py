"""LISTEN/NOTIFY between brokers: which queues have new claimable messages."""

from __future__ import annotations

import os
import select
import threading
from collections.abc import Callable, Iterable
from contextlib import suppress

import msgspec
import psycopg

from ackwise.core.errors import StoreError
from ackwise.store.postgres.connection import Connection, Database
from ackwise.store.postgres.session import STATEMENTS, instance_lock

CHANNEL = b"ackwise"
ANY_QUEUE = "*"
_LONGEST = 7000
_FIRST_WAIT, _LONGEST_WAIT = 0.1, 5.0


class Notifier:
    """Thread that announces the commits of this broker and calls `on_news` after commits of other brokers.

    One notification announces all commits since the last one.
    """

    def __init__(self, database: Database, instance: str, on_news: Callable[[], None]) -> None:
        self._database, self._instance, self._on_news = database, instance, on_news
        self._waiting: set[str] = set()
        self._lock = threading.Lock()
        self._wake_reader, self._wake_writer = os.pipe()
        os.set_blocking(self._wake_writer, False)
        self._stopping = False
        self._ready = threading.Event()
        self._thread = threading.Thread(target=self._run, name="ackwise-news", daemon=True)
        self._thread.start()

    def announce(self, queues: Iterable[str]) -> None:
        with self._lock:
            first = not self._waiting
            self._waiting.update(queues)
        if first:
            self._wake()

    def wait_until_listening(self, timeout: float) -> bool:
        return self._ready.wait(timeout)

    def close(self) -> None:
        self._stopping = True
        self._wake()
        self._thread.join()
        os.close(self._wake_writer)
        os.close(self._wake_reader)

    def _wake(self) -> None:
        with suppress(BlockingIOError):  # a full pipe wakes the thread too
            os.write(self._wake_writer, b"!")

    def _run(self) -> None:
        """Connect and exchange notifications. After a broken connection, try again with backoff."""
        wait = _FIRST_WAIT
        while not self._stopping:
            try:
                connection = self._database.connect()
            except StoreError:
                select.select([self._wake_reader], [], [], wait)
                self._drain_pipe()
                wait = min(2 * wait, _LONGEST_WAIT)
                continue
            wait = _FIRST_WAIT
            try:
                with connection:
                    self._exchange(connection)
            except psycopg.Error as problem:
                self._database.health.note_lost(problem)
            self._ready.clear()

    def _exchange(self, connection: Connection) -> None:
        connection.add_notify_handler(lambda notice: self._receive(notice.payload))
        connection.execute(STATEMENTS["instance_lives"], instance_lock(self._instance))
        connection.execute(b"LISTEN " + CHANNEL)
        self._ready.set()
        # Notifications from before LISTEN are lost, so every parked claim must try once.
        self._on_news()
        while not self._stopping:
            self._send(connection)
            readable, _, _ = select.select([connection.fileno(), self._wake_reader], [], [])
            if self._wake_reader in readable:
                self._drain_pipe()
            if connection.fileno() in readable:
                self._read(connection)

    def _drain_pipe(self) -> None:
        if select.select([self._wake_reader], [], [], 0)[0]:
            os.read(self._wake_reader, 65536)

    def _send(self, connection: Connection) -> None:
        with self._lock:
            queues, self._waiting = self._waiting, set()
        if not queues:
            return
        try:
            connection.execute("SELECT pg_notify('ackwise', %s)", (encode(self._instance, queues),))
        except psycopg.Error:
            with self._lock:
                self._waiting |= queues
            raise

    def _read(self, connection: Connection) -> None:
        connection.pgconn.consume_input()
        while notice := connection.pgconn.notifies():
            self._receive(notice.extra.decode())

    def _receive(self, payload: str) -> None:
        if sender(payload) != self._instance:
            self._on_news()


def encode(instance: str, queues: Iterable[str]) -> str:
    """Payload of a notification: the sending broker and the queues. A list that is too long becomes `*`."""
    text = msgspec.json.encode([instance, sorted(queues)]).decode()
    if len(text.encode()) > _LONGEST:
        return msgspec.json.encode([instance, [ANY_QUEUE]]).decode()
    return text


def sender(payload: str) -> str | None:
    """The broker that sent a notification. None if the payload is not from Ackwise."""
    try:
        return msgspec.json.decode(payload, type=tuple[str, list[str]])[0]
    except msgspec.DecodeError:
        return None
