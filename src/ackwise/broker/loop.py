"""The broker for asyncio. A turn's statements run on the event loop, where no other thread takes the interpreter
from them; only the commit, which is the fsync, runs in a helper thread."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from ackwise.broker import duties
from ackwise.broker.handing import answer, hand_over
from ackwise.broker.pending import Pending, Slot, interrupted, is_empty, shard_of
from ackwise.broker.waiting import Waiters
from ackwise.core.answers import Claimed, Handed, Settled
from ackwise.core.claiming import EmptyReason
from ackwise.core.commands import ByLease, Claim, Command, Settle, Settlement
from ackwise.core.errors import AckwiseError, Draining
from ackwise.core.queries import ListLeases, Query
from ackwise.core.settlement import Outcome
from ackwise.store.clock import ManualClock
from ackwise.store.port import Store


class Lane:
    """The turns of one shard, one at a time."""

    def __init__(self, broker: AsyncBroker, shard: int) -> None:
        self._broker, self._shard = broker, shard
        self._pending = Pending()
        self._running = False

    async def submit(self, commands: Sequence[Command]) -> Slot:
        loop = self._broker.loop
        done: asyncio.Future[None] = loop.create_future()
        slot = Slot(commands, lambda: None if done.done() else done.set_result(None))
        self._pending.add(slot)
        if not self._running:
            self._running = True
            self._broker.keep(loop.create_task(self._run()))
        try:
            await asyncio.shield(done)
        except asyncio.CancelledError:
            # Its commands stay in the turn, which may be under way; what it would have been handed goes back.
            self._broker.keep(loop.create_task(self._broker.give_back(slot, done)))
            raise
        return slot

    async def _run(self) -> None:
        try:
            while len(self._pending):
                # Let everybody who is ready to submit do so before the turn is formed.
                await asyncio.sleep(0)
                await self._turn(self._pending.take())
        finally:
            self._running = False

    async def _turn(self, taken: list[Slot]) -> None:
        broker = self._broker
        riders = broker.waiters.riders(c for slot in taken for c in slot.commands)
        slots = taken + riders
        commands = [c for slot in slots for c in slot.commands]
        started = time.perf_counter()
        try:
            if broker.store.local:
                prepared = broker.store.prepare(commands, self._shard)
                self._pending.learn(len(commands), started)
            else:
                prepared = await broker.in_thread(broker.store.prepare, commands, self._shard)
            await broker.in_thread(prepared.commit)
        except BaseException as problem:
            for slot in slots:
                slot.error = problem if isinstance(problem, Exception) else interrupted()
                slot.wake()
            if not isinstance(problem, Exception):
                raise
            return
        at = 0
        for slot in slots:
            slot.results = prepared.results[at : at + len(slot.commands)]
            at += len(slot.commands)
            slot.wake()
        for slot in broker.waiters.woken(prepared.woken, len(riders)) if prepared.woken else ():
            slot.results = []
            slot.wake()


class AsyncBroker:
    """Everything a caller on this event loop needs of a store."""

    def __init__(self, store: Store, *, background: bool = True) -> None:
        self.store = store
        self.loop = asyncio.get_running_loop()
        self.waiters = Waiters()
        self._lanes = [Lane(self, shard) for shard in range(store.shards)]
        self._helpers = ThreadPoolExecutor(max_workers=store.shards + 2, thread_name_prefix="ackwise")
        self._draining = False
        self._closed = asyncio.Event()
        self._tasks: set[asyncio.Task[None]] = set()
        clock = getattr(store, "clock", None)
        if isinstance(clock, ManualClock):
            clock.on_move(self._look_again_soon)
        if hasattr(store, "on_change"):
            store.on_change = self._look_again_soon
        if background:
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
        if self._closed.is_set():
            raise Draining("the broker is closed")
        return await self._lanes[shard_of(commands, len(self._lanes))].submit(commands)

    async def claim(self, command: Claim, wait: float = 0.0) -> Handed:
        """Claim, waiting up to `wait` seconds for something to be there."""
        return (await self.settle_and_claim(None, command, wait))[1]

    async def settle_and_claim(
        self, settle: Settle | None, claim: Claim, wait: float = 0.0
    ) -> tuple[list[Settled], Handed]:
        """Settle one batch and claim the next in the same turn."""
        give_up = time.monotonic() + wait
        settled: list[Settled] = []
        while True:
            if self._draining:
                if settle is not None:
                    settled = await self.send(settle)
                return settled, Handed(Claimed(claim.group, [], empty=EmptyReason.DRAINING), ())
            seen = self.waiters.version(claim.queue)
            results = (await self._submit([claim] if settle is None else [settle, claim])).answers()
            if settle is not None:
                settled, settle = results[0], None
            claimed: Claimed = results[-1]
            if not claimed.grants and time.monotonic() < give_up and claimed.empty is not EmptyReason.ENDED:
                riding = await self._park(claim, seen, claimed, give_up)
                if riding is None:
                    continue
                claimed = riding
            if self.store.local:
                return settled, hand_over(self.store, claimed)
            return settled, await self.in_thread(hand_over, self.store, claimed)

    async def claim_ahead(self, settle: Settle | None, claim: Claim, count: int) -> tuple[list[Settled], list[Handed]]:
        """Settle what is finished and claim up to `count` batches, a lease each, in one turn. Never waits."""
        if self._draining:
            return await self.send(settle) if settle is not None else [], []
        commands: list[Command] = [claim] * count if settle is None else [settle, *([claim] * count)]
        results = (await self._submit(commands)).answers()
        first = 0 if settle is None else 1
        settled = results[0] if first else []
        handed = [one for one in results[first:] if one.grants]
        if self.store.local:
            return settled, [hand_over(self.store, one) for one in handed]
        return settled, [await self.in_thread(hand_over, self.store, one) for one in handed]

    async def _park(self, claim: Claim, seen: tuple[int, int], empty: Claimed, give_up: float) -> Claimed | None:
        """Sleep until a turn serves the claim (its answer), or it is time to try again (None)."""
        done: asyncio.Future[None] = self.loop.create_future()
        slot = Slot([claim], lambda: None if done.done() else done.set_result(None))
        if not self.waiters.park(claim.queue, slot, seen):
            return None
        timeout = give_up - time.monotonic()
        if empty.until is not None:
            timeout = min(timeout, max(0.001, (empty.until - self.store.now()) / 1e6))
        try:
            await asyncio.wait([done], timeout=max(0.0, timeout))
        except asyncio.CancelledError:
            if not self.waiters.leave(claim.queue, slot):
                self.keep(self.loop.create_task(self.give_back(slot, done)))
            raise
        if not done.done() and not self.waiters.leave(claim.queue, slot):
            await done
        if slot.error is not None:
            raise slot.error
        if slot.results and isinstance(slot.results[0], AckwiseError):
            raise slot.results[0]
        return None if not slot.results or is_empty(slot.results) else slot.results[0]

    async def give_back(self, slot: Slot, done: asyncio.Future[None]) -> None:
        """A caller was cancelled while a turn was serving it: what it was given goes back unspent."""
        await done
        claims = [c for c in slot.results or [] if isinstance(c, Claimed) and c.lease_no]
        entries = [Settlement(selector=ByLease(c.lease_id), outcome=Outcome.RELEASE) for c in claims]
        if entries and not self._closed.is_set():
            await self.send(Settle(entries=entries))

    def _look_again_soon(self) -> None:
        if not self.loop.is_closed():
            self.loop.call_soon_threadsafe(self.look_again)

    def look_again(self) -> None:
        """Every parked claim tries again."""
        for slot in self.waiters.everybody():
            slot.results = []
            slot.wake()

    async def ask(self, query: Query) -> Any:
        """Queries run in a helper thread: a long one does not hold up the loop."""
        return await self.in_thread(answer, self.store, query)

    def now(self) -> int:
        return self.store.now()

    # duties

    async def _run_duties(self) -> None:
        rota = duties.Rota(getattr(self.store, "instance", "broker"), time.monotonic())
        while not await self._closed_within(rota.wait(time.monotonic())):
            for command in rota.due(time.monotonic()):
                try:
                    for _ in range(duties.MOST_SWEEPS_IN_A_ROW):
                        if not getattr(await self.send(command), "more", False):
                            break
                except Exception as problem:
                    if not self._closed.is_set():
                        duties.complain(type(command).__name__.lower(), problem)
            try:
                await self.in_thread(self.store.maintain)
            except AckwiseError as problem:
                duties.complain("maintenance", problem)

    async def _run_watch(self) -> None:
        """Ask the database, cheaply, whether another process committed; only while somebody waits."""
        while not await self._closed_within(duties.WATCH_EVERY if len(self.waiters) else 5 * duties.WATCH_EVERY):
            try:
                if len(self.waiters) and self.store.changed():
                    self.look_again()
            except Exception as problem:
                if not self._closed.is_set():
                    duties.complain("watching for changes", problem)

    async def _closed_within(self, seconds: float) -> bool:
        try:
            await asyncio.wait_for(self._closed.wait(), seconds)
        except TimeoutError:
            return False
        return True

    # the end

    async def drain(self, grace: float = 0.0) -> int:
        """Stop claiming, let holders finish for `grace` seconds, release the rest without spending a failure."""
        self._draining = True
        self.look_again()
        end = time.monotonic() + grace
        while await self._held() and time.monotonic() < end:
            await self._closed_within(0.02)
        released = 0
        for lease_id in await self._held():
            entry = Settlement(selector=ByLease(lease_id), outcome=Outcome.RELEASE)
            released += (await self.send(Settle(entries=[entry])))[0].count
        return released

    async def _held(self) -> list[str]:
        query = ListLeases(instance=getattr(self.store, "instance", None), limit=100_000)
        return [row.lease_id for row in await self.ask(query)]

    async def close(self) -> None:
        """Finish what is under way and close the store. Leases keep their deadlines unless `drain` released them."""
        if self._closed.is_set():
            return
        self._draining = True
        self._closed.set()
        self.look_again()
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=30)
        await self.in_thread(self.store.close)
        self._helpers.shutdown()
