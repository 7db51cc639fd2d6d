# Generated from ../aio/consuming.py by tools/async_to_sync.py: do not edit, change the source and run it again.
"""Loops that claim again and again."""

from __future__ import annotations

import contextlib
from collections.abc import Generator, Sequence

from ackwise.client.claims import Start, claim_command, patience
from ackwise.client.settling import verdict_of
from ackwise.client.sync.batch import Batch
from ackwise.client.sync.delivery import Delivery
from ackwise.client.sync.messages import MessageVerbs
from ackwise.core import limits
from ackwise.core.claiming import EmptyReason
from ackwise.core.commands import Claim, Settle, Settlement
from ackwise.core.errors import AckwiseError, LeaseLost
from ackwise.core.limits import Seconds
from ackwise.core.policy import Exclusivity, Order
from ackwise.core.settlement import Outcome


class ConsumeVerbs(MessageVerbs):
    """The verbs that go on until they are told to stop."""

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
    ) -> Generator[Delivery, None, None]:
        """Deliveries one after the other, claimed `max` at a time. It settles nothing: use `with delivery:`.

        One claim stops at `max_bytes` of payload, 16 MiB by default.

        Between deliveries the lease is extended when half of it has gone. What was claimed but not yet handed
        out when the loop is left goes back unspent. Ends when the broker drains.
        """
        waits = patience(wait, stop_when_empty)
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
        while True:
            batch = self.batch(self._transport.claim(command, waits), command)
            if not batch and (stop_when_empty or batch.empty is EmptyReason.DRAINING):
                return
            handed = 0
            try:
                for delivery in batch:
                    batch.lease.keep_alive()
                    handed += 1
                    yield delivery
            except LeaseLost:
                # The rest is no longer ours; whoever has it now will do it.
                handed = len(batch)
            finally:
                self._give_back(batch, handed)

    def _give_back(self, batch: Batch, handed: int) -> None:
        entries = [Settlement(selector=one, outcome=Outcome.RELEASE) for one in batch.rest(handed)]
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
        """Batches one after the other. Asking for the next acks what is left of the last, in the same turn.

        A batch, or all batches of one prefetch together, stop at `max_bytes` of payload, 16 MiB by default.

        Settle a batch, or some of it, to choose otherwise. A batch in hand when the loop is left stays yours
        to settle. Ends when the broker drains. With `prefetch` that many batches are claimed in one turn, each
        under its own lease, and acked together in one: fewer commits, but a crash repeats up to that many.
        """
        limits.count(prefetch, "prefetch", most=1000)
        waits = patience(wait, stop_when_empty)
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
        try:
            while True:
                if not ahead:
                    ready, finished = finished, []
                    ahead = self._refill(ready, command, prefetch)
                if not ahead:
                    batch = self.batch(self._transport.claim(command, waits), command)
                    if not batch and (stop_when_empty or batch.empty is EmptyReason.DRAINING):
                        return
                    ahead = [batch] if batch else []
                    continue
                for batch in (*finished, *ahead):
                    batch.lease.keep_alive()
                batch = ahead.pop(0)
                yield batch
                if not batch.lease.ended:
                    finished.append(batch)
        finally:
            for batch in ahead:
                self._give_back(batch, 0)
            if finished:
                self._refill(finished, command, 0)

    def _refill(self, finished: list[Batch], command: Claim, count: int) -> list[Batch]:
        """Ack what is finished and claim ahead, in one turn; a lease that was lost meanwhile is raised."""
        held = [batch for batch in finished if not batch.lease.ended]
        entries = [Settlement(selector=batch.selector, outcome=Outcome.ACK) for batch in held]
        settle = Settle(entries=entries) if entries else None
        answers, handed = self._transport.claim_ahead(settle, command, count)
        batches = [self.batch(one, command) for one in handed]
        for batch, answer in zip(held, answers, strict=True):
            batch.note(answer)
        try:
            for answer in answers:
                verdict_of(answer)
        except AckwiseError:
            for batch in batches:
                self._give_back(batch, 0)
            raise
        return batches
