"""Consumer groups, and what they hold."""

from __future__ import annotations

from datetime import datetime
from typing import Literal

import msgspec

from ackwise.client.aio.messages import AsyncMessageVerbs
from ackwise.client.claims import Start, started_at
from ackwise.client.moments import instant, instant_or_none
from ackwise.client.policies import group_policy
from ackwise.client.rows import CursorRow, GroupStats, LeaseRow, LedgerRow, shown
from ackwise.core import limits
from ackwise.core import queries as q
from ackwise.core.answers import Counted
from ackwise.core.commands import ConfigureGroup, DeleteGroup, SeekGroup
from ackwise.core.errors import BadInput, UnknownGroup
from ackwise.core.policy import Backoff


class AsyncGroupVerbs(AsyncMessageVerbs):
    """The verbs about groups, leases and the ledger."""

    async def create_group(
        self,
        queue: str,
        group: str,
        *,
        start: Start = "all",
        retry_limit: int | msgspec.UnsetType | None = msgspec.UNSET,
        backoff: Backoff | msgspec.UnsetType = msgspec.UNSET,
    ) -> None:
        """Make a group at `all`, `new` or an instant; `retry_limit` and `backoff` override the queue's for it."""
        policy = group_policy(retry_limit, backoff)
        await self._transport.send(ConfigureGroup(queue=queue, group=group, start=started_at(start), policy=policy))

    async def seek(
        self, queue: str, group: str, *, to: Literal["start", "end"] | datetime | int, partition: str | None = None
    ) -> int:
        """Move a group to the `start`, the `end`, an instant, or (one partition) a seq; how many lanes moved.

        What the group held there it holds no more.
        """
        if isinstance(to, int) and not isinstance(to, bool):
            command = SeekGroup(queue=queue, group=group, to=to, partition=partition, by="seq")
        elif isinstance(to, datetime):
            command = SeekGroup(queue=queue, group=group, to=instant(to, "to"), partition=partition)
        elif to in ("start", "end"):
            command = SeekGroup(queue=queue, group=group, to=to, partition=partition)
        else:
            raise BadInput(f"to must be 'start', 'end', a datetime or a seq, not {to!r}")
        counted: Counted = await self._transport.send(command)
        return counted.count

    async def delete_group(self, queue: str, group: str) -> None:
        """Forget a group and what it holds; its dead letters stay."""
        await self._transport.send(DeleteGroup(queue=queue, group=group))

    async def groups(self, queue: str | None = None) -> list[GroupStats]:
        return [shown(row, GroupStats) for row in await self._transport.ask(q.ListGroups(queue=queue))]

    async def cursors(self, queue: str, group: str) -> list[CursorRow]:
        """Where a group stands in each lane."""
        rows = await self._transport.ask(q.ListCursors(queue=queue, group=group))
        return [shown(row, CursorRow) for row in rows]

    async def lag(self, queue: str, group: str) -> int:
        """How many messages the group has not finished: unread and held."""
        rows: list[q.GroupStats] = await self._transport.ask(q.ListGroups(queue=queue, group=group))
        if not rows:
            raise UnknownGroup(f"queue {queue!r} has no group {group!r}", queue=queue, group=group)
        return rows[0].lag

    async def leases(
        self, queue: str | None = None, group: str | None = None, *, live_only: bool = True, limit: int = 1000
    ) -> list[LeaseRow]:
        query = q.ListLeases(queue=queue, group=group, live_only=live_only, limit=limits.count(limit, "limit"))
        return [shown(row, LeaseRow) for row in await self._transport.ask(query)]

    async def ledger(
        self,
        queue: str | None = None,
        group: str | None = None,
        *,
        after: datetime | None = None,
        before: datetime | None = None,
    ) -> list[LedgerRow]:
        """What happened, in minutes, by queue, group and outcome; pushes have no group."""
        query = q.ReadLedger(
            queue=queue,
            group=group,
            after_at=instant_or_none(after, "after"),
            before_at=instant_or_none(before, "before"),
        )
        return [shown(row, LedgerRow) for row in await self._transport.ask(query)]
