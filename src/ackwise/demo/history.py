"""History of the demo: runs real pushes, claims and settlements on a clock that moves through the last week."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator

from ackwise.broker import Broker
from ackwise.client import Connection, Delivery
from ackwise.clock import ManualClock
from ackwise.connect import open_store
from ackwise.core.settlement import Outcome
from ackwise.core.validation import MICROS
from ackwise.demo.pipeline_reports import earlier_reports
from ackwise.demo.shop import KEPT_SECONDS, PAUSED, SLOW_GROUP, STAGES, Abandoned, Dice, Group, Stage

MINUTE, HOUR, DAY = 60, 3600, 86_400
SPACING = ((DAY, 7 * DAY, 3 * HOUR), (HOUR, DAY, 30 * MINUTE), (0, HOUR, MINUTE))
"""Steps of the history: youngest age, oldest age, and the time between two steps, all in seconds."""
STEP_MESSAGES = {3 * HOUR: 70.0, 30 * MINUTE: 60.0, MINUTE: 12.0}
"""Messages of one step, by its length, for a stage with the rate 1. The time of day changes the number."""
NUMBERS = 1000
"""Number of the first message."""
MOST_CLAIMED = 500
SLOW_SHARE = 0.7
"""Share of its messages that the slow group claims in the last hour. So the group has a lag."""


def write_history(url: str, dice: Dice, now: int | None = None) -> int:
    """Write a week of history into an empty store, up to now. Returns the number of its last message."""
    end = time.time_ns() // 1000 if now is None else now
    clock = ManualClock(end - 7 * DAY * MICROS)
    store = open_store(url, clock=clock)
    with Connection(Broker(store, background=False)) as connection:
        history = _History(connection, clock, dice)
        history.create_queues()
        reports = sorted(earlier_reports(), key=lambda report: -report[0])
        for age, spacing in _steps():
            while reports and reports[0][0] >= age:
                sent, report = reports.pop(0)
                clock.set(max(clock.now(), end - round(sent * MICROS)))
                connection.transport.send(report)
            clock.set(max(clock.now(), end - age * MICROS))
            history.step(spacing)
    return history.number


def _steps() -> Iterator[tuple[int, int]]:
    """Age and spacing of each step, oldest first."""
    for youngest, oldest, spacing in SPACING:
        for age in range(oldest, youngest, -spacing):
            yield age, spacing


class _History:
    """One step at a time: every stage pushes, then every group claims and settles."""

    def __init__(self, connection: Connection, clock: ManualClock, dice: Dice) -> None:
        self._connection, self._clock, self._dice = connection, clock, dice
        self.number = NUMBERS

    def create_queues(self) -> None:
        for stage in (*STAGES, PAUSED):
            self._connection.create_queue(
                stage.queue,
                namespace=stage.namespace,
                task=stage.task,
                completed_retention_seconds=KEPT_SECONDS,
                **stage.policy,
            )
            for group in stage.groups:
                self._connection.create_group(stage.queue, group.name)
        self._push(PAUSED, 4)
        self._connection.pause_queue(PAUSED.queue)

    def step(self, spacing: int) -> None:
        load = STEP_MESSAGES[spacing] * self._day_curve()
        for stage in STAGES:
            self._push(stage, round(load * stage.rate * self._dice.uniform(0.7, 1.3)))
        self._clock.advance(self._dice.uniform(1, 8))
        for stage in STAGES:
            for group in stage.groups:
                self._work(stage, group, spacing)

    def _day_curve(self) -> float:
        """Load by the time of day: much at noon, little at night."""
        hour = self._clock.now() / MICROS / HOUR % 24
        return 0.9 - 0.6 * math.cos(hour / 24 * 2 * math.pi)

    def _push(self, stage: Stage, count: int) -> None:
        items = []
        for _ in range(count):
            self.number += 1
            items.append(stage.make(self.number, self._dice))
        if items:
            self._connection.push_many(stage.queue, items)

    def _work(self, stage: Stage, group: Group, spacing: int) -> None:
        owner = self._dice.choice(group.workers)
        most = MOST_CLAIMED
        if spacing == MINUTE and group.name == SLOW_GROUP:
            most = max(1, round(SLOW_SHARE * STEP_MESSAGES[spacing] * self._day_curve() * stage.rate))
        batch = self._connection.claim(stage.queue, group=group.name, max=most, owner=owner)
        entries: list[tuple[Delivery, Outcome | Exception]] = []
        for delivery in batch:
            try:
                group.work(delivery.json(), self._dice)
            except Abandoned:
                continue
            except Exception as problem:
                entries.append((delivery, problem))
            else:
                entries.append((delivery, Outcome.ACK))
        self._clock.advance(self._dice.uniform(0.05, 2.5))
        if entries:
            self._connection.settle(entries)
