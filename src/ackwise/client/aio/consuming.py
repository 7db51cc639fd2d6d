"""Loops that claim again and again."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncGenerator, Sequence

from ackwise.client.aio.batch import AsyncBatch
from ackwise.client.aio.delivery import AsyncDelivery
from ackwise.client.aio.messages import AsyncMessageVerbs
from ackwise.client.claims import Start, claim_command, patience
from ackwise.client.settling import verdict_of
from ackwise.core.claiming import EmptyReason
from ackwise.core.commands import Claim, Settle, Settlement
from ackwise.core.errors import AckwiseError, LeaseLost
from ackwise.core.limits import Seconds
from ackwise.core.policy import Exclusivity, Order
from ackwise.core.settlement import Outcome


class AsyncConsumeVerbs(AsyncMessageVerbs):
    """The verbs that go on until they are told to stop."""

    async def consume(
        self,
        queue: str,
        *,
        group: str | None = None,
        max: int = 100,
        wait: Seconds = 20,
        stop_when_empty: bool = False,
        lease: Seconds | None = None,
        partitions: Sequence[str] | None = None,
        priorities: Sequence[int] | None = None,
        exclusivity: Exclusivity | None = None,
        order: Order | None = None,
        owner: str | None = None,
        start: Start = "all",
    ) -> AsyncGenerator[AsyncDelivery, None]:
        """Deliveries one after the other, claimed `max` at a time. It settles nothing: use `with delivery:`.

        Between deliveries the lease is extended when half of it has gone. What was claimed but not yet handed
        out when the loop is left goes back unspent. Ends when the broker drains.
        """
        waits = patience(wait, stop_when_empty)
        command = claim_command(
            queue,
            group=group,
            max=max,
            lease=lease,
            partitions=partitions,
            priorities=priorities,
            exclusivity=exclusivity,
            order=order,
            owner=owner,
            start=start,
        )
        while True:
            batch = self._batch(await self._transport.claim(command, waits), command)
            if not batch and (stop_when_empty or batch.empty is EmptyReason.DRAINING):
                return
            handed = 0
            try:
                for delivery in batch:
                    await batch.lease.keep_alive()
                    handed += 1
                    yield delivery
            except LeaseLost:
                # The rest is no longer ours; whoever has it now will do it.
                handed = len(batch)
            finally:
                await self._give_back(batch, handed)

    async def _give_back(self, batch: AsyncBatch, handed: int) -> None:
        entries = [Settlement(selector=one, outcome=Outcome.RELEASE) for one in batch.rest(handed)]
        if entries and not batch.lease.ended:
            with contextlib.suppress(AckwiseError):
                await self.settle(entries)

    async def batches(
        self,
        queue: str,
        *,
        group: str | None = None,
        max: int = 100,
        wait: Seconds = 20,
        stop_when_empty: bool = False,
        lease: Seconds | None = None,
        partitions: Sequence[str] | None = None,
        priorities: Sequence[int] | None = None,
        exclusivity: Exclusivity | None = None,
        order: Order | None = None,
        owner: str | None = None,
        start: Start = "all",
    ) -> AsyncGenerator[AsyncBatch, None]:
        """Batches one after the other. Asking for the next acks what is left of the last, in the same turn.

        Settle a batch, or some of it, to choose otherwise. A batch in hand when the loop is left stays yours
        to settle. Ends when the broker drains.
        """
        waits = patience(wait, stop_when_empty)
        command = claim_command(
            queue,
            group=group,
            max=max,
            lease=lease,
            partitions=partitions,
            priorities=priorities,
            exclusivity=exclusivity,
            order=order,
            owner=owner,
            start=start,
        )
        batch = self._batch(await self._transport.claim(command, waits), command)
        while True:
            if batch:
                yield batch
            elif stop_when_empty or batch.empty is EmptyReason.DRAINING:
                return
            batch = await self._next(batch, command, waits)

    async def _next(self, done: AsyncBatch, command: Claim, waits: float) -> AsyncBatch:
        if done.lease.ended:
            return self._batch(await self._transport.claim(command, waits), command)
        ack = Settle(entries=[Settlement(selector=done.selector, outcome=Outcome.ACK)])
        (answer,), handed = await self._transport.settle_and_claim(ack, command, waits)
        done.note(answer)
        batch = self._batch(handed, command)
        try:
            verdict_of(answer)
        except AckwiseError:
            await self._give_back(batch, 0)
            raise
        return batch
