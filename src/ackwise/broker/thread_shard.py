"""The turns of one shard, led by the threads of its callers."""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from contextlib import suppress
from typing import TYPE_CHECKING

from ackwise.broker.long_polls import LongPoll
from ackwise.broker.turn_queue import Submission, TurnQueue, assign_results, commands_of, fail, finish_turn
from ackwise.core.commands import Claim, Command
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
        """Wait until a turn has run the commands, or lead that turn.

        An interrupted caller passes its lead on, and the broker releases what a turn granted to the caller.
        """
        gate = threading.Lock()
        gate.acquire()
        submission = Submission(commands, gate.release)
        try:
            with self._lock:
                self._queue.add(submission)
                submission.leads, self._has_leader = not self._has_leader, True
            while not (submission.leads or submission.done):
                gate.acquire()
            if submission.leads:
                while not submission.done:
                    self._turn(submission)
                self._pass_lead(submission)
            if submission.error is not None and submission.results:
                self._broker.release_cancelled(submission)
            return submission
        except BaseException:
            self._leave(submission)
            raise

    def _leave(self, submission: Submission) -> None:
        """End the part of an interrupted caller in the turns of the shard."""
        with self._lock:
            waits = self._queue.remove(submission)
        if submission.leads or submission.done:
            # No turn will wake the caller: its turn is over, or the caller itself led that turn.
            submission.finished = True
        self._pass_lead(submission)
        if submission.queued and not waits and any(isinstance(command, Claim) for command in submission.commands):
            self._broker.release_cancelled(submission)

    def _pass_lead(self, own: Submission) -> None:
        """Make the first caller in the queue the leader. Further calls for the same leader do nothing."""
        with self._lock:
            if not own.leads:
                return
            if not len(self._queue):
                own.leads, self._has_leader = False, False
                return
            successor = self._queue.first()
            try:
                own.leads, successor.leads = False, True
                successor.wake()
            except BaseException:
                with suppress(RuntimeError):  # the successor may be awake already
                    successor.wake()
                raise

    def _turn(self, own: Submission) -> None:
        """Run one turn and wake the other callers. Parked claims that the turn may serve ride in it."""
        broker = self._broker
        taken: list[Submission] = []
        riders: list[LongPoll] = []
        prepared: PreparedTurn | None = None
        try:
            with self._lock:
                self._queue.take(taken)
            commands = commands_of(taken)
            if broker.long_polls.parked:
                broker.long_polls.ride(commands, riders)
                commands += commands_of(riders)
            started = time.perf_counter()
            prepared = broker.store.prepare(commands, self._number)
            self._queue.record_duration(len(commands), started)
            prepared.commit()
            finish_turn(broker, taken, riders, prepared, own)
        except BaseException as problem:
            if all(submission.results is None for submission in taken):
                self._fail(taken, riders, prepared, problem, own)
            if not isinstance(problem, Exception):
                raise

    def _fail(
        self,
        taken: list[Submission],
        riders: list[LongPoll],
        prepared: PreparedTurn | None,
        problem: BaseException,
        own: Submission,
    ) -> None:
        """Give the callers of a turn its error.

        After an interrupt of the commit the submissions also have results, because the commit may have happened. So
        each caller releases what the turn may have granted to it, and every parked claim tries again.
        """
        interrupted = prepared is not None and not isinstance(problem, Exception)
        if prepared is not None:
            prepared.abandon()
            if interrupted:
                assign_results([*taken, *riders], prepared.results)
        fail((*taken, *(rider for rider in riders if not rider.parked)), problem, own)
        if interrupted:
            self._broker.retry_parked()
