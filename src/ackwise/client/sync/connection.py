# Generated from ../aio/connection.py by tools/async_to_sync.py: do not edit, change the source and run it again.
"""The whole API in one object."""

from __future__ import annotations

import contextlib
from types import TracebackType

from ackwise.client.beside.threads import call
from ackwise.client.moments import seconds
from ackwise.client.sync.consuming import ConsumeVerbs
from ackwise.client.sync.dead_letters import DeadLetterVerbs
from ackwise.client.sync.groups import GroupVerbs
from ackwise.client.sync.queues import QueueVerbs
from ackwise.core.errors import AckwiseError
from ackwise.core.limits import Seconds


class Connection(ConsumeVerbs, QueueVerbs, GroupVerbs, DeadLetterVerbs):
    """Everything a program does with Ackwise. any number of threads may share it."""

    def stop_claims(self) -> None:
        """Claim nothing more; polls that wait are answered now. Settlements and pushes go on."""
        call(self._transport.stop_claims)

    def drain(self, grace: Seconds = 0) -> int:
        """Claim nothing more, let holders finish for `grace` seconds, release the rest unspent; how many those were."""
        return self._transport.drain(seconds(grace, "grace"))

    def close(self) -> None:
        """Give back what this connection still holds, without spending a failure, and let go of the store."""
        try:
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
