"""Changes of one queue: its policy, pause and resume, purge, delete."""

from __future__ import annotations

from collections.abc import Mapping

from starlette.responses import Response

from ackwise.core.answers import QueueInfo
from ackwise.core.commands import ConfigureQueue, DeleteQueue, PauseQueue, PurgeQueue
from ackwise.core.errors import AckwiseError, BadInput, PreconditionFailed
from ackwise.core.queries import GetQueue, PreviewPurge, QueueStats
from ackwise.core.versions import queue_version
from ackwise.dashboard.formats import counted
from ackwise.dashboard.policy_form import GROUPS, errors_of, policy_of, texts_of
from ackwise.dashboard.request import PageRequest
from ackwise.dashboard.routes import CHANGE, get, post
from ackwise.wire.http_status import status_of

NOT_TYPED = "The name that you typed is not the name of the queue. Nothing was changed."
MOST_GROUPS = 20
"""Groups that the confirmation of a purge lists."""


async def ask_edit(page: PageRequest) -> Response:
    page.require(CHANGE)
    info = await page.ask(GetQueue(queue=page.params["queue"]))
    return _edit(page, info.name, _texts(info), queue_version(info))


async def edit(page: PageRequest) -> Response:
    queue, form = page.params["queue"], page.form
    version = form.get("version", "")
    try:
        command = ConfigureQueue(
            queue=queue,
            policy=policy_of(form),
            namespace=form.get("namespace", "").strip(),
            task=form.get("task", "").strip(),
            version=version,
        )
        await page.send(command)
    except PreconditionFailed as problem:
        info = await page.ask(GetQueue(queue=queue))
        return _edit(page, queue, form, queue_version(info), problem=problem, stored=_texts(info))
    except BadInput as problem:
        return _edit(page, queue, form, version, problem=problem)
    return page.redirect(page.link("queues", queue), f"Saved the policy of {queue}.")


def _texts(info: QueueInfo) -> dict[str, str]:
    return {**texts_of(info.policy), "namespace": info.namespace, "task": info.task}


def _edit(
    page: PageRequest,
    queue: str,
    texts: Mapping[str, str],
    version: str,
    *,
    problem: AckwiseError | None = None,
    stored: Mapping[str, str] | None = None,
) -> Response:
    """The form. After an error it keeps the user's texts. `stored` are the texts of a newer version."""
    return page.render(
        "queue_edit.html.j2",
        200 if problem is None else status_of(problem),
        queue=queue,
        texts=texts,
        version=version,
        errors={} if problem is None or stored is not None else errors_of(problem),
        groups=GROUPS,
        stored=stored,
    )


async def pause(page: PageRequest) -> Response:
    return await _set_paused(page, True, "Paused {}. Pushes still work.")


async def resume(page: PageRequest) -> Response:
    return await _set_paused(page, False, "Resumed {}.")


async def _set_paused(page: PageRequest, paused: bool, notice: str) -> Response:
    queue = page.params["queue"]
    await page.send(PauseQueue(queue=queue, paused=paused))
    return page.redirect(page.link("queues", queue), notice.format(queue))


async def ask_purge(page: PageRequest, error: str = "", status: int = 200) -> Response:
    page.require(CHANGE)
    queue = page.params["queue"]
    preview = await page.ask(PreviewPurge(queue=queue))
    details = [counted(preview.messages, "stored message"), counted(preview.scheduled, "scheduled message")]
    details += [f"Group {group.group}: {group.skipped:,} of them unfinished" for group in preview.groups[:MOST_GROUPS]]
    if len(preview.groups) > MOST_GROUPS:
        details.append(f"and {counted(len(preview.groups) - MOST_GROUPS, 'more group')}")
    return page.confirm(
        title=f"Purge the queue {queue}?",
        question="The purge removes these messages permanently. Messages that arrive from now on stay. The groups and "
        f"{counted(preview.dead, 'dead letter')} stay, too.",
        details=details,
        fields={"until": str(preview.until)},
        action=page.link("queues", queue, "purge"),
        button="Purge queue",
        back=page.link("queues", queue),
        typed=queue,
        error=error,
        status=status,
    )


async def purge(page: PageRequest) -> Response:
    queue, until = page.params["queue"], page.form.get("until", "")
    if not page.typed(queue):
        return await ask_purge(page, NOT_TYPED, 400)
    if not until.isascii() or not until.isdigit():
        raise BadInput("the form has no time up to which it removes messages; open the page again")
    purged = await page.send(PurgeQueue(queue=queue, until=int(until[:19])))
    removed = f"{counted(purged.messages, 'stored message')} and {counted(purged.scheduled, 'scheduled message')}"
    return page.redirect(page.link("queues", queue), f"Removed {removed} of {queue}.")


async def ask_delete(page: PageRequest, error: str = "", status: int = 200) -> Response:
    page.require(CHANGE)
    queue = page.params["queue"]
    stats = await page.ask(QueueStats(queue=queue))
    lost = (
        (stats.messages, "stored message"),
        (stats.scheduled, "scheduled message"),
        (stats.dead, "dead letter"),
        (sum(group.leases for group in stats.groups), "live lease"),
        (len(stats.groups), "group"),
    )
    return page.confirm(
        title=f"Delete the queue {queue}?",
        question="The queue is deleted permanently, with:",
        details=[counted(number, what) for number, what in lost],
        action=page.link("queues", queue, "delete"),
        button="Delete queue",
        back=page.link("queues", queue),
        typed=queue,
        error=error,
        status=status,
    )


async def delete(page: PageRequest) -> Response:
    queue = page.params["queue"]
    if not page.typed(queue):
        return await ask_delete(page, NOT_TYPED, 400)
    await page.send(DeleteQueue(queue=queue))
    return page.redirect(page.link("queues"), f"Deleted the queue {queue}.")


ROUTES = (
    get("/queues/{queue}/edit", ask_edit),
    post("/queues/{queue}/edit", edit),
    post("/queues/{queue}/pause", pause),
    post("/queues/{queue}/resume", resume),
    get("/queues/{queue}/purge", ask_purge),
    post("/queues/{queue}/purge", purge),
    get("/queues/{queue}/delete", ask_delete),
    post("/queues/{queue}/delete", delete),
)
