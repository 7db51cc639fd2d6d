"""Changes of dead letters: redrive, replay and purge. A page asks first, and a job does the work."""

from __future__ import annotations

from typing import cast

from starlette.responses import Response

from ackwise.core.errors import BadInput
from ackwise.dashboard.dead_letter_jobs import DONE, MOST_REFUSED, Action
from ackwise.dashboard.dead_selection import DeadSelection, selection
from ackwise.dashboard.request import PageRequest
from ackwise.dashboard.routes import CHANGE, get, post

PAGE = "dead-letters"
_ACTIONS = {
    "redrive": ("Redrive", "return to their old positions in their groups, with 0 failures"),
    "replay": ("Replay", "are pushed as new messages at the end of their partitions, and then removed"),
    "purge": ("Purge", "are deleted permanently"),
}
"""Text of the button, and the effect on the letters."""
EVERY = "all dead letters"
"""Text that confirms a purge without a queue."""


def _action(page: PageRequest) -> Action:
    name = page.params["action"]
    if name not in DONE:
        raise BadInput(f"dead letters can be redriven, replayed or purged, not {name!r:.40}")
    return cast("Action", name)


async def ask(page: PageRequest) -> Response:
    """Show the number of matching letters and a confirmation. Changes nothing."""
    page.require(CHANGE)
    job_id = page.query.get("job")
    if job_id:
        chosen = DeadSelection(ids=tuple(page.dashboard.jobs.find(job_id).refused))
    else:
        chosen = selection(page.query, page.broker.wall(), page.query.getlist("id"))
        if "selection" in page.query and chosen.ids is None:
            raise BadInput("no dead letter is selected; tick the letters of the list first")
    if chosen.ids is None:
        chosen = chosen.until_at(page.broker.wall())
    return await _confirm(page, _action(page), chosen)


async def _confirm(
    page: PageRequest, action: Action, chosen: DeadSelection, error: str = "", status: int = 200
) -> Response:
    count = await chosen.count(page.broker)
    back = page.link(PAGE, **chosen.keywords()) if chosen.ids is None else page.link(PAGE)
    if not count:
        return page.redirect(back, "No dead letter matches any more. Nothing was changed.")
    verb, effect = _ACTIONS[action]
    letters = "1 dead letter" if count == 1 else f"{count:,} dead letters"
    details = [f"The letters {effect}.", *chosen.details()]
    if chosen.ids is not None:
        details.append(f"{len(chosen.ids):,} selected by id")
        if len(chosen.ids) > count:
            details.append(f"{len(chosen.ids) - count:,} of them are gone: redriven or purged before")
    everything = action == "purge" and chosen.ids is None
    return page.confirm(
        title=f"{verb} {letters}",
        action=page.link(PAGE, "actions", action),
        question=f"{verb} {letters}?",
        details=details,
        fields=chosen.fields() | {"count": str(count)},
        typed=_typed(chosen) if everything else None,
        button=f"{verb} {letters}",
        back=back,
        error=error,
        status=status,
    )


def _typed(chosen: DeadSelection) -> str:
    """Text that confirms a purge by filter: the queue's name if the filter has one, else `EVERY`."""
    return chosen.queue or EVERY


async def start(page: PageRequest) -> Response:
    """Begin a job with the confirmed selection."""
    action = _action(page)
    chosen = selection(page.form, page.broker.wall())
    if chosen.ids is None:
        chosen = chosen.until_at(page.broker.wall())
        if action == "purge" and not page.typed(_typed(chosen)):
            problem = f"The text differs from {_typed(chosen)!r}. Nothing was purged."
            return await _confirm(page, action, chosen, problem, 400)
    total = await chosen.count(page.broker)
    if not total:
        return page.redirect(page.link(PAGE), "No dead letter matches any more. Nothing was changed.")
    job = page.dashboard.jobs.start(page.broker, action, chosen, total)
    return page.redirect(page.link(PAGE, "jobs", job.id))


async def show_job(page: PageRequest) -> Response:
    job = page.dashboard.jobs.find(page.params["id"])
    return page.render("dead_letter_job.html.j2", job=job, most_refused=MOST_REFUSED, verb=_ACTIONS[job.action][0])


async def stop_job(page: PageRequest) -> Response:
    job = page.dashboard.jobs.find(page.params["id"])
    job.stopped = job.stopped or job.is_running
    return page.redirect(page.link(PAGE, "jobs", job.id), "The job stops after its current chunk.")


ROUTES = (
    get("/dead-letters/jobs/{id}", show_job),
    post("/dead-letters/jobs/{id}/stop", stop_job),
    get("/dead-letters/actions/{action}", ask),
    post("/dead-letters/actions/{action}", start),
)
