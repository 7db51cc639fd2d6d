"""The broker for asyncio. A turn's statements run on the event loop, where no other thread takes the interpreter
from them; only the commit, which is the fsync, runs in a helper thread."""

from __future__ import annotations

import asyncio
import itertools
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager, suppress
from typing import Any

from ackwise.broker import duties
from ackwise.broker.bells import Bells
from ackwise.broker.handing import Gate, answer, hand_over, is_short, release, split, waiting
from ackwise.broker.loop_lane import Lane, taken_over
from ackwise.broker.pending import Slot, is_empty, shard_of
from ackwise.broker.pulse import BEAT_EVERY, SILENT_AFTER, Pulse
from ackwise.broker.statements import LONG_AT_ONCE, LONGER, Statements, look, short_meter
from ackwise.broker.waiting import Seen, Waiters, Waiting
from ackwise.core.answers import Claimed, Handed, Settled, nothing
from ackwise.core.claiming import EmptyReason
from ackwise.core.commands import Beat, Claim, Command, Settle, each, giving_back, sharing_bytes
from ackwise.core.errors import AckwiseError, Draining, Overloaded, StoreError
from ackwise.core.graph.commands import AskGraph, FindGraph
from ackwise.core.queries import ListLeases, Query
from ackwise.store.clock import ManualClock
from ackwise.store.meter import Meter
from ackwise.store.port import Prepared, Store


class AsyncBroker:
    """Everything a caller on this event loop needs of a store."""

    repeats = 0
    """No answer gets lost on the way, so nothing is asked for again."""

    def __init__(self, store: Store, *, background: bool = True) -> None:
        self.store = store
        self.loop = asyncio.get_running_loop()
        self.waiters = Waiters()
        self.bells = Bells()
        self.pulse = Pulse()
        self._beaten = asyncio.Event()
        self._lanes = [Lane(self, shard) for shard in range(store.shards)]
        # Apart, so that no commit, which holds locks, ever waits for a query.
        self._turns = ThreadPoolExecutor(max_workers=store.shards, thread_name_prefix="ackwise-turn")
        self._helpers = ThreadPoolExecutor(max_workers=store.shards + 2, thread_name_prefix="ackwise")
        self._long = ThreadPoolExecutor(max_workers=LONG_AT_ONCE, thread_name_prefix="ackwise-long")
        self._statements = Statements()
        self._claims = 0
        self._calls = itertools.count(1)
        self._quiet = asyncio.Event()
        self._quiet.set()
        self._draining = False
        self._closed = False
        self._pauses: set[asyncio.Future[None]] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        clock = getattr(store, "clock", None)
        if isinstance(clock, ManualClock):
            clock.on_move(self._look_again_soon)
        if hasattr(store, "on_change"):
            store.on_change = self._look_again_soon
        if background:
            self.keep(self.loop.create_task(self._run_beats()))
            self.keep(self.loop.create_task(self._run_duties()))
            self.keep(self.loop.create_task(self._run_watch()))

    @classmethod
    async def start(cls, store: Store, *, background: bool = True) -> AsyncBroker:
        return cls(store, background=background)

    def keep(self, task: asyncio.Task[None]) -> None:
        """Hold a task until it ends: the loop itself would not."""
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def in_thread(self, work: Any, *args: Any) -> Any:
        return await self.loop.run_in_executor(self._helpers, work, *args)

    async def prepare_in_thread(self, commands: Sequence[Command], shard: int) -> Prepared:
        """If we are cancelled meanwhile, the turn is abandoned as soon as it is there."""
        future = self._turns.submit(self.store.prepare, commands, shard)
        try:
            return await asyncio.wrap_future(future)
        except asyncio.CancelledError:
            future.add_done_callback(_abandon)
            raise

    async def commit_in_thread(self, prepared: Prepared) -> None:
        await self.loop.run_in_executor(self._turns, prepared.commit)

    async def send(self, command: Command) -> Any:
        """The answer to one command; a refusal is raised."""
        return (await self._submit([command])).answers()[0]

    async def send_all(self, commands: Sequence[Command]) -> list[Any]:
        """Several commands of one caller in one turn; refusals are among the answers."""
        slot = await self._submit(commands)
        if slot.error is not None:
            raise slot.error
        assert slot.results is not None
        return slot.results

    async def _submit(self, commands: Sequence[Command]) -> Slot:
        if self._closed:
            raise Draining("the broker is closed")
        return await self._lanes[shard_of(commands, len(self._lanes))].submit(commands)

    async def claim(
        self,
        command: Claim,
        wait: float = 0.0,
        stopped: asyncio.Future[None] | None = None,
        gate: Gate | None = None,
    ) -> Handed:
        """Claim, waiting up to `wait` seconds for something to be there, and not longer than until it is `stopped`.

        Whoever stops it has what it was given meanwhile; what a claim that is cancelled acked at once is lost.
        The `gate` runs before the messages are read. It may wait or refuse the claim.
        """
        with self._under_way():
            return await self._claim(command, time.monotonic() + wait, stopped=stopped, gate=gate)

    async def settle_and_claim(
        self, settle: Settle | None, claim: Claim, wait: float = 0.0, gate: Gate | None = None
    ) -> tuple[list[Settled], Handed]:
        """Settle one batch and claim the next in the same turn. A settlement that was done is always answered."""
        give_up = time.monotonic() + wait
        with self._under_way():
            if settle is None:
                return [], await self._claim(claim, give_up, gate=gate)
            if self._draining:
                return await self.send(settle), nothing(claim, EmptyReason.DRAINING)
            seen = self.waiters.version(claim.queue)
            settled, claims = await self._split(await self._submit([settle, claim]), settle)
            try:
                return settled, await self._claim(claim, give_up, (seen, claims[0]), gate=gate)
            except (StoreError, Overloaded):
                return settled, nothing(claim, EmptyReason.UNAVAILABLE)

    @contextmanager
    def _under_way(self) -> Iterator[None]:
        """Closing waits for claims under way: what they are granted has to be handed over or given back."""
        self._claims += 1
        self._quiet.clear()
        try:
            yield
        finally:
            self._claims -= 1
            if not self._claims:
                self._quiet.set()

    async def _claim(
        self,
        claim: Claim,
        give_up: float,
        tried: tuple[Seen, Claimed] | None = None,
        stopped: asyncio.Future[None] | None = None,
        gate: Gate | None = None,
    ) -> Handed:
        """Try, park and try again; `tried` is a first try that was made already."""
        called: Waiting | None = None
        while True:
            if tried is None:
                seen = self.waiters.version(claim.queue)
                if self._draining:
                    return nothing(claim, EmptyReason.DRAINING)
                tried = seen, (await self._submit([claim])).answers()[0]
                if called is not None:
                    self._wake(self.waiters.pass_on(called, tried[1]))
            (seen, claimed), tried = tried, None
            waits = time.monotonic() < give_up and not (stopped is not None and stopped.done())
            if not claimed.grants and waits and claimed.empty is not EmptyReason.ENDED:
                claim = waiting(claim)
                called = await self._park(claim, seen, claimed, give_up, stopped)
                if called is None or not called.results:
                    continue
                claimed = called.answers()[0]
                if is_empty(called.results):
                    # A turn tried for it, and found that it has to look again earlier.
                    tried = called.seen, claimed
                    continue
            elif called is not None and claimed.until is not None:
                self._wake(self.waiters.relay(called))
            return await self._hand_over(claim, claimed, gate)

    async def claim_ahead(
        self, settle: Settle | None, claim: Claim, count: int, gate: Gate | None = None
    ) -> tuple[list[Settled], list[Handed]]:
        """Settle what is finished and claim up to `count` batches, a lease each, in one turn. Never waits.

        The batches share the claim's `most_bytes`.
        """
        with self._under_way():
            if self._draining:
                return await self.send(settle) if settle is not None else [], []
            asked = each(sharing_bytes([claim], next(self._calls))[0], count)
            commands: list[Command] = [*asked] if settle is None else [settle, *asked]
            settled, claims = await self._split(await self._submit(commands), settle)
            handed = await self._hand_over_all(asked, claims, gate)
            return settled, [one for one in handed if one.claimed.grants]

    async def claim_each(self, claims: Sequence[Claim]) -> list[Handed]:
        """Claim for several holders in one turn, in their order. Returns one answer per claim. Never waits.

        All of them share the `most_bytes` of the first.
        """
        with self._under_way():
            if self._draining or not claims:
                return [nothing(claim, EmptyReason.DRAINING) for claim in claims]
            asked = sharing_bytes(claims, next(self._calls))
            _, claimed = await self._split(await self._submit(asked), None)
            handed = await self._hand_over_all(claims, claimed)
            return [*handed, *(nothing(claim, EmptyReason.UNAVAILABLE) for claim in claims[len(handed) :])]

    async def _hand_over_all(
        self, claims: Sequence[Claim], claimed: Sequence[Claimed], gate: Gate | None = None
    ) -> list[Handed]:
        """As many as could be read; the others go back."""
        handed: list[Handed] = []
        for number, (claim, one) in enumerate(zip(claims, claimed, strict=True)):
            try:
                handed.append(await self._hand_over(claim, one, gate))
            except (StoreError, Overloaded):
                await self._give_back(claimed[number + 1 :])
                break
        return handed

    async def _split(self, slot: Slot, settle: Settle | None) -> tuple[list[Settled], list[Claimed]]:
        settled, claims, refusal = split(slot, settle)
        if refusal is not None:
            await self._give_back(claims)
            raise refusal
        return settled, claims

    async def _hand_over(self, claim: Claim, claimed: Claimed, gate: Gate | None = None) -> Handed:
        """What cannot be handed over goes back: it could not be read, or the broker began to drain meanwhile."""
        if claimed.lease_no and self._draining:
            await self._give_back([claimed])
            return nothing(claim, EmptyReason.DRAINING)
        try:
            if gate is not None and (room := gate(claimed.size, bool(claimed.lease_no))) is not None:
                await room
            if self.store.local and is_short(claimed):
                return hand_over(self.store, claimed)
            handed: Handed = await self.in_thread(hand_over, self.store, claimed)
            return handed
        except BaseException:
            self.give_back_soon([claimed])
            raise

    def give_back_soon(self, claims: Sequence[Claimed]) -> None:
        """Release claims whose messages did not reach their caller. The release costs no failure."""
        if any(claimed.lease_no for claimed in claims):
            self.keep(self.loop.create_task(self._give_back(claims)))

    async def _give_back(self, claims: Sequence[Claimed]) -> None:
        command = release(claims)
        if command is None:
            return
        try:
            # Even when the broker is closed to everybody else.
            (await self._lanes[shard_of([command], len(self._lanes))].submit([command])).answers()
        except AckwiseError as problem:
            duties.complain("giving back a claim", problem)

    async def _park(
        self, claim: Claim, seen: Seen, empty: Claimed, give_up: float, stopped: asyncio.Future[None] | None
    ) -> Waiting | None:
        """Sleep until a turn has tried for the claim, or it is time to try again. None: it is so already."""
        done: asyncio.Future[None] = self.loop.create_future()
        slot = Waiting(claim, lambda: _over(done), empty.until)
        if not self.waiters.park(slot, seen):
            return None
        timeout = give_up - time.monotonic()
        if empty.until is not None:
            timeout = min(timeout, max(0.001, (empty.until - self.store.now()) / 1e6))
        timer = self.loop.call_later(max(0.0, timeout), self._leave, slot)

        def leave(_: object) -> None:
            self._leave(slot)

        if stopped is not None:
            stopped.add_done_callback(leave)
        try:
            await done
        except asyncio.CancelledError:
            if not self.waiters.leave(slot):
                self.keep(self.loop.create_task(self.give_back(slot, taken_over(slot, self.loop))))
            elif slot.until is not None:
                self._wake(self.waiters.relay(slot))
            raise
        finally:
            timer.cancel()
            if stopped is not None:
                stopped.remove_done_callback(leave)
        if slot.error is not None:
            raise slot.error
        return slot

    def _leave(self, slot: Waiting) -> None:
        """Its time is up; a turn that has it now will wake it."""
        if self.waiters.leave(slot):
            slot.finish()

    async def give_back(self, slot: Slot, done: asyncio.Future[None]) -> None:
        """A caller was cancelled while a turn was serving it: what it was given goes back unspent."""
        await done
        if slot.results == []:
            # It was only told to try again: somebody else must do so now.
            self.look_again()
        await self._give_back([c for c in slot.results or [] if isinstance(c, Claimed)])

    def _look_again_soon(self) -> None:
        if not self.loop.is_closed():
            self.loop.call_soon_threadsafe(self.look_again)

    def look_again(self) -> None:
        """Every parked claim tries again."""
        self._wake(self.waiters.everybody())
        self.bells.ring_all()

    def send_scouts(self) -> None:
        """Some parked claims try again, in case a wake-up was missed."""
        self._wake(self.waiters.scouts(time.monotonic()))

    def _wake(self, slots: Sequence[Waiting]) -> None:
        for slot in slots:
            slot.finish()

    async def ask(self, query: Query) -> Any:
        """Queries run in a helper thread: a long one does not hold up the loop."""
        if not isinstance(query, AskGraph | FindGraph):
            return await self.in_thread(answer, self.store, query)
        if isinstance(query, AskGraph):
            short = short_meter(query)
            with self._statements.metered(short):
                found = await self._looked(query, short, long=False)
            if found is not LONGER:
                return found
        meter = Meter(query.limits)
        with self._statements.long(meter):
            return await self._looked(query, meter, long=True)

    async def _looked(self, query: AskGraph | FindGraph, meter: Meter, *, long: bool) -> Any:
        """Ask the store in a thread. Cancelling the caller stops the statement."""
        pool = self._long if long else self._helpers
        future = pool.submit(look, self.store, query, meter, long=long)
        try:
            return await asyncio.wrap_future(future)
        except asyncio.CancelledError:
            meter.cancelled = True
            with suppress(RuntimeError):  # a closed broker has already cancelled the statement
                self._helpers.submit(meter.cancel)  # cancelling may have to ask the database
            raise

    def now(self) -> int:
        return self.store.now()

    # duties

    async def first_beat(self) -> None:
        """Return when the first heartbeat was tried, or after `SILENT_AFTER` seconds."""
        with suppress(TimeoutError):
            await asyncio.wait_for(self._beaten.wait(), SILENT_AFTER)

    async def _run_beats(self) -> None:
        """Send heartbeats from a separate task: a long sweep must not make the broker look dead."""
        command = Beat(instance=getattr(self.store, "instance", "broker"))
        while not self._closed:
            try:
                await self.send(command)
                self.pulse.wrote()
            except Exception as problem:
                if not self._closed:
                    self.pulse.failed(problem)
                    duties.complain("heartbeat", problem)
            self._beaten.set()
            await self._closed_within(BEAT_EVERY)

    async def _run_duties(self) -> None:
        rota = duties.Rota(time.monotonic())
        while not await self._closed_within(rota.wait(time.monotonic())):
            for command in rota.due(time.monotonic()):
                started, more = time.monotonic(), False
                try:
                    for _ in range(duties.in_a_row(command)):
                        more = getattr(await self.send(command), "more", False)
                        if not more:
                            break
                except Exception as problem:
                    if not self._closed:
                        duties.complain(type(command).__name__.lower(), problem)
                rota.swept(command, time.monotonic() - started, time.monotonic(), more=more)
            try:
                await self.in_thread(self.store.maintain)
            except AckwiseError as problem:
                duties.complain("maintenance", problem)

    async def _run_watch(self) -> None:
        """Ask the database, cheaply, whether another process committed; only while somebody waits."""
        while not await self._closed_within(duties.WATCH_EVERY if self._waited_for() else 5 * duties.WATCH_EVERY):
            try:
                if self._waited_for():
                    if self.store.changed():
                        self.look_again()
                    self.send_scouts()
            except Exception as problem:
                if not self._closed:
                    duties.complain("watching for changes", problem)

    def _waited_for(self) -> bool:
        return bool(len(self.waiters) or len(self.bells))

    async def _closed_within(self, seconds: float) -> bool:
        """Asked fifty times a second: a future and a timer cost less than a task that waits for an event."""
        if not self._closed:
            pause: asyncio.Future[None] = self.loop.create_future()
            self._pauses.add(pause)
            timer = self.loop.call_later(seconds, _over, pause)
            try:
                await pause
            finally:
                timer.cancel()
                self._pauses.discard(pause)
        return self._closed

    # the end

    @property
    def draining(self) -> bool:
        return self._draining

    def stop_claims(self) -> None:
        """Hand out nothing more; polls that wait are answered now. Settlements and pushes go on."""
        self._draining = True
        self.look_again()

    async def drain(self, grace: float = 0.0) -> int:
        """Stop claiming, let holders finish for `grace` seconds, release the rest without spending a failure."""
        self.stop_claims()
        end = time.monotonic() + grace
        while await self._held() and time.monotonic() < end:
            await self._closed_within(0.02)
        released = 0
        for lease_id in await self._held():
            released += (await self.send(giving_back([lease_id])))[0].count
        return released

    async def _held(self) -> list[str]:
        query = ListLeases(instance=getattr(self.store, "instance", None), limit=100_000)
        return [row.lease_id for row in await self.ask(query)]

    async def close(self) -> None:
        """Finish what is under way and close the store. Leases keep their deadlines unless `drain` released them."""
        if self._closed:
            return
        self._closed = True
        for pause in self._pauses:
            _over(pause)
        self.stop_claims()
        await self.in_thread(self._statements.close)
        end = time.monotonic() + duties.CLOSE_PATIENCE
        with suppress(TimeoutError):
            await asyncio.wait_for(self._quiet.wait(), duties.CLOSE_PATIENCE)
        while self._tasks and time.monotonic() < end:
            # What a cancelled claim was granted is given back by a task of its own, maybe a new one.
            await asyncio.wait(self._tasks, timeout=end - time.monotonic())
        await self.in_thread(self.store.close)
        self._long.shutdown(cancel_futures=True)
        self._turns.shutdown()
        self._helpers.shutdown()


def _over(pause: asyncio.Future[None]) -> None:
    if not pause.done():
        pause.set_result(None)


def _abandon(future: Future[Prepared]) -> None:
    if not future.cancelled() and future.exception() is None:
        future.result().abandon()
