# Generated from ../aio/dead_letters.py by tools/async_to_sync.py: do not edit, change the source and run it again.
"""Dead letters: listed, put back, copied, forgotten."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime

from ackwise.client.moments import instant_or_none
from ackwise.client.rows import DeadLetter, DeadLetters
from ackwise.client.sync.messages import MessageVerbs
from ackwise.core import limits
from ackwise.core import queries as q
from ackwise.core.answers import Counted, Redriven
from ackwise.core.commands import PurgeDead, Redrive, Replay
from ackwise.core.errors import BadInput

Letters = str | DeadLetter | Iterable[str | DeadLetter]


class DeadLetterVerbs(MessageVerbs):
    """The verbs about dead letters."""

    def dead_letters(
        self,
        queue: str | None = None,
        *,
        group: str | None = None,
        partition: str | None = None,
        reason: str | None = None,
        after: datetime | None = None,
        before: datetime | None = None,
        limit: int = 100,
        offset: int = 0,
    ) -> DeadLetters:
        """Dead letters, newest first: `limit` of them behind the first `offset`.

        The store answers in pages of a bounded size. This call asks for as many pages as it needs.
        """
        query = q.ListDead(
            queue=queue,
            group=group,
            partition=partition,
            reason=reason,
            after_at=instant_or_none(after, "after"),
            before_at=instant_or_none(before, "before"),
            limit=limits.count(limit, "limit"),
            offset=limits.count(offset, "offset", least=0, most=1 << 62),
        )
        page: q.DeadPage = self._transport.ask(query)
        letters, place = page.letters, page.next
        while place is not None and len(letters) < limit:
            query.after, query.offset, query.limit = place, 0, limit - len(letters)
            following: q.DeadPage = self._transport.ask(query)
            letters, place = letters + following.letters, following.next
        return DeadLetters(q.DeadPage(letters, page.total))

    def redrive(self, letters: Letters) -> Redriven:
        """Put dead letters back for their own group at their old place, with a clean count."""
        redriven: Redriven = self._transport.send(Redrive(ids=_ids(letters)))
        return redriven

    def replay(self, letters: Letters, *, queue: str | None = None, partition: str | None = None) -> Redriven:
        """Push a copy of each, where it came from or elsewhere, and remove the dead letter."""
        redriven: Redriven = self._transport.send(Replay(ids=_ids(letters), queue=queue, partition=partition))
        return redriven

    def purge_dead(self, letters: Letters | None = None, *, queue: str | None = None, group: str | None = None) -> int:
        """Forget the named dead letters, or all of a queue or group; how many."""
        if letters is None and queue is None and group is None:
            raise BadInput("say what to purge: dead letters, a queue or a group")
        ids = None if letters is None else _ids(letters)
        counted: Counted = self._transport.send(PurgeDead(ids=ids, queue=queue, group=group))
        return counted.count


def _ids(letters: Letters) -> list[str]:
    if isinstance(letters, str | DeadLetter):
        letters = [letters]
    return [one.id if isinstance(one, DeadLetter) else one for one in letters]
