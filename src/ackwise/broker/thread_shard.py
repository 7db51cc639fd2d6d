"""The turns of one shard, led by the threads of its callers."""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING

from ackwise.broker.long_polls import LongPoll
from ackwise.broker.turn_queue import Submission, TurnQueue, assign_results, commands_of, fail
from ackwise.core.commands import Command
from ackwise.store.port import PreparedTurn

if TYPE_CHECKING:
    from ackwise.broker.thread_broker import Broker


class ThreadShard:
    """Writer queue of a `Broker`.

    One waiting caller is the leader: it runs turns for all callers until its own commands are done. Then it passes the
    lead to the first caller in the queue.
    """

    def __init__(self, broker: Broker, number: int) -> None:
        self._broker, self._number = broker, number
        self._lock = threading.Lock()
        self._queue = TurnQueue()
        self._has_leader = False

    def submit(self, commands: Sequence[Command]) -> Submission:
        """Wait until a turn has run the commands, or lead that turn."""
        gate = threading.Lock()
        gate.acquire()
        submission = Submission(commands, gate.release)
        with self._lock:
            self._queue.add(submission)
            submission.leads = not self._has_leader
            self._has_leader = True
        if not submission.leads:
            try:
                gate.acquire()
            except BaseException:
                self._withdraw(submission)
                raise
        if submission.leads:
            self._lead(submission)
        return submission

    def _withdraw(self, submission: Submission) -> None:
        """Remove the submission of an interrupted caller. If the caller had the lead, pass the lead on."""
        with self._lock:
            self._queue.remove(submission)
            leads = submission.leads
        if leads:
            self._pass_lead()

    def _lead(self, own: Submission) -> None:
        """Run turns until the leader's own submission is done, then pass the lead on."""
        try:
            while not own.done:
                with self._lock:
                    taken = self._queue.take()
                self._turn(taken, own)
        finally:
            self._pass_lead()

    def _pass_lead(self) -> None:
        with self._lock:
            successor = self._queue.first() if len(self._queue) else None
            self._has_leader = successor is not None
            if successor is not None:
                successor.leads = True
        if successor is not None:
            successor.wake()

    def _turn(self, taken: list[Submission], own: Submission) -> None:
        """Run one turn and wake the other callers. Parked claims that the turn may serve ride in it."""
        long_polls, store = self._broker.long_polls, self._broker.store
        riders: list[LongPoll] = []
        prepared: PreparedTurn | None = None
        try:
            commands = commands_of(taken)
            if long_polls.parked:
                long_polls.ride(commands, riders)
                commands += commands_of(riders)
            started = time.perf_counter()
            prepared = store.prepare(commands, self._number)
            self._queue.record_duration(len(commands), started)
            prepared.commit()
            self._finish(taken, riders, prepared, own)
        except BaseException as problem:
            fail((*taken, *(rider for rider in riders if not rider.parked)), problem, own)
            if prepared is not None:
                prepared.abandon()
            if not isinstance(problem, Exception):
                raise

    def _finish(self, taken: list[Submission], riders: list[LongPoll], prepared: PreparedTurn, own: Submission) -> None:
        """Wake the other callers of a committed turn, listeners, and parked claims that the commit may serve."""
        listeners, long_polls = self._broker.listeners, self._broker.long_polls
        assign_results([*taken, *riders], prepared.results)
        if listeners.callbacks:
            listeners.notify(prepared.woken)
        unparked: Sequence[LongPoll] = ()
        if riders or (prepared.woken and long_polls.watched):
            unparked = long_polls.unpark_after_commit(prepared.woken, riders)
        for submission in (*unparked, *taken):
            if submission is not own:
                submission.finish()
