"""Queues: the list with depths, rates and policies, and the form that creates one."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import msgspec
from starlette.responses import Response

from ackwise.core import validation
from ackwise.core.commands import ConfigureQueue
from ackwise.core.errors import AckwiseError, BadInput, Conflict
from ackwise.core.policy import NEW_QUEUE_POLICY
from ackwise.core.queries import ListStats
from ackwise.core.rows import Page, QueueSummary
from ackwise.dashboard.policy_form import GROUPS, errors_of, policy_of, summary, texts_of
from ackwise.dashboard.request import PageRequest
from ackwise.dashboard.routes import CHANGE, get, post
from ackwise.observability.depths import QueueDepth, depth_of
from ackwise.wire.http_status import status_of

PAGE_ROWS = 50
_FIRST_AFTER_SURROGATES, _LAST_BEFORE_SURROGATES = 0xE000, 0xD7FF


class ListedQueue(NamedTuple):
    """A row of the list."""

    summary: QueueSummary
    depth: QueueDepth
    policy: str


class QueueFilter(NamedTuple):
    """Filter of the list: prefix of the name, namespace and task."""

    prefix: str = ""
    namespace: str = ""
    task: str = ""
    after: str = ""

    def query(self) -> ListStats:
        return ListStats(
            namespace=self.namespace or None,
            task=self.task or None,
            after=max(self.after, before_prefix(self.prefix)),
            limit=PAGE_ROWS,
        )


def before_prefix(prefix: str) -> str:
    """A text that sorts before all names with the prefix, and after almost all other smaller names.

    The store compares names by their code points.
    """
    if not prefix:
        return ""
    last = ord(prefix[-1]) - 1
    if last < 1:
        return prefix[:-1]
    if last == _FIRST_AFTER_SURROGATES - 1:
        last = _LAST_BEFORE_SURROGATES
    return f"{prefix[:-1]}{chr(last)}\U0010ffff"


async def show(page: PageRequest) -> Response:
    given = (page.query.get(name, "") for name in QueueFilter._fields)
    chosen = QueueFilter(*(text[: validation.MAX_NAME] for text in given))
    summaries = await page.cached(("queues", *chosen), chosen.query())
    rows = [
        ListedQueue(row, depth_of(row.stats, paused=row.info.paused), summary(row.info.policy))
        for row in summaries
        if row.info.name.startswith(chosen.prefix)
    ]
    following = summaries.next if isinstance(summaries, Page) and len(rows) == len(summaries) else None
    rates = await page.rates()
    return page.render("queues.html.j2", rows=rows, rates=rates.queues, next=following, filter=chosen)


async def ask_new(page: PageRequest) -> Response:
    page.require(CHANGE)
    return _new(page, texts_of(msgspec.to_builtins(NEW_QUEUE_POLICY)))


async def create(page: PageRequest) -> Response:
    name = page.form.get("queue", "").strip()
    try:
        command = ConfigureQueue(
            queue=name,
            policy=policy_of(page.form),
            namespace=page.form.get("namespace", "").strip() or None,
            task=page.form.get("task", "").strip() or None,
            must_be_new=True,
        )
        await page.send(command)
    except (BadInput, Conflict) as problem:
        return _new(page, page.form, problem)
    return page.redirect(page.link("queues", name), f"Created the queue {name}.")


def _new(page: PageRequest, texts: Mapping[str, str], problem: AckwiseError | None = None) -> Response:
    """The form. After an error it has the user's texts and says what is wrong."""
    errors = {} if problem is None else errors_of(problem)
    status = 200 if problem is None else status_of(problem)
    return page.render("queue_new.html.j2", status, texts=texts, errors=errors, groups=GROUPS)


ROUTES = (
    get("/queues", show),
    get("/new-queue", ask_new),
    post("/new-queue", create),
)
