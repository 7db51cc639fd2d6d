# Generated from ../aio/reconnect.py by tools/async_to_sync.py: do not edit, change the source and run it again.
"""Logon, reconnect and close of the AMPS client."""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Callable, Iterable
from typing import Self

from ackwise.amps.message import CommandFailed, Disconnected, Message, NoAnswer
from ackwise.amps.settings import Address, addresses
from ackwise.amps.sync.ack_batches import AckVerbs
from ackwise.amps.sync.connection import ServerConnection
from ackwise.amps.sync.subscription import Subscription
from ackwise.client.concurrency.threads import Signal, Worker
from ackwise.core.errors import AckwiseError
from ackwise.wire.amps import Header

log = logging.getLogger("ackwise.amps")

FIRST_PAUSE, LONGEST_PAUSE = 0.05, 2.0
MOST_REFUSALS = 6
"""Refusals in a row after which a subscription is given up after a reconnect."""


class ReconnectingClient(AckVerbs):
    """Connects to one of several servers and reconnects when the connection breaks."""

    def __init__(
        self,
        name: str | None,
        timeout: float,
        on_ack_error: Callable[[AckwiseError], object] | None,
        on_disconnect: Callable[[str, int], object] | None,
        *,
        traced: bool = False,
    ) -> None:
        super().__init__(timeout, on_ack_error, traced=traced)
        self.name = name or f"ackwise-{os.getpid()}-{os.urandom(3).hex()}"
        self.on_disconnect = on_disconnect
        self._addresses: list[Address] = []
        self._at = 0
        self._user: tuple[str, str] = "", ""
        self._guard = threading.Lock()
        self._is_reconnecting = False
        self._connected = Signal()
        self._closing = Signal()

    def connect(self, uris: str | Iterable[str]) -> Self:
        """Connect to the first of these servers that answers. Call `logon` next."""
        if self._closed or self._connection is not None:
            raise CommandFailed("this client is closed" if self._closed else "this client is connected already")
        self._addresses = addresses(uris)
        problem: AckwiseError | None = None
        for at, address in enumerate(self._addresses):
            try:
                self._connection = ServerConnection.open(address, self._dispatch, self._lost)
                self._at = at
                return self
            except Disconnected as refused:
                problem = refused
        assert problem is not None
        raise problem

    def logon(self, user: str = "", password: str = "") -> Self:
        """Log on to the server. User and password may also be in the URI."""
        self._user = user, password
        connection = self._require_connection()
        try:
            self._log_on(connection)
        except AckwiseError:
            self.close()
            raise
        self._connected.set()
        if self._acker is None:
            self._acker = Worker(self._send_due, f"amps acks of {self.name}")
        return self

    def _log_on(self, connection: ServerConnection) -> None:
        user, password = self._user
        header = Header(
            c="logon",
            client_name=self.name,
            version="ackwise",
            mt="json",
            user_id=user or connection.address.user or None,
            pw=password or connection.address.password or None,
        )
        connection.command(header, self._timeout)

    @property
    def connected(self) -> bool:
        """Whether the client is connected."""
        return self._connection is not None

    @property
    def uri(self) -> str | None:
        """URI of the connected server. None without a connection."""
        connection = self._connection
        return None if connection is None else str(connection.address)

    def wait_connected(self, timeout: float) -> bool:
        """Wait up to `timeout` seconds for a connection. Returns whether there is one."""
        return self._connected.wait(timeout)

    # the connection is lost

    def _lost(self, connection: ServerConnection, problem: str) -> None:
        """Drop what the lost connection held and reconnect. Runs in the reader of the lost connection."""
        with self._guard:
            if connection is not self._connection:
                return
            self._connection = None
            self._connected.clear()
            if self._closed or self._acker is None:
                return
            # If a new connection is lost during its logon, the running reconnect continues.
            in_progress, self._is_reconnecting = self._is_reconnecting, True
        dropped = self._acks.clear()
        self.dropped_acks += dropped
        for subscription in list(self._subscriptions.values()):
            subscription.clear()
        log.warning("%s: %s; %d acks dropped", connection.address, problem, dropped)
        if self.on_disconnect is not None:
            self._call_back(self.on_disconnect, problem, dropped)
        if not in_progress:
            self._reconnect()

    def _reconnect(self) -> None:
        """Try the servers in turn, with growing pauses, until one accepts the client."""
        pause = FIRST_PAUSE
        while not self._closed:
            self._at = (self._at + 1) % len(self._addresses)
            if self._reconnect_to(self._addresses[self._at]):
                return
            self._closing.wait(pause)
            pause = min(2 * pause, LONGEST_PAUSE)

    def _reconnect_to(self, address: Address) -> bool:
        """Connect to a server, log on and subscribe again with the same ids. Returns whether that worked."""
        connection: ServerConnection | None = None
        try:
            connection = ServerConnection.open(address, self._dispatch, self._lost)
            self._log_on(connection)
            with self._guard:
                self._connection = connection
            for subscription in list(self._subscriptions.values()):
                self._subscribe_again(connection, subscription)
            with self._guard:
                # The connection may have been lost before it was set as the client's.
                if connection.lost or self._closed:
                    raise Disconnected(
                        f"the connection to {address} is lost" if connection.lost else "the client is closed"
                    )
                self._is_reconnecting = False
                self._connected.set()
        except AckwiseError as problem:
            log.warning("%s: %s", address, problem)
            with self._guard:
                self._connection = None
            if connection is not None:
                connection.close()
            return False
        return True

    def _subscribe_again(self, connection: ServerConnection, subscription: Subscription) -> None:
        """Subscribe again. Ends the subscription after several refusals in a row: the other subscriptions continue."""
        try:
            self.note_backlog(subscription, connection.command(subscription.command(), self._timeout))
            subscription.refusals = 0
        except NoAnswer:
            raise
        except CommandFailed as refused:
            subscription.refusals += 1
            if subscription.refusals < MOST_REFUSALS:
                raise
            self._subscriptions.pop(subscription.sub_id, None)
            subscription.end()
            self._report(
                CommandFailed(f"subscription {subscription.sub_id} to {subscription.topic} ended: {refused.message}")
            )

    def _dispatch(self, message: Message) -> None:
        """Pass a message to its subscription. A message without one is ignored and never acked."""
        subscription = self._subscriptions.get(message.sub_id)
        if subscription is not None:
            subscription.take(message)

    # the end

    def close(self) -> None:
        """Wait for running handlers, send their acks and disconnect.

        The server releases unhandled messages without counting a failure.
        """
        if self._closed:
            return
        for subscription in list(self._subscriptions.values()):
            subscription.end()
            subscription.join(self._timeout)
        try:
            connection = self._connection
            if connection is not None and self._acker is not None:
                try:
                    self._acks.flush()
                finally:
                    self._closed = True
                    connection.command(Header(c="disconnect"), self._timeout)
        except Disconnected:
            log.warning("the connection was lost before it was closed")
        finally:
            self._closed = True
            self._closing.set()
            self._wake.set()
            connection, self._connection = self._connection, None
            if connection is not None:
                connection.close()
                connection.reader.join(self._timeout)
            if self._acker is not None:
                self._acker.join(self._timeout)
