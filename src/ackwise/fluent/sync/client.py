# Generated from ../aio/client.py by tools/async_to_sync.py: do not edit, change the source and run it again.
"""Client for Queen MQ users."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from datetime import datetime
from types import TracebackType

import msgspec

from ackwise.client.concurrency import sigterm
from ackwise.client.concurrency.threads import CANCEL_SECONDS, Signal
from ackwise.client.options import claim_command
from ackwise.client.resilience import Resilience
from ackwise.client.results import QueueInfo
from ackwise.client.settlements import all_settled, verdict_of
from ackwise.client.sync import Batch, Connection
from ackwise.clock import Clock
from ackwise.connect import URL, connect
from ackwise.core.answers import Settled
from ackwise.core.errors import AckwiseError, Draining
from ackwise.core.lane_selection import EmptyReason
from ackwise.core.messages import DEFAULT_PARTITION, Receipt
from ackwise.core.policy import QueuePolicy
from ackwise.core.settlement import Outcome, Retry, Verdict
from ackwise.core.validation import Seconds
from ackwise.fluent.messages import Acked, DeadMessages, Items, outcome_of, target_of
from ackwise.fluent.options import Options
from ackwise.fluent.sync.consumer import Consumer
from ackwise.fluent.sync.queue import Queue
from ackwise.fluent.sync.transaction import FluentTransaction
from ackwise.wire.timestamps import seconds

log = logging.getLogger("ackwise.fluent")

GRACE = 30.0
"""Seconds that running handlers have to finish in a drain."""


class Client:
    """A client for Queen MQ users: build a consumer with chained calls and acknowledge messages yourself.

    Usage::

        with Client("http://127.0.0.1:6632") as client:
            client.queue("orders").group("mail").consume(handle).run()

    `url` is a store, a server, or a list of servers of one store. The client stays with a server that works. It repeats
    a failed call after 1, 2 and 4 seconds. It does not call a server for a minute after five failures in a row. Pass a
    `Resilience` to change these numbers. On SIGTERM the client drains: running handlers have `grace` seconds to finish.
    Any number of threads may share it.
    """

    def __init__(
        self, url: URL, *, resilience: Resilience | None = None, grace: Seconds = GRACE, clock: Clock | None = None
    ) -> None:
        self._url, self._clock = url, clock
        self._resilience = Resilience() if resilience is None else resilience
        self._grace = seconds(grace, "grace")
        self._connection: Connection | None = None
        self._closed = False
        self._consumers: set[Consumer] = set()
        self._terminating = False
        self._never = Signal()

    def open(self) -> Client:
        """Connect, if the client is not connected yet. A `with` block does it for you."""
        if self._connection is None:
            self._connection = connect(self._url, clock=self._clock, resilience=self._resilience)
            self._connection.new_queue_policy = QueuePolicy()  # retries at once, as Queen does
            sigterm.install(self)
        return self

    @property
    def connection(self) -> Connection:
        """The underlying connection, with the methods that this client lacks."""
        if self._connection is None and self._closed:
            raise Draining("the client is closed")
        if self._connection is None:
            raise RuntimeError("the client is not open; use it in a with block or call open()")
        return self._connection

    def queue(self, name: str) -> Queue:
        """Start a chain of calls about a queue."""
        return Queue(self, Options(queue=name))

    def push(self, queue: str, partition: str | None, items: Items) -> list[Receipt]:
        """Push one item or a list of items: `{"data": …, "transaction_id": …, "delay_seconds": …}`."""
        return self.queue(queue).partition(partition or DEFAULT_PARTITION).push(items)

    def claim(self, options: Options, count: int, wait: float, key: str | None = None) -> Batch:
        """Claim up to `count` messages. With a `key`, repeat the call after a lost answer to get the same messages.

        A claim with `auto_ack` ignores the key: if its answer is lost, its messages are lost.
        """
        connection = self.connection
        command = claim_command(
            options.queue,
            group=options.group,
            max=count,
            max_bytes=options.max_bytes,
            lease=options.lease,
            partitions=None if options.partition is None else [options.partition],
            priorities=None,
            exclusivity=None,
            order=None,
            owner=None,
            start=options.start,
            auto_ack=options.auto_ack,
        )
        keyed = command if options.auto_ack else msgspec.structs.replace(command, key=key)
        handed = connection.transport.claim(keyed, wait)
        if handed.claimed.empty is EmptyReason.ENDED:
            # An earlier try of this claim may still have waited on the server, and its messages are granted.
            handed = connection.transport.claim(keyed, 0.0)
        # The batch is built without the key, so that `close` releases its messages.
        return connection.batch(handed, command)

    def ensure_queue(self, options: Options) -> QueueInfo[datetime]:
        """Create the queue if it does not exist, and apply the chain's `config` if it has one."""
        if not options.config:
            return self.connection.create_queue(options.queue, exist_ok=True)
        return Queue(self, options).create()

    def ack(self, message: Acked) -> Verdict:
        """Ack a message. A second ack returns `already`.

        Raises `LeaseLost` (invalid_lease) if the lease expired or the delivery ended in another way, and
        `MessageNotFound` (not_found) if there is no such delivery.
        """
        return self._settle(message, Outcome.ACK)

    def nack(
        self, message: Acked, error: str | BaseException | None = None, *, delay: Seconds | None = None
    ) -> Verdict:
        """Record a failure: the verdict is `retried`, or `dead` after the last allowed failure.

        A message that is settled already keeps its outcome, and the verdict is `already`. Raises as `ack` does.
        """
        return self._settle(message, Retry(delay=delay, error=error))

    def _settle(self, message: Acked, ask: Outcome | Exception) -> Verdict:
        (answer,) = self.connection.settle([(target_of(message), ask)])
        return verdict_of(answer)

    def ack_batch(self, messages: Iterable[Acked], *, atomic: bool = True) -> list[Settled]:
        """Settle many messages in one commit. Each is acked, or settled by its own `status`.

        If one message is refused, nothing is settled and `ack_batch` raises `RolledBack`. Its details have a verdict
        for each message. With `atomic=False` each message is settled on its own. See the returned verdicts.
        """
        asks = [(target_of(message), outcome_of(message)) for message in messages]
        answers = self.connection.settle(asks, atomic=atomic, strict=atomic)
        return all_settled(answers) if atomic else answers

    def get_dlq(
        self,
        queue: str,
        *,
        consumer_group: str | None = None,
        after: datetime | None = None,
        before: datetime | None = None,
        limit: int = 100,
        offset: int = 0,
    ) -> DeadMessages:
        """List a queue's dead letters, newest first: up to `limit` of them after the first `offset`."""
        page = self.connection.dead_letters(
            queue, group=consumer_group, after=after, before=before, limit=limit, offset=offset
        )
        return DeadMessages(page, limit, offset)

    def transaction(self) -> FluentTransaction:
        """Begin a transaction: acks, nacks and pushes in one commit."""
        return FluentTransaction(self.connection)

    def sleep(self, duration: float) -> None:
        self._never.wait(duration)

    @contextmanager
    def running(self, consumer: Consumer) -> Iterator[None]:
        """Register a consumer while it runs, so that `drain` stops it."""
        self._consumers.add(consumer)
        try:
            yield
        finally:
            self._consumers.discard(consumer)

    def drain(self, grace: Seconds = GRACE) -> int:
        """Stop the client's consumers. Returns how many messages it released.

        The client stops claiming. Running handlers have `grace` seconds to finish. Then they are cancelled. A handler
        in a thread cannot be cancelled: `on_error` gets its `LeaseLost` when it returns. The client releases all
        other messages. A release costs no failure.
        """
        end = time.monotonic() + seconds(grace, "grace")
        connection, consumers = self.connection, list(self._consumers)
        before = sum(consumer.batch_handler.released for consumer in consumers)
        for consumer in consumers:
            consumer.stop()
        connection.stop_claims()
        self._until_idle(consumers, end)
        for consumer in consumers:
            consumer.batch_handler.cancel_running()
        self._until_idle(consumers, time.monotonic() + CANCEL_SECONDS)
        for consumer in consumers:
            consumer.release_unanswered()
        released = connection.drain(max(0.0, end - time.monotonic()))
        return released + sum(consumer.batch_handler.released for consumer in consumers) - before

    def _until_idle(self, consumers: list[Consumer], end: float) -> None:
        while any(consumer.batch_handler.busy for consumer in consumers) and time.monotonic() < end:
            self.sleep(0.01)

    def terminate(self) -> None:
        """Drain the client after SIGTERM. Only the first call has an effect."""
        if not self._terminating and self._connection is not None:
            self._terminating = True
            try:
                self.drain(self._grace)
            except Exception as problem:
                # A concurrent `close` has released everything.
                if not self._closed:
                    log.warning("the drain failed: %s", problem)

    def close(self) -> None:
        """Close the client. Consumers that still run are drained without grace first."""
        with suppress(AckwiseError):
            if self._consumers and self._connection is not None:
                self.drain(0)
        connection, self._connection = self._connection, None
        self._closed = True
        if connection is not None:
            connection.close()
        sigterm.uninstall(self)

    def __enter__(self) -> Client:
        return self.open()

    def __exit__(
        self, kind: type[BaseException] | None, problem: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
