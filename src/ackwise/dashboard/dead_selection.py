"""Selection of dead letters: a filter or named letters, in query strings, hidden fields and queries."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

import msgspec

from ackwise.broker import AsyncBroker
from ackwise.core.error_kinds import LONGEST_KIND
from ackwise.core.errors import BadInput
from ackwise.core.messages import QUEUE_MODE
from ackwise.core.queries import CountDead, ListDead
from ackwise.core.rows import DeadPage
from ackwise.core.validation import LAST_INSTANT
from ackwise.dashboard.filters import DEFAULT_GROUP, group_name, instant
from ackwise.wire import timestamps

MOST_IDS = 1000
"""Letters that one form names. A filter selects any number."""
_NAMES = ("queue", "group", "partition", "reason", "kind")


class DeadSelection(msgspec.Struct, frozen=True):
    """Dead letters that match a filter, or those of `ids`. `after_at` and `before_at` bound the death, inclusive.

    `errorless` selects letters without an error text, whose kind is empty.
    """

    queue: str | None = None
    group: str | None = None
    partition: str | None = None
    reason: str | None = None
    kind: str | None = None
    errorless: bool = False
    since: str = ""
    until: str = ""
    after_at: int | None = None
    before_at: int | None = None
    ids: tuple[str, ...] | None = None

    @property
    def is_filtered(self) -> bool:
        given = (self.queue, self.group, self.partition, self.reason, self.error_kind, self.after_at, self.before_at)
        return any(value is not None for value in given)

    @property
    def error_kind(self) -> str | None:
        """The kind as queries take it: empty for letters without an error."""
        return "" if self.errorless else self.kind

    def listing(self, limit: int, after: tuple[int, int] | None = None) -> ListDead:
        """The query of one page."""
        if self.ids is not None:
            return ListDead(ids=list(self.ids), limit=limit)
        return ListDead(
            queue=self.queue, group=self.group, partition=self.partition, reason=self.reason, kind=self.error_kind,
            after_at=self.after_at, before_at=self.before_at, limit=limit, after=after,
        )  # fmt: skip

    async def count(self, broker: AsyncBroker) -> int:
        """How many letters match now."""
        if self.ids is not None:
            page: DeadPage = await broker.ask(ListDead(ids=list(self.ids), limit=0))
            return page.total
        query = CountDead(
            queue=self.queue, group=self.group, partition=self.partition, reason=self.reason, kind=self.error_kind,
            after_at=self.after_at, before_at=self.before_at,
        )  # fmt: skip
        return await broker.ask(query)

    def until_at(self, now: int) -> DeadSelection:
        """The same filter without letters that die later."""
        before = now if self.before_at is None else min(self.before_at, now)
        return msgspec.structs.replace(self, before_at=min(before, LAST_INSTANT))

    def keywords(self) -> dict[str, str | None]:
        """The filter as keywords of a query string, with times as the user wrote them."""
        return {
            "queue": self.queue, "group": None if self.group is None else group_name(self.group),
            "partition": self.partition, "reason": self.reason, "kind": self.kind,
            "errorless": "1" if self.errorless else None, "since": self.since, "until": self.until,
        }  # fmt: skip

    def fields(self) -> dict[str, str]:
        """The selection as hidden fields of a form, with exact times."""
        if self.ids is not None:
            return {"ids": " ".join(self.ids)}
        exact = {
            "since": timestamps.text_or_none(self.after_at),
            "until": timestamps.text_or_none(self.before_at),
        }
        return {key: value for key, value in {**self.keywords(), **exact}.items() if value}

    def details(self) -> list[str]:
        """The filter as lines of text. No line for a selection by id."""
        if self.ids is not None:
            return []
        lines = [("queue", self.queue), ("group", None if self.group is None else group_name(self.group)),
                 ("partition", self.partition), ("reason", self.reason), ("kind of error", self.kind)]  # fmt: skip
        texts = [f"{name}: {value}" for name, value in lines if value is not None]
        if self.errorless:
            texts.append("without an error text")
        if self.after_at is not None:
            texts.append(f"died since {timestamps.text(self.after_at)}")
        if self.before_at is not None:
            texts.append(f"died up to {timestamps.text(self.before_at)}")
        return texts


def selection(given: Mapping[str, str], now: int, ids: Sequence[str] = ()) -> DeadSelection:
    """The selection of a query string or a form. `ids` are its check boxes."""
    named = [*ids, *given.get("ids", "").split()]
    if named:
        if len(named) > MOST_IDS:
            raise BadInput(
                f"{len(named)} dead letters are selected, and one form takes {MOST_IDS}; select them with a filter"
            )
        if wrong := next((id for id in named if not re.fullmatch(r"[0-9a-fA-F-]{1,64}", id)), None):
            raise BadInput(f"{wrong!r:.80} is not the id of a dead letter")
        return DeadSelection(ids=tuple(dict.fromkeys(named)))
    names = {field: given.get(field) or None for field in _NAMES}
    if names["group"] == DEFAULT_GROUP:
        names["group"] = QUEUE_MODE
    if names["kind"] is not None and len(names["kind"]) > LONGEST_KIND:
        raise BadInput(f"kind is longer than {LONGEST_KIND} characters")
    since, until = given.get("since", ""), given.get("until", "")
    after_at, before_at = instant(since, "since", now), instant(until, "until", now)
    if after_at is not None and before_at is not None and after_at > before_at:
        raise BadInput("since is later than until; no dead letter can match")
    return DeadSelection(
        queue=names["queue"], group=names["group"], partition=names["partition"], reason=names["reason"],
        kind=names["kind"], errorless=bool(given.get("errorless")), since=since, until=until, after_at=after_at,
        before_at=before_at,
    )  # fmt: skip
