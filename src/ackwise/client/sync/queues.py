# Generated from ../aio/queues.py by tools/async_to_sync.py: do not edit, change the source and run it again.
"""Queues: made, changed, looked at."""

from __future__ import annotations

from typing import Any

from ackwise.client.policies import policy_fields
from ackwise.client.rows import BrowsedMessage, QueueInfo, Stats, browsed, shown
from ackwise.client.sync.messages import MessageVerbs
from ackwise.core import limits
from ackwise.core import queries as q
from ackwise.core.commands import ConfigureQueue, DeleteQueue, PauseQueue
from ackwise.core.policy import QueuePolicy


class QueueVerbs(MessageVerbs):
    """The verbs about queues."""

    def create_queue(
        self,
        name: str,
        policy: QueuePolicy | None = None,
        /,
        *,
        namespace: str | None = None,
        task: str | None = None,
        exist_ok: bool = False,
        **fields: Any,
    ) -> QueueInfo:
        """Make a queue, with the fields of `QueuePolicy` as keywords: `create_queue("orders", retry_limit=5)`."""
        command = ConfigureQueue(
            queue=name,
            policy=policy_fields(policy, fields),
            namespace=namespace,
            task=task,
            must_be_new=not exist_ok,
        )
        return shown(self._transport.send(command), QueueInfo)

    def configure_queue(
        self,
        name: str,
        policy: QueuePolicy | None = None,
        /,
        *,
        replace: bool = False,
        namespace: str | None = None,
        task: str | None = None,
        **fields: Any,
    ) -> QueueInfo:
        """Change these fields of a queue's policy; with `replace` all others go back to their defaults."""
        command = ConfigureQueue(
            queue=name, policy=policy_fields(policy, fields), namespace=namespace, task=task, replace=replace
        )
        return shown(self._transport.send(command), QueueInfo)

    def delete_queue(self, name: str) -> None:
        """Delete a queue with all its messages; leases on it are void at once."""
        self._transport.send(DeleteQueue(queue=name))

    def pause_queue(self, name: str) -> QueueInfo:
        """Stop handing out its messages; pushes and settlements go on."""
        return shown(self._transport.send(PauseQueue(queue=name, paused=True)), QueueInfo)

    def resume_queue(self, name: str) -> QueueInfo:
        return shown(self._transport.send(PauseQueue(queue=name, paused=False)), QueueInfo)

    def queue(self, name: str) -> QueueInfo:
        return shown(self._transport.ask(q.GetQueue(queue=name)), QueueInfo)

    def queues(self, *, namespace: str | None = None, task: str | None = None) -> list[QueueInfo]:
        rows = self._transport.ask(q.ListQueues(namespace=namespace, task=task))
        return [shown(row, QueueInfo) for row in rows]

    def browse(
        self,
        queue: str,
        *,
        partition: str | None = None,
        group: str | None = None,
        after: BrowsedMessage | None = None,
        limit: int = 100,
    ) -> list[BrowsedMessage]:
        """Look at messages without taking them. `after` is the last message of the previous page.

        The store answers in pages of a bounded size. `browse` asks until it has `limit` messages or none is left.
        """
        query = q.Browse(
            queue=queue,
            partition=partition,
            group=group,
            after=None if after is None else (after.lane, after.seq),
            limit=limits.count(limit, "limit"),
        )
        found: list[BrowsedMessage] = []
        while query.limit > 0 and (rows := self._transport.ask(query)):
            found += map(browsed, rows)
            query.after, query.limit = (found[-1].lane, found[-1].seq), limit - len(found)
        return found

    def stats(self, queue: str) -> Stats:
        return shown(self._transport.ask(q.QueueStats(queue=queue)), Stats)
