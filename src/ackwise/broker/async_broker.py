"""asyncio driver: turns on the loop, commit in a thread.

The statements of a turn run on the event loop, so that no other thread takes the interpreter from them. Only the
commit, which waits for the disk, runs in a thread.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from typing import Any, TypeVar

from ackwise.broker import maintenance
from ackwise.broker.async_queries import AsyncQueries
from ackwise.broker.async_waits import AsyncWaits
from ackwise.broker.background_flows import run_duties, watch_store
from ackwise.broker.broker_state import BrokerState
from ackwise.broker.claim_flow import ClaimFlow, ClaimOptions
from ackwise.broker.deliveries import Gate, deliver, is_short
from ackwise.broker.long_polls import LongPoll
from ackwise.broker.steps import Ask, Background, Flow, Join, Maintain, Park, Read, Release, Sleep, Step, Submit
from ackwise.broker.turn_queue import (
    Submission,
    TurnQueue,
    commands_of,
    fail,
    finish_turn,
    refused,
    shard_of,
    with_refusals,
)
from ackwise.broker.write_health import BEAT_EVERY, SILENT_AFTER, Pulse
from ackwise.clock import wall_now
from ackwise.core.answers import Claimed, Handed, Settled
from ackwise.core.command_checks import CheckedCommands
from ackwise.core.commands import LONG_COMMANDS, Beat, Claim, Command, Settle, next_command
from ackwise.core.errors import AckwiseError, Draining
from ackwise.store.port import PreparedTurn, Store

A = TypeVar("A")


class AsyncBroker(BrokerState):
    """Broker for the callers on one event loop: commands, claims with long polls, queries, maintenance and drain."""

    repeats = 0
    """How often a call may be repeated. Never: in one process no answer is lost."""

    def __init__(self, store: Store, *, background: bool = True) -> None:
        super().__init__(store)
        self.loop = asyncio.get_running_loop()
        self.pulse = Pulse()
        self._beaten = asyncio.Event()
        self._claims = ClaimFlow(self)
        self._shards = [AsyncShard(self, number) for number in range(store.traits.shards)]
        # Separate pools: a commit holds locks and must not wait for a query.
        self._turns = ThreadPoolExecutor(max_workers=store.traits.shards, thread_name_prefix="ackwise-turn")
        self._helpers = ThreadPoolExecutor(max_workers=store.traits.shards + 2, thread_name_prefix="ackwise")
        self._queries = AsyncQueries(store, self._helpers)
        self.ask = self._queries.ask
        self._waits = AsyncWaits(self.loop, self.long_polls)
        self._running_claims = 0
        self._no_claims = asyncio.Event()
        self._no_claims.set()
        self._tasks: set[asyncio.Task[None]] = set()
        self.follow_store(self._retry_parked_soon)
        if background:
            self.start_task(self._run_beats())
            self.start_task(
                self._drive(run_duties(self, maintenance.Schedule(time.monotonic(), store.extensions.duties)))
            )
            self.start_task(self._drive(watch_store(self)))

    @classmethod
    async def start(cls, store: Store, *, background: bool = True) -> AsyncBroker:
        return cls(store, background=background)

    def start_task(self, work: Coroutine[Any, Any, None]) -> None:
        """Start a task and keep a reference to it until it ends. The event loop keeps only a weak one."""
        task = self.loop.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def in_thread(self, work: Callable[..., A], *args: object) -> A:
        return await self.loop.run_in_executor(self._helpers, work, *args)

    async def prepare_in_thread(self, commands: Sequence[Command], shard: int) -> PreparedTurn:
        """Prepare a turn in a thread. If the caller is cancelled, the finished turn is abandoned."""
        future = self._turns.submit(self.store.prepare, commands, shard)
        try:
            return await asyncio.wrap_future(future)
        except asyncio.CancelledError:
            future.add_done_callback(_abandon)
            raise

    async def commit_in_thread(self, prepared: PreparedTurn) -> None:
        await self.loop.run_in_executor(self._turns, prepared.commit)

    async def send(self, command: Command[A]) -> A:
        """Run one command and return its answer. Raises the refusal. A long command continues in later turns."""
        answer = (await self._submit([command])).answers()[0]
        while type(command) in LONG_COMMANDS and (rest := next_command(command, answer)) is not None:
            answer = (await self._submit([rest])).answers()[0]
        return answer

    async def send_all(self, commands: Sequence[Command[A]]) -> list[A | AckwiseError]:
        """Run several commands in one turn. Returns one answer per command. A refusal is an answer too."""
        submission = await self._submit(commands)
        if submission.error is not None:
            raise submission.error
        assert submission.results is not None
        return submission.results

    async def _submit(self, commands: Sequence[Command[A]]) -> Submission[A]:
        """Validate commands and run the valid ones in a turn."""
        checked = CheckedCommands(commands, self.store.events)
        if not checked.valid:
            return refused(checked)
        submission = await self._run_turn(checked.valid)
        return with_refusals(submission, checked) if checked.refusals else submission

    def _run_turn(self, commands: Sequence[Command[A]]) -> Awaitable[Submission[A]]:
        """Run valid commands in a turn."""
        if self.closed:
            raise Draining("the broker is closed")
        return self._shards[shard_of(commands, len(self._shards))].submit(commands)

    async def claim(
        self,
        command: Claim,
        wait: float = 0.0,
        stopped: asyncio.Future[None] | None = None,
        *,
        gate: Gate | None = None,
        on_park: Callable[[], None] | None = None,
    ) -> Handed:
        """Claim messages and wait up to `wait` seconds for them. The future `stopped` ends the wait earlier.

        A stopped claim still returns messages that it was granted meanwhile. If the caller is cancelled instead, the
        broker releases the messages. An auto-ack is final, so its messages are lost.
        The `gate` runs before the messages are read. The gate may wait or refuse the claim.
        `on_park` runs each time that the claim has found nothing and begins to wait.
        """
        options = ClaimOptions(time.monotonic() + wait, stopped, gate, on_park)
        return await self._run_claim(self._claims.claim(command, options))

    async def settle_and_claim(
        self, settle: Settle | None, claim: Claim, wait: float = 0.0, gate: Gate | None = None
    ) -> tuple[list[Settled], Handed]:
        """Settle one batch and claim the next in the same turn.

        If the claim fails after the settlement is committed, the call returns the settlement and an empty claim.
        """
        options = ClaimOptions(time.monotonic() + wait, gate=gate)
        return await self._run_claim(self._claims.settle_and_claim(settle, claim, options))

    async def claim_ahead(
        self, settle: Settle | None, claim: Claim, count: int, gate: Gate | None = None
    ) -> tuple[list[Settled], list[Handed]]:
        """Settle and claim up to `count` batches in one turn. Each batch has its own lease. Never waits.

        The batches share the claim's `most_bytes`.
        """
        return await self._run_claim(self._claims.claim_ahead(settle, claim, count, gate))

    async def claim_each(self, claims: Sequence[Claim]) -> list[Handed]:
        """Run the claims of several consumers in one turn, in order. Returns one answer per claim. Never waits.

        The claims share the `most_bytes` of the first claim.
        """
        return await self._run_claim(self._claims.claim_each(claims))

    def release_soon(self, claims: Sequence[Claimed]) -> None:
        """Release claims whose messages did not reach their caller. The release costs no failure."""
        if any(claimed.lease_no for claimed in claims):
            self.start_task(self._drive(self._claims.release(claims)))

    def release_cancelled(self, submission: Submission) -> None:
        """Release what a turn grants to a caller that was cancelled. The release costs no failure."""
        self.start_task(self._drive(self._claims.release_cancelled(submission)))

    async def _run_claim(self, flow: Flow[A]) -> A:
        """Drive the flow of a claim. `close` waits until each running claim has delivered or released its messages."""
        self._running_claims += 1
        self._no_claims.clear()
        try:
            return await self._drive(flow)
        finally:
            self._running_claims -= 1
            if not self._running_claims:
                self._no_claims.set()

    async def _drive(self, flow: Flow[A]) -> A:
        """Execute the steps of a flow and return its result. The flow gets the error of a step."""
        try:
            step = next(flow)
            while True:
                try:
                    answer = await self._execute(step)
                except BaseException as problem:
                    step = flow.throw(problem)
                else:
                    step = flow.send(answer)
        except StopIteration as stop:
            result: A = stop.value
            return result

    def _execute(self, step: Step) -> Awaitable[Any]:
        match step:
            case Submit(commands):
                return self._run_turn(commands)
            case Read(claimed, gate):
                return self._read(claimed, gate)
            case Park():
                return self._waits.park(step)
            case Release(command):
                return self._shards[shard_of([command], len(self._shards))].submit([command])
            case Join(submission):
                return self._waits.finished(submission)
            case Background(flow):
                return self._run_in_background(flow)
            case Sleep(seconds):
                return self.closed_within(seconds)
            case Ask(query):
                return self.ask(query)
            case Maintain():
                return self.in_thread(self.store.maintain)

    async def _run_in_background(self, flow: Flow[None]) -> None:
        self.start_task(self._drive(flow))

    async def _read(self, claimed: Claimed, gate: Gate | None) -> Handed:
        if gate is not None and (room := gate(claimed.size, bool(claimed.lease_no))) is not None:
            await room
        if self.store.traits.local and is_short(claimed):
            return deliver(self.store, claimed)
        return await self.in_thread(deliver, self.store, claimed)

    def _retry_parked_soon(self) -> None:
        if not self.loop.is_closed():
            self.loop.call_soon_threadsafe(self.retry_parked)

    def wall(self) -> int:
        """The wall clock, in microseconds."""
        return wall_now(self.store.clock)

    def wall_of(self, instant: int) -> int:
        """An instant of the anchored clock as people read it."""
        return instant - self.store.clock.shift()

    # maintenance

    async def first_beat(self) -> None:
        """Return when the first heartbeat was tried, or after `SILENT_AFTER` seconds."""
        with suppress(TimeoutError):
            await asyncio.wait_for(self._beaten.wait(), SILENT_AFTER)

    async def _run_beats(self) -> None:
        """Send heartbeats from a separate task: a long sweep must not make the broker look dead."""
        command = Beat(instance=self.store.traits.instance)
        while not self.closed:
            try:
                await self.send(command)
                self.pulse.wrote()
            except Exception as problem:
                if not self.closed:
                    self.pulse.failed(problem)
                    maintenance.log_failure("heartbeat", problem)
            self._beaten.set()
            await self.closed_within(BEAT_EVERY)

    async def closed_within(self, seconds: float) -> bool:
        """Sleep, and return whether the broker is closed. `close` ends the sleep."""
        if not self.closed:
            await self._waits.pause(seconds)
        return self.closed

    # shutdown

    async def drain(self, grace: float = 0.0) -> int:
        """Stop claims, wait `grace` seconds for leases to end, release the rest. A release costs no failure."""
        return await self._drive(self._claims.drain(grace))

    @property
    def busy_writers(self) -> int:
        """Number of writers with a turn."""
        return sum(shard.is_running for shard in self._shards)

    async def close(self) -> None:
        """Finish running calls and close the store. Leases keep their deadlines unless `drain` released them."""
        if self.closed:
            return
        self.closed = True
        self._waits.end_pauses()
        self.stop_claims()
        self._queries.refuse()
        await self.in_thread(self._queries.cancel)
        end = time.monotonic() + maintenance.CLOSE_PATIENCE
        with suppress(TimeoutError):
            await asyncio.wait_for(self._no_claims.wait(), maintenance.CLOSE_PATIENCE)
        while self._tasks and time.monotonic() < end:
            # A task releases each cancelled claim. Such a task may start while `close` waits for the others.
            await asyncio.wait(self._tasks, timeout=end - time.monotonic())
        await self.in_thread(self.close_store)
        self._queries.close()
        self._turns.shutdown()
        self._helpers.shutdown()


class AsyncShard:
    """Writer queue of an `AsyncBroker`. A task runs its turns one at a time while commands wait."""

    def __init__(self, broker: AsyncBroker, number: int) -> None:
        self._broker, self._number = broker, number
        self._queue = TurnQueue()
        self._running = False

    @property
    def is_running(self) -> bool:
        """Whether a turn runs or waits."""
        return self._running

    async def submit(self, commands: Sequence[Command[A]]) -> Submission[A]:
        """Wait until a turn has run the commands.

        If the caller is cancelled, the commands stay in their turn, which may already run. The broker then releases
        what the turn grants.
        """
        done: asyncio.Future[None] = self._broker.loop.create_future()
        submission = Submission(commands, lambda: None if done.done() else done.set_result(None))
        self._queue.add(submission)
        if not self._running:
            self._running = True
            self._broker.start_task(self._run())
        try:
            await done
        except asyncio.CancelledError:
            self._broker.release_cancelled(submission)
            raise
        return submission

    async def _run(self) -> None:
        try:
            while len(self._queue):
                # Callers that are ready on the loop submit first, so that they share the turn.
                await asyncio.sleep(0)
                await self._turn()
        finally:
            self._running = False

    async def _turn(self) -> None:
        """Run one turn and wake its callers. Parked claims that the turn may serve ride in it."""
        broker, long_polls = self._broker, self._broker.long_polls
        taken: list[Submission] = []
        riders: list[LongPoll] = []
        prepared: PreparedTurn | None = None
        committed = False
        try:
            self._queue.take(taken)
            commands = commands_of(taken)
            if long_polls.parked:
                long_polls.ride(commands, riders)
                commands += commands_of(riders)
            if not broker.store.busy():
                started = time.perf_counter()
                prepared = broker.store.prepare(commands, self._number)
                self._queue.record_duration(len(commands), started)
            else:
                prepared = await broker.prepare_in_thread(commands, self._number)
            if prepared.nothing_to_commit:
                prepared.commit()
            else:
                await broker.commit_in_thread(prepared)
            committed = True
            finish_turn(broker, taken, riders, prepared)
        except BaseException as problem:
            if not committed:
                fail((*taken, *(rider for rider in riders if not rider.parked)), problem)
                if prepared is not None:
                    prepared.abandon()
            if not isinstance(problem, Exception):
                raise


def _abandon(future: Future[PreparedTurn]) -> None:
    if not future.cancelled() and future.exception() is None:
        future.result().abandon()
