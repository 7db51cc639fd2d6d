"""`AsyncConnection`: the client's public object."""

from __future__ import annotations

import contextlib
from types import TracebackType

from ackwise.client.aio.admin import AsyncDeadLetterVerbs, AsyncGroupVerbs, AsyncQueueVerbs
from ackwise.client.aio.consume_loops import AsyncConsumeVerbs
from ackwise.client.concurrency.aio import call
from ackwise.core.errors import AckwiseError, BadInput
from ackwise.core.events import EventStream
from ackwise.core.validation import Seconds
from ackwise.wire.timestamps import seconds


class AsyncConnection(AsyncConsumeVerbs, AsyncQueueVerbs, AsyncGroupVerbs, AsyncDeadLetterVerbs):
    """A connection to a store or a server: push, claim and settle messages, manage queues and groups.

    Open one with `ackwise.connect_async`. Any number of tasks of one event loop may share it.
    """

    @property
    def events(self) -> EventStream:
        """The events of the store that this connection opened. A connection to a server has none and raises."""
        events = self._transport.events
        if events is None:
            raise BadInput(
                "a connection to a server has no events; listen in the server's process, "
                "or read dead letters and the ledger with a cursor"
            )
        return events

    async def stop_claims(self) -> None:
        """Stop claiming: waiting claims return at once, new claims return nothing. You can still settle and push."""
        await call(self._transport.stop_claims)

    async def drain(self, grace: Seconds = 0) -> int:
        """Stop claiming, wait up to `grace` seconds for settlements, release the rest. Returns how many it released.

        A release costs no failure.
        """
        return await self._transport.drain(seconds(grace, "grace"))

    async def close(self) -> None:
        """Release the messages that this connection still holds, and close it. A release costs no failure."""
        try:
            await self._working.close()
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
