"""Records through a pipeline that is killed again and again, each time when it has got a bit further."""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from types import TracebackType

import msgspec

from ackwise import connect
from ackwise.core.commands import ConfigureGroup, ConfigureQueue
from ackwise.core.rows import GroupStats
from ackwise.spark.connections import open_connection
from ackwise.spark.pipelines import Totals
from tests.faults.campaign import Tally
from tests.faults.spark.checking import Standing, check, check_totals, leases, progress
from tests.faults.spark.driver import Job
from tests.faults.spark.lives import PATIENCE, Life, Mark
from tests.faults.spark.orders import GROUP, OUTPUT, QUEUE, RETRY_LIMIT, items, kind_of

LOCAL = "local[2]"
MOMENTS = ("claimed", "working", "working", "between")
KILLS = ("driver", "group", "java")
LOOK_EVERY = 0.02
_PUSH = 2000


class Interrupted(AssertionError):
    """The pipeline did not get as far as it should have."""


class PipelineCampaign:
    """One queue on one store. `url` is how the pipeline reaches it; with `files` it writes what it makes there, too."""

    def __init__(
        self, seed: int, url: str, folder: Path, *, count: int, rows: int, break_every: int, files: bool = False
    ) -> None:
        self._dice = random.Random(seed)
        self._url, self._folder, self._count = url, folder, count
        self._broken = folder / "broken"
        self._broken.mkdir()
        self._files = folder / "files" if files else None
        self._job = Job(
            url=url,
            checkpoint=str(folder / "checkpoint"),
            broken=str(self._broken),
            rows=rows,
            files=None if self._files is None else str(self._files),
        )
        self.mark = Mark()
        self.tally = Tally()
        self._lives, self._before = 0, [""]
        self._good = sum(1 for order in range(count) if kind_of(order) == "good")
        self._here = open_connection(url, duties=False)
        self._push(break_every)

    def _push(self, break_every: int) -> None:
        for command in (
            ConfigureQueue(queue=QUEUE, policy={"retry_limit": RETRY_LIMIT}),
            ConfigureQueue(queue=OUTPUT),
            ConfigureGroup(queue=QUEUE, group=GROUP),
        ):
            self._here.transport.send(command)
        everything = list(items(self._count, break_every))
        with connect(self._url) as queues:
            for at in range(0, self._count, _PUSH):
                queues.push_many(QUEUE, everything[at : at + _PUSH])
        self.tally.pushed = self._count

    def standing(self) -> Standing:
        return Standing.of(self._here)

    def start(self, master: str) -> Life:
        self._lives += 1
        self._before = self._newest()
        return Life(self._folder, self._lives, msgspec.structs.replace(self._job, master=master), self.mark)

    def _newest(self) -> list[str]:
        """The last claim, if there is one."""
        return [lease.lease_id for lease in leases(self._here, 1)]

    def strike(self, kills: int, master: str = LOCAL, *, share: float = 0.0, until: float = 0.8) -> None:
        """Drivers that are killed, one after the other, while the share that is acked grows `until` there."""
        for number in range(kills):
            # The very first blow falls at the first claim, before Spark has written a word about it.
            self.strike_at(self._dice.choice(MOMENTS) if share else "claimed", share, master)
            share += self._dice.uniform(0.2, 1.0) * (until - share) / (kills - number)

    def strike_at(self, moment: str, share: float, master: str = LOCAL) -> None:
        life = self.start(master)
        try:
            self.reach(life, moment, share)
            self.kill(partial(life.kill, self._dice.choice(KILLS)))
        finally:
            life.abandon()

    def finish(self, master: str = LOCAL, while_it_works: Callable[[Life], None] = lambda life: None) -> Totals:
        """A driver that gets to the end, whatever is done to others meanwhile."""
        before = self.standing()
        life = self.start(master)
        try:
            while_it_works(life)
            self._until(life, lambda _: life.ended, "its end")
            totals = life.finish().totals
        finally:
            life.abandon()
        self.tally.violations += check_totals(totals, before, self.standing())
        return totals

    def kill(self, blow: Callable[[], None]) -> None:
        """A kill that must hit a working process."""
        group = progress(self._here)
        blow()
        self.tally.kills += 1
        self.tally.in_flight += group.leased
        self.tally.idle += group.lag == 0

    def reach(self, life: Life, moment: str, share: float = 0.0) -> None:
        """Wait until it has claimed something and that share is acked; then for a claim, its middle, or its end.

        Such a moment may be missed, so half-way to the end is late enough.
        """
        first, enough = self._before, round(self._good * share)
        self._until(life, lambda now: self._newest() != first, "a first claim")
        if share:
            self._until(life, lambda now: now.acked >= enough, f"{enough} acked")
        claim, late = first if share == 0 else self._newest(), (enough + self._good) // 2
        reached: dict[str, Callable[[GroupStats], bool]] = {
            "claimed": lambda now: self._newest() != claim,
            "working": lambda now: any(0 < one.held < one.granted for one in leases(self._here, 1)),
            "between": lambda now: not now.leases,
        }
        self._until(life, lambda now: reached[moment](now) or now.acked >= late, moment)

    def _until(self, life: Life, reached: Callable[[GroupStats], bool], what: str) -> None:
        """Wait for it as long as the pipeline gets further, and then a while longer."""
        before: GroupStats | None = None
        since = time.monotonic()
        while not reached(now := progress(self._here)):
            if life.ended:
                raise Interrupted(f"the driver ended before {what}:\n{life.log()}")
            if now != before:
                before, since = now, time.monotonic()
            elif time.monotonic() - since > PATIENCE:
                raise Interrupted(f"gave up waiting for {what} at {now}:\n{life.log()}")
            time.sleep(LOOK_EVERY)

    def check(self, store_url: str) -> Tally:
        """Hold the store to its promises. `store_url` is where it is when no server runs any more."""
        self.tally.violations += self.mark.gone()
        self.tally.violations += check(store_url, self._count, self._files)
        after = self._after(store_url)
        self.tally.acked, self.tally.dead = after.acked, after.dead
        self.tally.failed = sum(1 for _ in self._broken.iterdir())
        return self.tally

    @staticmethod
    def _after(store_url: str) -> Standing:
        here = open_connection(store_url, duties=False)
        try:
            return Standing.of(here)
        finally:
            here.close()

    def __enter__(self) -> PipelineCampaign:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, problem: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._here.close()
