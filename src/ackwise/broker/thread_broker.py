"""Thread driver: a waiting caller leads the turn."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any, TypeVar

from ackwise.broker import maintenance
from ackwise.broker.background_flows import run_duties, watch_store
from ackwise.broker.broker_state import BrokerState
from ackwise.broker.claim_flow import ClaimFlow, ClaimOptions
from ackwise.broker.deliveries import deliver
from ackwise.broker.long_polls import LongPoll
from ackwise.broker.metered_reads import TOOK_LONGER, RunningStatements, run_statement, short_meter
from ackwise.broker.steps import Ask, Background, Flow, Join, Maintain, Park, Read, Release, Sleep, Step, Submit
from ackwise.broker.turn_queue import (
    Submission,
    TurnQueue,
    assign_results,
    commands_of,
    fail,
    finish_turn,
    refused,
    shard_of,
    with_refusals,
)
from ackwise.clock import wall_now
from ackwise.core.answers import Handed, Settled
from ackwise.core.command_checks import CheckedCommands
from ackwise.core.commands import LONG_COMMANDS, Claim, Command, Settle, next_command
from ackwise.core.errors import AckwiseError, Draining
from ackwise.core.queries import Query
from ackwise.engine.metered_query import MeteredQuery
from ackwise.engine.statement_meter import Meter
from ackwise.store.port import PreparedTurn, Store

A = TypeVar("A")


class Broker(BrokerState):
    """Broker for callers on any thread: commands, claims with long polls, queries, maintenance and drain."""

    repeats = 0
    """How often a call may be repeated. Never: in one process no answer is lost."""

    def __init__(self, store: Store, *, background: bool = True) -> None:
        super().__init__(store)
        self._claims = ClaimFlow(self)
        self._statements = RunningStatements()
        self._shards = [ThreadShard(self, number) for number in range(store.traits.shards)]
        self._close_lock = threading.Lock()
        self._closing = threading.Event()
        """Ends the pauses of the background threads."""
        self._running_claims = 0
        self._no_claims = threading.Condition()
        self.follow_store(self.retry_parked)
        self._threads: list[threading.Thread] = []
        if background:
            schedule = maintenance.Schedule(time.monotonic(), store.extensions.duties, store.traits.instance)
            for name, flow in (("duties", run_duties(self, schedule)), ("watch", watch_store(self))):
                thread = threading.Thread(target=self._drive, args=(flow,), name=f"ackwise-{name}", daemon=True)
                thread.start()
                self._threads.append(thread)

    def send(self, command: Command[A]) -> A:
        """Run one command and return its answer. Raises the refusal. A long command continues in later turns."""
        answer = self._submit([command]).answers()[0]
        while type(command) in LONG_COMMANDS and (rest := next_command(command, answer)) is not None:
            answer = self._submit([rest]).answers()[0]
        return answer

    def send_all(self, commands: Sequence[Command[A]]) -> list[A | AckwiseError]:
        """Run several commands in one turn. Returns one answer per command. A refusal is an answer too."""
        submission = self._submit(commands)
        if submission.error is not None:
            raise submission.error
        assert submission.results is not None
        return submission.results

    def _submit(self, commands: Sequence[Command[A]]) -> Submission[A]:
        """Validate commands and run the valid ones in a turn."""
        checked = CheckedCommands(commands, self.store.events)
        if not checked.valid:
            return refused(checked)
        submission = self._run_turn(checked.valid)
        return with_refusals(submission, checked) if checked.refusals else submission

    def _run_turn(self, commands: Sequence[Command[A]]) -> Submission[A]:
        """Run valid commands in a turn."""
        if self.closed:
            raise Draining("the broker is closed")
        return self._shards[shard_of(commands, len(self._shards))].submit(commands)

    def claim(self, command: Claim, wait: float = 0.0) -> Handed:
        """Claim messages and wait up to `wait` seconds for them."""
        return self._run_claim(self._claims.claim(command, ClaimOptions(time.monotonic() + wait)))

    def settle_and_claim(self, settle: Settle | None, claim: Claim, wait: float = 0.0) -> tuple[list[Settled], Handed]:
        """Settle one batch and claim the next in the same turn.

        If the claim fails after the settlement is committed, the call returns the settlement and an empty claim.
        """
        options = ClaimOptions(time.monotonic() + wait)
        return self._run_claim(self._claims.settle_and_claim(settle, claim, options))

    def claim_ahead(self, settle: Settle | None, claim: Claim, count: int) -> tuple[list[Settled], list[Handed]]:
        """Settle and claim up to `count` batches in one turn. Each batch has its own lease. Never waits.

        The batches share the claim's `most_bytes`.
        """
        return self._run_claim(self._claims.claim_ahead(settle, claim, count))

    def release_cancelled(self, submission: Submission) -> None:
        """Release what a turn granted to a caller that was interrupted. The release costs no failure."""
        self._drive(self._claims.release_cancelled(submission))

    def _run_claim(self, flow: Flow[A]) -> A:
        """Drive the flow of a claim. `close` waits until each running claim has delivered or released its messages."""
        with self._no_claims:
            self._running_claims += 1
        try:
            return self._drive(flow)
        finally:
            with self._no_claims:
                self._running_claims -= 1
                self._no_claims.notify_all()

    def _drive(self, flow: Flow[A]) -> A:
        """Execute the steps of a flow and return its result. The flow gets the error of a step."""
        try:
            step = next(flow)
            while True:
                try:
                    answer = self._execute(step)
                except BaseException as problem:
                    step = flow.throw(problem)
                else:
                    step = flow.send(answer)
        except StopIteration as stop:
            result: A = stop.value
            return result

    def _execute(self, step: Step) -> Any:
        match step:
            case Submit(commands):
                return self._run_turn(commands)
            case Read(claimed):
                return deliver(self.store, claimed)
            case Park():
                return self._park(step)
            case Release(command):
                return self._shards[shard_of([command], len(self._shards))].submit([command])
            case Join(submission):
                return _join(submission)
            case Background(flow):
                return self._drive(flow)
            case Sleep(seconds):
                return self._closing.wait(seconds)
            case Ask(query):
                return self.ask(query)
            case Maintain():
                return self.store.maintain()

    def _park(self, step: Park) -> None:
        poll, gate = step.poll, threading.Lock()
        gate.acquire()
        poll.wake = gate.release
        parked = self.long_polls.park(poll, step.seen)
        if parked and not gate.acquire(timeout=step.seconds) and not self.long_polls.leave(poll):
            gate.acquire()

    def ask(self, query: Query[A]) -> A:
        if not isinstance(query, MeteredQuery):
            return self.store.ask(query)
        if query.TRIES_SHORT:
            short = short_meter(query)
            with self._statements.metered(short):
                answer: A = run_statement(self.store, query, short, long=False)
            if answer is not TOOK_LONGER:
                return answer
        meter = Meter(query.limits)
        with self._statements.long(meter, query.caller):
            answer = run_statement(self.store, query, meter, long=True)
            return answer

    def in_thread(self, work: Callable[..., A], *args: object) -> A:
        """Run `work` in the caller's thread. `AsyncBroker` has the same method and uses another thread."""
        return work(*args)

    def wall(self) -> int:
        """The wall clock, in microseconds."""
        return wall_now(self.store.clock)

    def wall_of(self, instant: int) -> int:
        """An instant of the anchored clock as people read it."""
        return instant - self.store.clock.shift()

    def drain(self, grace: float = 0.0) -> int:
        """Stop claims, wait `grace` seconds for leases to end, release the rest. A release costs no failure."""
        return self._drive(self._claims.drain(grace))

    def close(self) -> None:
        """Finish running calls and close the store. Leases keep their deadlines unless `drain` released them."""
        with self._close_lock:
            if self.closed:
                return
            self.draining = True
            self.closed = True
        self._closing.set()
        self.retry_parked()
        self._statements.close()
        with self._no_claims:
            self._no_claims.wait_for(lambda: not self._running_claims, maintenance.CLOSE_PATIENCE)
        for thread in self._threads:
            thread.join(timeout=30)
        self.close_store()


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

    def submit(self, commands: Sequence[Command[A]]) -> Submission[A]:
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


def _join(submission: Submission) -> None:
    """Wait for a turn that has the claim of an interrupted caller. No turn has a claim that was not yet parked."""
    finished = threading.Event()
    submission.wake = finished.set
    if not submission.finished:
        finished.wait(maintenance.CLOSE_PATIENCE)
