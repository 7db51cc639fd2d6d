# Generated from ../aio/consume_loops.py by tools/async_to_sync.py: do not edit, change the source and run it again.
"""Methods of a connection that claim in a loop."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Generator, Sequence
from time import sleep
from typing import get_args

from ackwise.client.kept_lease import is_due
from ackwise.client.options import Start, claim_command, one_of, poll_seconds
from ackwise.client.settlements import verdict_of
from ackwise.client.sync.batch import Batch
from ackwise.client.sync.delivery import ConsumeLoop, Delivery, OnError
from ackwise.client.sync.lease_keeper import extend_due
from ackwise.client.sync.messages import MessageVerbs
from ackwise.core import validation
from ackwise.core.commands import Claim, Settle, Settlement
from ackwise.core.errors import AckwiseError, LeaseLost, UnknownQueue
from ackwise.core.lane_selection import EmptyReason
from ackwise.core.policy import Exclusivity, Order
from ackwise.core.settlement import Outcome
from ackwise.core.validation import Seconds

log = logging.getLogger("ackwise.client")

QUEUE_CHECK_SECONDS = 0.5
"""Seconds between two claims of a loop whose queue does not exist yet."""


class ConsumeVerbs(MessageVerbs):
    """Consume loops: `consume` yields deliveries, `batches` yields batches."""

    def consume(
        self,
        queue: str,
        *,
        group: str | None = None,
        max: int = 100,
        max_bytes: int | None = None,
        wait: Seconds | None = None,
        stop_when_empty: bool = False,
        lease: Seconds | None = None,
        partitions: Sequence[str] | None = None,
        priorities: Sequence[int] | None = None,
        exclusivity: Exclusivity | None = None,
        order: Order | None = None,
        owner: str | None = None,
        start: Start = "all",
        on_error: OnError = "continue",
    ) -> Generator[Delivery, None, None]:
        """Yield deliveries one by one. You settle each delivery yourself, for example with `with delivery:`.

        The loop claims up to `max` messages at a time, at most `max_bytes` of payload (16 MiB by default). It extends
        the lease while you work on its deliveries. When you leave the loop, it releases the deliveries that it has not
        yielded. The loop ends when the broker drains, or with `stop_when_empty` when there is no message. `wait` is how
        many seconds one claim waits. If the queue does not exist yet, the loop logs a warning and waits for it.

        An exception in a `with delivery:` block is recorded as a retry and logged, and the loop continues. With
        `on_error="raise"` the exception propagates. An exception outside the block always propagates.
        """
        waits = poll_seconds(wait, stop_when_empty)
        loop = ConsumeLoop(one_of(on_error, get_args(OnError), "on_error") or "continue")
        command = claim_command(
            queue,
            group=group,
            max=max,
            max_bytes=max_bytes,
            lease=lease,
            partitions=partitions,
            priorities=priorities,
            exclusivity=exclusivity,
            order=order,
            owner=owner,
            start=start,
        )
        while (batch := self._next_batch(command, waits, stop_when_empty)) is not None:
            yielded = 0
            batch.lease.begin_work()
            try:
                for delivery in batch:
                    if is_due(batch.lease, self._transport.now()):
                        batch.lease.extend()
                    yielded += 1
                    delivery.loop = loop
                    yield delivery
            except LeaseLost:
                # The rest of the batch belongs to another consumer now.
                yielded = len(batch)
            finally:
                batch.lease.end_work()
                self._release_rest(batch, yielded)

    def _next_batch(self, command: Claim, waits: float, stop_when_empty: bool) -> Batch | None:
        """Claim a batch, which may be empty. None ends the loop. Waits for a queue that does not exist yet."""
        batch = self._claim_batch(command, waits)
        if batch is None:
            _warn_missing(command)
        while batch is None and not stop_when_empty:
            sleep(QUEUE_CHECK_SECONDS)
            batch = self._claim_batch(command, waits)
        ends = not batch and (stop_when_empty or batch is None or batch.empty is EmptyReason.DRAINING)
        return None if ends else batch

    def _claim_batch(self, command: Claim, waits: float) -> Batch | None:
        """Claim a batch. None if the queue does not exist."""
        try:
            return self.batch(self._transport.claim(command, waits), command)
        except UnknownQueue:
            return None

    def _release_rest(self, batch: Batch, index: int) -> None:
        entries = [Settlement(selector=selector, outcome=Outcome.RELEASE) for selector in batch.rest(index)]
        if entries and not batch.lease.ended:
            with contextlib.suppress(AckwiseError):
                self.settle(entries)

    def batches(
        self,
        queue: str,
        *,
        group: str | None = None,
        max: int = 100,
        max_bytes: int | None = None,
        wait: Seconds | None = None,
        stop_when_empty: bool = False,
        lease: Seconds | None = None,
        partitions: Sequence[str] | None = None,
        priorities: Sequence[int] | None = None,
        exclusivity: Exclusivity | None = None,
        order: Order | None = None,
        owner: str | None = None,
        start: Start = "all",
        prefetch: int = 1,
    ) -> Generator[Batch, None, None]:
        """Yield batches one by one. The request for the next batch acks the unsettled deliveries of the last one.

        The loop extends the leases of the batches that it holds. To choose another outcome, settle the batch or some of
        its deliveries yourself. If you leave the loop, the current batch stays yours to settle. The loop ends when the
        broker drains, or with `stop_when_empty` when there is no message. `wait` is how many seconds one claim waits.

        With `prefetch` the loop claims that many batches at once, each under its own lease, and acks them together.
        That costs fewer commits, but after a crash up to `prefetch` batches are delivered again. `max_bytes` bounds the
        payload of all batches of one request, 16 MiB by default.
        """
        validation.count(prefetch, "prefetch", most=1000)
        waits = poll_seconds(wait, stop_when_empty)
        command = claim_command(
            queue,
            group=group,
            max=max,
            max_bytes=max_bytes,
            lease=lease,
            partitions=partitions,
            priorities=priorities,
            exclusivity=exclusivity,
            order=order,
            owner=owner,
            start=start,
        )
        ahead: list[Batch] = []
        finished: list[Batch] = []
        working: list[Batch] = []
        try:
            while True:
                if not ahead:
                    ready, finished = finished, []
                    ahead = self._refill(ready, command, prefetch)
                    working = _work_on(ahead, working)
                if not ahead:
                    waited = self._next_batch(command, waits, stop_when_empty)
                    if waited is None:
                        return
                    ahead = [waited] if waited else []
                    working = _work_on(ahead, working)
                    continue
                extend_due(self._transport, (batch.lease for batch in (*finished, *ahead)))
                batch = ahead.pop(0)
                yield batch
                if not batch.lease.ended:
                    finished.append(batch)
        finally:
            for batch in ahead:
                self._release_rest(batch, 0)
            _work_on([], working)
            if finished:
                self._refill(finished, command, 0)

    def _refill(self, finished: list[Batch], command: Claim, count: int) -> list[Batch]:
        """Ack the finished batches and claim `count` new ones in one turn. Raises if a batch lost its lease."""
        held = [batch for batch in finished if not batch.lease.ended]
        entries = [Settlement(selector=batch.selector, outcome=Outcome.ACK) for batch in held]
        settle = Settle(entries=entries) if entries else None
        try:
            answers, handed = self._transport.claim_ahead(settle, command, count)
        except UnknownQueue:
            if settle is not None:
                raise
            return []
        batches = [self.batch(claimed, command) for claimed in handed]
        for batch, answer in zip(held, answers, strict=True):
            batch.note(answer)
        try:
            for answer in answers:
                verdict_of(answer)
        except AckwiseError:
            for batch in batches:
                self._release_rest(batch, 0)
            raise
        return batches


def _work_on(batches: Sequence[Batch], before: Sequence[Batch]) -> list[Batch]:
    """Start the extensions for the leases of `batches`, and stop them for the leases of `before`."""
    for batch in batches:
        batch.lease.begin_work()
    for batch in before:
        batch.lease.end_work()
    return list(batches)


def _warn_missing(command: Claim) -> None:
    log.warning("queue %r does not exist yet; push to it or create it", command.queue)
    if command.start == "new":
        # The loop began before the queue, so all messages of the queue are new.
        command.start = "all"
