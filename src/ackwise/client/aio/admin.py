"""Methods of a connection that manage queues, groups and dead letters."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from typing import Literal, Unpack

import msgspec

from ackwise.client.aio.messages import AsyncMessageVerbs
from ackwise.client.options import PolicyFields, Start, group_policy, policy_fields, start_position
from ackwise.client.results import (
    BrowsedMessage,
    ConsumerRow,
    CursorRow,
    DeadKind,
    DeadLetter,
    DeadLetters,
    GroupStats,
    Hook,
    LeaseRow,
    LedgerRow,
    PurgePreview,
    QueueInfo,
    SeekPreview,
    Stats,
    TimeSeries,
    as_result,
    browsed_message,
)
from ackwise.core import queries as q
from ackwise.core import rows as core_rows
from ackwise.core import validation
from ackwise.core.answers import PurgedQueue, Redriven
from ackwise.core.commands import (
    ConfigureGroup,
    ConfigureQueue,
    DeleteGroup,
    DeleteQueue,
    PauseQueue,
    PurgeDead,
    PurgeQueue,
    Redrive,
    RemoveHook,
    Replay,
    SeekGroup,
    SetHook,
)
from ackwise.core.errors import BadInput, UnknownDeadLetter, UnknownGroup
from ackwise.core.policy import Backoff, QueuePolicy
from ackwise.core.validation import Seconds
from ackwise.wire.timestamps import instant, instant_or_none


class AsyncQueueVerbs(AsyncMessageVerbs):
    """Create, configure, pause, delete, list and browse queues."""

    async def create_queue(
        self,
        name: str,
        policy: QueuePolicy | None = None,
        /,
        *,
        namespace: str | None = None,
        task: str | None = None,
        exist_ok: bool = False,
        **fields: Unpack[PolicyFields],
    ) -> QueueInfo[datetime]:
        """Create a queue. The fields of `QueuePolicy` are keywords: `create_queue("orders", retry_limit=5)`.

        A queue has a backoff and `retry_limit` 8 unless you name these fields. A `policy` is taken whole: its
        other fields have the defaults of `QueuePolicy`, which has no backoff.

        If the queue exists, `create_queue` raises `QueueExists`. With `exist_ok` it changes the given fields instead.
        """
        command = ConfigureQueue(
            queue=name,
            policy=policy_fields(policy, fields),
            create=self.new_queue_policy,
            namespace=namespace,
            task=task,
            must_be_new=not exist_ok,
        )
        return as_result(await self._transport.send(command), QueueInfo[datetime])

    async def configure_queue(
        self,
        name: str,
        policy: QueuePolicy | None = None,
        /,
        *,
        replace: bool = False,
        namespace: str | None = None,
        task: str | None = None,
        **fields: Unpack[PolicyFields],
    ) -> QueueInfo[datetime]:
        """Change the given fields of a queue's policy. With `replace` all other fields get their defaults."""
        command = ConfigureQueue(
            queue=name,
            policy=policy_fields(policy, fields),
            create=self.new_queue_policy,
            namespace=namespace,
            task=task,
            replace=replace,
        )
        return as_result(await self._transport.send(command), QueueInfo[datetime])

    async def delete_queue(self, name: str) -> None:
        """Delete a queue with all its messages. Leases of its messages end at once."""
        await self._transport.send(DeleteQueue(queue=name))

    async def preview_purge(self, name: str) -> PurgePreview[datetime]:
        """Count what a purge would remove now, and what each group would skip. Changes nothing."""
        return as_result(await self._transport.ask(q.PreviewPurge(queue=name)), PurgePreview[datetime])

    async def purge_queue(self, name: str, *, until: datetime | None = None) -> PurgedQueue:
        """Remove all messages of a queue that were stored up to `until`, or up to now. Scheduled messages too.

        Groups skip the messages that they have not finished. A lease loses its messages: a late settlement is
        `stale`. Dead letters stay. With the `until` of a preview, the purge removes no later message.
        """
        command = PurgeQueue(queue=name, until=instant_or_none(until, "until"), one_turn=True)
        while (answer := await self._transport.send(command)).more is not None:
            # Each call removes a bounded number of messages, so that no call waits long.
            command = msgspec.structs.replace(command, behind=answer.more)
        return answer

    async def pause_queue(self, name: str) -> QueueInfo[datetime]:
        """Pause a queue: claims get no messages of it. Pushes and settlements still work."""
        return as_result(await self._transport.send(PauseQueue(queue=name, paused=True)), QueueInfo[datetime])

    async def resume_queue(self, name: str) -> QueueInfo[datetime]:
        """Resume a paused queue."""
        return as_result(await self._transport.send(PauseQueue(queue=name, paused=False)), QueueInfo[datetime])

    async def queue(self, name: str) -> QueueInfo[datetime]:
        """Return a queue's settings. Raises `UnknownQueue` if it does not exist."""
        return as_result(await self._transport.ask(q.GetQueue(queue=name)), QueueInfo[datetime])

    async def queues(self, *, namespace: str | None = None, task: str | None = None) -> list[QueueInfo[datetime]]:
        """List queues: all, or those of a namespace or task."""
        rows = await self._transport.ask(q.ListQueues(namespace=namespace, task=task))
        return [as_result(row, QueueInfo[datetime]) for row in rows]

    async def browse(
        self,
        queue: str,
        *,
        partition: str | None = None,
        group: str | None = None,
        after: BrowsedMessage | None = None,
        limit: int = 100,
    ) -> list[BrowsedMessage]:
        """Read up to `limit` messages without claiming them.

        With `group` each message has its state for that group. For the next page, pass the last message as `after`.
        """
        query = q.Browse(
            queue=queue,
            partition=partition,
            group=group,
            after=None if after is None else (after.lane, after.seq),
            limit=validation.count(limit, "limit"),
        )
        messages: list[BrowsedMessage] = []
        # The store bounds the size of a page, so that one page may be too short.
        while query.limit > 0 and (rows := await self._transport.ask(query)):
            messages += map(browsed_message, rows)
            query.after, query.limit = (messages[-1].lane, messages[-1].seq), limit - len(messages)
        return messages

    async def stats(self, queue: str) -> Stats[datetime]:
        """Count a queue's messages, in all and by group."""
        return as_result(await self._transport.ask(q.QueueStats(queue=queue)), Stats[datetime])


Letters = str | DeadLetter | Iterable[str | DeadLetter]


class AsyncDeadLetterVerbs(AsyncMessageVerbs):
    """List, redrive, replay and purge dead letters."""

    async def dead_letters(
        self,
        queue: str | None = None,
        *,
        group: str | None = None,
        partition: str | None = None,
        reason: str | None = None,
        kind: str | None = None,
        after: datetime | None = None,
        before: datetime | None = None,
        limit: int = 100,
        offset: int = 0,
    ) -> DeadLetters:
        """List dead letters, newest first: up to `limit` of them after the first `offset`.

        `kind` is an error without its variable parts, as `dead_kinds` returns it.
        """
        query = q.ListDead(
            queue=queue,
            group=group,
            partition=partition,
            reason=reason,
            kind=kind,
            after_at=instant_or_none(after, "after"),
            before_at=instant_or_none(before, "before"),
            limit=validation.count(limit, "limit"),
            offset=validation.count(offset, "offset", least=0, most=1 << 62),
        )
        page = await self._transport.ask(query)
        letters, place = page.letters, page.next
        # The store bounds the size of a page, so that one page may be too short.
        while place is not None and len(letters) < limit:
            query.after, query.offset, query.limit = place, 0, limit - len(letters)
            following = await self._transport.ask(query)
            letters, place = letters + following.letters, following.next
        return DeadLetters(core_rows.DeadPage(letters, page.total))

    async def dead_kinds(
        self,
        queue: str | None = None,
        *,
        group: str | None = None,
        partition: str | None = None,
        reason: str | None = None,
        after: datetime | None = None,
        before: datetime | None = None,
        limit: int = 100,
    ) -> list[DeadKind[datetime]]:
        """Count dead letters by queue and kind of error, the most frequent first: up to `limit` kinds.

        The kind is the error with numbers, ids, times and quoted texts replaced: `order <n> not found`.
        """
        query = q.ListDeadKinds(
            queue=queue,
            group=group,
            partition=partition,
            reason=reason,
            after_at=instant_or_none(after, "after"),
            before_at=instant_or_none(before, "before"),
            limit=validation.count(limit, "limit", most=q.ListDeadKinds.LARGEST_LIMIT),
        )
        return [as_result(row, DeadKind[datetime]) for row in await self._transport.ask(query)]

    async def redrive(self, letters: Letters) -> Redriven:
        """Return dead letters to their group, at their old position in the queue, with no failures counted.

        Raises `UnknownDeadLetter` if none of the letters exists. Otherwise the answer has a result for each.
        """
        return _found(await self._transport.send(Redrive(ids=_ids(letters))))

    async def replay(self, letters: Letters, *, queue: str | None = None, partition: str | None = None) -> Redriven:
        """Push a copy of each dead letter and remove the dead letter.

        The copy goes to the original queue and partition, or to `queue` and `partition`. Raises `UnknownDeadLetter` if
        none of the letters exists.
        """
        return _found(await self._transport.send(Replay(ids=_ids(letters), queue=queue, partition=partition)))

    async def purge_dead(
        self, letters: Letters | None = None, *, queue: str | None = None, group: str | None = None
    ) -> int:
        """Delete the given dead letters, or all of a queue or group. Returns how many."""
        if letters is None and queue is None and group is None:
            raise BadInput("purge_dead needs dead letters, a queue or a group")
        ids = None if letters is None else _ids(letters)
        return (await self._transport.send(PurgeDead(ids=ids, queue=queue, group=group))).count

    async def set_on_dead(self, queue: str, url: str, *, include_payload: bool = False) -> Hook:
        """Let a server post each dead letter of a queue to a URL, from now on. Resumes a paused webhook.

        The server must be allowed to post to the URL's host. Without a server on this store, nothing is posted.
        """
        command = SetHook(queue=queue, url=url, include_payload=include_payload)
        return as_result(await self._transport.send(command), Hook)

    async def remove_on_dead(self, queue: str) -> bool:
        """Remove the webhook of a queue. False if it has none."""
        return (await self._transport.send(RemoveHook(queue=queue))).count > 0

    async def hooks(self, queue: str) -> list[Hook]:
        """The hooks of a queue's dead letters: its webhook, and the `on_dead` functions of apps."""
        return [as_result(hook, Hook) for hook in await self._transport.ask(q.ListHooks(queue=queue))]


def _found(answer: Redriven) -> Redriven:
    """The answer, unless it found no letter at all."""
    unknown = [letter_id for letter_id, result in answer.results.items() if result == "not_found"]
    if unknown and len(unknown) == len(answer.results):
        raise UnknownDeadLetter(f"there is no dead letter {unknown[0]!r}; list the dead letters to see their ids")
    return answer


def _ids(letters: Letters) -> list[str]:
    if isinstance(letters, str | DeadLetter):
        letters = [letters]
    return [letter.id if isinstance(letter, DeadLetter) else letter for letter in letters]


def _seek_target(
    to: Literal["start", "end"] | datetime | int,
) -> tuple[Literal["start", "end"] | int, Literal["time", "seq"]]:
    """The target of a seek, and whether it is an instant or a seq."""
    if isinstance(to, int) and not isinstance(to, bool):
        return to, "seq"
    if isinstance(to, datetime):
        return instant(to, "to"), "time"
    if to in ("start", "end"):
        return to, "time"
    raise BadInput(f"`to` must be 'start', 'end', a datetime or a seq, not {to!r}")


class AsyncGroupVerbs(AsyncMessageVerbs):
    """Create, seek, delete and list groups. List leases. Read the ledger."""

    async def create_group(
        self,
        queue: str,
        group: str,
        *,
        start: Start = "all",
        retry_limit: int | msgspec.UnsetType | None = msgspec.UNSET,
        backoff: Backoff | msgspec.UnsetType = msgspec.UNSET,
    ) -> None:
        """Create a group that starts at all messages, at new ones only, or at a datetime.

        `retry_limit` and `backoff` override the queue's policy for this group.
        """
        policy = group_policy(retry_limit, backoff)
        await self._transport.send(ConfigureGroup(queue=queue, group=group, start=start_position(start), policy=policy))

    async def seek(
        self, queue: str, group: str, *, to: Literal["start", "end"] | datetime | int, partition: str | None = None
    ) -> int:
        """Move a group's position. Returns how many lanes moved.

        `to` is `"start"`, `"end"`, a datetime, or with `partition` a seq. The group's leases on those lanes end.
        """
        target, by = _seek_target(to)
        command = SeekGroup(queue=queue, group=group, to=target, by=by, partition=partition)
        return (await self._transport.send(command)).count

    async def preview_seek(
        self, queue: str, group: str, *, to: Literal["start", "end"] | datetime | int, partition: str | None = None
    ) -> SeekPreview:
        """Count the messages that a seek would deliver again and those that it would skip. Changes nothing."""
        target, by = _seek_target(to)
        return await self._transport.ask(q.PreviewSeek(queue=queue, group=group, to=target, by=by, partition=partition))

    async def delete_group(self, queue: str, group: str) -> None:
        """Delete a group and its leases. Its dead letters stay."""
        await self._transport.send(DeleteGroup(queue=queue, group=group))

    async def groups(self, queue: str | None = None) -> list[GroupStats[datetime]]:
        """List groups with their counts: all, or those of one queue."""
        return [as_result(row, GroupStats[datetime]) for row in await self._transport.ask(q.ListGroups(queue=queue))]

    async def cursors(self, queue: str, group: str) -> list[CursorRow[datetime]]:
        """List a group's position in each lane."""
        rows = await self._transport.ask(q.ListCursors(queue=queue, group=group))
        return [as_result(row, CursorRow[datetime]) for row in rows]

    async def lag(self, queue: str, group: str) -> int:
        """Count the messages that the group has not finished: unread and held."""
        rows = await self._transport.ask(q.ListGroups(queue=queue, group=group))
        if not rows:
            raise UnknownGroup(f"queue {queue!r} has no group {group!r}", queue=queue, group=group)
        return rows[0].lag

    async def leases(
        self, queue: str | None = None, group: str | None = None, *, live_only: bool = True, limit: int = 1000
    ) -> list[LeaseRow[datetime]]:
        """List up to `limit` leases: all, or those of a queue or group."""
        query = q.ListLeases(queue=queue, group=group, live_only=live_only, limit=validation.count(limit, "limit"))
        return [as_result(row, LeaseRow[datetime]) for row in await self._transport.ask(query)]

    async def oldest_leases(self, queue: str | None = None, *, limit: int = 10) -> list[LeaseRow[datetime]]:
        """List up to `limit` live leases (at most 1000), oldest first: all, or those of a queue."""
        most = q.ListOldestLeases.LARGEST_LIMIT
        query = q.ListOldestLeases(queue=queue, limit=validation.count(limit, "limit", most=most))
        return [as_result(row, LeaseRow[datetime]) for row in await self._transport.ask(query)]

    async def consumers(
        self, queue: str | None = None, group: str | None = None, *, recent: Seconds = 60, limit: int = 1000
    ) -> list[ConsumerRow[datetime]]:
        """List up to `limit` consumers: owners of live leases, and of claims in the last `recent` seconds."""
        query = q.ListConsumers(
            queue=queue,
            group=group,
            recent=validation.micros(recent, "recent"),
            limit=validation.count(limit, "limit", most=q.ListConsumers.LARGEST_LIMIT),
        )
        return [as_result(row, ConsumerRow[datetime]) for row in await self._transport.ask(query)]

    async def ledger(
        self,
        queue: str | None = None,
        group: str | None = None,
        *,
        after: datetime | None = None,
        before: datetime | None = None,
    ) -> list[LedgerRow[datetime, float]]:
        """Read counts per minute, queue, group and outcome. Pushes have no group."""
        query = q.ReadLedger(
            queue=queue,
            group=group,
            after_at=instant_or_none(after, "after"),
            before_at=instant_or_none(before, "before"),
        )
        return [as_result(row, LedgerRow[datetime, float]) for row in await self._transport.ask(query)]

    async def ledger_series(
        self,
        queue: str | None = None,
        group: str | None = None,
        *,
        after: datetime,
        before: datetime,
        buckets: int = 60,
    ) -> TimeSeries[datetime]:
        """Count the ledger by outcome in equal time buckets of whole minutes, at most `buckets` (400) of them."""
        query = q.LedgerSeries(
            queue=queue,
            group=group,
            after_at=instant(after, "after"),
            before_at=instant(before, "before"),
            buckets=validation.count(buckets, "buckets", most=q.LedgerSeries.MOST_BUCKETS),
        )
        return as_result(await self._transport.ask(query), TimeSeries[datetime])
