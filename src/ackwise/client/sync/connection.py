# Generated from ../aio/connection.py by tools/async_to_sync.py: do not edit, change the source and run it again.
"""`Connection`: the client's public object."""

from __future__ import annotations

import contextlib
from types import TracebackType

from ackwise.client.concurrency.threads import call
from ackwise.client.sync.admin import DeadLetterVerbs, GroupVerbs, QueueVerbs
from ackwise.client.sync.consume_loops import ConsumeVerbs
from ackwise.core.errors import AckwiseError, BadInput
from ackwise.core.events import EventStream
from ackwise.core.validation import Seconds
from ackwise.wire.timestamps import seconds


class Connection(ConsumeVerbs, QueueVerbs, GroupVerbs, DeadLetterVerbs):
    """A connection to a store or a server: push, claim and settle messages, manage queues and groups.

    Open one with `ackwise.connect`. Any number of threads may share it.
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

    def stop_claims(self) -> None:
        """Stop claiming: waiting claims return at once, new claims return nothing. You can still settle and push."""
        call(self._transport.stop_claims)

    def drain(self, grace: Seconds = 0) -> int:
        """Stop claiming, wait up to `grace` seconds for settlements, release the rest. Returns how many it released.

        A release costs no failure.
        """
        return self._transport.drain(seconds(grace, "grace"))

    def close(self) -> None:
        """Release the messages that this connection still holds, and close it. A release costs no failure."""
        try:
            self._working.close()
            release = self._held.release()
            if release is not None:
                with contextlib.suppress(AckwiseError):
                    self._transport.send(release)
        finally:
            self._transport.close()

    def __enter__(self) -> Connection:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, problem: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
