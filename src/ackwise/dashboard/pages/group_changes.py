"""Changes of a group: seek, with a preview of what moves, and delete."""

from __future__ import annotations

from starlette.responses import Response

from ackwise.core.commands import DeleteGroup
from ackwise.core.queries import GetGroup
from ackwise.core.versions import ANY
from ackwise.dashboard.filters import group_name
from ackwise.dashboard.request import PageRequest
from ackwise.dashboard.routes import get, post


async def ask_delete(page: PageRequest, error: str = "", status: int = 200) -> Response:
    queue, group = page.params["queue"], page.params["group"]
    details = await page.ask(GetGroup(queue=queue, group=group))
    stats, version = details.stats, page.form.get("version") or details.version
    return page.confirm(
        title=f"Delete group {group_name(group)}",
        action=f"{page.link('groups', queue, group)}/delete",
        question=f"Delete group {group_name(group)} of queue {queue} with its positions and leases?",
        details=(
            f"{stats.lag:,} messages that it has not finished; the queue keeps them",
            f"{stats.leases:,} leases, which end: their consumers cannot settle any more",
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
    get("/groups/{queue}/{group}/delete", ask_delete),
    post("/groups/{queue}/{group}/delete", delete),
)
