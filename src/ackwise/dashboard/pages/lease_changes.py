"""Changes of one lease: extend it, or release its messages."""

from __future__ import annotations

from starlette.responses import Response

from ackwise.core.commands import Extend, release_command
from ackwise.core.errors import LeaseLost
from ackwise.core.queries import GetLease
from ackwise.core.settlement import Verdict
from ackwise.core.validation import lease_micros
from ackwise.dashboard.formats import counted, exact
from ackwise.dashboard.policy_form import duration_of
from ackwise.dashboard.request import PageRequest
from ackwise.dashboard.routes import CHANGE, get, post

DEFAULT_EXTENSION = "60s"


async def extend(page: PageRequest) -> Response:
    """Move the deadline by a time."""
    lease = await page.ask(GetLease(lease_id=page.params["lease"]))
    length = lease_micros(duration_of(page.form.get("for", "") or DEFAULT_EXTENSION, "the time"))
    answer = await page.send(Extend(lease_id=lease.lease_id, add=length))
    if answer.deadline is None:
        raise LeaseLost(f"lease {lease.lease_id} has ended; its messages may have another holder")
    until = exact(page.broker.wall_of(answer.deadline))
    return page.redirect(page.link("queues", lease.queue), f"Lease {lease.lease_id} ends at {until}.")


async def ask_release(page: PageRequest) -> Response:
    page.require(CHANGE)
    lease = await page.ask(GetLease(lease_id=page.params["lease"]))
    return page.confirm(
        title=f"Release the lease {lease.lease_id}?",
        question=f"The queue {lease.queue} gets back {counted(lease.held, 'message')}. A release counts no failure.",
        details=[
            f"Group: {lease.group}",
            f"Owner: {lease.owner or 'without a name'}. The owner can no longer settle the messages.",
        ],
        action=page.link("leases", lease.lease_id, "release"),
        button="Release lease",
        back=page.link("queues", lease.queue),
    )


async def release(page: PageRequest) -> Response:
    lease = await page.ask(GetLease(lease_id=page.params["lease"]))
    (settled,) = await page.send(release_command([lease.lease_id]))
    if settled.verdict is not Verdict.RELEASED:
        raise LeaseLost(f"lease {lease.lease_id} has ended; there is nothing to release")
    notice = f"Released {counted(settled.count, 'message')} of the lease {lease.lease_id}."
    return page.redirect(page.link("queues", lease.queue), notice)


ROUTES = (
    post("/leases/{lease}/extend", extend),
    get("/leases/{lease}/release", ask_release),
    post("/leases/{lease}/release", release),
)
