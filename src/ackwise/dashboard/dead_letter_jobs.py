"""Background jobs of dead letters: redrive, replay or purge a selection in bounded chunks, with progress."""

from __future__ import annotations

import itertools
import secrets
from collections import OrderedDict
from collections.abc import Mapping
from typing import Literal

from ackwise.broker import AsyncBroker
from ackwise.core.commands import PurgeDead, Redrive, Replay
from ackwise.core.errors import AckwiseError, BadInput, Conflict, NotFound, Overloaded
from ackwise.dashboard.dead_selection import DeadSelection
from ackwise.dashboard.live import DEAD, LiveEvents
from ackwise.dashboard.snapshots import Snapshots

Action = Literal["redrive", "replay", "purge"]
DONE: Mapping[Action, str] = {"redrive": "redriven", "replay": "replayed", "purge": "purged"}
"""Result of a letter on which the action succeeded."""
MOST_RUNNING = 4
"""Jobs that run at the same time."""
MOST_KEPT = 50
"""Jobs whose results stay visible."""
CHUNK = 200
"""Letters of one turn. Other commands wait while a turn runs."""
PAGE = 1000
"""Letters that one query reads."""
MOST_REPLAYED = 100_000
"""Letters of one replay: a job keeps their ids, because it pushes the oldest first."""
MOST_REFUSED = 1000
"""Refused letters whose ids a job keeps."""
GONE = ("not_found",)


class UnknownJob(NotFound):
    """There is no job with this id. The server keeps the newest jobs until it stops."""

    code = "unknown_job"


class DeadLetterJob:
    """One job: its action, its progress and the results of its letters."""

    def __init__(self, id: str, action: Action, selection: DeadSelection, total: int, now: int) -> None:
        self.id, self.action, self.selection = id, action, selection
        self.total = total
        """Letters that matched when the job began."""
        self.seen = 0
        """Letters that the job has handled."""
        self.results: dict[str, int] = {}
        """Number of letters by result."""
        self.refused: list[str] = []
        """Ids of the first letters that were refused."""
        self.started_at = now
        self.ended_at: int | None = None
        self.stopped = False
        self.error = ""

    @property
    def state(self) -> str:
        if self.ended_at is None:
            return "stopping" if self.stopped else "running"
        return "failed" if self.error else "stopped" if self.stopped else "finished"

    @property
    def is_running(self) -> bool:
        return self.ended_at is None

    @property
    def done(self) -> int:
        """Letters on which the action succeeded."""
        return self.results.get(DONE[self.action], 0)

    @property
    def gone(self) -> int:
        """Letters that another caller redrove or purged meanwhile."""
        return sum(self.results.get(result, 0) for result in GONE)

    @property
    def refusals(self) -> dict[str, int]:
        """Number of refused letters by reason."""
        return {name: count for name, count in self.results.items() if name != DONE[self.action] and name not in GONE}

    def note(self, results: Mapping[str, str]) -> None:
        """Add the results of a chunk."""
        self.seen += len(results)
        for id, result in results.items():
            self.results[result] = self.results.get(result, 0) + 1
            if result != DONE[self.action] and result not in GONE and len(self.refused) < MOST_REFUSED:
                self.refused.append(id)


class DeadLetterJobs:
    """The jobs of a dashboard. They end with the server. Each letter is then either handled or unchanged."""

    def __init__(self, live: LiveEvents, snapshots: Snapshots) -> None:
        """`live` notifies open pages of a job's progress. At the end of a job, `snapshots` drops its cached reads."""
        self._jobs: OrderedDict[str, DeadLetterJob] = OrderedDict()
        self._live, self._snapshots = live, snapshots

    def find(self, id: str) -> DeadLetterJob:
        job = self._jobs.get(id)
        if job is None:
            raise UnknownJob()
        return job

    def newest(self, limit: int) -> list[DeadLetterJob]:
        return list(itertools.islice(reversed(self._jobs.values()), limit))

    @property
    def running(self) -> int:
        return sum(job.is_running for job in self._jobs.values())

    def start(self, broker: AsyncBroker, action: Action, selection: DeadSelection, total: int) -> DeadLetterJob:
        """Begin a job. Raises `Overloaded` if too many run."""
        if self.running >= MOST_RUNNING:
            raise Overloaded(f"{MOST_RUNNING} jobs of dead letters run already; wait until one of them ends")
        if action == "replay" and total > MOST_REPLAYED:
            raise BadInput(f"one replay takes {MOST_REPLAYED:,} dead letters, and {total:,} match; narrow the filter")
        job = DeadLetterJob(secrets.token_hex(8), action, selection, total, broker.wall())
        self._jobs[job.id] = job
        for id in [id for id, old in self._jobs.items() if not old.is_running][: max(0, len(self._jobs) - MOST_KEPT)]:
            del self._jobs[id]
        broker.start_task(self._run(broker, job))
        return job

    async def _run(self, broker: AsyncBroker, job: DeadLetterJob) -> None:
        try:
            if job.selection.ids is not None:
                await self._handle(broker, job, list(job.selection.ids))
            elif job.action == "replay":
                await self._replay(broker, job)
            else:
                await self._follow(broker, job)
        except AckwiseError as problem:
            job.error = problem.message
        except Exception:
            job.error = "internal error; the server's log has more"
            raise
        finally:
            job.ended_at = broker.wall()
            self._snapshots.clear()
            self._live.changed(DEAD)

    async def _follow(self, broker: AsyncBroker, job: DeadLetterJob) -> None:
        """Handle page by page. A handled letter leaves the list. The next page begins after a refused letter."""
        place: tuple[int, int] | None = None
        while not _ends(broker, job):
            page = await broker.ask(job.selection.listing(PAGE, place))
            await self._handle(broker, job, [letter.id for letter in page.letters])
            place = page.next
            if place is None:
                return

    async def _replay(self, broker: AsyncBroker, job: DeadLetterJob) -> None:
        """Push copies, the oldest first. The list has the newest first, so the job reads the whole list first."""
        ids: list[str] = []
        place: tuple[int, int] | None = None
        while len(ids) <= MOST_REPLAYED and not _ends(broker, job):
            page = await broker.ask(job.selection.listing(PAGE, place))
            ids += [letter.id for letter in page.letters]
            place = page.next
            if place is None:
                break
        await self._handle(broker, job, ids[::-1])

    async def _handle(self, broker: AsyncBroker, job: DeadLetterJob, ids: list[str]) -> None:
        for at in range(0, len(ids), CHUNK):
            if _ends(broker, job):
                return
            job.note(await _apply(broker, job.action, ids[at : at + CHUNK]))
            self._live.changed(DEAD)


def _ends(broker: AsyncBroker, job: DeadLetterJob) -> bool:
    """Whether the job ends before its next turn. A server that drains stops it."""
    if broker.draining:
        job.stopped = True
    return job.stopped


async def _apply(broker: AsyncBroker, action: Action, ids: list[str]) -> Mapping[str, str]:
    """Run one turn. Returns the result of each letter."""
    if action == "redrive":
        return (await broker.send(Redrive(ids=ids))).results
    if action == "replay":
        return await _replay(broker, ids)
    count = (await broker.send(PurgeDead(ids=ids))).count
    # A purge returns only a count. The letters beyond the count no longer existed.
    return {id: DONE["purge"] if at < count else GONE[0] for at, id in enumerate(ids)}


async def _replay(broker: AsyncBroker, ids: list[str]) -> Mapping[str, str]:
    """Push copies in one turn. If the turn refuses a copy, it pushes none. Each letter then gets its own turn."""
    try:
        return (await broker.send(Replay(ids=ids))).results
    except (BadInput, Conflict, NotFound) as problem:
        if len(ids) == 1:
            return {ids[0]: problem.code}
        results: dict[str, str] = {}
        for id in ids:
            results |= await _replay(broker, [id])
        return results
