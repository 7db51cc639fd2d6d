# Generated from ../aio/client.py by tools/async_to_sync.py: do not edit, change the source and run it again.
"""The client."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from datetime import datetime
from types import TracebackType

import msgspec

from ackwise.client.beside import terminating
from ackwise.client.beside.threads import LETS_GO_WITHIN, Signal
from ackwise.client.breaking import Resilience
from ackwise.client.claims import claim_command
from ackwise.client.moments import seconds
from ackwise.client.rows import QueueInfo
from ackwise.client.settling import all_settled, verdict_of
from ackwise.client.sync import Batch, Connection
from ackwise.connect import URL, connect
from ackwise.core.answers import Settled
from ackwise.core.claiming import EmptyReason
from ackwise.core.errors import AckwiseError, Draining
from ackwise.core.limits import Seconds
from ackwise.core.messages import DEFAULT_PARTITION, Receipt
from ackwise.core.outcomes import Retry
from ackwise.core.settlement import Outcome, Verdict
from ackwise.fluent.messages import Acked, DeadMessages, Items, outcome_of, target_of
from ackwise.fluent.options import Options
from ackwise.fluent.sync.consumer import Consumer
from ackwise.fluent.sync.queue import Queue
from ackwise.fluent.sync.transaction import FluentTransaction
from ackwise.store.clock import Clock

log = logging.getLogger("ackwise.fluent")

GRACE = 30.0


class Client:
    """Usage::

        with Client("http://127.0.0.1:6632") as client:
            client.queue("orders").group("mail").consume(handle)

    Of several URLs one that works is used. A call that finds none is tried again after 1, 2 and 4 seconds; a server
    that fails five times in a row is left alone for a minute. SIGTERM drains it: handlers finish within `grace`
    seconds. any number of threads may share it.
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
        if self._connection is None:
            self._connection = connect(self._url, clock=self._clock, resilience=self._resilience)
            terminating.answer(self)
        return self

    @property
    def connection(self) -> Connection:
        """The whole API, for what is not here."""
        if self._connection is None and self._closed:
            raise Draining("the client is closed")
        if self._connection is None:
            raise RuntimeError("the client is not open: use it in a with block, or call open()")
        return self._connection

    def queue(self, name: str) -> Queue:
        return Queue(self, Options(queue=name))

    def push(self, queue: str, partition: str | None, items: Items) -> list[Receipt]:
        """`{"data": ..., "transaction_id": ..., "delay_seconds": ...}`, or a list of them."""
        return self.queue(queue).partition(partition or DEFAULT_PARTITION).push(items)

    def claim(self, options: Options, count: int, wait: float, key: str | None = None) -> Batch:
        """Under a key it may be asked for again: an answer that gets
        lost loses no message with it. What is acked at delivery has no such luck."""
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
            # An earlier try of the same claim may still have waited somewhere, and was given something.
            handed = connection.transport.claim(keyed, 0.0)
        # Without the key: what this connection holds when it is closed goes back.
        return connection.batch(handed, command)

    def make(self, options: Options) -> QueueInfo:
        """The queue as it is configured, or as it is; a new one if there is none."""
        if not options.config:
            return self.connection.create_queue(options.queue, exist_ok=True)
        return Queue(self, options).create()

    def ack(self, message: Acked) -> Verdict:
        """Done. Raises `LeaseLost` (invalid_lease) when its time is over or it ended otherwise, `MessageNotFound`
        (not_found) when there is no such delivery; done again it answers `already`."""
        return self._settle(message, Outcome.ACK)

    def nack(
        self, message: Acked, error: str | BaseException | None = None, *, delay: Seconds | None = None
    ) -> Verdict:
        """Failed: `retried`, or `dead` when this was the last failure allowed. Raises as `ack` does; what was settled
        before stays so, and answers `already`."""
        return self._settle(message, Retry(delay=delay, error=error))

    def _settle(self, message: Acked, ask: Outcome | Exception) -> Verdict:
        (answer,) = self.connection.settle([(target_of(message), ask)])
        return verdict_of(answer)

    def ack_batch(self, messages: Iterable[Acked], *, atomic: bool = True) -> list[Settled]:
        """Many in one commit, each completed or with its own `status`. All or none: if one is refused nothing is done,
        and `RolledBack` raised, whose details have a verdict for each. With `atomic=False` each is for itself, and the
        verdicts tell."""
        asks = [(target_of(one), outcome_of(one)) for one in messages]
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
        page = self.connection.dead_letters(
            queue, group=consumer_group, after=after, before=before, limit=limit, offset=offset
        )
        return DeadMessages(page, limit, offset)

    def transaction(self) -> FluentTransaction:
        return FluentTransaction(self.connection)

    def sleep(self, duration: float) -> None:
        self._never.wait(duration)

    @contextmanager
    def at_work(self, consumer: Consumer) -> Iterator[None]:
        """A drain stops it."""
        self._consumers.add(consumer)
        try:
            yield
        finally:
            self._consumers.discard(consumer)

    def drain(self, grace: Seconds = GRACE) -> int:
        """Claim nothing more, let handlers finish what they have begun for `grace` seconds, cut off those that have not
        (a thread is told at its end), give the rest back; how many messages those were."""
        end = time.monotonic() + seconds(grace, "grace")
        connection, consumers = self.connection, list(self._consumers)
        before = sum(one.handling.given_back for one in consumers)
        for one in consumers:
            one.stop()
        connection.stop_claims()
        self._until_idle(consumers, end)
        for one in consumers:
            one.handling.cut_off()
        self._until_idle(consumers, time.monotonic() + LETS_GO_WITHIN)
        for one in consumers:
            one.give_back()
        released = connection.drain(max(0.0, end - time.monotonic()))
        return released + sum(one.handling.given_back for one in consumers) - before

    def _until_idle(self, consumers: list[Consumer], end: float) -> None:
        while any(one.handling.busy for one in consumers) and time.monotonic() < end:
            self.sleep(0.01)

    def terminate(self) -> None:
        """Drain, once, however many consumers are told to."""
        if not self._terminating and self._connection is not None:
            self._terminating = True
            try:
                self.drain(self._grace)
            except Exception as problem:
                # Whoever closes it meanwhile has given everything back.
                if not self._closed:
                    log.warning("the drain failed: %s", problem)

    def close(self) -> None:
        """Consumers that still run are drained without grace first."""
        with suppress(AckwiseError):
            if self._consumers and self._connection is not None:
                self.drain(0)
        connection, self._connection = self._connection, None
        self._closed = True
        if connection is not None:
            connection.close()
        terminating.leave(self)

    def __enter__(self) -> Client:
        return self.open()

    def __exit__(
        self, kind: type[BaseException] | None, problem: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
