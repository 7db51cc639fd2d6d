"""An interrupt of a thread that leads a turn, follows one or parks: no other caller hangs, no lease stays held."""

from __future__ import annotations

import linecache
import sys
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

from ackwise.broker import Broker, broker_state, maintenance, turn_queue
from ackwise.broker.long_polls import LongPoll, QueueVersion
from ackwise.broker.thread_broker import ThreadShard
from ackwise.broker.turn_queue import Submission
from ackwise.core.commands import Claim, Command, ConfigureQueue, release_command
from ackwise.core.errors import OutcomeUnknown
from ackwise.core.queries import ListLeases
from ackwise.store.port import PreparedTurn
from tests.broker.both_brokers import AnyBroker, waiting
from tests.broker.parked_claims import parked
from tests.broker.watched import Errand, WatchedStore, bodies, claim, interrupt, push, until
from tests.patience import PATIENCE

TRACED = {module.__file__ for module in (turn_queue, broker_state)}
"""Modules whose lines are interrupted, besides the turns of a shard."""


class InterruptingStore(WatchedStore):
    """Runs `hook` in a turn with a claim, or interrupts the leader when the commit of such a turn has happened."""

    hook: Callable[[], None] | None = None
    interrupts_commit = False

    def prepare_turn(self, commands: Sequence[Command], shard: int = 0) -> PreparedTurn:
        claims = any(isinstance(command, Claim) for command in commands)
        if claims and self.hook is not None:
            hook, self.hook = self.hook, None
            hook()
        prepared = super().prepare_turn(commands, shard)
        if claims and self.interrupts_commit:
            self.interrupts_commit = False
            return InterruptedCommit(prepared)
        return prepared


class InterruptedCommit:
    """A turn whose leader gets a `KeyboardInterrupt` when the commit has happened."""

    def __init__(self, prepared: PreparedTurn) -> None:
        self._prepared = prepared
        self.results, self.woken, self.abandon = prepared.results, prepared.woken, prepared.abandon
        self.offered = prepared.offered
        self.nothing_to_commit = False

    def commit(self) -> None:
        self._prepared.commit()
        raise KeyboardInterrupt


@pytest.fixture
def watched(url: str) -> InterruptingStore:
    return InterruptingStore(url)


def held(broker: AnyBroker) -> list[str]:
    return [lease.lease_id for lease in broker.ask(ListLeases())]


def _is_waiting(broker: AnyBroker, number: int) -> bool:
    return waiting(broker) == number


def queued(broker: AnyBroker, watched: WatchedStore, *commands: Command) -> list[Errand]:
    """Callers that wait in this order behind a turn that the store holds up. The first one leads the next turn."""
    watched.hold()
    errands = [Errand(lambda: broker.send(push("x", queue="other")))]
    assert watched.waiting.wait(PATIENCE)
    for number, command in enumerate(commands, 1):
        errands.append(Errand(partial(broker.send, command)))
        until(partial(_is_waiting, broker, number))
    return errands


@pytest.mark.usefixtures("interrupts")
def test_interrupted_follower_releases_its_grant(thread_broker: Broker, watched: InterruptingStore) -> None:
    """Another thread leads the turn that has the claim when the interrupt comes."""
    thread_broker.send(push("a"))
    others = queued(thread_broker, watched, push("y", queue="other"))
    (shard,) = thread_broker._shards
    leaving, leave = threading.Event(), shard._leave

    def noted(submission: Submission) -> None:
        leaving.set()
        leave(submission)

    def interrupt_follower() -> None:
        interrupt()
        assert leaving.wait(PATIENCE)

    def begin() -> None:
        until(lambda: waiting(thread_broker) == 2)
        watched.gate.set()

    shard._leave = noted  # type: ignore[method-assign]
    watched.hook = interrupt_follower
    others.append(Errand(begin))
    with pytest.raises(KeyboardInterrupt):
        thread_broker.claim(claim())
    for other in others:
        other.result()
    assert held(thread_broker) == []


@pytest.mark.usefixtures("interrupts")
def test_interrupted_follower_in_the_queue_runs_nothing(thread_broker: Broker, watched: InterruptingStore) -> None:
    thread_broker.send(push("a"))
    others = queued(thread_broker, watched)

    def interrupt_when_queued() -> None:
        until(lambda: waiting(thread_broker) == 1)
        interrupt()
        until(lambda: waiting(thread_broker) == 0)
        watched.gate.set()

    others.append(Errand(interrupt_when_queued))
    with pytest.raises(KeyboardInterrupt):
        thread_broker.claim(claim())
    for other in others:
        other.result()
    assert watched.turns[-1] == 1
    assert held(thread_broker) == []


def test_leader_interrupted_in_commit_releases_all_grants(thread_broker: Broker, watched: InterruptingStore) -> None:
    """The leader, a follower and a parked claim ride in the turn. None of them gets an answer."""
    thread_broker.send(ConfigureQueue(queue="later"))
    thread_broker.send(push("a", "b"))
    rider = parked(thread_broker, claim(queue="later"))
    errands = queued(thread_broker, watched, claim(), claim(), push("c", queue="later"))
    watched.interrupts_commit = True
    watched.gate.set()
    errands[0].result()
    with pytest.raises(KeyboardInterrupt):
        errands[1].result()
    with pytest.raises(OutcomeUnknown):
        errands[2].result()
    with pytest.raises(OutcomeUnknown):
        errands[3].result()
    with pytest.raises(OutcomeUnknown):
        rider.result()
    until(lambda: held(thread_broker) == [])
    assert bodies(thread_broker.claim(claim(2))) == ["a", "b"]
    assert bodies(thread_broker.claim(claim(queue="later"))) == ["c"]


def test_interrupt_while_waking_claims_wakes_all_of_them(
    watched_broker: AnyBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The turn that releases three messages is committed when the first wake-up fails."""
    watched_broker.send(push("a", "b", "c"))
    handed = watched_broker.claim(claim(3))
    waiters = [parked(watched_broker, claim(exclusivity="none")) for _ in range(3)]
    finish, finished = Submission.finish, threading.Event()

    def interrupted(poll: Submission) -> None:
        monkeypatch.setattr(LongPoll, "finish", finish)
        finished.set()
        raise RuntimeError("a wake-up fails")

    monkeypatch.setattr(LongPoll, "finish", interrupted)
    watched_broker.send(release_command([handed.claimed.lease_id]))
    assert finished.is_set()
    assert sorted(bodies(waiter.result())[0] for waiter in waiters) == ["a", "b", "c"]


def test_interrupt_before_parking_ends_the_claim_at_once(
    thread_broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    joined: list[Submission] = []

    def park(poll: LongPoll, seen: QueueVersion) -> bool:
        raise KeyboardInterrupt

    monkeypatch.setattr(thread_broker.long_polls, "park", park)
    monkeypatch.setattr("ackwise.broker.thread_broker._join", joined.append)
    with pytest.raises(KeyboardInterrupt):
        thread_broker.claim(claim(), PATIENCE)
    assert joined == []


# an interrupt at every line


class LineInterrupt:
    """Raises `KeyboardInterrupt` before a line of the traced modules, counted from 1."""

    def __init__(self, line: int) -> None:
        self._left = line
        self.place = ""

    def __call__(self, frame: FrameType, event: str, _: object) -> Any:
        code = frame.f_code
        if code.co_filename not in TRACED and not code.co_qualname.startswith(f"{ThreadShard.__name__}."):
            return None
        # Python reports the line of a `with` again before it leaves the block. No interrupt is possible there.
        source = linecache.getline(code.co_filename, frame.f_lineno)
        if event == "line" and not source.lstrip().startswith("with "):
            self._left -= 1
            if not self._left:
                self.place = f"{Path(code.co_filename).name}:{frame.f_lineno}"
                raise KeyboardInterrupt
        return self


def lead(broker: Broker, line: int, interrupt: LineInterrupt) -> list[Any]:
    """Lead a turn with a claim, and with a push that serves a parked claim."""
    sys.settrace(interrupt)
    try:
        return broker.send_all([claim(queue=f"q{line}"), push("served", queue=f"later{line}")])
    finally:
        sys.settrace(None)


def interrupted_at(broker: Broker, watched: WatchedStore, line: int) -> str:
    """Interrupt a leader at a line. Returns the place of the line, or nothing if the turn has fewer lines."""
    interrupt = LineInterrupt(line)
    broker.send_all([push("a", queue=f"q{line}"), ConfigureQueue(queue=f"later{line}")])
    waiter = parked(broker, claim(queue=f"later{line}"))
    (first,) = queued(broker, watched)
    leader = Errand(lambda: lead(broker, line, interrupt))
    until(lambda: waiting(broker) == 1 or not leader.is_alive())
    follower = Errand(lambda: broker.send(push("b", queue="other")))
    until(lambda: waiting(broker) == 2 or not leader.is_alive())
    watched.gate.set()
    first.result()
    with suppress(KeyboardInterrupt):
        leader.result()
    with suppress(OutcomeUnknown):
        follower.result()
    broker.send(push("served", queue=f"later{line}"))
    with suppress(OutcomeUnknown):
        assert bodies(waiter.result()) == ["served"]
    if interrupt.place:
        until(lambda: broker.ask(ListLeases(queue=f"q{line}")) == [])
    return interrupt.place


def test_interrupt_at_any_line_of_a_turn_loses_nothing(
    thread_broker: Broker, watched: InterruptingStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(maintenance, "CLOSE_PATIENCE", PATIENCE)
    places: list[str] = []
    while place := interrupted_at(thread_broker, watched, len(places) + 1):
        places.append(place)
    assert len(places) > 100
