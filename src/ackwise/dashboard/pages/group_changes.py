"""Changes of a group: seek with a preview, and delete."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

import msgspec
from starlette.responses import Response

from ackwise.core.commands import DeleteGroup, SeekGroup
from ackwise.core.errors import AckwiseError, BadInput
from ackwise.core.queries import GetGroup, PreviewSeek
from ackwise.core.rows import SeekPreview
from ackwise.core.versions import ANY
from ackwise.dashboard import filters
from ackwise.dashboard.filters import group_name
from ackwise.dashboard.request import PageRequest
from ackwise.dashboard.routes import CHANGE, get, post
from ackwise.wire import timestamps
from ackwise.wire.http_status import status_of

_LAST_SEQ = (1 << 40) - 1
_FIELDS = ("to", "at", "seq", "partition")


class Target(msgspec.Struct, frozen=True):
    """Target of a seek. `text` describes the target to the user."""

    to: Literal["start", "end"] | int
    by: Literal["time", "seq"]
    partition: str | None
    text: str


def _target(given: Mapping[str, str], now: int) -> Target:
    """The target of a filled form."""
    partition = given.get("partition") or None
    where = "every partition" if partition is None else f"partition {partition}"
    match given.get("to"):
        case "start":
            return Target("start", "time", partition, f"the start of {where}")
        case "end":
            return Target("end", "time", partition, f"the end of {where}")
        case "time":
            instant = filters.instant(given.get("at"), "time", now)
            if instant is None:
                raise BadInput("write the time to seek to, such as 1h or 2030-01-31T12:00:00Z")
            return Target(instant, "time", partition, f"{timestamps.text(instant)} in {where}")
        case "seq":
            seq = filters.number(given.get("seq"), "seq", _LAST_SEQ)
            if seq is None or partition is None:
                raise BadInput("a seek to a seq needs the seq and the partition")
            return Target(seq, "seq", partition, f"seq {seq:,} of {where}")
    raise BadInput("choose the start, the end, a time or a seq")


def _fixed_end(target: Target, now: int) -> Target:
    """The end as of now: messages that come after the preview are not skipped."""
    return Target(now + 1, "time", target.partition, target.text) if target.to == "end" else target


async def ask_seek(page: PageRequest) -> Response:
    """The form, and a preview if the user has chosen a target. Changes nothing."""
    page.require(CHANGE)
    queue, group = page.params["queue"], page.params["group"]
    details = await page.ask(GetGroup(queue=queue, group=group))
    target: Target | None = None
    preview: SeekPreview | None = None
    problem, status = "", 200
    if page.query.get("to"):
        try:
            target = _fixed_end(_target(page.query, page.broker.wall()), page.broker.wall())
            query = PreviewSeek(queue=queue, group=group, to=target.to, by=target.by, partition=target.partition)
            preview = await page.ask(query)
        except AckwiseError as error:
            problem, status = error.message, status_of(error)
    return page.render(
        "seek.html.j2", status, queue=queue, group=group, details=details, target=target, preview=preview,
        given={field: page.query.get(field, "") for field in _FIELDS}, problem=problem,
        fixed={} if target is None else _fixed(target),
    )  # fmt: skip


def _fixed(target: Target) -> dict[str, str]:
    """The target as hidden fields, with an exact time."""
    kind = target.to if isinstance(target.to, str) else target.by
    at = timestamps.text(target.to) if kind == "time" and isinstance(target.to, int) else ""
    return {
        "to": str(kind), "at": at, "seq": str(target.to) if kind == "seq" else "", "partition": target.partition or "",
    }  # fmt: skip


async def seek(page: PageRequest) -> Response:
    queue, group = page.params["queue"], page.params["group"]
    target = _target(page.form, page.broker.wall())
    command = SeekGroup(
        queue=queue, group=group, to=target.to, by=target.by, partition=target.partition,
        version=page.form.get("version") or ANY,
    )  # fmt: skip
    await page.send(command)
    return page.redirect(page.link("groups", queue, group), f"Group {group_name(group)} moved to {target.text}.")


async def ask_delete(page: PageRequest, error: str = "", status: int = 200) -> Response:
    page.require(CHANGE)
    queue, group = page.params["queue"], page.params["group"]
    details = await page.ask(GetGroup(queue=queue, group=group))
    stats, version = details.stats, page.form.get("version") or details.version
    return page.confirm(
        title=f"Delete group {group_name(group)}",
        action=f"{page.link('groups', queue, group)}/delete",
        question=f"Delete group {group_name(group)} of queue {queue} with its positions and leases?",
        details=(
            f"{stats.lag:,} messages that it has not finished; the queue keeps them",
            f"{stats.leases:,} leases, which end; their consumers can no longer settle",
            f"{stats.dead:,} dead letters, which stay and can be replayed as new messages",
        ),
        fields={"version": version},
        typed=group_name(group),
        button="Delete group",
        back=page.link("groups", queue, group),
        error=error,
        status=status,
    )


async def delete(page: PageRequest) -> Response:
    queue, group = page.params["queue"], page.params["group"]
    if not page.typed(group_name(group)):
        return await ask_delete(page, "The name differs from the group's name. Nothing was deleted.", 400)
    await page.send(DeleteGroup(queue=queue, group=group, version=page.form.get("version") or ANY))
    return page.redirect(page.link("groups", queue=queue), f"Group {group_name(group)} deleted.")


ROUTES = (
    get("/groups/{queue}/{group}/seek", ask_seek),
    post("/groups/{queue}/{group}/seek", seek),
    get("/groups/{queue}/{group}/delete", ask_delete),
    post("/groups/{queue}/{group}/delete", delete),
)
