"""The lease keeper, on asyncio and in threads."""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Protocol

import pytest

from ackwise.client.aio.lease_keeper import AsyncLeaseKeeper
from ackwise.client.kept_lease import is_due
from ackwise.client.sync.lease_keeper import LeaseKeeper
from ackwise.clock import ManualClock
from ackwise.core.errors import LeaseLost, StoreUnavailable
from ackwise.core.validation import MICROS
from tests.patience import PATIENCE

SETTLE_DOWN = 0.05
"""Seconds in which a closed keeper must do nothing."""


class FakeLease:
    """A lease of ten seconds, unless the test gives another duration."""

    def __init__(self, clock: ManualClock, seconds: float = 10) -> None:
        self.duration = round(seconds * MICROS)
        self.deadline = clock.now() + self.duration
        self.ended = self.is_ending = self.in_doubt = False

    def remaining(self, now: int) -> int:
        return self.deadline - now


class FakeServer:
    """Extends leases. Tests make it fail, hang or refuse."""

    def __init__(self, clock: ManualClock) -> None:
        self.clock = clock
        self.requests: list[list[FakeLease]] = []
        self.lost: set[FakeLease] = set()
        self.problem: Exception | None = None
        self.silent: set[FakeLease] = set()
        """Leases whose requests get no answer before `go_on`."""
        self.go_on = threading.Event()
        self.wrongly_lost: list[FakeLease] = []
        self.checks = 0
        """Checks that the keeper began."""

    def now(self) -> int:
        """The clock of the keeper, which reads it once in each check."""
        self.checks += 1
        return self.clock.now()

    def not_lost(self, lease: FakeLease) -> None:
        """`on_lost` of a lease that must not be lost."""
        self.wrongly_lost.append(lease)

    def extend(self, leases: Sequence[FakeLease]) -> list[Exception | None]:
        self.requests.append(list(leases))
        if not self.silent.isdisjoint(leases):
            assert self.go_on.wait(PATIENCE)
        if self.problem is not None:
            raise self.problem
        for lease in leases:
            if lease not in self.lost:
                lease.deadline, lease.in_doubt = self.clock.now() + lease.duration, False
        return [LeaseLost() if lease in self.lost else None for lease in leases]

    async def extend_async(self, leases: Sequence[FakeLease]) -> list[Exception | None]:
        return await asyncio.to_thread(self.extend, leases)


class Keeper(Protocol):
    """Both keepers, as threads call them."""

    def keep(self, lease: FakeLease, on_lost: Callable[[FakeLease], None], *, extend: bool = True) -> None: ...

    def drop(self, lease: FakeLease) -> None: ...

    def check_soon(self) -> None: ...

    def close(self) -> None: ...


class KeeperInLoop:
    """The asyncio keeper in an event loop of its own."""

    def __init__(self, server: FakeServer, **options: Any) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever)
        self._thread.start()
        self._keeper: AsyncLeaseKeeper[FakeLease] = AsyncLeaseKeeper(server.now, server.extend_async, **options)

    def _call(self, work: Callable[[], None]) -> None:
        async def run() -> None:
            work()

        asyncio.run_coroutine_threadsafe(run(), self._loop).result(PATIENCE)

    def keep(self, lease: FakeLease, on_lost: Callable[[FakeLease], None], *, extend: bool = True) -> None:
        self._call(lambda: self._keeper.keep(lease, on_lost, extend=extend))

    def drop(self, lease: FakeLease) -> None:
        self._call(lambda: self._keeper.drop(lease))

    def check_soon(self) -> None:
        self._call(self._keeper.check_soon)

    def close(self) -> None:
        asyncio.run_coroutine_threadsafe(self._keeper.close(), self._loop).result(PATIENCE)

    def end_loop(self) -> None:
        asyncio.run_coroutine_threadsafe(self._loop.shutdown_default_executor(), self._loop).result(PATIENCE)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()


Make = Callable[..., Keeper]


@pytest.fixture
def server(clock: ManualClock) -> FakeServer:
    return FakeServer(clock)


@pytest.fixture(params=["asyncio", "threads"])
def make(request: pytest.FixtureRequest, clock: ManualClock, server: FakeServer) -> Iterator[Make]:
    """Make a keeper of either kind: `make(fraction=…, every=…)`."""
    made: list[Any] = []

    def make(**options: Any) -> Keeper:
        if request.param == "threads":
            made.append(LeaseKeeper(server.now, server.extend, **options))
        else:
            made.append(KeeperInLoop(server, **options))
        keeper: Keeper = made[-1]
        clock.on_move(keeper.check_soon)
        return keeper

    yield make
    server.go_on.set()
    for keeper in made:
        keeper.close()
        if isinstance(keeper, KeeperInLoop):
            keeper.end_loop()
    assert server.wrongly_lost == []


def until(happened: Callable[[], object]) -> None:
    end = time.monotonic() + PATIENCE
    while not happened():
        assert time.monotonic() < end, "it did not happen"
        time.sleep(0.002)


def until_checked(keeper: Keeper, server: FakeServer) -> None:
    """Wait until the keeper has checked its leases from now on, and until the requests of that check are answered."""
    inner: Any = getattr(keeper, "_keeper", keeper)
    for _ in range(2):  # the second check begins after the end of the first one
        before = server.checks
        keeper.check_soon()
        until(lambda before=before: server.checks > before)  # type: ignore[misc]
    until(lambda: not inner._requests)


@pytest.fixture
def rare_checks(monkeypatch: pytest.MonkeyPatch) -> None:
    """A keeper of long leases checks them only when it is woken."""
    for kind in ("aio", "sync"):
        monkeypatch.setattr(f"ackwise.client.{kind}.lease_keeper.LONGEST_PAUSE", 1000.0)


def test_due_is_when_the_fraction_of_the_time_is_over(clock: ManualClock) -> None:
    lease = FakeLease(clock)
    assert not is_due(lease, clock.now() + 5 * MICROS)
    assert is_due(lease, clock.now() + 5 * MICROS + 1)
    assert is_due(lease, clock.now() + 4 * MICROS, fraction=1 / 3)
    lease.in_doubt = True
    assert is_due(lease, clock.now())
    lease.ended = True
    assert not is_due(lease, clock.now() + 9 * MICROS)


def test_lease_is_extended_again_and_again_in_time(make: Make, server: FakeServer, clock: ManualClock) -> None:
    keeper, lease = make(), FakeLease(clock)
    keeper.keep(lease, server.not_lost)
    clock.advance(4)
    until_checked(keeper, server)
    assert server.requests == []
    for count in range(1, 6):
        clock.advance(5.5)
        until(lambda: lease.remaining(clock.now()) == lease.duration)
        assert len(server.requests) == count


def test_keeper_checks_by_itself_when_no_clock_tells(make: Make, server: FakeServer, clock: ManualClock) -> None:
    keeper, lease = make(), FakeLease(clock, 0.2)
    clock._listeners.clear()
    keeper.keep(lease, server.not_lost)
    clock.advance(0.15)
    until(lambda: server.requests)


@pytest.mark.usefixtures("rare_checks")
def test_short_lease_beside_long_ones_is_extended_in_time(make: Make, server: FakeServer, clock: ManualClock) -> None:
    keeper, long, short = make(), FakeLease(clock, 36_000), FakeLease(clock, 0.1)
    clock._listeners.clear()
    keeper.keep(long, server.not_lost)
    time.sleep(0.02)
    keeper.keep(short, server.not_lost)
    clock.advance(0.06)
    until(lambda: server.requests == [[short]])


def test_leases_due_together_share_one_request(make: Make, server: FakeServer, clock: ManualClock) -> None:
    keeper, leases = make(), [FakeLease(clock) for _ in range(1000)]
    for lease in leases:
        keeper.keep(lease, server.not_lost)
    clock.advance(6)
    until(lambda: all(lease.remaining(clock.now()) == lease.duration for lease in leases))
    assert server.requests == [leases]


def test_dropped_and_ended_leases_are_not_extended(make: Make, server: FakeServer, clock: ManualClock) -> None:
    keeper = make()
    kept, dropped, ended = (FakeLease(clock) for _ in range(3))
    for lease in (kept, dropped, ended):
        keeper.keep(lease, server.not_lost)
    keeper.drop(dropped)
    ended.ended = ended.is_ending = True
    clock.advance(6)
    until(lambda: server.requests)
    keeper.drop(kept)
    clock.advance(20)
    until_checked(keeper, server)
    assert server.requests == [[kept]]


@pytest.mark.usefixtures("rare_checks")
def test_lease_in_doubt_is_extended_at_once(make: Make, server: FakeServer, clock: ManualClock) -> None:
    keeper, other, lease = make(), FakeLease(clock, 36_000), FakeLease(clock, 36_000)
    keeper.keep(other, server.not_lost)
    time.sleep(0.02)
    lease.in_doubt = True
    keeper.keep(lease, server.not_lost)
    until(lambda: server.requests == [[lease]])


def test_refused_lease_is_reported_once_and_dropped(make: Make, server: FakeServer, clock: ManualClock) -> None:
    keeper, lease, other = make(), FakeLease(clock), FakeLease(clock)
    lost: list[FakeLease] = []
    server.lost.add(lease)
    keeper.keep(lease, lost.append)
    keeper.keep(other, server.not_lost)
    clock.advance(6)
    until(lambda: lost)
    clock.advance(6)
    until(lambda: len(server.requests) == 2)
    assert lost == [lease]
    assert server.requests == [[lease, other], [other]]


def test_lease_being_settled_is_not_reported_lost(make: Make, server: FakeServer, clock: ManualClock) -> None:
    keeper, lease, other = make(), FakeLease(clock), FakeLease(clock)
    lost: list[FakeLease] = []
    server.lost.add(lease)
    lease.is_ending = True
    keeper.keep(lease, lost.append)
    keeper.keep(other, server.not_lost)
    clock.advance(6)
    until(lambda: len(server.requests) >= 1)
    clock.advance(9)
    until_checked(keeper, server)
    assert lost == []
    lease.is_ending = False
    keeper.check_soon()
    until(lambda: lost == [lease])


def test_connection_down_then_up_costs_no_lease(
    make: Make, server: FakeServer, clock: ManualClock, caplog: pytest.LogCaptureFixture
) -> None:
    keeper, lease = make(), FakeLease(clock)
    server.problem = StoreUnavailable("no server")
    keeper.keep(lease, server.not_lost)
    clock.advance(6)
    until(lambda: "no server" in caplog.text)
    clock.advance(3)
    until(lambda: len(server.requests) >= 2)
    server.problem = None
    until(lambda: lease.remaining(clock.now()) == lease.duration)
    assert {record.levelno for record in caplog.records if record.name == "ackwise.client"} == {logging.WARNING}


def test_connection_down_past_the_deadline_loses_lease(make: Make, server: FakeServer, clock: ManualClock) -> None:
    keeper, lease = make(), FakeLease(clock)
    lost: list[FakeLease] = []
    server.problem = StoreUnavailable("no server")
    keeper.keep(lease, lost.append)
    clock.advance(6)
    until(lambda: server.requests)
    assert lost == []
    clock.advance(4)
    until(lambda: lost == [lease])


def test_missing_answer_delays_no_other_lease(make: Make, server: FakeServer, clock: ManualClock) -> None:
    keeper, first, second = make(), FakeLease(clock), FakeLease(clock)
    lost: list[FakeLease] = []
    server.silent.add(first)
    keeper.keep(first, lost.append)
    clock.advance(3)
    second.deadline += 3 * MICROS
    keeper.keep(second, server.not_lost)
    clock.advance(3)
    until(lambda: server.requests == [[first]])
    clock.advance(3)
    until(lambda: second.remaining(clock.now()) == second.duration)
    clock.advance(1)
    until(lambda: lost == [first])


def test_request_without_answer_is_sent_again(make: Make, server: FakeServer, clock: ManualClock) -> None:
    keeper, lease = make(), FakeLease(clock, 2)
    server.silent.add(lease)
    keeper.keep(lease, server.not_lost)
    clock.advance(1.5)
    until(lambda: server.requests)
    server.silent.clear()
    until(lambda: lease.remaining(clock.now()) == lease.duration)
    assert server.requests == [[lease], [lease]]


def test_every_extends_by_real_time_while_the_clock_stands(make: Make, server: FakeServer, clock: ManualClock) -> None:
    keeper, lease = make(every=0.02), FakeLease(clock)
    began = time.monotonic()
    keeper.keep(lease, server.not_lost)
    until(lambda: len(server.requests) >= 5)
    assert time.monotonic() - began >= 0.1


def test_watched_lease_is_reported_but_not_extended(make: Make, server: FakeServer, clock: ManualClock) -> None:
    keeper, lease = make(), FakeLease(clock)
    lost: list[FakeLease] = []
    keeper.keep(lease, lost.append, extend=False)
    clock.advance(9)
    until_checked(keeper, server)
    assert (lost, server.requests) == ([], [])
    clock.advance(1)
    until(lambda: lost == [lease])
    assert server.requests == []


def test_watched_lease_that_ended_is_reported_at_its_deadline(
    make: Make, server: FakeServer, clock: ManualClock
) -> None:
    keeper, lease = make(), FakeLease(clock)
    lost: list[FakeLease] = []
    keeper.keep(lease, lost.append, extend=False)
    lease.ended = lease.is_ending = True
    clock.advance(10)
    until(lambda: lost == [lease])


def test_owner_that_fails_does_not_end_other_extensions(
    make: Make, server: FakeServer, clock: ManualClock, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(_: FakeLease) -> None:
        raise ValueError("no")

    keeper, gone, kept = make(), FakeLease(clock), FakeLease(clock, 100)
    keeper.keep(gone, fail, extend=False)
    keeper.keep(kept, server.not_lost)
    clock.advance(10)
    until(lambda: "failed when its lease was lost" in caplog.text)
    clock.advance(50)
    until(lambda: [kept] in server.requests)


def test_close_during_a_request_is_quick_and_final(make: Make, server: FakeServer, clock: ManualClock) -> None:
    keeper, lease = make(), FakeLease(clock)
    server.silent.add(lease)
    server.lost.add(lease)
    keeper.keep(lease, server.not_lost)
    clock.advance(6)
    until(lambda: server.requests)
    began = time.monotonic()
    keeper.close()
    assert time.monotonic() - began < 5
    server.go_on.set()
    keeper.keep(lease, server.not_lost)
    clock.advance(60)
    time.sleep(SETTLE_DOWN)
    assert len(server.requests) == 1


def test_close_without_leases_returns_at_once(make: Make) -> None:
    make().close()


def test_leases_dropped_from_many_threads_are_not_reported(make: Make, server: FakeServer, clock: ManualClock) -> None:
    keeper = make(every=0.001)

    def work() -> None:
        for _ in range(100):
            lease = FakeLease(clock)
            keeper.keep(lease, server.not_lost)
            keeper.drop(lease)

    running = [threading.Thread(target=work) for _ in range(8)]
    for thread in running:
        thread.start()
    for thread in running:
        thread.join()
    last = FakeLease(clock)
    keeper.keep(last, server.not_lost)
    until(lambda: last in server.requests[-1] if server.requests else False)
