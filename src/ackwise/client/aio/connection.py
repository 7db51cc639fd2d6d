"""The whole API in one object."""

from __future__ import annotations

import contextlib
from types import TracebackType

from ackwise.client.aio.consuming import AsyncConsumeVerbs
from ackwise.client.aio.dead_letters import AsyncDeadLetterVerbs
from ackwise.client.aio.groups import AsyncGroupVerbs
from ackwise.client.aio.queues import AsyncQueueVerbs
from ackwise.client.beside.aio import call
from ackwise.client.moments import seconds
from ackwise.core.errors import AckwiseError
from ackwise.core.limits import Seconds


class AsyncConnection(AsyncConsumeVerbs, AsyncQueueVerbs, AsyncGroupVerbs, AsyncDeadLetterVerbs):
    """Everything a program does with Ackwise. Any number of tasks of one event loop may share it."""

    async def stop_claims(self) -> None:
        """Claim nothing more; polls that wait are answered now. Settlements and pushes go on."""
        await call(self._transport.stop_claims)

    async def drain(self, grace: Seconds = 0) -> int:
        """Claim nothing more, let holders finish for `grace` seconds, release the rest unspent; how many those were."""
        return await self._transport.drain(seconds(grace, "grace"))

    async def close(self) -> None:
        """Give back what this connection still holds, without spending a failure, and let go of the store."""
        try:
            release = self._held.release()
            if release is not None:
                with contextlib.suppress(AckwiseError):
                    await self._transport.send(release)
        finally:
            await self._transport.close()

    async def __aenter__(self) -> AsyncConnection:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, problem: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()
