# Generated from ../aio/connecting.py by tools/async_to_sync.py: do not edit, change the source and run it again.
"""Reaching a server, and reaching one again when the connection is lost."""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Callable, Iterable
from typing import Self

from ackwise.amps.addresses import Address, addresses
from ackwise.amps.errors import CommandFailed, Disconnected, NoAnswer
from ackwise.amps.message import Message
from ackwise.amps.sync.acking import AckVerbs
from ackwise.amps.sync.link import Link
from ackwise.amps.sync.subscription import Subscription
from ackwise.client.beside.threads import Signal, Worker
from ackwise.core.amps.headers import Header
from ackwise.core.errors import AckwiseError

log = logging.getLogger("ackwise.amps")

FIRST_PAUSE, LONGEST_PAUSE = 0.05, 2.0
MOST_REFUSALS = 6
"""How often in a row a subscription may be refused when it is made again."""


class Connecting(AckVerbs):
    """A connection to one of several servers, made again when it breaks."""

    def __init__(
        self,
        name: str | None,
        timeout: float,
        on_ack_error: Callable[[AckwiseError], object] | None,
        on_disconnect: Callable[[str, int], object] | None,
    ) -> None:
        super().__init__(timeout, on_ack_error)
        self.name = name or f"ackwise-{os.getpid()}-{os.urandom(3).hex()}"
        self.on_disconnect = on_disconnect
        self._addresses: list[Address] = []
        self._at = 0
        self._user: tuple[str, str] = "", ""
        self._guard = threading.Lock()
        self._reconnecting = False
        self._connected = Signal()
        self._ending = Signal()

    def connect(self, uris: str | Iterable[str]) -> Self:
        """Reach the first of these servers that answers. `logon` comes next."""
        if self._closed or self._link is not None:
            raise CommandFailed("this client is closed" if self._closed else "this client is connected already")
        self._addresses = addresses(uris)
        problem: AckwiseError | None = None
        for at, address in enumerate(self._addresses):
            try:
                self._link = Link.open(address, self._arrived, self._lost)
                self._at = at
                return self
            except Disconnected as refused:
                problem = refused
        assert problem is not None
        raise problem

    def logon(self, user: str = "", password: str = "") -> Self:
        """Say who this is; a user and password may also be in the uri."""
        self._user = user, password
        link = self._reached()
        try:
            self._enter(link)
        except AckwiseError:
            self.close()
            raise
        self._connected.set()
        if self._acker is None:
            self._acker = Worker(self._send_due, f"amps acks of {self.name}")
        return self

    def _enter(self, link: Link) -> None:
        user, password = self._user
        header = Header(
            c="logon",
            client_name=self.name,
            version="ackwise",
            mt="json",
            user_id=user or link.address.user or None,
            pw=password or link.address.password or None,
        )
        link.command(header, self._timeout)

    @property
    def connected(self) -> bool:
        return self._link is not None

    @property
    def uri(self) -> str | None:
        """The server it is connected to."""
        link = self._link
        return None if link is None else str(link.address)

    def wait_connected(self, timeout: float) -> bool:
        """Whether it is connected, or is again in time."""
        return self._connected.wait(timeout)

    # the connection is lost

    def _lost(self, link: Link, problem: str) -> None:
        """Runs where the lost connection was read."""
        with self._guard:
            if link is not self._link:
                return
            self._link = None
            self._connected.clear()
            if self._closed or self._acker is None:
                return
            # One that is lost again while it is being entered is left to whoever enters it.
            again, self._reconnecting = self._reconnecting, True
        dropped = self._acks.clear()
        self.dropped_acks += dropped
        for subscription in list(self._subscriptions.values()):
            subscription.clear()
        log.warning("%s: %s; %d acks dropped", link.address, problem, dropped)
        if self.on_disconnect is not None:
            self._tell(self.on_disconnect, problem, dropped)
        if not again:
            self._reconnect()

    def _reconnect(self) -> None:
        """The next server, and the next, until one takes us; longer pauses each time."""
        pause = FIRST_PAUSE
        while not self._closed:
            self._at = (self._at + 1) % len(self._addresses)
            if self._again(self._addresses[self._at]):
                return
            self._ending.wait(pause)
            pause = min(2 * pause, LONGEST_PAUSE)

    def _again(self, address: Address) -> bool:
        """Log on and subscribe again, under the same ids."""
        link: Link | None = None
        try:
            link = Link.open(address, self._arrived, self._lost)
            self._enter(link)
            with self._guard:
                self._link = link
            for subscription in list(self._subscriptions.values()):
                self._subscribe_again(link, subscription)
            with self._guard:
                # It may have been lost while nobody knew it for ours.
                if link.lost or self._closed:
                    raise Disconnected(f"the connection to {address} is lost" if link.lost else "the client is closed")
                self._reconnecting = False
                self._connected.set()
        except AckwiseError as problem:
            log.warning("%s: %s", address, problem)
            with self._guard:
                self._link = None
            if link is not None:
                link.close()
            return False
        return True

    def _subscribe_again(self, link: Link, subscription: Subscription) -> None:
        """What is refused again and again is given up, so that the others go on; a refusal may also pass."""
        try:
            self.granted(subscription, link.command(subscription.command(), self._timeout))
            subscription.refusals = 0
        except NoAnswer:
            raise
        except CommandFailed as refused:
            subscription.refusals += 1
            if subscription.refusals < MOST_REFUSALS:
                raise
            self._subscriptions.pop(subscription.sub_id, None)
            subscription.end()
            self._complain(
                CommandFailed(f"subscription {subscription.sub_id} to {subscription.topic} ended: {refused.message}")
            )

    def _arrived(self, message: Message) -> None:
        """What nobody subscribed to is nobody's, and is never acked."""
        found = self._subscriptions.get(message.sub_id)
        if found is not None:
            found.take(message)

    # the end

    def close(self) -> None:
        """Let handlers finish what they have, send their acks, say good-bye: what was not handled goes back unspent."""
        if self._closed:
            return
        for subscription in list(self._subscriptions.values()):
            subscription.end()
            subscription.join(self._timeout)
        try:
            link = self._link
            if link is not None and self._acker is not None:
                try:
                    self._acks.flush()
                finally:
                    self._closed = True
                    link.command(Header(c="disconnect"), self._timeout)
        except Disconnected:
            log.warning("the connection was lost before it was closed")
        finally:
            self._closed = True
            self._ending.set()
            self._ring.set()
            link, self._link = self._link, None
            if link is not None:
                link.close()
                link.reader.join(self._timeout)
            if self._acker is not None:
                self._acker.join(self._timeout)
