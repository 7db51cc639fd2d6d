"""The deadline that a lease keeps, whatever the order in which the answers to its extensions arrive."""

from __future__ import annotations

import threading
from collections.abc import Sequence

import pytest

import ackwise
from ackwise.client.settlements import HeldLeases
from ackwise.client.sync.lease import Lease
from ackwise.client.sync.lease_keeper import extend_all
from ackwise.client.transport import Transport
from ackwise.clock import ManualClock
from ackwise.core.answers import Extended
from ackwise.core.commands import Claim, Extend
from ackwise.core.errors import AckwiseError
from ackwise.core.validation import MICROS
from tests.patience import PATIENCE


class SlowAnswer:
    """One extension in a thread of its own. The server runs it at once. Its answer arrives at `arrive`."""

    def __init__(self, transport: Transport, lease: Lease) -> None:
        self._transport, self._ran, self._go_on = transport, threading.Event(), threading.Event()
        self._thread = threading.Thread(target=lambda: extend_all(self, [lease]))  # type: ignore[arg-type]
        self._thread.start()
        assert self._ran.wait(PATIENCE)

    def send_all(self, commands: Sequence[Extend]) -> list[Extended | AckwiseError]:
        answers = self._transport.send_all(commands)
        self._ran.set()
        assert self._go_on.wait(PATIENCE)
        return answers

    def arrive(self) -> None:
        self._go_on.set()
        self._thread.join(PATIENCE)
        assert not self._thread.is_alive()


@pytest.fixture
def lease(queue: ackwise.Connection) -> Lease:
    queue.push("orders", 1)
    claimed = queue.transport.claim(Claim(queue="orders", lease=10 * MICROS), 0).claimed
    return Lease(queue.transport, HeldLeases(), claimed)


def test_late_answer_keeps_the_later_deadline(queue: ackwise.Connection, lease: Lease, clock: ManualClock) -> None:
    late = SlowAnswer(queue.transport, lease)
    clock.advance(3)
    assert extend_all(queue.transport, [lease]) == [None]
    late.arrive()
    assert lease.deadline == clock.now() + 10 * MICROS


def test_extend_shorter_moves_the_deadline_back(queue: ackwise.Connection, lease: Lease, clock: ManualClock) -> None:
    late = SlowAnswer(queue.transport, lease)
    lease.extend(2)
    assert lease.deadline == clock.now() + 2 * MICROS
    late.arrive()
    assert lease.deadline == clock.now() + 2 * MICROS
    assert extend_all(queue.transport, [lease]) == [None]
    assert lease.deadline == clock.now() + 10 * MICROS
